//! One io_uring with its file table and receive buffers.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use io_uring::{IoUring, cqueue, squeue, types};

use super::buffers::Buffers;
use super::op::Op;
use super::token::Token;

/// IORING_ENTER_GETEVENTS: run what the kernel has put off for this thread.
const GET_EVENTS: u32 = 1;
/// Pause before the kernel is asked again that had no memory for a submission.
const NO_MEMORY_PAUSE: Duration = Duration::from_millis(1);

/// Sizes of one ring.
#[derive(Debug, Clone, Copy)]
pub(super) struct RingSize {
    pub(super) submissions: u32,
    pub(super) completions: u32,
    /// Connections that its file table has room for.
    pub(super) files: u32,
    pub(super) buffers: u16,
    pub(super) buffer_bytes: u32,
}

/// See the module.
pub(super) struct Ring {
    // Dropped before the buffers that the kernel receives into.
    ring: IoUring,
    pub(super) buffers: Buffers,
    files: u32,
    /// Slots from here on have never been used.
    fresh: u32,
    free: Vec<u32>,
    /// Slots whose closing has not been submitted yet.
    closing: Vec<u32>,
    /// Times the kernel was entered since that was last asked for.
    entered: u64,
}

impl Ring {
    /// Must be called in the thread that will use the ring.
    pub(super) fn new(size: RingSize) -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_clamp()
            .setup_cqsize(size.completions)
            .build(size.submissions)?;
        let parameters = ring.params();
        if !(parameters.is_feature_ext_arg()
            && parameters.is_feature_skip_cqe_on_success()
            && parameters.is_feature_nodrop())
        {
            return Err(io::Error::from(io::ErrorKind::Unsupported));
        }
        let submitter = ring.submitter();
        submitter.register_files_sparse(size.files)?;
        let buffers = Buffers::new(&ring, size.buffers, size.buffer_bytes)?;
        Ok(Self {
            ring,
            buffers,
            files: size.files,
            fresh: 0,
            free: Vec::new(),
            closing: Vec::new(),
            entered: 0,
        })
    }

    /// Times the kernel was entered since this was last called.
    #[inline]
    pub(super) fn take_entered(&mut self) -> u64 {
        std::mem::take(&mut self.entered)
    }

    /// Connections that can be installed in all.
    pub(super) fn files(&self) -> usize {
        self.files as usize
    }

    /// Connections that can still be installed.
    #[inline]
    pub(super) fn room(&self) -> u32 {
        self.files - self.fresh + self.free.len() as u32
    }

    /// Moves a socket from the thread's table of descriptors to the ring's; the slot it got. A
    /// socket that could not be moved is closed.
    pub(super) fn install(&mut self, fd: OwnedFd) -> io::Result<u32> {
        let (slot, is_fresh) = match self.free.pop() {
            Some(slot) => (slot, false),
            None if self.fresh < self.files => (self.fresh, true),
            None => return Err(io::Error::from_raw_os_error(libc::ENFILE)),
        };
        let submitter = self.ring.submitter();
        match submitter.register_files_update(slot, &[fd.as_raw_fd()]) {
            Ok(_) => {
                self.fresh += u32::from(is_fresh);
                Ok(slot)
            }
            Err(error) => {
                if !is_fresh {
                    self.free.push(slot);
                }
                Err(error)
            }
        }
    }

    /// Marks a slot free once the closing that has just been pushed is submitted.
    pub(super) fn uninstall(&mut self, slot: u32) {
        self.closing.push(slot);
    }

    /// Let completions signal `wake` while [`enable_wakeup`](Self::enable_wakeup) is on.
    pub(super) fn register_wakeup(&mut self, wake: RawFd) -> io::Result<()> {
        self.ring.submitter().register_eventfd(wake)?;
        self.enable_wakeup(false);
        Ok(())
    }

    pub(super) fn enable_wakeup(&mut self, on: bool) {
        let completions = self.ring.completion();
        if on {
            completions.enable_eventfd();
        } else {
            completions.disable_eventfd();
        }
    }

    /// Queue an operation that points to no memory.
    #[inline]
    pub(super) fn push(&mut self, op: Op, token: Token) -> io::Result<()> {
        // SAFETY: nothing is pointed to.
        unsafe { self.push_entry(&op.entry(token)) }
    }

    /// Queue an operation whose success is not to be told.
    pub(super) fn push_silent(&mut self, op: Op) -> io::Result<()> {
        let entry = op.entry(Token::Unwatched);
        // SAFETY: nothing is pointed to.
        unsafe { self.push_entry(&entry.flags(squeue::Flags::SKIP_SUCCESS)) }
    }

    /// Queue an operation; submit when the queue is full.
    ///
    /// # Safety
    /// What the entry points to must stay in place until the next submission; for operations that
    /// are not carried out at once, until their completion.
    #[inline]
    pub(super) unsafe fn push_entry(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        loop {
            // SAFETY: the caller's promise.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            self.submit(0)?;
        }
    }

    /// Whether entering would do anything.
    #[inline]
    pub(super) fn has_work(&mut self) -> bool {
        let submissions = self.ring.submission();
        !submissions.is_empty() || submissions.taskrun() || submissions.cq_overflow()
    }

    /// Whether completions wait to be read.
    #[inline]
    pub(super) fn has_completions(&mut self) -> bool {
        !self.ring.completion().is_empty()
    }

    /// Submits everything and runs what the kernel has put off, without waiting.
    #[inline]
    pub(super) fn enter(&mut self) -> io::Result<()> {
        self.submit(GET_EVENTS)
    }

    /// As [`enter`](Self::enter), and waits for `want` completions, at most for `longest`.
    pub(super) fn wait(&mut self, want: usize, longest: Option<Duration>) -> io::Result<()> {
        let timeout = longest.map(types::Timespec::from);
        let mut arguments = types::SubmitArgs::new();
        if let Some(timeout) = &timeout {
            arguments = arguments.timespec(timeout);
        }
        self.entered += 1;
        let outcome = self.ring.submitter().submit_with_args(want, &arguments);
        match outcome.map_err(|error| (error.raw_os_error(), error)) {
            Ok(_) | Err((Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN), _)) => {}
            Err((_, error)) => return Err(error),
        }
        // What the kernel had no memory for is still queued.
        self.submit(0)
    }

    /// Returns when nothing is queued any more.
    fn submit(&mut self, flags: u32) -> io::Result<()> {
        let mut count = self.ring.submission().len() as u32;
        while count > 0 || flags != 0 {
            self.entered += 1;
            // SAFETY: no argument is passed.
            let outcome = unsafe {
                let submitter = self.ring.submitter();
                submitter.enter::<libc::sigset_t>(count, 0, flags, None)
            };
            match outcome.map_err(|error| (error.raw_os_error(), error)) {
                Ok(_) | Err((Some(libc::EINTR), _)) => {}
                Err((Some(libc::EBUSY | libc::EAGAIN | libc::ENOMEM), _)) => {
                    std::thread::sleep(NO_MEMORY_PAUSE);
                }
                Err((_, error)) => return Err(error),
            }
            count = self.ring.submission().len() as u32;
            if count == 0 {
                break;
            }
        }
        self.free.append(&mut self.closing);
        Ok(())
    }

    /// Takes out all completions, those included that the queue had no room for.
    #[inline]
    pub(super) fn reap(&mut self, mut each: impl FnMut(cqueue::Entry)) -> io::Result<()> {
        loop {
            self.ring.completion().for_each(&mut each);
            if !self.ring.submission().cq_overflow() {
                return Ok(());
            }
            self.enter()?;
        }
    }
}
