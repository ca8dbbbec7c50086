//! The io_uring(7) backend: many rings in one thread, each with a file table of its own.
//!
//! RLIMIT_NOFILE bounds the file table of a ring as it bounds that of a thread, but a thread may own
//! any number of rings: a million connections need one thread. Connections are accepted, or
//! established, as ordinary descriptors by the first ring and then moved to the ring with the most
//! room, where a slot number (a *direct descriptor*) is all that is left of them.
//!
//! - Receiving is armed once for each connection (multishot) and takes its memory from buffers that
//!   belong to the ring, so that an idle connection owns none.
//! - Sending never waits in the kernel (MSG_DONTWAIT): it is carried out while it is submitted, so its
//!   bytes need to stay in place until then and no longer. It completes only where it failed or was cut
//!   short; the rest goes out when the socket has become writable.
//! - Everything of a turn is submitted with one call per ring, and before any handler can touch what
//!   has been queued: [`Uring::push_turn`] comes last in a turn, [`Uring::wait`] first in the next.
//! - The thread sleeps in the first ring. The others then ring a bell, the shard's wake-up descriptor,
//!   which the first one watches.

use std::collections::{HashMap, VecDeque};
use std::io as std_io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use io_uring::{cqueue, opcode, squeue, types};
use rustix::io::Errno;
use rustix::net::SocketAddrAny;

use crate::driver::io::{Io, Phase, Socket};
use crate::driver::{Closed, Driver, Handler};
use crate::fdtable;
use crate::slab::ConnId;

mod buffers;
mod establish;
mod pace;
mod receive;
mod ring;
mod send;
mod token;

use pace::Pace;
use ring::{Ring, RingSize};
use send::{Flight, end_sending};
use token::{Peer, Token};

/// Files that the kernel lets one table have, IORING_MAX_FIXED_FILES.
const MAX_FILES: u64 = 1 << 20;

/// Completions between one and the one whose connection is fetched into the cache meanwhile.
const AHEAD: usize = 2;

/// Bits of a [`Socket::Direct`]'s operations.
const RECEIVE: u8 = 1;
const WRITABLE: u8 = 2;
/// Receiving is being cancelled.
const CANCEL: u8 = 4;

/// A completion that has not been handed out yet.
struct Completion {
    ring: u16,
    entry: cqueue::Entry,
}

/// See the module.
pub struct Uring {
    rings: Vec<Ring>,
    /// `None` once closed.
    listeners: Vec<Option<OwnedFd>>,
    /// Whether accepting is armed, for each listener.
    accepting: Vec<bool>,
    accept_again: Option<Instant>,
    /// Accepted, and waiting for room in a file table.
    unplaced: VecDeque<(usize, OwnedFd, SocketAddr)>,
    completions: Vec<Completion>,
    /// The first of them that has not been handed out.
    next: usize,
    flights: Vec<Option<Flight>>,
    /// Connections whose sending failed, or has been cut short for the first time.
    stuck: Vec<(ConnId, Option<Errno>)>,
    /// Connections that end when what was answered to their last bytes is written.
    leaving: Vec<ConnId>,
    /// What arrived before a pause took effect.
    held: HashMap<ConnId, Vec<u8>>,
    /// Listeners that end, in place until nothing queued names them.
    unlistened: Vec<OwnedFd>,
    /// Addresses to connect to, in place until they are submitted however many follow.
    #[allow(clippy::vec_box)]
    destinations: Vec<Box<SocketAddrAny>>,
    pace: Pace,
}

