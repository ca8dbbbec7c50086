//! Admission: which connections get a place, and how long a silent one may keep it.
//!
//! A connection of the clients' listeners takes one of the places that `max_connections` limits when it is
//! accepted, and gives it back when its descriptor is closed. Until it has introduced itself it is
//! *half-open*. A client of NATS introduces itself by its first operation, which is `CONNECT` unless a person
//! types. A caller of HTTP introduces itself by the whole head of its first request. A connection that becomes
//! a WebSocket is half-open again.
//!
//! Half-open connections have a deadline, and when no place is left, a newcomer gets the place of the oldest
//! one. A connection that has introduced itself keeps its place.
//!
//! | module | holds |
//! |---|---|
//! | `half_open` | the list of half-open connections of a shard, oldest first |
//! | [`places`] | the places, and the lists, which all shards share |
//! | `addresses`, `rate` | the bounds of each address, and of the rate of connecting |
//! | `entry` | the shard's part: what connections are sent and when they are closed |

mod addresses;
pub(crate) mod entry;
mod half_open;
pub(crate) mod places;
mod rate;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use protocol::nats::error;
use reactor::ConnId;

use crate::capacity::Room;
use crate::reason::Reason;
use half_open::HalfOpen;
pub(crate) use half_open::Ticket;
use places::{Evicted, Places};
use rate::Rate;

/// The reason why a connection gets no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Too much output waits for other clients.
    NoMemory,
    /// All places are taken by connections that have introduced themselves.
    NoPlace,
    /// Its address has as many as it may have.
    Address,
}

impl Refusal {
    pub(crate) fn reason(self) -> Reason {
        match self {
            Self::NoMemory => Reason::NoMemory,
            Self::NoPlace => Reason::TooManyConnections,
            Self::Address => Reason::TooManyFromAddress,
        }
    }

    /// Return the text that the client is sent.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::NoMemory => error::NO_MEMORY,
            Self::NoPlace => error::MAX_CONNECTIONS_EXCEEDED,
            Self::Address => error::MAX_CONNECTIONS_OF_ADDRESS_EXCEEDED,
        }
    }
}

/// The stage of a connection's admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It is one of the monitor's, which has places of its own.
    Monitor,
    /// It has a place, and has not introduced itself. Another shard may have given its place away, which
    /// mail will tell.
    HalfOpen(Ticket),
    /// It has a place.
    Introduced,
    /// It has no place and is told so.
    Refused(Refusal),
    /// It has lost its place and is told so.
    Evicted,
    /// It has lost its place and is closed without a word.
    Ending,
}

/// The decision on a connection that has come.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// It has a place, which another connection may have lost for it.
    Admitted(Option<Evicted>),
    /// It has none, and is told so.
    Refused(Refusal),
    /// It is closed without a word, because too many are being told something.
    Dismissed,
}

/// One shard's part of the admission.
pub(crate) struct Admission {
    places: Arc<Places>,
    shard: usize,
    room: Room,
    /// Time that a connection may stay half-open.
    timeout: Duration,
    rate: Option<Rate>,
    /// Connections of this shard that have a place, or have lost it to another shard without knowing.
    placed: usize,
    /// Connections that are told why they have none.
    told: usize,
    /// Connections that are closed without a word, and are not closed yet.
    ending: usize,
    /// Whether a timer for the next deadline is set.
    has_timer: bool,
}

impl Admission {
    /// Make the part of a shard that has `room`, and accepts `per_s` connections per second, or any number
    /// if that is 0.
    pub(crate) fn new(
        places: Arc<Places>,
        shard: usize,
        room: Room,
        timeout: Duration,
        per_s: f64,
        now: Instant,
    ) -> Self {
        Self {
            places,
            shard,
            room,
            timeout,
            rate: (per_s > 0.0).then(|| Rate::new(per_s, now)),
            placed: 0,
            told: 0,
            ending: 0,
            has_timer: false,
        }
    }

    /// Decide on a connection that has come from `address`.
    pub(crate) fn admit(&mut self, address: IpAddr, has_memory: bool) -> Decision {
        match self.take_place(address, has_memory) {
            Ok(evicted) => {
                self.placed += 1;
                Decision::Admitted(evicted)
            }
            Err(refusal) if self.told < self.room.told => {
                self.told += 1;
                Decision::Refused(refusal)
            }
            Err(_) => Decision::Dismissed,
        }
    }

    fn take_place(
        &mut self,
        address: IpAddr,
        has_memory: bool,
    ) -> Result<Option<Evicted>, Refusal> {
        if !has_memory {
            return Err(Refusal::NoMemory);
        }
        if !self.places.add_address(address) {
            return Err(Refusal::Address);
        }
        let is_full = self.placed >= self.room.clients;
        if !is_full && self.places.take() {
            return Ok(None);
        }
        let evicted = if is_full {
            // A place of another shard would not free a descriptor of this one.
            self.places.evict_from(self.shard)
        } else {
            self.places.evict()
        };
        if evicted.is_none() {
            self.places.remove_address(address);
        }
        evicted.map(Some).ok_or(Refusal::NoPlace)
    }

