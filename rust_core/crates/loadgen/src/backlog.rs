//! Replies that leave later than at once: of providers that answer only so many requests a second, or
//! that stall from time to time. No I/O and no clock; times are nanoseconds since the providers were
//! begun.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use crate::config::ProviderConfig;
use crate::shared::lock;

/// Replies that one thread keeps at most, about 100 bytes each. What comes on top is not answered.
const MAX_WAITING: usize = 1 << 20;

/// The one server of a D/1 queue, which all threads' requests go through: each takes the same time, and
/// begins when it arrives or when the one before has ended.
#[derive(Debug)]
pub(crate) struct Bottleneck {
    /// Time that a request takes.
    service: f64,
    /// When it is free; with fractions, so that no rate is rounded.
    free: Mutex<f64>,
}

impl Bottleneck {
    /// For `rate` requests a second.
    fn new(rate: f64) -> Self {
        Self {
            service: 1e9 / rate,
            free: Mutex::new(0.0),
        }
    }

    /// When a request that arrives at `now` has been served.
    fn serve(&self, now: u64) -> u64 {
        let mut free = lock(&self.free);
        *free = free.max(now as f64) + self.service;
        free.ceil() as u64
    }
}

/// Replies leave `delay` later where their requests arrive in the first `length` of every `period`.
#[derive(Debug, Clone, Copy)]
struct Stalls {
    delay: u64,
    length: u64,
    period: u64,
}

/// What makes replies wait.
#[derive(Debug, Clone)]
pub(crate) struct Waits {
    bottleneck: Option<Arc<Bottleneck>>,
    stalls: Option<Stalls>,
}

impl Waits {
    /// `None` where nothing does.
    pub(crate) fn of(config: &ProviderConfig) -> Option<Self> {
        let nanoseconds = |seconds: f64| (seconds * 1e9).round() as u64;
        let waits = Self {
            bottleneck: (config.rate > 0.0).then(|| Arc::new(Bottleneck::new(config.rate))),
            stalls: (config.delay_s > 0.0).then(|| Stalls {
                delay: nanoseconds(config.delay_s),
                length: nanoseconds(config.delay_for_s),
                period: nanoseconds(config.delay_every_s),
            }),
        };
        (waits.bottleneck.is_some() || waits.stalls.is_some()).then_some(waits)
    }
}

/// A reply that has not left.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    due: u64,
    /// Whose it is.
    pub(crate) member: u32,
    /// Of the request.
    pub(crate) id: u64,
    /// Where it goes.
    pub(crate) to: Box<[u8]>,
}

/// See the module: the replies of one thread.
#[derive(Debug)]
pub(crate) struct Backlog {
    waits: Waits,
    /// When the stalls began to be counted.
    begin: Option<u64>,
    /// Those whose requests came in no stall, and the others: each in the order in which they are due.
    prompt: VecDeque<Waiting>,
    stalled: VecDeque<Waiting>,
    /// Whether nothing waits any more.
    is_lifted: bool,
    /// Replies that never left.
    pub(crate) dropped: u64,
}

impl Backlog {
    pub(crate) const fn new(waits: Waits) -> Self {
        Self {
            waits,
            begin: None,
            prompt: VecDeque::new(),
            stalled: VecDeque::new(),
            is_lifted: false,
            dropped: 0,
        }
    }

    /// Counts the periods of the stalls from `at` on; there is none before.
    pub(crate) const fn begin(&mut self, at: u64) {
        self.begin = Some(at);
    }

    /// From now on replies are due at once, those that wait included.
    pub(crate) const fn lift(&mut self) {
        self.is_lifted = true;
    }

    /// Keeps the reply to request `id` of `member`, which arrived at `now`; times never go back. Drops it
    /// where too many wait.
    pub(crate) fn push(&mut self, member: u32, id: u64, to: &[u8], now: u64) {
        if self.len() >= MAX_WAITING {
            self.dropped += 1;
            return;
        }
        let served = self.waits.bottleneck.as_ref().map(|one| one.serve(now));
        let delay = self.delay(now);
        let waiting = Waiting {
            due: served.unwrap_or(now) + delay,
            member,
            id,
            to: to.into(),
        };
        if delay > 0 {
            self.stalled.push_back(waiting);
        } else {
            self.prompt.push_back(waiting);
        }
    }

    /// How much later the reply to a request that arrives at `now` leaves.
    fn delay(&self, now: u64) -> u64 {
        let since = self.begin.and_then(|begin| now.checked_sub(begin));
        match (self.waits.stalls, since) {
            (Some(stalls), Some(since)) if since % stalls.period < stalls.length => stalls.delay,
            _ => 0,
        }
    }

    /// A reply that is due at `now`.
    pub(crate) fn pop(&mut self, now: u64) -> Option<Waiting> {
        let due = |line: &VecDeque<Waiting>| line.front().map_or(u64::MAX, |first| first.due);
        let (prompt, stalled) = (due(&self.prompt), due(&self.stalled));
        if !self.is_lifted && prompt.min(stalled) > now {
            return None;
        }
        let next = if prompt <= stalled {
            &mut self.prompt
        } else {
            &mut self.stalled
        };
        next.pop_front()
    }

