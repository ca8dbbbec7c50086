//! The requestor's side of the workload: users who publish requests at their planned times, and
//! receive the replies on their own subjects.

use std::time::Instant;

use protocol::nats::Message;
use protocol::nats::encode::{encode_pub, pub_len};
use protocol::ws::close;
use reactor::{Clock, ConnId};

use crate::churn::{Churn, next_connected};
use crate::config::RequestorConfig;
use crate::connection::Connection;
use crate::idle_users::IdleUsers;
use crate::intervals::Reporter;
use crate::link::Link;
use crate::payload::{self, PayloadKind};
use crate::rng::Rng;
use crate::run::{Run, Totals};
use crate::run_state::RunState;
use crate::schedule::SENDS_PER_TURN;
use crate::session::Io;
use crate::shared::{ThreadCounters, set};
use crate::subject::Subject;
use crate::workload::{Reconnect, Workload, Writer};

/// The users of one thread.
pub(crate) struct Users {
    first: u32,
    /// The connection of each user; [`ConnId::NONE`] without one.
    conns: Box<[ConnId]>,
    providers: Box<[Subject]>,
    /// Buffer in which a request is composed.
    payload: Box<[u8]>,
    /// Users without an outstanding request, in a closed loop of no more requests than users.
    idle: Option<IdleUsers>,
    /// Chooses users and providers.
    choices: Rng,
    churn: Churn,
    state: RunState,
    /// Requests handed to connections.
    published: u64,
}

impl Users {
    /// Make the `users` users of thread `thread`, from number `first` on.
    pub(crate) fn new(
        config: &RequestorConfig,
        thread: u32,
        first: u32,
        users: u32,
        reporter: Reporter<Box<Totals>>,
    ) -> Self {
        let is_one_at_a_time = (1..=config.users).contains(&config.outstanding);
        Self {
            first,
            conns: vec![ConnId::NONE; users as usize].into_boxed_slice(),
            providers: (0..config.providers).map(Subject::provider).collect(),
            payload: vec![0; config.request_bytes].into_boxed_slice(),
            idle: is_one_at_a_time.then(|| IdleUsers::all(users)),
            choices: Rng::new(config.seed.wrapping_add(u64::from(thread) << 32)),
            churn: Churn::new(config, thread, users),
            state: RunState::new(Run::new(config, thread, users), reporter),
            published: 0,
        }
    }

    /// Send one request that was due at `due`; return false if no user can.
    #[inline]
    fn send(&mut self, io: &mut Io<Link>, keys: &mut Rng, due: u64, now: u64) -> bool {
        let Some(run) = self.state.run() else {
            return false;
        };
        let providers = self.providers.len() as u32;
        // In a sweep each user sends its own request.
        let swept = run.sweep_user();
        let (mut user, provider) = match swept {
            Some(user) => (user, (self.first + user) % providers),
            None => match &mut self.idle {
                Some(idle) => match choose_idle(idle, &self.conns, &mut self.choices) {
                    Some(user) => (user, self.choices.below(providers)),
                    None => return false,
                },
                None => (
                    self.choices.below(self.conns.len() as u32),
                    self.choices.below(providers),
                ),
            },
        };
        let may_wait = run.is_closed_loop() && swept.is_none();
        let is_gone = self.conns[user as usize] == ConnId::NONE;
        if is_gone && (may_wait || (swept.is_none() && self.churn.is_absent(user))) {
            user = next_connected(&self.conns, user).unwrap_or(user);
        }
        let to = &self.providers[provider as usize];
        let Some(conn) = io.writer(self.conns[user as usize]) else {
            if may_wait {
                return false;
            }
            run.refuse(due);
            return true;
        };
        let request = run.begin(user, provider as u16, due, now);
        if let Some(idle) = &mut self.idle {
            idle.remove(user);
        }
        payload::fill(&mut self.payload, PayloadKind::Request, request);
        let reply = Subject::user(self.first + user);
        let message = Message {
            subject: to.as_bytes(),
            reply: Some(reply.as_bytes()),
            headers: None,
            payload: &self.payload,
        };
        let len = pub_len(&message);
        let outbox = &mut conn.session.link.outbox;
        outbox.append(&mut conn.output, keys, len, |out| encode_pub(out, &message));
        self.published += 1;
        true
    }
}

