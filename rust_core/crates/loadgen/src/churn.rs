//! Churn: the plan by which users' connections are closed and established again. No I/O.
//!
//! A chosen user sends no more requests. The connection is closed once none of its requests waits,
//! and established again after that. Users are chosen in the order of their numbers, so that the
//! user who has been connected longest is next.

use std::collections::HashSet;

use reactor::ConnId;

use crate::config::{Arrivals, RequestorConfig};
use crate::profile::Profile;
use crate::rng::Rng;
use crate::schedule::{Schedule, nanoseconds};

/// Churn of one thread's users. Times are nanoseconds since the start of the warm-up.
#[derive(Debug)]
pub(crate) struct Churn {
    /// Time when turns come; absent without churn.
    turns: Option<Schedule>,
    /// User who is chosen next.
    next: u32,
    users: u32,
    /// Users who send no more, with their connections.
    leaving: Vec<(u32, ConnId)>,
    /// Users whose connections were closed and are not yet established again.
    away: HashSet<u32>,
    timeout: u64,
    /// Connections closed.
    pub(crate) closed: u64,
    /// Closed connections that were established again.
    pub(crate) restored: u64,
}

impl Churn {
    /// Return the share of `users` of all users' churn, for thread `thread`.
    pub(crate) fn new(config: &RequestorConfig, thread: u32, users: u32) -> Self {
        let rate = config.churn_rate * f64::from(users) / f64::from(config.users);
        let phase = f64::from(thread) / f64::from(config.threads);
        let end = nanoseconds(config.warmup_s + config.duration_s);
        let turns = (rate > 0.0).then(|| {
            let (profile, rng) = (Profile::constant(), Rng::new(config.seed));
            Schedule::open(Arrivals::Uniform, rate, profile, phase, end, rng)
        });
        Self {
            turns,
            next: 0,
            users,
            leaving: Vec::new(),
            away: HashSet::new(),
            timeout: nanoseconds(config.timeout_s),
            closed: 0,
            restored: 0,
        }
    }

    /// Take the connections of the users who are due at `now` out of `conns`. At most half of the
    /// users are absent at once; the others wait until some are back.
    #[inline]
    pub(crate) fn poll_due(&mut self, now: u64, conns: &mut [ConnId]) {
        while self.wakes_at(now).is_some_and(|due| due <= now)
            && let Some(turns) = &mut self.turns
            && let Some(user) = next_connected(conns, self.next)
        {
            turns.advance();
            let conn = std::mem::replace(&mut conns[user as usize], ConnId::NONE);
            self.leaving.push((user, conn));
            self.next = (user + 1) % self.users;
        }
    }

    /// Return a connection to close now. `is_awaited` returns whether a request of a user still
    /// waits.
    #[inline]
    pub(crate) fn poll_closable(&mut self, is_awaited: impl Fn(u32) -> bool) -> Option<ConnId> {
        let found = self
            .leaving
            .iter()
            .position(|(user, _)| !is_awaited(*user))?;
        let (user, conn) = self.leaving.swap_remove(found);
        self.away.insert(user);
        self.closed += 1;
        Some(conn)
    }

    /// Return whether a user's requests go to others for now.
    pub(crate) fn is_absent(&self, user: u32) -> bool {
        self.away.contains(&user) || self.leaving.iter().any(|(leaver, _)| *leaver == user)
    }

    /// Note that a user has a connection.
    pub(crate) fn handle_ready(&mut self, user: u32) {
        self.restored += u64::from(self.away.remove(&user));
    }

    /// Return a user's connection is gone. Whether it was closed here.
    pub(crate) fn handle_lost(&mut self, user: u32) -> bool {
        self.leaving.retain(|(leaver, _)| *leaver != user);
        self.away.contains(&user)
    }

    /// Choose no more users. Users who have stopped sending are still disconnected.
    pub(crate) fn stop(&mut self, now: u64) {
        if let Some(turns) = &mut self.turns {
            turns.stop(now);
        }
    }

    /// Return whether the run may end at `now`: all users are back, or a request's timeout has
    /// passed.
    pub(crate) fn is_over(&self, now: u64) -> bool {
        self.turns.as_ref().is_none_or(|turns| {
            let is_settled = self.leaving.is_empty() && self.away.is_empty();
            is_settled || now >= turns.end().saturating_add(self.timeout)
        })
    }

    /// Return when the next user is due, as seen at `now`; `None` if a user has to come back first.
    #[inline]
    pub(crate) fn wakes_at(&self, now: u64) -> Option<u64> {
        let turns = self.turns.as_ref().filter(|_| self.may_leave());
        turns.and_then(|turns| turns.peek(now))
    }

    fn may_leave(&self) -> bool {
        2 * (self.leaving.len() + self.away.len()) < self.users as usize
    }
}

