//! The driver of a simulated shard.

use std::io;
use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;

use super::network::{Network, Read};
use super::state::{Host, Notice};
use crate::chunk::Pool;
use crate::conn_id::ConnId;
use crate::connections::{Interest, Socket};
use crate::driver::{
    Accepted, Driver, Event, Events, Held, Outcome, Received, Unsent, Wait, Write,
};
use crate::output::{Output, Taken};

/// A hint to look at a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Receipt;

/// A driver over a [`Network`].
pub(crate) struct Sim {
    network: Network,
    host: Host,
    listeners: usize,
    /// Writes are carried out when the next poll begins, as io_uring does, rather than at once.
    is_deferring: bool,
    queued: Vec<(ConnId, usize, Taken)>,
    buffer: Vec<u8>,
}

impl Sim {
    pub(super) fn new(network: &Network, listeners: &[SocketAddr]) -> Self {
        Self {
            host: network.add_host(listeners),
            listeners: listeners.len(),
            is_deferring: network.below(2) == 0,
            network: network.clone(),
            queued: Vec::new(),
            buffer: Vec::new(),
        }
    }

    pub(super) fn host(&self) -> Host {
        self.host
    }

    /// Return how many items the writes have that are queued.
    pub(super) fn queued_items(&self) -> u64 {
        self.queued.iter().map(|(_, _, taken)| taken.items()).sum()
    }

    pub(super) fn has_queued(&self) -> bool {
        !self.queued.is_empty()
    }

    fn send_queued(&mut self, wait: &mut Wait<'_, Receipt>) {
        for (id, end, taken) in self.queued.drain(..) {
            let bytes = taken.chunks().concat();
            match self.network.write(end, &bytes) {
                Some(count) if count == bytes.len() => {
                    wait.sent.bytes += count as u64;
                    wait.sent.writes += 1;
                    wait.sent.items += taken.finish(wait.pool);
                }
                outcome => wait.unsent.push(Unsent {
                    id,
                    taken,
                    sent: outcome.unwrap_or(0),
                    error: outcome.is_none().then_some(Errno::PIPE),
                }),
            }
        }
    }
}

/// Return the number of a simulated socket.
fn end_of(socket: &Socket) -> Option<usize> {
    match socket {
        Socket::Simulated { end, .. } => Some(*end as usize),
        _ => None,
    }
}

impl Driver for Sim {
    type Receipt = Receipt;

    fn poll(&mut self, mut wait: Wait<'_, Receipt>) -> io::Result<bool> {
        self.send_queued(&mut wait);
        for notice in self.network.take_notices(self.host) {
            match notice {
                Notice::Ready(id, false) => wait.events.push(Event::Ready(id, Receipt)),
                Notice::Ready(id, true) => wait.events.push_change(Event::Ready(id, Receipt)),
                Notice::Room(id) => wait.events.push_writable(id),
                Notice::Connected(id, outcome) => {
                    wait.events.push_change(Event::Connected(id, outcome));
                }
                Notice::Acceptable(n) => wait.events.note_acceptable(n),
            }
        }
        Ok(true)
    }

    fn receive(
        &mut self,
        id: ConnId,
        socket: &mut Socket,
        _: Receipt,
        limit: usize,
        events: &mut Events<Receipt>,
    ) -> Received<'_> {
        let end = end_of(socket);
        let read = end.map(|end| self.network.read(end, limit));
        let (read, more) = read.unwrap_or((Read::Nothing, false));
        if more {
            let event = Event::Again(id, Receipt);
            if end.is_some_and(|end| self.network.is_last(end)) {
                events.push_change(event);
            } else {
                events.push(event);
            }
        }
        let outcome = match read {
            Read::Bytes(bytes) => {
                self.buffer = bytes;
                Outcome::Bytes(&mut self.buffer)
            }
            Read::Nothing => Outcome::Nothing,
            Read::End => Outcome::End,
            Read::Failed(errno) => Outcome::Failed(errno),
        };
        Received {
            outcome,
            rearm: true,
        }
    }

    fn hold(&mut self, _: ConnId, socket: &mut Socket, _: Receipt, _: bool) -> Held {
        let has_failed = end_of(socket).is_some_and(|end| self.network.hold(end));
        if let Socket::Simulated { has_held, .. } = socket {
            *has_held = true;
        }
        Held {
            rearm: true,
            failed: has_failed.then_some(Errno::CONNRESET),
        }
    }

    fn note_writable(&mut self, _: ConnId, _: &mut Socket) {}

    fn arm(
        &mut self,
        id: ConnId,
        socket: &mut Socket,
        interest: Interest,
        events: &mut Events<Receipt>,
    ) -> io::Result<()> {
        let Some(end) = end_of(socket) else {
            return Ok(());
        };
        self.network.name(end, id);
        if let Socket::Simulated { has_held, .. } = socket
            && interest.read
            && std::mem::take(has_held)
        {
            events.push(Event::Ready(id, Receipt));
        }
        Ok(())
    }

    fn write(
        &mut self,
        id: ConnId,
        socket: &Socket,
        output: &mut Output,
        pool: &mut Pool,
    ) -> io::Result<Write> {
        let Some(end) = end_of(socket) else {
            return Ok(Write::Failed(Errno::BADF));
        };
        let Some(taken) = output.take() else {
            return Ok(Write::Queued { bytes: 0 });
        };
        let wanted = taken.len;
        if self.is_deferring {
            self.queued.push((id, end, taken));
            return Ok(Write::Queued { bytes: wanted });
        }
        let bytes = taken.chunks().concat();
        let Some(count) = self.network.write(end, &bytes) else {
            output.restore(taken, 0, pool);
            return Ok(Write::Failed(Errno::PIPE));
        };
        let items = output.restore(taken, count, pool);
        Ok(if count == wanted {
            Write::Whole {
                bytes: count,
                items,
            }
        } else {
            Write::Short {
                bytes: count,
                items,
            }
        })
    }

    fn accept(&mut self, n: usize, events: &mut Events<Receipt>) -> io::Result<Accepted> {
        let Some((end, peer)) = self.network.accept(self.host, n) else {
            return Ok(Accepted::Empty);
        };
        if self.network.waits(self.host, n) {
            events.note_acceptable(n);
        }
        Ok(Accepted::Connection(Socket::simulated(end), peer))
    }

    fn close_listener(&mut self, listener: usize) -> io::Result<()> {
        self.network.close_listener(self.host, listener);
        Ok(())
    }

    fn close_listeners(&mut self) -> io::Result<()> {
        (0..self.listeners).try_for_each(|n| self.close_listener(n))
    }

    fn connect(
        &mut self,
        id: ConnId,
        to: SocketAddr,
        _: Option<IpAddr>,
    ) -> io::Result<Result<Socket, Errno>> {
        let end = self.network.dial(self.host, id, to);
        Ok(end.map(Socket::simulated))
    }

    fn establish(&mut self, _: &mut Socket) -> Result<(), Errno> {
        Ok(())
    }

    fn end_sending(&mut self, _: ConnId, socket: &Socket) -> io::Result<()> {
        end_of(socket)
            .into_iter()
            .for_each(|end| self.network.end_sending(end));
        Ok(())
    }

    fn close(&mut self, _: ConnId, socket: Socket) -> io::Result<()> {
        end_of(&socket)
            .into_iter()
            .for_each(|end| self.network.close(end));
        Ok(())
    }

    fn buffer_bytes(&self) -> usize {
        0
    }
}
