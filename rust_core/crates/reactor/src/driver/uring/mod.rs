//! The io_uring(7) driver: many rings in one thread, each with a file table of its own.
//!
//! RLIMIT_NOFILE bounds the file table of a ring as it bounds that of a thread, but a thread may own
//! any number of rings: a million connections need one thread. Connections are accepted, or
//! established, as ordinary descriptors by the first ring and then moved to the ring with the most
//! room, where a slot number (a *direct descriptor*) is all that is left of them.
//!
//! - Receiving is armed once for each connection (multishot) and takes its memory from buffers that
//!   belong to the ring, so that an idle connection owns none. Bytes that arrive before the end of
//!   receiving takes effect are kept here until the connection is read again.
//! - Sending never waits in the kernel: it is carried out while it is submitted (see `flights`).
//! - Everything of a turn is submitted with one call per ring, at the beginning of the next poll.
//! - The thread sleeps in the first ring. The others then signal the shard's wake-up descriptor, which
//!   the first one watches.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use io_uring::{opcode, squeue, types};
use rustix::io::Errno;
use rustix::net::SocketAddrAny;
use rustix::net::addr::SocketAddrArg;

use super::{Accepted, Driver, Events, Held, Received, Unsent, Wait, Write};
use crate::connections::{Interest, Socket};
use crate::fdtable;
use crate::output::{Output, Pool};
use crate::shard::thread_cpu_time;
use crate::slab::ConnId;
use crate::socket::{self, Mode};

mod accept;
mod buffers;
mod completion;
mod flights;
mod op;
mod pace;
mod receive;
mod ring;
mod token;

use accept::Listeners;
use completion::Completion;
use flights::Flights;
use op::Op;
use pace::Pace;
use receive::Kept;
pub(crate) use receive::Receipt;
use ring::{Ring, RingSize};
use token::Token;

/// Files that the kernel lets one table have, IORING_MAX_FIXED_FILES.
const MAX_FILES: u64 = 1 << 20;

/// Bits of a [`Socket::Direct`]'s operations.
const RECEIVE: u8 = 1;
const WRITABLE: u8 = 2;
/// Receiving is being cancelled.
const CANCEL: u8 = 4;
const HANGUP: u8 = 8;

/// See the module.
pub(crate) struct Uring {
    rings: Vec<Ring>,
    listeners: Listeners,
    flights: Flights,
    kept: Kept,
    /// Addresses to connect to, in place until they are submitted however many follow.
    #[allow(clippy::vec_box)]
    destinations: Vec<Box<SocketAddrAny>>,
    pace: Pace,
    wake: RawFd,
    /// Kept for their memory.
    completions: Vec<Completion>,
    missed: Vec<(u32, i32)>,
}

/// Find out whether the kernel permits what this driver needs.
///
/// # Errors
/// It does not: io_uring is missing, forbidden, or older than Linux 6.12.
pub(crate) fn probe() -> io::Result<()> {
    // As large as any but for its file table: memory is what a limit may refuse.
    let size = ring_size(1, 1);
    // A ring belongs to the thread that made it.
    let attempt = std::thread::Builder::new().spawn(move || Ring::new(size).map(drop))?;
    let died = |_| Err(io::Error::other("the attempt panicked"));
    attempt.join().unwrap_or_else(died)
}

/// Rings that `connections` connections need.
fn rings_for(connections: usize) -> usize {
    let files = fdtable::limit().clamp(1, MAX_FILES);
    connections.div_ceil(files as usize).max(1)
}

/// The size of each of `rings` rings that hold `connections` connections in all.
fn ring_size(rings: usize, connections: usize) -> RingSize {
    let is_single = rings == 1;
    RingSize {
        submissions: if is_single { 4096 } else { 512 },
        completions: if is_single { 16_384 } else { 4096 },
        files: connections.max(1).div_ceil(rings) as u32,
        buffers: if is_single { 16 } else { 4 },
        buffer_bytes: 32 * 1024,
    }
}

impl Uring {
    /// Make a driver with room for `connections` connections, accepted ones that wait to be refused
    /// included.
    pub(crate) fn new(
        listeners: Vec<OwnedFd>,
        wake: RawFd,
        connections: usize,
    ) -> io::Result<Self> {
        let count = rings_for(connections);
        let size = ring_size(count, connections);
        let mut rings = (0..count)
            .map(|_| Ring::new(size))
            .collect::<io::Result<Vec<_>>>()?;
        for ring in rings.iter_mut().skip(1) {
            ring.register_wakeup(wake)?;
        }
        let mut driver = Self {
            rings,
            listeners: Listeners::new(listeners),
            flights: Flights::default(),
            kept: Kept::default(),
            destinations: Vec::new(),
            pace: Pace::new(Instant::now(), thread_cpu_time()),
            wake,
            completions: Vec::new(),
            missed: Vec::new(),
        };
        driver.watch_mail()?;
        driver.listeners.arm(&mut driver.rings[0])?;
        driver.rings[0].enter()?;
        Ok(driver)
    }

