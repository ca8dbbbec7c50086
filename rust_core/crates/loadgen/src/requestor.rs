//! The requestor's side of the workload: users who publish requests at their planned times, and
//! receive the replies on their own subjects.

use std::time::Instant;

use protocol::nats::encode::{encode_pub, msg_len};
use protocol::ws::close;
use reactor::{ConnId, Io};

use crate::churn::{Churn, next_connected};
use crate::client::Client;
use crate::config::RequestorConfig;
use crate::connection::Connection;
use crate::course::Course;
use crate::free::Free;
use crate::intervals::Reporter;
use crate::link::{Link, Message};
use crate::payload::{self, Stream};
use crate::rng::Rng;
use crate::run::{Run, Totals};
use crate::schedule::SENDS_PER_TURN;
use crate::shared::{Gauges, publish};
use crate::subject::Subject;
use crate::workload::{Loss, Workload, Writer};

/// The users of one thread.
pub(crate) struct Users {
    first: u32,
    /// The connection of each user; [`ConnId::NONE`] without one.
    conns: Box<[ConnId]>,
    providers: Box<[Subject]>,
    /// Where the request is composed.
    payload: Box<[u8]>,
    /// In a closed loop of no more requests than users, those who have none outstanding.
    free: Option<Free>,
    /// Chooses users and providers.
    choices: Rng,
    churn: Churn,
    course: Course,
    /// Requests handed to connections.
    published: u64,
}

impl Users {
    /// The `users` users of thread `thread`, of whom the first has the number `first`.
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
            free: is_one_at_a_time.then(|| Free::all(users)),
            choices: Rng::new(config.seed.wrapping_add(u64::from(thread) << 32)),
            churn: Churn::new(config, thread, users),
            course: Course::new(Run::new(config, thread, users), reporter),
            published: 0,
        }
    }

    /// Sends one request that was due at `due`; false when nobody can.
    #[inline]
    fn send(&mut self, io: &mut Io<Client<Self>>, keys: &mut Rng, due: u64, now: u64) -> bool {
        let Some(run) = self.course.run() else {
            return false;
        };
        let providers = self.providers.len() as u32;
        // Each user's turn comes once in a sweep, and nobody takes another one's.
        let swept = run.sweep_user();
        let (mut user, provider) = match swept {
            Some(user) => (user, (self.first + user) % providers),
            None => match &mut self.free {
                Some(free) => match choose_free(free, &self.conns, &mut self.choices) {
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
        if let Some(free) = &mut self.free {
            free.remove(user);
        }
        payload::fill(&mut self.payload, Stream::Request, request);
        let reply = Subject::user(self.first + user);
        let (to, reply, payload) = (to.as_bytes(), Some(reply.as_bytes()), &self.payload);
        let len = msg_len(to, b"", reply, payload);
        conn.session
            .link
            .outbox
            .append(&mut conn.output, keys, len, |out| {
                encode_pub(out, to, reply, payload);
            });
        self.published += 1;
        true
    }
}

/// A random one of those who have a connection. Those who have none are no longer free, until they are
/// connected again.
#[inline]
fn choose_free(free: &mut Free, conns: &[ConnId], choices: &mut Rng) -> Option<u32> {
    loop {
        let user = free.choose(choices)?;
        if conns[user as usize] != ConnId::NONE {
            return Some(user);
        }
        free.remove(user);
    }
}

/// Ends a connection in good order.
fn hang_up(io: &mut Io<Client<Users>>, keys: &mut Rng, id: ConnId) {
    if let Some(conn) = io.writer(id) {
        let (link, output) = (&mut conn.session.link, &mut conn.output);
        link.close(output, keys, close::NORMAL);
    }
    io.close(id);
}

impl Workload for Users {
    type Link = Link;

    const ANSWERS: bool = false;

    fn number(&self, member: u32) -> u32 {
        self.first + member
    }

    fn subject(&self, member: u32) -> Subject {
        Subject::user(self.number(member))
    }

    fn handle_ready(&mut self, member: u32, id: ConnId) {
        self.conns[member as usize] = id;
        self.churn.handle_ready(member);
        if let Some(free) = &mut self.free {
            free.insert(member);
        }
    }

    fn handle_lost(&mut self, member: u32, _: ConnId) -> Loss {
        self.conns[member as usize] = ConnId::NONE;
        if self.churn.handle_lost(member) {
            Loss::Churn
        } else if self.course.is_idle() {
            Loss::Repair
        } else {
            Loss::Accept
        }
    }

    #[inline]
    fn handle_slice(&mut self) {
        self.course.handle_slice();
    }

    #[inline]
    fn handle_message(&mut self, member: u32, message: &Message<'_>, _: Option<Writer<'_>>) {
        let Some((run, now)) = self.course.run_at_receipt() else {
            return;
        };
        if run.handle_reply(member, message, now)
            && let Some(free) = &mut self.free
        {
            free.insert(member);
        }
    }

    fn handle_start(&mut self, at: Instant) {
        self.course.start(at);
    }

    fn handle_stop(&mut self) {
        if let Some(now) = self.course.stop() {
            self.churn.stop(now);
        }
    }

    #[inline]
    fn poll_turn(&mut self, io: &mut Io<Client<Self>>, keys: &mut Rng, gauges: &Gauges) {
        let Some(now) = self.course.begin_turn(io, gauges) else {
            return;
        };
        let Some(run) = self.course.run() else { return };
        run.expire(now, |user| {
            if let Some(free) = &mut self.free {
                free.insert(user);
            }
        });
        if !run.is_in_sweep() {
            self.churn.poll_turns(now, &mut self.conns);
            while let Some(id) = self.churn.poll_leaver(|user| run.is_awaited(user)) {
                hang_up(io, keys, id);
            }
        }
        for _ in 0..SENDS_PER_TURN {
            let Some(due) = self.course.run().and_then(|run| run.poll_due(now)) else {
                break;
            };
            if !self.send(io, keys, due, now) || io.is_spent() {
                break;
            }
        }
        self.course.publish(now, gauges);
        publish(&gauges.churned, self.churn.closed);
        publish(&gauges.reconnected, self.churn.restored);
        let Some(run) = self.course.run() else { return };
        if run.is_over(now) && self.churn.is_over(now) {
            self.course.finish(now);
        } else {
            let turn = self.churn.wakes_at(now).unwrap_or(u64::MAX);
            let may_send = self.free.as_ref().is_none_or(|free| !free.is_empty());
            let at = run.wakes_at(now, may_send).min(turn);
            self.course.wake_at(io, now, at);
        }
    }

    fn handle_written(&mut self, _: u64, gauges: &Gauges) {
        gauges.publish_published(self.published, self.payload.len());
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
        let (mut free, mut choices) = (Free::all(6), Rng::new(3));
        let mut chosen = Vec::new();
        while let Some(user) = choose_free(&mut free, &conns, &mut choices) {
            free.remove(user);
            chosen.push(user);
        }
        chosen.sort_unstable();
        assert_eq!(chosen, [0, 1, 3, 4, 5]);
        assert!(free.is_empty());
        free.insert(4);
        assert_eq!(choose_free(&mut free, &conns, &mut choices), Some(4));
    }
}
