//! The turn of a shard, written once for every driver. The crate's documentation states its order and
//! what follows from it.

use std::collections::VecDeque;
use std::io as std_io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;
use std::time::Duration;

use crate::conn_id::ConnId;
use crate::connections::Phase;
use crate::driver::{Driver, Event, Events, Unsent, Wait};
use crate::handler::{Closed, Handler, Io};
use crate::io::LINGER_TIMER;
use crate::shrink;
use crate::work::{self, Part};

mod end;
mod received;
mod write;

/// Events between one and the one whose connection is fetched into the cache meanwhile.
const AHEAD: usize = 2;

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
    /// Connections that end when the answers to their last bytes are written, oldest first.
    half_closed: VecDeque<ConnId>,
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
            half_closed: VecDeque::new(),
        }
    }

    /// Run turns until the handler asks to stop, then close what is left. When the handler panics, its
    /// mail is accounted for all the same, so that no other shard waits for it, and the panic goes on.
    pub(crate) fn run(mut self, handler: &mut H) -> std_io::Result<()> {
        // Only what does not depend on the connections is used after a panic.
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let mut outcome = Ok(());
            while !self.io.commands.stopping && outcome.is_ok() {
                if self.has_more() {
                    // Shards of the same core take turns; the kernel would change between them every few
                    // milliseconds only.
                    thread::yield_now();
                }
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

    /// Return whether the last turn has left work, mail aside.
    fn has_more(&self) -> bool {
        let io = &self.io;
        !self.events.is_empty()
            || self.events.has_acceptable(|one| !io.pauses.is_paused(one))
            || !self.blocked.is_empty()
            || !self.half_closed.is_empty()
            || io.timeout() == Some(Duration::ZERO)
    }

    /// Prepare to wait: from now on mail wakes the shard. Return how long it may wait.
    pub(crate) fn fall_asleep(&mut self) -> Option<Duration> {
        let io = &self.io;
        if self.has_more() || !io.post.mailboxes().fall_asleep(io.shard()) {
            return Some(Duration::ZERO);
        }
        io.timeout()
    }

    /// Wait for events at most so long, and do one turn.
    pub(crate) fn turn(
        &mut self,
        handler: &mut H,
        timeout: Option<Duration>,
    ) -> std_io::Result<()> {
        self.poll(timeout)?;
        self.end_pauses()?;
        self.tell_blocked(handler);
        self.hand_out_mail(handler);
        self.hand_out_traffic(handler)?;
        self.hand_out_changes(handler)?;
        self.fire_timers(handler);
        self.io.budget.begin(Part::PutOff);
        handler.on_turn_end(&mut self.io);
        self.connect(handler)?;
        self.end_aborted(handler)?;
        self.io.post.post(|mail| handler.on_undelivered(mail));
        self.unlisten()?;
        self.begin_pauses()?;
        self.write_all(handler)?;
        self.shrink();
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
        if woken {
            io.post.mailboxes().clear_wake(shard);
        }
        io.begin_turn();
        io.post.take_arrived();
        io.held_bytes = self.driver.held_bytes();
        self.restore_unsent();
        self.settle();
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
        self.end_half_closed(handler)?;
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
            Event::Ready(id, receipt) => {
                self.handle_ready(handler, id, receipt, self.events.received())
            }
            // A connection that floods, or that speaks for many others, waits for its like alone.
            Event::Again(id, receipt) => {
                self.handle_ready(handler, id, receipt, self.events.greedy())
            }
            Event::Writable(id) => self.handle_writable(handler, id),
            Event::Connected(id, outcome) => self.handle_connected(handler, id, outcome),
            Event::Failed(id, errno) => self.finish(handler, id, Closed::Failed(errno)),
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

    /// Give memory back after a herd.
    fn shrink(&mut self) {
        self.events.shrink();
        self.io.post.shrink();
        shrink::give_back_list(&mut self.io.connections.touched);
        shrink::give_back_list(&mut self.unsent);
        shrink::give_back_list(&mut self.settling);
        shrink::give_back(&mut self.half_closed);
    }

    fn unlisten(&mut self) -> std_io::Result<()> {
        let closing = std::mem::take(&mut self.io.commands.unlisten);
        closing
            .into_iter()
            .try_for_each(|listener| self.driver.close_listener(listener))
    }
}
