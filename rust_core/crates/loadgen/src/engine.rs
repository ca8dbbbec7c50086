//! The engines as their owner sees them: begin, watch, end. Every call returns at once but
//! `close`, which joins the threads.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::client::{Mail, Workload};
use crate::config::{ProviderConfig, RequestorConfig};
use crate::course::{Report, Spares};
use crate::crew::{Crew, EngineError, share};
use crate::dialer::Dialer;
use crate::http::Callers;
use crate::provider::Providers;
use crate::report::{
    Collector, Phase, encode_provider_progress, encode_provider_result, encode_requestor_progress,
};
use crate::requestor::Users;
use crate::shared::Shared;

/// Provider connections in the making at once.
pub(crate) const PROVIDERS_IN_FLIGHT: u32 = 64;
/// Time for all threads to hear of the start before it comes.
pub(crate) const START_DELAY: Duration = Duration::from_millis(10);
/// Reports that wait for the collector, per thread, before a thread waits for it.
pub(crate) const REPORTS_PER_THREAD: usize = 64;

/// Locks what is only ever held for a moment and never left half-changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Requesting {
    crew: Crew,
    collector: Option<JoinHandle<()>>,
    result: Arc<OnceLock<String>>,
    /// When the sweep begins.
    sweep: Option<Instant>,
    /// When the warm-up begins.
    start: Option<Instant>,
    stopped: Option<Instant>,
    done: Option<Instant>,
}

/// Users who send requests at planned times and measure the replies.
///
/// Calling order: [`connect`](Self::connect), wait for phase connected, [`start`](Self::start), wait
/// for phase done, [`result`](Self::result), [`close`](Self::close). With a sweep `start` begins that,
/// and a second `start`, in phase swept, the warm-up: so several processes go on together. Any thread
/// may call.
pub struct Requestor {
    config: RequestorConfig,
    running: Mutex<Option<Requesting>>,
}

impl Requestor {
    /// Opens nothing yet.
    #[must_use]
    pub fn new(config: RequestorConfig) -> Self {
        Self {
            config,
            running: Mutex::new(None),
        }
    }

    /// Starts the threads and the connect phase.
    ///
    /// # Errors
    /// [`EngineError::State`] when it was called before, [`EngineError::Descriptors`] or
    /// [`EngineError::System`].
    pub fn connect(&self) -> Result<(), EngineError> {
        let mut running = lock(&self.running);
        if let Some(requesting) = &*running {
            return Err(self.refusal("connect", Some(requesting)));
        }
        let config = &self.config;
        let shared = Shared::new(config.target.to_string(), config.users, config.threads);
        let (shared, spares) = (Arc::new(shared), Spares::default());
        let (reporter, reports) = sync_channel(config.threads as usize * REPORTS_PER_THREAD);
        let crew = if config.target.transport.is_http() {
            self.spawn(&shared, reporter, &spares, Callers::new)?
        } else {
            self.spawn(&shared, reporter, &spares, Users::new)?
        };
        let result = Arc::new(OnceLock::new());
        let collector = Collector::new(config.threads, spares);
        let collector = {
            let result = Arc::clone(&result);
            std::thread::Builder::new()
                .name("loadgen-collect".into())
                .spawn(move || collector.run(&reports, &shared, &result))
        };
        let mut requesting = Requesting {
            crew,
            collector: None,
            result,
            sweep: None,
            start: None,
            stopped: None,
            done: None,
        };
        match collector {
            Ok(collector) => requesting.collector = Some(collector),
            Err(error) => {
                requesting.crew.join();
                return Err(EngineError::System(format!("thread: {error}")));
            }
        }
        *running = Some(requesting);
        Ok(())
    }

    /// Starts the threads, each with the workload that `new` makes of its share of the users.
    fn spawn<W: Workload>(
        &self,
        shared: &Arc<Shared>,
        reporter: SyncSender<Report>,
        spares: &Spares,
        new: impl Fn(&RequestorConfig, u32, u32, u32, SyncSender<Report>, Spares) -> W,
    ) -> Result<Crew, EngineError> {
        let config = &self.config;
        let workloads = (0..config.threads).map(|thread| {
            let (first, users) = share(config.users, config.threads, thread);
            let in_flight = share(config.connect_in_flight, config.threads, thread).1;
            let rate = config.connect_rate * f64::from(users) / f64::from(config.users);
            let first = config.first_user + first;
            let workload = new(
                config,
                thread,
                first,
                users,
                reporter.clone(),
                spares.clone(),
            );
            (workload, Dialer::new(users, in_flight, rate))
        });
        let workloads = workloads.collect();
        let max_payload = config.request_bytes.max(config.reply_bytes);
        let (shared, target) = (Arc::clone(shared), &config.target);
        Crew::spawn(shared, target, max_payload, config.driver, workloads)
    }

