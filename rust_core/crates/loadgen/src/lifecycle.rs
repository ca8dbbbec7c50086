//! The life of an engine: told to connect once, then what its phase allows, and closed at the end.

use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::client::Mail;
use crate::crew::{Crew, EngineError};
use crate::report::Phase;
use crate::shared::{Shared, lock};

/// Time for all threads to hear of the start before it comes.
pub(crate) const START_DELAY: Duration = Duration::from_millis(10);

/// What an engine is from `connect` on.
pub(crate) trait Running {
    fn shared(&self) -> &Shared;

    /// The phase, and since when, where that is known.
    fn phase(&self) -> (Phase, Option<Instant>);

    /// Closes the connections and joins the threads; may be called again.
    fn close(&mut self);
}

/// An engine that may have been told to connect. Any thread may call; every call returns at once but
/// [`close`](Self::close).
pub(crate) struct LifeCycle<R: Running>(Mutex<Option<R>>);

impl<R: Running> LifeCycle<R> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Begins with what `spawn` starts, unless it was begun before.
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

    /// Does what `call` asks for; where the phase does not allow it, `act` returns `None`.
    pub(crate) fn call<T>(
        &self,
        call: &'static str,
        act: impl FnOnce(&mut R) -> Option<T>,
    ) -> Result<T, EngineError> {
        let mut running = lock(&self.0);
        let outcome = running.as_mut().and_then(act);
        outcome.ok_or_else(|| refusal(call, running.as_ref()))
    }

    /// A snapshot: `encode` gets the counts, the phase, and how many seconds that has lasted.
    pub(crate) fn progress(
        &self,
        encode: impl FnOnce(Option<&Shared>, Phase, f64) -> String,
    ) -> String {
        let running = lock(&self.0);
        let Some(running) = running.as_ref() else {
            return encode(None, Phase::Idle, 0.0);
        };
        let (phase, since) = running.phase();
        let elapsed_s = since.map_or(0.0, |since| since.elapsed().as_secs_f64());
        encode(Some(running.shared()), phase, elapsed_s)
    }

    /// See [`Running::close`]; nothing where it was not begun.
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

/// The threads of an engine that measures for a planned time, and the one that collects what they
/// report.
pub(crate) struct Measuring {
    crew: Crew,
    collector: Option<JoinHandle<()>>,
    result: Arc<OnceLock<String>>,
    warmup: Duration,
    duration: Duration,
    /// When the sweep begins.
    sweep: Option<Instant>,
    /// When the warm-up begins.
    start: Option<Instant>,
    stopped: Option<Instant>,
    /// When the result was first seen.
    done: OnceLock<Instant>,
}

impl Measuring {
    /// `collect` waits for the threads and makes the result; it has none where they end before their
    /// time. The warm-up and the measured phase take `times`, in seconds.
    pub(crate) fn spawn(
        mut crew: Crew,
        times: (f64, f64),
        collect: impl FnOnce() -> Option<String> + Send + 'static,
    ) -> Result<Self, EngineError> {
        let result = Arc::new(OnceLock::new());
        let collected = Arc::clone(&result);
        let collector = std::thread::Builder::new()
            .name("loadgen-collect".into())
            .spawn(move || {
                if let Some(result) = collect() {
                    collected.get_or_init(|| result);
                }
            });
        match collector {
            Ok(collector) => Ok(Self {
                crew,
                collector: Some(collector),
                result,
                warmup: Duration::from_secs_f64(times.0),
                duration: Duration::from_secs_f64(times.1),
                sweep: None,
                start: None,
                stopped: None,
                done: OnceLock::new(),
            }),
            Err(error) => {
                crew.join();
                Err(EngineError::System(format!("thread: {error}")))
            }
        }
    }

    /// Begins the sweep at `at` where there is one to come, else the warm-up, once all connections are
    /// ready or the sweep is over.
    pub(crate) fn start(&mut self, at: Instant, has_sweep: bool) -> Option<()> {
        match self.phase().0 {
            Phase::Connected if has_sweep => self.sweep = Some(at),
            Phase::Connected | Phase::Swept => self.start = Some(at),
            _ => return None,
        }
        self.crew.post(Mail::Start(at));
        Some(())
    }

    /// Ends early what was started.
    pub(crate) fn stop(&mut self) -> Option<()> {
        self.start.or(self.sweep)?;
        self.stopped.get_or_insert_with(Instant::now);
        self.crew.post(Mail::Stop);
        Some(())
    }

    /// Everything measured, once it is done.
    pub(crate) fn result(&self) -> Option<String> {
        self.result.get().cloned()
    }
}

impl Running for Measuring {
    fn shared(&self) -> &Shared {
        &self.crew.shared
    }

    fn phase(&self) -> (Phase, Option<Instant>) {
        let shared = self.shared();
        if self.result.get().is_some() {
            return (Phase::Done, Some(*self.done.get_or_init(Instant::now)));
        }
        if shared.error().is_some() {
            return (Phase::Failed, None);
        }
        if let Some(stopped) = self.stopped {
            return (Phase::Draining, Some(stopped));
        }
        let Some(start) = self.start else {
            let is_swept = shared.total(|gauges| &gauges.swept) as usize == shared.gauges.len();
            return match (self.sweep, shared.connected()) {
                (Some(sweep), _) if is_swept => (Phase::Swept, Some(sweep)),
                (Some(sweep), _) => (Phase::Sweep, Some(sweep)),
                (None, Some(connected)) => (Phase::Connected, Some(connected)),
                (None, None) => (Phase::Connecting, Some(shared.began)),
            };
        };
        let measuring = start + self.warmup;
        let end = measuring + self.duration;
        let now = Instant::now();
        if now < measuring {
            (Phase::Warmup, Some(start))
        } else if now < end || shared.total(|gauges| &gauges.sending) > 0 {
            (Phase::Measuring, Some(measuring))
        } else {
            (Phase::Draining, Some(end))
        }
    }

    fn close(&mut self) {
        self.crew.join();
        if let Some(collector) = self.collector.take() {
            // Only a defect of the engine could make it panic, which shows as a missing result.
            let _ = collector.join();
        }
    }
}
