//! The io_uring(7) driver: one thread with as many rings as the connections need tables, multishot
//! requests that receive into buffers of the kernel's choice, and sends that complete only if the
//! socket did not take everything at once.
//!
//! A client's number is its ring's first number plus its slot in that ring's table.

mod buffers;
mod op;
mod ring;
mod send;

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use io_uring::cqueue::{self, Entry as Completion};
use rustix::event::{EventfdFlags, eventfd};

use crate::driver::output::{Output, Queue, Turn};
use crate::driver::{Driver, Kind, Next, Pattern, Worker};
use crate::failure::{Context, Failure};
use crate::signal::ready;

use op::Op;
use ring::{Ring, Size};
use send::{Backlog, Flight, rest};

/// How long to wait for a batch of completions once there is anything to do.
const BATCH_PATIENCE: Duration = Duration::from_micros(300);

/// Ring of the trunks.
const HUB_RING: u32 = 0;

/// See the module.
pub(crate) struct Uring {
    worker: Worker,
    rings: Vec<Ring>,
    /// Listeners with their rings.
    listeners: Vec<(OwnedFd, u32, Kind)>,
    /// By client number.
    alive: Vec<bool>,
    /// Slots that [`Driver::add`] has given away, by ring.
    added: Vec<u32>,
    trunks: Vec<Trunk>,
    /// What clients have not taken, by number. Rare.
    backlogs: HashMap<u32, Backlog>,
    out: Output,
    /// What is being sent: complete when every ring has been entered.
    flying: Turn,
    /// Signalled by all rings, where there are several.
    wake: OwnedFd,
    /// Sends to trunks since the last wait, which will complete as well.
    trunk_sends: u32,
    /// Whether the last wait brought nothing.
    idle: bool,
}

struct Trunk {
    slot: u32,
    flight: Flight,
}

impl Driver for Uring {
    fn new(worker: Worker) -> Result<Self, Failure> {
        let rings = (0..worker.rings)
            .map(|index| Ring::new(&size(&worker), index == HUB_RING))
            .collect::<Result<Vec<_>, _>>()?;
        let clients = worker.rings as usize * worker.slots as usize;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let mut driver = Self {
            listeners: Vec::new(),
            alive: vec![false; clients],
            added: vec![0; rings.len()],
            trunks: Vec::new(),
            backlogs: HashMap::new(),
            out: Output::new(worker.threads),
            flying: Turn::default(),
            wake: eventfd(0, flags).context("create an eventfd")?,
            trunk_sends: 0,
            idle: false,
            rings,
            worker,
        };
        if driver.rings.len() > 1 {
            for ring in &mut driver.rings {
                ring.signal_on(driver.wake.as_fd())?;
            }
        }
        let signals = &driver.worker.setup.signals;
        let hub = &mut driver.rings[HUB_RING as usize];
        hub.watch(signals.drain.as_fd(), Op::DrainRaised)?;
        hub.watch(signals.close.as_fd(), Op::CloseRaised)?;
        Ok(driver)
    }

    fn listen(&mut self, ring: u32, listener: OwnedFd, kind: Kind) -> Result<(), Failure> {
        let op = match kind {
            Kind::Client => Op::AcceptClient,
            Kind::Trunk => Op::AcceptTrunk,
        };
        self.rings[ring as usize].accept(listener.as_fd(), op)?;
        self.listeners.push((listener, ring, kind));
        Ok(())
    }

    fn add(&mut self, socket: OwnedFd, kind: Kind) -> Result<u32, Failure> {
        let ring = match kind {
            Kind::Trunk => HUB_RING,
            // The one with the most room.
            Kind::Client => (0..self.worker.rings)
                .min_by_key(|ring| self.added[*ring as usize])
                .unwrap_or(HUB_RING),
        };
        let slot = self.added[ring as usize];
        self.rings[ring as usize].install(slot, socket.as_fd())?;
        self.added[ring as usize] += 1;
        self.opened(ring, slot, kind)
    }

    fn output(&mut self) -> &mut Output {
        &mut self.out
    }

    fn turn<P: Pattern>(
        &mut self,
        pattern: &mut P,
        patience: Option<Duration>,
    ) -> Result<Next, Failure> {
        pattern.end_turn(&mut self.out);
        self.flush()?;
        self.wait(patience)?;
        for ring in 0..self.worker.rings {
            let completions = self.rings[ring as usize].take_ready();
            for completion in &completions {
                if self.complete(ring, completion, pattern)? == Next::Close {
                    return Ok(Next::Close);
                }
            }
            let ring = &mut self.rings[ring as usize];
            if !completions.is_empty() {
                ring.publish_buffers();
            }
            ring.reuse(completions);
        }
        Ok(Next::Turn)
    }

