//! A broker and the load test's engines in one simulation.

use std::net::SocketAddr;
use std::time::Duration;

use broker::Config;
use broker::config::LogLevel;
use broker::sim::{HTTP, SimulatedBroker, TCP};
use loadgen::sim::run_clock_ns;
use loadgen::{
    Broadcaster, BroadcasterConfig, Phase, Provider, ProviderConfig, Requestor, RequestorConfig,
};
use reactor::sim::{Network, Simulation};
use serde_json::{Map, Value};

use crate::results::{Broadcast, Provided, Requested, TrafficCounts, read};

/// Longest virtual time until engines are connected, or have ended after `stop`.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Virtual time between the order to start and the start.
const START_DELAY_NS: u64 = 10_000_000;

/// Simulated broker, and a place for engines.
pub struct Stage {
    /// Simulation of network and clock.
    pub simulation: Simulation,
    /// Broker.
    pub broker: SimulatedBroker,
    seed: u64,
    engines: u64,
    /// Whether a connection was cut, so that neither side can know which messages have arrived.
    was_cut: bool,
}

/// Engine, as far as a stage has to know it.
trait Engine {
    fn phase(&self) -> Phase;
    fn progress(&self) -> String;
}

macro_rules! engine {
    ($($name:ident)+) => {$(
        impl Engine for $name {
            fn phase(&self) -> Phase {
                $name::phase(self)
            }
            fn progress(&self) -> String {
                $name::progress(self)
            }
        }
    )+};
}

engine!(Requestor Provider Broadcaster);

impl Stage {
    /// Start a broker of `shards` shards. All random choices follow from `seed`.
    ///
    /// # Errors
    /// The broker cannot be started.
    pub fn new(shards: usize, seed: u64) -> Result<Self, String> {
        Self::with(&Config::default(), shards, seed)
    }

