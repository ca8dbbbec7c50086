//! Connecting as fast as the server accepts, from as many addresses as it takes.

use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::failure::Failure;
use crate::net::{Attempt, source, try_connect};
use crate::setup::Setup;

/// Connections that may wait to be accepted. Beyond net.core.somaxconn, 4096 by default, the kernel
/// drops the attempt, which then takes a second.
const WAITING: u64 = 1024;
const WAIT: Duration = Duration::from_micros(500);

const ATTEMPTS: u32 = 10;
const FIRST_PAUSE: Duration = Duration::from_millis(5);

pub(super) struct Connector<'a> {
    setup: &'a Setup,
}

impl<'a> Connector<'a> {
    pub(super) fn new(setup: &'a Setup) -> Self {
        Self { setup }
    }

    /// Connection number `number`; `None` if everything is to be closed instead.
    pub(super) fn connect(
        &self,
        number: u32,
        target: SocketAddrV4,
    ) -> Result<Option<OwnedFd>, Failure> {
        let Setup { board, signals, .. } = self.setup;
        while board.waiting_connections() >= WAITING {
            if !signals.pause(WAIT)? {
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
