//! The turn of a shard, written once for every driver. The crate's documentation states its order and
//! what follows from it.

use std::io as std_io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use rustix::io::Errno;

use crate::connections::{Phase, Socket};
use crate::driver::{Accepted, Driver, Event, Events, Outcome, Received, Unsent, Wait, Write};
use crate::handler::{Closed, Handler, Origin};
use crate::io::{Io, LINGER_TIMER};
use crate::slab::ConnId;
use crate::work::{self, Part};

/// Pause of accepting after descriptors or memory have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Events between one and the one whose connection is fetched into the cache meanwhile.
const AHEAD: usize = 2;

/// Writes for each connection at most when the shard ends.
const LAST_WRITES: usize = 4;

/// A shard's connections and its driver.
pub(crate) struct Turn<H: Handler, D: Driver> {
    pub(crate) io: Io<H>,
    pub(crate) driver: D,
    events: Events<D::Receipt>,
    /// Writes of the last turn that were cut short or failed.
    unsent: Vec<Unsent>,
    /// Blocked connections whose pending bytes are all on their way.
    settling: Vec<ConnId>,
    /// Connections whose socket has stopped taking bytes in this turn.
    blocked: Vec<ConnId>,
    /// Connections whose writing failed in this turn.
    failed: Vec<(ConnId, Errno)>,
    /// Connections that end when the answers to their last bytes are written.
    leaving: Vec<ConnId>,
}

impl<H: Handler, D: Driver> Turn<H, D> {
    pub(crate) fn new(io: Io<H>, driver: D) -> Self {
        Self {
            io,
            driver,
            events: Events::new(),
            unsent: Vec::new(),
            settling: Vec::new(),
            blocked: Vec::new(),
            failed: Vec::new(),
            leaving: Vec::new(),
        }
    }

