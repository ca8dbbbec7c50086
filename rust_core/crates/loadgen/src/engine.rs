//! Requestors and providers as their owner sees them: begin, watch, end. Every call returns at once
//! but `close`, which joins the threads.

use std::sync::Arc;
use std::time::Instant;

use crate::backlog::Waits;
use crate::client::Mail;
use crate::clock::Clock;
use crate::config::{ProviderConfig, RequestorConfig};
use crate::crew::{Crew, EngineError, share};
use crate::dialer::Dialer;
use crate::http::Callers;
use crate::intervals::{self, Reporter};
use crate::lifecycle::{LifeCycle, Measuring, Running, START_DELAY};
use crate::provider::Providers;
use crate::report::{
    Phase, encode_provider_progress, encode_provider_result, encode_requestor_progress,
    encode_requestor_result,
};
use crate::requestor::Users;
use crate::run::Totals;
use crate::shared::Shared;
use crate::workload::Workload;

/// Users who send requests at planned times and measure the replies.
///
/// Calling order: [`connect`](Self::connect), wait for phase connected, [`start`](Self::start), wait
/// for phase done, [`result`](Self::result), [`close`](Self::close). With a sweep `start` begins that,
/// and a second `start`, in phase swept, the warm-up: so several processes go on together. Any thread
/// may call.
pub struct Requestor {
    config: RequestorConfig,
    life: LifeCycle<Measuring>,
}

impl Requestor {
    /// Opens nothing yet.
    #[must_use]
    pub fn new(config: RequestorConfig) -> Self {
        Self {
            config,
            life: LifeCycle::new(),
        }
    }

    /// Starts the threads and the connect phase.
    ///
    /// # Errors
    /// [`EngineError::State`] when it was called before, [`EngineError::Descriptors`] or
    /// [`EngineError::System`].
    pub fn connect(&self) -> Result<(), EngineError> {
        self.life.connect(|| self.spawn())
    }

    fn spawn(&self) -> Result<Measuring, EngineError> {
        let config = &self.config;
        let shared = Shared::new(config.target.to_string(), config.users, config.threads);
        let shared = Arc::new(shared);
        let (reporter, reports) = intervals::channel(config.threads);
        let crew = if config.target.transport.is_http() {
            self.spawn_crew(&shared, reporter, Callers::new)?
        } else {
            self.spawn_crew(&shared, reporter, Users::new)?
        };
        Measuring::spawn(crew, (config.warmup_s, config.duration_s), move || {
            let mut sum: Option<Box<Totals>> = None;
            let intervals = reports.collect(|totals| match &mut sum {
                None => sum = Some(totals),
                Some(sum) => sum.add(&totals),
            })?;
            Some(encode_requestor_result(&*sum?, &intervals, &shared))
        })
    }

    /// Starts the threads, each with the workload that `new` makes of its share of the users.
    fn spawn_crew<W: Workload>(
        &self,
        shared: &Arc<Shared>,
        reporter: Reporter<Box<Totals>>,
        new: impl Fn(&RequestorConfig, u32, u32, u32, Reporter<Box<Totals>>) -> W,
    ) -> Result<Crew, EngineError> {
        let config = &self.config;
        let workloads = (0..config.threads).map(|thread| {
            let (first, users) = share(config.users, config.threads, thread);
            let in_flight = share(config.connect_in_flight, config.threads, thread).1;
            let rate = config.connect_rate * f64::from(users) / f64::from(config.users);
            let first = config.first_user + first;
            let workload = new(config, thread, first, users, reporter.clone());
            (workload, Dialer::new(users, in_flight, rate))
        });
        let workloads = workloads.collect();
        drop(reporter);
        let max_payload = config.request_bytes.max(config.reply_bytes);
        let (shared, target) = (Arc::clone(shared), &config.target);
        Crew::spawn(shared, target, max_payload, config.driver, workloads)
    }

    /// Begins the warm-up; the measured phase and the drain follow by themselves. With a sweep begins
    /// that first, and the warm-up when called again after it.
    ///
    /// `at_ns` is when, in nanoseconds of the run's clock, for several processes to begin together;
    /// `None` is at once. What was due before it was heard of is sent late.
    ///
    /// # Errors
    /// [`EngineError::State`] unless all connections are ready and nothing was started, or the sweep
    /// is over.
    pub fn start(&self, at_ns: Option<u64>) -> Result<(), EngineError> {
        let clock = Clock::new(self.config.clock_offset_ns);
        let soon = || Instant::now() + START_DELAY;
        let at = at_ns.map_or_else(soon, |at| clock.instant_of(at));
        let has_sweep = self.config.sweep;
        self.life
            .call("start", |measuring| measuring.start(at, has_sweep))
    }

    /// Ends early: sends no more, drains, and makes the result of what was measured. Told so again, it
    /// drains no longer: what is outstanding has timed out.
    ///
    /// # Errors
    /// [`EngineError::State`] when nothing was started.
    pub fn stop(&self) -> Result<(), EngineError> {
        self.life.call("stop", Measuring::stop)
    }

