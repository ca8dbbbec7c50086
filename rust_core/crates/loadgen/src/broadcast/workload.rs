//! The two kinds of threads of a broadcaster as one [`Workload`].

use std::time::{Duration, Instant};

use reactor::{ConnId, Io};

use super::publishers::Publishers;
use super::subscribers::Subscribers;
use crate::client::Client;
use crate::link::{Link, Message};
use crate::rng::Rng;
use crate::shared::Gauges;
use crate::subject::Subject;
use crate::workload::{Loss, Workload, Writer};

/// The thread that publishes.
pub(crate) const PUBLISHING_THREAD: usize = 0;

/// What a thread does.
pub(crate) enum Role {
    Publish(Publishers),
    Subscribe(Subscribers),
}

/// Begins the next turn at `at` of the run's clock, at which it is `now`.
#[inline]
pub(crate) fn wake_at(io: &mut Io<Client<Role>>, now: u64, at: u64) {
    io.wake_at(Instant::now() + Duration::from_nanos(at.saturating_sub(now)));
}

impl Workload for Role {
    type Link = Link;

    const ANSWERS: bool = false;

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

    fn handle_lost(&mut self, member: u32, _: ConnId) -> Loss {
        match self {
            Self::Publish(publishers) => publishers.handle_lost(member),
            Self::Subscribe(users) => users.handle_lost(member),
        }
    }

    #[inline]
    fn handle_slice(&mut self) {
        if let Self::Subscribe(users) = self {
            users.handle_slice();
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

    fn handle_stop(&mut self) {
        if let Self::Publish(publishers) = self {
            publishers.handle_stop();
        }
    }

    #[inline]
    fn poll_turn(&mut self, io: &mut Io<Client<Self>>, keys: &mut Rng, gauges: &Gauges) {
        match self {
            Self::Publish(publishers) => publishers.poll_turn(io, keys, gauges),
            Self::Subscribe(users) => users.poll_turn(io, gauges),
        }
    }

    fn handle_written(&mut self, _: u64, gauges: &Gauges) {
        if let Self::Publish(publishers) = self {
            publishers.handle_written(gauges);
        }
    }
}
