//! Writes: of many chunks, cut short anywhere, to peers that read slowly or not at all.

use std::net::SocketAddr;
use std::ops::ControlFlow::{self, Break, Continue};

use subjectbus_reactor::{Closed, Conn, ConnId, DriverKind, Origin};

use crate::peer::Peer;
use crate::stage::{OWN, Script, Setting, StageIo, end_if, id_of, play};

/// A generator of numbers by chance, from a seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }
}

/// Byte number `n` of a stream in which a gap shows.
fn byte(n: usize) -> u8 {
    (n ^ n >> 8 ^ n >> 16) as u8
}

/// Appends chunks of all sizes; the peer reads as much as chance says.
struct Cut {
    chance: Chance,
    peer: Option<Peer>,
    appended: usize,
    items: u64,
    read: usize,
    blocked: usize,
    is_closing: bool,
    unsent: Option<u64>,
}

/// Bytes of a stream.
const STREAM: usize = 3_000_000;

impl Cut {
    fn append(&mut self, io: &mut StageIo) {
        for _ in 0..1 + self.chance.below(150) {
            let most = [3, 700, 70_000][self.chance.below(3)];
            let len = 1 + self.chance.below(most);
            let id = id_of(io, 0);
            let conn = io.writer(id).expect("open");
            let bytes = (self.appended..self.appended + len).map(byte);
            conn.output.tail().extend(bytes);
            conn.output.add_items(1);
            self.appended += len;
            self.items += 1;
            if self.chance.below(3) == 0 || conn.output.tail_is_full() {
                conn.output.seal();
            }
        }
    }
}

impl Script for Cut {
    fn begin(&mut self, _: &mut StageIo, address: SocketAddr) {
        self.peer = Some(Peer::connect_small(address));
    }

    fn on_blocked(&mut self, _: &mut StageIo, _: ConnId) {
        self.blocked += 1;
    }

    fn on_closed(&mut self, _: &mut StageIo, _: usize, _: Closed, unsent: u64) {
        self.unsent = Some(unsent);
    }

    fn between(&mut self, io: &mut StageIo, _: u64) -> ControlFlow<()> {
        io.wake_at(io.now());
        let peer = self.peer.as_ref().expect("open");
        if self.chance.below(2) == 0 {
            let most = [1, 5000, 200_000][self.chance.below(3)];
            let bytes = peer.receive(self.chance.below(most) + 1);
            for read in bytes {
                assert_eq!(read, byte(self.read), "at {}", self.read);
                self.read += 1;
            }
        }
        if self.unsent.is_some() {
            assert_eq!((self.unsent, self.read), (Some(0), self.appended));
            assert_eq!(io.sent.items, self.items);
            assert_eq!(io.sent.bytes, self.appended as u64);
            return Break(());
        }
        if io.connections.is_empty() || self.is_closing {
            if self.read == self.appended && self.is_closing {
                // It has been told the end, and ends its side.
                peer.end_sending();
            }
            return Continue(());
        }
        let id = id_of(io, 0);
        let waiting = io.conn(id).map_or(0, |conn| conn.output.len());
        if self.appended >= STREAM {
            self.is_closing = true;
            io.close(id);
        } else if waiting < 300_000 {
            self.append(io);
        }
        Continue(())
    }
}

pub(crate) fn writes_cut_short_anywhere_leave_no_gap(driver: DriverKind) {
    for seed in 1..=3 {
        let cut = Cut {
            chance: Chance(seed * 0x9e37_79b9),
            peer: None,
            appended: 0,
            items: 0,
            read: 0,
            blocked: 0,
            is_closing: false,
            unsent: None,
        };
        let cut = play(Setting::new(driver), cut);
        assert!(cut.blocked > 0);
    }
}

/// One chunk of what [`Slow`] and [`Last`] append.
const CHUNK: usize = 1000;

fn append_chunks(io: &mut StageIo, id: ConnId, count: usize) {
    let conn = io.writer(id).expect("open");
    for n in 0..count {
        conn.output
            .tail()
            .extend(std::iter::repeat_n(n as u8, CHUNK));
        conn.output.add_items(1);
        conn.output.seal();
    }
}

/// A peer that reads a little at a time.
struct Slow {
    peer: Option<Peer>,
    blocked: usize,
    backlogs: usize,
    most_backlog: usize,
    read: usize,
}

/// Chunks of one backlog: more than the sockets hold, which the kernel lets grow with use.
const BACKLOG: usize = 6000;

impl Script for Slow {
    fn begin(&mut self, _: &mut StageIo, address: SocketAddr) {
        self.peer = Some(Peer::connect_small(address));
    }

