//! The broadcaster as its owner sees it: begin, watch, end. Every call returns at once but `close`,
//! which joins the threads.

use std::sync::Arc;

use super::config::BroadcasterConfig;
use super::publishers::Publishers;
use super::report::Sum;
use super::subscribers::Subscribers;
use super::window::{Board, Window};
use super::workload::Role;
use crate::crew::{Crew, EngineError, share};
use crate::dialer::Dialer;
use crate::intervals;
use crate::lifecycle::{LifeCycle, Measuring, Running, START_DELAY};
use crate::report::{Phase, encode_requestor_progress};
use crate::shared::Shared;

/// Users who receive what publishers broadcast to them at planned times.
///
/// Calling order: [`connect`](Self::connect), wait for phase connected, [`start`](Self::start), wait
/// for phase done, [`result`](Self::result), [`close`](Self::close). Any thread may call.
pub struct Broadcaster {
    config: BroadcasterConfig,
    board: Arc<Board>,
    life: LifeCycle<Measuring>,
}

impl Broadcaster {
    /// Opens nothing yet.
    #[must_use]
    pub fn new(config: BroadcasterConfig) -> Self {
        let window = Window::new(config.audience(), config.outstanding, config.list_messages);
        Self {
            config,
            board: Arc::new(Board::new(window)),
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
        let threads = config.threads + 1;
        let wanted = config.users + config.publishers;
        let shared = Arc::new(Shared::new(config.target.to_string(), wanted, threads));
        let board = Arc::clone(&self.board);
        let (reporter, reports) = intervals::channel(threads);
        let publishers = Publishers::new(config, Arc::clone(&board), reporter.clone());
        let dialer = Dialer::unpaced(config.publishers);
        let mut workloads = vec![(Role::Publish(publishers), dialer)];
        for thread in 0..config.threads {
            let (first, users) = share(config.users, config.threads, thread);
            let in_flight = share(config.connect_in_flight, config.threads, thread).1;
            let rate = config.connect_rate * f64::from(users) / f64::from(config.users);
            let users_of = (config.first_user + first, users);
            let subscribers =
                Subscribers::new(config, users_of, Arc::clone(&board), reporter.clone());
            let dialer = Dialer::new(users, in_flight, rate);
            workloads.push((Role::Subscribe(subscribers), dialer));
        }
        drop(reporter);
        let crew = {
            let (shared, target) = (Arc::clone(&shared), &config.target);
            let max_payload = config.message_bytes;
            Crew::spawn(shared, target, max_payload, config.driver, workloads)?
        };
        Measuring::spawn(crew, (config.warmup_s, config.duration_s), move || {
            let mut sum = Sum::new();
            let intervals = reports.collect(|totals| sum.add(totals))?;
            let mut window = board.window();
            window.retire(u64::MAX);
            Some(sum.encode_result(&window, &intervals, &shared))
        })
    }

    /// Begins the warm-up; the measured phase and the drain follow by themselves.
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
            let clock = self.config.clock();
            let start = at_ns.unwrap_or_else(|| clock.now() + START_DELAY.as_nanos() as u64);
            self.board.start.get_or_init(|| start);
            measuring.start(clock.instant_of(start), false)
        })
    }

    /// Ends early: publishes no more, drains, and makes the result of what was measured. Told so again,
    /// it drains no longer.
    ///
    /// # Errors
    /// [`EngineError::State`] when nothing was started.
    pub fn stop(&self) -> Result<(), EngineError> {
        self.life.call("stop", Measuring::stop)
    }

    /// A snapshot as JSON: phase, error, time in this phase, counts. `sent` counts messages,
    /// `received` deliveries, `outstanding` messages that somebody has not received, `timed_out`
    /// deliveries that will never come, `errors` messages that could not be published.
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
