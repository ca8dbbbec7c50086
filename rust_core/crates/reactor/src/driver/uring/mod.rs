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

use io_uring::{cqueue, opcode, squeue, types};
use rustix::io::Errno;
use rustix::net::SocketAddrAny;
use rustix::net::addr::SocketAddrArg;

use super::{Accepted, Driver, Event, Events, Held, Received, Unsent, Wait, Write};
use crate::chunk::Pool;
use crate::conn_id::ConnId;
use crate::connections::{Interest, Socket};
use crate::output::Output;
use crate::socket::{self, Mode};

mod accept;
mod buffers;
mod flights;
mod meter;
mod op;
mod pace;
mod receive;
mod ring;
mod rings;
mod token;

use accept::Listeners;
use flights::Flights;
use op::{CANCEL, HANGUP, METERED, Op, RECEIVE, WAITING, WRITABLE};
pub(crate) use receive::Receipt;
use receive::Receiving;
use ring::{Completion, Ring};
use rings::Rings;
pub(crate) use rings::probe;
use token::Token;

/// Completions whose memory is kept between two turns.
const KEPT: usize = 64 * 1024;

/// The io_uring driver; see the module.
pub(crate) struct Uring {
    /// Dropped before everything that their operations point to.
    rings: Rings,
    listeners: Listeners,
    flights: Flights,
    receiving: Receiving,
    /// Addresses to connect to, in place until they are submitted however many follow.
    #[allow(clippy::vec_box)]
    destinations: Vec<Box<SocketAddrAny>>,
    wake: RawFd,
    /// Kept for their memory.
    completions: Vec<Completion>,
    missed: Vec<(u32, i32)>,
}

impl Uring {
    /// Make a driver with room for `connections` connections, accepted ones that wait to be refused
    /// included.
    pub(crate) fn new(
        listeners: Vec<OwnedFd>,
        wake: RawFd,
        connections: usize,
    ) -> io::Result<Self> {
        let mut driver = Self {
            rings: Rings::new(wake, connections)?,
            listeners: Listeners::new(listeners),
            flights: Flights::default(),
            receiving: Receiving::default(),
            destinations: Vec::new(),
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
        self.rings[ring].push(op, token)
    }

    fn watch_mail(&mut self) -> io::Result<()> {
        // Asked for anew each time: kernels before the summer of 2026 take a multishot poll away without a
        // word once another ring has signalled the descriptor.
        self.push(0, Op::Readable(self.wake), Token::Wake)
    }

    /// Take the completions out of the rings and queue their events; then settle the flights: those of
    /// which nothing is heard have arrived in the kernel.
    fn reap(&mut self, wait: &mut Wait<'_, Receipt>) -> io::Result<bool> {
        let mut completions = std::mem::take(&mut self.completions);
        for ring in self.rings.iter_mut() {
            for id in ring.meter.begin_turn(ring.buffers.lent()) {
                wait.events.push(Event::Ready(id, Receipt::ADMITTED));
            }
            ring.reap(&mut completions)?;
        }
        let mut is_woken = false;
        for completion in completions.drain(..) {
            let (result, flags) = (completion.result(), completion.flags());
            match completion.token() {
                Token::Receive(id) => {
                    let buffers = &mut self.rings[completion.ring].buffers;
                    let receipt = Receipt::received(buffers, result, flags);
                    if receipt.is_last() {
                        wait.events.push_change(Event::Ready(id, receipt));
                    } else {
                        wait.events.push(Event::Ready(id, receipt));
                    }
                }
                Token::Send(flight) => self.missed.push((flight, result)),
                Token::Writable(id) => wait.events.push_writable(id),
                Token::Hangup(id) => {
                    if let Some(receipt) = Receipt::hangup(result, flags) {
                        wait.events.push_change(Event::Ready(id, receipt));
                    }
                }
                Token::Connect(id) => {
                    let outcome = match -result {
                        ..=0 => Ok(()),
                        error => Err(Errno::from_raw_os_error(error)),
                    };
                    wait.events.push_change(Event::Connected(id, outcome));
                }
                Token::EndSending(id) => match completion.into_descriptor() {
                    // It fails only where the peer is gone already, which receiving will tell.
                    Ok(fd) => drop(rustix::net::shutdown(fd, rustix::net::Shutdown::Write)),
                    // No descriptor left: a peer that has not read everything may see a reset.
                    Err(errno) => wait.events.push_change(Event::Failed(id, errno)),
                },
                Token::Accept(n) => {
                    let outcome = completion.into_descriptor();
                    let goes_on = cqueue::more(flags);
                    self.listeners
                        .add(n as usize, outcome, goes_on, wait.events);
                }
                Token::Wake => is_woken = true,
                Token::Unwatched => {}
            }
        }
        if completions.capacity() <= KEPT {
            self.completions = completions;
        }
        // SAFETY: every ring has been entered since the last write, until nothing of it was left to submit.
        unsafe { self.flights.settle(&mut self.missed, wait) };
        if is_woken {
            self.watch_mail()?;
        }
        self.listeners.arm(&mut self.rings[0])?;
        Ok(is_woken)
    }
}

impl Driver for Uring {
    type Receipt = Receipt;

