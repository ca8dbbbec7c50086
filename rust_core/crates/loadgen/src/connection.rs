//! What the client's handler knows of a connection, whatever it speaks.

use reactor::Output;

use crate::link::{Endpoint, Event, LinkError};
use crate::outbox::Outbox;
use crate::rng::Rng;
use crate::subject::Subject;

/// One connection without I/O: bytes in, events out, answers appended on demand.
pub(crate) trait Connection: Sized + Send + 'static {
    /// One that is about to be established.
    fn new(endpoint: &Endpoint, keys: &mut Rng) -> Self;

    /// The peer has accepted it.
    fn handle_open(&mut self);

    /// Whether the workload may use it.
    fn is_ready(&self) -> bool;

    /// Whether it was ready, has done what it was for, and only has to be closed.
    fn is_over(&self) -> bool;

    /// Whether [`answer`](Self::answer) has something to append.
    fn owes(&self) -> bool;

    /// Takes received bytes and tells what they hold; `handle` may append to the outbox.
    ///
    /// # Errors
    /// The connection is of no use any more.
    fn receive(
        &mut self,
        endpoint: &Endpoint,
        bytes: &mut [u8],
        handle: impl FnMut(Event<'_>, &mut Outbox),
    ) -> Result<(), LinkError>;

    /// Appends what the bytes received so far have to be answered with.
    ///
    /// # Errors
    /// It cannot be written.
    fn answer(
        &mut self,
        endpoint: &Endpoint,
        subject: &Subject,
        output: &mut Output,
        keys: &mut Rng,
    ) -> Result<(), LinkError>;

    /// Completes what was appended, after which it may be sent.
    fn seal(&mut self, output: &mut Output, keys: &mut Rng);

    /// Appends the farewell of a connection that is ended in good order.
    fn close(&mut self, output: &mut Output, keys: &mut Rng, code: u16);
}
