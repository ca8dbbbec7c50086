//! Configuration of a broadcaster: a JSON object with one level of keys.

use reactor::DriverChoice;

use super::audience::Audience;
use super::message::MIN_MESSAGE;
use crate::config::{Arrivals, MAX_PAYLOAD, MAX_RATE, MAX_THREADS, MAX_TIME_S, MAX_USERS};
use crate::error::ConfigError;
use crate::fields::{Fields, in_range};
use crate::profile::{self, Profile, Segment};
use crate::rng::Rng;
use crate::schedule::{Schedule, nanoseconds};
use crate::target::Target;

/// Index of the thread that publishes, which the engine starts first.
pub(crate) const PUBLISHING_THREAD: usize = 0;

/// Most messages in flight: 640 MiB of memory.
const MAX_IN_FLIGHT: f64 = (1u32 << 24) as f64;
const MAX_OUTSTANDING: u32 = 65_536;

/// Configuration of a [`Broadcaster`](crate::Broadcaster). Sizes are in bytes, times in seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct BroadcasterConfig {
    /// `transport`, `address`, `host`, `path`: the server.
    pub target: Target,
    /// Connections, each of which is a user: user N is subscribed to `/b/{N mod subjects}`.
    pub users: u32,
    /// The number N of the first user.
    pub first_user: u32,
    /// Subjects that messages are published on, in turn.
    pub subjects: u32,
    /// Connections that publish; 0 if another process does.
    pub publishers: u32,
    /// Messages published a second, all subjects together (an open loop); 0 with `outstanding`.
    pub rate: f64,
    /// Messages that are always in flight (a closed loop). The next message follows as soon as one
    /// has reached all its users; 0 with `rate`.
    pub outstanding: u32,
    /// Time of publishing that is not measured.
    pub warmup_s: f64,
    /// Time of publishing that is measured.
    pub duration_s: f64,
    /// Size of a message.
    pub message_bytes: usize,
    /// Longest wait for deliveries after the last message.
    pub timeout_s: f64,
    /// Threads that the users are divided among; one more publishes.
    pub threads: u32,
    /// Driver of the threads: epoll, io_uring, or the better one.
    pub driver: DriverChoice,
    /// Seed of the gaps of Poisson arrivals and of the messages, which differ from those of other
    /// runs.
    pub seed: u64,
    /// Users' connections begun a second; 0 for as many as `connect_in_flight` allows.
    pub connect_rate: f64,
    /// Users' connections that may be in the making at once.
    pub connect_in_flight: u32,
    /// Distribution of the messages of an open loop over time.
    pub arrivals: Arrivals,
    /// Changes of the rate in the measured phase, in multiples of `rate`; empty for a constant
    /// rate. The warm-up has the first factor.
    pub profile: Vec<Segment>,
    /// Whether the result lists the receipts of each message, so that several processes' results
    /// can be added.
    pub list_messages: bool,
    /// This machine's CLOCK_MONOTONIC less the run's clock, in nanoseconds.
    pub clock_offset_ns: i64,
}

impl BroadcasterConfig {
    /// Read a JSON object. `transport`, `address`, `users`, `duration_s` and one of `rate` and
    /// `outstanding` have no default.
    ///
    /// # Errors
    /// The text is not a JSON object, or a key is unknown, missing, of the wrong type or out of
    /// range.
    pub fn from_json(json: &str) -> Result<Self, ConfigError> {
        let mut fields = Fields::parse(json)?;
        let config = Self {
            target: fields.nats_target()?,
            users: fields.required("users")?,
            first_user: fields.or("first_user", 0)?,
            subjects: fields.or("subjects", 1)?,
            publishers: fields.or("publishers", 1)?,
            rate: fields.or("rate", 0.0)?,
            outstanding: fields.or("outstanding", 0)?,
            warmup_s: fields.or("warmup_s", 0.0)?,
            duration_s: fields.required("duration_s")?,
            message_bytes: fields.or("message_bytes", 100)?,
            timeout_s: fields.or("timeout_s", 10.0)?,
            threads: fields.or("threads", 1)?,
            driver: fields.driver()?,
            seed: fields.or("seed", 0)?,
            connect_rate: fields.or("connect_rate", 0.0)?,
            connect_in_flight: fields.or("connect_in_flight", 512)?,
            arrivals: fields.or("arrivals", Arrivals::Uniform)?,
            profile: fields.or("profile", Vec::new())?,
            list_messages: fields.or("list_messages", false)?,
            clock_offset_ns: fields.or("clock_offset_ns", 0)?,
        };
        fields.finish()?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), ConfigError> {
        in_range("users", self.users, 1, MAX_USERS)?;
        in_range("first_user", self.first_user, 0, u32::MAX - self.users)?;
        in_range("subjects", self.subjects, 1, MAX_USERS)?;
        in_range("publishers", self.publishers, 0, self.subjects)?;
        in_range("outstanding", self.outstanding, 0, MAX_OUTSTANDING)?;
        in_range("warmup_s", self.warmup_s, 0.0, MAX_TIME_S)?;
        in_range("duration_s", self.duration_s, 1e-3, MAX_TIME_S)?;
        let bytes = self.message_bytes;
        in_range("message_bytes", bytes, MIN_MESSAGE, MAX_PAYLOAD)?;
        in_range("timeout_s", self.timeout_s, 1e-3, 3600.0)?;
        in_range("threads", self.threads, 1, MAX_THREADS.min(self.users))?;
        in_range("connect_rate", self.connect_rate, 0.0, MAX_RATE)?;
        let in_flight = self.connect_in_flight;
        in_range("connect_in_flight", in_flight, self.threads, MAX_USERS)?;
        self.check_load()
    }

