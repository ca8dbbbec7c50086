//! A shard's thread: listeners, driver, turns, end.

use std::io;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;

use crate::clock::Clock;
use crate::driver::epoll::Epoll;
use crate::driver::uring::Uring;
use crate::driver::{Driver, DriverKind};
use crate::fdtable;
use crate::handler::{Handler, Io};
use crate::listener::listen;
use crate::mailbox::Mailboxes;
use crate::socket::Mode;
use crate::turn::Turn;

/// Let the calling thread's waits end when they are asked to, rather than up to 50 us later as
/// the kernel's default slack allows; see PR_SET_TIMERSLACK in prctl(2). For threads that pace.
///
/// # Errors
/// The kernel refuses.
pub fn wake_precisely() -> io::Result<()> {
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
    Ok(())
}

/// The parts of one shard.
pub struct ShardSpec<M> {
    /// Index of the shard among `mailboxes`.
    pub index: usize,
    /// Mailboxes of all shards.
    pub mailboxes: Mailboxes<M>,
    /// Addresses to listen on, reserved by the process; may be empty.
    pub listeners: Vec<SocketAddr>,
    /// The driver.
    pub driver: DriverKind,
    /// Connections that it must have room for, where it has file tables of its own (io_uring).
    pub connections: usize,
    /// Whether the thread gets a descriptor table of its own; see [`fdtable`]. Files, sockets and other
    /// descriptors must not pass between such a thread and others then, as mail say: a number that one
    /// thread has opened names another file, or none, in the other.
    pub own_table: bool,
    /// Work of one turn before everything is written; see [`work`](crate::work).
    pub turn_budget: usize,
}

/// A shard that is ready to run, in the thread that opened it. It cannot leave that thread, which may have
/// a descriptor table of its own.
pub struct Shard<H: Handler> {
    kind: Kind<H>,
    _thread: PhantomData<*const ()>,
}

enum Kind<H: Handler> {
    Epoll(Box<Turn<H, Epoll>>),
    Uring(Box<Turn<H, Uring>>),
}

impl<H: Handler> Shard<H> {
    /// Open the listeners and the driver, in a descriptor table of the calling thread's own if that is
    /// asked for: what the thread has opened before cannot be used then. Must be called in the thread that
    /// will [`run`](Self::run) the shard.
    ///
    /// # Errors
    /// An address cannot be listened on, or the kernel refuses a table, a descriptor or the
    /// driver.
    pub fn open(spec: ShardSpec<H::Mail>) -> io::Result<Self> {
        if spec.own_table {
            // SAFETY: a shard cannot leave its thread, and gives none of its descriptors away.
            // Who asks for `own_table` answers for the descriptors of the handler.
            unsafe { fdtable::isolate(&spec.mailboxes.descriptors())? };
        }
        let mode = match spec.driver {
            DriverKind::Uring => Mode::Blocking,
            DriverKind::Epoll => Mode::NonBlocking,
        };
        let listeners = spec
            .listeners
            .iter()
            .map(|address| {
                listen(*address, mode).map_err(|error| io::Error::new(error.source.kind(), error))
            })
            .collect::<io::Result<Vec<_>>>()?;
        let mut io = Io::<H>::new(
            spec.index,
            spec.mailboxes.clone(),
            spec.turn_budget,
            Clock::default(),
        );
        let descriptors = listeners.iter().map(|listener| Some(listener.as_raw_fd()));
        io.listeners = descriptors.collect();
        // Shards that share a table have a part of it each.
        let tables = if spec.own_table {
            1
        } else {
            spec.mailboxes.shards()
        };
        io.descriptor_limit = (fdtable::limit() / tables.max(1) as u64) as usize;
        let wake = spec.mailboxes.wake_descriptor(spec.index);
        let kind = match spec.driver {
            DriverKind::Uring => {
                let driver = Uring::new(listeners, wake.as_raw_fd(), spec.connections)?;
                Kind::Uring(Box::new(begin(io, driver)))
            }
            DriverKind::Epoll => Kind::Epoll(Box::new(begin(io, Epoll::new(listeners, wake)?))),
        };
        Ok(Self {
            kind,
            _thread: PhantomData,
        })
    }

    /// Return the connections, to connect or set timers before the first turn.
    pub fn io(&mut self) -> &mut Io<H> {
        match &mut self.kind {
            Kind::Epoll(turn) => &mut turn.io,
            Kind::Uring(turn) => &mut turn.io,
        }
    }

    /// Run turns until the handler asks to stop, then close what is left.
    ///
    /// # Errors
    /// The driver failed. Everything has been closed and accounted for then, too.
    pub fn run(self, handler: &mut H) -> io::Result<()> {
        match self.kind {
            Kind::Epoll(turn) => turn.run(handler),
            Kind::Uring(turn) => turn.run(handler),
        }
    }
}

fn begin<H: Handler, D: Driver>(mut io: Io<H>, driver: D) -> Turn<H, D> {
    io.driver_buffers = driver.buffer_bytes();
    io.descriptor_limit = driver.room().unwrap_or(io.descriptor_limit);
    Turn::new(io, driver)
}