    fn close(mut self) -> Result<(), Failure> {
        for (listener, ring, _) in std::mem::take(&mut self.listeners) {
            self.rings[ring as usize].cancel(listener.as_fd())?;
        }
        self.rings.iter_mut().try_for_each(Ring::close_all)
    }
}

/// Measured so that a turn finds buffers for what usually arrives, and the cache is not swept by more.
fn size(worker: &Worker) -> Size {
    let buffer_bytes = worker.from_client.next_power_of_two().clamp(128, 16 * 1024);
    let alone = worker.rings == 1;
    Size {
        entries: if alone { 4096 } else { 512 },
        slots: worker.slots,
        buffers: if alone { 2048 } else { 512 },
        buffer_bytes,
    }
}

impl Uring {
    /// Numbers a connection whose socket is in the table and begins to receive.
    fn opened(&mut self, ring: u32, slot: u32, kind: Kind) -> Result<u32, Failure> {
        if kind == Kind::Trunk {
            let trunk = self.trunks.len() as u32;
            self.trunks.push(Trunk {
                slot,
                flight: Flight::default(),
            });
            self.out.trunks.push(Queue::default());
            self.rings[ring as usize].receive_trunk(slot, trunk)?;
            return Ok(trunk);
        }
        let client = ring * self.worker.slots + slot;
        self.alive[client as usize] = true;
        self.rings[ring as usize].receive_client(slot, client)?;
        Ok(client)
    }

    /// A client's ring and slot.
    fn place(&self, client: u32) -> (usize, u32) {
        let ring = client / self.worker.slots;
        (ring as usize, client % self.worker.slots)
    }

    /// Enters every ring that has something to do; blocks while none has, at most for `patience` where
    /// that is given.
    fn wait(&mut self, patience: Option<Duration>) -> Result<(), Failure> {
        let trunk_sends = std::mem::take(&mut self.trunk_sends);
        if let [ring] = &mut self.rings[..] {
            let batch = self.worker.batch + trunk_sends;
            let (want, patience) = match patience {
                Some(Duration::ZERO) => (0, None),
                Some(patience) => (batch, Some(patience)),
                None if self.idle => (1, None),
                None => (batch, Some(BATCH_PATIENCE)),
            };
            ring.enter(want, patience)?;
            self.idle = !ring.has_work();
            return Ok(());
        }
        while !self.enter_busy()? && patience != Some(Duration::ZERO) {
            self.sleep(patience)?;
            if patience.is_some() {
                self.enter_busy()?;
                return Ok(());
            }
        }
        Ok(())
    }

    /// Whether any ring had something to do.
    fn enter_busy(&mut self) -> Result<bool, Failure> {
        let mut busy = false;
        for ring in &mut self.rings {
            if ring.has_work() {
                ring.enter(0, None)?;
                busy = true;
            }
        }
        Ok(busy)
    }

    /// Blocks until a ring has work, or for `patience` where that is given. A ring signals only while armed, and only for the first work
    /// that is deferred, so each is looked at again after it has been armed.
    fn sleep(&mut self, patience: Option<Duration>) -> Result<(), Failure> {
        self.rings.iter_mut().for_each(Ring::arm);
        // Pairs with the kernel's: it defers the work, then looks whether the ring is armed.
        fence(Ordering::SeqCst);
        if !self.rings.iter_mut().any(Ring::has_work) {
            ready([self.wake.as_fd()], patience)?;
        }
        self.rings.iter_mut().for_each(Ring::disarm);
        // Empties it; that it is empty is no error.
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        Ok(())
    }

    fn complete<P: Pattern>(
        &mut self,
        ring: u32,
        completion: &Completion,
        pattern: &mut P,
    ) -> Result<Next, Failure> {
        let Some(op) = Op::decode(completion.user_data()) else {
            let text = format!("a completion names no request: {completion:?}");
            return Err(Failure::new(text));
        };
        match op {
            Op::ReceiveClient(client) => self.received(ring, client, completion, pattern)?,
            Op::ReceiveTrunk(trunk) => self.trunk_received(trunk, completion, pattern)?,
            Op::SendMessage(index) => {
                let send = &self.flying.sends[index as usize];
                let (client, bytes) = (send.client, self.flying.bytes(send));
                let rest = rest(bytes, completion.result());
                self.sent_short(client, rest)?;
            }
            Op::SendEveryone(client) => {
                let rest = rest(&self.flying.everyone, completion.result());
                self.sent_short(client, rest)?;
            }
            Op::SendBacklog(client) => self.backlog_sent(client, completion.result())?,
            Op::SendTrunk(trunk) => self.trunk_sent(trunk, completion.result())?,
            Op::AcceptClient => self.accepted(ring, Kind::Client, completion)?,
            Op::AcceptTrunk => self.accepted(ring, Kind::Trunk, completion)?,
            Op::DrainRaised => pattern.drain(),
            Op::CloseRaised => return Ok(Next::Close),
            Op::Closed => {}
        }
        Ok(Next::Turn)
    }

