//! The bound of memory: the connections that hold most end first, and new clients get in.

#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use broker::Config;
use broker::config::{Auto, LogLevel};
use broker::sim::{HTTP, SimulatedBroker, TCP};
use reactor::sim::{Endpoint, Network, Received, Simulation};

/// Bytes that connections may hold.
const LIMIT: usize = 4 << 20;
/// Bytes that may be held above the limit for a moment: what arrives in one turn.
const SLACK: usize = 1 << 20;

/// One end of a connection to the broker.
struct Peer {
    endpoint: Endpoint,
    outgoing: VecDeque<u8>,
    received: Vec<u8>,
    /// Whether the broker has ended the connection.
    has_ended: bool,
    is_reading: bool,
}

impl Peer {
    fn send(&mut self, bytes: &[u8]) {
        self.outgoing.extend(bytes);
    }

    fn pump(&mut self) {
        let head = self.outgoing.as_slices().0;
        let count = self.endpoint.send(head);
        self.outgoing.drain(..count);
        if self.is_reading && !self.has_ended {
            match self.endpoint.receive(1 << 20) {
                Received::Bytes(bytes) => self.received.extend(bytes),
                _ => self.has_ended = true,
            }
        }
    }

    fn has(&self, text: &[u8]) -> bool {
        self.received.windows(text.len()).any(|part| part == text)
    }
}

/// A broker with a bound of memory, and its network.
struct World {
    simulation: Simulation,
    broker: SimulatedBroker,
    peers: Vec<Peer>,
    most: usize,
}

impl World {
    fn new(seed: u64, shards: usize) -> Self {
        let network = Network::new(seed);
        let mut simulation = Simulation::new(&network);
        let config = Config {
            max_memory: Auto::Value(LIMIT),
            log_level: LogLevel::Warning,
            ..Config::default()
        };
        let broker = SimulatedBroker::start(&mut simulation, &config, shards, seed).unwrap();
        Self {
            simulation,
            broker,
            peers: Vec::new(),
            most: 0,
        }
    }

    /// Connect, and return the peer's number.
    fn connect(&mut self, address: SocketAddr) -> usize {
        let endpoint = self.simulation.network().connect(address).unwrap();
        self.peers.push(Peer {
            endpoint,
            outgoing: VecDeque::new(),
            received: Vec::new(),
            has_ended: false,
            is_reading: true,
        });
        self.peers.len() - 1
    }

    fn client(&mut self) -> usize {
        let number = self.connect(TCP);
        self.peers[number].send(b"CONNECT {\"verbose\":false}\r\nPING\r\n");
        self.run_until(|world| world.peers[number].has(b"PONG"));
        self.peers[number].received.clear();
        number
    }

    /// Subscribe a client to `flood`, and have it read nothing from then on.
    fn slow_reader(&mut self) -> usize {
        let number = self.client();
        self.peers[number].send(b"SUB flood 1\r\nPING\r\n");
        self.run_until(|world| world.peers[number].has(b"PONG"));
        self.peers[number].is_reading = false;
        number
    }

    fn run_until(&mut self, is_done: impl Fn(&Self) -> bool) {
        for _ in 0..200_000 {
            if is_done(self) {
                return;
            }
            let until = self.simulation.network().clock().now() + Duration::from_millis(10);
            self.simulation.step(until).unwrap();
            self.broker.check().unwrap();
            self.most = self.most.max(self.broker.held_memory());
            self.peers.iter_mut().for_each(Peer::pump);
        }
        panic!("does not come to an end: {}", self.broker.describe());
    }

    /// Publish so many messages of `size` bytes to `flood`, and wait until all are taken in.
    fn flood(&mut self, publisher: usize, messages: usize, size: usize) {
        let operation = [
            format!("PUB flood {size}\r\n").into_bytes(),
            vec![b'x'; size],
            b"\r\n".to_vec(),
        ];
        let operation = operation.concat();
        for _ in 0..messages {
            self.peers[publisher].send(&operation);
        }
        self.peers[publisher].received.clear();
        self.peers[publisher].send(b"PING\r\n");
        self.run_until(|world| world.peers[publisher].has(b"PONG"));
    }

    /// The peers that the broker has ended, found by reading what it sent them.
    fn ended(&mut self) -> Vec<usize> {
        for peer in &mut self.peers {
            peer.is_reading = true;
        }
        let until = self.simulation.network().clock().now() + Duration::from_secs(1);
        self.run_until(|world| world.simulation.network().clock().now() >= until);
        let ended = self
            .peers
            .iter()
            .enumerate()
            .filter(|(_, peer)| peer.has_ended);
        ended.map(|(number, _)| number).collect()
    }
}

#[test]
fn slow_readers_are_ended_at_the_bound_and_a_new_client_gets_in() {
    for (seed, shards) in [(1, 1), (2, 3)] {
        let mut world = World::new(seed, shards);
        for _ in 0..12 {
            world.slow_reader();
        }
        let publisher = world.client();
        // 24 MB for all of them together.
        world.flood(publisher, 2000, 1000);
        assert!(world.most > LIMIT / 2, "{}", world.most);
        assert!(world.most < LIMIT + SLACK, "{}", world.most);
        world.client();
        let ended = world.ended();
        assert!((6..=12).contains(&ended.len()), "{ended:?}");
        assert!(!ended.contains(&publisher));
    }
}

#[test]
fn of_those_that_hold_as_much_the_oldest_is_ended() {
    let mut world = World::new(3, 1);
    let readers: Vec<usize> = (0..8).map(|_| world.slow_reader()).collect();
    let publisher = world.client();
    // Until the first has to go.
    let mut messages = 0;
    while world.most <= LIMIT {
        world.flood(publisher, 5, 1000);
        messages += 5;
    }
    assert!(messages > 100, "{messages}");
    assert_eq!(world.ended().first(), readers.first());
}

#[test]
fn bodies_that_stop_one_byte_short_are_bounded() {
    let mut world = World::new(4, 2);
    for _ in 0..40 {
        let caller = world.connect(HTTP);
        let head =
            "POST /v1/publish/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500001\r\n\r\n";
        world.peers[caller].send(head.as_bytes());
        world.peers[caller].send(&[b'x'; 500_000]);
        world.run_until(|world| {
            world.peers[caller].outgoing.is_empty() || world.peers[caller].has_ended
        });
    }
    world.client();
    assert!(world.most < LIMIT + SLACK, "{}", world.most);
    assert!(world.ended().len() > 20);
}

#[test]
fn subscriptions_with_long_names_are_bounded() {
    let mut world = World::new(5, 2);
    for client in 0..40 {
        let client_number = world.client();
        let subject = "s".repeat(500);
        for sid in 0..200 {
            let operation = format!("SUB {subject}.{client}.{sid} {sid}\r\n");
            world.peers[client_number].send(operation.as_bytes());
        }
        world.peers[client_number].send(b"PING\r\n");
        world.run_until(|world| {
            let peer = &world.peers[client_number];
            peer.has(b"PONG") || peer.has_ended
        });
    }
    let newcomer = world.client();
    assert!(world.most < LIMIT + SLACK, "{}", world.most);
    let ended = world.ended();
    assert!(ended.len() > 10 && !ended.contains(&newcomer), "{ended:?}");
}
