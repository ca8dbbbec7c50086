//! Ends of connections: after all that was received, and noticed however the connection is.

use std::net::SocketAddr;
use std::ops::ControlFlow::{self, Break, Continue};

use rustix::io::Errno;
use subjectbus_reactor::{Closed, ConnId, DriverKind, Origin};

use crate::peer::Peer;
use crate::stage::{OWN, Script, Setting, StageIo, append, id_of, play};

/// What the peer does while the shard is in a turn.
#[derive(Clone, Copy, PartialEq)]
enum Last {
    /// It says something and closes.
    Close,
    /// It says something and closes with bytes that it has not read, which makes that a reset.
    CloseUnread,
    /// As before, and the shard writes to it afterwards.
    CloseUnreadAndWrite,
    /// It says something and ends its side alone.
    EndSending,
}

/// What the peer says last: more than one piece of a buffer, and no more than sockets take at once.
const LAST_BYTES: usize = 100_000;

struct LastWords {
    last: Last,
    peer: Option<Peer>,
    is_greeted: bool,
    received: usize,
    why: Option<Closed>,
    answers: usize,
}

impl Script for LastWords {
    fn begin(&mut self, _: &mut StageIo, address: SocketAddr) {
        self.peer = Some(Peer::connect(address));
    }

    fn on_open(&mut self, io: &mut StageIo, id: ConnId, _: Origin) {
        append(io, id, b"unread");
    }

    fn on_received(&mut self, io: &mut StageIo, id: ConnId, bytes: &mut [u8]) {
        assert_eq!(self.why, None, "bytes after the end");
        self.received += bytes.len();
        if self.last == Last::EndSending {
            append(io, id, bytes);
        }
    }

    fn on_turn_end(&mut self, io: &mut StageIo) {
        // The greeting has been written in an earlier turn, and has arrived.
        if !self.is_greeted || self.received > 0 {
            return;
        }
        let Some(peer) = self.peer.take_if(|_| self.last != Last::EndSending) else {
            return;
        };
        let mut sent = 0;
        while sent < LAST_BYTES {
            let count = peer.send(&vec![1; LAST_BYTES - sent]);
            assert_ne!(count, 0, "the socket takes them all");
            sent += count;
        }
        if self.last == Last::Close {
            assert_eq!(peer.receive(100), b"unread");
        }
        drop(peer);
        if self.last == Last::CloseUnreadAndWrite {
            append(io, id_of(io, 0), b"to one that has gone");
        }
    }

    fn on_closed(&mut self, io: &mut StageIo, _: usize, why: Closed, _: u64) {
        self.why = Some(why);
        io.wake_at(io.now());
    }

    fn between(&mut self, io: &mut StageIo, turn: u64) -> ControlFlow<()> {
        if let Some(peer) = &self.peer
            && self.last == Last::EndSending
        {
            if turn == 4 {
                assert_eq!(peer.send(&[1; 50_000]), 50_000);
                peer.end_sending();
            }
            self.answers += peer.receive(1 << 20).len();
        }
        self.is_greeted = turn > 2;
        if self.why.is_some() {
            return Break(());
        }
        io.wake_at(io.now());
        Continue(())
    }
}

fn last_words(driver: DriverKind, last: Last) -> LastWords {
    let words = LastWords {
        last,
        peer: None,
        is_greeted: false,
        received: 0,
        why: None,
        answers: 0,
    };
    play(Setting::new(driver), words)
}

pub(crate) fn what_a_peer_says_last_comes_before_its_end(driver: DriverKind) {
    let words = last_words(driver, Last::Close);
    assert_eq!(
        (words.received, words.why),
        (LAST_BYTES, Some(Closed::Peer))
    );
}

pub(crate) fn what_a_peer_says_last_comes_before_its_reset(driver: DriverKind) {
    let words = last_words(driver, Last::CloseUnread);
    assert_eq!(words.received, LAST_BYTES);
    assert_eq!(words.why, Some(Closed::Failed(Errno::CONNRESET)));
}

pub(crate) fn what_a_peer_says_last_comes_before_a_failed_write(driver: DriverKind) {
    let words = last_words(driver, Last::CloseUnreadAndWrite);
    assert_eq!(words.received, LAST_BYTES);
    assert!(
        matches!(words.why, Some(Closed::Failed(_))),
        "{:?}",
        words.why
    );
}

pub(crate) fn a_peer_that_ends_its_side_gets_the_answers_to_its_last_bytes(driver: DriverKind) {
    let mut words = last_words(driver, Last::EndSending);
    assert_eq!((words.received, words.why), (50_000, Some(Closed::Peer)));
    let peer = words.peer.take().expect("open");
    words.answers += peer.receive(1 << 20).len();
    assert_eq!(words.answers, 50_000 + b"unread".len());
}

/// What happens to a connection while it is paused.
#[derive(Clone, Copy, PartialEq)]
enum Paused {
    Bytes,
    BytesAndEnd,
    BytesAndReset,
    End,
    Reset,
}

/// Pauses a connection for some turns in which its peer does something.
struct Pause {
    what: Paused,
    peer: Option<Peer>,
    paused_in: Option<u64>,
    is_resumed: bool,
    /// The turn, and what was received or why it ended.
    received: Vec<u8>,
    ended: Option<(Closed, bool)>,
}

/// Turns that the pause lasts.
const PAUSE: u64 = 10;

