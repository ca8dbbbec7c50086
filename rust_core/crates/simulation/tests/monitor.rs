//! The monitor of a simulated broker under many requests: neither its pages nor the clients'
//! subscriptions make a client wait.

#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use broker::Config;
use broker::config::LogLevel;
use broker::sim::{MONITOR, SimulatedBroker, TCP};
use reactor::sim::{Endpoint, Network, Received, Simulation, Step};

/// Requests that the monitor serves at once.
const CALLERS: usize = 64;

/// Pages of all kinds, and an unknown one.
const PAGES: [&str; 9] = [
    "/connz?subs=1",
    "/subsz?subs=1",
    "/history?resolution=60",
    "/metrics",
    "/varz",
    "/subjects",
    "/healthz",
    "/nosuch",
    "/",
];
/// Pages that can be requested in very large numbers.
const SHORT_PAGES: [&str; 4] = ["/varz", "/healthz", "/nosuch", "/subsz"];

/// Number of subjects of the client with long subjects.
const SUBJECTS: usize = 300;

/// One end of a connection to the broker.
struct Peer {
    endpoint: Endpoint,
    outgoing: VecDeque<u8>,
    received: Vec<u8>,
}

impl Peer {
    fn connect(network: &Network, address: std::net::SocketAddr) -> Self {
        Self {
            endpoint: network.connect(address).unwrap(),
            outgoing: VecDeque::new(),
            received: Vec::new(),
        }
    }

    fn client(network: &Network) -> Self {
        let mut client = Self::connect(network, TCP);
        client.send(b"CONNECT {\"verbose\":false}\r\n");
        client
    }

    fn send(&mut self, bytes: &[u8]) {
        self.outgoing.extend(bytes);
    }

    fn push(&mut self) {
        let head = self.outgoing.as_slices().0;
        let count = self.endpoint.send(head);
        self.outgoing.drain(..count);
    }

    /// Send as much as there is room for and receive what is there, at most `limit` bytes.
    fn pump(&mut self, limit: usize) {
        self.push();
        match self.endpoint.receive(limit) {
            Received::Bytes(bytes) => self.received.extend(bytes),
            other => panic!("the connection has ended: {other:?}"),
        }
    }

    fn ask(&mut self, page: &str) {
        self.send(format!("GET {page} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
        self.push();
    }

    /// Take the next response: status and body.
    fn answer(&mut self) -> Option<(u16, String)> {
        let end = self
            .received
            .windows(4)
            .position(|four| four == b"\r\n\r\n")?
            + 4;
        let head = std::str::from_utf8(&self.received[..end]).unwrap();
        let length = head.split("Content-Length: ").nth(1).unwrap();
        let length: usize = length.split('\r').next().unwrap().parse().unwrap();
        let status = head[9..12].parse().unwrap();
        if self.received.len() < end + length {
            return None;
        }
        let body = self.received[end..end + length].to_vec();
        self.received.drain(..end + length);
        Some((status, String::from_utf8(body).unwrap()))
    }

    /// Take the next line.
    fn line(&mut self) -> Option<Vec<u8>> {
        let end = self.received.iter().position(|byte| *byte == b'\n')? + 1;
        Some(self.received.drain(..end).collect())
    }
}

/// A broker and its network.
struct World {
    simulation: Simulation,
    broker: SimulatedBroker,
    network: Network,
    turns: usize,
    last_turn: Instant,
    /// The longest time between the beginnings of two turns.
    longest: Duration,
}

impl World {
    fn new(seed: u64, shards: usize) -> Self {
        let network = Network::new(seed);
        let mut simulation = Simulation::new(&network);
        let config = Config {
            log_level: LogLevel::Warning,
            max_subject_length: 4096,
            ..Config::default()
        };
        let broker = SimulatedBroker::start(&mut simulation, &config, shards, seed).unwrap();
        let last_turn = network.clock().now();
        Self {
            simulation,
            broker,
            network,
            turns: 0,
            last_turn,
            longest: Duration::ZERO,
        }
    }

    fn step(&mut self) {
        let now = self.network.clock().now();
        let step = self
            .simulation
            .step(now + Duration::from_millis(5))
            .unwrap();
        if step == Step::Turn {
            let took = now - self.last_turn;
            self.turns += usize::from(took >= Duration::from_millis(1));
            self.longest = self.longest.max(took);
            self.last_turn = now;
        }
    }

    /// Measure turns from now on.
    fn measure(&mut self) {
        self.turns = 0;
        self.last_turn = self.network.clock().now();
        self.longest = Duration::ZERO;
    }

    /// Let time pass until `is_done`, which is asked after each step.
    fn until(&mut self, mut is_done: impl FnMut() -> bool) {
        for _ in 0..2_000_000 {
            self.step();
            if is_done() {
                return self.broker.check().unwrap();
            }
        }
        panic!("never");
    }

    /// Connect a client that subscribes to subjects of 4,000 bytes, each of which is six in JSON.
    fn client_with_long_subjects(&mut self) -> Peer {
        let mut client = Peer::client(&self.network);
        for sid in 0..SUBJECTS {
            let subject = "\u{1}".repeat(4000);
            client.send(format!("SUB {subject}.{sid} {sid}\r\n").as_bytes());
        }
        client.send(b"PING\r\n");
        self.until(|| {
            client.pump(1 << 20);
            client.received.ends_with(b"PONG\r\n")
        });
        assert!(!client.received.windows(4).any(|bytes| bytes == b"-ERR"));
        client
    }
}

/// Peers of the monitor that send requests in a loop, each `depth` pages ahead.
struct Loop {
    callers: Vec<Peer>,
    pages: &'static [&'static str],
    asked: usize,
    answers: usize,
}

impl Loop {
    fn new(network: &Network, pages: &'static [&'static str], depth: usize) -> Self {
        let callers = (0..CALLERS).map(|_| Peer::connect(network, MONITOR));
        let mut all = Self {
            callers: callers.collect(),
            pages,
            asked: 0,
            answers: 0,
        };
        for caller in 0..CALLERS * depth {
            all.ask(caller % CALLERS);
        }
        all
    }

