//! A network of byte streams with delays, bounded buffers and resets.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::clock::Clock;
use crate::slab::ConnId;

/// Bytes that one direction of a connection holds at most, under way and unread.
const CAPACITY: usize = 16 * 1024;

/// Longest time that a segment takes.
const LONGEST_DELAY: Duration = Duration::from_micros(200);

/// A number of a shard in a network.
pub(super) type Host = usize;

/// An event for a shard.
#[derive(Debug, Clone, Copy)]
pub(super) enum Notice {
    /// The end has bytes, an end of the stream, a failure, or room to write.
    Ready(ConnId),
    Connected(ConnId, Result<(), Errno>),
    Acceptable(usize),
}

enum Segment {
    Bytes(Vec<u8>),
    End,
    Reset,
}

/// One end of a connection.
struct End {
    peer: usize,
    address: SocketAddr,
    host: Option<Host>,
    /// The shard's name for it, once it has one.
    conn: Option<ConnId>,
    unread: VecDeque<u8>,
    under_way: VecDeque<(Instant, Segment)>,
    /// Bytes under way.
    bytes_under_way: usize,
    capacity: usize,
    has_ended: bool,
    has_failed: bool,
    /// The peer writes no more.
    peer_is_done: bool,
    /// The last write of this end was cut short.
    wants_room: bool,
    is_closed: bool,
}

impl End {
    fn room(&self) -> usize {
        self.capacity
            .saturating_sub(self.unread.len() + self.bytes_under_way)
    }
}

#[derive(Default)]
struct HostState {
    notices: VecDeque<(Instant, Notice)>,
    /// Accepted connections that wait, for each listener.
    arrivals: Vec<VecDeque<usize>>,
}

struct State {
    clock: Clock,
    rng: u64,
    ends: Vec<Option<End>>,
    free: Vec<usize>,
    hosts: Vec<HostState>,
    listeners: BTreeMap<SocketAddr, Vec<(Host, usize)>>,
    next_port: u16,
}

/// A virtual network; a handle, cheap to clone.
#[derive(Clone)]
pub struct Network(Rc<RefCell<State>>);

/// What a read of an [`Endpoint`] brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    /// Bytes; none when nothing has arrived.
    Bytes(Vec<u8>),
    /// The peer has sent its last byte.
    End,
    /// The connection was reset.
    Reset,
}

/// The outcome of a shard's read.
pub(super) enum Read {
    Bytes(Vec<u8>),
    Nothing,
    End,
    Failed(Errno),
}

