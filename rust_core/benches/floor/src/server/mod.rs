//! The server: accepts, and passes on what arrives.

mod fanout;
mod greeting;
mod relay;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::crew;
use crate::driver::epoll::Epoll;
use crate::driver::uring::Uring;
use crate::driver::{Driver, Kind, Pattern, Role, Worker};
use crate::failure::Failure;
use crate::net;
use crate::options::{DriverKind, Mode};
use crate::setup::{HUB, Setup};

use fanout::Fanout;
use greeting::Greeting;
use relay::Relay;

/// Serves until everything is to be closed.
pub(crate) fn run(setup: &Arc<Setup>) -> Result<(), Failure> {
    match setup.options.driver {
        DriverKind::Epoll => crew::run(Role::Server, setup, serve::<Epoll>),
        DriverKind::Uring => crew::run(Role::Server, setup, serve::<Uring>),
    }
}

fn serve<D: Driver>(worker: Worker) -> Result<(), Failure> {
    let setup = Arc::clone(&worker.setup);
    let (index, threads, rings) = (worker.index, worker.threads, worker.rings);
    let mut driver = D::new(worker)?;
    for ring in 0..rings {
        driver.listen(ring, net::listener(setup.clients_at)?, Kind::Client)?;
    }
    if index == HUB {
        driver.listen(0, net::listener(setup.trunks_at)?, Kind::Trunk)?;
    }
    setup.board.server.listening.fetch_add(1, Ordering::Relaxed);
    match setup.options.mode {
        Mode::Relay(exchange) => {
            let relay = Relay::new(index, threads, exchange);
            run_pattern(driver, relay, setup.options.greeting)
        }
        Mode::Fanout { message_bytes } => {
            let fanout = Fanout::new(index, threads, message_bytes);
            run_pattern(driver, fanout, setup.options.greeting)
        }
    }
}

fn run_pattern<D: Driver, P: Pattern>(
    driver: D,
    mut pattern: P,
    greeting: bool,
) -> Result<(), Failure> {
    if greeting {
        driver.run(&mut Greeting::before(pattern))
    } else {
        driver.run(&mut pattern)
    }
}
