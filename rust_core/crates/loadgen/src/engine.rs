//! The public interface of requestors and providers. Every call but `close`, which joins the
//! threads, returns at once.

use std::sync::Arc;
use std::time::Instant;

#[cfg(feature = "sim")]
use reactor::sim::Simulation;

use crate::config::{ProviderConfig, RequestorConfig};
use crate::dialer::Dialer;
use crate::error::{EngineError, Phase};
use crate::http::HttpUsers;
use crate::intervals::{IntervalRow, Reporter, Sum};
use crate::lifecycle::{LifeCycle, Running, RunningMeasurement};
use crate::provider::Providers;
use crate::reply_queue::ReplyDelays;
use crate::report::{
    encode_provider_progress, encode_provider_result, encode_requestor_progress,
    encode_requestor_result,
};
use crate::requestor::Users;
use crate::run::Totals;
use crate::runtime::Runtime;
use crate::session::Mail;
use crate::shards::Shards;
use crate::shared::{Shared, share};
#[cfg(feature = "sim")]
use crate::sim::SimRuntime;
use crate::threads::ThreadRuntime;
use crate::workload::Workload;

/// Users who send requests at planned times and measure the replies.
///
/// Calling order: [`connect`](Self::connect), wait for phase connected, [`start`](Self::start), wait
/// for phase done, [`result`](Self::result), [`close`](Self::close). With a sweep `start` begins that,
/// and a second `start`, in phase swept, the warm-up: so several processes go on together. Any thread
/// may call.
pub struct Requestor {
    config: RequestorConfig,
    life: LifeCycle<RunningMeasurement>,
}

impl Requestor {
    /// Make an engine without any connection.
    #[must_use]
    pub fn new(config: RequestorConfig) -> Self {
        Self {
            config,
            life: LifeCycle::new(),
        }
    }

    /// Start the threads and the connect phase.
    ///
    /// # Errors
    /// [`EngineError::State`] when it was called before, [`EngineError::Descriptors`] or
    /// [`EngineError::System`].
    pub fn connect(&self) -> Result<(), EngineError> {
        let runtime = || ThreadRuntime::new(self.config.driver);
        self.life.connect(|| self.start_shards(&mut runtime()?))
    }

    /// Connect on shards of `simulation`, as [`connect`](Self::connect) does on threads: all other calls
    /// are the same, and work is done in the simulation's steps. Random choices follow from `seed`.
    ///
    /// # Errors
    /// As for `connect`.
    #[cfg(feature = "sim")]
    pub fn simulate(&self, simulation: &mut Simulation, seed: u64) -> Result<(), EngineError> {
        let mut runtime = SimRuntime::new(simulation, seed);
        self.life.connect(|| self.start_shards(&mut runtime))
    }

    fn start_shards(&self, runtime: &mut impl Runtime) -> Result<RunningMeasurement, EngineError> {
        let config = &self.config;
        let shared = Arc::new(Shared::new(
            config.target.to_string(),
            config.users,
            config.threads,
            runtime.clock(),
            runtime.run_clock(config.clock_offset_ns),
        ));
        let sum = RequestorSum {
            totals: None,
            shared: Arc::clone(&shared),
        };
        let (reporter, collector) = runtime.collect(config.threads, sum)?;
        let shards = if config.target.transport.is_http() {
            self.start_on_shards(runtime, shared, reporter, HttpUsers::new)?
        } else {
            self.start_on_shards(runtime, shared, reporter, Users::new)?
        };
        let times = (config.warmup_s, config.duration_s);
        Ok(RunningMeasurement::new(shards, collector, times))
    }

    /// Start the shards, each with the workload that `new` makes of its share of the users.
    fn start_on_shards<W: Workload>(
        &self,
        runtime: &mut impl Runtime,
        shared: Arc<Shared>,
        reporter: Reporter<Box<Totals>>,
        new: impl Fn(&RequestorConfig, u32, u32, u32, Reporter<Box<Totals>>) -> W,
    ) -> Result<Shards, EngineError> {
        let config = &self.config;
        let workloads = (0..config.threads).map(|thread| {
            let (first, users) = share(config.users, config.threads, thread);
            let in_flight = share(config.connect_in_flight, config.threads, thread).1;
            let rate = config.connect_rate * f64::from(users) / f64::from(config.users);
            let first = config.first_user + first;
            let workload = new(config, thread, first, users, reporter.clone());
            let dialer = Dialer::new(users, in_flight, rate, shared.began);
            (workload, dialer)
        });
        let workloads = workloads.collect();
        let max_payload = config.request_bytes.max(config.reply_bytes);
        Shards::start(runtime, shared, &config.target, max_payload, workloads)
    }

    /// Begin the warm-up; the measured phase and the drain follow by themselves. With a sweep
    /// begins that first, and the warm-up when called again after it.
    ///
    /// `at_ns` is when, in nanoseconds of the run's clock, for several processes to begin together;
    /// `None` is at once. What was due before it was heard of is sent late.
    ///
    /// # Errors
    /// [`EngineError::State`] unless all connections are ready and nothing was started, or the sweep
    /// is over.
    pub fn start(&self, at_ns: Option<u64>) -> Result<(), EngineError> {
        self.life.call("start", |measuring| {
            measuring.start(measuring.start_ns(at_ns), self.config.sweep)
        })
    }

    /// End early: send no more, drain, and make the result of the measurements so far. A second
    /// call ends the drain, too: outstanding requests count as timed out.
    ///
    /// # Errors
    /// [`EngineError::State`] if nothing was started.
    pub fn stop(&self) -> Result<(), EngineError> {
        self.life.call("stop", RunningMeasurement::stop)
    }

