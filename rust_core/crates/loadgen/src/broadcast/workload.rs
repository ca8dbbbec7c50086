//! The two kinds of threads of a broadcaster as one [`Workload`].

use std::time::Instant;

use protocol::nats::Message;
use reactor::{Clock, ConnId};

use super::publishers::Publishers;
use super::subscribers::Subscribers;
use crate::link::Link;
use crate::rng::Rng;
use crate::session::Io;
use crate::shared::ThreadCounters;
use crate::subject::Subject;
use crate::workload::{Reconnect, Workload, Writer};

/// Work of a thread.
pub(crate) enum Role {
    Publish(Publishers),
    Subscribe(Subscribers),
}

impl Workload for Role {
    type Link = Link;

    const REPLIES: bool = false;

    fn number(&self, member: u32) -> u32 {
        match self {
            Self::Publish(_) => member,
            Self::Subscribe(users) => users.number(member),
        }
    }

    fn subject(&self, member: u32) -> Subject {
        match self {
            Self::Publish(_) => Publishers::subject(member),
            Self::Subscribe(users) => users.subject(member),
        }
    }

    fn handle_ready(&mut self, member: u32, id: ConnId) {
        if let Self::Publish(publishers) = self {
            publishers.handle_ready(member, id);
        }
    }

    fn handle_lost(&mut self, member: u32, _: ConnId) -> Reconnect {
        match self {
            Self::Publish(publishers) => publishers.handle_lost(member),
            Self::Subscribe(users) => users.handle_lost(member),
        }
    }

    #[inline]
    fn handle_slice(&mut self, clock: &Clock) {
        if let Self::Subscribe(users) = self {
            users.handle_slice(clock.now());
        }
    }

    #[inline]
    fn handle_message(&mut self, member: u32, message: &Message<'_>, _: Option<Writer<'_>>) {
        match self {
            Self::Publish(publishers) => publishers.handle_message(),
            Self::Subscribe(users) => users.handle_message(member, message),
        }
    }

    fn handle_start(&mut self, _: Instant) {
        match self {
            Self::Publish(publishers) => publishers.handle_start(),
            Self::Subscribe(users) => users.handle_start(),
        }
    }

    fn handle_stop(&mut self, now: Instant) {
        if let Self::Publish(publishers) = self {
            publishers.handle_stop(now);
        }
    }

    #[inline]
    fn poll_turn(&mut self, io: &mut Io<Link>, keys: &mut Rng, counters: &ThreadCounters) {
        match self {
            Self::Publish(publishers) => publishers.poll_turn(io, keys, counters),
            Self::Subscribe(users) => users.poll_turn(io, counters),
        }
    }

    fn handle_unsent(&mut self, items: u64) {
        if let Self::Publish(publishers) = self {
            publishers.handle_unsent(items);
        }
    }

    fn handle_written(&mut self, items: u64, counters: &ThreadCounters) {
        if let Self::Publish(publishers) = self {
            publishers.handle_written(items, counters);
        }
    }
}