    fn push(&mut self, ring: u16, op: Op, token: Token) -> io::Result<()> {
        self.rings[usize::from(ring)].push(op, token)
    }

    fn watch_mail(&mut self) -> io::Result<()> {
        // Asked for anew each time: kernels before the summer of 2026 take a multishot poll away without a
        // word once another ring has signalled the descriptor.
        self.push(0, Op::Readable(self.wake), Token::Wake)
    }

    /// Enter every ring but the first that has something to submit or to run.
    fn enter_others(&mut self) -> io::Result<()> {
        for ring in &mut self.rings[1..] {
            if ring.has_work() {
                ring.enter()?;
            }
        }
        Ok(())
    }

    fn have_completions(&mut self) -> bool {
        self.rings[1..].iter_mut().any(Ring::has_completions)
    }

    /// Wait in the first ring. A busy thread first lets a batch gather: fewer passes through the
    /// kernel for each message is what makes messages cheap.
    fn sleep(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let mut batch = self.pace.batch();
        if let Some(timeout) = timeout {
            batch = batch.min(timeout);
        }
        if !batch.is_zero() {
            self.rings[0].wait(pace::BATCH, Some(batch))?;
            self.enter_others()?;
            if self.have_completions() || self.rings[0].has_completions() {
                return Ok(());
            }
        }
        self.rings[1..]
            .iter_mut()
            .for_each(|ring| ring.enable_wakeup(true));
        // What completed before the wake-up was enabled must be seen below.
        fence(Ordering::SeqCst);
        let is_idle = !self.rings[1..].iter_mut().any(Ring::has_work);
        if is_idle && !self.have_completions() {
            let left = timeout.map(|timeout| timeout.saturating_sub(batch));
            self.rings[0].wait(1, left)?;
        } else {
            self.rings[0].enter()?;
        }
        self.rings[1..]
            .iter_mut()
            .for_each(|ring| ring.enable_wakeup(false));
        self.enter_others()
    }

    /// The ring with the most room, if any has some.
    fn ring_with_room(&self) -> Option<u16> {
        let rooms = self.rings.iter().map(Ring::room).enumerate();
        let (ring, room) = rooms.max_by_key(|(n, room)| (*room, usize::MAX - n))?;
        (room > 0).then_some(ring as u16)
    }

    /// Move a descriptor to a slot of the ring with the most room.
    fn install(&mut self, fd: OwnedFd) -> Result<Socket, Errno> {
        let ring = self.ring_with_room().ok_or(Errno::NFILE)?;
        match self.rings[usize::from(ring)].install(fd) {
            Ok(slot) => Ok(Socket::Direct { slot, ring, ops: 0 }),
            Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
    }
}

impl Driver for Uring {
    type Receipt = Receipt;

    fn poll(&mut self, mut wait: Wait<'_, Receipt>) -> io::Result<bool> {
        self.enter_others()?;
        if wait.timeout == Some(Duration::ZERO) || self.have_completions() {
            self.rings[0].enter()?;
        } else {
            self.sleep(wait.timeout)?;
        }
        wait.calls.enter += self.rings.iter_mut().map(Ring::take_entered).sum::<u64>();
        self.pace.note(Instant::now(), thread_cpu_time);
        self.destinations.clear();
        self.listeners.forget_closed();
        self.reap(&mut wait)
    }

    fn receive(
        &mut self,
        id: ConnId,
        socket: &mut Socket,
        receipt: Receipt,
    ) -> Received<'_, Receipt> {
        self.read(id, socket, receipt)
    }

    fn release(&mut self, receipt: Receipt) {
        if let Some(bytes) = receipt.bytes() {
            self.rings[usize::from(receipt.ring())]
                .buffers
                .release(bytes);
        }
    }

    fn hold(&mut self, id: ConnId, socket: &mut Socket, receipt: Receipt, is_kept: bool) -> Held {
        self.keep(id, socket, receipt, is_kept)
    }

    fn is_writable(&self, _: &Socket, receipt: Receipt) -> bool {
        receipt.is_writable()
    }

    fn held_bytes(&self) -> usize {
        self.kept.bytes()
    }

    fn arm(
        &mut self,
        id: ConnId,
        socket: &mut Socket,
        interest: Interest,
        events: &mut Events<Receipt>,
    ) -> io::Result<()> {
        let Socket::Direct { slot, ring, ops } = socket else {
            return Ok(());
        };
        let wants = interest.read && !self.kept.tell(id, events);
        let (slot, ring, token) = (*slot, *ring, Token::Receive(id));
        if wants && *ops & RECEIVE == 0 {
            *ops |= RECEIVE;
            self.push(ring, Op::Receive(slot), token)?;
        } else if !wants && *ops & (RECEIVE | CANCEL) == RECEIVE {
            *ops |= CANCEL;
            self.rings[usize::from(ring)].push_silent(Op::Cancel(token))?;
        }
        if !wants && *ops & HANGUP == 0 {
            *ops |= HANGUP;
            self.push(ring, Op::Hangup(slot), Token::Hangup(id))?;
        }
        if interest.write && *ops & WRITABLE == 0 {
            *ops |= WRITABLE;
            self.push(ring, Op::Writable(slot), Token::Writable(id))?;
        }
        Ok(())
    }

