//! One io_uring: its two queues, its table of sockets, its receive buffers.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use io_uring::types::{CancelBuilder, Fd, Fixed, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};

use crate::driver::TRUNK_BUFFER;
use crate::driver::uring::buffers::Buffers;
use crate::driver::uring::op::Op;
use crate::failure::{Context, Failure};

/// What fails where there is no io_uring, and why that may be.
const NEEDED: &str = "set up an io_uring (needs Linux 6.1 or later, and neither kernel.io_uring_disabled \
                      nor a system call filter in the way)";

/// How long the requests under way may take to be cancelled.
const CANCEL_TIMEOUT: u64 = 10;

/// Buffers for trunks, of 64 KiB: what loopback delivers at once.
const TRUNK_BUFFERS: u16 = 16;

pub(super) struct Ring {
    io: IoUring,
    pub(super) client_buffers: Buffers,
    /// Where there are trunks.
    pub(super) trunk_buffers: Option<Buffers>,
    /// Taken from the completion queue, not yet looked at.
    ready: Vec<cqueue::Entry>,
}

/// How large a ring is.
pub(super) struct Size {
    /// Entries of the submission queue; the completion queue has four times as many.
    pub(super) entries: u32,
    /// Sockets in its table.
    pub(super) slots: u32,
    /// Number and size of the buffers for what clients send.
    pub(super) buffers: u16,
    pub(super) buffer_bytes: usize,
}

impl Ring {
    /// Must be called in the thread that will use it.
    pub(super) fn new(size: &Size, with_trunks: bool) -> Result<Self, Failure> {
        // One thread submits, and completions are worked off when it enters the kernel rather than
        // whenever they occur.
        let io = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_cqsize(size.entries * 4)
            .build(size.entries)
            .context(NEEDED)?;
        io.submitter()
            .register_files_sparse(size.slots)
            .context(format!("register a table of {} sockets", size.slots))?;
        let client_buffers = Buffers::register(&io, 0, size.buffers, size.buffer_bytes)?;
        let trunk_buffers = with_trunks
            .then(|| Buffers::register(&io, 1, TRUNK_BUFFERS, TRUNK_BUFFER / 4))
            .transpose()?;
        Ok(Self {
            io,
            client_buffers,
            trunk_buffers,
            ready: Vec::new(),
        })
    }

    /// Lets completions be signalled on `eventfd`, once [`arm`](Self::arm)ed.
    pub(super) fn signal_on(&mut self, eventfd: BorrowedFd<'_>) -> Result<(), Failure> {
        self.io
            .submitter()
            .register_eventfd(eventfd.as_raw_fd())
            .context("register an eventfd with an io_uring")?;
        self.disarm();
        Ok(())
    }

    pub(super) fn arm(&mut self) {
        self.io.completion().enable_eventfd();
    }

    pub(super) fn disarm(&mut self) {
        self.io.completion().disable_eventfd();
    }

    /// Accepts into the table until cancelled.
    pub(super) fn accept(&mut self, listener: BorrowedFd<'_>, op: Op) -> Result<(), Failure> {
        let entry = opcode::AcceptMulti::new(Fd(listener.as_raw_fd()))
            .allocate_file_index(true)
            .build();
        // SAFETY: refers to no memory.
        unsafe { self.push(&entry.user_data(op.encode())) }
    }

    pub(super) fn receive_client(&mut self, slot: u32, client: u32) -> Result<(), Failure> {
        self.receive(slot, self.client_buffers.group(), Op::ReceiveClient(client))
    }

    /// In the ring with the buffers for that.
    pub(super) fn receive_trunk(&mut self, slot: u32, trunk: u32) -> Result<(), Failure> {
        match &self.trunk_buffers {
            Some(buffers) => self.receive(slot, buffers.group(), Op::ReceiveTrunk(trunk)),
            None => Err(Failure::new("a trunk belongs to the first ring")),
        }
    }

    /// Receives into buffers of `group` until the connection ends or there are none.
    fn receive(&mut self, slot: u32, group: u16, op: Op) -> Result<(), Failure> {
        let entry = opcode::RecvMulti::new(Fixed(slot), group).build();
        // SAFETY: refers to no memory but the buffers, which live as long as the ring.
        unsafe { self.push(&entry.user_data(op.encode())) }
    }

    /// Says when `descriptor` is readable, once.
    pub(super) fn watch(&mut self, descriptor: BorrowedFd<'_>, op: Op) -> Result<(), Failure> {
        let events = libc::POLLIN as u32;
        let entry = opcode::PollAdd::new(Fd(descriptor.as_raw_fd()), events).build();
        // SAFETY: refers to no memory.
        unsafe { self.push(&entry.user_data(op.encode())) }
    }

    /// Empties a slot of the table.
    pub(super) fn close(&mut self, slot: u32) -> Result<(), Failure> {
        let entry = opcode::Close::new(Fixed(slot)).build();
        // SAFETY: refers to no memory.
        unsafe { self.push(&entry.user_data(Op::Closed.encode())) }
    }

    /// Sends what the socket takes at once; completes only if that was not everything. Not waiting,
    /// the kernel is done with `bytes` when the request has been submitted.
    ///
    /// # Safety
    /// `bytes` must stay where they are until the next [`enter`](Self::enter) has returned.
    pub(super) unsafe fn send_now(
        &mut self,
        slot: u32,
        bytes: &[u8],
        op: Op,
    ) -> Result<(), Failure> {
        // MSG_WAITALL makes a short send one that has failed, and so completes.
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT | libc::MSG_WAITALL;
        let entry = opcode::Send::new(Fixed(slot), bytes.as_ptr(), bytes.len() as u32)
            .flags(flags)
            .build()
            .flags(squeue::Flags::SKIP_SUCCESS);
        // SAFETY: the caller's promise.
        unsafe { self.push(&entry.user_data(op.encode())) }
    }

