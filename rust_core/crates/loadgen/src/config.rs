//! Configurations of the engines: JSON objects with one level of keys.

use reactor::DriverChoice;
use serde::Deserialize;

use crate::error::ConfigError;
use crate::fields::{Fields, in_range};
use crate::profile::{self, Segment};
use crate::target::Target;

/// Distribution of requests over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// Equal distances.
    Uniform,
    /// Exponentially distributed gaps, as independent users send.
    Poisson,
}

/// Configuration of a [`Requestor`](crate::Requestor). Sizes are in bytes, times in seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestorConfig {
    /// `transport`, `address`, `host`, `path`: the server.
    pub target: Target,
    /// Connections, each of which is a user with a subject of its own.
    pub users: u32,
    /// The number N of the first user, who is subscribed to `/c/N`.
    pub first_user: u32,
    /// Requests go to `/s/0` up to this number less one.
    pub providers: u32,
    /// Requests a second, all users together (an open loop); 0 with `outstanding`.
    pub rate: f64,
    /// Requests that are always outstanding, all users together (a closed loop); 0 with `rate`.
    pub outstanding: u32,
    /// Number of measured requests, all users together, after which a closed loop ends. If 0,
    /// `duration_s` alone ends it.
    pub calls: u32,
    /// Whether users fetch `path` by GET, which any HTTP server has, rather than ask providers.
    pub fetch: bool,
    /// Whether each user makes one request before the warm-up, in order and counted apart.
    pub sweep: bool,
    /// Time of sending that is not measured.
    pub warmup_s: f64,
    /// Time of sending that is measured.
    pub duration_s: f64,
    /// Size of a request's payload.
    pub request_bytes: usize,
    /// Size that a reply's payload, or a fetched body, must have.
    pub reply_bytes: usize,
    /// Time after which a request without a reply has failed.
    pub timeout_s: f64,
    /// Threads that the users are divided among.
    pub threads: u32,
    /// Driver of the threads: epoll, io_uring, or the better one.
    pub driver: DriverChoice,
    /// Seed of the choice of users and providers, and of the gaps of Poisson arrivals.
    pub seed: u64,
    /// Connections begun a second; 0 for as many as `connect_in_flight` allows.
    pub connect_rate: f64,
    /// Connections that may be in the making at once.
    pub connect_in_flight: u32,
    /// Connections that are closed and established again a second, all users together.
    pub churn_rate: f64,
    /// Distribution of the requests of an open loop over time.
    pub arrivals: Arrivals,
    /// Changes of the rate in the measured phase, in multiples of `rate`; empty for a constant
    /// rate. The warm-up has the first factor.
    pub profile: Vec<Segment>,
    /// Shift of the planned times, in mean distances between two requests, so that the requests of
    /// several processes alternate.
    pub phase: f64,
    /// This machine's CLOCK_MONOTONIC less the run's clock, in nanoseconds.
    pub clock_offset_ns: i64,
}

/// Configuration of a [`Provider`](crate::Provider). Sizes are in bytes, times in seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct ProviderConfig {
    /// `transport`, `address`, `host`, `path`: the server.
    pub target: Target,
    /// Connections, each of which is a provider with a subject of its own.
    pub providers: u32,
    /// The number K of the first provider, who is subscribed to `/s/K`.
    pub first_provider: u32,
    /// Size of a reply's payload.
    pub reply_bytes: usize,
    /// Requests a second that all providers together answer at most, one after the other; 0 for no
    /// limit.
    pub rate: f64,
    /// Delay of the replies to requests that arrive in a stall: the first `delay_for_s` of every
    /// `delay_every_s` since the start. 0 for no stalls.
    pub delay_s: f64,
    /// Length of each stall.
    pub delay_for_s: f64,
    /// Time from the start of one stall to the start of the next.
    pub delay_every_s: f64,
    /// Threads that the providers are divided among.
    pub threads: u32,
    /// Driver of the threads: epoll, io_uring, or the better one.
    pub driver: DriverChoice,
    /// This machine's CLOCK_MONOTONIC less the run's clock, in nanoseconds.
    pub clock_offset_ns: i64,
}

