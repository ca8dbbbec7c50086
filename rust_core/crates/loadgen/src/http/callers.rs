//! Users who make requests over HTTP at their planned times: one at a time each, over a connection of
//! their own.
//!
//! There is no pipelining. A request that is due when everybody has one under way is sent as soon as
//! somebody is free, and its latency runs from its planned time all the same. Where it needs a new
//! connection, the time to establish that is part of its latency and of its service time.

use std::time::Instant;

use reactor::{ConnId, Io};

use super::exchange::Exchange;
use super::link::{Answer, HttpLink};
use crate::client::Client;
use crate::config::RequestorConfig;
use crate::course::Course;
use crate::free::Free;
use crate::intervals::Reporter;
use crate::link::Message;
use crate::rng::Rng;
use crate::run::{Run, Totals};
use crate::schedule::SENDS_PER_TURN;
use crate::shared::{Gauges, publish};
use crate::subject::Subject;
use crate::workload::{Loss, Workload, Writer};

/// A request that waits for a connection.
#[derive(Debug, Clone, Copy)]
struct Unsent {
    id: u64,
    provider: u32,
}

/// One user.
#[derive(Debug, Clone, Copy)]
struct Caller {
    /// [`ConnId::NONE`] without a connection.
    conn: ConnId,
    unsent: Option<Unsent>,
    /// Whether a connection is being established.
    is_dialing: bool,
}

/// The users of one thread.
pub(crate) struct Callers {
    first: u32,
    callers: Box<[Caller]>,
    /// Those who have no request under way.
    free: Free,
    providers: u32,
    exchange: Exchange,
    /// Chooses users and providers.
    choices: Rng,
    course: Course,
    /// Whose connections have just been established.
    opened: Vec<u32>,
    /// Who needs one.
    wanted: Vec<u32>,
    head_bytes_in: u64,
    head_bytes_out: u64,
    /// Whether an answer is a page rather than a reply.
    fetch: bool,
    /// Requests that the gateway publishes, but for those that it has answered without.
    published: u64,
}

/// Statuses of requests that were published: replied to, nobody there to reply, and no reply in time.
const PUBLISHED: [u16; 3] = [200, 503, 504];

impl Callers {
    /// The `users` users of thread `thread`, of whom the first has the number `first`.
    pub(crate) fn new(
        config: &RequestorConfig,
        thread: u32,
        first: u32,
        users: u32,
        reporter: Reporter<Box<Totals>>,
    ) -> Self {
        // At first everybody gets a connection, which shows that the server is there.
        let caller = Caller {
            conn: ConnId::NONE,
            unsent: None,
            is_dialing: true,
        };
        Self {
            first,
            callers: vec![caller; users as usize].into_boxed_slice(),
            free: Free::all(users),
            providers: if config.fetch { 1 } else { config.providers },
            exchange: Exchange::new(config),
            choices: Rng::new(config.seed.wrapping_add(u64::from(thread) << 32)),
            course: Course::new(Run::new(config, thread, users), reporter),
            opened: Vec::new(),
            wanted: Vec::new(),
            head_bytes_in: 0,
            head_bytes_out: 0,
            fetch: config.fetch,
            published: 0,
        }
    }

    /// Begins one request that is due at `now`; false when none is, or nobody is free.
    #[inline]
    fn begin(&mut self, io: &mut Io<Client<Self>>, now: u64) -> bool {
        let Some(run) = self.course.run() else {
            return false;
        };
        if self.free.is_empty() {
            return false;
        }
        let Some(due) = run.poll_due(now) else {
            return false;
        };
        // Each user's turn comes once in a sweep, and nobody takes another one's.
        let (user, provider) = match run.sweep_user() {
            Some(user) => (user, (self.first + user) % self.providers),
            None => (
                self.free.choose(&mut self.choices).unwrap_or(0),
                self.choices.below(self.providers),
            ),
        };
        self.free.remove(user);
        let id = run.begin(user, provider as u16, due, now);
        self.send(io, user, Unsent { id, provider });
        true
    }

