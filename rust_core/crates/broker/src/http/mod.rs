//! HTTP/1.1 on the clients' and the monitor's listeners: requests in, answers out in the same order, and
//! the upgrade to WebSocket.
//!
//! | module | holds |
//! |---|---|
//! | `connection` | the state of a connection |
//! | `route`, `timeout` | the action that a request asks for |
//! | `fields`, `field_names` | fields of requests and answers, and headers of messages |
//! | [`answer`], [`events`] | the encoding of answers and of streams of events |
//! | [`inbox`] | the reply subjects of requests |
//! | [`reply`] | replies as the answers to requests that wait for them |
//! | `exchange` | one connection with the parts that its requests reach, and the answers that it is given |
//! | [`gateway`] | requests to subjects |
//! | `requests` | from received bytes to the gateway, the monitor or a WebSocket connection |

pub(crate) mod answer;
mod connection;
pub(crate) mod events;
mod exchange;
mod field_names;
mod fields;
pub(crate) mod gateway;
pub(crate) mod inbox;
pub(crate) mod reply;
mod requests;
mod route;
mod timeout;

pub(crate) use connection::{Asking, Http, State};
pub(crate) use events::EventFormat;
pub(crate) use exchange::{Exchange, Problem};
pub(crate) use gateway::Gateway;
pub(crate) use requests::{Requests, TIMEOUT};
pub(crate) use route::{Action, Call};
