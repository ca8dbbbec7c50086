//! Connecting as fast as the server accepts, from as many addresses as it takes, and greeting
//! meanwhile.

use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::board::Board;
use crate::driver::output::Output;
use crate::driver::{Driver, Kind, Next, Pattern, Role};
use crate::failure::Failure;
use crate::greeting::{EXCHANGES, Progress};
use crate::net::{Attempt, source, try_connect};
use crate::setup::Setup;

/// Connections that may wait to be accepted. Beyond net.core.somaxconn, 4096 by default, the kernel
/// drops the attempt, which then takes a second.
const WAITING: u64 = 1024;
const WAIT: Duration = Duration::from_micros(500);

/// Connections begun in one turn: their sends and receives enter the kernel together, while what the
/// kernel has just made for them is still in the cache.
const BATCH: u32 = 16;

const ATTEMPTS: u32 = 10;
const FIRST_PAUSE: Duration = Duration::from_millis(5);

/// Gives `driver` its connections. Every step says whether to go on, or to close everything.
pub(super) struct Establisher<'a, D> {
    setup: &'a Setup,
    driver: &'a mut D,
    greeter: Greeter,
    /// Connections since the last turn.
    begun: u32,
}

impl<'a, D: Driver> Establisher<'a, D> {
    pub(super) fn new(setup: &'a Setup, driver: &'a mut D) -> Self {
        Self {
            setup,
            driver,
            greeter: Greeter::new(setup.board),
            begun: 0,
        }
    }

    /// Connects a provider or publisher.
    pub(super) fn trunk(&mut self) -> Result<Next, Failure> {
        let Some(socket) = self.connect(0, self.setup.trunks_at)? else {
            return Ok(Next::Close);
        };
        self.driver.add(socket, Kind::Trunk)?;
        Ok(Next::Turn)
    }

    /// Connects user or subscriber `number` and begins its greeting; returns the driver's number.
    pub(super) fn client(&mut self, number: u32) -> Result<Option<u32>, Failure> {
        let Some(socket) = self.connect(number, self.setup.clients_at)? else {
            return Ok(None);
        };
        let client = self.driver.add(socket, Kind::Client)?;
        if self.setup.options.greeting {
            self.greeter.begin(client, self.driver.output());
        }
        self.begun += 1;
        if self.begun == BATCH && self.turn(Some(Duration::ZERO))? == Next::Close {
            return Ok(None);
        }
        Ok(Some(client))
    }

    /// Waits for the last greetings.
    pub(super) fn finish(mut self) -> Result<Next, Failure> {
        let mut next = self.turn(Some(Duration::ZERO))?;
        while next == Next::Turn && self.greeter.under_way > 0 {
            next = self.turn(None)?;
        }
        Ok(next)
    }

    fn turn(&mut self, patience: Option<Duration>) -> Result<Next, Failure> {
        self.begun = 0;
        self.driver.turn(&mut self.greeter, patience)
    }

    fn connect(&mut self, number: u32, target: SocketAddrV4) -> Result<Option<OwnedFd>, Failure> {
        let Setup { board, signals, .. } = self.setup;
        while board.waiting_connections() >= WAITING {
            if self.turn(Some(WAIT))? == Next::Close {
                return Ok(None);
            }
        }
        let source = source(number);
        let mut attempt = 0;
        loop {
            match try_connect(source, target)? {
                Attempt::Connected(socket) => {
                    board.load.connected.fetch_add(1, Ordering::Relaxed);
                    return Ok(Some(socket));
                }
                Attempt::Failed(errno) => {
                    attempt += 1;
                    if attempt == ATTEMPTS {
                        return Err(Failure::new(format!(
                            "cannot connect {source} to {target} in {ATTEMPTS} attempts: {errno}"
                        )));
                    }
                    board.load.retried.fetch_add(1, Ordering::Relaxed);
                }
            }
            if !signals.pause(FIRST_PAUSE * (1 << attempt))? {
                return Ok(None);
            }
        }
    }
}

/// The load's end of the greetings.
struct Greeter {
    board: &'static Board,
    progress: Progress,
    under_way: u32,
}

impl Greeter {
    fn new(board: &'static Board) -> Self {
        Self {
            board,
            progress: Progress::new(Role::Load),
            under_way: 0,
        }
    }

    fn begin(&mut self, client: u32, out: &mut Output) {
        self.under_way += 1;
        out.send_client(client, EXCHANGES[0].request);
    }
}

impl Pattern for Greeter {
    fn on_client(&mut self, client: u32, bytes: &[u8], out: &mut Output) {
        let rest = self.progress.receive(client, bytes, |index| {
            if let Some(next) = EXCHANGES.get(index + 1) {
                out.send_client(client, next.request);
            } else {
                self.under_way -= 1;
                let greeted = &self.board.load.greeted;
                greeted.fetch_add(1, Ordering::Relaxed);
            }
        });
        if !rest.is_empty() {
            let n = rest.len();
            out.faults
                .push(format!("client {client} received {n} bytes too early"));
        }
    }

    fn on_trunk(&mut self, trunk: usize, bytes: &[u8], out: &mut Output) {
        let n = bytes.len();
        out.faults
            .push(format!("trunk {trunk} received {n} bytes too early"));
    }
}
