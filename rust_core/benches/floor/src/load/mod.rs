//! The load: establishes everything, then asks and answers, or publishes and receives.

mod establish;
mod fanout;
mod relay;

use std::sync::Arc;

use crate::capacity::share;
use crate::crew;
use crate::driver::epoll::Epoll;
use crate::driver::uring::Uring;
use crate::driver::{Driver, Next, Role, Worker};
use crate::failure::Failure;
use crate::options::{DriverKind, Mode};
use crate::setup::{HUB, Setup};

use establish::Establisher;
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
    let mut establisher = Establisher::new(&setup, &mut driver);

    let trunks = if index == HUB {
        setup.options.mode.trunks()
    } else {
        0
    };
    for _ in 0..trunks {
        if establisher.trunk()? == Next::Close {
            return driver.close();
        }
    }
    let connections = setup.options.connections;
    let before: u32 = (0..index)
        .map(|index| share(connections, threads, index))
        .sum();
    let mut clients = Vec::new();
    for number in before..before + share(connections, threads, index) {
        let Some(client) = establisher.client(number)? else {
            return driver.close();
        };
        clients.push(client);
    }
    if establisher.finish()? == Next::Close || !setup.signals.wait_for_start()? {
        return driver.close();
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