    /// A snapshot as JSON: phase, error, time in this phase, counts.
    #[must_use]
    pub fn progress(&self) -> String {
        self.life.progress(encode_requestor_progress)
    }

    /// Everything measured, as JSON.
    ///
    /// # Errors
    /// [`EngineError::State`] before phase done.
    pub fn result(&self) -> Result<String, EngineError> {
        self.life.call("result", |measuring| measuring.result())
    }

    /// Closes the connections and joins the threads. May be called at any time and more than once;
    /// what was measured stays readable.
    pub fn close(&self) {
        self.life.close();
    }
}

struct Providing {
    crew: Crew,
    /// Connections that were there when the end was asked for, and when that was.
    stopped: Option<(u32, Instant)>,
}

/// Providers who answer the requests on their subjects as soon as they are connected.
///
/// Calling order: [`connect`](Self::connect), wait for phase connected, [`start`](Self::start) where
/// they stall, [`stop`](Self::stop), wait for phase done, [`result`](Self::result),
/// [`close`](Self::close). Any thread may call.
pub struct Provider {
    config: ProviderConfig,
    life: LifeCycle<Providing>,
}

impl Provider {
    /// Opens nothing yet.
    #[must_use]
    pub fn new(config: ProviderConfig) -> Self {
        Self {
            config,
            life: LifeCycle::new(),
        }
    }

    /// Starts the threads and the connect phase.
    ///
    /// # Errors
    /// As for [`Requestor::connect`].
    pub fn connect(&self) -> Result<(), EngineError> {
        self.life.connect(|| self.spawn())
    }

    fn spawn(&self) -> Result<Providing, EngineError> {
        let config = &self.config;
        let shared = Arc::new(Shared::new(
            config.target.to_string(),
            config.providers,
            config.threads,
        ));
        let (waits, epoch) = (Waits::of(config), Instant::now());
        let workloads = (0..config.threads).map(|thread| {
            let (first, providers) = share(config.providers, config.threads, thread);
            let workload = Providers::new(config.first_provider + first, config.reply_bytes);
            let workload = match &waits {
                Some(waits) => workload.with_waits(providers, waits.clone(), epoch),
                None => workload,
            };
            (workload, Dialer::unpaced(providers))
        });
        let workloads = workloads.collect();
        let (target, driver) = (&config.target, config.driver);
        Ok(Providing {
            crew: Crew::spawn(shared, target, config.reply_bytes, driver, workloads)?,
            stopped: None,
        })
    }

    /// Says when requests begin to be sent, from which on stalls are counted; `at_ns` as of
    /// [`Requestor::start`]. May be called again, for what follows a sweep.
    ///
    /// # Errors
    /// [`EngineError::State`] when nothing was connected, or after the end.
    pub fn start(&self, at_ns: Option<u64>) -> Result<(), EngineError> {
        let clock = Clock::new(self.config.clock_offset_ns);
        let at = at_ns.map_or_else(Instant::now, |at| clock.instant_of(at));
        self.life.call("start", |providing| {
            let is_running = providing.stopped.is_none();
            is_running.then(|| providing.crew.post(Mail::Start(at)))
        })
    }

    /// Ends answering, once the replies that wait have left, which is at once; the counts so far become
    /// the result.
    ///
    /// # Errors
    /// [`EngineError::State`] when nothing was connected.
    pub fn stop(&self) -> Result<(), EngineError> {
        self.life.call("stop", |providing| {
            providing.stop(Mail::Stop);
            Some(())
        })
    }

    /// A snapshot as JSON: phase, error, time in this phase, counts.
    #[must_use]
    pub fn progress(&self) -> String {
        self.life.progress(encode_provider_progress)
    }

    /// The counts, as JSON.
    ///
    /// # Errors
    /// [`EngineError::State`] before phase done.
    pub fn result(&self) -> Result<String, EngineError> {
        self.life.call("result", |providing| {
            let is_done = providing.phase().0 == Phase::Done;
            let (connections, _) = providing.stopped.filter(|_| is_done)?;
            Some(encode_provider_result(providing.shared(), connections))
        })
    }

    /// Closes the connections and joins the threads. May be called at any time and more than once;
    /// the counts stay readable.
    pub fn close(&self) {
        self.life.close();
    }
}

impl Providing {
    fn stop(&mut self, mail: Mail) {
        let ready = self.crew.shared.ready();
        self.stopped.get_or_insert_with(|| (ready, Instant::now()));
        self.crew.post(mail);
    }
}

impl Running for Providing {
    fn shared(&self) -> &Shared {
        &self.crew.shared
    }

    fn phase(&self) -> (Phase, Option<Instant>) {
        let shared = self.shared();
        if shared.error().is_some() {
            return (Phase::Failed, None);
        }
        match (self.stopped, shared.connected()) {
            (Some((_, stopped)), _) if shared.has_ended() => (Phase::Done, Some(stopped)),
            (Some((_, stopped)), _) => (Phase::Draining, Some(stopped)),
            (_, Some(connected)) => (Phase::Connected, Some(connected)),
            (_, None) => (Phase::Connecting, Some(shared.began)),
        }
    }

    fn close(&mut self) {
        self.stop(Mail::Close);
        self.crew.join();
    }
}