impl Network {
    /// Make an empty network whose chances follow from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Rc::new(RefCell::new(State {
            clock: Clock::virtual_time(),
            rng: seed,
            ends: Vec::new(),
            free: Vec::new(),
            hosts: Vec::new(),
            listeners: BTreeMap::new(),
            next_port: 20_000,
        })))
    }

    /// The network's clock.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.0.borrow().clock.clone()
    }

    /// Return a number below `bound`, by chance; 0 if `bound` is 0.
    #[must_use]
    pub fn below(&self, bound: usize) -> usize {
        self.0.borrow_mut().below(bound)
    }

    /// Connect to `address`. `None` when nothing listens there.
    #[must_use]
    pub fn connect(&self, address: SocketAddr) -> Option<Endpoint> {
        let end = self.0.borrow_mut().connect(address, None)?;
        Some(Endpoint {
            network: self.clone(),
            end,
        })
    }

    /// Number of connections' ends that are not closed.
    #[must_use]
    pub fn open_ends(&self) -> usize {
        self.0.borrow().ends.iter().flatten().count()
    }

    /// Describe what waits, for whoever looks into a finding.
    #[must_use]
    pub fn describe(&self) -> String {
        let state = self.0.borrow();
        let hosts = state.hosts.iter().enumerate().map(|(n, host)| {
            let arrivals: Vec<usize> = host.arrivals.iter().map(VecDeque::len).collect();
            format!(
                "host {n}: arrivals {arrivals:?}, notices {:?}",
                host.notices
            )
        });
        let ends = state.ends.iter().enumerate().filter_map(|(n, end)| {
            let end = end.as_ref()?;
            let (unread, under_way) = (end.unread.len(), end.under_way.len());
            Some(format!(
                "end {n}: peer {}, host {:?}, conn {:?}, {unread} unread, {under_way} under way, \
                 ended {}, failed {}, wants room {}",
                end.peer, end.host, end.conn, end.has_ended, end.has_failed, end.wants_room
            ))
        });
        hosts.chain(ends).collect::<Vec<_>>().join("\n")
    }

    pub(super) fn add_host(&self, listeners: &[SocketAddr]) -> Host {
        let mut state = self.0.borrow_mut();
        let host = state.hosts.len();
        state.hosts.push(HostState {
            notices: VecDeque::new(),
            arrivals: listeners.iter().map(|_| VecDeque::new()).collect(),
        });
        for (n, address) in listeners.iter().enumerate() {
            state.listeners.entry(*address).or_default().push((host, n));
        }
        host
    }

    pub(super) fn close_listener(&self, host: Host, listener: usize) {
        let mut state = self.0.borrow_mut();
        for listening in state.listeners.values_mut() {
            listening.retain(|one| *one != (host, listener));
        }
        let waiting = state.hosts[host].arrivals.get_mut(listener);
        for end in waiting.map(std::mem::take).unwrap_or_default() {
            state.close(end);
        }
    }

    /// Carry out what is due, and take the host's notices: in any order, but for those of one
    /// connection.
    pub(super) fn take_notices(&self, host: Host) -> Vec<Notice> {
        let mut state = self.0.borrow_mut();
        state.deliver();
        let now = state.clock.now();
        let mut taken = Vec::new();
        let mut later = VecDeque::new();
        let notices = std::mem::take(&mut state.hosts[host].notices);
        for (due, notice) in notices {
            // Some are seen only in the next turn, as in a queue that was read too early.
            if due <= now && (taken.is_empty() || state.below(8) > 0) {
                taken.push(notice);
            } else {
                later.push_back((due, notice));
            }
        }
        state.hosts[host].notices = later;
        if state.below(2) == 0 {
            // A notice tells only that there is something, so that even those of one connection may
            // change places.
            for n in (1..taken.len()).rev() {
                let other = state.below(n + 1);
                taken.swap(n, other);
            }
        }
        taken
    }

    /// When the host has something to hear, or anything is delivered, next.
    pub(super) fn next_due(&self, host: Host) -> Option<Instant> {
        let state = self.0.borrow();
        state.hosts[host].notices.iter().map(|(due, _)| *due).min()
    }

    /// When the next segment arrives.
    pub(super) fn next_arrival(&self) -> Option<Instant> {
        let state = self.0.borrow();
        let ends = state.ends.iter().flatten();
        ends.filter_map(|end| Some(end.under_way.front()?.0)).min()
    }

    pub(super) fn deliver(&self) {
        self.0.borrow_mut().deliver();
    }

    pub(super) fn dial(&self, host: Host, conn: ConnId, to: SocketAddr) -> Result<usize, Errno> {
        let mut state = self.0.borrow_mut();
        let end = state.connect(to, Some((host, conn)));
        let end = end.ok_or(Errno::CONNREFUSED)?;
        state.notify(end, Notice::Connected(conn, Ok(())));
        Ok(end)
    }

    pub(super) fn accept(&self, host: Host, listener: usize) -> Option<(usize, SocketAddr)> {
        let mut state = self.0.borrow_mut();
        let end = state.hosts[host].arrivals.get_mut(listener)?.pop_front()?;
        let peer = state.ends[end].as_ref()?.peer;
        // The peer may have gone meanwhile.
        let peer = state.ends.get(peer).and_then(Option::as_ref);
        let address = peer.map(|peer| peer.address);
        Some((
            end,
            address.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 1))),
        ))
    }

    pub(super) fn waits(&self, host: Host, listener: usize) -> bool {
        let state = self.0.borrow();
        let arrivals = state.hosts[host].arrivals.get(listener);
        arrivals.is_some_and(|waiting| !waiting.is_empty())
    }

    /// Name an end, and tell what has come for it meanwhile.
    pub(super) fn name(&self, end: usize, conn: ConnId) {
        let mut state = self.0.borrow_mut();
        if let Some(one) = state.ends[end].as_mut()
            && one.conn != Some(conn)
        {
            one.conn = Some(conn);
            state.notify(end, Notice::Ready(conn));
        }
    }

    /// Read what has arrived, or a part of it.
    pub(super) fn read(&self, end: usize) -> (Read, bool) {
        let mut state = self.0.borrow_mut();
        let Some(one) = state.ends[end].as_ref() else {
            return (Read::Failed(Errno::BADF), false);
        };
        let unread = one.unread.len();
        if unread > 0 {
            let count = match state.below(4) {
                0 => 1 + state.below(unread),
                _ => unread,
            };
            let bytes = state.take_unread(end, count);
            let more = state.ends[end]
                .as_ref()
                .is_some_and(|one| !one.unread.is_empty() || one.has_ended || one.has_failed);
            return (Read::Bytes(bytes), more);
        }
        match state.ends[end].as_ref() {
            Some(one) if one.has_failed => (Read::Failed(Errno::CONNRESET), false),
            Some(one) if one.has_ended => (Read::End, false),
            _ => (Read::Nothing, false),
        }
    }

    /// Write as much as there is room for, or a part of it; `None` when the connection has failed.
    pub(super) fn write(&self, end: usize, bytes: &[u8]) -> Option<usize> {
        let mut state = self.0.borrow_mut();
        let count = state.write(end, bytes)?;
        if count < bytes.len() {
            let one = state.ends[end].as_mut()?;
            one.wants_room = true;
            let has_room = state.peer_room(end) > 0;
            if has_room && let Some(conn) = state.ends[end].as_ref()?.conn {
                // Cut short by chance: there is room again soon.
                state.ends[end].as_mut()?.wants_room = false;
                state.notify(end, Notice::Ready(conn));
            }
        }
        Some(count)
    }

    pub(super) fn has_room(&self, end: usize) -> bool {
        let state = self.0.borrow();
        let has_failed = state.ends[end].as_ref().is_none_or(|one| one.has_failed);
        has_failed || state.peer_room(end) > 0
    }

    pub(super) fn has_failed(&self, end: usize) -> bool {
        let state = self.0.borrow();
        state.ends[end].as_ref().is_none_or(|one| one.has_failed)
    }

    pub(super) fn end_sending(&self, end: usize) {
        self.0.borrow_mut().send(end, Segment::End);
    }

    pub(super) fn close(&self, end: usize) {
        self.0.borrow_mut().close(end);
    }
}

