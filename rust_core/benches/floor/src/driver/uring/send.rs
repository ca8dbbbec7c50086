//! Sending: a turn at once, and what the sockets did not take, later.

use crate::driver::output::Queue;
use crate::driver::uring::op::Op;
use crate::driver::uring::ring::Ring;
use crate::driver::uring::{HUB_RING, Uring, result};
use crate::failure::Failure;

/// Bytes that the kernel may be reading.
#[derive(Default)]
pub(super) struct Flight {
    bytes: Vec<u8>,
    sent: usize,
    busy: bool,
}

/// What a client has not taken.
#[derive(Default)]
pub(super) struct Backlog {
    queue: Queue,
    flight: Flight,
}

impl Uring {
    /// Submits what the turn has left.
    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        // Every ring has been entered since the last turn was submitted, so that it is over.
        let over = std::mem::take(&mut self.flying);
        let turn = self.out.take_turn(over);
        for (index, send) in turn.sends.iter().enumerate() {
            let bytes = turn.bytes(send);
            self.send(send.client, bytes, Op::SendMessage(index as u32))?;
        }
        if !turn.everyone.is_empty() {
            for client in 0..self.alive.len() {
                if self.alive[client] {
                    let client = client as u32;
                    self.send(client, &turn.everyone, Op::SendEveryone(client))?;
                }
            }
        }
        self.flying = turn;
        for trunk in 0..self.trunks.len() {
            self.flush_trunk(trunk)?;
        }
        for fault in std::mem::take(&mut self.out.faults) {
            self.worker.fault(fault);
        }
        Ok(())
    }

    /// Sends bytes of the flying turn.
    fn send(&mut self, client: u32, bytes: &[u8], op: Op) -> Result<(), Failure> {
        if !self.alive.get(client as usize).is_some_and(|alive| *alive) {
            self.worker.fault(format_args!(
                "client {client} is gone, a message for it is left"
            ));
            return Ok(());
        }
        if let Some(backlog) = self.backlogs.get_mut(&client) {
            backlog.queue.push(&[bytes]);
            return Ok(());
        }
        let (ring, slot) = self.place(client);
        // SAFETY: the flying turn, whose bytes these are, is not touched before `wait` has entered
        // every ring with something to submit; moving the turn does not move its bytes. Should
        // anything fail before that, the rings are given up without being entered again.
        unsafe { self.rings[ring].send_now(slot, bytes, op) }
    }

    fn flush_trunk(&mut self, index: usize) -> Result<(), Failure> {
        let (trunk, queue) = (&mut self.trunks[index], &mut self.out.trunks[index]);
        if trunk.flight.busy || queue.is_empty() {
            return Ok(());
        }
        queue.take(&mut trunk.flight.bytes);
        self.trunk_sends += 1;
        let hub = &mut self.rings[HUB_RING as usize];
        trunk
            .flight
            .start(hub, trunk.slot, Op::SendTrunk(index as u32))
    }

    /// Keeps what the socket did not take. A connection that is broken is closed when its receive
    /// completes, which it does as well.
    pub(super) fn sent_short(
        &mut self,
        client: u32,
        rest: std::io::Result<Vec<u8>>,
    ) -> Result<(), Failure> {
        let rest = match rest {
            Ok(rest) => rest,
            Err(error) => {
                self.worker
                    .fault(format_args!("cannot send to client {client}: {error}"));
                return Ok(());
            }
        };
        if rest.is_empty() || !self.alive[client as usize] {
            return Ok(());
        }
        let (ring, slot) = self.place(client);
        let backlog = self.backlogs.entry(client).or_default();
        backlog.flight.bytes = rest;
        backlog
            .flight
            .start(&mut self.rings[ring], slot, Op::SendBacklog(client))
    }

    pub(super) fn backlog_sent(&mut self, client: u32, outcome: i32) -> Result<(), Failure> {
        let (ring, slot) = self.place(client);
        let Some(backlog) = self.backlogs.get_mut(&client) else {
            return Ok(());
        };
        let ring = &mut self.rings[ring];
        let op = Op::SendBacklog(client);
        match backlog.flight.finish(outcome) {
            Err(error) => {
                self.worker
                    .fault(format_args!("cannot send to client {client}: {error}"));
                backlog.queue = Queue::default();
            }
            Ok(false) if self.alive[client as usize] => {
                return backlog.flight.start_rest(ring, slot, op);
            }
            Ok(_) => {}
        }
        if self.alive[client as usize] && !backlog.queue.is_empty() {
            backlog.queue.take(&mut backlog.flight.bytes);
            return backlog.flight.start(ring, slot, op);
        }
        self.backlogs.remove(&client);
        if !self.alive[client as usize] {
            return ring.close(slot);
        }
        Ok(())
    }

    pub(super) fn trunk_sent(&mut self, index: u32, outcome: i32) -> Result<(), Failure> {
        let trunk = &mut self.trunks[index as usize];
        match trunk.flight.finish(outcome) {
            // The turn's end sends what is queued.
            Ok(true) => Ok(()),
            Ok(false) => {
                let hub = &mut self.rings[HUB_RING as usize];
                let op = Op::SendTrunk(index);
                trunk.flight.start_rest(hub, trunk.slot, op)
            }
            Err(error) => self.worker.trunk_lost(index as usize, error),
        }
    }
}

impl Flight {
    /// Sends `self.bytes`.
    fn start(&mut self, ring: &mut Ring, slot: u32, op: Op) -> Result<(), Failure> {
        self.sent = 0;
        self.start_rest(ring, slot, op)
    }

    fn start_rest(&mut self, ring: &mut Ring, slot: u32, op: Op) -> Result<(), Failure> {
        self.busy = true;
        // SAFETY: while `busy` nobody touches the bytes, and neither trunks nor backlogs are dropped
        // before their completion, or the cancellation of everything at the end.
        unsafe { ring.send_all(slot, &self.bytes[self.sent..], op) }
    }

    /// A send has completed; whether it was the last one.
    fn finish(&mut self, outcome: i32) -> std::io::Result<bool> {
        self.busy = false;
        match result(outcome) {
            Ok(n) => self.sent += n as usize,
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(self.sent >= self.bytes.len())
    }
}

fn is_passing(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR))
}

/// What a send with this outcome has left of `bytes`.
pub(super) fn rest(bytes: &[u8], outcome: i32) -> std::io::Result<Vec<u8>> {
    match result(outcome) {
        Ok(sent) => Ok(bytes[sent as usize..].to_vec()),
        Err(error) if is_passing(&error) => Ok(bytes.to_vec()),
        Err(error) => Err(error),
    }
}
