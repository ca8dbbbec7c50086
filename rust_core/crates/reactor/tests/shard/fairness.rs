//! A connection that has little to say is served in every turn, whatever others send.

use std::net::SocketAddr;
use std::ops::ControlFlow::{self, Break, Continue};

use subjectbus_reactor::{ConnId, DriverKind};

use crate::peer::Peer;
use crate::stage::{Script, Setting, StageIo, play};

/// A connection that says a byte after each turn, and the turns until that was handed out.
#[derive(Default)]
pub(crate) struct Quiet {
    peer: Option<Peer>,
    sent_after: Option<u64>,
    turn: u64,
    pub(crate) waits: Vec<u64>,
}

impl Quiet {
    /// Connect. It is to be the first connection, number 0.
    pub(crate) fn connect(&mut self, address: SocketAddr) {
        self.peer = Some(Peer::connect(address));
    }

    pub(crate) fn note_received(&mut self) {
        let sent_after = self.sent_after.take().expect("sent");
        self.waits.push(self.turn + 1 - sent_after);
    }

    /// Say a byte after the turn `turn` unless one is on its way.
    pub(crate) fn say(&mut self, turn: u64) {
        self.turn = turn;
        if self.sent_after.is_none() {
            let peer = self.peer.as_ref().expect("connected");
            assert_eq!(peer.send(b"q"), 1);
            self.sent_after = Some(turn);
        }
    }

    /// Check that it was served in each turn, `least` times or more.
    pub(crate) fn check(&self, least: usize) {
        assert!(self.waits.len() >= least, "{}", self.waits.len());
        assert!(self.waits.iter().all(|wait| *wait == 1), "{:?}", self.waits);
        let pending = self.sent_after.map(|sent_after| self.turn - sent_after);
        assert!(pending.is_none_or(|turns| turns <= 1), "{pending:?}");
    }
}

/// Connections that always send as much as the sockets take.
struct Floods {
    count: usize,
    quiet: Quiet,
    peers: Vec<Peer>,
    turn: u64,
    /// For each of them, the last turn in which bytes were handed out, and the number of such turns.
    served: Vec<(u64, u64)>,
}

impl Script for Floods {
    fn begin(&mut self, _: &mut StageIo, address: SocketAddr) {
        self.quiet.connect(address);
        self.peers = (0..self.count).map(|_| Peer::connect(address)).collect();
    }

    fn on_received(&mut self, io: &mut StageIo, id: ConnId, _: &mut [u8]) {
        match io.conn(id).expect("open").session {
            0 => self.quiet.note_received(),
            number => {
                let (last, turns) = &mut self.served[number - 1];
                *turns += u64::from(std::mem::replace(last, self.turn) != self.turn);
            }
        }
    }

    fn between(&mut self, io: &mut StageIo, turn: u64) -> ControlFlow<()> {
        if io.connections.len() <= self.count {
            return Continue(());
        }
        if self.quiet.waits.len() == 100 {
            return Break(());
        }
        self.turn = turn;
        self.peers.iter().for_each(Peer::fill);
        self.quiet.say(turn);
        Continue(())
    }
}

fn is_served_while_others_flood(driver: DriverKind, count: usize) {
    let floods = Floods {
        count,
        quiet: Quiet::default(),
        peers: Vec::new(),
        turn: 0,
        served: vec![(0, 0); count],
    };
    let floods = play(Setting::new(driver), floods);
    floods.quiet.check(100);
    // Bytes tell nothing of fairness: the kernel lets some sockets hold more than others.
    let is_served = |(_, turns): &(u64, u64)| *turns >= 75;
    assert!(floods.served.iter().all(is_served), "{:?}", floods.served);
}

pub(crate) fn a_quiet_connection_is_served_in_every_turn_while_20_flood(driver: DriverKind) {
    is_served_while_others_flood(driver, 20);
}

pub(crate) fn a_quiet_connection_is_served_in_every_turn_while_200_flood(driver: DriverKind) {
    is_served_while_others_flood(driver, 200);
}