/// Most users of one process.
pub(crate) const MAX_USERS: u32 = 16_000_000;
/// Most providers; a request keeps its provider's number in 16 bits.
pub(crate) const MAX_PROVIDERS: u32 = 65_536;
pub(crate) const MAX_THREADS: u32 = 1024;
/// An id and at least one word that follows from it.
const MIN_PAYLOAD: usize = 16;
pub(crate) const MAX_PAYLOAD: usize = 64 << 20;
pub(crate) const MAX_RATE: f64 = 1e8;
const MAX_OUTSTANDING: u32 = 1 << 22;
pub(crate) const MAX_TIME_S: f64 = 30.0 * 86_400.0;

impl RequestorConfig {
    /// Read a JSON object. `transport`, `address`, `users`, `duration_s` and one of `rate` and
    /// `outstanding` have no default.
    ///
    /// # Errors
    /// The text is not a JSON object, or a key is unknown, missing, of the wrong type or out of
    /// range.
    pub fn from_json(json: &str) -> Result<Self, ConfigError> {
        let mut fields = Fields::parse(json)?;
        let config = Self {
            target: fields.target()?,
            users: fields.required("users")?,
            first_user: fields.or("first_user", 0)?,
            providers: fields.or("providers", 16)?,
            rate: fields.or("rate", 0.0)?,
            outstanding: fields.or("outstanding", 0)?,
            calls: fields.or("calls", 0)?,
            fetch: fields.or("fetch", false)?,
            sweep: fields.or("sweep", false)?,
            warmup_s: fields.or("warmup_s", 0.0)?,
            duration_s: fields.required("duration_s")?,
            request_bytes: fields.or("request_bytes", 32)?,
            reply_bytes: fields.or("reply_bytes", 256)?,
            timeout_s: fields.or("timeout_s", 10.0)?,
            threads: fields.or("threads", 1)?,
            driver: fields.driver()?,
            seed: fields.or("seed", 0)?,
            connect_rate: fields.or("connect_rate", 0.0)?,
            connect_in_flight: fields.or("connect_in_flight", 512)?,
            churn_rate: fields.or("churn_rate", 0.0)?,
            arrivals: fields.or("arrivals", Arrivals::Uniform)?,
            profile: fields.or("profile", Vec::new())?,
            phase: fields.or("phase", 0.0)?,
            clock_offset_ns: fields.or("clock_offset_ns", 0)?,
        };
        fields.finish()?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), ConfigError> {
        in_range("users", self.users, 1, MAX_USERS)?;
        in_range("first_user", self.first_user, 0, u32::MAX - self.users)?;
        in_range("providers", self.providers, 1, MAX_PROVIDERS)?;
        in_range("warmup_s", self.warmup_s, 0.0, MAX_TIME_S)?;
        in_range("duration_s", self.duration_s, 1e-3, MAX_TIME_S)?;
        in_range(
            "request_bytes",
            self.request_bytes,
            MIN_PAYLOAD,
            MAX_PAYLOAD,
        )?;
        let least = if self.fetch { 0 } else { MIN_PAYLOAD };
        in_range("reply_bytes", self.reply_bytes, least, MAX_PAYLOAD)?;
        in_range("timeout_s", self.timeout_s, 1e-3, 3600.0)?;
        in_range("threads", self.threads, 1, MAX_THREADS.min(self.users))?;
        in_range("connect_rate", self.connect_rate, 0.0, MAX_RATE)?;
        in_range(
            "connect_in_flight",
            self.connect_in_flight,
            self.threads,
            MAX_USERS,
        )?;
        in_range("churn_rate", self.churn_rate, 0.0, MAX_RATE)?;
        in_range("phase", self.phase, 0.0, 1.0)?;
        if self.churn_rate > 0.0 && self.users / self.threads < 2 {
            let what = format!(
                "{} users on {} threads: churn needs at least two users per thread",
                self.users, self.threads
            );
            return Err(ConfigError::new("churn_rate", what));
        }
        self.check_load()?;
        self.check_http()
    }

