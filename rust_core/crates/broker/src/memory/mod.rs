//! The account of the memory that connections make the broker hold, and its bound, `max_memory`.
//!
//! Each shard counts what its own connections hold: pending output, received bytes that are kept,
//! subscriptions with their names, and mail. Above the bound the connection that holds most ends first,
//! and of those that hold about as much the one that came first. So a new client still gets in.

pub(crate) mod account;
mod holders;
mod machine;

use reactor::ConnId;

pub(crate) use machine::available;

use crate::io::Io;
use crate::session::Session;
use account::Account;
use holders::{Holders, size_class};

/// One shard's part of the account.
#[derive(Default)]
pub(crate) struct Memory {
    /// Bytes that connections keep besides pending output, subscriptions of ended ones included.
    kept: usize,
    /// Bytes that the account has of this shard.
    entered: usize,
    holders: Holders,
}

impl Memory {
    /// Count bytes that outlive their connection.
    pub(crate) fn hold(&mut self, bytes: usize) {
        self.kept += bytes;
    }

    /// Give such bytes back.
    pub(crate) fn give_back(&mut self, bytes: usize) {
        self.kept -= bytes;
    }

    /// Return the bytes that are kept besides pending output.
    #[cfg(feature = "sim")]
    pub(crate) fn kept(&self) -> usize {
        self.kept
    }

    /// Take a connection that is gone out of the account.
    pub(crate) fn forget(&mut self, session: &Session) {
        self.kept -= session.kept as usize;
        self.holders.remove(session.cid, session.size_class);
    }

    /// Count anew what a connection keeps, after it may have changed.
    #[inline]
    pub(crate) fn weigh(&mut self, io: &mut Io, id: ConnId) {
        let Some(conn) = io.conn_mut(id) else { return };
        let kept = u32::try_from(conn.session.kept_bytes()).unwrap_or(u32::MAX);
        if kept != conn.session.kept {
            self.kept += kept as usize;
            self.kept -= std::mem::replace(&mut conn.session.kept, kept) as usize;
            self.classify(io, id);
        }
    }

    /// Find the size class of a connection among the holders.
    fn classify(&mut self, io: &mut Io, id: ConnId) {
        let Some(conn) = io.conn_mut(id) else { return };
        let class = size_class(conn.session.kept as usize + conn.waiting());
        let session = &mut conn.session;
        let former = std::mem::replace(&mut session.size_class, class);
        if class != former {
            self.holders.remove(session.cid, former);
            self.holders.insert(session.cid, class, id);
        }
    }

    /// Enter what the shard holds into the account. `mail` is the number of bytes in its mailbox.
    pub(crate) fn settle(&mut self, io: &mut Io, account: &Account, mail: usize) {
        for id in io.connections.take_resized() {
            self.classify(io, id);
        }
        let memory = io.memory();
        let waiting = io.connections.own_backlog() + mail;
        let used = memory.connections + memory.buffers + waiting + self.kept;
        account.enter(&mut self.entered, used);
        account.set_largest(io.shard(), self.largest_class());
    }

    /// Return the size class of the largest holder; 0 when there is none.
    pub(crate) fn largest_class(&self) -> u8 {
        self.holders.largest_class()
    }

    /// Return the oldest holder of this size class, if none is larger.
    pub(crate) fn largest(&self, class: u8) -> Option<ConnId> {
        let is_largest = self.largest_class() == class;
        is_largest.then(|| self.holders.first()).flatten()
    }

    /// Tell the other shards at once of bytes that will be freed, so that they do not end more connections.
    pub(crate) fn note_freed(&mut self, account: &Account, freed: usize) {
        let left = self.entered.saturating_sub(freed);
        account.enter(&mut self.entered, left);
    }
}
