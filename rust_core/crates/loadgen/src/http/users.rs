//! Users who make requests over HTTP at planned times, one at a time each, over their own
//! connections.
//!
//! Requests are not pipelined. A request that is due while all users are busy is sent as soon as
//! one is idle; its latency runs from its planned time. If it needs a new connection, the time to
//! establish that is part of its latency and of its service time.

use std::time::Instant;

use protocol::nats::Message;
use reactor::{Clock, ConnId};

use super::link::HttpLink;
use super::request_encoder::RequestEncoder;
use crate::config::RequestorConfig;
use crate::connection::Response;
use crate::idle_users::IdleUsers;
use crate::intervals::Reporter;
use crate::rng::Rng;
use crate::run::{Run, Totals};
use crate::run_state::RunState;
use crate::schedule::SENDS_PER_TURN;
use crate::session::Io;
use crate::shared::{ThreadCounters, set};
use crate::subject::Subject;
use crate::workload::{Reconnect, Workload, Writer};

/// A request that waits for a connection.
#[derive(Debug, Clone, Copy)]
struct UnsentRequest {
    id: u64,
    provider: u32,
}

/// One user.
#[derive(Debug, Clone, Copy)]
struct HttpUser {
    /// [`ConnId::NONE`] without a connection.
    conn: ConnId,
    unsent: Option<UnsentRequest>,
    /// Whether a connection is being established.
    is_dialing: bool,
}

/// The users of one thread.
pub(crate) struct HttpUsers {
    first: u32,
    users: Box<[HttpUser]>,
    /// Users without a request in flight.
    idle: IdleUsers,
    providers: u32,
    requests: RequestEncoder,
    /// Chooses users and providers.
    choices: Rng,
    state: RunState,
    /// Users with a request to send, whose connections have just been established.
    opened: Vec<u32>,
    /// Users who need a connection.
    wanted: Vec<u32>,
    head_bytes_in: u64,
    head_bytes_out: u64,
    /// Whether a response is a page rather than a reply.
    fetch: bool,
    /// Requests that the gateway publishes, without those that it rejected.
    published: u64,
}

/// Statuses of requests that were published: replied to, no subscriber, and no reply in time.
const PUBLISHED: [u16; 3] = [200, 503, 504];

impl HttpUsers {
    /// Make the `users` users of thread `thread`, from number `first` on.
    pub(crate) fn new(
        config: &RequestorConfig,
        thread: u32,
        first: u32,
        users: u32,
        reporter: Reporter<Box<Totals>>,
    ) -> Self {
        // At first all users get a connection, which shows that the server is there.
        let user_state = HttpUser {
            conn: ConnId::NONE,
            unsent: None,
            is_dialing: true,
        };
        Self {
            first,
            users: vec![user_state; users as usize].into_boxed_slice(),
            idle: IdleUsers::all(users),
            providers: if config.fetch { 1 } else { config.providers },
            requests: RequestEncoder::new(config),
            choices: Rng::new(config.seed.wrapping_add(u64::from(thread) << 32)),
            state: RunState::new(Run::new(config, thread, users), reporter),
            opened: Vec::new(),
            wanted: Vec::new(),
            head_bytes_in: 0,
            head_bytes_out: 0,
            fetch: config.fetch,
            published: 0,
        }
    }

    /// Begin one request that is due at `now`; return false if there is none, or no user is idle.
    #[inline]
    fn begin(&mut self, io: &mut Io<HttpLink>, now: u64) -> bool {
        let Some(run) = self.state.run() else {
            return false;
        };
        if self.idle.is_empty() {
            return false;
        }
        let Some(due) = run.poll_due(now) else {
            return false;
        };
        // In a sweep each user sends its own request.
        let (user, provider) = match run.sweep_user() {
            Some(user) => (user, (self.first + user) % self.providers),
            None => (
                self.idle.choose(&mut self.choices).unwrap_or(0),
                self.choices.below(self.providers),
            ),
        };
        self.idle.remove(user);
        let id = run.begin(user, provider as u16, due, now);
        self.send(io, user, UnsentRequest { id, provider });
        true
    }

