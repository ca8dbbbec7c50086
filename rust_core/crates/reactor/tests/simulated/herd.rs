//! A herd of a hundred thousand that comes, says something and goes, keeps traffic waiting for few turns.

use std::net::SocketAddr;
use std::time::Duration;

use subjectbus_reactor::sim::{Endpoint, Network, Received, Simulation, Step};
use subjectbus_reactor::{Closed, Conn, ConnId, Handler, Io, Mailboxes, Origin, work};

/// Echoes, and counts turns.
#[derive(Default)]
struct Echo {
    turns: u64,
    accepted: usize,
    open: usize,
    most_opened: usize,
    most_closed: usize,
    opened: usize,
    closed: usize,
    /// The turn in which connection 0 was heard last.
    heard_in: u64,
}

impl Handler for Echo {
    type Session = usize;
    type Mail = ();

    fn accept(&mut self, _: &mut Io<Self>, _: usize, _: SocketAddr) -> Option<usize> {
        self.accepted += 1;
        Some(self.accepted - 1)
    }

    fn on_open(&mut self, _: &mut Io<Self>, _: ConnId, _: Origin) {
        self.open += 1;
        self.opened += 1;
    }

    fn on_received(&mut self, io: &mut Io<Self>, id: ConnId, bytes: &mut [u8]) {
        if let Some(conn) = io.writer(id) {
            conn.output.tail().extend_from_slice(bytes);
            if conn.session == 0 {
                self.heard_in = self.turns;
            }
        }
    }

    fn on_blocked(&mut self, _: &mut Io<Self>, _: ConnId) {}

    fn before_write(&mut self, _: &mut Conn<usize>) {}

    fn on_closed(&mut self, _: &mut Io<Self>, _: ConnId, _: usize, _: Closed, _: u64) {
        self.open -= 1;
        self.closed += 1;
    }

    fn on_timer(&mut self, _: &mut Io<Self>, _: ConnId, _: u8) {}

    fn on_mail(&mut self, _: &mut Io<Self>, (): ()) {}

    fn on_undelivered(&mut self, (): ()) {}

    fn on_turn_end(&mut self, _: &mut Io<Self>) {}

    fn on_written(&mut self, _: &mut Io<Self>) {
        self.turns += 1;
        self.most_opened = self.most_opened.max(std::mem::take(&mut self.opened));
        self.most_closed = self.most_closed.max(std::mem::take(&mut self.closed));
    }
}

const HERD: usize = 100_000;

#[test]
fn a_hundred_thousand_come_and_go_while_one_is_served() {
    let network = Network::new(7);
    let address = SocketAddr::from(([127, 0, 0, 1], 4222));
    let mut simulation = Simulation::new(&network);
    let mailboxes = Mailboxes::simulated(1);
    let shard = simulation.add(0, &mailboxes, &[address], work::TURN, Echo::default());
    let quiet = network.connect(address).expect("listening");
    let mut herd: Vec<Endpoint> = Vec::new();
    let mut said_in = None;
    let mut waits = Vec::new();
    let mut has_gone = false;
    loop {
        let until = network.clock().now() + Duration::from_secs(1);
        let step = simulation.step(until).expect("sound");
        if step != Step::Turn {
            continue;
        }
        let shard = shard.borrow();
        let echo = shard.handler();
        if echo.open == 1 && herd.is_empty() && !has_gone {
            herd = (0..HERD)
                .map(|_| network.connect(address).expect("listening"))
                .collect();
            herd.iter().for_each(|member| {
                member.send(b"hello");
            });
        }
        if echo.open == HERD + 1 {
            has_gone = true;
            // Half of them with bytes that they have not read.
            for (n, member) in herd.drain(..).enumerate() {
                if n % 2 == 0 {
                    let _ = member.receive(100);
                }
            }
        }
        match said_in {
            Some(turn) if echo.heard_in >= turn => {
                waits.push(echo.heard_in - turn);
                said_in = None;
            }
            Some(turn) => assert!(echo.turns - turn < 20, "not served"),
            None if !herd.is_empty() || has_gone => {
                said_in = (quiet.send(b"q") == 1).then_some(echo.turns);
            }
            None => {}
        }
        let _ = quiet.receive(100);
        if has_gone && echo.open == 1 {
            break;
        }
    }
    let shard = shard.borrow();
    let echo = shard.handler();
    let changes = work::TURN / 8 * 5;
    assert!(echo.most_opened <= changes / work::ACCEPT + 1);
    assert!(echo.most_closed <= changes / work::CLOSE + 1);
    // A notice may be seen a turn late, and a step may end before bytes have arrived.
    let (count, sum) = (waits.len() as u64, waits.iter().sum::<u64>());
    assert!(count > 300, "{count} turns");
    assert!(sum <= count + count / 2, "{sum} turns for {count}");
    assert!(matches!(quiet.receive(100), Received::Bytes(_)));
}
