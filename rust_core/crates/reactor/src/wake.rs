//! The means to wake a shard that waits in the kernel.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
#[cfg(feature = "sim")]
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::fdtable;

/// The means to wake the owner of a mailbox.
pub(crate) enum Wake {
    /// A descriptor that the owner waits for.
    Eventfd(Eventfd),
    /// A mark that a simulation looks at.
    #[cfg(feature = "sim")]
    Mark(AtomicBool),
    /// An eventfd in a model of all interleavings.
    #[cfg(all(loom, test))]
    Modelled(modelled::Eventfd),
}

impl Wake {
    /// Wake the owner, or have its next wait end at once.
    pub(crate) fn wake(&self) {
        match self {
            Self::Eventfd(wake) => {
                // A full counter means that the owner has been woken already.
                let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
            }
            #[cfg(feature = "sim")]
            Self::Mark(mark) => mark.store(true, Ordering::Relaxed),
            #[cfg(all(loom, test))]
            Self::Modelled(wake) => wake.set(true),
        }
    }

    /// Forget wake-ups.
    pub(crate) fn clear(&self) {
        match self {
            Self::Eventfd(wake) => wake.clear(),
            #[cfg(feature = "sim")]
            Self::Mark(mark) => mark.store(false, Ordering::Relaxed),
            #[cfg(all(loom, test))]
            Self::Modelled(wake) => wake.set(false),
        }
    }

    /// Return the descriptor that becomes readable when the owner is woken.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            Self::Eventfd(wake) => wake.as_fd(),
            #[cfg(feature = "sim")]
            Self::Mark(_) => unreachable!("a simulated shard waits for no descriptor"),
            #[cfg(all(loom, test))]
            Self::Modelled(_) => unreachable!("a modelled shard waits for no descriptor"),
        }
    }
}

/// Eventfds of the process's table that were dropped in a thread with a table of its own: it cannot close
/// them. The next ones that are needed are taken from here.
static LEFT: Mutex<Vec<OwnedFd>> = Mutex::new(Vec::new());

/// An eventfd(2) of the process's table of descriptors.
pub(crate) struct Eventfd(ManuallyDrop<OwnedFd>);

impl Eventfd {
    /// Make an eventfd. Must be called in a thread that has the process's table.
    pub(crate) fn new() -> io::Result<Self> {
        if fdtable::is_isolated() {
            return Err(io::Error::other(
                "a wake-up descriptor was asked for in a thread with a descriptor table of its own: \
                 make it before the thread leaves the process's table",
            ));
        }
        let left = LEFT.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let fd = match left {
            Some(fd) => fd,
            None => eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
        };
        let new = Self(ManuallyDrop::new(fd));
        new.clear();
        Ok(new)
    }

    fn clear(&self) {
        // Otherwise there was nothing to clear.
        while rustix::io::read(self, &mut [0; 8]) == Err(Errno::INTR) {}
    }
}

impl AsFd for Eventfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Eventfd {
    fn drop(&mut self) {
        // SAFETY: taken once, and not used after that.
        let fd = unsafe { ManuallyDrop::take(&mut self.0) };
        if fdtable::is_isolated() {
            LEFT.lock().unwrap_or_else(PoisonError::into_inner).push(fd);
        }
    }
}

/// The kernel's place in models of all interleavings.
#[cfg(all(loom, test))]
pub(crate) mod modelled {
    use loom::sync::{Condvar, Mutex};

    /// An eventfd, and the wait for it.
    pub(crate) struct Eventfd {
        is_set: Mutex<bool>,
        changed: Condvar,
    }

    impl Eventfd {
        pub(crate) fn new() -> Self {
            Self {
                is_set: Mutex::new(false),
                changed: Condvar::new(),
            }
        }

        pub(super) fn set(&self, is_set: bool) {
            *self.is_set.lock().expect("no panic") = is_set;
            self.changed.notify_one();
        }

        /// Wait until it is set, or only look when the wait `is_zero`; return whether it is set.
        pub(crate) fn wait(&self, is_zero: bool) -> bool {
            let mut is_set = self.is_set.lock().expect("no panic");
            while !is_zero && !*is_set {
                is_set = self.changed.wait(is_set).expect("no panic");
            }
            *is_set
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn an_eventfd_that_an_isolated_thread_drops_is_used_again() {
        let wake = Wake::Eventfd(Eventfd::new().expect("eventfd"));
        let number = wake.descriptor().as_raw_fd();
        let refused = std::thread::spawn(move || {
            // SAFETY: the only descriptor that enters the thread is kept.
            unsafe { fdtable::isolate(&[wake.descriptor()]) }.expect("isolate");
            wake.wake();
            drop(wake);
            Eventfd::new().is_err()
        });
        assert!(refused.join().expect("no panic"), "not in such a thread");
        let mut found = None;
        let mut others = Vec::new();
        // Tests beside this one may have left theirs.
        while found.is_none() && others.len() < 1000 {
            let next = Eventfd::new().expect("eventfd");
            match next.as_fd().as_raw_fd() == number {
                true => found = Some(next),
                false => others.push(next),
            }
        }
        let found = found.expect("the process still has it");
        let nothing = rustix::io::read(&found, &mut [0; 8]);
        assert_eq!(nothing, Err(Errno::AGAIN), "its wake-up is forgotten");
    }
}
