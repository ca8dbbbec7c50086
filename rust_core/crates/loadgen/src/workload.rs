//! The work of an engine on its connections, as the reactor's handler sees it.

use std::time::Instant;

use protocol::nats::Message;
use reactor::{Clock, ConnId, Output};

use crate::connection::{Connection, Outbox, Response};
use crate::rng::Rng;
use crate::session::Io;
use crate::shared::ThreadCounters;
use crate::subject::Subject;

/// A connection to append to.
pub(crate) struct Writer<'a> {
    pub(crate) outbox: &'a mut Outbox,
    pub(crate) output: &'a mut Output,
    pub(crate) keys: &'a mut Rng,
}

/// Policy for a connection that was ready and is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reconnect {
    /// Establish it again, with pauses.
    Retry,
    /// Leave it closed.
    Never,
    /// Establish it again at once, because it was closed on purpose.
    AtOnce,
    /// Establish it again when a request needs it.
    OnDemand,
}

/// Work of an engine on its connections. Members are its users or providers, counted from 0 within
/// the thread.
pub(crate) trait Workload: Sized + Send + 'static {
    /// Protocol of its connections.
    type Link: Connection;

    /// Whether messages are answered on the connection that they arrive on.
    const REPLIES: bool;

    /// Return the number of a member among all threads' and processes'.
    fn number(&self, member: u32) -> u32;

    /// Return the subject that a member subscribes to.
    fn subject(&self, member: u32) -> Subject;

    /// Note that a connection is ready.
    fn handle_ready(&mut self, member: u32, id: ConnId);

    /// Note that a connection that was ready is gone; return the policy for it.
    fn handle_lost(&mut self, member: u32, id: ConnId) -> Reconnect;

    /// Note that a connection has ended with `items` items that the kernel had not wholly taken.
    fn handle_unsent(&mut self, _items: u64) {}

    /// Note that bytes have arrived, before their events are handled. `clock` is for workloads that
    /// need the time.
    fn handle_slice(&mut self, clock: &Clock);

    /// Handle a message. `writer` is present if the workload [replies](Self::REPLIES).
    fn handle_message(&mut self, member: u32, message: &Message<'_>, writer: Option<Writer<'_>>);

    /// Handle the response to a member's HTTP request. Return whether it carries a published
    /// message, rather than the server's own text.
    fn handle_response(&mut self, _member: u32, _response: &Response<'_>) -> bool {
        false
    }

    /// Begin to send at `at`; after a sweep, to go on.
    fn handle_start(&mut self, at: Instant);

    /// Send no more from `now` on.
    fn handle_stop(&mut self, now: Instant);

    /// Do the work of a turn, after everything received in it was handled.
    fn poll_turn(&mut self, io: &mut Io<Self::Link>, keys: &mut Rng, counters: &ThreadCounters);

    /// Return a member who needs a connection that nothing else will establish.
    #[inline]
    fn poll_wanted(&mut self) -> Option<u32> {
        None
    }

    /// Return whether all work is done at `now`.
    #[inline]
    fn is_over(&self, _now: Instant) -> bool {
        false
    }

    /// Note that the turn's output was written; the kernel has taken `items` items since the
    /// beginning.
    fn handle_written(&mut self, items: u64, counters: &ThreadCounters);
}