/// Return a random idle user who has a connection. Users without one are removed until they are
/// connected again.
#[inline]
fn choose_idle(idle: &mut IdleUsers, conns: &[ConnId], choices: &mut Rng) -> Option<u32> {
    loop {
        let user = idle.choose(choices)?;
        if conns[user as usize] != ConnId::NONE {
            return Some(user);
        }
        idle.remove(user);
    }
}

/// End a connection in good order.
fn close_in_order(io: &mut Io<Link>, keys: &mut Rng, id: ConnId) {
    if let Some(conn) = io.writer(id) {
        let (link, output) = (&mut conn.session.link, &mut conn.output);
        link.close(output, keys, close::NORMAL);
    }
    io.close(id);
}

impl Workload for Users {
    type Link = Link;

    const REPLIES: bool = false;

    fn number(&self, member: u32) -> u32 {
        self.first + member
    }

    fn subject(&self, member: u32) -> Subject {
        Subject::user(self.number(member))
    }

    fn handle_ready(&mut self, member: u32, id: ConnId) {
        self.conns[member as usize] = id;
        self.churn.handle_ready(member);
        if let Some(idle) = &mut self.idle {
            idle.insert(member);
        }
    }

    fn handle_lost(&mut self, member: u32, _: ConnId) -> Reconnect {
        self.conns[member as usize] = ConnId::NONE;
        if self.churn.handle_lost(member) {
            Reconnect::AtOnce
        } else if self.state.is_idle() {
            Reconnect::Retry
        } else {
            Reconnect::Never
        }
    }

    #[inline]
    fn handle_slice(&mut self, clock: &Clock) {
        self.state.handle_slice(clock);
    }

    #[inline]
    fn handle_message(&mut self, member: u32, message: &Message<'_>, _: Option<Writer<'_>>) {
        let Some((run, now)) = self.state.run_at_receipt() else {
            return;
        };
        if run.handle_reply(member, message, now)
            && let Some(idle) = &mut self.idle
        {
            idle.insert(member);
        }
    }

    fn handle_start(&mut self, at: Instant) {
        self.state.start(at);
    }

    fn handle_stop(&mut self, now: Instant) {
        if let Some(now) = self.state.stop(now) {
            self.churn.stop(now);
        }
    }

    #[inline]
    fn poll_turn(&mut self, io: &mut Io<Link>, keys: &mut Rng, counters: &ThreadCounters) {
        let Some(now) = self.state.begin_turn(io, counters) else {
            return;
        };
        let Some(run) = self.state.run() else { return };
        run.expire(now, |user| {
            if let Some(idle) = &mut self.idle {
                idle.insert(user);
            }
        });
        if !run.is_in_sweep() {
            self.churn.poll_due(now, &mut self.conns);
            while let Some(id) = self.churn.poll_closable(|user| run.is_awaited(user)) {
                close_in_order(io, keys, id);
            }
        }
        for _ in 0..SENDS_PER_TURN {
            let Some(due) = self.state.run().and_then(|run| run.poll_due(now)) else {
                break;
            };
            if !self.send(io, keys, due, now) || io.is_spent() {
                break;
            }
        }
        self.state.update_counters(now, counters);
        set(&counters.churned, self.churn.closed);
        set(&counters.reconnected, self.churn.restored);
        let Some(run) = self.state.run() else { return };
        if run.is_over(now) && self.churn.is_over(now) {
            self.state.finish(now);
        } else {
            let turn = self.churn.wakes_at(now).unwrap_or(u64::MAX);
            let may_send = self.idle.as_ref().is_none_or(|idle| !idle.is_empty());
            let at = run.wakes_at(now, may_send).min(turn);
            self.state.wake_at(io, now, at);
        }
    }

    fn handle_written(&mut self, _: u64, counters: &ThreadCounters) {
        counters.set_published(self.published, self.payload.len());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn each_free_user_with_a_connection_is_chosen_once() {
        let mut conns = [ConnId::from_bits(1); 6];
        conns[2] = ConnId::NONE;
        let (mut idle, mut choices) = (IdleUsers::all(6), Rng::new(3));
        let mut chosen = Vec::new();
        while let Some(user) = choose_idle(&mut idle, &conns, &mut choices) {
            idle.remove(user);
            chosen.push(user);
        }
        chosen.sort_unstable();
        assert_eq!(chosen, [0, 1, 3, 4, 5]);
        assert!(idle.is_empty());
        idle.insert(4);
        assert_eq!(choose_idle(&mut idle, &conns, &mut choices), Some(4));
    }
}