    fn write(
        &mut self,
        id: ConnId,
        socket: &Socket,
        output: &mut Output,
        _: &mut Pool,
    ) -> io::Result<Write> {
        let Socket::Direct { slot, ring, .. } = *socket else {
            return Ok(Write::Failed(Errno::BADF));
        };
        let Some(taken) = output.take() else {
            return Ok(Write::Queued { bytes: 0 });
        };
        let bytes = taken.len;
        let entry = self.flights.begin(id, slot, taken);
        // SAFETY: what the entry points to stays in `flights` until they are settled in `poll`, which has
        // submitted everything before.
        unsafe { self.rings[usize::from(ring)].push_entry(&entry)? };
        Ok(Write::Queued { bytes })
    }

    fn abandon(&mut self, unsent: &mut Vec<Unsent>) {
        self.flights.abandon(unsent);
    }

    fn accept(&mut self, listener: usize, events: &mut Events<Receipt>) -> io::Result<Accepted> {
        // What has been accepted comes before what could not be.
        if !self.listeners.is_waiting(listener) {
            return Ok(if self.listeners.take_exhausted(listener) {
                Accepted::Exhausted
            } else {
                Accepted::Empty
            });
        }
        let accepted = if self.ring_with_room().is_none() {
            Accepted::Exhausted
        } else {
            match self.listeners.next(listener) {
                None => Accepted::Empty,
                Some((fd, peer)) => match self.install(fd) {
                    Ok(socket) => Accepted::Connection(socket, peer),
                    // The connection is closed; the next one may find memory.
                    Err(_) => Accepted::Exhausted,
                },
            }
        };
        if self.listeners.is_ready(listener) {
            events.note_acceptable(listener);
        }
        Ok(accepted)
    }

    fn set_accepting(&mut self, listener: usize, accepting: bool) -> io::Result<()> {
        self.listeners
            .set_accepting(listener, accepting, &mut self.rings[0])
    }

    fn close_listener(&mut self, listener: usize) -> io::Result<()> {
        self.listeners.close(listener, &mut self.rings[0])
    }

    fn close_listeners(&mut self) -> io::Result<()> {
        (0..self.listeners.len()).try_for_each(|n| self.close_listener(n))
    }

    fn connect(
        &mut self,
        id: ConnId,
        to: SocketAddr,
        from: Option<IpAddr>,
    ) -> io::Result<Result<Socket, Errno>> {
        let fd = match socket::open_outgoing(to, from, Mode::Blocking) {
            Ok(fd) => fd,
            Err(errno) => return Ok(Err(errno)),
        };
        let destination = Box::new(to.as_any());
        let entry: squeue::Entry = opcode::Connect::new(
            types::Fd(fd.as_raw_fd()),
            destination.as_ptr().cast(),
            destination.addr_len(),
        )
        .build();
        self.destinations.push(destination);
        let entry = entry.user_data(Token::Connect(id).to_bits());
        // SAFETY: the address stays in `destinations` until it is submitted; the kernel copies it then.
        unsafe { self.rings[0].push_entry(&entry)? };
        Ok(Ok(Socket::new(fd)))
    }

    fn establish(&mut self, socket: &mut Socket) -> Result<(), Errno> {
        match std::mem::replace(socket, Socket::None) {
            Socket::Descriptor { fd, .. } => {
                *socket = self.install(fd)?;
                Ok(())
            }
            _ => Err(Errno::BADF),
        }
    }

    fn end_sending(&mut self, id: ConnId, socket: &Socket) -> io::Result<()> {
        match *socket {
            Socket::Direct { slot, ring, .. } => {
                self.push(ring, Op::Install(slot), Token::EndSending(id))
            }
            _ => Ok(()),
        }
    }

    fn close(&mut self, id: ConnId, socket: Socket) -> io::Result<()> {
        self.kept.forget(id);
        match socket {
            Socket::Direct { slot, ring, ops } => {
                let ring = &mut self.rings[usize::from(ring)];
                for (op, token) in [
                    (RECEIVE, Token::Receive(id)),
                    (WRITABLE, Token::Writable(id)),
                    (HANGUP, Token::Hangup(id)),
                ] {
                    if ops & op != 0 {
                        ring.push_silent(Op::Cancel(token))?;
                    }
                }
                ring.push_silent(Op::Close(slot))?;
                ring.uninstall(slot);
                Ok(())
            }
            Socket::Descriptor { .. } => self.rings[0].push_silent(Op::Cancel(Token::Connect(id))),
            _ => Ok(()),
        }
    }

    fn buffer_bytes(&self) -> usize {
        self.rings.iter().map(|ring| ring.buffers.size()).sum()
    }

    fn room(&self) -> Option<usize> {
        Some(self.rings.iter().map(Ring::files).sum())
    }
}