    /// Sends a request on the user's connection, or once that is there.
    #[inline]
    fn send(&mut self, io: &mut Io<Client<Self>>, user: u32, unsent: Unsent) {
        let caller = &mut self.callers[user as usize];
        let Some(conn) = io.writer(caller.conn) else {
            caller.conn = ConnId::NONE;
            caller.unsent = Some(unsent);
            if !std::mem::replace(&mut caller.is_dialing, true) {
                self.wanted.push(user);
            }
            return;
        };
        let out = conn.output.tail();
        let head_bytes = self.exchange.encode(out, unsent.provider, unsent.id);
        conn.session.link.expect_answer();
        self.published += u64::from(!self.fetch);
        self.head_bytes_out += head_bytes as u64;
    }

    /// Ends the requests that have waited too long, and with each its connection: an answer that comes
    /// later would be taken for the next one's.
    fn expire(&mut self, io: &mut Io<Client<Self>>, now: u64) {
        while let Some(user) = self.course.run().and_then(|run| run.expire_one(now)) {
            let caller = &mut self.callers[user as usize];
            if caller.unsent.take().is_none() {
                io.abort(std::mem::replace(&mut caller.conn, ConnId::NONE));
            }
            self.free.insert(user);
        }
    }
}

impl Workload for Callers {
    type Link = HttpLink;

    const ANSWERS: bool = false;

    fn number(&self, member: u32) -> u32 {
        self.first + member
    }

    fn subject(&self, member: u32) -> Subject {
        Subject::user(self.number(member))
    }

    fn handle_ready(&mut self, member: u32, id: ConnId) {
        let caller = &mut self.callers[member as usize];
        caller.conn = id;
        caller.is_dialing = false;
        if caller.unsent.is_some() {
            self.opened.push(member);
        }
    }

    fn handle_lost(&mut self, member: u32, id: ConnId) -> Loss {
        let caller = &mut self.callers[member as usize];
        if caller.conn != id {
            return Loss::Idle;
        }
        caller.conn = ConnId::NONE;
        if caller.unsent.is_some() || !self.free.is_busy(member) {
            return Loss::Idle;
        }
        if let Some(run) = self.course.run() {
            run.fail(member);
        }
        self.free.insert(member);
        Loss::Accept
    }

    #[inline]
    fn handle_slice(&mut self) {
        self.course.handle_slice();
    }

    fn handle_message(&mut self, _: u32, _: &Message<'_>, _: Option<Writer<'_>>) {}

    #[inline]
    fn handle_answer(&mut self, member: u32, answer: &Answer<'_>) -> bool {
        self.head_bytes_in += answer.head_bytes;
        if answer.is_last {
            self.callers[member as usize].conn = ConnId::NONE;
        }
        self.free.insert(member);
        if let Some((run, now)) = self.course.run_at_receipt() {
            run.handle_answer(member, answer.status, answer.body, now);
        }
        if !self.fetch && !PUBLISHED.contains(&answer.status) {
            self.published = self.published.saturating_sub(1);
        }
        !self.fetch && answer.is_success()
    }

    fn handle_start(&mut self, at: Instant) {
        self.course.start(at);
    }

    fn handle_stop(&mut self) {
        self.course.stop();
    }

    #[inline]
    fn poll_turn(&mut self, io: &mut Io<Client<Self>>, _: &mut Rng, gauges: &Gauges) {
        let Some(now) = self.course.begin_turn(io, gauges) else {
            return;
        };
        self.expire(io, now);
        for user in std::mem::take(&mut self.opened) {
            if let Some(unsent) = self.callers[user as usize].unsent.take() {
                self.send(io, user, unsent);
            }
        }
        for _ in 0..SENDS_PER_TURN {
            if !self.begin(io, now) || io.is_spent() {
                break;
            }
        }
        publish(&gauges.head_bytes_in, self.head_bytes_in);
        publish(&gauges.head_bytes_out, self.head_bytes_out);
        self.course.publish(now, gauges);
        let has_free = !self.free.is_empty();
        let Some(run) = self.course.run() else { return };
        if run.is_over(now) {
            self.course.finish(now);
        } else {
            let at = run.wakes_at(now, has_free);
            self.course.wake_at(io, now, at);
        }
    }

    #[inline]
    fn poll_wanted(&mut self) -> Option<u32> {
        self.wanted.pop()
    }

    fn handle_written(&mut self, _: u64, gauges: &Gauges) {
        gauges.publish_published(self.published, self.exchange.body_bytes());
    }
}