    /// Check that one of `rate` and `outstanding` is given, and that the messages in flight can be
    /// remembered.
    fn check_load(&self) -> Result<(), ConfigError> {
        profile::check(&self.profile, self.duration_s, self.outstanding > 0)?;
        if self.outstanding > 0 {
            let faults = [
                (
                    "outstanding",
                    self.rate != 0.0,
                    "a closed loop has no rate: give one of the two",
                ),
                (
                    "arrivals",
                    self.arrivals != Arrivals::Uniform,
                    "a closed loop has no planned arrivals",
                ),
                (
                    "outstanding",
                    self.publishers == 0 || self.first_user > 0,
                    "a closed loop needs its publishers and all users in one process",
                ),
            ];
            let fault = faults.into_iter().find(|(_, is_fault, _)| *is_fault);
            return fault.map_or(Ok(()), |(key, _, what)| Err(ConfigError::new(key, what)));
        }
        if self.rate == 0.0 {
            let what = "give a rate (an open loop) or the number outstanding (a closed loop)";
            return Err(ConfigError::new("rate", what));
        }
        in_range("rate", self.rate, 1e-3, MAX_RATE)?;
        let peak = self.rate * profile::peak(&self.profile);
        let in_flight = peak * (self.timeout_s + 1.0);
        if in_flight > MAX_IN_FLIGHT {
            let what = format!(
                "{peak} messages a second with a timeout of {} s: {in_flight:.0} messages would have to \
                 be remembered, at most {MAX_IN_FLIGHT:.0} are possible",
                self.timeout_s
            );
            return Err(ConfigError::new("rate", what));
        }
        Ok(())
    }

    /// Return the process's users.
    pub(crate) fn audience(&self) -> Audience {
        Audience::new(self.first_user, self.users, self.subjects)
    }

    /// Return when messages are due; the same in every process with the same settings.
    pub(crate) fn schedule(&self) -> Schedule {
        let end = self.warmup_ns() + nanoseconds(self.duration_s);
        if self.outstanding > 0 {
            return Schedule::closed(end);
        }
        let profile = Profile::new(self.warmup_ns() as f64, &self.profile);
        let rng = Rng::new(self.seed);
        Schedule::open(self.arrivals, self.rate, profile, 0.0, end, rng)
    }

    pub(crate) fn warmup_ns(&self) -> u64 {
        nanoseconds(self.warmup_s)
    }

    pub(crate) fn timeout_ns(&self) -> u64 {
        nanoseconds(self.timeout_s)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(more: &str) -> Result<BroadcasterConfig, ConfigError> {
        BroadcasterConfig::from_json(&format!(
            r#"{{"transport":"ws","address":"127.0.0.1:8080","users":10,"duration_s":2{more}}}"#
        ))
    }

    #[test]
    fn defaults_are_one_subject_and_one_publisher() {
        let config = read(r#","rate":5"#).unwrap();
        assert_eq!((config.subjects, config.publishers), (1, 1));
        assert_eq!((config.message_bytes, config.outstanding), (100, 0));
        assert_eq!((config.threads, config.list_messages), (1, false));
        assert_eq!(config.arrivals, Arrivals::Uniform);
        assert!(!config.schedule().is_closed());
        let closed = read(r#","outstanding":16"#).unwrap().schedule();
        assert!(closed.is_closed());
        assert_eq!(closed.end(), 2_000_000_000);
    }

    #[test]
    fn errors_name_the_key() {
        for (more, key) in [
            ("", "rate"),
            (r#","rate":0"#, "rate"),
            (r#","rate":2000000"#, "rate"),
            (r#","rate":1,"first_user":4294967295"#, "first_user"),
            (r#","rate":1,"subjects":0"#, "subjects"),
            (r#","rate":1,"publishers":2"#, "publishers"),
            (r#","rate":1,"message_bytes":23"#, "message_bytes"),
            (r#","rate":1,"threads":11"#, "threads"),
            (r#","rate":1,"timeout_s":0"#, "timeout_s"),
            (r#","rate":1,"warmup_s":-1"#, "warmup_s"),
            (r#","rate":1,"connect_in_flight":0"#, "connect_in_flight"),
            (r#","rate":1,"providers":4"#, "providers"),
            (r#","rate":1,"profile":[[1,1,1]]"#, "profile"),
            (r#","outstanding":1,"profile":[[2,1,1]]"#, "profile"),
            (r#","rate":200000,"profile":[[2,1,10]]"#, "rate"),
            (r#","outstanding":65537"#, "outstanding"),
            (r#","outstanding":1,"rate":1"#, "outstanding"),
            (r#","outstanding":1,"arrivals":"poisson""#, "arrivals"),
            (r#","outstanding":1,"publishers":0"#, "outstanding"),
            (r#","outstanding":1,"first_user":5"#, "outstanding"),
        ] {
            let error = read(more).unwrap_err();
            assert_eq!(error.key, key, "{more}: {error}");
        }
    }
}
