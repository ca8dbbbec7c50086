//! The streams of a simulated network, and what becomes of them in time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::clock::Clock;
use crate::conn_id::ConnId;

/// Bytes that one direction of a connection holds at most, under way and unread.
const CAPACITY: usize = 16 * 1024;

/// Longest time that a segment takes where nothing else is set.
pub(super) const LONGEST_DELAY: Duration = Duration::from_micros(200);

/// A number of a shard in a network.
pub(super) type Host = usize;

/// An event for a shard.
#[derive(Debug, Clone, Copy)]
pub(super) enum Notice {
    /// The end has bytes, an end of the stream, or a failure; and whether it is one of the last two.
    Ready(ConnId, bool),
    /// The end has room to write.
    Room(ConnId),
    Connected(ConnId, Result<(), Errno>),
    Acceptable(usize),
}

pub(super) enum Segment {
    Bytes(Vec<u8>),
    End,
    Reset,
}

/// One end of a connection.
pub(super) struct End {
    pub(super) peer: usize,
    pub(super) address: SocketAddr,
    pub(super) host: Option<Host>,
    /// The shard's name for it, once it has one.
    pub(super) conn: Option<ConnId>,
    pub(super) unread: VecDeque<u8>,
    pub(super) under_way: VecDeque<(Instant, Segment)>,
    /// Bytes under way.
    pub(super) bytes_under_way: usize,
    /// A notice waits that the end has something to read.
    pub(super) is_told: bool,
    pub(super) has_ended: bool,
    pub(super) has_failed: bool,
    /// The peer writes no more.
    pub(super) peer_is_done: bool,
    /// The last write of this end was cut short.
    pub(super) wants_room: bool,
}

impl End {
    /// Return whether nothing comes after what has arrived.
    pub(super) fn is_last(&self) -> bool {
        self.has_ended || self.has_failed
    }

    fn room(&self) -> usize {
        CAPACITY.saturating_sub(self.unread.len() + self.bytes_under_way)
    }
}

#[derive(Default)]
pub(super) struct HostState {
    pub(super) notices: VecDeque<(Instant, Notice)>,
    /// Accepted connections that wait, for each listener.
    pub(super) arrivals: Vec<VecDeque<usize>>,
}

pub(super) struct State {
    pub(super) clock: Clock,
    pub(super) began: Instant,
    pub(super) longest_delay: Duration,
    pub(super) rng: u64,
    pub(super) ends: Vec<Option<End>>,
    pub(super) free: Vec<usize>,
    /// When a segment arrives, and at which end. The second number keeps their order.
    pub(super) due: BinaryHeap<Reverse<(Instant, u64, usize)>>,
    pub(super) sent: u64,
    pub(super) hosts: Vec<HostState>,
    pub(super) listeners: BTreeMap<SocketAddr, Vec<(Host, usize)>>,
    pub(super) next_port: u16,
}

