//! A herd is worked off turn by turn, each within its share of the budget, and keeps traffic waiting for
//! none of them.

use std::net::SocketAddr;
use std::ops::ControlFlow::{self, Break, Continue};
use std::time::Duration;

use subjectbus_reactor::{Closed, ConnId, DriverKind, Origin, work};

use crate::fairness::Quiet;
use crate::peer::Peer;
use crate::stage::{
    OWN, SHORT_TURN, Script, Setting, StageIo, append, id_of, many_descriptors, play,
};

/// What the members of a herd do at once.
#[derive(Clone, Copy, PartialEq)]
enum Herd {
    Come,
    /// They end.
    Go,
    /// They say something and end.
    GoWithLastBytes,
    /// They end when the shard has ended its side.
    GoInAnswer,
    /// They break off.
    Reset,
    /// They read what their sockets had no room for.
    Read,
    /// Their timers are due.
    Timers,
    /// There is mail.
    Mail,
    /// The shard connects to itself.
    Connect,
}

/// Bytes for each of those that read: more than their sockets hold.
const UNREAD: usize = 192 * 1024;

struct Play {
    herd: Herd,
    size: usize,
    address: Option<SocketAddr>,
    quiet: Quiet,
    peers: Vec<Peer>,
    has_begun: bool,
    /// Members that are done, and the most in one turn.
    done: usize,
    done_before: usize,
    most: usize,
    /// Members whose bytes have been handed out, by number.
    heard: Vec<bool>,
    /// Bytes that each peer has read.
    read: Vec<usize>,
    turns: u64,
}

impl Play {
    fn new(herd: Herd, size: usize) -> Self {
        Self {
            herd,
            size,
            address: None,
            quiet: Quiet::default(),
            peers: Vec::new(),
            has_begun: false,
            done: 0,
            done_before: 0,
            most: 0,
            heard: vec![false; size + 1],
            read: vec![0; size],
            turns: 0,
        }
    }

    fn is_member(&self, number: usize) -> bool {
        self.has_begun && number != 0 && number != OWN
    }

    /// Whether all is as it must be before the herd does what it does.
    fn is_ready(&self, io: &StageIo) -> bool {
        let open = io.connections.len();
        match self.herd {
            Herd::Come | Herd::Timers | Herd::Mail | Herd::Connect => open == 1,
            Herd::Go | Herd::GoWithLastBytes | Herd::GoInAnswer | Herd::Reset => {
                open == self.size + 1
            }
            Herd::Read => {
                let mut ids = io.connections.ids();
                let is_waiting = |id| {
                    io.conn(id)
                        .is_some_and(|conn| conn.session == 0 || conn.is_blocked())
                };
                open == self.size + 1 && ids.all(is_waiting)
            }
        }
    }

    fn begin_herd(&mut self, io: &mut StageIo) {
        let address = self.address.expect("listening");
        match self.herd {
            Herd::Come => {
                self.peers
                    .extend((0..self.size).map(|_| Peer::connect(address)));
            }
            Herd::Go => self.peers.clear(),
            Herd::GoInAnswer => {
                let ids: Vec<ConnId> = io.connections.ids().collect();
                for id in ids {
                    if io.conn(id).is_some_and(|conn| conn.session != 0) {
                        io.close(id);
                    }
                }
                self.peers.clear();
            }
            Herd::GoWithLastBytes => {
                self.peers
                    .drain(..)
                    .for_each(|peer| assert_eq!(peer.send(b"last"), 4));
            }
            Herd::Reset => self.peers.drain(..).for_each(Peer::reset),
            Herd::Read => {}
            Herd::Timers => {
                let id = id_of(io, 0);
                (0..self.size).for_each(|_| io.set_timer(id, 1, Duration::ZERO));
            }
            Herd::Mail => (0..self.size).for_each(|n| io.mail(0, n as u32)),
            Herd::Connect => {
                for _ in 0..self.size {
                    io.connect(address, None, OWN);
                }
            }
        }
    }
}

impl Script for Play {
    fn begin(&mut self, _: &mut StageIo, address: SocketAddr) {
        self.address = Some(address);
        self.quiet.connect(address);
        let connect = match self.herd {
            Herd::Go | Herd::GoWithLastBytes | Herd::GoInAnswer | Herd::Reset => Peer::connect,
            Herd::Read => Peer::connect_small,
            _ => return,
        };
        self.peers = (0..self.size).map(|_| connect(address)).collect();
    }

    fn on_open(&mut self, io: &mut StageIo, id: ConnId, origin: Origin) {
        let number = io.conn(id).expect("open").session;
        match self.herd {
            Herd::Come => self.done += usize::from(self.is_member(number)),
            Herd::Connect => self.done += usize::from(origin == Origin::Connected),
            Herd::Read if number != 0 => append(io, id, &[7; UNREAD]),
            _ => {}
        }
    }

