//! A broker on a simulated network, and the rules that hold after each of its turns.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use reactor::sim::{Hosted, Simulation};
use reactor::{DriverKind, Mailboxes, work};
use telemetry::key::Key;

use crate::capacity::{Room, SPARE_CONNECTIONS, Size};
use crate::config::{Auto, Config};
use crate::error::StartError;
use crate::mail::Mail;
use crate::metrics::table::{Counter, Dropped, Flow, PendingPlace};
use crate::metrics::totals::Totals;
use crate::random::SystemRandom;
use crate::reason::Reason;
use crate::shard::Shard;
use crate::shared::Shared;
use crate::transport::ListenerKind;

/// The address of the listener for TCP.
pub const TCP: SocketAddr = address(4222);
/// The address of the listener for HTTP and WebSocket.
pub const HTTP: SocketAddr = address(8080);
/// The address of the monitor's listener.
pub const MONITOR: SocketAddr = address(8222);

/// Connections of a shard that have no place among the clients, beside a number of clients that is
/// configured; few, so that they run out.
const SPARE: usize = 12;

const fn address(port: u16) -> SocketAddr {
    let ip = std::net::Ipv4Addr::new(127, 0, 0, 1);
    SocketAddr::V4(std::net::SocketAddrV4::new(ip, port))
}

/// The broker's counts of its clients, to be set beside their own counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traffic {
    /// Connections opened so far.
    pub opened: u64,
    /// Connections that are open.
    pub open: u64,
    /// Connections that their clients have closed.
    pub closed_by_clients: u64,
    /// Connections that were closed after an answer over HTTP.
    pub closed_after_an_answer: u64,
    /// Messages published by clients, and the bytes of their headers and payloads.
    pub taken_in: (u64, u64),
    /// Messages sent to clients, and the bytes of their headers and payloads.
    pub given_out: (u64, u64),
}

/// A simulated broker.
pub struct SimulatedBroker {
    shared: Arc<Shared>,
    shards: Vec<Rc<RefCell<Hosted<Shard>>>>,
    mailboxes: Mailboxes<Mail>,
}

impl SimulatedBroker {
    /// Start a broker of `shards` shards. `config` says what its clients may do; its addresses are not
    /// used.
    ///
    /// # Errors
    /// A setting is unusable.
    pub fn start(
        simulation: &mut Simulation,
        config: &Config,
        shards: usize,
        seed: u64,
    ) -> Result<Self, StartError> {
        config.check().map_err(StartError::Config)?;
        let mut random = SystemRandom::seeded(seed);
        let (max_connections, spare) = match config.max_connections {
            Auto::Auto => (1000, SPARE_CONNECTIONS),
            Auto::Value(most) => (most, SPARE),
        };
        let size = Size {
            shards,
            max_connections,
            room: Room::new(max_connections, spare, 1),
        };
        let all = [
            ("tcp", TCP, ListenerKind::Tcp),
            ("http", HTTP, ListenerKind::Http),
            ("monitor", MONITOR, ListenerKind::Monitor),
        ];
        let addresses = all.map(|(key, address, _)| (key, address));
        let now = simulation.network().clock().now();
        let mut shared = Shared::new(config, &addresses, &size, DriverKind::Epoll, &mut random)?;
        shared.started = now;
        let shared = Arc::new(shared);
        let mailboxes = Mailboxes::simulated(shards);
        let shards = (0..shards)
            .map(|index| {
                // The monitor is served by the first shard alone.
                let served = if index == 0 { 3 } else { 2 };
                let (kinds, listeners): (Vec<_>, Vec<_>) = all[..served]
                    .iter()
                    .map(|(_, address, kind)| (*kind, *address))
                    .unzip();
                let random = SystemRandom::seeded(seed ^ (index as u64 + 1) << 32);
                let shard =
                    Shard::new(Arc::clone(&shared), index, kinds, mailboxes.clone(), random)
                        .map_err(StartError::Io)?;
                let budget = work::TURN.min(shared.limits.max_pending / 4);
                let hosted = simulation.add(index, &mailboxes, &listeners, budget, shard);
                {
                    let mut hosted = hosted.borrow_mut();
                    let (io, shard) = hosted.parts();
                    shard.begin(io);
                }
                Ok(hosted)
            })
            .collect::<Result<_, StartError>>()?;
        Ok(Self {
            shared,
            shards,
            mailboxes,
        })
    }

    /// Begin lame duck mode.
    pub fn drain(&self) {
        self.post_all(|| Mail::Drain);
    }

    /// End at once.
    pub fn stop(&self) {
        self.post_all(|| Mail::Stop);
    }

