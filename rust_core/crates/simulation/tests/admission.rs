//! The admission of connections, in virtual time.

#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::time::Duration;

use broker::Config;
use broker::config::{Auto, LimitsConfig, LogLevel};
use broker::sim::{HTTP, MONITOR, SimulatedBroker, TCP};
use reactor::sim::{Endpoint, Network, Received, Simulation};

const CONNECT: &[u8] = b"CONNECT {\"verbose\":false}\r\nPING\r\n";
const HEALTH: &str = "/healthz";

struct World {
    simulation: Simulation,
    broker: SimulatedBroker,
}

impl World {
    fn new(config: Config, shards: usize, seed: u64) -> Self {
        let network = Network::new(seed);
        let mut simulation = Simulation::new(&network);
        let config = Config {
            log_level: LogLevel::Error,
            ..config
        };
        let broker = SimulatedBroker::start(&mut simulation, &config, shards, seed).unwrap();
        Self { simulation, broker }
    }

    /// Let this much time pass.
    fn pass(&mut self, time: Duration) {
        let clock = self.simulation.network().clock();
        let until = clock.now() + time;
        while clock.now() < until {
            self.simulation.step(until).unwrap();
            self.broker.check().unwrap();
        }
    }

    /// Let everything that is under way arrive.
    fn settle(&mut self) {
        self.pass(Duration::from_millis(20));
    }

    fn connect(&mut self, address: SocketAddr) -> Endpoint {
        let endpoint = self.simulation.network().connect(address).unwrap();
        self.settle();
        endpoint
    }

    /// Send all of `bytes`, of which the network may take a part at a time.
    fn send(&mut self, endpoint: &Endpoint, mut bytes: &[u8]) {
        for _ in 0..100 {
            if bytes.is_empty() {
                return;
            }
            bytes = &bytes[endpoint.send(bytes)..];
            self.settle();
        }
        panic!("the connection takes no bytes; it said {}", said(endpoint));
    }

    /// A connection to TCP, and what has come over it after it has sent `bytes`.
    fn talk(&mut self, bytes: &[u8]) -> (Endpoint, String) {
        let endpoint = self.connect(TCP);
        self.send(&endpoint, bytes);
        let said = said(&endpoint);
        (endpoint, said)
    }

    /// A caller of the monitor that asks for a page.
    fn ask(&mut self, path: &str) -> Endpoint {
        let caller = self.connect(MONITOR);
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        self.send(&caller, request.as_bytes());
        caller
    }

    /// The status of the answer to a new caller of the monitor.
    fn status(&mut self, path: &str) -> String {
        let caller = self.ask(path);
        let said = said(&caller);
        drop(caller);
        self.settle();
        said.get(9..12).unwrap_or("none").to_owned()
    }
}

/// All that has come and was not read yet, with a line for the end of the connection.
fn said(endpoint: &Endpoint) -> String {
    let mut text = String::new();
    loop {
        match endpoint.receive(1 << 20) {
            Received::Bytes(bytes) if bytes.is_empty() => return text,
            Received::Bytes(bytes) => text.push_str(&String::from_utf8_lossy(&bytes)),
            Received::End => return text + "END",
            Received::Reset => return text + "RESET",
        }
    }
}

fn with_places(places: usize) -> Config {
    Config {
        max_connections: Auto::Value(places),
        ..Config::default()
    }
}

#[test]
fn a_client_has_its_time_to_connect_and_no_more() {
    for seed in 0..20 {
        let mut world = World::new(Config::default(), 2, seed);
        let (silent, greeting) = world.talk(b"");
        assert!(greeting.starts_with("INFO {"));
        let (typing, _) = world.talk(b"SUB a 1\r\n");
        world.pass(Duration::from_millis(9900));
        assert_eq!(said(&silent), "");
        world.pass(Duration::from_millis(200));
        assert_eq!(said(&silent), "-ERR 'Authentication Timeout'\r\nEND");
        world.send(&typing, b"PING\r\n");
        assert_eq!(said(&typing), "PONG\r\n", "it has introduced itself");
    }
}

#[test]
fn a_newcomer_gets_the_place_of_a_silent_connection_of_any_shard() {
    for seed in 0..50 {
        let mut world = World::new(with_places(3), 3, seed);
        let silent: Vec<_> = (0..3).map(|_| world.talk(b"").0).collect();
        let clients: Vec<_> = (0..3).map(|_| world.talk(CONNECT)).collect();
        for (_, said) in &clients {
            assert!(said.ends_with("PONG\r\n"), "seed {seed}: {said}");
        }
        for endpoint in &silent {
            // A simulated shard can tell two at a time.
            let said = said(endpoint);
            let is_told = said == "-ERR 'maximum connections exceeded'\r\nEND";
            assert!(is_told || said == "END", "seed {seed}: {said}");
        }
        drop(silent);
        world.settle();
        let (_, refused) = world.talk(b"");
        assert_eq!(refused, "-ERR 'maximum connections exceeded'\r\nEND");
        drop(clients);
        world.settle();
        assert!(world.talk(CONNECT).1.ends_with("PONG\r\n"));
    }
}

#[test]
fn as_many_are_accepted_as_the_rate_says() {
    let limits = LimitsConfig {
        connects_per_s: 50,
        ..LimitsConfig::default()
    };
    let config = Config {
        limits,
        ..with_places(1000)
    };
    let mut world = World::new(config, 1, 7);
    let network = world.simulation.network().clone();
    let waiting: Vec<_> = (0..200).map(|_| network.connect(TCP).unwrap()).collect();
    let served = |world: &mut World| {
        world.settle();
        let is_greeted = |one: &&Endpoint| !said(one).is_empty();
        waiting.iter().filter(is_greeted).count()
    };
    let burst = served(&mut world);
    assert!((4..8).contains(&burst), "{burst}");
    assert_eq!(world.status(HEALTH), "200", "the monitor's do not wait");
    world.pass(Duration::from_secs(1));
    let second = served(&mut world);
    assert!((48..60).contains(&second), "{second}");
    world.pass(Duration::from_secs(4));
    assert_eq!(burst + second + served(&mut world), 200);
}

#[test]
fn a_caller_of_the_monitor_always_gets_an_answer() {
    let mut world = World::new(with_places(1000), 1, 3);
    let mut others = Vec::new();
    for _ in 0..40 {
        // One that never asks, and one that has asked.
        others.push(world.connect(MONITOR));
        others.push(world.ask("/varz"));
        assert_eq!(world.status("/varz"), "200");
    }
    drop(others);
    let mut busy = Vec::new();
    while world.status("/varz") == "200" {
        // The page is longer than what the network holds.
        busy.push(world.ask("/"));
        assert!(busy.len() < 10);
    }
    assert_eq!(world.status("/varz"), "503");
    for _ in 0..10 {
        assert_eq!(world.status(HEALTH), "200");
        // More and more of them.
        busy.push(world.ask("/"));
    }
    drop(busy);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.status("/varz"), "200");
}

#[test]
fn silent_connections_leave_nothing_behind() {
    let mut world = World::new(with_places(20), 2, 11);
    let mut silent = Vec::new();
    for n in 0..60 {
        let address = [TCP, HTTP, MONITOR][n % 3];
        let endpoint = world.connect(address);
        world.send(
            &endpoint,
            [&b""[..], b"GET / HTTP/1.1\r\n", b"P"][n / 3 % 3],
        );
        silent.push(endpoint);
    }
    world.pass(Duration::from_secs(40));
    world.broker.check_empty().unwrap();
}
