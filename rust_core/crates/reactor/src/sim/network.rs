//! A network of byte streams with delays, bounded buffers and resets.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::state::{End, Host, HostState, LONGEST_DELAY, Notice, Segment, State};
use crate::clock::Clock;
use crate::conn_id::ConnId;

/// A virtual network; a handle, cheap to clone.
#[derive(Clone)]
pub struct Network(Rc<RefCell<State>>);

/// The outcome of reading from an [`Endpoint`].
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
        let clock = Clock::virtual_time();
        Self(Rc::new(RefCell::new(State {
            began: clock.now(),
            clock,
            longest_delay: LONGEST_DELAY,
            rng: seed,
            ends: Vec::new(),
            free: Vec::new(),
            due: BinaryHeap::new(),
            sent: 0,
            hosts: Vec::new(),
            listeners: BTreeMap::new(),
            next_port: 20_000,
        })))
    }

    /// Return the network's clock.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.0.borrow().clock.clone()
    }

    /// Return the time at which the network was made.
    #[must_use]
    pub fn began(&self) -> Instant {
        self.0.borrow().began
    }

    /// Let each segment take at most `longest` from now on; with zero, bytes arrive at once.
    pub fn set_longest_delay(&self, longest: Duration) {
        self.0.borrow_mut().longest_delay = longest;
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

    /// Reset one of the connections that were made to `address`, the `n`th of those that are open, for
    /// both sides. Return whether there is one.
    pub fn cut(&self, address: SocketAddr, n: usize) -> bool {
        let mut state = self.0.borrow_mut();
        let ends = state.ends.iter().enumerate();
        let open = |(_, end): &(usize, &Option<End>)| {
            end.as_ref().is_some_and(|end| {
                end.address == address && end.peer != usize::MAX && !end.peer_is_done
            })
        };
        let Some((far, Some(end))) = ends.filter(open).nth(n) else {
            return false;
        };
        let near = end.peer;
        state.send_to_peer(far, Segment::Reset);
        state.send_to_peer(near, Segment::Reset);
        true
    }

    /// Return the number of connections' ends that are not closed.
    #[must_use]
    pub fn open_ends(&self) -> usize {
        self.0.borrow().ends.iter().flatten().count()
    }

    /// Describe what waits, to look into a finding.
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

    /// Return when the next notice for the host is due.
    pub(super) fn next_due(&self, host: Host) -> Option<Instant> {
        let state = self.0.borrow();
        state.hosts[host].notices.iter().map(|(due, _)| *due).min()
    }

    /// Return when the next segment arrives.
    pub(super) fn next_arrival(&self) -> Option<Instant> {
        let state = self.0.borrow();
        let Reverse((due, ..)) = state.due.peek()?;
        Some(*due)
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
            let wants_room = std::mem::take(&mut one.wants_room);
            state.tell(end);
            if wants_room {
                state.tell_room(end);
            }
        }
    }

    /// Read at most `limit` bytes of what has arrived, or a part of it. Return also whether there is more to
    /// be read.
    pub(super) fn read(&self, end: usize, limit: usize) -> (Read, bool) {
        let mut state = self.0.borrow_mut();
        let Some(one) = state.ends[end].as_mut() else {
            return (Read::Failed(Errno::BADF), false);
        };
        one.is_told = false;
        let unread = one.unread.len();
        if unread > 0 {
            let count = match state.below(4) {
                0 => 1 + state.below(unread),
                _ => unread,
            };
            let bytes = state.take_unread(end, count.min(limit));
            let more = state.ends[end].as_mut().is_some_and(|one| {
                one.is_told = !one.unread.is_empty() || one.is_last();
                one.is_told
            });
            return (Read::Bytes(bytes), more);
        }
        let read = match one {
            one if one.has_failed => Read::Failed(Errno::CONNRESET),
            one if one.has_ended => Read::End,
            _ => Read::Nothing,
        };
        (read, false)
    }

    /// Note that a notice of something to read is used up; whether the connection has failed.
    pub(super) fn hold(&self, end: usize) -> bool {
        let mut state = self.0.borrow_mut();
        state.ends[end].as_mut().is_none_or(|one| {
            one.is_told = false;
            one.has_failed
        })
    }

    /// Return whether nothing comes after what has arrived at an end.
    pub(super) fn is_last(&self, end: usize) -> bool {
        let state = self.0.borrow();
        state.ends[end].as_ref().is_none_or(End::is_last)
    }

    /// Write as much as there is room for, or a part of it; `None` when the connection has failed.
    pub(super) fn write(&self, end: usize, bytes: &[u8]) -> Option<usize> {
        let mut state = self.0.borrow_mut();
        let count = state.write(end, bytes)?;
        if count < bytes.len() {
            let has_room = state.peer_room(end) > 0;
            let one = state.ends[end].as_mut()?;
            one.wants_room = true;
            if has_room && let Some(conn) = one.conn {
                // Cut short by chance: there is room again soon.
                one.wants_room = false;
                state.notify(end, Notice::Room(conn));
            }
        }
        Some(count)
    }

    pub(super) fn end_sending(&self, end: usize) {
        self.0.borrow_mut().send_to_peer(end, Segment::End);
    }

    pub(super) fn close(&self, end: usize) {
        self.0.borrow_mut().close(end);
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
        let mut state = self.network.0.borrow_mut();
        state.send_to_peer(self.end, Segment::Reset);
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.network.close(self.end);
    }
}
