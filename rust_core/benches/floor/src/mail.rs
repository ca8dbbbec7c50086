//! Bytes from one thread's connections for another's: threads with descriptor tables of their own can
//! not write to each other's sockets.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

use crate::failure::{Context, Failure};

/// One mailbox for each thread of a process. Created before the threads, so that every table can
/// have all wake-up descriptors.
pub(crate) struct Mailboxes(Vec<Mailbox>);

struct Mailbox {
    bytes: Mutex<Vec<u8>>,
    /// Whether its thread has been woken since it last took its mail.
    notified: AtomicBool,
    wake: OwnedFd,
}

impl Mailboxes {
    pub(crate) fn new(threads: u32) -> Result<Self, Failure> {
        let mailbox = |_| {
            let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
            Ok(Mailbox {
                bytes: Mutex::default(),
                notified: AtomicBool::new(false),
                wake: eventfd(0, flags).context("create an eventfd")?,
            })
        };
        (0..threads)
            .map(mailbox)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    pub(crate) fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        self.0.iter().map(|mailbox| mailbox.wake.as_raw_fd())
    }

    /// Readable when `thread` has mail.
    pub(crate) fn wake(&self, thread: u32) -> BorrowedFd<'_> {
        self.0[thread as usize].wake.as_fd()
    }

    /// Appends to `thread`'s mail.
    pub(crate) fn post(&self, thread: u32, bytes: &[u8]) {
        let mailbox = &self.0[thread as usize];
        mailbox
            .bytes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend_from_slice(bytes);
        if !mailbox.notified.swap(true, Ordering::AcqRel) {
            // A full counter would be readable, too.
            let _ = rustix::io::write(&mailbox.wake, &1u64.to_ne_bytes());
        }
    }

    /// Moves `thread`'s mail to `into`, which is empty.
    pub(crate) fn take(&self, thread: u32, into: &mut Vec<u8>) {
        let mailbox = &self.0[thread as usize];
        let _ = rustix::io::read(&mailbox.wake, &mut [0; 8]);
        // Before the mail is taken: whoever posts after that wakes again.
        mailbox.notified.store(false, Ordering::Release);
        let mut bytes = mailbox.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut *bytes, into);
    }
}
