//! Timeouts of a broker, in virtual time. A slow client is cut at its time, up to two ticks of the
//! timers later, and no other client waits for that.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use broker::Config;
use broker::sim::{HTTP, TCP};
use reactor::sim::{Endpoint, Received};
use reactor::timer::TICK;
use subjectbus_simulation::load::Stage;

const SECOND: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(50);
const BYTE: &[u8] = b"GET /byte HTTP/1.1\r\nHost: localhost\r\n\r\n";
const CONNECT: &[u8] = b"CONNECT {\"verbose\":false}\r\nPING\r\n";

/// Connection of a client, and all received bytes.
struct Client {
    endpoint: Endpoint,
    unsent: Vec<u8>,
    received: Vec<u8>,
    has_ended: bool,
}

impl Client {
    fn connect(stage: &Stage, address: std::net::SocketAddr) -> Self {
        Self {
            endpoint: stage.network().connect(address).unwrap(),
            unsent: Vec::new(),
            received: Vec::new(),
            has_ended: false,
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.unsent.extend_from_slice(bytes);
        self.exchange();
    }

    /// Send and receive as much as there is room for.
    fn exchange(&mut self) {
        let sent = self.endpoint.send(&self.unsent);
        self.unsent.drain(..sent);
        loop {
            match self.endpoint.receive(usize::MAX) {
                Received::Bytes(bytes) if bytes.is_empty() => return,
                Received::Bytes(bytes) => self.received.extend(bytes),
                Received::End | Received::Reset => {
                    self.has_ended = true;
                    return;
                }
            }
        }
    }

    /// Return how often `text` was received.
    fn count(&self, text: &str) -> usize {
        let windows = self.received.windows(text.len());
        windows.filter(|found| *found == text.as_bytes()).count()
    }
}

/// Do steps until `condition` holds for the client; return the time.
fn wait_for(
    stage: &mut Stage,
    client: &mut Client,
    condition: impl Fn(&Client) -> bool,
) -> Instant {
    let is_there = || {
        client.exchange();
        condition(client)
    };
    stage.run_until(60 * SECOND, is_there).unwrap();
    assert!(
        condition(client),
        "{}",
        String::from_utf8_lossy(&client.received)
    );
    stage.network().clock().now()
}

/// Let time pass.
fn pass(stage: &mut Stage, time: Duration) {
    stage.run_until(time, || false).unwrap();
}

fn assert_took(from: Instant, to: Instant, expected: Duration) {
    let took = to - from;
    assert!(
        (expected..=expected + 2 * TICK).contains(&took),
        "{took:?} instead of {expected:?}"
    );
}

#[test]
fn slow_requests_are_cut() {
    let post = b"POST /v1/publish/a HTTP/1.1\r\nHost: localhost\r\n";
    let sized = [&post[..], b"Content-Length: 1000000\r\n\r\n"].concat();
    let chunked = [&post[..], b"Transfer-Encoding: chunked\r\n\r\n"].concat();
    let kinds: [(&[u8], &[u8]); 3] = [
        (b"GET /byte HTTP/1.1\r\n", b"X: y\r\n"),
        (&sized, b"x"),
        (&chunked, b"1\r\nx\r\n"),
    ];
    for (start, piece) in kinds {
        for is_first in [true, false] {
            let config = Config {
                handshake_timeout_s: 0.4,
                ..Config::default()
            };
            let mut stage = Stage::exact_with(&config, 1, 1).unwrap();
            let mut caller = Client::connect(&stage, HTTP);
            if !is_first {
                caller.send(BYTE);
                wait_for(&mut stage, &mut caller, |caller| {
                    caller.count("HTTP/1.1 200 ") == 1
                });
                pass(&mut stage, SECOND);
            }
            let began = stage.network().clock().now();
            caller.send(start);
            while caller.count("HTTP/1.1 408 ") == 0 {
                pass(&mut stage, PAUSE);
                caller.send(piece);
                assert!(stage.network().clock().now() - began < SECOND);
            }
            let ended = wait_for(&mut stage, &mut caller, |caller| caller.has_ended);
            assert!(ended - began >= Duration::from_millis(400));
            assert!(ended - began <= Duration::from_millis(400) + PAUSE + 2 * TICK);
        }
    }
}

#[test]
fn handshakes_that_do_not_end_are_cut() {
    let config = Config {
        handshake_timeout_s: 0.3,
        ..Config::default()
    };
    let mut stage = Stage::exact_with(&config, 1, 1).unwrap();
    let began = stage.network().clock().now();
    let starts: [&[u8]; 2] = [b"", b"GET / HTTP/1.1\r\nUpgrade: w"];
    let mut clients = starts.map(|start| {
        let mut client = Client::connect(&stage, HTTP);
        client.send(start);
        client
    });
    for client in &mut clients {
        let ended = wait_for(&mut stage, client, |client| client.has_ended);
        assert_took(began, ended, Duration::from_millis(300));
    }
}

#[test]
fn an_idle_connection_is_closed() {
    let config = Config {
        http_idle_timeout_s: 0.3,
        ..Config::default()
    };
    let mut stage = Stage::exact_with(&config, 1, 1).unwrap();
    let mut caller = Client::connect(&stage, HTTP);
    for number in 1..=3 {
        pass(&mut stage, 4 * PAUSE);
        caller.send(BYTE);
        wait_for(&mut stage, &mut caller, |caller| {
            caller.count("HTTP/1.1 200 ") == number
        });
    }
    let last = stage.network().clock().now();
    let ended = wait_for(&mut stage, &mut caller, |caller| caller.has_ended);
    assert_took(last, ended, Duration::from_millis(300));
}

#[test]
fn a_request_waits_for_its_reply_as_long_as_it_says() {
    let mut stage = Stage::exact(2, 1).unwrap();
    let mut service = Client::connect(&stage, TCP);
    service.send(CONNECT);
    service.send(b"SUB late 1\r\nPING\r\n");
    wait_for(&mut stage, &mut service, |service| {
        service.count("PONG\r\n") == 2
    });
    for (field, timeout) in [("200ms", 200), ("1500ms", 1500), ("3", 3000)] {
        let mut caller = Client::connect(&stage, HTTP);
        let began = stage.network().clock().now();
        let head = format!(
            "POST /v1/request/late HTTP/1.1\r\nHost: localhost\r\nX-Request-Timeout: {field}\r\n\
             Content-Length: 0\r\n\r\n"
        );
        caller.send(head.as_bytes());
        let answered = wait_for(&mut stage, &mut caller, |caller| {
            caller.count("HTTP/1.1 504 ") == 1
        });
        assert_took(began, answered, Duration::from_millis(timeout));
    }
}

#[test]
fn a_slow_consumer_does_not_delay_the_others() {
    const MESSAGES: usize = 2000;
    let config = Config {
        max_payload: 100_000,
        max_pending: 1_000_000,
        write_deadline_s: 2.0,
        ..Config::default()
    };
    let mut stage = Stage::exact_with(&config, 2, 1).unwrap();
    let [mut idle, mut reader, mut publisher] = [(); 3].map(|()| Client::connect(&stage, TCP));
    for client in [&mut idle, &mut reader] {
        client.send(CONNECT);
        client.send(b"SUB flood 1\r\nPING\r\n");
        wait_for(&mut stage, client, |client| client.count("PONG\r\n") == 2);
    }
    publisher.send(CONNECT);
    let operation = [&b"PUB flood 10000\r\n"[..], &[b'x'; 10_000], b"\r\n"].concat();
    let mut slowest = Duration::ZERO;
    for _ in 0..MESSAGES {
        let began = stage.network().clock().now();
        reader.received.clear();
        publisher.send(&operation);
        let is_there = || {
            publisher.exchange();
            reader.exchange();
            reader.received.len() >= b"MSG flood 1 10000\r\n".len() + 10_002
        };
        stage.run_until(60 * SECOND, is_there).unwrap();
        slowest = slowest.max(stage.network().clock().now() - began);
    }
    // A client that does not read stalls publishers briefly, until it is cut.
    assert!(slowest <= Duration::from_millis(10), "{slowest:?}");
    wait_for(&mut stage, &mut idle, |idle| idle.has_ended);
    assert_eq!(idle.count("-ERR"), 0);
    assert!(idle.count("MSG flood 1 10000\r\n") < MESSAGES / 2);
}