    /// Return whether every shard has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.shards.iter().all(|shard| shard.borrow().has_ended())
    }

    fn totals(&self) -> Totals {
        self.shared.totals()
    }

    /// Return what was counted so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        let totals = self.totals();
        Traffic {
            opened: totals.opened(),
            open: totals.connections(),
            closed_by_clients: totals.closed(Reason::ClientClosed)
                + totals.closed(Reason::ConnectionFailed),
            closed_after_an_answer: totals.closed(Reason::HttpAnswered),
            taken_in: (totals.all(Flow::InMsgs), totals.all(Flow::InBytes)),
            given_out: (totals.all(Flow::OutMsgs), totals.all(Flow::OutBytes)),
        }
    }

    /// Return the messages that wait in outputs or on their way to the network, and messages that wait in mail, by
    /// looking at them.
    fn pending(&self) -> (u64, u64) {
        let (mut output, mut mail) = (0, 0);
        for shard in &self.shards {
            let shard = shard.borrow();
            let io = shard.io();
            let items = |id| io.conn(id).map_or(0, |conn| conn.output.items());
            output += io.connections.ids().map(items).sum::<u64>() + shard.queued_items();
            shard.for_each_mail(|one| {
                if let Mail::Deliver { receivers, .. } = one {
                    mail += receivers.as_slice().len() as u64;
                }
            });
        }
        (output, mail)
    }

    /// Check what must hold between any two turns.
    ///
    /// # Errors
    /// The rule that is broken, with its figures.
    pub fn check(&self) -> Result<(), String> {
        let totals = self.totals();
        let matched = totals.value(Counter::Matched);
        let delivered = totals.value(Counter::Delivered);
        let dropped: u64 = Dropped::ALL.iter().map(|why| totals.dropped(*why)).sum();
        let (output, mail) = self.pending();
        if matched != delivered + dropped + output + mail {
            return Err(format!(
                "conservation: {matched} matched, {delivered} delivered + {dropped} dropped + \
                 {output} in outputs + {mail} in mail"
            ));
        }
        let counted = [PendingPlace::Output, PendingPlace::Mail].map(|place| totals.pending(place));
        if counted != [output as i64, mail as i64] {
            return Err(format!(
                "pending: {counted:?} counted, {output} in outputs and {mail} in mail"
            ));
        }
        let mut placed = 0;
        let mut open = 0;
        for shard in &self.shards {
            let shard = shard.borrow();
            let io = shard.io();
            let (mut backlog, mut kept) = (0, shard.handler().sessions.jobs.bytes());
            for conn in io.connections.ids().filter_map(|id| io.conn(id)) {
                open += usize::from(conn.session.is_client());
                if conn.is_blocked() {
                    backlog += conn.output.len();
                }
                kept += conn.session.kept_bytes();
            }
            let counted = shard.handler().sessions.memory.kept();
            if counted != kept {
                return Err(format!("memory: {counted} bytes counted, {kept} kept"));
            }
            let stage = |id| Some((id, io.conn(id)?.session.stage));
            let stages = io.connections.ids().filter_map(stage);
            placed += shard.handler().sessions.admission.check(stages)?;
            if backlog != io.connections.backlog() {
                return Err(format!(
                    "backlog: {} counted, {backlog} waiting",
                    io.connections.backlog()
                ));
            }
        }
        let (places, most) = (self.shared.places.taken(), self.shared.places.most());
        if places != placed || places > most {
            return Err(format!(
                "places: {places} counted, {placed} taken, {most} there are"
            ));
        }
        let counted = self.shared.open.load(Ordering::Relaxed);
        if counted != open {
            return Err(format!("clients: {counted} counted, {open} open"));
        }
        Ok(())
    }

    /// Return the bytes that connections hold, as the account has them.
    #[must_use]
    pub fn held_memory(&self) -> usize {
        self.shared.account.used()
    }

    /// Check that nothing is left after the last client has gone.
    ///
    /// # Errors
    /// What is left.
    pub fn check_empty(&self) -> Result<(), String> {
        let (routes, pending) = (self.shared.routing.len(), self.pending());
        let clients = self.totals().connections();
        if (routes, pending, clients) != (0, (0, 0), 0) {
            return Err(format!(
                "left: {routes} subscriptions, {pending:?} messages, {clients} clients"
            ));
        }
        for (n, shard) in self.shards.iter().enumerate() {
            let shard = shard.borrow();
            let (connections, rest) = (shard.io().connections.len(), shard.handler().rest());
            if connections > 0 || rest > 0 {
                return Err(format!(
                    "left on shard {n}: {connections} connections, {rest} pieces of work"
                ));
            }
            let weight = &self.shared.queued[n];
            let (output, memory) = (weight.output(), weight.memory());
            if (output, memory) != (0, 0) {
                return Err(format!(
                    "left on shard {n}: a mailbox of {output} bytes of output, {memory} of memory"
                ));
            }
        }
        let places = &self.shared.places;
        let left = (places.taken(), places.addresses());
        if left != (0, 0) {
            return Err(format!("left: places, connections by address: {left:?}"));
        }
        self.shared.routing.check_invariants();
        Ok(())
    }

    /// Describe each connection in a line, to look into a finding.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut text = String::new();
        for (n, shard) in self.shards.iter().enumerate() {
            let shard = shard.borrow();
            let io = shard.io();
            for (id, conn) in io
                .connections
                .ids()
                .filter_map(|id| Some((id, io.conn(id)?)))
            {
                let session = &conn.session;
                let held = session.held.as_ref().map_or(0, |held| held.len());
                let line = format!(
                    "shard {n} connection {id:?} {}: {conn:?}, output {}, held {held}, stalled {}, \
                     deferred {}\n",
                    session.peer(),
                    conn.output.len(),
                    session.is_stalled,
                    session.deferred.is_some(),
                );
                text.push_str(&line);
            }
        }
        text
    }

    fn post_all(&self, mail: impl Fn() -> Mail) {
        for shard in 0..self.mailboxes.shards() {
            // A shard that has ended needs no telling.
            drop(self.mailboxes.post(shard, mail()));
        }
    }
}