    fn accepted(&mut self, ring: u32, kind: Kind, completion: &Completion) -> Result<(), Failure> {
        match result(completion.result()) {
            Ok(slot) => {
                self.opened(ring, slot, kind)?;
                self.worker.accepted();
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::ECONNABORTED | libc::EINTR | libc::EAGAIN | libc::ECANCELED) => {}
                Some(libc::ENFILE) => {
                    return Err(error).context(format!(
                        "accept more than {} connections in ring {ring}; more --server-rings have \
                         more room",
                        self.worker.slots
                    ));
                }
                _ => return Err(error).context(format!("accept a connection in ring {ring}")),
            },
        }
        if cqueue::more(completion.flags()) {
            return Ok(());
        }
        let mine = |listener: &&(OwnedFd, u32, Kind)| (listener.1, listener.2) == (ring, kind);
        match self.listeners.iter().find(mine) {
            Some((listener, ..)) if kind == Kind::Client => {
                self.rings[ring as usize].accept(listener.as_fd(), Op::AcceptClient)
            }
            Some((listener, ..)) => {
                self.rings[ring as usize].accept(listener.as_fd(), Op::AcceptTrunk)
            }
            None => Ok(()),
        }
    }

    fn received<P: Pattern>(
        &mut self,
        ring: u32,
        client: u32,
        completion: &Completion,
        pattern: &mut P,
    ) -> Result<(), Failure> {
        let buffers = &mut self.rings[ring as usize].client_buffers;
        let outcome = result(completion.result());
        if let Some(id) = cqueue::buffer_select(completion.flags()) {
            if let Ok(length @ 1..) = outcome {
                let bytes = buffers.get(id, length as usize);
                pattern.on_client(client, bytes, &mut self.out);
            }
            buffers.recycle(id);
        }
        if cqueue::more(completion.flags()) {
            return Ok(());
        }
        match outcome {
            Ok(1..) => {}
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
            Ok(0) => return self.close_client(client, pattern),
            Err(error) => {
                self.worker
                    .fault(format_args!("cannot receive from client {client}: {error}"));
                return self.close_client(client, pattern);
            }
        }
        let (ring, slot) = self.place(client);
        self.rings[ring].receive_client(slot, client)
    }

    fn trunk_received<P: Pattern>(
        &mut self,
        trunk: u32,
        completion: &Completion,
        pattern: &mut P,
    ) -> Result<(), Failure> {
        let hub = &mut self.rings[HUB_RING as usize];
        let outcome = result(completion.result());
        if let (Some(id), Some(buffers)) = (
            cqueue::buffer_select(completion.flags()),
            &mut hub.trunk_buffers,
        ) {
            if let Ok(length @ 1..) = outcome {
                let bytes = buffers.get(id, length as usize);
                pattern.on_trunk(trunk as usize, bytes, &mut self.out);
            }
            buffers.recycle(id);
        }
        if cqueue::more(completion.flags()) {
            return Ok(());
        }
        match outcome {
            Ok(1..) => {}
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
            Ok(0) => return self.worker.trunk_lost(trunk as usize, "closed by its peer"),
            Err(error) => return self.worker.trunk_lost(trunk as usize, error),
        }
        hub.receive_trunk(self.trunks[trunk as usize].slot, trunk)
    }

    fn close_client<P: Pattern>(&mut self, client: u32, pattern: &mut P) -> Result<(), Failure> {
        if !std::mem::take(&mut self.alive[client as usize]) {
            return Ok(());
        }
        self.worker.closed_by_peer(client);
        pattern.on_closed(client);
        // A slot is free for another connection only when nothing is under way in it.
        if self.backlogs.contains_key(&client) {
            return Ok(());
        }
        let (ring, slot) = self.place(client);
        self.rings[ring].close(slot)
    }
}

/// A completion's result as a system call's.
fn result(result: i32) -> std::io::Result<u32> {
    u32::try_from(result).map_err(|_| std::io::Error::from_raw_os_error(-result))
}