impl State {
    /// SplitMix64 (Steele, Lea, Flood 2014).
    fn random(&mut self) -> u64 {
        self.rng = self.rng.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.rng;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.random()) * bound as u128) >> 64) as usize
    }

    fn delay(&mut self) -> Duration {
        match self.below(4) {
            0 => Duration::ZERO,
            _ => LONGEST_DELAY.mul_f64(self.below(1000) as f64 / 1000.0),
        }
    }

    fn connect(&mut self, to: SocketAddr, by: Option<(Host, ConnId)>) -> Option<usize> {
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
            capacity: CAPACITY,
            has_ended: false,
            has_failed: false,
            peer_is_done: false,
            wants_room: false,
            is_closed: false,
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

    fn notify(&mut self, end: usize, notice: Notice) {
        let due = self.clock.now() + self.delay();
        if let Some(host) = self.ends[end].as_ref().and_then(|one| one.host) {
            self.hosts[host].notices.push_back((due, notice));
        }
    }

    /// Tell the owner of an end that something has happened to it.
    fn tell(&mut self, end: usize) {
        if let Some(one) = &self.ends[end]
            && let (Some(host), Some(conn)) = (one.host, one.conn)
        {
            let now = self.clock.now();
            self.hosts[host]
                .notices
                .push_back((now, Notice::Ready(conn)));
        }
    }

    fn peer_room(&self, end: usize) -> usize {
        let peer = self.ends[end]
            .as_ref()
            .and_then(|one| self.ends.get(one.peer));
        peer.and_then(Option::as_ref).map_or(0, End::room)
    }

    fn write(&mut self, end: usize, bytes: &[u8]) -> Option<usize> {
        if self.ends[end].as_ref()?.has_failed {
            return None;
        }
        let room = self.peer_room(end).min(bytes.len());
        let count = match self.below(8) {
            0 => self.below(room + 1),
            _ => room,
        };
        if count > 0 {
            self.send(end, Segment::Bytes(bytes[..count].to_vec()));
        }
        Some(count)
    }

    /// Send a segment to the peer of an end, behind those before.
    fn send(&mut self, end: usize, segment: Segment) {
        let due = self.clock.now() + self.delay();
        let Some(peer) = self.ends[end].as_ref().map(|one| one.peer) else {
            return;
        };
        let Some(peer) = self.ends.get_mut(peer).and_then(Option::as_mut) else {
            return;
        };
        if peer.peer_is_done {
            return;
        }
        peer.peer_is_done = !matches!(segment, Segment::Bytes(_));
        if let Segment::Bytes(bytes) = &segment {
            peer.bytes_under_way += bytes.len();
        }
        let after = peer.under_way.back().map(|(due, _)| *due);
        let due = after.map_or(due, |after| after.max(due));
        peer.under_way.push_back((due, segment));
    }

    fn take_unread(&mut self, end: usize, count: usize) -> Vec<u8> {
        let Some(one) = &mut self.ends[end] else {
            return Vec::new();
        };
        let bytes = one.unread.drain(..count).collect();
        let peer = one.peer;
        if let Some(writer) = self.ends.get_mut(peer).and_then(Option::as_mut)
            && std::mem::take(&mut writer.wants_room)
        {
            self.tell(peer);
        }
        bytes
    }

    /// Let everything arrive that is due.
    fn deliver(&mut self) {
        let now = self.clock.now();
        for n in 0..self.ends.len() {
            let mut has_news = false;
            while let Some(end) = &mut self.ends[n]
                && end.under_way.front().is_some_and(|(due, _)| *due <= now)
                && let Some((_, segment)) = end.under_way.pop_front()
            {
                has_news = true;
                match segment {
                    Segment::Bytes(bytes) => {
                        end.bytes_under_way -= bytes.len();
                        if end.is_closed {
                            continue;
                        }
                        end.unread.extend(bytes);
                    }
                    Segment::End => end.has_ended = true,
                    Segment::Reset => end.has_failed = true,
                }
            }
            if has_news {
                self.tell(n);
            }
        }
    }

    /// Close an end: the peer is told in order, or by a reset where bytes were not read.
    fn close(&mut self, end: usize) {
        let Some(one) = &self.ends[end] else {
            return;
        };
        let is_clean = one.unread.is_empty() && one.bytes_under_way == 0;
        let peer = one.peer;
        self.send(
            end,
            if is_clean {
                Segment::End
            } else {
                Segment::Reset
            },
        );
        self.ends[end] = None;
        match self.ends.get_mut(peer).and_then(Option::as_mut) {
            // Writing to it fails from now on.
            Some(one) if one.peer == end => {
                one.peer = usize::MAX;
                if std::mem::take(&mut one.wants_room) {
                    self.tell(peer);
                }
            }
            _ => {}
        }
        self.free.push(end);
    }
}