    /// Send a request on the user's connection, or once that is there.
    #[inline]
    fn send(&mut self, io: &mut Io<HttpLink>, user: u32, unsent: UnsentRequest) {
        let user_state = &mut self.users[user as usize];
        let Some(conn) = io.writer(user_state.conn) else {
            user_state.conn = ConnId::NONE;
            user_state.unsent = Some(unsent);
            if !std::mem::replace(&mut user_state.is_dialing, true) {
                self.wanted.push(user);
            }
            return;
        };
        let out = conn.output.tail();
        let head_bytes = self.requests.encode(out, unsent.provider, unsent.id);
        conn.session.link.expect_response();
        self.published += u64::from(!self.fetch);
        self.head_bytes_out += head_bytes as u64;
    }

    /// End the requests that have waited too long, and with each its connection: a response that
    /// comes later would be taken for the next one's.
    fn expire(&mut self, io: &mut Io<HttpLink>, now: u64) {
        while let Some(user) = self.state.run().and_then(|run| run.expire_one(now)) {
            let user_state = &mut self.users[user as usize];
            if user_state.unsent.take().is_none() {
                io.abort(std::mem::replace(&mut user_state.conn, ConnId::NONE));
            }
            self.idle.insert(user);
        }
    }
}

impl Workload for HttpUsers {
    type Link = HttpLink;

    const REPLIES: bool = false;

    fn number(&self, member: u32) -> u32 {
        self.first + member
    }

    fn subject(&self, member: u32) -> Subject {
        Subject::user(self.number(member))
    }

    fn handle_ready(&mut self, member: u32, id: ConnId) {
        let user_state = &mut self.users[member as usize];
        user_state.conn = id;
        user_state.is_dialing = false;
        if user_state.unsent.is_some() {
            self.opened.push(member);
        }
    }

    fn handle_lost(&mut self, member: u32, id: ConnId) -> Reconnect {
        let user_state = &mut self.users[member as usize];
        if user_state.conn != id {
            return Reconnect::OnDemand;
        }
        user_state.conn = ConnId::NONE;
        if user_state.unsent.is_some() || !self.idle.is_busy(member) {
            return Reconnect::OnDemand;
        }
        if let Some(run) = self.state.run() {
            run.fail(member);
        }
        self.idle.insert(member);
        Reconnect::Never
    }

    #[inline]
    fn handle_slice(&mut self, clock: &Clock) {
        self.state.handle_slice(clock);
    }

    fn handle_message(&mut self, _: u32, _: &Message<'_>, _: Option<Writer<'_>>) {}

    #[inline]
    fn handle_response(&mut self, member: u32, response: &Response<'_>) -> bool {
        self.head_bytes_in += response.head_bytes;
        if response.is_last {
            self.users[member as usize].conn = ConnId::NONE;
        }
        self.idle.insert(member);
        if let Some((run, now)) = self.state.run_at_receipt() {
            run.handle_response(member, response.status, response.body, now);
        }
        if !self.fetch && !PUBLISHED.contains(&response.status) {
            self.published = self.published.saturating_sub(1);
        }
        !self.fetch && response.is_success()
    }

    fn handle_start(&mut self, at: Instant) {
        self.state.start(at);
    }

    fn handle_stop(&mut self, now: Instant) {
        self.state.stop(now);
    }

    #[inline]
    fn poll_turn(&mut self, io: &mut Io<HttpLink>, _: &mut Rng, counters: &ThreadCounters) {
        let Some(now) = self.state.begin_turn(io, counters) else {
            return;
        };
        self.expire(io, now);
        for user in std::mem::take(&mut self.opened) {
            if let Some(unsent) = self.users[user as usize].unsent.take() {
                self.send(io, user, unsent);
            }
        }
        for _ in 0..SENDS_PER_TURN {
            if !self.begin(io, now) || io.is_spent() {
                break;
            }
        }
        set(&counters.head_bytes_in, self.head_bytes_in);
        set(&counters.head_bytes_out, self.head_bytes_out);
        self.state.update_counters(now, counters);
        let has_idle = !self.idle.is_empty();
        let Some(run) = self.state.run() else { return };
        if run.is_over(now) {
            self.state.finish(now);
        } else {
            let at = run.wakes_at(now, has_idle);
            self.state.wake_at(io, now, at);
        }
    }

    #[inline]
    fn poll_wanted(&mut self) -> Option<u32> {
        self.wanted.pop()
    }

    fn handle_written(&mut self, _: u64, counters: &ThreadCounters) {
        counters.set_published(self.published, self.requests.body_bytes());
    }
}
