//! The load: connects everything, then asks and answers, or publishes and receives.

mod connect;
mod fanout;
mod relay;

use std::sync::Arc;

use crate::capacity::share;
use crate::crew;
use crate::driver::epoll::Epoll;
use crate::driver::uring::Uring;
use crate::driver::{Driver, Kind, Role, Worker};
use crate::failure::Failure;
use crate::options::{DriverKind, Mode};
use crate::setup::{HUB, Setup};

use connect::Connector;
use fanout::{Fanout, Window};
use relay::Relay;

/// Loads the server until everything is to be closed.
pub(crate) fn run(setup: &Arc<Setup>) -> Result<(), Failure> {
    let window = Arc::new(Window::new(
        setup.options.outstanding,
        setup.options.connections,
    ));
    match setup.options.driver {
        DriverKind::Epoll => crew::run(Role::Load, setup, |worker| load::<Epoll>(worker, &window)),
        DriverKind::Uring => crew::run(Role::Load, setup, |worker| load::<Uring>(worker, &window)),
    }
}

fn load<D: Driver>(worker: Worker, window: &Arc<Window>) -> Result<(), Failure> {
    let setup = Arc::clone(&worker.setup);
    let (index, threads) = (worker.index, worker.threads);
    let mut driver = D::new(worker)?;
    let connector = Connector::new(&setup);

    let trunks = if index == HUB {
        setup.options.mode.trunks()
    } else {
        0
    };
    for _ in 0..trunks {
        let Some(socket) = connector.connect(0, setup.trunks_at)? else {
            return Ok(());
        };
        driver.add(socket, Kind::Trunk)?;
    }
    let connections = setup.options.connections;
    let before: u32 = (0..index)
        .map(|index| share(connections, threads, index))
        .sum();
    let mut clients = Vec::new();
    for number in before..before + share(connections, threads, index) {
        let Some(socket) = connector.connect(number, setup.clients_at)? else {
            return Ok(());
        };
        clients.push(driver.add(socket, Kind::Client)?);
    }

    if !setup.signals.wait_for_start()? {
        return Ok(());
    }
    match setup.options.mode {
        Mode::Relay(exchange) => {
            driver.run(&mut Relay::new(&setup, exchange, index, threads, clients))
        }
        Mode::Fanout { message_bytes } => driver.run(&mut Fanout::new(
            setup.board,
            Arc::clone(window),
            index,
            message_bytes,
            &clients,
        )),
    }
}