/// Return the first user from `user` on, in order and around, who has a connection.
pub(crate) fn next_connected(conns: &[ConnId], user: u32) -> Option<u32> {
    let (before, after) = conns.split_at(user as usize);
    let found = after
        .iter()
        .chain(before)
        .position(|id| *id != ConnId::NONE)?;
    Some(((user as usize + found) % conns.len()) as u32)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const MS: u64 = 1_000_000;

    /// Make a churn of 100 users a second for a second, with a timeout of a second.
    fn churn(users: u32, more: &str) -> (Churn, Vec<ConnId>) {
        let json = format!(
            r#"{{"transport":"tcp","address":"127.0.0.1:1","users":{users},"rate":1,"duration_s":1,
            "timeout_s":1,"churn_rate":100{more}}}"#
        );
        let config = RequestorConfig::from_json(&json).unwrap();
        let conns = (0..u64::from(users)).map(ConnId::from_bits).collect();
        (Churn::new(&config, 0, users), conns)
    }

    /// Return the slots of the connections that are closed when no request waits.
    fn close_all(churn: &mut Churn) -> Vec<u32> {
        std::iter::from_fn(|| churn.poll_closable(|_| false))
            .map(ConnId::slot)
            .collect()
    }

    #[test]
    fn users_leave_in_turn_at_the_rate() {
        let (mut churn, mut conns) = churn(50, "");
        let mut closed = Vec::new();
        for now in (0..2_000).map(|ms| ms * MS) {
            churn.poll_due(now, &mut conns);
            for user in close_all(&mut churn) {
                closed.push(user);
                assert!(churn.is_absent(user) && churn.handle_lost(user));
                assert_eq!(conns[user as usize], ConnId::NONE);
                conns[user as usize] = ConnId::from_bits(user.into());
                churn.handle_ready(user);
                assert!(!churn.is_absent(user));
            }
        }
        let expected: Vec<u32> = (0..50).chain(0..50).collect();
        assert_eq!(closed, expected);
        assert_eq!((churn.closed, churn.restored), (100, 100));
        assert_eq!(churn.wakes_at(2_000 * MS), None);
        assert!(churn.is_over(2_000 * MS));
    }

    #[test]
    fn nobody_leaves_with_a_request_that_waits() {
        let (mut churn, mut conns) = churn(50, "");
        churn.poll_due(25 * MS, &mut conns);
        assert_eq!(churn.leaving.len(), 3);
        let conn = churn.poll_closable(|user| user != 1).unwrap();
        assert_eq!(
            (conn.slot(), churn.poll_closable(|user| user != 1)),
            (1, None)
        );
        assert!(churn.is_absent(0) && churn.is_absent(1) && churn.is_absent(2));
        assert!(!churn.handle_lost(0), "a real loss");
        assert!(!churn.is_absent(0));
        assert!(churn.handle_lost(1));
    }

    #[test]
    fn half_of_the_users_stay_and_lost_ones_have_no_turn() {
        let (mut churn, mut conns) = churn(10, "");
        conns[1] = ConnId::NONE;
        churn.poll_due(990 * MS, &mut conns);
        assert_eq!(close_all(&mut churn), [0, 5, 4, 3, 2]);
        assert_eq!(churn.wakes_at(990 * MS), None);
        churn.poll_due(990 * MS, &mut conns);
        assert_eq!(churn.poll_closable(|_| false), None);
        churn.handle_ready(3);
        churn.poll_due(990 * MS, &mut conns);
        assert_eq!(close_all(&mut churn), [6]);
        assert_eq!((churn.closed, churn.restored), (6, 1));
    }

    #[test]
    fn the_end_waits_for_those_away_but_not_for_ever() {
        let (mut churn, mut conns) = churn(4, "");
        churn.poll_due(0, &mut conns);
        churn.stop(0);
        assert!(!churn.is_over(0));
        assert_eq!(close_all(&mut churn), [0]);
        assert!(!churn.is_over(999 * MS));
        assert!(churn.is_over(1_000 * MS));
        churn.handle_ready(0);
        assert!(churn.is_over(0));
    }

    #[test]
    fn without_a_rate_nothing_happens() {
        let (mut churn, mut conns) = churn(4, r#","churn_rate":0"#);
        churn.poll_due(u64::MAX, &mut conns);
        assert_eq!(churn.poll_closable(|_| false), None);
        assert!(churn.is_over(0) && churn.wakes_at(0).is_none());
    }

    #[test]
    fn the_search_goes_around() {
        let mut conns = vec![ConnId::NONE; 4];
        assert_eq!(next_connected(&conns, 2), None);
        conns[1] = ConnId::from_bits(7);
        for user in 0..4 {
            assert_eq!(next_connected(&conns, user), Some(1));
        }
    }
}