    fn on_received(&mut self, io: &mut StageIo, id: ConnId, _: &mut [u8]) {
        match io.conn(id).expect("open").session {
            0 => self.quiet.note_received(),
            number => self.heard[number] = true,
        }
    }

    fn on_closed(&mut self, _: &mut StageIo, number: usize, why: Closed, _: u64) {
        if self.is_member(number) && why != Closed::Shutdown {
            self.done += 1;
            if self.herd == Herd::GoWithLastBytes {
                assert!(self.heard[number], "its last bytes come before its end");
            }
        }
    }

    fn on_timer(&mut self, _: &mut StageIo, _: ConnId, _: u8) {
        self.done += 1;
    }

    fn on_mail(&mut self, io: &mut StageIo, mail: u32) {
        assert_eq!(mail as usize, self.done, "in their order");
        io.spend(800);
        self.done += 1;
    }

    fn between(&mut self, io: &mut StageIo, turn: u64) -> ControlFlow<()> {
        if !self.has_begun {
            if !self.is_ready(io) {
                return Continue(());
            }
            self.has_begun = true;
            self.begin_herd(io);
        } else {
            self.turns += 1;
        }
        if self.herd == Herd::Read {
            for (peer, read) in self.peers.iter().zip(&mut self.read) {
                *read += peer.receive(UNREAD).len();
            }
            self.done = self.read.iter().filter(|read| **read == UNREAD).count();
        }
        self.most = self.most.max(self.done - self.done_before);
        self.done_before = self.done;
        if self.done == self.size {
            return Break(());
        }
        self.quiet.say(turn);
        Continue(())
    }
}

/// Play a herd of which at most `most` members are done in a turn.
fn play_herd(driver: DriverKind, herd: Herd, size: usize, most: usize) {
    play_with(Setting::with_short_turns(driver), herd, size, most);
}

fn play_with(setting: Setting, herd: Herd, size: usize, most: usize) {
    let _alone = many_descriptors();
    let play = play(setting, Play::new(herd, size));
    assert!(play.most <= most, "{} in one turn", play.most);
    let turns = size.div_ceil(most);
    assert!(play.turns >= turns as u64, "{} turns", play.turns);
    play.quiet.check(turns - 1);
}

/// Work of the changes of one turn at most, when nothing else is done.
const CHANGES: usize = SHORT_TURN / 8 * 5;

pub(crate) fn a_herd_that_comes_keeps_traffic_waiting_for_no_turn(driver: DriverKind) {
    play_herd(driver, Herd::Come, 2000, CHANGES / work::ACCEPT + 1);
}

pub(crate) fn a_herd_that_goes_keeps_traffic_waiting_for_no_turn(driver: DriverKind) {
    play_herd(driver, Herd::Go, 2000, CHANGES / work::CLOSE + 1);
}

pub(crate) fn a_herd_that_goes_in_answer_keeps_traffic_waiting_for_no_turn(driver: DriverKind) {
    play_herd(driver, Herd::GoInAnswer, 2000, CHANGES / work::CLOSE + 1);
}

pub(crate) fn a_herd_that_says_its_last_keeps_traffic_waiting_for_no_turn(driver: DriverKind) {
    // Its bytes are traffic: as much as fits into one turn.
    let most = work::TURN / 8 * 5 / work::CLOSE + 1;
    play_with(Setting::new(driver), Herd::GoWithLastBytes, 1900, most);
}

pub(crate) fn a_herd_that_breaks_off_keeps_traffic_waiting_for_no_turn(driver: DriverKind) {
    play_herd(driver, Herd::Reset, 2000, CHANGES / work::CLOSE + 1);
}

pub(crate) fn a_herd_that_reads_keeps_traffic_waiting_for_no_turn(driver: DriverKind) {
    play_herd(driver, Herd::Read, 300, SHORT_TURN / work::WRITE);
}

pub(crate) fn a_herd_of_timers_keeps_traffic_waiting_for_no_turn(driver: DriverKind) {
    let timers = SHORT_TURN / 8 * 6;
    play_herd(driver, Herd::Timers, 40_000, timers / work::TIMER + 1);
}

pub(crate) fn a_herd_of_mail_keeps_traffic_waiting_for_no_turn(driver: DriverKind) {
    let mail = SHORT_TURN / 8 * 2;
    play_herd(driver, Herd::Mail, 10_000, mail / (work::MAIL + 800) + 1);
}

pub(crate) fn a_shard_that_connects_often_keeps_traffic_waiting_for_no_turn(driver: DriverKind) {
    play_herd(driver, Herd::Connect, 1000, 1000);
}
