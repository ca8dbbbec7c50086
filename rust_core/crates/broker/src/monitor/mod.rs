//! The pages of the monitor's listener.
//!
//! | module | holds |
//! |---|---|
//! | [`page`], `query` | the pages and their parameters |
//! | `server` | when each request is carried out, and the pages as answers |
//! | `callers`, `queue` | the connections, and which of them gives way to a newcomer; the requests that wait |
//! | `snapshot`, `watch`, `figures` | the values of all metrics at one time, for `/varz`, `/metrics` and `/history` |
//! | `varz`, `console` | pages that the monitor's shard makes itself |
//! | [`survey`], `surveys` | a question to all shards, and how it is asked |
//! | `sweep`, `selection`, `description` | the part of each shard in a survey |
//! | `connz`, `rows`, `subsz`, [`hot`], `shown` | pages that all shards are asked for |

mod callers;
mod connz;
mod console;
mod description;
mod figures;
mod hot;
mod page;
mod query;
mod queue;
mod rows;
mod selection;
mod server;
mod shown;
mod snapshot;
mod subsz;
mod survey;
mod surveys;
mod sweep;
mod varz;
mod watch;

pub(crate) use figures::counters;
pub(crate) use hot::Hot;
pub(crate) use page::{MISSING, Page};
pub(crate) use server::Monitor;
pub(crate) use survey::Survey;