impl State {
    /// Return the next number of SplitMix64 (Steele, Lea, Flood 2014).
    fn random(&mut self) -> u64 {
        self.rng = self.rng.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.rng;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.random()) * bound as u128) >> 64) as usize
    }

    fn delay(&mut self) -> Duration {
        match self.below(4) {
            0 => Duration::ZERO,
            _ => self.longest_delay.mul_f64(self.below(1000) as f64 / 1000.0),
        }
    }

    pub(super) fn connect(&mut self, to: SocketAddr, by: Option<(Host, ConnId)>) -> Option<usize> {
        let listening = self.listeners.get(&to).map_or(0, Vec::len);
        if listening == 0 {
            return None;
        }
        let chosen = self.below(listening);
        let (host, listener) = self.listeners.get(&to)?[chosen];
        self.next_port = self.next_port.wrapping_add(1).max(1024);
        let address = SocketAddr::from(([127, 0, 0, 1], self.next_port));
        let near = self.add_end(address, by.map(|(host, _)| host));
        let far = self.add_end(to, Some(host));
        if let Some(end) = &mut self.ends[near] {
            end.peer = far;
            end.conn = by.map(|(_, conn)| conn);
        }
        if let Some(end) = &mut self.ends[far] {
            end.peer = near;
        }
        self.hosts[host].arrivals[listener].push_back(far);
        let due = self.clock.now() + self.delay();
        self.hosts[host]
            .notices
            .push_back((due, Notice::Acceptable(listener)));
        Some(near)
    }

    fn add_end(&mut self, address: SocketAddr, host: Option<Host>) -> usize {
        let end = End {
            peer: usize::MAX,
            address,
            host,
            conn: None,
            unread: VecDeque::new(),
            under_way: VecDeque::new(),
            bytes_under_way: 0,
            is_told: false,
            has_ended: false,
            has_failed: false,
            peer_is_done: false,
            wants_room: false,
        };
        match self.free.pop() {
            Some(n) => {
                self.ends[n] = Some(end);
                n
            }
            None => {
                self.ends.push(Some(end));
                self.ends.len() - 1
            }
        }
    }

    pub(super) fn notify(&mut self, end: usize, notice: Notice) {
        let due = self.clock.now() + self.delay();
        if let Some(host) = self.ends[end].as_ref().and_then(|one| one.host) {
            self.hosts[host].notices.push_back((due, notice));
        }
    }

    /// Tell the owner of an end that there is something to read, unless it has been told.
    pub(super) fn tell(&mut self, end: usize) {
        let now = self.clock.now();
        // Once in a while twice, as where a read has taken more than the notice was for.
        let is_twice = self.below(8) == 0;
        if let Some(one) = &mut self.ends[end]
            && let (Some(host), Some(conn)) = (one.host, one.conn)
            && (!std::mem::replace(&mut one.is_told, true) || is_twice)
        {
            let notice = Notice::Ready(conn, one.is_last());
            self.hosts[host].notices.push_back((now, notice));
        }
    }

    /// Tell the owner of an end that there is room to write.
    pub(super) fn tell_room(&mut self, end: usize) {
        let now = self.clock.now();
        if let Some(one) = &self.ends[end]
            && let (Some(host), Some(conn)) = (one.host, one.conn)
        {
            self.hosts[host]
                .notices
                .push_back((now, Notice::Room(conn)));
        }
    }

    pub(super) fn peer_room(&self, end: usize) -> usize {
        let peer = self.ends[end]
            .as_ref()
            .and_then(|one| self.ends.get(one.peer));
        peer.and_then(Option::as_ref).map_or(0, End::room)
    }

    pub(super) fn write(&mut self, end: usize, bytes: &[u8]) -> Option<usize> {
        let one = self.ends[end].as_ref()?;
        if one.has_failed {
            return None;
        }
        if self.peer(end).is_none() {
            // The bytes leave, and a reset comes back.
            self.send(end, end, Segment::Reset);
            return Some(bytes.len());
        }
        let room = self.peer_room(end).min(bytes.len());
        let count = match self.below(8) {
            0 => self.below(room + 1),
            _ => room,
        };
        if count > 0 {
            self.send_to_peer(end, Segment::Bytes(bytes[..count].to_vec()));
        }
        Some(count)
    }

    fn peer(&self, end: usize) -> Option<usize> {
        let peer = self.ends[end].as_ref()?.peer;
        self.ends.get(peer)?.as_ref().map(|_| peer)
    }

    /// Send a segment to the peer of an end, behind those before and before the last one.
    pub(super) fn send_to_peer(&mut self, end: usize, segment: Segment) {
        let Some(peer) = self.peer(end) else {
            return;
        };
        let is_last = !matches!(segment, Segment::Bytes(_));
        let Some(far) = self.ends[peer].as_mut().filter(|far| !far.peer_is_done) else {
            return;
        };
        far.peer_is_done = is_last;
        self.send(end, peer, segment);
    }

    fn send(&mut self, from: usize, to: usize, segment: Segment) {
        debug_assert!(self.ends[from].is_some());
        let due = self.clock.now() + self.delay();
        let Some(far) = self.ends[to].as_mut() else {
            return;
        };
        if let Segment::Bytes(bytes) = &segment {
            far.bytes_under_way += bytes.len();
        }
        let after = far.under_way.back().map(|(due, _)| *due);
        let due = after.map_or(due, |after| after.max(due));
        far.under_way.push_back((due, segment));
        self.sent += 1;
        self.due.push(Reverse((due, self.sent, to)));
    }

    pub(super) fn take_unread(&mut self, end: usize, count: usize) -> Vec<u8> {
        let Some(one) = &mut self.ends[end] else {
            return Vec::new();
        };
        let bytes = one.unread.drain(..count).collect();
        let peer = one.peer;
        if let Some(writer) = self.ends.get_mut(peer).and_then(Option::as_mut)
            && std::mem::take(&mut writer.wants_room)
        {
            self.tell_room(peer);
        }
        bytes
    }

    /// Let everything arrive that is due.
    pub(super) fn deliver(&mut self) {
        let now = self.clock.now();
        while let Some(Reverse((due, _, to))) = self.due.peek()
            && *due <= now
        {
            let to = *to;
            self.due.pop();
            // Segments under way to an end that is gone are lost, and another end may have its place by now.
            let Some(end) = &mut self.ends[to] else {
                continue;
            };
            let is_due = |(due, _): &(Instant, Segment)| *due <= now;
            if !end.under_way.front().is_some_and(is_due) {
                continue;
            }
            let Some((_, segment)) = end.under_way.pop_front() else {
                continue;
            };
            match segment {
                Segment::Bytes(bytes) => {
                    end.bytes_under_way -= bytes.len();
                    end.unread.extend(bytes);
                }
                Segment::End => end.has_ended = true,
                Segment::Reset => end.has_failed = true,
            }
            self.tell(to);
        }
    }

    /// Close an end: the peer is told in order, or by a reset where bytes were not read.
    pub(super) fn close(&mut self, end: usize) {
        let Some(one) = &self.ends[end] else {
            return;
        };
        let is_clean = one.unread.is_empty() && one.bytes_under_way == 0;
        let peer = one.peer;
        let last = if is_clean {
            Segment::End
        } else {
            Segment::Reset
        };
        self.send_to_peer(end, last);
        self.ends[end] = None;
        if let Some(one) = self.ends.get_mut(peer).and_then(Option::as_mut)
            && one.peer == end
        {
            one.peer = usize::MAX;
            if std::mem::take(&mut one.wants_room) {
                self.tell_room(peer);
            }
        }
        self.free.push(end);
    }
}