    /// Start a broker with the given settings, except their addresses.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn with(config: &Config, shards: usize, seed: u64) -> Result<Self, String> {
        let mut simulation = Simulation::new(&Network::new(seed));
        let config = Config {
            log_level: LogLevel::Warning,
            ..config.clone()
        };
        let broker = SimulatedBroker::start(&mut simulation, &config, shards, seed)
            .map_err(|error| error.to_string())?;
        Ok(Self {
            simulation,
            broker,
            seed,
            engines: 0,
            was_cut: false,
        })
    }

    /// Start a broker in a simulation where neither work nor transport takes time. An engine then
    /// measures exactly the delays that it was configured with.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn exact(shards: usize, seed: u64) -> Result<Self, String> {
        Self::exact_with(&Config::default(), shards, seed)
    }

    /// Start a broker as [`exact`](Self::exact) does, with the given settings.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn exact_with(config: &Config, shards: usize, seed: u64) -> Result<Self, String> {
        let mut stage = Self::with(config, shards, seed)?;
        stage.simulation.set_work_takes_time(false);
        stage.network().set_longest_delay(Duration::ZERO);
        Ok(stage)
    }

    /// Return the network.
    #[must_use]
    pub fn network(&self) -> &Network {
        self.simulation.network()
    }

    /// Cut the `n`th open connection to the broker's `address`, if there is one; return whether
    /// there was.
    pub fn cut(&mut self, address: SocketAddr, n: usize) -> bool {
        let is_cut = self.network().cut(address, n);
        self.was_cut |= is_cut;
        is_cut
    }

    /// Return a time on the run's clock at which engines that are started now begin together.
    #[must_use]
    pub fn soon_ns(&self) -> u64 {
        run_clock_ns(&self.simulation) + START_DELAY_NS
    }

    /// Connect a requestor to the broker; `settings` lack the address.
    ///
    /// # Errors
    /// The settings are wrong, or the requestor does not connect.
    pub fn connect_requestor(&mut self, settings: &Value) -> Result<Requestor, String> {
        let config = RequestorConfig::from_json(&with_address(settings)?);
        let requestor = Requestor::new(config.map_err(|error| error.to_string())?);
        let seed = self.next_seed();
        requestor
            .simulate(&mut self.simulation, seed)
            .map_err(|error| error.to_string())?;
        self.wait_for(&requestor, Phase::Connected, TIMEOUT)?;
        Ok(requestor)
    }

    /// Connect a provider to the broker; `settings` lack the address.
    ///
    /// # Errors
    /// As for [`connect_requestor`](Self::connect_requestor).
    pub fn connect_provider(&mut self, settings: &Value) -> Result<Provider, String> {
        let config = ProviderConfig::from_json(&with_address(settings)?);
        let provider = Provider::new(config.map_err(|error| error.to_string())?);
        let seed = self.next_seed();
        provider
            .simulate(&mut self.simulation, seed)
            .map_err(|error| error.to_string())?;
        self.wait_for(&provider, Phase::Connected, TIMEOUT)?;
        Ok(provider)
    }

    /// Connect a broadcaster to the broker; `settings` lack the address.
    ///
    /// # Errors
    /// As for [`connect_requestor`](Self::connect_requestor).
    pub fn connect_broadcaster(&mut self, settings: &Value) -> Result<Broadcaster, String> {
        let config = BroadcasterConfig::from_json(&with_address(settings)?);
        let broadcaster = Broadcaster::new(config.map_err(|error| error.to_string())?);
        let seed = self.next_seed();
        broadcaster
            .simulate(&mut self.simulation, seed)
            .map_err(|error| error.to_string())?;
        self.wait_for(&broadcaster, Phase::Connected, TIMEOUT)?;
        Ok(broadcaster)
    }

    /// Run a provider and a requestor from connecting to the end. Check that engines and broker
    /// have counted the same and that nothing is left.
    ///
    /// # Errors
    /// An engine failed, a rule of the broker is broken, or the counts differ.
    pub fn exchange(
        &mut self,
        requestor: &Value,
        provider: &Value,
    ) -> Result<(Requested, Provided), String> {
        let provider = self.connect_provider(provider)?;
        let requestor = self.connect_requestor(requestor)?;
        let at = Some(self.soon_ns());
        provider.start(at).map_err(|error| error.to_string())?;
        requestor.start(at).map_err(|error| error.to_string())?;
        self.finish(&requestor, &provider)
    }

    /// Let a requestor that was started come to its end, then its provider; check both.
    ///
    /// # Errors
    /// An engine failed, a rule of the broker is broken, or the counts differ.
    pub fn finish(
        &mut self,
        requestor: &Requestor,
        provider: &Provider,
    ) -> Result<(Requested, Provided), String> {
        self.wait_for(requestor, Phase::Done, Duration::MAX)?;
        provider.stop().map_err(|error| error.to_string())?;
        self.wait_for(provider, Phase::Done, TIMEOUT)?;
        let requested = requestor.result().map_err(|error| error.to_string())?;
        let provided = provider.result().map_err(|error| error.to_string())?;
        requestor.close();
        provider.close();
        self.check_agreement(&[requestor.progress(), provider.progress()])?;
        Ok((read(&requested)?, read(&provided)?))
    }

    /// Let a broadcaster that was started come to its end, and check it.
    ///
    /// # Errors
    /// An engine failed, a rule of the broker is broken, or the counts differ.
    pub fn finish_broadcast(&mut self, broadcaster: &Broadcaster) -> Result<Broadcast, String> {
        self.wait_for(broadcaster, Phase::Done, Duration::MAX)?;
        let result = broadcaster.result().map_err(|error| error.to_string())?;
        broadcaster.close();
        self.check_agreement(&[broadcaster.progress()])?;
        read(&result)
    }

    /// Do steps until an engine is in a phase, for `longest` at most.
    ///
    /// # Errors
    /// The engine has failed, or the time is over.
    fn wait_for(
        &mut self,
        engine: &impl Engine,
        wanted: Phase,
        longest: Duration,
    ) -> Result<(), String> {
        let is_there = || engine.phase() == wanted;
        let has_failed = || engine.phase() == Phase::Failed;
        self.run_until(longest, || is_there() || has_failed())?;
        if is_there() {
            return Ok(());
        }
        Err(format!("not {wanted:?}: {}", engine.progress()))
    }

    /// Let time pass until `ns` on the run's clock, with all events that are due before.
    ///
    /// # Errors
    /// A rule of the broker is broken.
    pub fn run_to(&mut self, ns: u64) -> Result<(), String> {
        let now = run_clock_ns(&self.simulation);
        self.run_until(Duration::from_nanos(ns.saturating_sub(now)), || false)
    }

    /// Do steps until `is_done`, or until `longest` has passed; the broker is checked after each.
    ///
    /// # Errors
    /// A rule of the broker is broken.
    pub fn run_until(
        &mut self,
        longest: Duration,
        mut is_done: impl FnMut() -> bool,
    ) -> Result<(), String> {
        let clock = self.network().clock();
        let began = clock.now();
        while !is_done() {
            let left = longest.saturating_sub(clock.now().saturating_duration_since(began));
            if left.is_zero() {
                break;
            }
            let until = clock.now() + left.min(Duration::from_secs(1));
            self.simulation.step(until)?;
            self.broker.check()?;
        }
        Ok(())
    }

    /// Check, once all engines have closed their connections, that nothing is left and that the
    /// broker's counts agree with `progress`, unless a connection was cut.
    fn check_agreement(&mut self, progress: &[String]) -> Result<(), String> {
        let clock = self.network().clock();
        let deadline = clock.now() + TIMEOUT;
        while self.broker.traffic().open > 0 && clock.now() < deadline {
            self.run_until(Duration::from_millis(10), || false)?;
        }
        let engines: Vec<TrafficCounts> = progress
            .iter()
            .map(|json| read(json))
            .collect::<Result<_, _>>()?;
        let sum = |count: fn(&TrafficCounts) -> u64| engines.iter().map(count).sum::<u64>();
        let broker = self.broker.traffic();
        let published = (sum(|e| e.published), sum(|e| e.published_bytes));
        let delivered = (sum(|e| e.delivered), sum(|e| e.delivered_bytes));
        let (opened, answered) = (sum(|e| e.opened), sum(|e| e.answered));
        let agrees = broker.taken_in == published
            && broker.given_out == delivered
            && broker.opened == opened
            && broker.closed_after_an_answer == answered
            && broker.closed_by_clients + answered == opened;
        if !(agrees || self.was_cut) {
            return Err(format!(
                "engines and broker have counted differently: {engines:?}, {broker:?}"
            ));
        }
        self.broker.check()?;
        self.broker.check_empty()
    }

    fn next_seed(&mut self) -> u64 {
        self.engines += 1;
        self.seed ^ self.engines << 48
    }
}

/// Add the broker's address for the transport to an engine's settings.
fn with_address(settings: &Value) -> Result<String, String> {
    let mut settings: Map<String, Value> = settings
        .as_object()
        .cloned()
        .ok_or("settings are an object")?;
    let address = match settings.get("transport").and_then(Value::as_str) {
        Some("tcp") => TCP,
        _ => HTTP,
    };
    settings.insert("address".to_owned(), address.to_string().into());
    Ok(Value::Object(settings).to_string())
}