    /// Return the phase.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.life.phase()
    }

    /// Return a snapshot as JSON: phase, error, time in this phase, count.
    #[must_use]
    pub fn progress(&self) -> String {
        self.life.progress(encode_requestor_progress)
    }

    /// Return everything measured, as JSON.
    ///
    /// # Errors
    /// [`EngineError::State`] before phase done.
    pub fn result(&self) -> Result<String, EngineError> {
        self.life.call("result", |measuring| measuring.result())
    }

    /// Close the connections and join the threads. May be called at any time and more than once;
    /// the result stays readable.
    pub fn close(&self) {
        self.life.close();
    }
}

/// The totals of the threads that have ended.
struct RequestorSum {
    totals: Option<Box<Totals>>,
    shared: Arc<Shared>,
}

impl Sum<Box<Totals>> for RequestorSum {
    fn add(&mut self, totals: Box<Totals>) {
        match &mut self.totals {
            None => self.totals = Some(totals),
            Some(sum) => sum.add(&totals),
        }
    }

    fn encode(&self, intervals: &[IntervalRow]) -> String {
        let totals = self
            .totals
            .as_deref()
            .expect("every thread adds its totals");
        encode_requestor_result(totals, intervals, &self.shared)
    }
}

struct RunningProvider {
    shards: Shards,
    /// Number of connections at the call of `stop`, and the time of that call.
    stopped: Option<(u32, Instant)>,
}

/// Providers who answer the requests on their subjects as soon as they are connected.
///
/// Calling order: [`connect`](Self::connect), wait for phase connected, [`start`](Self::start) if
/// they stall, [`stop`](Self::stop), wait for phase done, [`result`](Self::result),
/// [`close`](Self::close). Any thread may call.
pub struct Provider {
    config: ProviderConfig,
    life: LifeCycle<RunningProvider>,
}

impl Provider {
    /// Make an engine without any connection.
    #[must_use]
    pub fn new(config: ProviderConfig) -> Self {
        Self {
            config,
            life: LifeCycle::new(),
        }
    }

    /// Start the threads and the connect phase.
    ///
    /// # Errors
    /// As for [`Requestor::connect`].
    pub fn connect(&self) -> Result<(), EngineError> {
        let runtime = || ThreadRuntime::new(self.config.driver);
        self.life.connect(|| self.start_shards(&mut runtime()?))
    }

    /// Connect on shards of `simulation`; see [`Requestor::simulate`].
    ///
    /// # Errors
    /// As for `connect`.
    #[cfg(feature = "sim")]
    pub fn simulate(&self, simulation: &mut Simulation, seed: u64) -> Result<(), EngineError> {
        let mut runtime = SimRuntime::new(simulation, seed);
        self.life.connect(|| self.start_shards(&mut runtime))
    }

    fn start_shards(&self, runtime: &mut impl Runtime) -> Result<RunningProvider, EngineError> {
        let config = &self.config;
        let shared = Arc::new(Shared::new(
            config.target.to_string(),
            config.providers,
            config.threads,
            runtime.clock(),
            runtime.run_clock(config.clock_offset_ns),
        ));
        let (waits, epoch) = (ReplyDelays::of(config), shared.began);
        let workloads = (0..config.threads).map(|thread| {
            let (first, providers) = share(config.providers, config.threads, thread);
            let workload = Providers::new(config.first_provider + first, config.reply_bytes);
            let workload = match &waits {
                Some(waits) => workload.with_delays(providers, waits.clone(), epoch),
                None => workload,
            };
            (workload, Dialer::unpaced(providers, epoch))
        });
        let workloads = workloads.collect();
        let (target, reply_bytes) = (&config.target, config.reply_bytes);
        Ok(RunningProvider {
            shards: Shards::start(runtime, shared, target, reply_bytes, workloads)?,
            stopped: None,
        })
    }

    /// Set the time at which requests begin, from which stalls are counted. `at_ns` is that of
    /// [`Requestor::start`]. May be called again for the phases after a sweep.
    ///
    /// # Errors
    /// [`EngineError::State`] before `connect` and after the end.
    pub fn start(&self, at_ns: Option<u64>) -> Result<(), EngineError> {
        self.life.call("start", |providing| {
            let Shared {
                clock, run_clock, ..
            } = providing.shared();
            let at = at_ns.map_or_else(|| clock.now(), |ns| run_clock.instant(ns));
            let is_running = providing.stopped.is_none();
            is_running.then(|| providing.shards.post(Mail::Start(at)))
        })
    }

    /// End answering, once the replies that wait have left, which is at once; the counts so far
    /// become the result.
    ///
    /// # Errors
    /// [`EngineError::State`] when nothing was connected.
    pub fn stop(&self) -> Result<(), EngineError> {
        self.life.call("stop", |providing| {
            providing.stop(Mail::Stop);
            Some(())
        })
    }

    /// Return the phase.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.life.phase()
    }

    /// Return a snapshot as JSON: phase, error, time in this phase, count.
    #[must_use]
    pub fn progress(&self) -> String {
        self.life.progress(encode_provider_progress)
    }

    /// Return the counts, as JSON.
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

    /// Close the connections and join the threads. May be called at any time and more than once;
    /// the counts stay readable.
    pub fn close(&self) {
        self.life.close();
    }
}

impl RunningProvider {
    fn stop(&mut self, mail: Mail) {
        let shared = &self.shards.shared;
        self.stopped
            .get_or_insert_with(|| (shared.ready(), shared.clock.now()));
        self.shards.post(mail);
    }
}

impl Running for RunningProvider {
    fn shared(&self) -> &Shared {
        &self.shards.shared
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
        self.shards.close();
    }
}
