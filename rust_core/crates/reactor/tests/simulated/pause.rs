//! A listener that is paused accepts again when its pause is over, exactly, and delays no other one.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use subjectbus_reactor::sim::{Endpoint, Network, Simulation, Step};
use subjectbus_reactor::{Closed, Conn, ConnId, Handler, Io, Mailboxes, Origin, work};

/// Pauses its first listener when it accepts the first connection.
#[derive(Default)]
struct Door {
    /// The listener and the time of each connection.
    opened: Vec<(usize, Instant)>,
}

const PAUSE: Duration = Duration::from_millis(60);

impl Handler for Door {
    type Session = ();
    type Mail = ();

    fn accept(&mut self, _: &mut Io<Self>, _: usize, _: SocketAddr) -> Option<()> {
        Some(())
    }

    fn on_open(&mut self, io: &mut Io<Self>, _: ConnId, origin: Origin) {
        let Origin::Accepted(listener) = origin else {
            unreachable!("it never connects")
        };
        if self.opened.is_empty() {
            io.pause_accepting(0, io.now() + PAUSE);
        }
        self.opened.push((listener, io.now()));
    }

    fn on_received(&mut self, _: &mut Io<Self>, _: ConnId, _: &mut [u8]) {}

    fn on_blocked(&mut self, _: &mut Io<Self>, _: ConnId) {}

    fn before_write(&mut self, _: &mut Conn<()>) {}

    fn on_closed(&mut self, _: &mut Io<Self>, _: ConnId, (): (), _: Closed, _: u64) {}

    fn on_timer(&mut self, _: &mut Io<Self>, _: ConnId, _: u8) {}

    fn on_mail(&mut self, _: &mut Io<Self>, (): ()) {}

    fn on_undelivered(&mut self, (): ()) {}

    fn on_turn_end(&mut self, _: &mut Io<Self>) {}

    fn on_written(&mut self, _: &mut Io<Self>) {}
}

fn pause(seed: u64) {
    let network = Network::new(seed);
    network.set_longest_delay(Duration::ZERO);
    let addresses = [4222, 4223].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let mut simulation = Simulation::new(&network);
    simulation.set_work_takes_time(false);
    let mailboxes = Mailboxes::simulated(1);
    let shard = simulation.add(0, &mailboxes, &addresses, work::TURN, Door::default());
    let clock = network.clock();
    let connect = |n: usize| network.connect(addresses[n]).expect("listening");
    let mut run = |time| {
        let until = clock.now() + time;
        while simulation.step(until).expect("sound") != Step::Idle {}
    };
    let mut peers: Vec<Endpoint> = vec![connect(0)];
    run(Duration::from_millis(1));
    peers.extend([0, 0, 1, 0].map(connect));
    run(2 * PAUSE);
    let shard = shard.borrow();
    let opened = &shard.handler().opened;
    let begun = opened[0].1;
    let times = opened.iter().map(|(n, at)| (*n, *at - begun));
    let at_once = Duration::from_millis(1);
    let wanted = [
        (0, Duration::ZERO),
        (1, at_once),
        (0, PAUSE),
        (0, PAUSE),
        (0, PAUSE),
    ];
    assert_eq!(times.collect::<Vec<_>>(), wanted, "seed {seed}");
}

#[test]
fn a_paused_listener_accepts_again_when_its_pause_is_over() {
    (0..50).for_each(pause);
}
