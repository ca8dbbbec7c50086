//! One run of a broker with random clients, determined by a seed. The rules are checked after every
//! step.

use std::time::Duration;

use broker::Config;
use broker::config::{Auto, LimitsConfig, LogLevel};
use broker::sim::{HTTP, MONITOR, SimulatedBroker, TCP};
use reactor::sim::{Endpoint, Network, Simulation, Step};

use crate::client::Client;
use crate::oracle::Oracle;
use crate::random::Random;

/// Most clients at once.
const CLIENTS: usize = 7;
/// Most connections at once that never introduce themselves; fewer than there are places in a roomy life.
const SILENT: usize = 20;
/// Bytes that such a connection sends at most.
const BEGINNINGS: [&[u8]; 4] = [b"", b"CONNECT {", b"GET / HTTP/1.1\r\nHost: ", b"\r"];

struct Run {
    simulation: Simulation,
    broker: SimulatedBroker,
    oracle: Oracle,
    random: Random,
    clients: Vec<(usize, Client)>,
    /// Connections that never introduce themselves.
    silent: Vec<Endpoint>,
    next_member: usize,
    /// Whether limits are so wide that a client that reads at once is never cut.
    is_roomy: bool,
    is_draining: bool,
    is_verbose: bool,
}

/// Run with `seed`; return the number of checked deliveries.
///
/// # Errors
/// The finding.
pub(crate) fn run(seed: u64, is_verbose: bool) -> Result<u64, String> {
    let mut random = Random::new(seed);
    let network = Network::new(seed ^ 0x5eed);
    let mut simulation = Simulation::new(&network);
    let is_roomy = random.once_in(2);
    let config = Config {
        max_payload: 16 * 1024,
        max_pending: if is_roomy { 8 << 20 } else { 48 * 1024 },
        max_memory: Auto::Value(if is_roomy { 1 << 30 } else { 1 << 20 }),
        max_connections: Auto::Value(if is_roomy { 50 } else { 4 }),
        limits: LimitsConfig {
            connections_per_address: if is_roomy { 0 } else { random.below(6) },
            connects_per_s: if random.once_in(4) { 300 } else { 0 },
        },
        log_level: LogLevel::Warning,
        ..Config::default()
    };
    let shards = 1 + random.below(3);
    let broker = SimulatedBroker::start(&mut simulation, &config, shards, seed)
        .map_err(|error| error.to_string())?;
    let mut run = Run {
        simulation,
        broker,
        oracle: Oracle::default(),
        random,
        clients: Vec::new(),
        silent: Vec::new(),
        next_member: 0,
        is_roomy,
        is_draining: false,
        is_verbose,
    };
    run.tell(|| format!("{shards} shards, roomy: {is_roomy}"));
    run.act()?;
    run.settle()?;
    run.end()?;
    Ok(run.oracle.checked)
}

impl Run {
    fn tell(&self, what: impl FnOnce() -> String) {
        if self.is_verbose {
            println!("{}", what());
        }
    }

    fn act(&mut self) -> Result<(), String> {
        for _ in 0..60 + self.random.below(200) {
            if self.clients.len() < CLIENTS && self.random.once_in(4) {
                self.connect();
            }
            if self.random.once_in(5) {
                self.crowd();
            }
            if !self.clients.is_empty() {
                let chosen = self.random.below(self.clients.len());
                if self.random.once_in(60) {
                    let (member, client) = self.clients.swap_remove(chosen);
                    self.tell(|| format!("{member} is gone"));
                    if self.random.once_in(2) {
                        client.reset();
                    }
                } else if !self.clients[chosen].1.has_ended {
                    let (member, client) = &mut self.clients[chosen];
                    let what = client.act(&mut self.oracle, &mut self.random);
                    let member = *member;
                    self.tell(|| format!("{member} {what}"));
                }
            }
            for _ in 0..self.random.below(12) {
                self.step(Duration::from_millis(20))?;
            }
        }
        Ok(())
    }

    fn connect(&mut self) {
        let member = self.next_member;
        self.next_member += 1;
        let network = self.simulation.network().clone();
        if let Some(client) = Client::connect(member, &network, &mut self.random) {
            self.clients.push((member, client));
        }
    }

    /// A connection comes that never introduces itself, or one of these leaves.
    fn crowd(&mut self) {
        if self.silent.len() == SILENT || self.random.once_in(8) && !self.silent.is_empty() {
            let chosen = self.random.below(self.silent.len());
            self.silent.swap_remove(chosen);
            return;
        }
        let address = self.random.one_of(&[TCP, HTTP, MONITOR]);
        if let Some(endpoint) = self.simulation.network().connect(address) {
            endpoint.send(self.random.one_of(&BEGINNINGS));
            self.silent.push(endpoint);
            self.tell(|| format!("a silent connection comes to {address}"));
        }
    }

    /// One step of the simulation, and one of each client.
    fn step(&mut self, longest: Duration) -> Result<Step, String> {
        let until = self.simulation.network().clock().now() + longest;
        let step = self.simulation.step(until)?;
        self.broker.check()?;
        for (member, client) in &mut self.clients {
            client
                .pump(&mut self.oracle, &mut self.random)
                .map_err(|why| format!("client {member}: {why}"))?;
        }
        let is_cut = |client: &Client| client.was_cut || client.error.is_some();
        let cut = self.clients.iter();
        let cut = cut.filter(|(_, client)| is_cut(client) && !client.was_slow);
        for (member, client) in cut {
            let error = client.error.as_deref().unwrap_or("no word");
            self.tell(|| format!("{member} was cut: {error}"));
            if self.is_roomy && !self.is_draining {
                return Err(format!("client {member}, which reads, was cut: {error}"));
            }
        }
        self.clients.retain(|(_, client)| !client.has_ended);
        Ok(step)
    }

    /// Let all clients read and be answered.
    fn settle(&mut self) -> Result<(), String> {
        self.tell(|| "settling".into());
        for round in 0..2 {
            for (_, client) in &mut self.clients {
                client.is_reading = true;
                client.ping(&self.oracle);
            }
            let mut steps = 0;
            while !self.clients.iter().all(|(_, client)| client.is_quiet()) {
                self.step(Duration::from_millis(20))?;
                steps += 1;
                if steps > 60_000 {
                    let clients: Vec<String> = self
                        .clients
                        .iter()
                        .map(|(member, client)| format!("{member}: {client:?}"))
                        .collect();
                    return Err(format!(
                        "clients still wait in round {round}\n{}\n{}{}",
                        clients.join("\n"),
                        self.broker.describe(),
                        self.simulation.network().describe()
                    ));
                }
            }
        }
        Ok(())
    }

    /// Close all clients but the silent ones, which the broker does not keep; nothing may be left.
    fn end(&mut self) -> Result<(), String> {
        if self.random.once_in(4) {
            self.tell(|| "drains".into());
            self.is_draining = true;
            self.broker.drain();
        } else {
            self.tell(|| "all leave".into());
            self.clients.clear();
        }
        let clock = self.simulation.network().clock();
        let deadline = clock.now() + Duration::from_secs(120);
        while clock.now() < deadline && !self.broker.has_ended() {
            self.step(Duration::from_secs(1))?;
        }
        self.clients.clear();
        self.broker.check_empty()
    }
}