impl Script for Pause {
    fn begin(&mut self, _: &mut StageIo, address: SocketAddr) {
        self.peer = Some(Peer::connect(address));
    }

    fn on_received(&mut self, _: &mut StageIo, _: ConnId, bytes: &mut [u8]) {
        assert!(self.paused_in.is_none() || self.is_resumed, "while paused");
        self.received.extend_from_slice(bytes);
    }

    fn on_closed(&mut self, _: &mut StageIo, _: usize, why: Closed, _: u64) {
        self.ended.get_or_insert((why, self.is_resumed));
    }

    fn between(&mut self, io: &mut StageIo, turn: u64) -> ControlFlow<()> {
        io.wake_at(io.now());
        if self.ended.is_some() {
            return Break(());
        }
        let Some(paused_in) = self.paused_in else {
            if io.connections.len() == 1 && turn > 3 {
                io.set_reading(id_of(io, 0), false);
                self.paused_in = Some(turn);
            }
            return Continue(());
        };
        match turn - paused_in {
            // Before the pause takes effect with the kernel, and after that.
            passed @ (0 | 1 | 3 | 5) => {
                let has_bytes = !matches!(self.what, Paused::End | Paused::Reset);
                if let Some(peer) = self.peer.as_ref().filter(|_| has_bytes) {
                    assert_eq!(peer.send(&[passed as u8; 40_000]), 40_000);
                }
            }
            6 => match self.what {
                Paused::Bytes => {}
                Paused::BytesAndEnd | Paused::End => self.peer = None,
                Paused::BytesAndReset | Paused::Reset => {
                    self.peer.take().expect("open").reset();
                }
            },
            PAUSE => {
                self.is_resumed = true;
                io.set_reading(id_of(io, 0), true);
            }
            passed if passed > 2 * PAUSE && self.what == Paused::Bytes => return Break(()),
            passed => assert!(passed < 1000, "the end is not noticed"),
        }
        Continue(())
    }
}

fn paused(driver: DriverKind, what: Paused) -> Pause {
    let pause = Pause {
        what,
        peer: None,
        paused_in: None,
        is_resumed: false,
        received: Vec::new(),
        ended: None,
    };
    play(Setting::new(driver), pause)
}

pub(crate) fn a_paused_connection_keeps_its_bytes(driver: DriverKind) {
    let bytes: Vec<u8> = [1, 3, 5].into_iter().flat_map(|n| [n; 40_000]).collect();
    let pause = paused(driver, Paused::Bytes);
    assert!(pause.received == bytes, "{}", pause.received.len());
    assert_eq!(pause.ended, Some((Closed::Shutdown, true)));
    let pause = paused(driver, Paused::BytesAndEnd);
    assert!(pause.received == bytes, "{}", pause.received.len());
    assert_eq!(pause.ended, Some((Closed::Peer, true)));
}

pub(crate) fn the_end_of_a_paused_connection_waits_until_it_is_read(driver: DriverKind) {
    let pause = paused(driver, Paused::End);
    assert_eq!(pause.ended, Some((Closed::Peer, true)));
}

pub(crate) fn the_reset_of_a_paused_connection_is_noticed_at_once(driver: DriverKind) {
    for what in [Paused::Reset, Paused::BytesAndReset] {
        let pause = paused(driver, what);
        let failed = Closed::Failed(Errno::CONNRESET);
        assert_eq!(pause.ended, Some((failed, false)));
        assert!(pause.received.is_empty());
    }
}

/// Connects, and ends that at once or a turn later.
struct Regret {
    address: Option<SocketAddr>,
    opened: usize,
    closed: Vec<Closed>,
    late: Option<ConnId>,
}

impl Script for Regret {
    fn begin(&mut self, io: &mut StageIo, address: SocketAddr) {
        self.address = Some(address);
        let id = io.connect(address, None, OWN);
        io.abort(id);
        let id = io.connect(address, None, OWN);
        io.close(id);
        self.late = Some(io.connect(address, None, OWN));
    }

    fn on_open(&mut self, _: &mut StageIo, _: ConnId, origin: Origin) {
        self.opened += usize::from(origin == Origin::Connected);
    }

    fn on_closed(&mut self, _: &mut StageIo, number: usize, why: Closed, _: u64) {
        if number == OWN {
            self.closed.push(why);
        }
    }

    fn between(&mut self, io: &mut StageIo, turn: u64) -> ControlFlow<()> {
        io.wake_at(io.now());
        match turn {
            1 => io.abort(self.late.expect("connecting")),
            10 => {
                assert_eq!(
                    (self.opened, &self.closed[..]),
                    (0, &[Closed::Local; 3][..])
                );
                // The listener's side of the third has come and gone.
                assert_eq!(io.connections.len(), 0);
                io.connect(self.address.expect("listening"), None, OWN);
            }
            11.. if io.connections.len() == 2 && self.opened == 1 => return Break(()),
            turn => assert!(turn < 1000, "not connected"),
        }
        Continue(())
    }
}

pub(crate) fn an_attempt_to_connect_can_be_given_up(driver: DriverKind) {
    let regret = Regret {
        address: None,
        opened: 0,
        closed: Vec::new(),
        late: None,
    };
    let regret = play(Setting::new(driver), regret);
    assert_eq!(regret.closed.last(), Some(&Closed::Shutdown));
}