    fn on_blocked(&mut self, io: &mut StageIo, id: ConnId) {
        self.blocked += 1;
        assert_eq!(self.blocked, self.backlogs, "told once for each backlog");
        assert!(io.conn(id).is_some_and(Conn::is_blocked));
    }

    fn between(&mut self, io: &mut StageIo, turn: u64) -> ControlFlow<()> {
        io.wake_at(io.now());
        assert!(turn < 100_000, "{} bytes are read", self.read);
        let peer = self.peer.as_ref().expect("open");
        self.read += peer.receive(3000).len();
        if io.connections.is_empty() {
            return Continue(());
        }
        let id = id_of(io, 0);
        let is_empty = io.conn(id).is_some_and(|conn| conn.output.is_empty());
        let backlog = io.connections.backlog();
        self.most_backlog = self.most_backlog.max(backlog);
        if self.read == self.backlogs * BACKLOG * CHUNK {
            assert!(is_empty && backlog == 0);
            if self.backlogs == 3 {
                return Break(());
            }
            self.backlogs += 1;
            append_chunks(io, id, BACKLOG);
        }
        Continue(())
    }
}

pub(crate) fn a_slow_peer_is_told_of_once_for_each_backlog(driver: DriverKind) {
    let slow = Slow {
        peer: None,
        blocked: 0,
        backlogs: 0,
        most_backlog: 0,
        read: 0,
    };
    let slow = play(Setting::new(driver), slow);
    assert_eq!(slow.blocked, 3);
    assert!(slow.most_backlog > BACKLOG * CHUNK / 4 && slow.most_backlog < BACKLOG * CHUNK);
}

/// The shard ends while much is pending for one that reads, one that does not, and one that begins to.
struct Last {
    peers: Vec<Peer>,
    unsent: [Option<u64>; 3],
}

/// Chunks that are pending at the end: more than a few writes take.
const PENDING: usize = 1500;

impl Script for Last {
    fn begin(&mut self, _: &mut StageIo, address: SocketAddr) {
        self.peers = vec![
            Peer::connect(address),
            Peer::connect_small(address),
            Peer::connect_small(address),
        ];
    }

    fn on_closed(&mut self, _: &mut StageIo, number: usize, why: Closed, unsent: u64) {
        assert_eq!(why, Closed::Shutdown);
        self.unsent[number] = Some(unsent);
    }

    fn between(&mut self, io: &mut StageIo, turn: u64) -> ControlFlow<()> {
        io.wake_at(io.now());
        if io.connections.len() == 3 && turn == 20 {
            (1..3).for_each(|number| append_chunks(io, id_of(io, number), BACKLOG));
        }
        if turn == 30 {
            let is_blocked = |number| io.conn(id_of(io, number)).is_some_and(Conn::is_blocked);
            assert!(is_blocked(1) && is_blocked(2));
            append_chunks(io, id_of(io, 0), PENDING);
            // From now on its socket takes bytes, which the shard hears of only while it ends.
            assert!(!self.peers[2].receive(1 << 20).is_empty());
        }
        end_if(turn == 30)
    }
}

pub(crate) fn what_sockets_take_of_many_chunks_is_sent_at_the_end(driver: DriverKind) {
    let last = Last {
        peers: Vec::new(),
        unsent: [None; 3],
    };
    let last = play(Setting::new(driver), last);
    let [all, none, some] = last.unsent.map(|unsent| unsent.expect("closed"));
    assert_eq!(all, 0);
    assert!(some < none, "{some} of one that reads, {none} of the other");
    let read = last.peers[0].receive(1 << 30);
    assert_eq!(read.len(), PENDING * CHUNK);
}

/// More connections are established in one turn than the submission queue of a ring has room for.
struct Many {
    opened: usize,
}

const CONNECTS: usize = 5000;

impl Script for Many {
    fn begin(&mut self, io: &mut StageIo, address: SocketAddr) {
        for _ in 0..CONNECTS {
            io.connect(address, None, OWN);
        }
    }

    fn on_open(&mut self, _: &mut StageIo, _: ConnId, origin: Origin) {
        self.opened += usize::from(origin == Origin::Connected);
    }

    fn on_closed(&mut self, _: &mut StageIo, number: usize, why: Closed, _: u64) {
        assert!(number != OWN || why == Closed::Shutdown, "{why:?}");
    }

    fn between(&mut self, _: &mut StageIo, _: u64) -> ControlFlow<()> {
        end_if(self.opened == CONNECTS)
    }
}

pub(crate) fn thousands_of_connections_are_established_in_one_turn(driver: DriverKind) {
    let _alone = crate::stage::many_descriptors();
    let setting = Setting {
        connections: 2 * CONNECTS + 100,
        ..Setting::new(driver)
    };
    play(setting, Many { opened: 0 });
}
