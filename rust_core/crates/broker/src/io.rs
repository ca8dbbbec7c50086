//! The reactor's side of a shard, as the parts see it. A file of its own, which knows no part.

use crate::mail::Mail;
use crate::session::Session;

/// The connections of a shard, and the commands that its parts may give.
pub(crate) type Io = reactor::ShardIo<Session, Mail>;

/// The kinds of timers.
pub(crate) struct Timer;

impl Timer {
    /// The time for a request over HTTP.
    pub(crate) const HANDSHAKE: u8 = 0;
    /// The next `PING`, or the next sign of life of a stream of events.
    pub(crate) const PING: u8 = 1;
    /// The deadline of a client that does not take its output.
    pub(crate) const WRITE: u8 = 2;
    /// The end of a publisher's stall.
    pub(crate) const RESUME: u8 = 3;
    /// The next step of lame duck mode.
    pub(crate) const LAME_DUCK: u8 = 4;
    /// The deadline of a reply over HTTP.
    pub(crate) const REPLY: u8 = 5;
    /// The next measurement of the shard.
    pub(crate) const SAMPLE: u8 = 6;
    /// The next look at a request to the monitor.
    pub(crate) const SURVEY: u8 = 7;
    /// The deadline of the oldest half-open connection.
    pub(crate) const HALF_OPEN: u8 = 8;
}
