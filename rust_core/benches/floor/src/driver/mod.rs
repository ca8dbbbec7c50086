//! Moving bytes: two drivers with one contract, so that the pattern is the same code on both.
//!
//! A worker has client connections, many with little traffic each, and possibly trunks, few with much.
//! In each turn a driver hands what has arrived to the pattern, then sends what the pattern has put
//! into the [`Output`]: one send for each connection.

pub(crate) mod epoll;
pub(crate) mod output;
pub(crate) mod uring;

use std::fmt::Display;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::driver::output::Output;
use crate::failure::Failure;
use crate::mail::Mailboxes;
use crate::setup::Setup;

/// Bytes of a trunk's receive buffer: what a turn's batch may need.
const TRUNK_BUFFER: usize = 256 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Client,
    Trunk,
}

/// What one end does with what arrives. Clients are named by numbers that the driver assigns; that
/// of a closed connection may be used again.
pub(crate) trait Pattern {
    /// Everything is established.
    fn start(&mut self, _: &mut Output) {}
    /// `bytes` have arrived, cut anywhere.
    fn on_client(&mut self, client: u32, bytes: &[u8], out: &mut Output);
    /// `bytes` have arrived, cut anywhere.
    fn on_trunk(&mut self, trunk: usize, bytes: &[u8], out: &mut Output);
    /// What other threads put into [`Output::mail`] for this one, cut where they began and ended.
    fn on_mail(&mut self, _mail: &[u8], _: &mut Output) {}
    /// A client connection has ended.
    fn on_closed(&mut self, _client: u32) {}
    /// Nothing new is to be begun.
    fn drain(&mut self) {}
    /// The turn's input is over.
    fn end_turn(&mut self, _: &mut Output) {}
}

/// Moves the bytes of one worker's connections.
pub(crate) trait Driver: Sized {
    fn new(worker: Worker) -> Result<Self, Failure>;

    /// Accepts connections of `kind`, on `ring` where the driver has several.
    fn listen(&mut self, ring: u32, listener: OwnedFd, kind: Kind) -> Result<(), Failure>;

    /// Takes a connected non-blocking socket; returns the client's number, or the trunk's.
    fn add(&mut self, socket: OwnedFd, kind: Kind) -> Result<u32, Failure>;

    /// Takes what the next turn is to send.
    fn output(&mut self) -> &mut Output;

    /// Sends what there is to send, waits for something to arrive, at most for `patience` where that
    /// is given, and hands it to the pattern.
    fn turn<P: Pattern>(
        &mut self,
        pattern: &mut P,
        patience: Option<Duration>,
    ) -> Result<Next, Failure>;

    /// Closes everything: listeners first, so that nothing arrives any more.
    fn close(self) -> Result<(), Failure>;

    /// Runs turns until everything is to be closed, and closes it.
    fn run<P: Pattern>(mut self, pattern: &mut P) -> Result<(), Failure> {
        pattern.start(self.output());
        while self.turn(pattern, None)? == Next::Turn {}
        self.close()
    }
}

/// Whether to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Turn,
    Close,
}

/// The end that a worker belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Server,
    Load,
}

impl Role {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Load => "load",
        }
    }
}

/// What a driver has to know of the thread that it serves.
pub(crate) struct Worker {
    pub(crate) role: Role,
    pub(crate) setup: Arc<Setup>,
    pub(crate) mailboxes: Arc<Mailboxes>,
    pub(crate) index: u32,
    pub(crate) threads: u32,
    /// Rings of this thread; 1 where the driver has none.
    pub(crate) rings: u32,
    /// Slots of a ring's table.
    pub(crate) slots: u32,
    /// Bytes that usually arrive from a client at once.
    pub(crate) from_client: usize,
    /// Completions that are worth waiting for, for a moment, rather than to go on with one.
    pub(crate) batch: u32,
    /// Whether a fault has been shown.
    pub(crate) shown: bool,
}

impl Worker {
    fn accepted(&self) {
        let accepted = &self.setup.board.server.accepted;
        accepted.fetch_add(1, Ordering::Relaxed);
    }

    /// The peer has closed a client connection: only the load may.
    fn closed_by_peer(&mut self, client: u32) {
        match self.role {
            Role::Server => {
                let closed = &self.setup.board.server.closed;
                closed.fetch_add(1, Ordering::Relaxed);
            }
            Role::Load => self.fault(format_args!("client {client} was closed by the server")),
        }
    }

    /// Counts what went wrong with one connection and shows the first. Not once everything is being
    /// closed: by then the other process may be gone.
    fn fault(&mut self, what: impl Display) {
        let setup = &self.setup;
        if setup.signals.close.is_raised() {
            return;
        }
        let errors = match self.role {
            Role::Server => &setup.board.server.errors,
            Role::Load => &setup.board.load.errors,
        };
        errors.fetch_add(1, Ordering::Relaxed);
        if !self.shown {
            self.shown = true;
            let (name, index) = (self.role.name(), self.index);
            eprintln!("floor: {name} {index}: {what} (further errors are only counted)");
        }
    }

    /// Without its trunks nothing moves: a failure, unless everything is being closed.
    fn trunk_lost(&self, trunk: usize, why: impl Display) -> Result<(), Failure> {
        if self.setup.signals.close.is_raised() {
            return Ok(());
        }
        Err(Failure::new(format!("trunk {trunk} is lost: {why}")))
    }
}