    /// Run turns until the handler asks to stop, then close what is left. When the handler panics, its
    /// mail is accounted for all the same, so that no other shard waits for it, and the panic goes on.
    pub(crate) fn run(mut self, handler: &mut H) -> std_io::Result<()> {
        // Only what does not depend on the connections is used after a panic.
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let mut outcome = Ok(());
            while !self.io.commands.stopping && outcome.is_ok() {
                let timeout = self.fall_asleep();
                outcome = self.turn(handler, timeout);
            }
            self.end(handler);
            outcome
        }));
        outcome.unwrap_or_else(|panic| {
            self.close_mailbox(handler);
            resume_unwind(panic)
        })
    }

    /// Prepare to wait: from now on mail wakes the shard. Return how long it may wait.
    pub(crate) fn fall_asleep(&mut self) -> Option<Duration> {
        let io = &self.io;
        let mut timeout = io.timeout();
        let is_idle = self.events.is_empty()
            && !self.events.has_acceptable(|one| !io.pauses.is_paused(one))
            && self.blocked.is_empty()
            && self.failed.is_empty()
            && self.leaving.is_empty();
        let is_awake = !is_idle || timeout == Some(Duration::ZERO);
        if is_awake || !io.post.mailboxes().fall_asleep(io.shard()) {
            timeout = Some(Duration::ZERO);
        }
        timeout
    }

    /// Wait for events at most so long, and do one turn.
    pub(crate) fn turn(
        &mut self,
        handler: &mut H,
        timeout: Option<Duration>,
    ) -> std_io::Result<()> {
        self.poll(timeout)?;
        self.end_pauses()?;
        self.tell_writes(handler)?;
        self.hand_out_mail(handler);
        self.hand_out_traffic(handler)?;
        self.hand_out_changes(handler)?;
        self.fire_timers(handler);
        self.io.budget.begin(Part::PutOff);
        handler.on_turn_end(&mut self.io);
        self.connect(handler)?;
        self.end_connections(handler)?;
        self.io.post.post(|mail| handler.on_undelivered(mail));
        self.unlisten()?;
        self.begin_pauses()?;
        self.write_all(handler)?;
        self.events.shrink();
        handler.on_written(&mut self.io);
        Ok(())
    }

    /// Wait, and take what has happened: completions first and then mail, so that no received byte is
    /// handed out before mail that was posted before it was sent.
    fn poll(&mut self, timeout: Option<Duration>) -> std_io::Result<()> {
        let io = &mut self.io;
        let shard = io.shard();
        let woken = self.driver.poll(Wait {
            timeout,
            events: &mut self.events,
            pool: &mut io.connections.pool,
            sent: &mut io.sent,
            calls: &mut io.calls,
            unsent: &mut self.unsent,
        })?;
        let mailboxes = io.post.mailboxes();
        mailboxes.woke_up(shard);
        if woken {
            mailboxes.clear_wake(shard);
        }
        io.begin_turn();
        io.post.take_arrived();
        io.held_bytes = self.driver.held_bytes();
        self.restore_unsent();
        self.settle();
        Ok(())
    }

    /// Put back what the last turn's writes have left.
    fn restore_unsent(&mut self) {
        let io = &mut self.io;
        for unsent in self.unsent.drain(..) {
            let Some((conn, pool)) = io.connections.conn_and_pool(unsent.id) else {
                continue;
            };
            let missing = unsent.taken.len - unsent.sent;
            conn.taken = conn.taken.wrapping_sub(missing as u32);
            let items = conn.output.restore(unsent.taken, unsent.sent, pool);
            io.sent.items += items;
            io.sent.bytes += unsent.sent as u64;
            io.sent.writes += 1;
            match unsent.error {
                Some(errno) => self.failed.push((unsent.id, errno)),
                None => {
                    if block(conn) {
                        self.blocked.push(unsent.id);
                    }
                    io.connections.touch(unsent.id);
                    io.connections.recount(unsent.id);
                }
            }
        }
    }

    /// Tell which blocked connections' bytes have all been taken.
    fn settle(&mut self) {
        for id in self.settling.drain(..) {
            if let Some(conn) = self.io.connections.conn_mut(id)
                && conn.ready
            {
                conn.blocked = false;
                self.io.connections.recount(id);
            }
        }
    }

    /// Tell the handler what became of the last turn's writes.
    fn tell_writes(&mut self, handler: &mut H) -> std_io::Result<()> {
        for (id, errno) in std::mem::take(&mut self.failed) {
            self.finish(handler, id, Closed::Failed(errno))?;
        }
        for id in std::mem::take(&mut self.blocked) {
            let is_blocked = |conn: &crate::Conn<_>| conn.blocked && conn.phase == Phase::Open;
            if self.io.conn(id).is_some_and(is_blocked) {
                handler.on_blocked(&mut self.io, id);
            }
        }
        Ok(())
    }

    fn hand_out_mail(&mut self, handler: &mut H) {
        let io = &mut self.io;
        if self.events.is_empty() {
            io.budget.begin_mail_alone();
        } else {
            io.budget.begin(Part::Mail);
        }
        while !io.budget.is_part_spent()
            && let Some(mail) = io.post.next()
        {
            io.spend(work::MAIL);
            handler.on_mail(io, mail);
        }
    }

    fn hand_out_traffic(&mut self, handler: &mut H) -> std_io::Result<()> {
        self.io.budget.begin(Part::Received);
        while !self.io.budget.is_part_spent()
            && let Some(event) = self.events.next()
        {
            if let Some(ahead) = self.events.ahead(AHEAD) {
                self.io.connections.prefetch(ahead);
            }
            self.handle(handler, event)?;
        }
        Ok(())
    }

    fn hand_out_changes(&mut self, handler: &mut H) -> std_io::Result<()> {
        self.io.budget.begin(Part::Changes);
        while !self.io.budget.is_part_spent() {
            // In turn, so that neither those who come nor those who go keep the others waiting.
            let pauses = &self.io.pauses;
            let listener = self.events.next_acceptable(|one| !pauses.is_paused(one));
            let change = self.events.next_change();
            if listener.is_none() && change.is_none() {
                break;
            }
            if let Some(listener) = listener {
                self.accept(handler, listener)?;
            }
            if let Some(event) = change {
                self.handle(handler, event)?;
            }
        }
        Ok(())
    }

    /// Accept again on the listeners whose pause is over.
    fn end_pauses(&mut self) -> std_io::Result<()> {
        let now = self.io.now();
        let resumed = self.io.pauses.end_due(now);
        resumed
            .into_iter()
            .try_for_each(|listener| self.driver.set_accepting(listener, true))
    }

    /// Have the driver stop accepting on the listeners whose pause is a long one.
    fn begin_pauses(&mut self) -> std_io::Result<()> {
        let now = self.io.now();
        let stopped = self.io.pauses.begin_long(now);
        stopped
            .into_iter()
            .try_for_each(|listener| self.driver.set_accepting(listener, false))
    }

    fn handle(&mut self, handler: &mut H, event: Event<D::Receipt>) -> std_io::Result<()> {
        match event {
            Event::Ready(id, receipt) => self.handle_ready(handler, id, receipt),
            Event::Connected(id, outcome) => self.handle_connected(handler, id, outcome),
            Event::Failed(id, errno) => self.finish(handler, id, Closed::Failed(errno)),
        }
    }

    fn handle_ready(
        &mut self,
        handler: &mut H,
        id: ConnId,
        receipt: D::Receipt,
    ) -> std_io::Result<()> {
        let io = &mut self.io;
        io.spend(work::RECEIVE);
        let waits = |conn: &&crate::Conn<_>| !conn.ready || conn.phase == Phase::Connecting;
        if let Some(conn) = io.conn(id).filter(waits)
            && self.driver.is_writable(&conn.socket, receipt)
        {
            self.handle_writable(handler, id)?;
        }
        let io = &mut self.io;
        let Some(conn) = io.connections.conn_mut(id) else {
            self.driver.release(receipt);
            return Ok(());
        };
        let phase = conn.phase;
        if !conn.interest().read {
            let is_kept = phase == Phase::Open;
            let held = self.driver.hold(id, &mut conn.socket, receipt, is_kept);
            if held.rearm {
                io.connections.touch(id);
            }
            return match (held.failed, phase) {
                (Some(_), Phase::Closing) => self.finish(handler, id, Closed::Local),
                (Some(errno), Phase::Open) => self.finish(handler, id, Closed::Failed(errno)),
                _ => Ok(()),
            };
        }
        let Received {
            outcome,
            rearm,
            again,
        } = self.driver.receive(id, &mut conn.socket, receipt);
        if rearm {
            io.connections.touch(id);
        }
        let mut end = None;
        match outcome {
            Outcome::Bytes(bytes) if phase == Phase::Open => {
                io.budget.begin_slice();
                io.spend(bytes.len());
                handler.on_received(io, id, bytes);
                io.budget.end_slice();
            }
            Outcome::Bytes(_) | Outcome::Nothing => {}
            Outcome::End => end = Some(Closed::Peer),
            Outcome::Failed(errno) => end = Some(Closed::Failed(errno)),
        }
        self.driver.release(receipt);
        if let Some(again) = again
            && io.conn(id).is_some()
        {
            self.events.push(Event::Ready(id, again));
        }
        match end {
            None => Ok(()),
            Some(Closed::Peer) if phase == Phase::Open => {
                let Some(conn) = io.connections.conn_mut(id) else {
                    return Ok(());
                };
                if conn.output.is_empty() {
                    return self.finish(handler, id, Closed::Peer);
                }
                // The answers to its last bytes are still written.
                conn.phase = Phase::PeerClosed;
                io.connections.touch(id);
                self.leaving.push(id);
                Ok(())
            }
            Some(closed) => self.finish(handler, id, closed),
        }
    }

    fn handle_writable(&mut self, handler: &mut H, id: ConnId) -> std_io::Result<()> {
        let Some(conn) = self.io.connections.conn_mut(id) else {
            return Ok(());
        };
        if conn.phase == Phase::Connecting {
            return self.handle_connected(handler, id, Ok(()));
        }
        if !conn.ready {
            conn.ready = true;
            self.io.connections.touch(id);
            self.io.spend(work::WRITE);
        }
        Ok(())
    }

    fn handle_connected(
        &mut self,
        handler: &mut H,
        id: ConnId,
        outcome: Result<(), Errno>,
    ) -> std_io::Result<()> {
        let Some(conn) = self.io.connections.conn_mut(id) else {
            return Ok(());
        };
        if conn.phase != Phase::Connecting {
            return Ok(());
        }
        match outcome.and_then(|()| self.driver.establish(&mut conn.socket)) {
            Ok(()) => {
                conn.phase = Phase::Open;
                self.io.connections.touch(id);
                handler.on_open(&mut self.io, id, Origin::Connected);
                Ok(())
            }
            Err(errno) => self.finish(handler, id, Closed::Refused(errno)),
        }
    }

    fn accept(&mut self, handler: &mut H, listener: usize) -> std_io::Result<()> {
        let io = &mut self.io;
        match self.driver.accept(listener, &mut self.events)? {
            Accepted::Connection(socket, peer) => {
                io.spend(work::ACCEPT);
                let Some(session) = handler.accept(io, listener, peer) else {
                    return self.driver.close(ConnId::NONE, socket);
                };
                let id = io.connections.insert(session, socket, Phase::Open);
                io.connections.touch(id);
                handler.on_open(io, id, Origin::Accepted(listener));
                Ok(())
            }
            Accepted::Empty => Ok(()),
            Accepted::Exhausted => {
                io.accept_failures += 1;
                io.pause_accepting(listener, io.now() + ACCEPT_PAUSE);
                Ok(())
            }
        }
    }

    fn fire_timers(&mut self, handler: &mut H) {
        let io = &mut self.io;
        io.budget.begin(Part::Timers);
        while !io.budget.is_part_spent()
            && let Some((id, kind)) = io.timers.poll(io.now())
        {
            io.spend(work::TIMER);
            if kind == LINGER_TIMER {
                io.handle_linger_timer(id);
            } else if id == ConnId::NONE || io.conn(id).is_some() {
                handler.on_timer(io, id, kind);
            }
        }
    }

    fn connect(&mut self, handler: &mut H) -> std_io::Result<()> {
        for connect in std::mem::take(&mut self.io.commands.connects) {
            let Some(conn) = self.io.connections.conn_mut(connect.id) else {
                continue;
            };
            if conn.phase != Phase::Connecting {
                continue;
            }
            let socket = self.driver.connect(connect.id, connect.to, connect.from)?;
            match socket {
                Ok(socket) => {
                    conn.socket = socket;
                    self.io.connections.touch(connect.id);
                }
                Err(errno) => self.finish(handler, connect.id, Closed::Refused(errno))?,
            }
        }
        Ok(())
    }

    /// End what is to end in this turn.
    fn end_connections(&mut self, handler: &mut H) -> std_io::Result<()> {
        for id in std::mem::take(&mut self.io.connections.aborted) {
            self.finish(handler, id, Closed::Local)?;
        }
        for id in std::mem::take(&mut self.leaving) {
            let Some(conn) = self.io.connections.conn_mut(id) else {
                continue;
            };
            if conn.output.is_empty() || conn.blocked {
                self.finish(handler, id, Closed::Peer)?;
            } else {
                self.io.connections.touch(id);
                self.leaving.push(id);
            }
        }
        Ok(())
    }

    fn unlisten(&mut self) -> std_io::Result<()> {
        let closing = std::mem::take(&mut self.io.commands.unlisten);
        closing
            .into_iter()
            .try_for_each(|listener| self.driver.close_listener(listener))
    }

    /// Give every connection with pending output its one write, and ask for the events that each state
    /// calls for. Nothing here calls the handler but for [`Handler::before_write`]: a driver may send
    /// the bytes only when it is polled next.
    fn write_all(&mut self, handler: &mut H) -> std_io::Result<()> {
        let mut touched = std::mem::take(&mut self.io.connections.touched);
        for id in touched.drain(..) {
            let Some(conn) = self.io.connections.visit(id) else {
                continue;
            };
            if let Phase::Open | Phase::Closing | Phase::PeerClosed = conn.phase {
                handler.before_write(conn);
                self.write(id)?;
            }
            let Some(conn) = self.io.connections.conn_mut(id) else {
                continue;
            };
            let interest = conn.interest();
            self.driver
                .arm(id, &mut conn.socket, interest, &mut self.events)?;
        }
        // Keeps the allocation.
        touched.append(&mut self.io.connections.touched);
        self.io.connections.touched = touched;
        Ok(())
    }

    fn write(&mut self, id: ConnId) -> std_io::Result<()> {
        let io = &mut self.io;
        let connections = &mut io.connections;
        let Some((conn, pool)) = connections.conn_and_pool(id) else {
            return Ok(());
        };
        if conn.output.is_empty() {
            conn.output.release(pool);
            if conn.phase == Phase::Closing {
                conn.phase = Phase::Lingering;
                self.driver.end_sending(id, &conn.socket)?;
            }
            return Ok(());
        }
        if !conn.ready {
            connections.recount(id);
            return Ok(());
        }
        let write = self
            .driver
            .write(id, &conn.socket, &mut conn.output, pool)?;
        match write {
            Write::Whole { bytes, items } | Write::Short { bytes, items } => {
                conn.taken = conn.taken.wrapping_add(bytes as u32);
                io.sent.bytes += bytes as u64;
                io.sent.items += items;
                io.sent.writes += 1;
                if let Write::Short { .. } = write {
                    if block(conn) {
                        self.blocked.push(id);
                    }
                } else {
                    conn.blocked &= !conn.output.is_empty();
                }
            }
            Write::Queued { bytes } => {
                conn.taken = conn.taken.wrapping_add(bytes as u32);
                if conn.blocked && conn.output.is_empty() {
                    self.settling.push(id);
                }
            }
            Write::Failed(errno) => {
                self.failed.push((id, errno));
                connections.recount(id);
                return Ok(());
            }
        }
        let has_more = conn.ready && !conn.output.is_empty();
        let goes_on = has_more || conn.phase == Phase::Closing && conn.ready;
        connections.recount(id);
        if goes_on {
            connections.touch(id);
        }
        Ok(())
    }

    /// Take the connection out, tell the handler and close its socket.
    fn finish(&mut self, handler: &mut H, id: ConnId, why: Closed) -> std_io::Result<()> {
        match remove(&mut self.io, handler, id, why) {
            Some(socket) => self.driver.close(id, socket),
            None => Ok(()),
        }
    }

    /// End the shard: close the listeners, give every connection what its socket takes at once, close it,
    /// and account for the mail that nobody will read.
    pub(crate) fn end(&mut self, handler: &mut H) {
        if self.close_all(handler).is_err() {
            // The driver has failed; the handler hears of every end all the same.
            self.driver.abandon(&mut self.unsent);
            self.restore_unsent();
            let ids: Vec<ConnId> = self.io.connections.ids().collect();
            for id in ids {
                drop(remove(&mut self.io, handler, id, Closed::Shutdown));
            }
        }
        self.io.post.post(|mail| handler.on_undelivered(mail));
        self.close_mailbox(handler);
        handler.on_written(&mut self.io);
    }

    /// Refuse mail from now on, and give back what has come and what was to be posted.
    fn close_mailbox(&mut self, handler: &mut H) {
        for mail in self.io.post.close() {
            handler.on_undelivered(mail);
        }
    }

    fn close_all(&mut self, handler: &mut H) -> std_io::Result<()> {
        // Listeners first: who connects from now on is refused at once, and the kernel does not spend
        // itself on accepting while a million connections end.
        self.driver.close_listeners()?;
        for _ in 0..LAST_WRITES {
            self.poll(Some(Duration::ZERO))?;
            self.write_all(handler)?;
        }
        self.poll(Some(Duration::ZERO))?;
        let ids: Vec<ConnId> = self.io.connections.ids().collect();
        for id in ids {
            self.finish(handler, id, Closed::Shutdown)?;
        }
        for event in self.events.drain() {
            if let Event::Ready(_, receipt) = event {
                self.driver.release(receipt);
            }
        }
        self.poll(Some(Duration::ZERO))
    }
}

/// Note that the socket takes no more; whether that is news.
fn block<S>(conn: &mut crate::Conn<S>) -> bool {
    conn.ready = false;
    conn.output.settle();
    !std::mem::replace(&mut conn.blocked, true) && conn.phase == Phase::Open
}

/// Take a connection out and tell the handler; return its socket.
fn remove<H: Handler>(io: &mut Io<H>, handler: &mut H, id: ConnId, why: Closed) -> Option<Socket> {
    let (conn, unsent) = io.connections.remove(id)?;
    let asked = matches!(
        conn.phase,
        Phase::Closing | Phase::Lingering | Phase::Aborting
    );
    let why = if asked && why != Closed::Shutdown {
        Closed::Local
    } else {
        io.spend(work::CLOSE);
        why
    };
    handler.on_closed(io, id, conn.session, why, unsent);
    Some(conn.socket)
}
