//! Queue of delayed replies, for providers with a limited rate or with stalls. No I/O and no clock;
//! times are nanoseconds since the providers' start.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use crate::config::ProviderConfig;
use crate::schedule::nanoseconds;
use crate::shared::lock;

/// Most replies that one thread keeps, about 100 bytes each. Further requests are not answered.
const MAX_WAITING: usize = 1 << 20;

/// The one server of a D/1 queue, which all threads' requests go through: each takes the same time, and
/// begins when it arrives or when the one before has ended.
#[derive(Debug)]
pub(crate) struct Bottleneck {
    /// Time that a request takes.
    service: f64,
    /// Time when it is free; with fractions, so that no rate is rounded.
    free: Mutex<f64>,
}

impl Bottleneck {
    /// Make the server of `rate` requests a second.
    fn new(rate: f64) -> Self {
        Self {
            service: 1e9 / rate,
            free: Mutex::new(0.0),
        }
    }

    /// Return when a request that arrives at `now` has been served.
    fn serve(&self, now: u64) -> u64 {
        let mut free = lock(&self.free);
        *free = free.max(now as f64) + self.service;
        free.ceil() as u64
    }
}

/// Stalls: replies to requests in the first `length` of every `period` leave `delay` later.
#[derive(Debug, Clone, Copy)]
struct Stalls {
    delay: u64,
    length: u64,
    period: u64,
}

/// Causes of delay of a provider's replies.
#[derive(Debug, Clone)]
pub(crate) struct ReplyDelays {
    bottleneck: Option<Arc<Bottleneck>>,
    stalls: Option<Stalls>,
}

