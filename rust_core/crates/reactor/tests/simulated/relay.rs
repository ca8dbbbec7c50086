//! Bytes keep their order through partial reads and writes, delays and stalls, and nothing is left.

use std::net::SocketAddr;
use std::time::Duration;

use subjectbus_reactor::sim::{Endpoint, Network, Received, Simulation, Step};
use subjectbus_reactor::{Closed, Conn, ConnId, Handler, Io, Mailboxes, Origin, work};

/// Echoes by way of the next shard, which mails the bytes back; pauses a connection now and then.
#[derive(Default)]
struct Relay {
    open: usize,
    unsent: u64,
    appended: u64,
}

struct Letter {
    home: usize,
    id: ConnId,
    bytes: Vec<u8>,
}

const RESUME: u8 = 1;

impl Handler for Relay {
    type Session = usize;
    type Mail = Letter;

    fn accept(&mut self, _: &mut Io<Self>, _: usize, _: SocketAddr) -> Option<usize> {
        Some(0)
    }

    fn on_open(&mut self, _: &mut Io<Self>, _: ConnId, _: Origin) {
        self.open += 1;
    }

    fn on_received(&mut self, io: &mut Io<Self>, id: ConnId, bytes: &mut [u8]) {
        let home = io.shard();
        let next = (home + 1) % io.shards();
        let bytes = bytes.to_vec();
        io.mail(next, Letter { home, id, bytes });
        let conn = io.conn_mut(id).expect("it has sent something");
        conn.session += 1;
        if conn.session.is_multiple_of(7) {
            io.set_reading(id, false);
            io.set_timer(id, RESUME, Duration::from_millis(3));
        }
    }

    fn on_blocked(&mut self, _: &mut Io<Self>, _: ConnId) {}

    fn before_write(&mut self, _: &mut Conn<usize>) {}

    fn on_closed(&mut self, _: &mut Io<Self>, _: ConnId, _: usize, _: Closed, unsent: u64) {
        self.open -= 1;
        self.unsent += unsent;
    }

    fn on_timer(&mut self, io: &mut Io<Self>, id: ConnId, _: u8) {
        io.set_reading(id, true);
    }

    fn on_mail(&mut self, io: &mut Io<Self>, letter: Letter) {
        if letter.home != io.shard() {
            io.mail(letter.home, letter);
        } else if let Some(conn) = io.writer(letter.id) {
            conn.output.tail().extend_from_slice(&letter.bytes);
            conn.output.add_items(1);
            if conn.output.tail_is_full() {
                conn.output.seal();
            }
            self.appended += 1;
        }
    }

    fn on_undelivered(&mut self, _: Letter) {}

    fn on_turn_end(&mut self, _: &mut Io<Self>) {}

    fn on_written(&mut self, _: &mut Io<Self>) {}
}

fn relayed(seed: u64) {
    let network = Network::new(seed);
    let address = SocketAddr::from(([127, 0, 0, 1], 4222));
    let mut simulation = Simulation::new(&network);
    let mailboxes = Mailboxes::simulated(3);
    let shards: Vec<_> = (0..3)
        .map(|n| simulation.add(n, &mailboxes, &[address], work::TURN, Relay::default()))
        .collect();
    let mut clients: Vec<(Endpoint, Vec<u8>, Vec<u8>)> = (0..5)
        .map(|_| {
            let endpoint = network.connect(address).expect("listening");
            (endpoint, Vec::new(), Vec::new())
        })
        .collect();
    let clock = network.clock();
    let mut ended = false;
    let mut idle = 0;
    loop {
        let until = clock.now() + Duration::from_secs(100);
        let step = simulation
            .step(until)
            .unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        let chosen = network.below(clients.len());
        let (endpoint, sent, received) = &mut clients[chosen];
        if sent.len() < 50_000 {
            let bytes: Vec<u8> = (0..network.below(9000))
                .map(|n| (n * 7 + sent.len()) as u8)
                .collect();
            let count = endpoint.send(&bytes);
            sent.extend_from_slice(&bytes[..count]);
        }
        match endpoint.receive(network.below(20_000)) {
            Received::Bytes(bytes) => received.extend(bytes),
            other => panic!("seed {seed}: {other:?}"),
        }
        if step == Step::Idle {
            idle += 1;
            assert!(
                idle < 10_000,
                "seed {seed}: stuck at {:?}",
                clients
                    .iter()
                    .map(|(_, s, r)| (s.len(), r.len()))
                    .collect::<Vec<_>>()
            );
        }
        ended |= step == Step::Idle;
        if ended
            && clients
                .iter()
                .all(|(_, sent, received)| received.len() == sent.len())
        {
            break;
        }
    }
    for (_, sent, received) in &clients {
        assert!(sent == received, "seed {seed}: out of order");
    }
    drop(clients);
    let until = clock.now() + Duration::from_secs(100);
    while simulation.step(until).expect("sound") != Step::Idle {}
    for shard in &shards {
        let shard = shard.borrow();
        assert_eq!((shard.handler().open, shard.io().connections.len()), (0, 0));
        assert_eq!(shard.handler().unsent, 0, "seed {seed}");
        assert_eq!(
            shard.io().sent.items,
            shard.handler().appended,
            "seed {seed}"
        );
    }
    assert_eq!(network.open_ends(), 0, "seed {seed}");
}

#[test]
fn bytes_keep_their_order_and_nothing_is_left() {
    (0..200).for_each(relayed);
}
