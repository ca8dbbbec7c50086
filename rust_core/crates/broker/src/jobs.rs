//! Work that would take longer than a turn should: it is done in slices, a little in each turn.

use std::collections::VecDeque;

use reactor::ConnId;

use crate::metrics::table::Counter;
use crate::shard::{Io, Shard};
use crate::subscriptions::Subscriptions;

/// Work of taking a subscription out of the routing table.
const UNSUBSCRIBE: usize = 700;
/// Work of looking at one place for a subscription, or for a connection.
const LOOK: usize = 10;
/// Places or connections that are looked at before the budget is asked.
const STEP: u32 = 32;
/// Subscriptions of a connection that are removed at once.
const FEW: u32 = 64;

/// A piece of work with the place where it goes on.
pub(crate) enum Job {
    /// Remove the subscriptions of a connection that has ended.
    Leave {
        conn: ConnId,
        subscriptions: Box<Subscriptions>,
        next: u32,
    },
    /// Remove the subscriptions of a client that starts over by another `CONNECT`; it is not read
    /// meanwhile.
    StartOver { conn: ConnId, next: u32 },
    /// Tell all clients that lame duck mode has begun.
    Announce { slot: u32 },
    /// Close clients as lame duck mode does.
    Close,
}

/// The work of one shard that is under way, in the order of its turns.
#[derive(Default)]
pub(crate) struct Jobs(VecDeque<Job>);

impl Jobs {
    pub(crate) fn add(&mut self, job: Job) {
        self.0.push_back(job);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[cfg(feature = "sim")]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the subscriptions of this connection, which has ended, are still being removed.
    #[inline]
    pub(crate) fn is_leaving(&self, id: ConnId) -> bool {
        let is_it = |job: &Job| matches!(job, Job::Leave { conn, .. } if *conn == id);
        !self.0.is_empty() && self.0.iter().any(is_it)
    }
}

impl Shard {
    /// Go on with the work under way, as far as this turn's budget goes.
    pub(crate) fn continue_jobs(&mut self, io: &mut Io) {
        while !io.is_spent()
            && let Some(job) = self.jobs.0.pop_front()
        {
            io.begin_slice();
            let rest = match job {
                Job::Leave {
                    conn,
                    subscriptions,
                    next,
                } => self.remove_left(io, conn, subscriptions, next),
                Job::StartOver { conn, next } => self.remove_former(io, conn, next),
                Job::Announce { slot } => self.announce(io, slot),
                Job::Close => self.close_some(io),
            };
            io.end_slice();
            self.jobs.0.extend(rest);
        }
        if !self.jobs.is_empty() {
            io.wake_at(io.now());
        }
    }

    /// Remove the subscriptions of a connection that ends: few at once, many in slices. Messages that
    /// are routed to them meanwhile are dropped as those of a closed connection.
    pub(crate) fn remove_subscriptions(
        &mut self,
        io: &mut Io,
        conn: ConnId,
        subscriptions: Subscriptions,
    ) {
        let subscriptions = Box::new(subscriptions);
        if subscriptions.places() > FEW {
            let next = 0;
            self.jobs.add(Job::Leave {
                conn,
                subscriptions,
                next,
            });
            io.wake_at(io.now());
            return;
        }
        self.remove_range(io, conn, &subscriptions, 0..FEW);
    }

    fn remove_range(
        &mut self,
        io: &mut Io,
        conn: ConnId,
        subscriptions: &Subscriptions,
        places: std::ops::Range<u32>,
    ) {
        io.spend(LOOK * places.len());
        for (place, one) in subscriptions
            .iter_in(places)
            .filter(|(_, one)| !one.leaving)
        {
            let subscriber = self.subscriber(conn, place);
            let routing = &self.shared.routing;
            routing.unsubscribe(one.subject(), one.queue(), &subscriber);
            self.counts.add(Counter::Unsubscribed, 1);
            io.spend(UNSUBSCRIBE);
        }
    }

    fn remove_left(
        &mut self,
        io: &mut Io,
        conn: ConnId,
        subscriptions: Box<Subscriptions>,
        mut next: u32,
    ) -> Option<Job> {
        while next < subscriptions.places() {
            if io.is_spent() {
                return Some(Job::Leave {
                    conn,
                    subscriptions,
                    next,
                });
            }
            self.remove_range(io, conn, &subscriptions, next..next + STEP);
            next += STEP;
        }
        None
    }

    /// Remove the subscriptions that a client made before this `CONNECT`. It is not read until that is
    /// done.
    pub(crate) fn start_over(&mut self, io: &mut Io, id: ConnId) {
        let Some(conn) = io.conn_mut(id) else { return };
        if conn.session.subscriptions.len() == 0 {
            return;
        }
        let rest = self.remove_former(io, id, 0);
        if let (Some(job), Some(conn)) = (rest, io.conn_mut(id)) {
            conn.session.is_stalled = true;
            self.is_stalled |= self.reading == Some(id);
            io.set_reading(id, false);
            self.jobs.add(job);
            io.wake_at(io.now());
        }
    }

    fn remove_former(&mut self, io: &mut Io, id: ConnId, mut next: u32) -> Option<Job> {
        loop {
            let subscriptions = &io.conn(id)?.session.subscriptions;
            if next >= subscriptions.places() {
                break;
            }
            if io.is_spent() {
                return Some(Job::StartOver { conn: id, next });
            }
            let former = subscriptions.iter_in(next..next + STEP);
            let former: Vec<_> = former
                .filter(|(_, one)| !one.leaving)
                .map(|(place, _)| place)
                .collect();
            io.spend(LOOK * STEP as usize + UNSUBSCRIBE * former.len());
            for place in former {
                self.unsubscribe(io, id, place);
            }
            next += STEP;
        }
        if self.reading != Some(id) {
            self.send_barrier(io, id);
            self.resume(io, id);
        }
        None
    }
}
