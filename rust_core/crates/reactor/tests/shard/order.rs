//! The order of a turn, and the shares of its parts.

use std::net::SocketAddr;
use std::ops::ControlFlow::{self, Break, Continue};
use std::time::Duration;

use subjectbus_reactor::{Closed, Conn, ConnId, DriverKind, Origin, timer, work};

use crate::peer::Peer;
use crate::stage::{SHORT_TURN, Script, Setting, StageIo, append, id_of, many_descriptors, play};

/// Wait until a timer is due that was set in this turn with no delay.
fn wait_until_due(io: &StageIo) {
    let due = io.now() + 2 * timer::TICK;
    while io.clock().now() < due {
        std::thread::sleep(due.saturating_duration_since(io.clock().now()));
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Did {
    Mail,
    Received,
    Opened,
    Closed,
    Timer,
    PutOff,
    BeforeWrite,
}

/// In one turn there is something of everything.
#[derive(Default)]
struct Everything {
    address: Option<SocketAddr>,
    peers: Vec<Peer>,
    did: Vec<Did>,
    is_recording: bool,
}

impl Script for Everything {
    fn begin(&mut self, _: &mut StageIo, address: SocketAddr) {
        self.address = Some(address);
        self.peers = (0..2).map(|_| Peer::connect(address)).collect();
    }

    fn on_open(&mut self, _: &mut StageIo, _: ConnId, _: Origin) {
        self.did.push(Did::Opened);
    }

    fn on_received(&mut self, io: &mut StageIo, id: ConnId, bytes: &mut [u8]) {
        self.did.push(Did::Received);
        append(io, id, bytes);
    }

    fn before_write(&mut self, conn: &mut Conn<usize>) {
        if !conn.output.is_empty() {
            self.did.push(Did::BeforeWrite);
            assert_eq!(conn.output.tail(), b"received put off");
        }
    }

    fn on_closed(&mut self, _: &mut StageIo, _: usize, _: Closed, _: u64) {
        self.did.push(Did::Closed);
    }

    fn on_timer(&mut self, _: &mut StageIo, _: ConnId, _: u8) {
        self.did.push(Did::Timer);
    }

    fn on_mail(&mut self, _: &mut StageIo, _: u32) {
        self.did.push(Did::Mail);
    }

    fn on_turn_end(&mut self, io: &mut StageIo) {
        self.did.push(Did::PutOff);
        if self.is_recording {
            let id = id_of(io, 0);
            append(io, id, b" put off");
        }
    }

    fn between(&mut self, io: &mut StageIo, _: u64) -> ControlFlow<()> {
        if self.is_recording {
            return Break(());
        }
        if io.connections.len() < 2 {
            return Continue(());
        }
        self.did.clear();
        self.is_recording = true;
        // Set first and handed out last, and due when the turn begins.
        io.set_timer(ConnId::NONE, 1, Duration::ZERO);
        wait_until_due(io);
        let address = self.address.expect("listening");
        self.peers.push(Peer::connect(address));
        self.peers.remove(1);
        self.peers[0].send(b"received");
        io.mail(0, 1);
        Continue(())
    }
}

pub(crate) fn a_turn_has_its_order(driver: DriverKind) {
    let mut did = play(Setting::new(driver), Everything::default()).did;
    // What came and what went is in no order.
    did[2..4].sort_by_key(|did| *did == Did::Closed);
    let wanted = [
        Did::Mail,
        Did::Received,
        Did::Opened,
        Did::Closed,
        Did::Timer,
        Did::PutOff,
        Did::BeforeWrite,
    ];
    assert_eq!(did[..wanted.len()], wanted);
}

/// Work of one of everything in [`Greedy`], what the reactor counts included.
const ITEM: usize = 10_000;
const MEMBERS: usize = 600;
/// Turns that are looked at: all parts have more to do than their shares then.
const TURNS: std::ops::Range<u64> = 3..12;

/// Every part of the turn has more to do than fits.
#[derive(Default)]
struct Greedy {
    peers: Vec<Peer>,
    begun_in: Option<u64>,
    /// What was done in this turn: mail, received, closed, timers, put off.
    did: [usize; 5],
    turns: Vec<[usize; 5]>,
}

impl Script for Greedy {
    fn begin(&mut self, _: &mut StageIo, address: SocketAddr) {
        self.peers = (0..MEMBERS).map(|_| Peer::connect(address)).collect();
    }

    fn on_mail(&mut self, io: &mut StageIo, _: u32) {
        self.did[0] += 1;
        io.spend(ITEM - work::MAIL);
        io.mail(0, 1);
    }

    fn on_received(&mut self, io: &mut StageIo, _: ConnId, _: &mut [u8]) {
        self.did[1] += 1;
        io.spend(ITEM - work::RECEIVE - 1);
    }

    fn on_closed(&mut self, _: &mut StageIo, _: usize, _: Closed, _: u64) {
        self.did[2] += 1;
    }

    fn on_timer(&mut self, io: &mut StageIo, id: ConnId, _: u8) {
        self.did[3] += 1;
        io.spend(ITEM - work::TIMER);
        io.set_timer(id, 1, Duration::ZERO);
    }

    fn on_turn_end(&mut self, io: &mut StageIo) {
        while self.begun_in.is_some() && !io.is_spent() {
            self.did[4] += 1;
            io.spend(ITEM);
        }
    }

    fn between(&mut self, io: &mut StageIo, turn: u64) -> ControlFlow<()> {
        let did = std::mem::take(&mut self.did);
        match self.begun_in {
            None if io.connections.len() == MEMBERS => {
                self.begun_in = Some(turn);
                (0..200).for_each(|n| io.mail(0, n));
                (0..200).for_each(|_| io.set_timer(ConnId::NONE, 1, Duration::ZERO));
                wait_until_due(io);
                self.peers.truncate(MEMBERS / 2);
            }
            None => return Continue(()),
            Some(begun_in) if turn - begun_in == TURNS.end => return Break(()),
            Some(begun_in) if TURNS.contains(&(turn - begun_in)) => self.turns.push(did),
            Some(_) => {}
        }
        self.peers.iter().for_each(|peer| {
            peer.send(b"x");
        });
        Continue(())
    }
}

pub(crate) fn every_part_of_a_turn_has_its_share(driver: DriverKind) {
    let _alone = many_descriptors();
    let turns = play(Setting::with_short_turns(driver), Greedy::default()).turns;
    let eighth = SHORT_TURN / 8;
    let closes = eighth.div_ceil(work::CLOSE + work::RECEIVE);
    let wanted = [
        2 * eighth / ITEM,
        2 * eighth / ITEM,
        closes,
        eighth / ITEM,
        2 * eighth / ITEM,
    ];
    for did in &turns {
        for (did, wanted) in did.iter().zip(wanted) {
            // One more where a part ends between two.
            assert!((wanted..=wanted + 1).contains(did), "{turns:?}, {wanted:?}");
        }
    }
    assert_eq!(turns.len() as u64, TURNS.end - TURNS.start);
}
