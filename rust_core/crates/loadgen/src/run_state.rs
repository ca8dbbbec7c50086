//! State of a requestor's thread (idle, running, done), and its reports to the collector and to the
//! engine's owner.

use std::time::{Duration, Instant};

use reactor::Clock;

use crate::intervals::Reporter;
use crate::run::{Run, Totals};
use crate::schedule::PACING_NS;
use crate::session::Io;
use crate::shared::{ThreadCounters, set};

enum State {
    Idle(Box<Run>),
    Running { run: Box<Run>, start: Instant },
    Done,
}

/// State of the run on one thread. Times are nanoseconds since the start.
pub(crate) struct RunState {
    state: State,
    /// Time when the bytes that are being handed out were received.
    received_at: u64,
    reporter: Reporter<Box<Totals>>,
}

impl RunState {
    pub(crate) fn new(run: Run, reporter: Reporter<Box<Totals>>) -> Self {
        Self {
            state: State::Idle(Box::new(run)),
            received_at: 0,
            reporter,
        }
    }

    /// Return whether nothing has been started.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle(_))
    }

    /// Return the run, while it lasts.
    #[inline]
    pub(crate) fn run(&mut self) -> Option<&mut Run> {
        match &mut self.state {
            State::Running { run, .. } => Some(run),
            _ => None,
        }
    }

    /// Return the run, and the time of receipt of the bytes that are being handled.
    #[inline]
    pub(crate) fn run_at_receipt(&mut self) -> Option<(&mut Run, u64)> {
        let received_at = self.received_at;
        self.run().map(|run| (run, received_at))
    }

    /// Note that bytes have arrived.
    #[inline]
    pub(crate) fn handle_slice(&mut self, clock: &Clock) {
        if let Some(now) = self.elapsed(clock.now()) {
            self.received_at = now;
            self.report_intervals(now);
        }
    }

    /// Begin the run at `at`; after a sweep, begin the warm-up.
    pub(crate) fn start(&mut self, at: Instant) {
        self.state = match std::mem::replace(&mut self.state, State::Done) {
            State::Idle(run) => State::Running { run, start: at },
            State::Running { mut run, start } => {
                let start = if run.begin_warmup() { at } else { start };
                State::Running { run, start }
            }
            State::Done => State::Done,
        };
    }

    /// Stop sending at `now`; return that time since the start, if there is a run.
    pub(crate) fn stop(&mut self, now: Instant) -> Option<u64> {
        let now = self.elapsed(now).unwrap_or(0);
        self.run()?.stop(now);
        Some(now)
    }

    /// Begin a turn of the run; return the time since the start, or `None` before it.
    #[inline]
    pub(crate) fn begin_turn<L>(
        &mut self,
        io: &mut Io<L>,
        counters: &ThreadCounters,
    ) -> Option<u64> {
        let Some(now) = self.elapsed(io.clock().now()) else {
            if let State::Running { start, .. } = &self.state {
                io.wake_at(*start);
            }
            return None;
        };
        self.report_intervals(now);
        if let Some(second) = self.run()?.poll_second(now) {
            counters.set_second(&second);
        }
        Some(now)
    }

    /// Publish the outcomes of the requests so far in `counters`.
    #[inline]
    pub(crate) fn update_counters(&mut self, now: u64, counters: &ThreadCounters) {
        let Some(run) = self.run() else { return };
        let counts = run.so_far();
        set(&counters.sent, counts.sent);
        set(&counters.received, counts.received);
        set(&counters.timed_out, counts.timed_out);
        set(&counters.errors, counts.errors);
        set(&counters.outstanding, run.outstanding());
        set(&counters.sending, run.is_sending(now).into());
        if run.poll_swept(now) {
            set(&counters.swept, 1);
        }
    }

    /// Begin the next turn at `at`, but not at once.
    #[inline]
    pub(crate) fn wake_at<L>(&self, io: &mut Io<L>, now: u64, at: u64) {
        if let State::Running { start, .. } = &self.state {
            io.wake_at(*start + Duration::from_nanos(at.max(now + PACING_NS)));
        }
    }

    /// End the run and report its totals.
    pub(crate) fn finish(&mut self, now: u64) {
        if let State::Running { run, .. } = std::mem::replace(&mut self.state, State::Done) {
            let (totals, last) = run.finish(now);
            self.reporter.finish(last, totals.into());
        }
    }

    /// Report the intervals that are over at `now`.
    #[inline]
    fn report_intervals(&mut self, now: u64) {
        if let State::Running { run, .. } = &mut self.state
            && let Some(recorder) = run.recorder()
        {
            self.reporter.report_intervals(recorder, now);
        }
    }

    /// Return the nanoseconds from the start to `now`; `None` before the start.
    #[inline]
    fn elapsed(&self, now: Instant) -> Option<u64> {
        let State::Running { start, .. } = &self.state else {
            return None;
        };
        now.checked_duration_since(*start)
            .map(|elapsed| elapsed.as_nanos() as u64)
    }
}
