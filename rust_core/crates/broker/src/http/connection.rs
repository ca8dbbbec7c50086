//! The state of an HTTP connection.

use std::time::{Duration, Instant};

use protocol::http::BodyDecoder;

use super::events::EventFormat;
use super::route::Call;
use crate::metrics::shard::InFlight;
use crate::transport::ListenerKind;

/// The longest time that a timer for a reply is set for: it cannot be cancelled, and most replies come soon.
const LONGEST_TIMER: Duration = Duration::from_secs(10);

/// An HTTP connection that has not become WebSocket.
pub(crate) struct Http {
    /// The listener that it came to, which says which requests it may make.
    pub(super) listener: ListenerKind,
    /// Bytes received and not read yet: the beginning of a head, or requests behind one that waits.
    pub(super) buffer: Vec<u8>,
    pub(crate) state: State,
    /// Time at which this state began; inside a head, at which its first byte came.
    pub(crate) since: Instant,
    /// Time at which the next timer for a reply fires, if one is set.
    timer_at: Option<Instant>,
    /// Whether the timer for the time that requests may take is set.
    pub(crate) is_watched: bool,
    /// Whether it has come to the monitor while all callers were busy, and is served no other pages than
    /// health.
    pub(crate) is_for_health: bool,
}

/// The event that the connection waits for.
pub(crate) enum State {
    /// The first request.
    New,
    /// The next request.
    Idle,
    /// The rest of a head.
    Head,
    /// The rest of a body.
    Body(Box<Incoming>),
    /// A reply to be given as the answer.
    Reply(Waiting),
    /// Its turn among the requests to the monitor.
    Queued(Box<Call>),
    /// The shards' answers to the monitor's question.
    Survey(Asking),
    /// No event: it is sent events of this format.
    Events(EventFormat),
}

/// A request whose body has not all come.
pub(crate) struct Incoming {
    pub(super) call: Call,
    pub(super) decoder: BodyDecoder,
    pub(super) body: Vec<u8>,
}

/// A request whose reply has not come.
pub(crate) struct Waiting {
    /// The random part of the reply subject, without which no message is the reply.
    pub(super) token: u64,
    pub(super) deadline: Instant,
    pub(super) timeout: Duration,
    pub(super) keep_alive: bool,
    pub(super) origin: Option<Box<str>>,
    pub(super) _in_flight: InFlight,
}

impl Waiting {
    /// Return when the request was published.
    pub(super) fn begun(&self) -> Instant {
        self.deadline
            .checked_sub(self.timeout)
            .unwrap_or(self.deadline)
    }
}

/// A request to the monitor whose answer the shards are asked for.
pub(crate) struct Asking {
    /// Number of the survey.
    pub(crate) number: u32,
    pub(crate) deadline: Instant,
    pub(crate) keep_alive: bool,
    pub(crate) head_only: bool,
}

impl Asking {
    /// Return the call that asked, as far as its answer needs it.
    pub(crate) fn call(&self, is_draining: bool) -> Call {
        Call {
            keep_alive: self.keep_alive && !is_draining,
            head_only: self.head_only,
            ..Call::default()
        }
    }
}

impl Http {
    /// Return a connection that came at `now`.
    pub(crate) fn new(listener: ListenerKind, now: Instant) -> Self {
        Self {
            listener,
            buffer: Vec::new(),
            state: State::New,
            since: now,
            timer_at: None,
            is_watched: false,
            is_for_health: false,
        }
    }

    /// Return whether it is between two requests, or before the first one.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.state, State::New | State::Idle)
    }

    /// Return whether a request is under way that is answered later.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(
            self.state,
            State::Reply(_) | State::Queued(_) | State::Survey(_)
        )
    }

    /// Return the format of the events that it is sent, if it is.
    pub(crate) fn events(&self) -> Option<EventFormat> {
        match self.state {
            State::Events(format) => Some(format),
            _ => None,
        }
    }

    /// Return the bytes of received input that are kept.
    pub(crate) fn kept_bytes(&self) -> usize {
        let body = match &self.state {
            State::Body(incoming) => incoming.body.capacity(),
            _ => 0,
        };
        self.buffer.capacity() + body
    }

    /// Begin to wait for another event; return the former state.
    pub(crate) fn enter(&mut self, state: State, now: Instant) -> State {
        self.since = now;
        std::mem::replace(&mut self.state, state)
    }

    /// Note that a timer is to be set for an event that is due after `left`; `None` if one fires soon
    /// enough.
    pub(crate) fn next_timer(&mut self, now: Instant, left: Duration) -> Option<Duration> {
        let after = left.min(LONGEST_TIMER);
        if self.timer_at.is_some_and(|at| at <= now + after) {
            return None;
        }
        self.timer_at = Some(now + after);
        Some(after)
    }

    /// Note that a timer has fired. Return false if another one has taken its place.
    pub(crate) fn note_timer(&mut self, now: Instant) -> bool {
        let is_due = self.timer_at.is_some_and(|at| at <= now);
        if is_due {
            self.timer_at = None;
        }
        is_due
    }

    /// End the wait for the reply to the request with this token.
    pub(super) fn take_waiting(&mut self, token: u64, now: Instant) -> Option<Waiting> {
        match &self.state {
            State::Reply(waiting) if waiting.token == token => {}
            _ => return None,
        }
        match self.enter(State::Idle, now) {
            State::Reply(waiting) => Some(waiting),
            _ => None,
        }
    }

    /// End the wait for a survey, if it is the right one.
    pub(crate) fn take_asking(
        &mut self,
        now: Instant,
        is_it: impl Fn(&Asking) -> bool,
    ) -> Option<Asking> {
        match &self.state {
            State::Survey(asking) if is_it(asking) => {}
            _ => return None,
        }
        match self.enter(State::Idle, now) {
            State::Survey(asking) => Some(asking),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::metrics::shard::{Counts, ShardMetrics};

    #[test]
    fn only_the_token_of_the_request_ends_the_wait() {
        let now = Instant::now();
        let counts = Counts::new(Arc::new(ShardMetrics::new()));
        let mut http = Http::new(ListenerKind::Http, now);
        assert!(http.take_waiting(0, now).is_none(), "nothing is waited for");
        let token = 0x0123_4567_89ab_cdef;
        let waiting = Waiting {
            token,
            deadline: now,
            timeout: Duration::ZERO,
            keep_alive: true,
            origin: None,
            _in_flight: counts.begin_in_flight(),
        };
        http.enter(State::Reply(waiting), now);
        for bit in 0..64 {
            assert!(http.take_waiting(token ^ 1 << bit, now).is_none(), "{bit}");
        }
        assert!(http.take_waiting(token, now).is_some());
        assert!(http.take_waiting(token, now).is_none(), "a second reply");
    }

    #[test]
    fn one_timer_is_set_for_several_deadlines() {
        let now = Instant::now();
        let mut http = Http::new(ListenerKind::Http, now);
        let second = Duration::from_secs(1);
        assert_eq!(http.next_timer(now, 5 * second), Some(5 * second));
        assert_eq!(http.next_timer(now, 7 * second), None, "looked at before");
        assert_eq!(http.next_timer(now, second), Some(second));
        assert!(!http.note_timer(now), "of another timer");
        assert!(http.note_timer(now + second));
        assert!(!http.note_timer(now + 5 * second), "the first timer");
        assert_eq!(http.next_timer(now, 60 * second), Some(LONGEST_TIMER));
    }
}
