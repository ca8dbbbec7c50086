//! A shard's thread: listeners, driver, loop, end.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;
use std::time::Duration;

use crate::driver::epoll::Epoll;
use crate::driver::io::Io;
use crate::driver::uring::Uring;
use crate::driver::{Driver, DriverKind, Handler};
use crate::fdtable;
use crate::listener::listen;
use crate::mailbox::Mailboxes;
use crate::socket::Mode;

/// Lets the calling thread's waits end when they are asked to, rather than up to 50 us later as
/// the kernel's default slack allows; see PR_SET_TIMERSLACK in prctl(2). For threads that pace.
///
/// # Errors
/// The kernel refuses.
pub fn wake_precisely() -> io::Result<()> {
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
    Ok(())
}

/// Processor time that all threads of this process have used.
#[must_use]
pub fn process_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Processor time that the calling thread has used.
#[must_use]
pub fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// What one shard consists of.
pub struct ShardSpec<M> {
    /// Index of the shard among `mailboxes`.
    pub index: usize,
    /// Mailboxes of all shards.
    pub mailboxes: Mailboxes<M>,
    /// Addresses to listen on, reserved by the process; may be empty.
    pub listeners: Vec<SocketAddr>,
    /// The backend, [resolved](DriverKind::resolve).
    pub driver: DriverKind,
    /// Connections that it must have room for, where it has file tables of its own (io_uring).
    pub connections: usize,
    /// Whether the thread gets a descriptor table of its own; see [`fdtable`].
    pub own_table: bool,
    /// What may be spent in one turn before everything is written; see [`Io::spend`]. Bytes.
    pub turn_budget: usize,
}

/// A shard that is ready to run, in the thread that built it.
pub struct Shard<H: Handler> {
    io: Io<H>,
    driver: Backend,
}

enum Backend {
    Epoll(Epoll),
    Uring(Box<Uring>),
}

impl Backend {
    fn of<H: Handler>(&mut self) -> &mut dyn Driver<H> {
        match self {
            Self::Epoll(epoll) => epoll,
            Self::Uring(uring) => uring.as_mut(),
        }
    }
}

impl<H: Handler> Shard<H> {
    /// Opens the listeners and the backend, in a descriptor table of the calling thread's own where
    /// that is asked for. Must be called in the thread that will [`run`](Self::run) the shard, and
    /// that thread must own no descriptors then.
    ///
    /// # Errors
    /// An address cannot be listened on, or the kernel refuses a table, a descriptor or the
    /// backend.
    pub fn open(spec: ShardSpec<H::Mail>) -> io::Result<Self> {
        if spec.own_table {
            fdtable::isolate(&spec.mailboxes.descriptors())?;
        }
        let mode = match spec.driver {
            DriverKind::Uring => Mode::Blocking,
            DriverKind::Auto | DriverKind::Epoll => Mode::NonBlocking,
        };
        let listeners = spec
            .listeners
            .iter()
            .map(|address| {
                listen(*address, mode).map_err(|error| io::Error::new(error.source.kind(), error))
            })
            .collect::<io::Result<Vec<_>>>()?;
        let descriptors = listeners.iter().map(|listener| Some(listener.as_raw_fd()));
        let descriptors = descriptors.collect();
        let wake = spec.mailboxes.wake_descriptor(spec.index);
        let driver = match spec.driver {
            DriverKind::Uring => {
                let uring = Uring::new(listeners, wake.as_raw_fd(), spec.connections)?;
                Backend::Uring(Box::new(uring))
            }
            DriverKind::Auto | DriverKind::Epoll => Backend::Epoll(Epoll::new(listeners, wake)?),
        };
        // Of a table that all share, each has its part.
        let tables = if spec.own_table {
            1
        } else {
            spec.mailboxes.shards()
        };
        let limit = fdtable::limit() / tables.max(1) as u64;
        let mut io = Io::new(spec.index, spec.mailboxes, spec.turn_budget);
        io.listeners = descriptors;
        (io.descriptor_limit, io.driver_buffers) = match &driver {
            Backend::Epoll(epoll) => (limit as usize, epoll.buffer_bytes()),
            Backend::Uring(uring) => (uring.files(), uring.buffer_bytes()),
        };
        Ok(Self { io, driver })
    }

    /// The connections, to connect or set timers before the first turn.
    pub fn io(&mut self) -> &mut Io<H> {
        &mut self.io
    }

    /// Runs turns until the handler asks to stop, then closes what is left.
    ///
    /// # Errors
    /// The backend failed. Everything has been closed and accounted for then, too.
    pub fn run(mut self, handler: &mut H) -> io::Result<()> {
        let mut outcome = Ok(());
        while !self.io.stopping && outcome.is_ok() {
            outcome = self.driver.of().turn(&mut self.io, handler);
        }
        self.driver.of().shut_down(&mut self.io, handler);
        self.io.post_mail(handler);
        self.io.return_mail(handler);
        handler.on_written(&mut self.io);
        outcome
    }
}
