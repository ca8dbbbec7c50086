//! How a requestor's thread goes through its run: idle, running, done; and what it tells the collector
//! and whoever watches.

use std::time::{Duration, Instant};

use reactor::{Handler, Io};

use crate::intervals::Reporter;
use crate::run::{Run, Totals};
use crate::schedule::PACING_NS;
use crate::shared::{Gauges, publish};

enum State {
    Idle(Box<Run>),
    Running { run: Box<Run>, start: Instant },
    Done,
}

/// See the module. Times are nanoseconds since the start.
pub(crate) struct Course {
    state: State,
    /// When the bytes that are being handed out were received.
    received_at: u64,
    reporter: Reporter<Box<Totals>>,
}

impl Course {
    pub(crate) fn new(run: Run, reporter: Reporter<Box<Totals>>) -> Self {
        Self {
            state: State::Idle(Box::new(run)),
            received_at: 0,
            reporter,
        }
    }

    /// Whether nothing has been started.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle(_))
    }

    /// The books, while the run lasts.
    #[inline]
    pub(crate) fn run(&mut self) -> Option<&mut Run> {
        match &mut self.state {
            State::Running { run, .. } => Some(run),
            _ => None,
        }
    }

    /// The books, and when the bytes that are being handed out were received.
    #[inline]
    pub(crate) fn run_at_receipt(&mut self) -> Option<(&mut Run, u64)> {
        let received_at = self.received_at;
        self.run().map(|run| (run, received_at))
    }

    /// Bytes have arrived.
    #[inline]
    pub(crate) fn handle_slice(&mut self) {
        if let Some(now) = self.elapsed() {
            self.received_at = now;
            self.report_intervals(now);
        }
    }

    /// The run begins at `at`; after a sweep, it goes on.
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

    /// Nothing more is sent; when that was, if there is a run.
    pub(crate) fn stop(&mut self) -> Option<u64> {
        let now = self.elapsed().unwrap_or(0);
        self.run()?.stop(now);
        Some(now)
    }

    /// Begins a turn of the run; how late it is, or `None` where there is nothing to do yet.
    #[inline]
    pub(crate) fn begin_turn<H: Handler>(
        &mut self,
        io: &mut Io<H>,
        gauges: &Gauges,
    ) -> Option<u64> {
        let Some(now) = self.elapsed() else {
            if let State::Running { start, .. } = &self.state {
                io.wake_at(*start);
            }
            return None;
        };
        self.report_intervals(now);
        if let Some(second) = self.run()?.poll_second(now) {
            gauges.publish_second(&second);
        }
        Some(now)
    }

    /// Tells whoever watches what became of the requests so far.
    #[inline]
    pub(crate) fn publish(&mut self, now: u64, gauges: &Gauges) {
        let Some(run) = self.run() else { return };
        let counts = run.so_far();
        publish(&gauges.sent, counts.sent);
        publish(&gauges.received, counts.received);
        publish(&gauges.timed_out, counts.timed_out);
        publish(&gauges.errors, counts.errors);
        publish(&gauges.outstanding, run.outstanding());
        publish(&gauges.sending, run.is_sending(now).into());
        if run.poll_swept(now) {
            publish(&gauges.swept, 1);
        }
    }

    /// Begins the next turn at `at`, but not at once.
    #[inline]
    pub(crate) fn wake_at<H: Handler>(&self, io: &mut Io<H>, now: u64, at: u64) {
        if let State::Running { start, .. } = &self.state {
            io.wake_at(*start + Duration::from_nanos(at.max(now + PACING_NS)));
        }
    }

    /// Closes the books and reports them.
    pub(crate) fn finish(&mut self, now: u64) {
        if let State::Running { run, .. } = std::mem::replace(&mut self.state, State::Done) {
            let (totals, last) = run.finish(now);
            self.reporter.finish(last, totals.into());
        }
    }

    /// Reports the intervals that are over at `now`.
    #[inline]
    fn report_intervals(&mut self, now: u64) {
        if let State::Running { run, .. } = &mut self.state
            && let Some(recorder) = run.recorder()
        {
            self.reporter.report_intervals(recorder, now);
        }
    }

    /// Nanoseconds since the start, once that has come.
    #[inline]
    fn elapsed(&self) -> Option<u64> {
        let State::Running { start, .. } = &self.state else {
            return None;
        };
        Instant::now()
            .checked_duration_since(*start)
            .map(|elapsed| elapsed.as_nanos() as u64)
    }
}
