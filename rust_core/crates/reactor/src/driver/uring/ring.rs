//! One io_uring with its file table and receive buffers.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use io_uring::{IoUring, cqueue, squeue, types};
use rustix::io::Errno;

use super::buffers::Buffers;
use super::meter::Meter;
use super::op::Op;
use super::token::Token;

/// IORING_ENTER_GETEVENTS: run what the kernel has put off for this thread.
const GET_EVENTS: u32 = 1;
/// Completions that the kernel makes at least before it puts off what is left, IO_LOCAL_TW_DEFAULT_MAX.
const AT_A_TIME: usize = 20;
/// Completions of one turn from which on a herd waits for the next one.
const MOST_COMPLETIONS: usize = 4096;
/// Pause before the kernel is asked again that had no memory for a submission.
const NO_MEMORY_PAUSE: Duration = Duration::from_millis(1);

/// A completion, taken out of its ring once.
pub(super) struct Completion {
    /// The index of the ring.
    pub(super) ring: u16,
    entry: cqueue::Entry,
}

impl Completion {
    #[inline]
    pub(super) fn token(&self) -> Token {
        Token::from_bits(self.entry.user_data())
    }

    #[inline]
    pub(super) fn result(&self) -> i32 {
        self.entry.result()
    }

    #[inline]
    pub(super) fn flags(&self) -> u32 {
        self.entry.flags()
    }

    /// Return the descriptor that the kernel has made for the operation, or why it has made none.
    pub(super) fn into_descriptor(self) -> Result<OwnedFd, Errno> {
        let makes_one = matches!(self.token(), Token::Accept(_) | Token::EndSending(_));
        match self.result() {
            // SAFETY: the kernel has opened the descriptor for us. This completion alone tells it, and is
            // used up here.
            fd @ 0.. if makes_one => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
            0.. => Err(Errno::BADF),
            error => Err(Errno::from_raw_os_error(-error)),
        }
    }
}

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

/// One io_uring; see the module.
pub(super) struct Ring {
    index: u16,
    ring: IoUring,
    pub(super) buffers: Buffers,
    pub(super) meter: Meter,
    files: u32,
    /// Slots from here on have never been used.
    fresh: u32,
    free: Vec<u32>,
    /// Slots whose closing has not been submitted yet.
    closing: Vec<u32>,
    /// Times the kernel was entered since that was last asked for.
    entered: u64,
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.buffers.unregister(&self.ring);
    }
}

impl Ring {
    /// Make the ring with this index. Must be called in the thread that will use it.
    pub(super) fn new(index: u16, size: RingSize) -> io::Result<Self> {
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
        let buffers = Buffers::register(&ring, index, size.buffers, size.buffer_bytes)?;
        Ok(Self {
            index,
            ring,
            meter: Meter::new(buffers.size(), size.buffer_bytes as usize),
            buffers,
            files: size.files,
            fresh: 0,
            free: Vec::new(),
            closing: Vec::new(),
            entered: 0,
        })
    }

    /// Return how often the kernel was entered since the last call.
    #[inline]
    pub(super) fn take_entered(&mut self) -> u64 {
        std::mem::take(&mut self.entered)
    }

    /// Return how many connections can be installed in all.
    pub(super) fn files(&self) -> usize {
        self.files as usize
    }

    /// Return how many connections can still be installed.
    #[inline]
    pub(super) fn room(&self) -> u32 {
        self.files - self.fresh + self.free.len() as u32
    }

    /// Move a socket from the thread's table of descriptors to the ring's; return its slot. A
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

    /// Mark a slot free once the closing that has just been pushed is submitted.
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
    /// The memory that the entry points to must stay in place until the next submission; for operations that
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

    /// Return whether entering would do anything.
    #[inline]
    pub(super) fn has_work(&mut self) -> bool {
        let submissions = self.ring.submission();
        !submissions.is_empty() || submissions.taskrun() || submissions.cq_overflow()
    }

    /// Return whether completions wait to be read.
    #[inline]
    pub(super) fn has_completions(&mut self) -> bool {
        !self.ring.completion().is_empty()
    }

    /// Submit everything and run what the kernel has put off, without waiting.
    #[inline]
    pub(super) fn enter(&mut self) -> io::Result<()> {
        self.submit(GET_EVENTS)
    }

    /// Enter as [`enter`](Self::enter) does, and wait for `want` completions, at most for `longest`.
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
        // Entries that the kernel had no memory for are still queued.
        self.submit(0)
    }

    /// Submit until nothing is queued any more.
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

    /// Take out all completions, those included that the queue had no room for, and those of a herd: the
    /// kernel makes a few of what it has put off at a time, and a quiet connection's may be behind them.
    #[inline]
    pub(super) fn reap(&mut self, into: &mut Vec<Completion>) -> io::Result<()> {
        let first = into.len();
        loop {
            let before = into.len();
            let completions = self.ring.completion();
            let ring = self.index;
            into.extend(completions.map(|entry| Completion { ring, entry }));
            let all = into.len();
            let is_herd = all - before >= AT_A_TIME && all - first < MOST_COMPLETIONS;
            let submissions = self.ring.submission();
            let has_more = submissions.cq_overflow() || is_herd && submissions.taskrun();
            drop(submissions);
            if !has_more {
                return Ok(());
            }
            self.enter()?;
        }
    }
}
