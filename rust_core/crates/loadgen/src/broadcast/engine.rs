//! The broadcaster as its owner sees it: begin, watch, end. Every call returns at once but `close`,
//! which joins the threads.

use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::config::BroadcasterConfig;
use super::publishers::Publishers;
use super::report::Collector;
use super::subscribers::Subscribers;
use super::window::{Board, Window};
use super::workload::Role;
use crate::client::Mail;
use crate::clock::monotonic_ns;
use crate::course::Spares;
use crate::crew::{Crew, EngineError, share};
use crate::dialer::Dialer;
use crate::engine::{PROVIDERS_IN_FLIGHT, REPORTS_PER_THREAD, START_DELAY, lock};
use crate::report::{Phase, encode_requestor_progress};
use crate::shared::Shared;

struct Running {
    crew: Crew,
    board: Arc<Board>,
    collector: Option<JoinHandle<()>>,
    result: Arc<OnceLock<String>>,
    stopped: Option<Instant>,
    done: Option<Instant>,
}

/// Users who receive what publishers broadcast to them at planned times.
///
/// Calling order: [`connect`](Self::connect), wait for phase connected, [`start`](Self::start), wait
/// for phase done, [`result`](Self::result), [`close`](Self::close). Any thread may call.
pub struct Broadcaster {
    config: BroadcasterConfig,
    running: Mutex<Option<Running>>,
}

impl Broadcaster {
    /// Opens nothing yet.
    #[must_use]
    pub fn new(config: BroadcasterConfig) -> Self {
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
        if running.is_some() {
            return Err(self.refusal("connect", running.as_ref()));
        }
        *running = Some(self.spawn()?);
        Ok(())
    }

    fn spawn(&self) -> Result<Running, EngineError> {
        let config = &self.config;
        let threads = config.threads + 1;
        let wanted = config.users + config.publishers;
        let shared = Arc::new(Shared::new(config.target.to_string(), wanted, threads));
        let window = Window::new(config.audience(), config.outstanding, config.list_messages);
        let (board, spares) = (Arc::new(Board::new(window)), Spares::default());
        let (reporter, reports) = sync_channel(threads as usize * REPORTS_PER_THREAD);
        let publishers =
            Publishers::new(config, Arc::clone(&board), reporter.clone(), spares.clone());
        let dialer = Dialer::new(config.publishers, PROVIDERS_IN_FLIGHT, 0.0);
        let mut workloads = vec![(Role::Publish(publishers), dialer)];
        for thread in 0..config.threads {
            let (first, users) = share(config.users, config.threads, thread);
            let in_flight = share(config.connect_in_flight, config.threads, thread).1;
            let rate = config.connect_rate * f64::from(users) / f64::from(config.users);
            let users_of = (config.first_user + first, users);
            let (reporter, spares) = (reporter.clone(), spares.clone());
            let subscribers =
                Subscribers::new(config, users_of, Arc::clone(&board), reporter, spares);
            let dialer = Dialer::new(users, in_flight, rate);
            workloads.push((Role::Subscribe(subscribers), dialer));
        }
        drop(reporter);
        let mut crew = {
            let (shared, target) = (Arc::clone(&shared), &config.target);
            Crew::spawn(
                shared,
                target,
                config.message_bytes,
                config.driver,
                workloads,
            )?
        };
        let result = Arc::new(OnceLock::new());
        let collector = Collector::new(threads, spares);
        let collector = {
            let (board, result) = (Arc::clone(&board), Arc::clone(&result));
            std::thread::Builder::new()
                .name("loadgen-collect".into())
                .spawn(move || collector.run(&reports, &shared, &board, &result))
        };
        match collector {
            Ok(collector) => Ok(Running {
                crew,
                board,
                collector: Some(collector),
                result,
                stopped: None,
                done: None,
            }),
            Err(error) => {
                crew.join();
                Err(EngineError::System(format!("thread: {error}")))
            }
        }
    }

