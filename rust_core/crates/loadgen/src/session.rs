//! State of one connection, and the commands to its thread, without their behavior.

use std::time::Instant;

use reactor::ShardIo;

use crate::connection::LinkError;
use crate::dialer::Attempt;

/// The connections of a thread, and the commands that its work may give.
pub(crate) type Io<L> = ShardIo<Session<L>, Mail>;

/// State of one connection. A process has up to a million of them.
pub(crate) struct Session<L> {
    pub(crate) link: L,
    pub(crate) attempt: Attempt,
    /// Reason why this side closes the connection.
    pub(crate) failure: Option<Box<LinkError>>,
}

/// Command to a thread, from the engine's owner or from another thread.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Mail {
    /// Begin to send at this time.
    Start(Instant),
    /// Stop sending.
    Stop,
    /// Begin no more connections, because the connect phase has failed on another thread.
    Halt,
    /// Close every connection and end.
    Close,
    /// Do a turn, because shared state has changed.
    Wake,
}
