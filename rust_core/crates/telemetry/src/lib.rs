//! Counters, histograms, history, exposition and log lines of a program made of shards.
//!
//! Pure data: the crate depends on no other crate of the workspace, owns no socket, and reads no
//! clock. Times are passed in, so that a simulation with virtual time uses the same code. Only the
//! log's [`Writer`](log::Writer) has a thread and reads a clock.
//!
//! | module | holds |
//! |---|---|
//! | [`key`] | enums whose variants are the keys of a set |
//! | [`cells`] | numbers that one shard writes and every thread reads without a lock |
//! | [`histogram`] | distributions of measured values |
//! | [`metric`] | the description of a metric, which every page reads |
//! | [`samples`] | the values of a metric at one time |
//! | [`exposition`] | the text formats of Prometheus |
//! | [`document`] | a JSON object with a value for each metric |
//! | [`history`], [`rings`] | metrics measured once a second, kept for a day |
//! | [`space_saving`] | the most frequent keys of a stream |
//! | [`time`] | points and lengths of time as monitoring pages write them |
//! | [`log`] | levels, rates, queue, writer and formats of a log |

pub mod cells;
pub mod document;
pub mod exposition;
pub mod histogram;
pub mod history;
pub mod key;
pub mod log;
pub mod metric;
pub mod rings;
pub mod samples;
pub mod space_saving;
pub mod time;