/// The test's end of a connection.
pub struct Endpoint {
    network: Network,
    end: usize,
}

impl Endpoint {
    /// Send bytes; return how many there was room for.
    pub fn send(&self, bytes: &[u8]) -> usize {
        let mut state = self.network.0.borrow_mut();
        state.write(self.end, bytes).unwrap_or(0)
    }

    /// Receive up to `limit` bytes of what has arrived.
    #[must_use]
    pub fn receive(&self, limit: usize) -> Received {
        let mut state = self.network.0.borrow_mut();
        state.deliver();
        let Some(one) = &state.ends[self.end] else {
            return Received::Reset;
        };
        let count = one.unread.len().min(limit);
        if count > 0 {
            return Received::Bytes(state.take_unread(self.end, count));
        }
        match &state.ends[self.end] {
            Some(one) if one.has_failed => Received::Reset,
            Some(one) if one.has_ended && limit > 0 => Received::End,
            _ => Received::Bytes(Vec::new()),
        }
    }

    /// Say that nothing more will be sent.
    pub fn end_sending(&self) {
        self.network.end_sending(self.end);
    }

    /// Reset the connection.
    pub fn reset(self) {
        self.network.0.borrow_mut().send(self.end, Segment::Reset);
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.network.close(self.end);
    }
}
