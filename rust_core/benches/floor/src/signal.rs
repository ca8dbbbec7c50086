//! Signals between the processes and to threads: each is a descriptor that becomes readable and stays
//! so, because nobody reads it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::failure::{Context, Failure};

/// Raised once, seen by every process and thread that has it.
pub(crate) struct Signal(OwnedFd);

impl Signal {
    fn new() -> Result<Self, Failure> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map(Self)
            .context("create an eventfd")
    }

    /// May be repeated.
    pub(crate) fn raise(&self) {
        // The counter is far from its end, and a full one would be readable, too.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    pub(crate) fn is_raised(&self) -> bool {
        ready([self.0.as_fd()], Some(Duration::ZERO)).is_ok_and(|[raised]| raised)
    }
}

impl AsFd for Signal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What the coordinator tells its two processes.
pub(crate) struct Signals {
    /// Load: everything is connected, begin.
    pub(crate) start: Signal,
    /// Load: begin nothing new, let what is under way be answered.
    pub(crate) drain: Signal,
    /// Both: close everything and end. Raised as well by whoever cannot go on.
    pub(crate) close: Signal,
}

impl Signals {
    pub(crate) fn new() -> Result<Self, Failure> {
        Ok(Self {
            start: Signal::new()?,
            drain: Signal::new()?,
            close: Signal::new()?,
        })
    }

    /// What a thread with a descriptor table of its own must keep.
    pub(crate) fn descriptors(&self) -> [RawFd; 3] {
        [&self.start, &self.drain, &self.close].map(|signal| signal.0.as_raw_fd())
    }

    /// Blocks until the start; false if everything is to be closed instead.
    pub(crate) fn wait_for_start(&self) -> Result<bool, Failure> {
        loop {
            match ready([self.start.as_fd(), self.close.as_fd()], None)? {
                [_, true] => return Ok(false),
                [true, false] => return Ok(true),
                [false, false] => {}
            }
        }
    }

    /// Pauses; false if everything is to be closed.
    pub(crate) fn pause(&self, duration: Duration) -> Result<bool, Failure> {
        let [close] = ready([self.close.as_fd()], Some(duration))?;
        Ok(!close)
    }
}

/// Waits until one of the descriptors is readable, or for `patience` where that is given; says which
/// are.
pub(crate) fn ready<const N: usize>(
    descriptors: [BorrowedFd<'_>; N],
    patience: Option<Duration>,
) -> Result<[bool; N], Failure> {
    let mut polled = descriptors.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    let timeout = patience.map(|patience| Timespec {
        tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: patience.subsec_nanos().into(),
    });
    match poll(&mut polled, timeout.as_ref()) {
        Ok(_) => Ok(polled.each_ref().map(|fd| !fd.revents().is_empty())),
        Err(Errno::INTR) => Ok([false; N]),
        Err(errno) => Err(errno).context("wait for a descriptor"),
    }
}