    /// Begins the warm-up; the measured phase and the drain follow by themselves.
    ///
    /// `at_ns` is when, in nanoseconds of CLOCK_MONOTONIC, for several processes to begin together;
    /// `None` is at once.
    ///
    /// # Errors
    /// [`EngineError::State`] unless all connections are ready and nothing was started.
    pub fn start(&self, at_ns: Option<u64>) -> Result<(), EngineError> {
        let mut running = lock(&self.running);
        match running.as_mut() {
            Some(running) if self.phase(running).0 == Phase::Connected => {
                let now = monotonic_ns();
                let start = at_ns.unwrap_or(now + START_DELAY.as_nanos() as u64);
                running.board.start.get_or_init(|| start);
                let delay = Duration::from_nanos(start.saturating_sub(now));
                running.crew.post(Mail::Start(Instant::now() + delay));
                Ok(())
            }
            running => Err(self.refusal("start", running.as_deref())),
        }
    }

    /// Ends early: publishes no more, drains, and makes the result of what was measured.
    ///
    /// # Errors
    /// [`EngineError::State`] when nothing was started.
    pub fn stop(&self) -> Result<(), EngineError> {
        let mut running = lock(&self.running);
        match running.as_mut() {
            Some(running) if running.board.start.get().is_some() => {
                running.stopped.get_or_insert_with(Instant::now);
                running.crew.post(Mail::Stop);
                Ok(())
            }
            running => Err(self.refusal("stop", running.as_deref())),
        }
    }

    /// A snapshot as JSON: phase, error, time in this phase, counts. `sent` counts messages,
    /// `received` deliveries, `outstanding` messages that somebody has not received, `timed_out`
    /// deliveries that will never come, `errors` messages that could not be published.
    #[must_use]
    pub fn progress(&self) -> String {
        let mut running = lock(&self.running);
        let Some(running) = running.as_mut() else {
            return encode_requestor_progress(None, Phase::Idle, 0.0);
        };
        let (phase, elapsed_s) = self.phase(running);
        if phase == Phase::Done {
            running.done.get_or_insert_with(Instant::now);
        }
        encode_requestor_progress(Some(&running.crew.shared), phase, elapsed_s)
    }

    /// Everything measured, as JSON.
    ///
    /// # Errors
    /// [`EngineError::State`] before phase done.
    pub fn result(&self) -> Result<String, EngineError> {
        let running = lock(&self.running);
        let result = running.as_ref().and_then(|running| running.result.get());
        result
            .cloned()
            .ok_or_else(|| self.refusal("result", running.as_ref()))
    }

    /// Closes the connections and joins the threads. May be called at any time and more than once;
    /// what was measured stays readable.
    pub fn close(&self) {
        if let Some(running) = lock(&self.running).as_mut() {
            running.crew.join();
            if let Some(collector) = running.collector.take() {
                // Only a defect of the engine could make it panic, which shows as a missing result.
                let _ = collector.join();
            }
        }
    }

    /// The phase, and for how many seconds it has lasted.
    fn phase(&self, running: &Running) -> (Phase, f64) {
        let since = |at: Option<Instant>| at.map_or(0.0, |at| at.elapsed().as_secs_f64());
        let shared = &running.crew.shared;
        if running.result.get().is_some() {
            return (Phase::Done, since(running.done));
        }
        if shared.error().is_some() {
            return (Phase::Failed, 0.0);
        }
        let Some(start) = running.board.start.get() else {
            return match shared.connected() {
                Some(connected) => (Phase::Connected, since(Some(connected))),
                None => (Phase::Connecting, since(Some(shared.began))),
            };
        };
        if running.stopped.is_some() {
            return (Phase::Draining, since(running.stopped));
        }
        let elapsed_s = monotonic_ns().saturating_sub(*start) as f64 / 1e9;
        let measured_s = elapsed_s - self.config.warmup_s;
        let drained_s = measured_s - self.config.duration_s;
        if measured_s < 0.0 {
            (Phase::Warmup, elapsed_s)
        } else if drained_s < 0.0 || shared.total(|gauges| &gauges.sending) > 0 {
            (Phase::Measuring, measured_s)
        } else {
            (Phase::Draining, drained_s)
        }
    }

    fn refusal(&self, call: &'static str, running: Option<&Running>) -> EngineError {
        let phase = running.map_or(Phase::Idle, |running| self.phase(running).0);
        let error = running.and_then(|running| running.crew.shared.error());
        EngineError::State {
            call,
            phase,
            error: error.map(str::to_owned),
        }
    }
}

impl Drop for Broadcaster {
    fn drop(&mut self) {
        self.close();
    }
}
