//! The contract between a shard's owner and its backend, and the backends.
//!
//! The contract is completion-shaped: a [`Handler`] is told what has happened and states, through
//! [`Io`], what it wants; it never sees a descriptor, readiness or a completion queue. A backend
//! implements [`Driver`] alone.

use std::net::SocketAddr;
use std::str::FromStr;
use std::{fmt, io as std_io};

use rustix::io::Errno;

use crate::slab::ConnId;

pub mod epoll;
pub mod io;
pub mod stats;
pub mod uring;

use io::Io;

/// Where an open connection comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Accepted by the listener with this index among the shard's listeners.
    Accepted(usize),
    /// Asked for with [`Io::connect`].
    Connected,
}

/// Why a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    /// The handler asked for it.
    Local,
    /// The peer sent its last byte (EOF).
    Peer,
    /// The connection failed: reset, timed out, unreachable.
    Failed(Errno),
    /// It could not be established.
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

/// What is done with a shard's connections. All calls come from the shard's own thread.
///
/// For one connection the order is: [`on_open`](Self::on_open), any number of
/// [`on_received`](Self::on_received), [`on_blocked`](Self::on_blocked) and
/// [`on_timer`](Self::on_timer), then [`on_closed`](Self::on_closed) exactly once. A connection
/// that could not be established gets `on_closed` alone.
pub trait Handler: Sized {
    /// State of one connection, kept in the driver's slab.
    type Session;
    /// What shards tell each other.
    type Mail: Send + 'static;

    /// A peer has connected to `listener`. `None` refuses it at once.
    fn accept(&mut self, listener: usize, peer: SocketAddr) -> Option<Self::Session>;

    /// The connection can send and receive.
    fn on_open(&mut self, io: &mut Io<Self>, id: ConnId, origin: Origin);

    /// `bytes` arrived. The slice is the driver's own buffer and may be written to; what is needed
    /// later must be copied.
    fn on_received(&mut self, io: &mut Io<Self>, id: ConnId, bytes: &mut [u8]);

    /// The socket has stopped taking bytes and some are pending. Told once until they are all
    /// taken.
    fn on_blocked(&mut self, io: &mut Io<Self>, id: ConnId);

    /// Last chance to complete the bytes appended in this turn (to close a frame, say) before they
    /// are written.
    fn before_write(&mut self, conn: &mut io::Conn<Self::Session>);

    /// The connection is gone; `unsent` items of its output were not wholly sent.
    fn on_closed(
        &mut self,
        io: &mut Io<Self>,
        id: ConnId,
        session: Self::Session,
        why: Closed,
        unsent: u64,
    );

    /// A timer set with [`Io::set_timer`] has fired. `id` is [`ConnId::NONE`] for the shard's own;
    /// timers of connections that are gone are not told.
    fn on_timer(&mut self, io: &mut Io<Self>, id: ConnId, kind: u8);

    /// Mail from another shard or thread.
    fn on_mail(&mut self, io: &mut Io<Self>, mail: Self::Mail);

    /// `mail` could not be posted because its shard has ended, or had not been read when this
    /// shard ended.
    fn on_undelivered(&mut self, mail: Self::Mail);

    /// Everything that arrived in this turn has been handed out; writing comes next.
    fn on_turn_end(&mut self, io: &mut Io<Self>);

    /// Everything has been written and [`Io::sent`](io::Io::sent) is up to date; also called once
    /// when the shard has ended.
    fn on_written(&mut self, io: &mut Io<Self>);
}

/// A backend: how the kernel is asked.
pub trait Driver<H: Handler> {
    /// Runs one turn (see the crate's documentation).
    ///
    /// # Errors
    /// The kernel's event queue itself failed; the shard cannot go on.
    fn turn(&mut self, io: &mut Io<H>, handler: &mut H) -> std_io::Result<()>;

    /// Closes the listeners, gives every connection one last write and closes it.
    fn shut_down(&mut self, io: &mut Io<H>, handler: &mut H);
}

/// Which backend to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DriverKind {
    /// The best one that the kernel permits.
    #[default]
    Auto,
    /// epoll(7).
    Epoll,
    /// io_uring(7).
    Uring,
}

impl DriverKind {
    /// The backend that is used: [`Auto`](Self::Auto) becomes what the kernel permits, with the
    /// reason where that is not the best one.
    ///
    /// # Errors
    /// The kernel does not permit what was asked for by name.
    pub fn resolve(self) -> std_io::Result<(Self, Option<String>)> {
        match self {
            Self::Epoll => Ok((self, None)),
            Self::Uring => uring::probe().map(|()| (self, None)),
            Self::Auto => Ok(match uring::probe() {
                Ok(()) => (Self::Uring, None),
                Err(error) => (Self::Epoll, Some(error.to_string())),
            }),
        }
    }
}

impl fmt::Display for DriverKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Epoll => "epoll",
            Self::Uring => "uring",
        })
    }
}

impl FromStr for DriverKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "auto" => Ok(Self::Auto),
            "epoll" => Ok(Self::Epoll),
            "uring" => Ok(Self::Uring),
            other => Err(format!(
                "unknown driver {other:?}; known are \"auto\", \"epoll\" and \"uring\""
            )),
        }
    }
}
