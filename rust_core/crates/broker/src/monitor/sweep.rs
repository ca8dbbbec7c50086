//! A shard's search for the rows of a page, and the part of a turn that one survey may take. A search is
//! sent by mail, and therefore knows no mail itself.

use reactor::ShardIo;

use super::connz;
use super::rows::rank;
use super::selection::{Candidate, Selection};
use super::subsz;
use crate::session::Session;

/// Work of passing a slot for a connection.
const SLOT: usize = 4;
/// Work of looking at a connection: with very many none of them is in the cache.
const CONNECTION: usize = 50;
/// Work of looking at a subscription, or at a slot for one.
const SUBSCRIPTION: usize = 20;
/// Work of keeping a candidate.
pub(super) const KEEP: usize = 100;
/// Slots for subscriptions that are looked at before the slice is looked at again.
const PLACES: u32 = 16;

/// The part of a turn that one survey may take.
pub(super) struct Slice {
    left: usize,
    /// Whether anything has been done: a slice has one step at least, however small the turn's budget is.
    has_begun: bool,
}

impl Slice {
    /// Work that a slice has room for.
    pub(super) const WORK: usize = 200_000;

    pub(super) fn new() -> Self {
        Self {
            left: Self::WORK,
            has_begun: false,
        }
    }

    /// Count work.
    pub(super) fn spend<M>(&mut self, io: &mut ShardIo<Session, M>, work: usize) {
        io.spend(work);
        self.left = self.left.saturating_sub(work);
        self.has_begun = true;
    }

    /// Return whether the rest has to wait.
    pub(super) fn is_over<M>(&self, io: &ShardIo<Session, M>) -> bool {
        self.has_begun && (self.left == 0 || io.is_spent())
    }
}

/// The search through a shard's connections, as far as it has come.
#[derive(Default)]
pub(super) struct Sweep {
    slot: u32,
    /// Slot of the next subscription of that connection.
    next: u32,
    pub(super) found: Selection,
    /// The most receivers that a message had.
    pub(super) max_fanout: usize,
}

impl Sweep {
    /// Begin a search that keeps the first `keep` candidates.
    pub(super) fn new(keep: usize) -> Self {
        Self {
            found: Selection::new(keep),
            ..Self::default()
        }
    }

    /// Look through the next connections; return whether these were the last.
    pub(super) fn look_at_connections<M>(
        &mut self,
        io: &mut ShardIo<Session, M>,
        slice: &mut Slice,
        query: &connz::Query,
    ) -> bool {
        while self.slot < io.connections.slots() {
            if slice.is_over(io) {
                return false;
            }
            let work = self.look_at_connection(io, query);
            slice.spend(io, SLOT + work);
            self.slot += 1;
        }
        true
    }

    fn look_at_connection<M>(&mut self, io: &ShardIo<Session, M>, query: &connz::Query) -> usize {
        let id = io.connections.ids_in(self.slot..self.slot + 1).next();
        let Some((id, conn)) = id.and_then(|id| Some((id, io.conn(id)?))) else {
            return 0;
        };
        if !conn.is_open() || !conn.session.is_client() {
            return CONNECTION;
        }
        let is_kept = rank(query, conn).is_some_and(|rank| {
            self.found.offer(Candidate {
                rank,
                cid: conn.session.cid,
                index: 0,
                shard: io.shard() as u16,
                conn: id,
            })
        });
        CONNECTION + if is_kept { KEEP } else { 0 }
    }

    /// Look through the next connections' subscriptions; return whether these were the last.
    pub(super) fn look_at_subscriptions<M>(
        &mut self,
        io: &mut ShardIo<Session, M>,
        slice: &mut Slice,
        query: &subsz::Query,
    ) -> bool {
        while self.slot < io.connections.slots() {
            if slice.is_over(io) {
                return false;
            }
            let work = self.look_at_places(io, query);
            slice.spend(io, SLOT + work);
        }
        true
    }

    /// Look at the next subscriptions of the connection in this slot, and go on to the next slot when there are
    /// no more of them; return the work.
    fn look_at_places<M>(&mut self, io: &ShardIo<Session, M>, query: &subsz::Query) -> usize {
        let id = io.connections.ids_in(self.slot..self.slot + 1).next();
        let conn = id.and_then(|id| Some((id, io.conn(id)?)));
        let Some((id, conn)) = conn.filter(|(_, conn)| conn.is_open()) else {
            (self.slot, self.next) = (self.slot + 1, 0);
            return 0;
        };
        let session = &conn.session;
        let slots = session.subscriptions.slots();
        let end = slots.min(self.next.saturating_add(PLACES));
        let mut work = CONNECTION + end.saturating_sub(self.next) as usize * SUBSCRIPTION;
        for (handle, one) in session.subscriptions.iter_in(self.next..end) {
            work += query.work(one);
            let is_kept = query.is_wanted(one)
                && self.found.offer(Candidate {
                    rank: 0,
                    cid: session.cid,
                    index: handle.slot(),
                    shard: io.shard() as u16,
                    conn: id,
                });
            work += if is_kept { KEEP } else { 0 };
        }
        self.next = end;
        if self.next >= slots {
            (self.slot, self.next) = (self.slot + 1, 0);
        }
        work
    }
}