    /// Begins the warm-up; the measured phase and the drain follow by themselves. With a sweep begins
    /// that first, and the warm-up when called again after it.
    ///
    /// # Errors
    /// [`EngineError::State`] unless all connections are ready and nothing was started, or the sweep
    /// is over.
    pub fn start(&self) -> Result<(), EngineError> {
        let mut running = lock(&self.running);
        let Some(requesting) = running.as_mut() else {
            return Err(self.refusal("start", None));
        };
        let start = Instant::now() + START_DELAY;
        match self.phase(requesting).0 {
            Phase::Connected if self.config.sweep => requesting.sweep = Some(start),
            Phase::Connected | Phase::Swept => requesting.start = Some(start),
            _ => return Err(self.refusal("start", Some(requesting))),
        }
        requesting.crew.post(Mail::Start(start));
        Ok(())
    }

    /// Ends early: sends no more, drains, and makes the result of what was measured.
    ///
    /// # Errors
    /// [`EngineError::State`] when nothing was started.
    pub fn stop(&self) -> Result<(), EngineError> {
        let mut running = lock(&self.running);
        match running.as_mut() {
            Some(requesting) if requesting.start.or(requesting.sweep).is_some() => {
                requesting.stopped.get_or_insert_with(Instant::now);
                requesting.crew.post(Mail::Stop);
                Ok(())
            }
            requesting => Err(self.refusal("stop", requesting.as_deref())),
        }
    }

    /// A snapshot as JSON: phase, error, time in this phase, counts.
    #[must_use]
    pub fn progress(&self) -> String {
        let mut running = lock(&self.running);
        let Some(requesting) = running.as_mut() else {
            return encode_requestor_progress(None, Phase::Idle, 0.0);
        };
        let (phase, since) = self.phase(requesting);
        if phase == Phase::Done {
            requesting.done.get_or_insert_with(Instant::now);
        }
        let elapsed_s = since.map_or(0.0, |since| since.elapsed().as_secs_f64());
        encode_requestor_progress(Some(&requesting.crew.shared), phase, elapsed_s)
    }

    /// Everything measured, as JSON.
    ///
    /// # Errors
    /// [`EngineError::State`] before phase done.
    pub fn result(&self) -> Result<String, EngineError> {
        let running = lock(&self.running);
        let result = running
            .as_ref()
            .and_then(|requesting| requesting.result.get());
        result
            .cloned()
            .ok_or_else(|| self.refusal("result", running.as_ref()))
    }

    /// Closes the connections and joins the threads. May be called at any time and more than once;
    /// what was measured stays readable.
    pub fn close(&self) {
        if let Some(requesting) = lock(&self.running).as_mut() {
            requesting.crew.join();
            if let Some(collector) = requesting.collector.take() {
                // It has nothing that could panic but an engine's own defect, which shows as a
                // missing result.
                let _ = collector.join();
            }
        }
    }

    /// The phase, and since when, where that is known.
    fn phase(&self, requesting: &Requesting) -> (Phase, Option<Instant>) {
        let shared = &requesting.crew.shared;
        if requesting.result.get().is_some() {
            return (Phase::Done, requesting.done);
        }
        if shared.error().is_some() {
            return (Phase::Failed, None);
        }
        if let Some(stopped) = requesting.stopped {
            return (Phase::Draining, Some(stopped));
        }
        let Some(start) = requesting.start else {
            let is_swept = shared.total(|gauges| &gauges.swept) as usize == shared.gauges.len();
            return match (requesting.sweep, shared.connected()) {
                (Some(sweep), _) if is_swept => (Phase::Swept, Some(sweep)),
                (Some(sweep), _) => (Phase::Sweep, Some(sweep)),
                (None, Some(connected)) => (Phase::Connected, Some(connected)),
                (None, None) => (Phase::Connecting, Some(shared.began)),
            };
        };
        let measuring = start + Duration::from_secs_f64(self.config.warmup_s);
        let end = measuring + Duration::from_secs_f64(self.config.duration_s);
        let now = Instant::now();
        if now < measuring {
            (Phase::Warmup, Some(start))
        } else if now < end || shared.total(|gauges| &gauges.sending) > 0 {
            (Phase::Measuring, Some(measuring))
        } else {
            (Phase::Draining, Some(end))
        }
    }

    fn refusal(&self, call: &'static str, requesting: Option<&Requesting>) -> EngineError {
        let phase = requesting.map_or(Phase::Idle, |requesting| self.phase(requesting).0);
        let error = requesting.and_then(|requesting| requesting.crew.shared.error());
        EngineError::State {
            call,
            phase,
            error: error.map(str::to_owned),
        }
    }
}