    /// When the next reply is due; `None` without any.
    pub(crate) fn next_due(&self) -> Option<u64> {
        let first = [&self.prompt, &self.stalled].map(|line| line.front().map(|first| first.due));
        first.into_iter().flatten().min()
    }

    /// Replies that wait.
    pub(crate) fn len(&self) -> usize {
        self.prompt.len() + self.stalled.len()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const MS: u64 = 1_000_000;

    fn waits(more: &str) -> Waits {
        let json = format!(r#"{{"transport":"tcp","address":"127.0.0.1:1",{more}}}"#);
        Waits::of(&ProviderConfig::from_json(&json).unwrap()).unwrap()
    }

    /// When each of the replies leaves, by its id.
    fn departures(backlog: &mut Backlog) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        while let Some(due) = backlog.next_due() {
            assert_eq!(backlog.pop(due - 1), None);
            found.push((backlog.pop(due).unwrap().id, due));
        }
        found
    }

    #[test]
    fn most_providers_have_none() {
        let json = r#"{"transport":"tcp","address":"127.0.0.1:1"}"#;
        assert!(Waits::of(&ProviderConfig::from_json(json).unwrap()).is_none());
    }

    #[test]
    fn one_server_takes_one_request_after_the_other() {
        let mut backlog = Backlog::new(waits(r#""rate":500"#));
        for (id, at) in [0, 0, 1, 20, 21, 40].into_iter().enumerate() {
            backlog.push(0, id as u64, b"/c/1", at * MS);
        }
        let expected = [2, 4, 6, 22, 24, 42].into_iter().enumerate();
        let expected: Vec<_> = expected.map(|(id, at)| (id as u64, at * MS)).collect();
        assert_eq!(departures(&mut backlog), expected);
    }

    #[test]
    fn the_server_is_one_for_all_threads_and_does_not_drift() {
        let waits = waits(r#""rate":30000"#);
        let (mut one, mut other) = (Backlog::new(waits.clone()), Backlog::new(waits));
        for id in 0..30_000 {
            [&mut one, &mut other][id as usize % 2].push(0, id, b"x", 0);
        }
        let last = departures(&mut other).pop().unwrap();
        assert_eq!(departures(&mut one).len(), 15_000);
        assert!(last.1.abs_diff(1_000_000_000) <= 1, "{last:?}");
    }

    #[test]
    fn only_what_arrives_in_a_stall_is_delayed() {
        let mut backlog = Backlog::new(waits(
            r#""delay_s":0.05,"delay_for_s":0.01,"delay_every_s":0.1"#,
        ));
        backlog.push(0, 0, b"x", 5 * MS);
        backlog.begin(1000 * MS);
        for (id, at) in [
            (1, 999),
            (2, 1000),
            (3, 1009),
            (4, 1010),
            (5, 1099),
            (6, 1100),
        ] {
            backlog.push(0, id, b"x", at * MS);
        }
        let expected = [
            (0, 5),
            (1, 999),
            (4, 1010),
            (2, 1050),
            (3, 1059),
            (5, 1099),
            (6, 1150),
        ];
        assert_eq!(
            departures(&mut backlog),
            expected.map(|(id, at)| (id, at * MS))
        );
    }

    #[test]
    fn a_stall_delays_what_the_server_has_served() {
        let more = r#""rate":100,"delay_s":0.05,"delay_for_s":0.01,"delay_every_s":0.1"#;
        let mut backlog = Backlog::new(waits(more));
        backlog.begin(0);
        for (id, at) in [(0, 0), (1, 9), (2, 10)] {
            backlog.push(0, id, b"x", at * MS);
        }
        let expected = [(2, 30), (0, 60), (1, 70)];
        assert_eq!(
            departures(&mut backlog),
            expected.map(|(id, at)| (id, at * MS))
        );
    }

    #[test]
    fn at_the_end_nothing_waits() {
        let mut backlog = Backlog::new(waits(r#""rate":1"#));
        for id in 0..3 {
            backlog.push(7, id, b"/c/9", 0);
        }
        backlog.lift();
        for id in 0..3 {
            let waiting = backlog.pop(0).unwrap();
            assert_eq!(
                (waiting.member, waiting.id, &*waiting.to),
                (7, id, &b"/c/9"[..])
            );
        }
        assert_eq!((backlog.pop(0), backlog.len()), (None, 0));
    }

    #[test]
    fn too_many_are_dropped_and_counted() {
        let mut backlog = Backlog::new(waits(r#""rate":1"#));
        for id in 0..MAX_WAITING as u64 + 5 {
            backlog.push(0, id, b"", 0);
        }
        assert_eq!((backlog.len(), backlog.dropped), (MAX_WAITING, 5));
    }
}
