//! The phases of an engine: connecting, then the calls that each phase allows, then the end.

use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use crate::error::{EngineError, Phase};
use crate::intervals::Collector;
use crate::session::Mail;
use crate::shards::Shards;
use crate::shared::{Shared, lock};

/// Delay of a start without a given time, in which all threads receive the command.
const START_DELAY: Duration = Duration::from_millis(10);

/// An engine after `connect`.
pub(crate) trait Running {
    fn shared(&self) -> &Shared;

    /// Return the phase, and the time since when it lasts if that is known.
    fn phase(&self) -> (Phase, Option<Instant>);

    /// Close the connections and join the threads; may be called again.
    fn close(&mut self);
}

/// An engine before or after `connect`. Any thread may call; every call but [`close`](Self::close)
/// returns at once.
pub(crate) struct LifeCycle<R: Running>(Mutex<Option<R>>);

impl<R: Running> LifeCycle<R> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Run `spawn` and keep its result, unless that was done before.
    pub(crate) fn connect(
        &self,
        spawn: impl FnOnce() -> Result<R, EngineError>,
    ) -> Result<(), EngineError> {
        let mut running = lock(&self.0);
        if running.is_some() {
            return Err(refusal("connect", running.as_ref()));
        }
        *running = Some(spawn()?);
        Ok(())
    }

    /// Run `act`, which returns `None` if the phase does not allow the call.
    pub(crate) fn call<T>(
        &self,
        call: &'static str,
        act: impl FnOnce(&mut R) -> Option<T>,
    ) -> Result<T, EngineError> {
        let mut running = lock(&self.0);
        let outcome = running.as_mut().and_then(act);
        outcome.ok_or_else(|| refusal(call, running.as_ref()))
    }

    /// Return the phase.
    pub(crate) fn phase(&self) -> Phase {
        let running = lock(&self.0);
        running
            .as_ref()
            .map_or(Phase::Idle, |running| running.phase().0)
    }

    /// Return a snapshot: `encode` gets the counts, the phase, and how many seconds that has
    /// lasted.
    pub(crate) fn progress(
        &self,
        encode: impl FnOnce(Option<&Shared>, Phase, f64) -> String,
    ) -> String {
        let running = lock(&self.0);
        let Some(running) = running.as_ref() else {
            return encode(None, Phase::Idle, 0.0);
        };
        let (phase, since) = running.phase();
        let shared = running.shared();
        let now = shared.clock.now();
        let elapsed = since.map(|since| now.saturating_duration_since(since));
        let elapsed_s = elapsed.unwrap_or_default().as_secs_f64();
        encode(Some(shared), phase, elapsed_s)
    }

    /// Close the engine, if it was connected; see [`Running::close`].
    pub(crate) fn close(&self) {
        if let Some(running) = lock(&self.0).as_mut() {
            running.close();
        }
    }
}

impl<R: Running> Drop for LifeCycle<R> {
    fn drop(&mut self) {
        self.close();
    }
}

fn refusal(call: &'static str, running: Option<&impl Running>) -> EngineError {
    let error = running.and_then(|running| running.shared().error());
    EngineError::State {
        call,
        phase: running.map_or(Phase::Idle, |running| running.phase().0),
        error: error.map(str::to_owned),
    }
}

/// Shards and report collector of an engine that measures for a planned time.
pub(crate) struct RunningMeasurement {
    shards: Shards,
    collector: Collector,
    warmup: Duration,
    duration: Duration,
    /// Time when the sweep begins.
    sweep: Option<Instant>,
    /// Time when the warm-up begins.
    start: Option<Instant>,
    stopped: Option<Instant>,
    /// Time when the result was first seen.
    done: OnceLock<Instant>,
}

impl RunningMeasurement {
    /// Return the warm-up and the measured phase take `times`, in seconds.
    pub(crate) fn new(shards: Shards, collector: Collector, times: (f64, f64)) -> Self {
        Self {
            shards,
            collector,
            warmup: Duration::from_secs_f64(times.0),
            duration: Duration::from_secs_f64(times.1),
            sweep: None,
            start: None,
            stopped: None,
            done: OnceLock::new(),
        }
    }

    /// Return the start that `at_ns` of the run's clock means; `None` is at once.
    pub(crate) fn start_ns(&self, at_ns: Option<u64>) -> u64 {
        let shared = self.shared();
        at_ns.unwrap_or_else(|| shared.run_clock.ns(shared.clock.now() + START_DELAY))
    }

    /// Begin the sweep or, without one or after it, the warm-up, at `at_ns` of the run's clock.
    /// Return `None` if the phase does not allow it.
    pub(crate) fn start(&mut self, at_ns: u64, has_sweep: bool) -> Option<()> {
        let at = self.shared().run_clock.instant(at_ns);
        match self.phase().0 {
            Phase::Connected if has_sweep => self.sweep = Some(at),
            Phase::Connected | Phase::Swept => self.start = Some(at),
            _ => return None,
        }
        self.shards.post(Mail::Start(at));
        Some(())
    }

    /// End the run early.
    pub(crate) fn stop(&mut self) -> Option<()> {
        self.start.or(self.sweep)?;
        let now = self.shared().clock.now();
        self.stopped.get_or_insert(now);
        self.shards.post(Mail::Stop);
        Some(())
    }

    /// Return everything measured, once it is done.
    pub(crate) fn result(&self) -> Option<String> {
        self.collector.result().map(str::to_owned)
    }
}

impl Running for RunningMeasurement {
    fn shared(&self) -> &Shared {
        &self.shards.shared
    }

    fn phase(&self) -> (Phase, Option<Instant>) {
        let shared = self.shared();
        let now = shared.clock.now();
        if self.collector.result().is_some() {
            return (Phase::Done, Some(*self.done.get_or_init(|| now)));
        }
        if shared.error().is_some() {
            return (Phase::Failed, None);
        }
        if let Some(stopped) = self.stopped {
            return (Phase::Draining, Some(stopped));
        }
        let Some(start) = self.start else {
            let is_swept =
                shared.total(|counters| &counters.swept) as usize == shared.counters.len();
            return match (self.sweep, shared.connected()) {
                (Some(sweep), _) if is_swept => (Phase::Swept, Some(sweep)),
                (Some(sweep), _) => (Phase::Sweep, Some(sweep)),
                (None, Some(connected)) => (Phase::Connected, Some(connected)),
                (None, None) => (Phase::Connecting, Some(shared.began)),
            };
        };
        let measuring = start + self.warmup;
        let end = measuring + self.duration;
        if now < measuring {
            (Phase::Warmup, Some(start))
        } else if now < end || shared.total(|counters| &counters.sending) > 0 {
            (Phase::Measuring, Some(measuring))
        } else {
            (Phase::Draining, Some(end))
        }
    }

    fn close(&mut self) {
        self.shards.close();
        self.collector.join();
    }
}