/// Whether the kernel permits what this backend needs.
///
/// # Errors
/// It does not: io_uring is missing, forbidden, or older than Linux 6.12.
pub fn probe() -> std_io::Result<()> {
    // As large as any but for its file table: memory is what a limit may refuse.
    let size = ring_size(1, 1);
    // A ring belongs to the thread that made it.
    let attempt = std::thread::Builder::new().spawn(move || Ring::new(size).map(drop))?;
    let died = |_| Err(std_io::Error::other("the attempt panicked"));
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
    /// A backend with room for `connections` connections, accepted ones that wait to be refused
    /// included.
    pub(crate) fn new(
        listeners: Vec<OwnedFd>,
        wake: RawFd,
        connections: usize,
    ) -> std_io::Result<Self> {
        let count = rings_for(connections);
        let size = ring_size(count, connections);
        let mut rings = (0..count)
            .map(|_| Ring::new(size))
            .collect::<std_io::Result<Vec<_>>>()?;
        for ring in rings.iter_mut().skip(1) {
            ring.hang_bell(wake)?;
        }
        let mut driver = Self {
            rings,
            accepting: vec![false; listeners.len()],
            listeners: listeners.into_iter().map(Some).collect(),
            accept_again: None,
            unplaced: VecDeque::new(),
            completions: Vec::new(),
            next: 0,
            flights: Vec::new(),
            stuck: Vec::new(),
            leaving: Vec::new(),
            held: HashMap::new(),
            unlistened: Vec::new(),
            destinations: Vec::new(),
            pace: Pace::new(Instant::now()),
        };
        driver.watch_mail(wake)?;
        driver.accept_all()?;
        driver.rings[0].enter()?;
        Ok(driver)
    }

    /// Connections that there is room for in all.
    pub(crate) fn files(&self) -> usize {
        self.rings.iter().map(Ring::files).sum()
    }

    /// Bytes of the buffers that the kernel receives into.
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.rings.iter().map(|ring| ring.buffers.size()).sum()
    }

    /// Queues an operation that points to nothing.
    fn push(&mut self, ring: u16, entry: squeue::Entry, token: Token) -> std_io::Result<()> {
        // SAFETY: nothing is pointed to.
        unsafe { self.rings[usize::from(ring)].push(&entry.user_data(token.to_bits())) }
    }

    /// As [`push`](Self::push), for operations whose success nobody needs to hear of.
    fn push_silent(&mut self, ring: u16, entry: squeue::Entry) -> std_io::Result<()> {
        let entry = entry.flags(squeue::Flags::SKIP_SUCCESS);
        self.push(ring, entry, Token::Unwatched)
    }

    fn watch_mail(&mut self, wake: RawFd) -> std_io::Result<()> {
        // Asked for anew each time: kernels before the summer of 2026 take a multishot poll away without a
        // word once another ring has signalled the descriptor.
        let poll = opcode::PollAdd::new(types::Fd(wake), libc::POLLIN as u32);
        self.push(0, poll.build(), Token::Wake)
    }

    /// Submits the last turn, waits, and takes out what has completed.
    fn wait<H: Handler>(&mut self, io: &mut Io<H>) -> std_io::Result<()> {
        let mut patience = io.patience();
        if let Some(at) = self.accept_again {
            let pause = at.saturating_duration_since(Instant::now());
            patience = Some(patience.map_or(pause, |patience| patience.min(pause)));
        }
        let has_held = self.held_and_due(io).next().is_some();
        let is_busy = has_held || self.next < self.completions.len();
        let shard = io.shard();
        if is_busy || patience != Some(Duration::ZERO) && !io.mailboxes.fall_asleep(shard) {
            patience = Some(Duration::ZERO);
        }
        let before = Instant::now();
        self.enter_others()?;
        if patience == Some(Duration::ZERO) || self.have_completions() {
            self.rings[0].enter()?;
        } else {
            self.sleep(patience)?;
        }
        io.mailboxes.woke_up(shard);
        io.begin_turn();
        io.calls.enter += self.rings.iter_mut().map(Ring::take_entered).sum::<u64>();
        self.pace.note(before, io.now());
        self.destinations.clear();
        self.unlistened.clear();
        self.reap(io)
    }

    /// Enters every ring but the first that has something to submit or to run.
    fn enter_others(&mut self) -> std_io::Result<()> {
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

    /// Waits in the first ring. A busy thread first lets a batch gather: fewer passes through the
    /// kernel for each message is what makes messages cheap.
    fn sleep(&mut self, patience: Option<Duration>) -> std_io::Result<()> {
        let mut batch = self.pace.batch();
        if let Some(patience) = patience {
            batch = batch.min(patience);
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
            .for_each(|ring| ring.arm_bell(true));
        // What completed before the bell was armed must be seen below.
        fence(Ordering::SeqCst);
        let is_idle = !self.rings[1..].iter_mut().any(Ring::has_work);
        if is_idle && !self.have_completions() {
            let left = patience.map(|patience| patience.saturating_sub(batch));
            self.rings[0].wait(1, left)?;
        } else {
            self.rings[0].enter()?;
        }
        self.rings[1..]
            .iter_mut()
            .for_each(|ring| ring.arm_bell(false));
        self.enter_others()
    }

    /// Takes the completions out of the rings, and settles the flights: those that nothing is heard of
    /// have arrived in the kernel.
    fn reap<H: Handler>(&mut self, io: &mut Io<H>) -> std_io::Result<()> {
        if self.next == self.completions.len() {
            self.completions.clear();
            self.next = 0;
        }
        let mut missed = Vec::new();
        for (n, ring) in self.rings.iter_mut().enumerate() {
            let completions = &mut self.completions;
            ring.reap(|entry| match Token::from_bits(entry.user_data()) {
                Token::Send(flight) => missed.push((flight, entry.result())),
                Token::Unwatched => {}
                _ => completions.push(Completion {
                    ring: n as u16,
                    entry,
                }),
            })?;
        }
        for (flight, result) in missed {
            self.return_flight(io, flight as usize, result);
        }
        for flight in self.flights.drain(..).flatten() {
            io.sent.items += u64::from(flight.chunk.items);
            io.sent.bytes += flight.chunk.bytes.len() as u64 - u64::from(flight.sent);
            io.sent.writes += 1;
            io.pool.give(flight.chunk.bytes);
        }
        Ok(())
    }

    fn tell_stuck<H: Handler>(&mut self, io: &mut Io<H>, handler: &mut H) -> std_io::Result<()> {
        for (id, error) in std::mem::take(&mut self.stuck) {
            match error {
                Some(errno) => self.finish(io, handler, id, Closed::Failed(errno))?,
                None => handler.on_blocked(io, id),
            }
        }
        Ok(())
    }

    /// Hands out completions as far as the turn's budget goes.
    fn hand_out<H: Handler>(&mut self, io: &mut Io<H>, handler: &mut H) -> std_io::Result<()> {
        self.hand_out_held(io, handler);
        while self.next < self.completions.len() && !io.is_spent() {
            let Completion { ring, entry } = &self.completions[self.next];
            let (ring, entry) = (*ring, entry.clone());
            self.next += 1;
            if let Some(Completion { entry, .. }) = self.completions.get(self.next + AHEAD)
                && let Token::Receive(peer) = Token::from_bits(entry.user_data())
            {
                peer.prefetch(&io.conns);
            }
            match Token::from_bits(entry.user_data()) {
                Token::Receive(peer) => self.handle_received(io, handler, ring, peer, &entry)?,
                Token::Writable(peer) => {
                    if let Some(id) = peer.find(&io.conns)
                        && let Some(conn) = io.conns.value_mut(id)
                    {
                        clear(&mut conn.socket, WRITABLE);
                        conn.ready = true;
                        io.touch(id);
                    }
                }
                Token::Connect(peer) => self.handle_connected(io, handler, peer, entry.result())?,
                Token::EndSending(peer) => end_sending(io, peer, descriptor_of(&entry)),
                Token::Accept(n) => self.handle_accepted(io, handler, n as usize, &entry)?,
                Token::Wake => {
                    io.mailboxes.clear_wake(io.shard());
                    let wake = io.mailboxes.wake_descriptor(io.shard()).as_raw_fd();
                    self.watch_mail(wake)?;
                }
                Token::Send(_) | Token::Unwatched => {}
            }
        }
        Ok(())
    }

    /// Ends what is to end in this turn.
    fn end_connections<H: Handler>(
        &mut self,
        io: &mut Io<H>,
        handler: &mut H,
    ) -> std_io::Result<()> {
        for id in std::mem::take(&mut io.aborted) {
            self.finish(io, handler, id, Closed::Local)?;
        }
        for id in std::mem::take(&mut self.leaving) {
            let Some(conn) = io.conns.value_mut(id) else {
                continue;
            };
            handler.before_write(conn);
            if conn.output.is_empty() || !conn.ready {
                self.finish(io, handler, id, Closed::Peer)?;
            } else {
                self.leaving.push(id);
            }
        }
        Ok(())
    }

    /// Removes the connection, tells the handler and closes its socket.
    fn finish<H: Handler>(
        &mut self,
        io: &mut Io<H>,
        handler: &mut H,
        id: ConnId,
        why: Closed,
    ) -> std_io::Result<()> {
        let socket = io.finish(handler, id, why);
        if !self.held.is_empty() {
            self.held.remove(&id);
        }
        let peer = Peer::of(id);
        match socket {
            Some(Socket::Direct { slot, ring, ops }) => {
                for (op, token) in [
                    (RECEIVE, Token::Receive(peer)),
                    (WRITABLE, Token::Writable(peer)),
                ] {
                    if ops & op != 0 {
                        let cancel = opcode::AsyncCancel::new(token.to_bits());
                        self.push_silent(ring, cancel.build())?;
                    }
                }
                self.push_silent(ring, opcode::Close::new(types::Fixed(slot)).build())?;
                self.rings[usize::from(ring)].uninstall(slot);
            }
            Some(Socket::Descriptor { .. }) => {
                let cancel = opcode::AsyncCancel::new(Token::Connect(peer).to_bits());
                self.push_silent(0, cancel.build())?;
            }
            Some(Socket::None) | None => {}
        }
        Ok(())
    }

    /// Queues what this turn has to send, and arms what is to be heard of. Nothing here calls back
    /// but [`Handler::before_write`]: the bytes must stay as they are until they are submitted.
    fn push_turn<H: Handler>(&mut self, io: &mut Io<H>, handler: &mut H) -> std_io::Result<()> {
        let mut touched = std::mem::take(&mut io.touched);
        for id in touched.drain(..) {
            let Some(conn) = io.conns.value_mut(id) else {
                continue;
            };
            conn.touched = false;
            if let Phase::Open | Phase::Closing | Phase::PeerClosed = conn.phase {
                handler.before_write(conn);
                self.push_send(io, id)?;
            }
            self.arm(io, id)?;
        }
        // Keeps the allocation.
        touched.append(&mut io.touched);
        io.touched = touched;
        Ok(())
    }

    fn end<H: Handler>(&mut self, io: &mut Io<H>, handler: &mut H) -> std_io::Result<()> {
        // Listeners first: who connects from now on is refused at once, and the kernel does not spend
        // itself on accepting while a million connections end.
        (0..self.listeners.len()).try_for_each(|n| self.stop_accepting(n))?;
        self.listeners.clear();
        self.unplaced.clear();
        self.settle(io)?;
        self.push_turn(io, handler)?;
        self.settle(io)?;
        let ids: Vec<ConnId> = io.conns.ids().collect();
        for id in ids {
            self.finish(io, handler, id, Closed::Shutdown)?;
        }
        self.settle(io)?;
        self.completions
            .drain(self.next..)
            .for_each(|completion| drop(descriptor_of(&completion.entry)));
        self.next = 0;
        Ok(())
    }

    /// Submits what is queued and learns what became of it.
    fn settle<H: Handler>(&mut self, io: &mut Io<H>) -> std_io::Result<()> {
        self.enter_others()?;
        self.rings[0].enter()?;
        self.reap(io)
    }
}

impl<H: Handler> Driver<H> for Uring {
    fn turn(&mut self, io: &mut Io<H>, handler: &mut H) -> std_io::Result<()> {
        self.wait(io)?;
        self.tell_stuck(io, handler)?;
        self.hand_out(io, handler)?;
        self.resume_accepting(io, handler)?;
        io.deliver_mail_and_timers(handler);
        io.renew_budget();
        handler.on_turn_end(io);
        for connect in std::mem::take(&mut io.connects) {
            self.connect(io, handler, &connect)?;
        }
        self.end_connections(io, handler)?;
        io.post_mail(handler);
        handler.on_written(io);
        self.unlisten(io)?;
        self.push_turn(io, handler)
    }

    fn shut_down(&mut self, io: &mut Io<H>, handler: &mut H) {
        if self.end(io, handler).is_err() {
            // The kernel takes no more submissions; the handler must hear of every end all the same.
            (0..self.flights.len()).for_each(|flight| self.return_flight(io, flight, 0));
            let ids: Vec<ConnId> = io.conns.ids().collect();
            for id in ids {
                drop(io.finish(handler, id, Closed::Shutdown));
            }
        }
    }
}

/// The descriptor that a completion carries, if any.
fn descriptor_of(entry: &cqueue::Entry) -> Option<OwnedFd> {
    match Token::from_bits(entry.user_data()) {
        Token::Accept(_) | Token::EndSending(_) if entry.result() >= 0 => {
            // SAFETY: the kernel has opened it for us, and nobody else knows of it.
            Some(unsafe { OwnedFd::from_raw_fd(entry.result()) })
        }
        _ => None,
    }
}

fn clear(socket: &mut Socket, which: u8) {
    if let Socket::Direct { ops, .. } = socket {
        *ops &= !which;
    }
}