    /// Return when the next connection may come, now that one has, if that is later than now.
    pub(crate) fn next_due(&mut self, now: Instant) -> Option<Instant> {
        self.rate.as_mut()?.take(now)
    }

    /// Begin the time in which a connection that has a place must introduce itself.
    pub(crate) fn begin(&mut self, id: ConnId, now: Instant) -> Stage {
        let push = |list: &mut HalfOpen| list.push(id, now);
        Stage::HalfOpen(self.places.with_half_open(self.shard, push))
    }

    /// Note that a connection has introduced itself; false when its place has been given away.
    pub(crate) fn introduce(&mut self, ticket: Ticket, id: ConnId) -> bool {
        self.remove(ticket, id)
    }

    /// Take out the oldest half-open connection, if its time is over at `now`.
    pub(crate) fn expire(&mut self, now: Instant) -> Option<ConnId> {
        let timeout = self.timeout;
        let expired = self.places.with_half_open(self.shard, |list| {
            let is_over = list.oldest().is_some_and(|since| since + timeout <= now);
            if is_over { list.pop() } else { None }
        })?;
        self.places.give_back();
        Some(expired)
    }

    /// Note that a connection of this shard has lost its place; return how it ends. `is_told` says whether it
    /// can still be told why.
    pub(crate) fn lose(&mut self, is_told: bool) -> Stage {
        self.placed -= 1;
        if is_told && self.told < self.room.told {
            self.told += 1;
            Stage::Evicted
        } else {
            self.ending += 1;
            Stage::Ending
        }
    }

    /// Return whether no more connections may be closed in this turn: their descriptors are given back at its end.
    pub(crate) fn is_closing_enough(&self) -> bool {
        self.ending >= self.room.ending
    }

    /// Note that a connection is closed.
    pub(crate) fn close(&mut self, stage: Stage, id: ConnId, address: IpAddr) {
        match stage {
            Stage::Monitor => return,
            Stage::Refused(_) => {
                self.told -= 1;
                return;
            }
            Stage::Evicted => self.told -= 1,
            Stage::Ending => self.ending -= 1,
            Stage::Introduced => {
                self.placed -= 1;
                self.places.give_back();
            }
            Stage::HalfOpen(ticket) => {
                self.placed -= 1;
                if self.remove(ticket, id) {
                    self.places.give_back();
                }
            }
        }
        self.places.remove_address(address);
    }

    /// Return the number of half-open connections of this shard.
    pub(crate) fn half_open(&self) -> usize {
        self.places.half_open(self.shard)
    }

    /// Return how long from `now` until the next connection's time is over, if a timer for that is to be set:
    /// there is one at most.
    pub(crate) fn begin_timer(&mut self, now: Instant) -> Option<Duration> {
        if self.has_timer {
            return None;
        }
        let oldest = self
            .places
            .with_half_open(self.shard, |list| list.oldest())?;
        self.has_timer = true;
        Some((oldest + self.timeout).saturating_duration_since(now))
    }

    /// Note that the timer has fired.
    pub(crate) fn end_timer(&mut self) {
        self.has_timer = false;
    }

    fn remove(&mut self, ticket: Ticket, id: ConnId) -> bool {
        let remove = |list: &mut HalfOpen| list.remove(ticket, id);
        self.places.with_half_open(self.shard, remove)
    }
}

#[cfg(any(test, feature = "sim"))]
impl Admission {
    /// Check the counts against the stages of all connections of this shard; return how many places they
    /// have.
    ///
    /// # Errors
    /// The count that is wrong, with its figures.
    pub(crate) fn check(
        &self,
        stages: impl Iterator<Item = (ConnId, Stage)>,
    ) -> Result<usize, String> {
        let (mut listed, mut lost, mut introduced, mut told, mut ending) = (0, 0, 0, 0, 0);
        for (id, stage) in stages {
            match stage {
                Stage::Monitor => {}
                Stage::Introduced => introduced += 1,
                Stage::Refused(_) | Stage::Evicted => told += 1,
                Stage::Ending => ending += 1,
                Stage::HalfOpen(ticket) => {
                    let contains = |list: &mut HalfOpen| list.contains(ticket, id);
                    if self.places.with_half_open(self.shard, contains) {
                        listed += 1;
                    } else {
                        lost += 1;
                    }
                }
            }
        }
        let counted = (self.half_open(), self.placed, self.told, self.ending);
        let found = (listed, listed + lost + introduced, told, ending);
        if counted != found {
            return Err(format!(
                "admission of shard {}: half-open, placed, told, ending: {counted:?} counted, {found:?} found",
                self.shard
            ));
        }
        let room = (self.room.clients, self.room.told);
        if listed + introduced > room.0 || told > room.1 {
            return Err(format!(
                "admission of shard {}: {found:?} where there is room for {room:?}",
                self.shard
            ));
        }
        Ok(listed + introduced)
    }
}