    /// Sends everything, in as many steps as the socket needs, and completes.
    ///
    /// # Safety
    /// `bytes` must stay where they are until the completion.
    pub(super) unsafe fn send_all(
        &mut self,
        slot: u32,
        bytes: &[u8],
        op: Op,
    ) -> Result<(), Failure> {
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        let entry = opcode::Send::new(Fixed(slot), bytes.as_ptr(), bytes.len() as u32)
            .flags(flags)
            .build();
        // SAFETY: the caller's promise.
        unsafe { self.push(&entry.user_data(op.encode())) }
    }

    /// # Safety
    /// What the entry refers to must live until its completion.
    unsafe fn push(&mut self, entry: &squeue::Entry) -> Result<(), Failure> {
        loop {
            // SAFETY: the caller's promise.
            if unsafe { self.io.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            // The queue is full.
            self.submit(0, None)?;
        }
    }

    /// Puts a connected socket into the table.
    pub(super) fn install(&mut self, slot: u32, socket: BorrowedFd<'_>) -> Result<(), Failure> {
        let submitter = self.io.submitter();
        submitter
            .register_files_update(slot, &[socket.as_raw_fd()])
            .context(format!("put a socket into slot {slot}"))?;
        Ok(())
    }

    /// Whether entering the kernel, or looking at the completions, would bring anything.
    pub(super) fn has_work(&mut self) -> bool {
        if !self.ready.is_empty() {
            return true;
        }
        self.needs_kernel() || !self.io.completion().is_empty()
    }

    fn needs_kernel(&mut self) -> bool {
        let submission = self.io.submission();
        !submission.is_empty() || submission.taskrun() || submission.cq_overflow()
    }

    /// Submits everything, waits for `want` completions or, if given, for `patience`, and collects
    /// what is there.
    pub(super) fn enter(&mut self, want: u32, patience: Option<Duration>) -> Result<(), Failure> {
        self.submit(want, patience)?;
        // Where memory is short the kernel submits in parts.
        while !self.io.submission().is_empty() {
            self.submit(0, None)?;
        }
        Ok(())
    }

    /// Shows the kernel the buffers that have become free.
    pub(super) fn publish_buffers(&mut self) {
        self.client_buffers.publish();
        if let Some(buffers) = &mut self.trunk_buffers {
            buffers.publish();
        }
    }

    /// The completions collected; give the vector back with [`reuse`](Self::reuse).
    pub(super) fn take_ready(&mut self) -> Vec<cqueue::Entry> {
        std::mem::take(&mut self.ready)
    }

    pub(super) fn reuse(&mut self, mut taken: Vec<cqueue::Entry>) {
        if self.ready.is_empty() {
            taken.clear();
            self.ready = taken;
        }
    }

    fn submit(&mut self, want: u32, patience: Option<Duration>) -> Result<(), Failure> {
        let needed = want > 0 || self.needs_kernel();
        let submitter = self.io.submitter();
        let result = match patience {
            None if !needed => Ok(0),
            None => submitter.submit_and_wait(want as usize),
            Some(patience) => {
                let timeout = Timespec::from(patience);
                let arguments = SubmitArgs::new().timespec(&timeout);
                submitter.submit_with_args(want as usize, &arguments)
            }
        };
        tolerate(result.map(drop)).context("enter an io_uring")?;
        loop {
            self.ready.extend(self.io.completion());
            if !self.io.submission().cq_overflow() {
                return Ok(());
            }
            // What did not fit into the completion queue comes with the next call.
            tolerate(self.io.submitter().submit().map(drop)).context("enter an io_uring")?;
        }
    }

    /// Ends what waits on `descriptor`, so that closing it takes effect.
    pub(super) fn cancel(&mut self, descriptor: BorrowedFd<'_>) -> Result<(), Failure> {
        self.cancel_matching(CancelBuilder::fd(Fd(descriptor.as_raw_fd())).all())
    }

    /// Ends everything and closes all sockets of the table, which otherwise would stay until the
    /// kernel has taken the ring apart.
    pub(super) fn close_all(&mut self) -> Result<(), Failure> {
        self.cancel_matching(CancelBuilder::any())?;
        self.io
            .submitter()
            .unregister_files()
            .context("give up a table of sockets")
    }

    fn cancel_matching(&mut self, what: CancelBuilder) -> Result<(), Failure> {
        self.enter(0, None)?;
        let timeout = Timespec::new().sec(CANCEL_TIMEOUT);
        let submitter = self.io.submitter();
        match submitter.register_sync_cancel(Some(timeout), what) {
            Err(error) if error.raw_os_error() != Some(libc::ENOENT) => {
                return Err(error).context("cancel what an io_uring has under way");
            }
            _ => {}
        }
        // The cancelled requests complete in here.
        loop {
            self.ready.clear();
            if !self.has_work() {
                return Ok(());
            }
            self.enter(0, None)?;
        }
    }
}

/// Time out, interruption and a completion queue that is full are no errors: the caller looks at the
/// completions and comes again.
fn tolerate(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN)
            ) =>
        {
            Ok(())
        }
        result => result,
    }
}
