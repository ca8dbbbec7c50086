//! The public interface of a broadcaster. Every call but `close`, which joins the threads, returns
//! at once.

use std::sync::Arc;

#[cfg(feature = "sim")]
use reactor::sim::Simulation;

use super::config::BroadcasterConfig;
use super::publishers::Publishers;
use super::report::{Sum, Totals};
use super::subscribers::Subscribers;
use super::window::{SharedWindow, Window};
use super::workload::Role;
use crate::dialer::Dialer;
use crate::error::{EngineError, Phase};
use crate::intervals::{self, IntervalRow};
use crate::lifecycle::{LifeCycle, Running, RunningMeasurement};
use crate::report::encode_requestor_progress;
use crate::runtime::Runtime;
use crate::shards::Shards;
use crate::shared::{Shared, share};
#[cfg(feature = "sim")]
use crate::sim::SimRuntime;
use crate::threads::ThreadRuntime;

/// Users who receive messages that publishers broadcast at planned times.
///
/// Calling order: [`connect`](Self::connect), wait for phase connected, [`start`](Self::start),
/// wait for phase done, [`result`](Self::result), [`close`](Self::close). Any thread may call.
pub struct Broadcaster {
    config: BroadcasterConfig,
    window: Arc<SharedWindow>,
    life: LifeCycle<RunningMeasurement>,
}

impl Broadcaster {
    /// Make an engine without any connection.
    #[must_use]
    pub fn new(config: BroadcasterConfig) -> Self {
        let window = Window::new(config.audience(), config.outstanding, config.list_messages);
        Self {
            config,
            window: Arc::new(SharedWindow::new(window)),
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

    /// Connect on shards of `simulation`; see [`Requestor::simulate`](crate::Requestor::simulate).
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
        let threads = config.threads + 1;
        let wanted = config.users + config.publishers;
        let clock = runtime.run_clock(config.clock_offset_ns);
        let shared = Arc::new(Shared::new(
            config.target.to_string(),
            wanted,
            threads,
            runtime.clock(),
            clock,
        ));
        let window = || Arc::clone(&self.window);
        let sum = Collected {
            sum: Sum::new(),
            window: window(),
            shared: Arc::clone(&shared),
        };
        let (reporter, collector) = runtime.collect(threads, sum)?;
        let publishers = Publishers::new(config, clock, window(), reporter.clone());
        let dialer = Dialer::unpaced(config.publishers, shared.began);
        let mut workloads = vec![(Role::Publish(publishers), dialer)];
        for thread in 0..config.threads {
            let (first, users) = share(config.users, config.threads, thread);
            let in_flight = share(config.connect_in_flight, config.threads, thread).1;
            let rate = config.connect_rate * f64::from(users) / f64::from(config.users);
            let users_of = (config.first_user + first, users);
            let subscribers = Subscribers::new(config, clock, users_of, window(), reporter.clone());
            let dialer = Dialer::new(users, in_flight, rate, shared.began);
            workloads.push((Role::Subscribe(subscribers), dialer));
        }
        drop(reporter);
        let (target, message_bytes) = (&config.target, config.message_bytes);
        let shards = Shards::start(runtime, shared, target, message_bytes, workloads)?;
        let times = (config.warmup_s, config.duration_s);
        Ok(RunningMeasurement::new(shards, collector, times))
    }

    /// Begin the warm-up; the measured phase and the drain follow by themselves.
    ///
    /// `at_ns` is when, in nanoseconds of the run's clock, for several processes to begin together;
    /// `None` is at once.
    ///
    /// # Errors
    /// [`EngineError::State`] unless all connections are ready and nothing was started.
    pub fn start(&self, at_ns: Option<u64>) -> Result<(), EngineError> {
        self.life.call("start", |measuring| {
            if measuring.phase().0 != Phase::Connected {
                return None;
            }
            let start = measuring.start_ns(at_ns);
            self.window.start.get_or_init(|| start);
            measuring.start(start, false)
        })
    }

    /// End early: publish no more, drain, and make the result of the measurements so far. A second
    /// call ends the drain, too.
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

    /// Return a snapshot as JSON: phase, error, time in this phase, counts. `sent` counts messages,
    /// `received` deliveries, `outstanding` messages that some user has not received. `timed_out`
    /// counts missing deliveries, `errors` messages that could not be published.
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

/// Totals of the threads that have ended, and the window that all threads share.
struct Collected {
    sum: Sum,
    window: Arc<SharedWindow>,
    shared: Arc<Shared>,
}

impl intervals::Sum<Totals> for Collected {
    fn add(&mut self, totals: Totals) {
        self.sum.add(totals);
    }

    fn encode(&self, intervals: &[IntervalRow]) -> String {
        let mut window = self.window.lock();
        window.retire(u64::MAX);
        self.sum.encode_result(&window, intervals, &self.shared)
    }
}