    /// Check the keys that depend on the transport.
    fn check_http(&self) -> Result<(), ConfigError> {
        let transport = self.target.transport;
        if !transport.is_http() {
            let what = format!("{transport} cannot fetch a page: use rest or rest-new");
            return if self.fetch {
                Err(ConfigError::new("fetch", what))
            } else {
                Ok(())
            };
        }
        if self.churn_rate > 0.0 {
            let what = "churn is not possible over HTTP: use ws or tcp";
            return Err(ConfigError::new("churn_rate", what));
        }
        if self.outstanding > self.users {
            let what = format!(
                "{} with {} users: over HTTP each has at most one request in flight",
                self.outstanding, self.users
            );
            return Err(ConfigError::new("outstanding", what));
        }
        Ok(())
    }

    /// Return the highest rate of all, in requests a second.
    pub(crate) fn peak_rate(&self) -> f64 {
        self.rate * profile::peak(&self.profile)
    }

    /// Check that one of `rate` and `outstanding` is given, and that a thread can remember the
    /// requests.
    fn check_load(&self) -> Result<(), ConfigError> {
        profile::check(&self.profile, self.duration_s, self.outstanding > 0)?;
        if self.outstanding > 0 {
            if self.rate != 0.0 {
                let what = "a closed loop has no rate: give one of the two";
                return Err(ConfigError::new("outstanding", what));
            }
            if self.arrivals != Arrivals::Uniform {
                let what = "a closed loop has no planned arrivals";
                return Err(ConfigError::new("arrivals", what));
            }
            if self.calls > 0 {
                in_range("calls", self.calls, self.threads, u32::MAX)?;
            }
            // Each thread takes a share of the outstanding requests.
            return in_range(
                "outstanding",
                self.outstanding,
                self.threads,
                MAX_OUTSTANDING,
            );
        }
        if self.calls > 0 {
            let what = "only a closed loop ends after a number of requests: give outstanding";
            return Err(ConfigError::new("calls", what));
        }
        if self.rate == 0.0 {
            let what = "give a rate (an open loop) or the number outstanding (a closed loop)";
            return Err(ConfigError::new("rate", what));
        }
        in_range("rate", self.rate, 1e-3, MAX_RATE)?;
        let peak = self.peak_rate();
        let remembered = peak / f64::from(self.threads) * (self.timeout_s + 1.0);
        let limit = crate::inflight::MAX_CAPACITY as f64 / 2.0;
        if remembered > limit {
            let what = format!(
                "{peak} requests a second with a timeout of {} s on {} threads: a thread would have to \
                 remember {remembered:.0} requests, at most {limit:.0} are possible",
                self.timeout_s, self.threads
            );
            return Err(ConfigError::new("rate", what));
        }
        Ok(())
    }
}

impl ProviderConfig {
    /// Read a JSON object. `transport` and `address` have no default.
    ///
    /// # Errors
    /// As for [`RequestorConfig::from_json`].
    pub fn from_json(json: &str) -> Result<Self, ConfigError> {
        let mut fields = Fields::parse(json)?;
        let config = Self {
            target: fields.nats_target()?,
            providers: fields.or("providers", 16)?,
            first_provider: fields.or("first_provider", 0)?,
            reply_bytes: fields.or("reply_bytes", 256)?,
            rate: fields.or("rate", 0.0)?,
            delay_s: fields.or("delay_s", 0.0)?,
            delay_for_s: fields.or("delay_for_s", 0.0)?,
            delay_every_s: fields.or("delay_every_s", 0.0)?,
            threads: fields.or("threads", 1)?,
            driver: fields.driver()?,
            clock_offset_ns: fields.or("clock_offset_ns", 0)?,
        };
        fields.finish()?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), ConfigError> {
        in_range("providers", self.providers, 1, MAX_PROVIDERS)?;
        let last = MAX_PROVIDERS - self.providers;
        in_range("first_provider", self.first_provider, 0, last)?;
        in_range("reply_bytes", self.reply_bytes, MIN_PAYLOAD, MAX_PAYLOAD)?;
        in_range("threads", self.threads, 1, MAX_THREADS.min(self.providers))?;
        in_range("rate", self.rate, 0.0, MAX_RATE)?;
        in_range("delay_s", self.delay_s, 0.0, 3600.0)?;
        if self.delay_s > 0.0 {
            let every = self.delay_every_s;
            in_range("delay_every_s", every, 1e-3, MAX_TIME_S)?;
            in_range("delay_for_s", self.delay_for_s, 1e-3, every)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