impl ReplyDelays {
    /// Return the delays that `config` asks for; `None` without any.
    pub(crate) fn of(config: &ProviderConfig) -> Option<Self> {
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
pub(crate) struct QueuedReply {
    due: u64,
    /// Provider that replies.
    pub(crate) member: u32,
    /// Id of the request.
    pub(crate) id: u64,
    /// Subject of the reply.
    pub(crate) to: Box<[u8]>,
}

/// Delayed replies of one thread.
#[derive(Debug)]
pub(crate) struct ReplyQueue {
    waits: ReplyDelays,
    /// Time when the stalls began to be counted.
    begin: Option<u64>,
    /// Replies to requests outside of stalls, ordered by due time.
    prompt: VecDeque<QueuedReply>,
    stalled: VecDeque<QueuedReply>,
    /// Whether nothing waits any more.
    is_released: bool,
    /// Replies that never left.
    pub(crate) dropped: u64,
}

impl ReplyQueue {
    pub(crate) const fn new(waits: ReplyDelays) -> Self {
        Self {
            waits,
            begin: None,
            prompt: VecDeque::new(),
            stalled: VecDeque::new(),
            is_released: false,
            dropped: 0,
        }
    }

    /// Count the periods of the stalls from `at` on.
    pub(crate) const fn begin(&mut self, at: u64) {
        self.begin = Some(at);
    }

    /// Make all replies due at once, queued and later ones.
    pub(crate) const fn release(&mut self) {
        self.is_released = true;
    }

    /// Queue the reply to request `id` of `member`, which arrived at `now`; `now` never decreases.
    /// A reply beyond the limit is dropped.
    pub(crate) fn push(&mut self, member: u32, id: u64, to: &[u8], now: u64) {
        if self.len() >= MAX_WAITING {
            self.dropped += 1;
            return;
        }
        let served = self.waits.bottleneck.as_ref().map(|one| one.serve(now));
        let delay = self.delay(now);
        let waiting = QueuedReply {
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

    /// Return how much later the reply to a request that arrives at `now` leaves.
    fn delay(&self, now: u64) -> u64 {
        let since = self.begin.and_then(|begin| now.checked_sub(begin));
        match (self.waits.stalls, since) {
            (Some(stalls), Some(since)) if since % stalls.period < stalls.length => stalls.delay,
            _ => 0,
        }
    }

    /// Return a reply that is due at `now`.
    pub(crate) fn pop(&mut self, now: u64) -> Option<QueuedReply> {
        let due = |line: &VecDeque<QueuedReply>| line.front().map_or(u64::MAX, |first| first.due);
        let (prompt, stalled) = (due(&self.prompt), due(&self.stalled));
        if !self.is_released && prompt.min(stalled) > now {
            return None;
        }
        let next = if prompt <= stalled {
            &mut self.prompt
        } else {
            &mut self.stalled
        };
        next.pop_front()
    }

    /// Return when the next reply is due; `None` without any.
    pub(crate) fn next_due(&self) -> Option<u64> {
        let first = [&self.prompt, &self.stalled].map(|line| line.front().map(|first| first.due));
        first.into_iter().flatten().min()
    }

    /// Return the number of queued replies.
    pub(crate) fn len(&self) -> usize {
        self.prompt.len() + self.stalled.len()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const MS: u64 = 1_000_000;

    fn waits(more: &str) -> ReplyDelays {
        let json = format!(r#"{{"transport":"tcp","address":"127.0.0.1:1",{more}}}"#);
        ReplyDelays::of(&ProviderConfig::from_json(&json).unwrap()).unwrap()
    }

    /// Return when each of the replies leaves, by its id.
    fn departures(queue: &mut ReplyQueue) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        while let Some(due) = queue.next_due() {
            assert_eq!(queue.pop(due - 1), None);
            found.push((queue.pop(due).unwrap().id, due));
        }
        found
    }

    #[test]
    fn most_providers_have_none() {
        let json = r#"{"transport":"tcp","address":"127.0.0.1:1"}"#;
        assert!(ReplyDelays::of(&ProviderConfig::from_json(json).unwrap()).is_none());
    }

    #[test]
    fn one_server_takes_one_request_after_the_other() {
        let mut queue = ReplyQueue::new(waits(r#""rate":500"#));
        for (id, at) in [0, 0, 1, 20, 21, 40].into_iter().enumerate() {
            queue.push(0, id as u64, b"/c/1", at * MS);
        }
        let expected = [2, 4, 6, 22, 24, 42].into_iter().enumerate();
        let expected: Vec<_> = expected.map(|(id, at)| (id as u64, at * MS)).collect();
        assert_eq!(departures(&mut queue), expected);
    }

    #[test]
    fn the_server_is_one_for_all_threads_and_does_not_drift() {
        let waits = waits(r#""rate":30000"#);
        let (mut one, mut other) = (ReplyQueue::new(waits.clone()), ReplyQueue::new(waits));
        for id in 0..30_000 {
            [&mut one, &mut other][id as usize % 2].push(0, id, b"x", 0);
        }
        let last = departures(&mut other).pop().unwrap();
        assert_eq!(departures(&mut one).len(), 15_000);
        assert!(last.1.abs_diff(1_000_000_000) <= 1, "{last:?}");
    }

    #[test]
    fn only_what_arrives_in_a_stall_is_delayed() {
        let mut queue = ReplyQueue::new(waits(
            r#""delay_s":0.05,"delay_for_s":0.01,"delay_every_s":0.1"#,
        ));
        queue.push(0, 0, b"x", 5 * MS);
        queue.begin(1000 * MS);
        for (id, at) in [
            (1, 999),
            (2, 1000),
            (3, 1009),
            (4, 1010),
            (5, 1099),
            (6, 1100),
        ] {
            queue.push(0, id, b"x", at * MS);
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
            departures(&mut queue),
            expected.map(|(id, at)| (id, at * MS))
        );
    }

    #[test]
    fn a_stall_delays_what_the_server_has_served() {
        let more = r#""rate":100,"delay_s":0.05,"delay_for_s":0.01,"delay_every_s":0.1"#;
        let mut queue = ReplyQueue::new(waits(more));
        queue.begin(0);
        for (id, at) in [(0, 0), (1, 9), (2, 10)] {
            queue.push(0, id, b"x", at * MS);
        }
        let expected = [(2, 30), (0, 60), (1, 70)];
        assert_eq!(
            departures(&mut queue),
            expected.map(|(id, at)| (id, at * MS))
        );
    }

    #[test]
    fn at_the_end_nothing_waits() {
        let mut queue = ReplyQueue::new(waits(r#""rate":1"#));
        for id in 0..3 {
            queue.push(7, id, b"/c/9", 0);
        }
        queue.release();
        for id in 0..3 {
            let waiting = queue.pop(0).unwrap();
            assert_eq!(
                (waiting.member, waiting.id, &*waiting.to),
                (7, id, &b"/c/9"[..])
            );
        }
        assert_eq!((queue.pop(0), queue.len()), (None, 0));
    }

    #[test]
    fn too_many_are_dropped_and_counted() {
        let mut queue = ReplyQueue::new(waits(r#""rate":1"#));
        for id in 0..MAX_WAITING as u64 + 5 {
            queue.push(0, id, b"", 0);
        }
        assert_eq!((queue.len(), queue.dropped), (MAX_WAITING, 5));
    }
}