impl Drop for Requestor {
    fn drop(&mut self) {
        self.close();
    }
}

struct Providing {
    crew: Crew,
    /// Connections that were there when the end was asked for, and when that was.
    stopped: Option<(u32, Instant)>,
}

/// Providers who answer the requests on their subjects as soon as they are connected.
///
/// Calling order: [`connect`](Self::connect), wait for phase connected, [`stop`](Self::stop), wait
/// for phase done, [`result`](Self::result), [`close`](Self::close). Any thread may call.
pub struct Provider {
    config: ProviderConfig,
    running: Mutex<Option<Providing>>,
}

impl Provider {
    /// Opens nothing yet.
    #[must_use]
    pub fn new(config: ProviderConfig) -> Self {
        Self {
            config,
            running: Mutex::new(None),
        }
    }

    /// Starts the threads and the connect phase.
    ///
    /// # Errors
    /// As for [`Requestor::connect`].
    pub fn connect(&self) -> Result<(), EngineError> {
        let mut running = lock(&self.running);
        if let Some(providing) = &*running {
            return Err(refusal("connect", Some(providing)));
        }
        let config = &self.config;
        let shared = Arc::new(Shared::new(
            config.target.to_string(),
            config.providers,
            config.threads,
        ));
        let workloads = (0..config.threads).map(|thread| {
            let (first, providers) = share(config.providers, config.threads, thread);
            let workload = Providers::new(config.first_provider + first, config.reply_bytes);
            (workload, Dialer::new(providers, PROVIDERS_IN_FLIGHT, 0.0))
        });
        let workloads = workloads.collect();
        let crew = {
            let (target, driver) = (&config.target, config.driver);
            Crew::spawn(shared, target, config.reply_bytes, driver, workloads)?
        };
        *running = Some(Providing {
            crew,
            stopped: None,
        });
        Ok(())
    }

    /// Ends answering; the counts so far become the result.
    ///
    /// # Errors
    /// [`EngineError::State`] when nothing was connected.
    pub fn stop(&self) -> Result<(), EngineError> {
        let mut running = lock(&self.running);
        let Some(providing) = running.as_mut() else {
            return Err(refusal("stop", None));
        };
        providing.end();
        Ok(())
    }

    /// A snapshot as JSON: phase, error, time in this phase, counts.
    #[must_use]
    pub fn progress(&self) -> String {
        let running = lock(&self.running);
        let Some(providing) = running.as_ref() else {
            return encode_provider_progress(None, Phase::Idle, 0.0);
        };
        let (phase, since) = providing.phase();
        let elapsed_s = since.map_or(0.0, |since| since.elapsed().as_secs_f64());
        encode_provider_progress(Some(&providing.crew.shared), phase, elapsed_s)
    }

    /// The counts, as JSON.
    ///
    /// # Errors
    /// [`EngineError::State`] before phase done.
    pub fn result(&self) -> Result<String, EngineError> {
        let running = lock(&self.running);
        match running.as_ref() {
            Some(providing) if providing.phase().0 == Phase::Done => {
                let connections = providing.stopped.map_or(0, |(connections, _)| connections);
                Ok(encode_provider_result(&providing.crew.shared, connections))
            }
            providing => Err(refusal("result", providing)),
        }
    }

    /// Closes the connections and joins the threads. May be called at any time and more than once;
    /// the counts stay readable.
    pub fn close(&self) {
        if let Some(providing) = lock(&self.running).as_mut() {
            providing.end();
            providing.crew.join();
        }
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.close();
    }
}

impl Providing {
    fn end(&mut self) {
        let ready = self.crew.shared.ready();
        self.stopped.get_or_insert_with(|| (ready, Instant::now()));
        self.crew.post(Mail::Close);
    }

    fn phase(&self) -> (Phase, Option<Instant>) {
        let shared = &self.crew.shared;
        if shared.error().is_some() {
            return (Phase::Failed, None);
        }
        match (self.stopped, shared.connected()) {
            (Some((_, stopped)), _) if shared.has_ended() => (Phase::Done, Some(stopped)),
            (_, Some(connected)) => (Phase::Connected, Some(connected)),
            (_, None) => (Phase::Connecting, Some(shared.began)),
        }
    }
}

fn refusal(call: &'static str, providing: Option<&Providing>) -> EngineError {
    let phase = providing.map_or(Phase::Idle, |providing| providing.phase().0);
    let error = providing.and_then(|providing| providing.crew.shared.error());
    EngineError::State {
        call,
        phase,
        error: error.map(str::to_owned),
    }
}
