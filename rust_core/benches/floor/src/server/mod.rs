//! The server: accepts, and passes on what arrives.

mod fanout;
mod relay;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::crew;
use crate::driver::epoll::Epoll;
use crate::driver::uring::Uring;
use crate::driver::{Driver, Kind, Role, Worker};
use crate::failure::Failure;
use crate::net;
use crate::options::{DriverKind, Mode};
use crate::setup::{HUB, Setup};

use fanout::Fanout;
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
        Mode::Relay(exchange) => driver.run(&mut Relay::new(index, threads, exchange)),
        Mode::Fanout { message_bytes } => {
            driver.run(&mut Fanout::new(index, threads, message_bytes))
        }
    }
}