    fn ask(&mut self, caller: usize) {
        self.callers[caller].ask(self.pages[self.asked % self.pages.len()]);
        self.asked += 1;
    }

    fn pump(&mut self) {
        for n in 0..CALLERS {
            self.callers[n].pump(1 << 20);
            while let Some((status, body)) = self.callers[n].answer() {
                assert!(status == 200 || body.contains("no such page"), "{body}");
                assert!(body.len() < 2 << 20, "{} bytes", body.len());
                self.answers += 1;
                self.ask(n);
            }
        }
    }
}

/// Client that publishes as fast as it may. A turn is too short for its output, which is put off.
struct Flood(Peer);

impl Flood {
    fn new(network: &Network) -> Self {
        Self(Peer::client(network))
    }

    /// Go on; return how many times 2,000 messages were acknowledged.
    fn pump(&mut self) -> usize {
        while self.0.outgoing.len() < 1 << 16 {
            self.0.send(&b"PUB nobody 3\r\nabc\r\n".repeat(2000));
            self.0.send(b"PING\r\n");
        }
        self.0.pump(1 << 20);
        std::iter::from_fn(|| self.0.line())
            .filter(|line| line == b"PONG\r\n")
            .count()
    }
}

#[test]
fn clients_are_served_in_every_turn_whatever_callers_of_the_monitor_do() {
    let millis = Duration::from_millis;
    for (seed, pages, depth, longest_turn) in [
        (1, &PAGES[..], 1, millis(5)),
        (2, &SHORT_PAGES[..], 30, millis(2)),
    ] {
        let mut world = World::new(seed, 1);
        let _named = world.client_with_long_subjects();
        let mut asker = Peer::client(&world.network);
        let mut flood = Flood::new(&world.network);
        let mut callers = Loop::new(&world.network, pages, depth);
        world.measure();
        let (mut waits, mut flood_waits) = (Vec::new(), Vec::new());
        let (mut asked, mut flooded) = (None, 0);
        while waits.len() < 200 {
            world.step();
            callers.pump();
            asker.pump(1 << 20);
            if flood.pump() > 0 {
                flood_waits.push(world.turns - flooded);
                flooded = world.turns;
            }
            let now = (world.turns, world.network.clock().now());
            let (turn, time) = *asked.get_or_insert_with(|| {
                asker.send(b"PING\r\n");
                now
            });
            while let Some(line) = asker.line() {
                if line == b"PONG\r\n" {
                    waits.push((now.0 - turn, now.1 - time));
                    asked = None;
                }
            }
        }
        // One turn is in progress at the sending, and the network may deliver a turn later.
        let turns: usize = waits.iter().map(|wait| wait.0).sum();
        assert!(turns <= 3 * waits.len(), "{waits:?}");
        let longest = waits.iter().map(|wait| wait.1).max().unwrap();
        assert!(longest < millis(50), "{longest:?}");
        assert!(flood_waits.len() >= 20, "{flood_waits:?}");
        let most = flood_waits.iter().max().unwrap();
        assert!(*most < 12, "{flood_waits:?}");
        // A turn is far from its budget of 8 ms.
        assert!(world.longest < longest_turn, "{:?}", world.longest);
        assert!(callers.answers > 1000, "{}", callers.answers);
    }
}