    fn poll(&mut self, mut wait: Wait<'_, Receipt>) -> io::Result<bool> {
        self.rings.wait(wait.timeout)?;
        wait.calls.enter += self.rings.iter_mut().map(Ring::take_entered).sum::<u64>();
        self.destinations.clear();
        self.listeners.forget_closed();
        self.reap(&mut wait)
    }

    fn receive(
        &mut self,
        id: ConnId,
        socket: &mut Socket,
        receipt: Receipt,
        _: usize,
        _: &mut Events<Receipt>,
    ) -> Received<'_> {
        self.receiving.read(&mut self.rings, id, socket, receipt)
    }

    fn release(&mut self) {
        self.receiving.release(&mut self.rings);
    }

    fn discard(&mut self, receipt: Receipt) {
        if let Some(piece) = receipt.into_piece() {
            self.rings.release(piece);
        }
    }

    fn hold(&mut self, id: ConnId, socket: &mut Socket, receipt: Receipt, is_kept: bool) -> Held {
        self.receiving
            .keep(&mut self.rings, id, socket, receipt, is_kept)
    }

    fn note_writable(&mut self, _: ConnId, socket: &mut Socket) {
        if let Socket::Direct { ops, .. } = socket {
            *ops &= !WRITABLE;
        }
    }

    fn held_bytes(&self) -> usize {
        self.receiving.kept.bytes()
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
        let wants = interest.read && !self.receiving.kept.tell(id, events);
        let (slot, ring, token) = (*slot, *ring, Token::Receive(id));
        if wants && *ops & RECEIVE == 0 {
            let op = if *ops & METERED == 0 {
                Some(Op::Receive(slot))
            } else if *ops & WAITING == 0 {
                let len = self.rings[ring].meter.ask(id);
                len.map(|len| Op::ReceiveOnce(slot, len))
            } else {
                None
            };
            *ops |= if op.is_some() { RECEIVE } else { WAITING };
            if let Some(op) = op {
                self.push(ring, op, token)?;
            }
        } else if !wants && *ops & (RECEIVE | CANCEL) == RECEIVE {
            *ops |= CANCEL;
            self.rings[ring].push_silent(Op::Cancel(token))?;
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
        unsafe { self.rings[ring].push_entry(&entry)? };
        Ok(Write::Queued { bytes })
    }

    fn abandon(&mut self, unsent: &mut Vec<Unsent>) {
        self.rings.close();
        // SAFETY: the rings are gone, and what was queued with them.
        unsafe { self.flights.abandon(unsent) };
    }

    fn accept(&mut self, listener: usize, events: &mut Events<Receipt>) -> io::Result<Accepted> {
        // Accepted connections come before the failure to accept one.
        if !self.listeners.is_waiting(listener) {
            return Ok(if self.listeners.take_exhausted(listener) {
                Accepted::Exhausted
            } else {
                Accepted::Empty
            });
        }
        let accepted = if self.rings.with_room().is_none() {
            Accepted::Exhausted
        } else {
            match self.listeners.next(listener) {
                None => Accepted::Empty,
                Some((fd, peer)) => match self.rings.install(fd) {
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
        // Pointed to when it is in its place: to move a box is to claim it anew.
        let place = self.destinations.len();
        self.destinations.push(Box::new(to.as_any()));
        let destination = &self.destinations[place];
        let entry: squeue::Entry = opcode::Connect::new(
            types::Fd(fd.as_raw_fd()),
            destination.as_ptr().cast(),
            destination.addr_len(),
        )
        .build();
        let entry = entry.user_data(Token::Connect(id).to_bits());
        // SAFETY: the address stays in `destinations` until it is submitted; the kernel copies it then.
        unsafe { self.rings[0].push_entry(&entry)? };
        Ok(Ok(Socket::new(fd)))
    }

    fn establish(&mut self, socket: &mut Socket) -> Result<(), Errno> {
        match std::mem::replace(socket, Socket::None) {
            Socket::Descriptor { fd, .. } => {
                *socket = self.rings.install(fd)?;
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
        self.receiving.kept.forget(id);
        match socket {
            Socket::Direct { slot, ring, ops } => {
                let ring = &mut self.rings[ring];
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
