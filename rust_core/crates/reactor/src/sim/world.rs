//! Shards in one thread, run in an order that follows from a seed.

use std::cell::RefCell;
use std::io as std_io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::driver::Sim;
use super::network::Network;
use crate::handler::{Handler, Io};
use crate::mailbox::Mailboxes;
use crate::turn::Turn;

/// A simulated shard with its handler.
pub struct Hosted<H: Handler> {
    turn: Turn<H, Sim>,
    handler: H,
    mailboxes: Mailboxes<H::Mail>,
    index: usize,
    /// When the shard's wait ends by itself; `None` for never.
    wakes_at: Option<Instant>,
    /// Until when its thread is busy with the last turn.
    busy_until: Instant,
    has_ended: bool,
    at_end: Option<AtEnd>,
}

/// A call that follows the end of a shard; told whether its driver had failed.
type AtEnd = Box<dyn FnOnce(std_io::Result<()>)>;

impl<H: Handler> Hosted<H> {
    /// Return the handler.
    pub fn handler(&self) -> &H {
        &self.handler
    }

    /// Return the handler, to change.
    pub fn handler_mut(&mut self) -> &mut H {
        &mut self.handler
    }

    /// Return the shard's connections.
    pub fn io(&self) -> &Io<H> {
        &self.turn.io
    }

    /// Return the shard's connections, to change before the first turn.
    pub fn parts(&mut self) -> (&mut Io<H>, &mut H) {
        (&mut self.turn.io, &mut self.handler)
    }

    /// Return how many items the writes have that are on their way to the network.
    pub fn queued_items(&self) -> u64 {
        self.turn.driver.queued_items()
    }

    /// Look at the mail that waits for this shard, oldest first: mail taken and not handed out, then mail
    /// that is still in its mailbox.
    pub fn for_each_mail(&self, mut each: impl FnMut(&H::Mail)) {
        self.turn.io.post.for_each_waiting(&mut each);
        self.mailboxes.for_each(self.index, &mut each);
    }

    /// Return whether the shard has ended.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Call `at_end` once the shard has ended, as its thread would go on then; told whether the driver
    /// had failed.
    pub fn at_end(&mut self, at_end: impl FnOnce(std_io::Result<()>) + 'static) {
        self.at_end = Some(Box::new(at_end));
    }

    fn fall_asleep(&mut self) {
        let now = self.turn.io.clock().now();
        let timeout = self.turn.fall_asleep();
        self.wakes_at = timeout.map(|timeout| now + timeout);
    }
}

/// A simulation's view of a shard, with any handler.
trait Node {
    /// Return when the shard runs next, if nothing else happens.
    fn due(&self, network: &Network) -> Option<Instant>;
    /// Run a turn, whose work takes time or none.
    fn run(&mut self, work_takes_time: bool);
    /// Check that a shard sleeps only when nothing waits for it.
    fn check(&self) -> Result<(), String>;
}

impl<H: Handler> Node for Hosted<H> {
    fn due(&self, network: &Network) -> Option<Instant> {
        if self.has_ended {
            return None;
        }
        let woken = self.mailboxes.is_woken(self.index);
        let woken = (woken || self.turn.driver.has_queued()).then_some(self.busy_until);
        let heard = network.next_due(self.turn.driver.host());
        let due = [woken, heard, self.wakes_at].into_iter().flatten().min()?;
        Some(due.max(self.busy_until))
    }

    fn run(&mut self, work_takes_time: bool) {
        let outcome = self.turn.turn(&mut self.handler, Some(Duration::ZERO));
        let io = &self.turn.io;
        self.busy_until = io.clock().now();
        if work_takes_time {
            self.busy_until += Duration::from_nanos(io.budget.spent() as u64);
        }
        if io.commands.stopping || outcome.is_err() {
            self.turn.end(&mut self.handler);
            self.has_ended = true;
            if let Some(at_end) = self.at_end.take() {
                at_end(outcome);
            }
        } else {
            self.fall_asleep();
        }
    }