#[test]
fn what_callers_ask_for_takes_a_slice_of_each_turn() {
    const MANY: usize = 100_000;
    let mut world = World::new(4, 1);
    let mut client = Peer::client(&world.network);
    for sid in 0..MANY {
        client.send(format!("SUB a.{sid} {sid}\r\n").as_bytes());
    }
    client.send(b"PING\r\n");
    world.until(|| {
        client.pump(1 << 20);
        client.received.ends_with(b"PONG\r\n")
    });
    let callers = (0..CALLERS).map(|_| Peer::connect(&world.network, MONITOR));
    let mut callers: Vec<_> = callers.collect();
    // Visiting the subscriptions takes 2 ms, and listing them 6 ms; a response of 1 MiB is copied
    // at once.
    for (page, asking, longest_turn) in [
        ("/healthz", CALLERS, Duration::from_millis(5)),
        ("/varz", CALLERS, Duration::from_millis(1)),
        ("/subjects", CALLERS, Duration::from_millis(1)),
        ("/subsz?test=b", 4, Duration::from_millis(1)),
        ("/connz?subs=1", 1, Duration::from_millis(3)),
    ] {
        let mut left = asking;
        world.measure();
        callers[..asking]
            .iter_mut()
            .for_each(|caller| caller.ask(page));
        world.until(|| {
            for caller in &mut callers {
                caller.pump(1 << 20);
                left -= usize::from(caller.answer().is_some());
            }
            left == 0
        });
        assert!(world.longest < longest_turn, "{page}: {:?}", world.longest);
    }
}

#[test]
fn a_reader_that_is_slow_holds_one_page() {
    const ASKED: usize = 10;
    let mut world = World::new(3, 1);
    let _named = world.client_with_long_subjects();
    let mut slow = Peer::connect(&world.network, MONITOR);
    let mut other = Peer::connect(&world.network, MONITOR);
    (0..ASKED).for_each(|_| slow.ask("/connz?subs=1"));
    let mut most = 0;
    for _ in 0..50 {
        other.ask("/varz");
        let mut answer = None;
        world.until(|| {
            slow.pump(0);
            other.pump(1 << 20);
            answer = answer.take().or_else(|| other.answer());
            answer.is_some()
        });
        let varz = answer.unwrap().1;
        let pending = varz.split("\"pending_bytes\":").last().unwrap();
        let digits = pending.split(|c: char| !c.is_ascii_digit()).next().unwrap();
        most = most.max(digits.parse::<usize>().unwrap());
        let until = world.network.clock().now() + Duration::from_millis(20);
        let clock = world.network.clock();
        world.until(|| clock.now() >= until);
    }
    let mut answers = Vec::new();
    world.until(|| {
        slow.pump(1 << 20);
        answers.extend(slow.answer());
        answers.len() == ASKED
    });
    let page = answers[0].1.len();
    assert!(answers.iter().all(|(status, _)| *status == 200));
    assert!(
        page > 70_000 && most > page / 2 && most < page + 1000,
        "{most} of {page}"
    );
}

#[test]
fn callers_and_clients_that_leave_meanwhile_leave_nothing_behind() {
    for seed in 0..20 {
        let mut world = World::new(seed, 3);
        let named = world.client_with_long_subjects();
        let mut callers = Loop::new(&world.network, &PAGES, 2);
        for _ in 0..40 * seed {
            world.step();
            callers.pump();
        }
        // The peers request subjects while the client leaves, and then leave themselves.
        drop(named);
        for caller in callers.callers {
            caller.endpoint.reset();
            world.step();
        }
        let until = world.network.clock().now() + Duration::from_secs(5);
        let clock = world.network.clock();
        world.until(|| clock.now() >= until);
        world.broker.check_empty().unwrap();
    }
}
