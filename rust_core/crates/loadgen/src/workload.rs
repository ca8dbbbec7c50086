//! What an engine does on its connections, as the reactor's handler sees it.

use std::time::Instant;

use reactor::{ConnId, Io, Output};

use crate::client::Client;
use crate::connection::Connection;
use crate::http::Answer;
use crate::link::Message;
use crate::outbox::Outbox;
use crate::rng::Rng;
use crate::shared::Gauges;
use crate::subject::Subject;

/// A connection to append to.
pub(crate) struct Writer<'a> {
    pub(crate) outbox: &'a mut Outbox,
    pub(crate) output: &'a mut Output,
    pub(crate) keys: &'a mut Rng,
}

/// What follows when a connection that was ready is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    /// It is established again.
    Repair,
    /// It stays lost.
    Accept,
    /// It was closed on purpose, and is established again at once.
    Churn,
    /// Nobody needed it; it is established again when somebody does.
    Idle,
}

/// What an engine does on its connections. Members are its users or providers, counted from 0
/// within the thread.
pub(crate) trait Workload: Sized + Send + 'static {
    /// What its connections speak.
    type Link: Connection;

    /// Whether messages are answered on the connection that they arrive on.
    const ANSWERS: bool;

    /// The number of a member among all threads' and processes'.
    fn number(&self, member: u32) -> u32;

    /// The subject that a member subscribes to.
    fn subject(&self, member: u32) -> Subject;

    /// A connection is ready.
    fn handle_ready(&mut self, member: u32, id: ConnId);

    /// A connection that was ready is gone.
    fn handle_lost(&mut self, member: u32, id: ConnId) -> Loss;

    /// Bytes have arrived; what they hold is handed out next.
    fn handle_slice(&mut self);

    /// A message has arrived. `writer` is there when the workload [answers](Self::ANSWERS).
    fn handle_message(&mut self, member: u32, message: &Message<'_>, writer: Option<Writer<'_>>);

    /// The answer to a member's request over HTTP has arrived. Whether it is a message that somebody has
    /// published, rather than the server's own words.
    fn handle_answer(&mut self, _member: u32, _answer: &Answer<'_>) -> bool {
        false
    }

    /// Begin to send at `at`; after a sweep, to go on.
    fn handle_start(&mut self, at: Instant);

    /// Send no more.
    fn handle_stop(&mut self);

    /// Everything that arrived in this turn has been handed out.
    fn poll_turn(&mut self, io: &mut Io<Client<Self>>, keys: &mut Rng, gauges: &Gauges);

    /// A member who needs a connection that nothing else will establish.
    #[inline]
    fn poll_wanted(&mut self) -> Option<u32> {
        None
    }

    /// Whether everything is done that was asked for.
    #[inline]
    fn is_over(&self) -> bool {
        false
    }

    /// This turn's output was written; the kernel has taken `items` items since the beginning.
    fn handle_written(&mut self, items: u64, gauges: &Gauges);
}