    fn check(&self) -> Result<(), String> {
        let sleeps = !self.has_ended && self.wakes_at.is_none_or(|at| at > self.busy_until);
        let has_mail = !self.mailboxes.is_empty(self.index);
        if sleeps && has_mail && !self.mailboxes.is_woken(self.index) {
            return Err(format!(
                "shard {} sleeps although mail waits for it: a wake-up was forgotten",
                self.index
            ));
        }
        Ok(())
    }
}

/// The outcome of a simulation's step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A shard ran a turn.
    Turn,
    /// Time passed, or bytes arrived.
    Time,
    /// Nothing is left to happen before this much time has passed, or ever.
    Idle,
}

/// Shards on one network.
pub struct Simulation {
    network: Network,
    nodes: Vec<Rc<RefCell<dyn Node>>>,
    work_takes_time: bool,
}

impl Simulation {
    /// Make a simulation without shards.
    #[must_use]
    pub fn new(network: &Network) -> Self {
        Self {
            network: network.clone(),
            nodes: Vec::new(),
            work_takes_time: true,
        }
    }

    /// Let the work of turns take time, as it does at first, or none: then only waits, timers and the
    /// network's delays make time pass, and what follows from them can be worked out exactly.
    pub fn set_work_takes_time(&mut self, work_takes_time: bool) {
        self.work_takes_time = work_takes_time;
    }

    /// Add a shard that listens on `listeners`. `mailboxes` are [`Mailboxes::simulated`].
    pub fn add<H: Handler + 'static>(
        &mut self,
        index: usize,
        mailboxes: &Mailboxes<H::Mail>,
        listeners: &[SocketAddr],
        turn_budget: usize,
        handler: H,
    ) -> Rc<RefCell<Hosted<H>>> {
        let clock = self.network.clock();
        let driver = Sim::new(&self.network, listeners);
        let now = clock.now();
        let io = Io::<H>::new(index, mailboxes.clone(), turn_budget, clock);
        let hosted = Rc::new(RefCell::new(Hosted {
            turn: Turn::new(io, driver),
            handler,
            mailboxes: mailboxes.clone(),
            index,
            wakes_at: Some(now),
            busy_until: now,
            has_ended: false,
            at_end: None,
        }));
        self.nodes.push(Rc::clone(&hosted) as Rc<RefCell<dyn Node>>);
        hosted
    }

    /// Do one step: run a turn of one of the shards that are due, or let time pass, but not beyond
    /// `until`.
    ///
    /// # Errors
    /// A shard sleeps that should not.
    pub fn step(&mut self, until: Instant) -> Result<Step, String> {
        let clock = self.network.clock();
        let now = clock.now();
        self.network.deliver();
        let dues: Vec<_> = self
            .nodes
            .iter()
            .map(|node| node.borrow().due(&self.network))
            .collect();
        let is_due = |due: &&Option<Instant>| due.is_some_and(|due| due <= now);
        let count = dues.iter().filter(is_due).count();
        if count == 0 {
            let arrival = self.network.next_arrival();
            let next = dues.into_iter().flatten().chain(arrival).min();
            let next = next.unwrap_or(until).min(until);
            clock.advance(next.saturating_duration_since(now));
            return Ok(if next >= until {
                Step::Idle
            } else {
                Step::Time
            });
        }
        let chosen = self.network.below(count);
        let due = dues.iter().enumerate().filter(|(_, due)| is_due(due));
        if let Some((n, _)) = due.clone().nth(chosen) {
            self.nodes[n].borrow_mut().run(self.work_takes_time);
        }
        self.nodes
            .iter()
            .try_for_each(|node| node.borrow().check())?;
        Ok(Step::Turn)
    }

    /// Return the network.
    #[must_use]
    pub fn network(&self) -> &Network {
        &self.network
    }
}
