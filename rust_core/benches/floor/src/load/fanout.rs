//! A publisher and its subscribers: whenever all have a message, the next one is published.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use crate::board::Board;
use crate::driver::Pattern;
use crate::driver::output::Output;
use crate::setup::HUB;

/// The messages under way, for all threads of the load.
pub(super) struct Window {
    /// Message number `n` has slot `n % slots.len()`.
    slots: Vec<Slot>,
    subscribers: u32,
    origin: Instant,
}

struct Slot {
    /// Whether the next message may be published in it.
    free: AtomicBool,
    /// Subscribers that do not have the message yet.
    missing: AtomicU32,
    /// When the first one had it, nanoseconds since `origin`, or `UNSET`.
    first: AtomicU64,
}

const UNSET: u64 = u64::MAX;

impl Window {
    pub(super) fn new(messages: u32, subscribers: u32) -> Self {
        let slot = |_| Slot {
            free: AtomicBool::new(true),
            missing: AtomicU32::new(0),
            first: AtomicU64::new(UNSET),
        };
        Self {
            slots: (0..messages).map(slot).collect(),
            subscribers,
            origin: Instant::now(),
        }
    }

    /// Takes the slot of message `number`, unless the message before it there is still under way.
    fn begin(&self, number: u64) -> bool {
        let slot = self.slot(number);
        if !slot.free.swap(false, Ordering::Acquire) {
            return false;
        }
        slot.missing.store(self.subscribers, Ordering::Relaxed);
        slot.first.store(UNSET, Ordering::Relaxed);
        true
    }

    /// One subscriber has message `number`. For the last one: the nanoseconds since the first.
    fn received(&self, number: u64) -> Option<u64> {
        let slot = self.slot(number);
        if slot.first.load(Ordering::Relaxed) == UNSET {
            // Of several threads the first to come sets it.
            let unset = (UNSET, self.now());
            let order = Ordering::Relaxed;
            let _ = slot.first.compare_exchange(unset.0, unset.1, order, order);
        }
        if slot.missing.fetch_sub(1, Ordering::AcqRel) > 1 {
            return None;
        }
        let spread = self.now() - slot.first.load(Ordering::Relaxed);
        slot.free.store(true, Ordering::Release);
        Some(spread)
    }

    fn slot(&self, number: u64) -> &Slot {
        &self.slots[(number % self.slots.len() as u64) as usize]
    }

    fn now(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }
}

pub(super) struct Fanout {
    board: &'static Board,
    window: Arc<Window>,
    thread: u32,
    message: Vec<u8>,
    /// By client number.
    progress: Vec<Progress>,
    published: u64,
    delivered: u64,
    completed: u64,
    draining: bool,
}

/// How far a subscriber is.
#[derive(Clone, Copy, Default)]
struct Progress {
    messages: u64,
    /// Of the next one.
    bytes: usize,
}

impl Fanout {
    /// For one thread's subscribers; the hub's thread publishes as well.
    pub(super) fn new(
        board: &'static Board,
        window: Arc<Window>,
        thread: u32,
        message_bytes: usize,
        subscribers: &[u32],
    ) -> Self {
        let places = subscribers
            .iter()
            .max()
            .map_or(0, |last| *last as usize + 1);
        Self {
            board,
            window,
            thread,
            message: vec![b'm'; message_bytes],
            progress: vec![Progress::default(); places],
            published: 0,
            delivered: 0,
            completed: 0,
            draining: false,
        }
    }

    fn publish(&mut self, out: &mut Output) {
        let first = self.published;
        while !self.draining && self.window.begin(self.published) {
            self.published += 1;
            out.send_trunk(0, &[&self.message]);
        }
        let deliveries = (self.published - first) * u64::from(self.window.subscribers);
        if deliveries > 0 {
            let expected = &self.board.load.expected;
            expected.fetch_add(deliveries, Ordering::Release);
        }
    }
}

impl Pattern for Fanout {
    fn on_client(&mut self, subscriber: u32, bytes: &[u8], out: &mut Output) {
        let progress = &mut self.progress[subscriber as usize];
        progress.bytes += bytes.len();
        while progress.bytes >= self.message.len() {
            progress.bytes -= self.message.len();
            let number = progress.messages;
            progress.messages += 1;
            self.delivered += 1;
            if let Some(spread) = self.window.received(number) {
                self.completed += 1;
                self.board.load.spread.record(spread);
                if self.thread != HUB {
                    // That there is mail is all the hub has to know.
                    out.mail(HUB, &[&[0]]);
                }
            }
        }
    }

    fn on_trunk(&mut self, trunk: usize, bytes: &[u8], out: &mut Output) {
        let n = bytes.len();
        out.faults
            .push(format!("the publisher received {n} bytes on trunk {trunk}"));
    }

    fn drain(&mut self) {
        self.draining = true;
    }

    fn end_turn(&mut self, out: &mut Output) {
        if self.thread == HUB {
            self.publish(out);
        }
        if self.delivered > 0 {
            let load = &self.board.load;
            // After what has been published, so that deliveries under way never seem fewer than
            // they are.
            let delivered = std::mem::take(&mut self.delivered);
            load.arrived.fetch_add(delivered, Ordering::Release);
            let completed = std::mem::take(&mut self.completed);
            load.messages.fetch_add(completed, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_over_when_the_last_subscriber_has_it() {
        let window = Window::new(2, 3);
        assert!(window.begin(0) && window.begin(1));
        assert!(!window.begin(2), "slot 0 is taken");
        assert_eq!(window.received(0), None);
        assert_eq!(window.received(0), None);
        assert_eq!(window.received(1), None);
        assert!(!window.begin(2));
        assert!(window.received(0).is_some());
        assert!(window.begin(2) && !window.begin(3));
    }
}
