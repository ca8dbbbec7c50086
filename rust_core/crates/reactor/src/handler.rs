//! The calls from a shard to its owner.

use std::fmt;
use std::net::SocketAddr;

use rustix::io::Errno;

use crate::conn_id::ConnId;
use crate::connections::Conn;
use crate::io::ShardIo;

/// The connections and commands of a handler's shard.
pub type Io<H> = ShardIo<<H as Handler>::Session, <H as Handler>::Mail>;

/// The way in which an open connection came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Accepted by the listener with this index among the shard's listeners.
    Accepted(usize),
    /// Established by [`Io::connect`].
    Connected,
}

/// The reason for a connection's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    /// The handler asked for it.
    Local,
    /// The peer sent its last byte (EOF).
    Peer,
    /// The connection failed: reset, timed out, unreachable.
    Failed(Errno),
    /// The connection could not be established.
    Refused(Errno),
    /// The shard ended.
    Shutdown,
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("closed by this side"),
            Self::Peer => f.write_str("closed by the peer"),
            Self::Failed(errno) => write!(f, "connection failed: {errno}"),
            Self::Refused(errno) => write!(f, "could not connect: {errno}"),
            Self::Shutdown => f.write_str("shutting down"),
        }
    }
}

/// The owner of a shard's connections. All calls come from the shard's own thread, in the order that the
/// crate's documentation gives for a turn.
///
/// For one connection the order is: [`on_open`](Self::on_open), any number of
/// [`on_received`](Self::on_received), [`on_blocked`](Self::on_blocked) and
/// [`on_timer`](Self::on_timer), then [`on_closed`](Self::on_closed) exactly once. A connection
/// that could not be established gets `on_closed` alone.
pub trait Handler: Sized {
    /// State of one connection, kept in the shard's slab.
    type Session;
    /// Mail between shards.
    type Mail: Send + 'static;

    /// Take a connection from `peer` to `listener`, or refuse it at once with `None`.
    fn accept(
        &mut self,
        io: &mut Io<Self>,
        listener: usize,
        peer: SocketAddr,
    ) -> Option<Self::Session>;

    /// Learn that the connection can send and receive.
    fn on_open(&mut self, io: &mut Io<Self>, id: ConnId, origin: Origin);

    /// Use `bytes`, which arrived. The slice is the driver's own buffer and may be written to; a
    /// handler copies the bytes that it needs later.
    fn on_received(&mut self, io: &mut Io<Self>, id: ConnId, bytes: &mut [u8]);

    /// Learn that the socket has stopped taking bytes while some are pending. Told once until all
    /// of them are taken.
    fn on_blocked(&mut self, io: &mut Io<Self>, id: ConnId);

    /// Complete the bytes appended in this turn, for instance by closing a frame, before they are
    /// written.
    fn before_write(&mut self, conn: &mut Conn<Self::Session>);

    /// Learn that the connection is gone; `unsent` items of its output were not wholly sent.
    fn on_closed(
        &mut self,
        io: &mut Io<Self>,
        id: ConnId,
        session: Self::Session,
        why: Closed,
        unsent: u64,
    );

    /// Learn that a timer set with [`Io::set_timer`] has fired. `id` is [`ConnId::NONE`] for the
    /// shard's own; timers of connections that are gone are not told.
    fn on_timer(&mut self, io: &mut Io<Self>, id: ConnId, kind: u8);

    /// Take mail from this or another shard.
    fn on_mail(&mut self, io: &mut Io<Self>, mail: Self::Mail);

    /// Take back mail that could not be posted because its shard has ended, or that had not been
    /// read when this shard ended.
    fn on_undelivered(&mut self, mail: Self::Mail);

    /// Continue with work that was put off, as far as [`Io::is_spent`] permits. A handler that has
    /// more left says so by [`Io::wake_at`].
    fn on_turn_end(&mut self, io: &mut Io<Self>);

    /// Learn that the turn is over and [`Io::sent`] is up to date; also called once when the shard
    /// has ended.
    fn on_written(&mut self, io: &mut Io<Self>);
}
