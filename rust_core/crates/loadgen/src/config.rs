//! What the engines are asked to do: JSON objects with one level of keys.

use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;

use protocol::ws::handshake;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// A configuration that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The key at fault; empty when there is no single one.
    pub key: Cow<'static, str>,
    /// What is wrong with it.
    pub what: String,
}

impl ConfigError {
    fn new(key: impl Into<Cow<'static, str>>, what: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            what: what.into(),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.key.is_empty() {
            f.write_str(&self.what)
        } else {
            write!(f, "{}: {}", self.key, self.what)
        }
    }
}

impl std::error::Error for ConfigError {}

/// What carries the NATS protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// WebSocket.
    Ws,
    /// Plain TCP.
    Tcp,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ws => "ws",
            Self::Tcp => "tcp",
        })
    }
}

/// How requests are spread over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// At equal distances.
    Uniform,
    /// With exponentially distributed gaps, as independent users send.
    Poisson,
}

/// Where to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// What carries the NATS protocol.
    pub transport: Transport,
    /// The server's resolved address.
    pub address: SocketAddr,
    /// `Host` of the WebSocket handshake: `name` or `name:port`.
    pub host: String,
    /// Path of the WebSocket handshake.
    pub path: String,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.transport, self.address)?;
        if self.transport == Transport::Ws {
            f.write_str(&self.path)?;
        }
        Ok(())
    }
}

/// What a [`Requestor`](crate::Requestor) does. Sizes are in bytes, times in seconds.
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
    /// Requests a second, all users together.
    pub rate: f64,
    /// Time of sending that is not measured.
    pub warmup_s: f64,
    /// Time of sending that is measured.
    pub duration_s: f64,
    /// Size of a request's payload.
    pub request_bytes: usize,
    /// Size that a reply's payload must have.
    pub reply_bytes: usize,
    /// Time after which a request without a reply has failed.
    pub timeout_s: f64,
    /// Threads that the users are divided among.
    pub threads: u32,
    /// Determines who sends to whom, and the gaps of Poisson arrivals.
    pub seed: u64,
    /// Connections begun a second; 0 for as many as `connect_in_flight` allows.
    pub connect_rate: f64,
    /// Connections that may be in the making at once.
    pub connect_in_flight: u32,
    /// How requests are spread over time.
    pub arrivals: Arrivals,
}

/// What a [`Provider`](crate::Provider) does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderConfig {
    /// `transport`, `address`, `host`, `path`: the server.
    pub target: Target,
    /// Connections, each of which is a provider with a subject of its own.
    pub providers: u32,
    /// The number K of the first provider, who is subscribed to `/s/K`.
    pub first_provider: u32,
    /// Size of a reply's payload in bytes.
    pub reply_bytes: usize,
    /// Threads that the providers are divided among.
    pub threads: u32,
}

/// Users of one process at most.
const MAX_USERS: u32 = 16_000_000;
/// Providers at most; a request keeps the number of its own in 16 bits.
pub(crate) const MAX_PROVIDERS: u32 = 65_536;
const MAX_THREADS: u32 = 1024;
/// An id and at least one word that follows from it.
const MIN_PAYLOAD: usize = 16;
const MAX_PAYLOAD: usize = 64 << 20;
const MAX_RATE: f64 = 1e8;
const MAX_TIME_S: f64 = 30.0 * 86_400.0;

impl RequestorConfig {
    /// Reads a JSON object. Without a default are `transport`, `address`, `users`, `rate` and
    /// `duration_s`.
    ///
    /// # Errors
    /// Not such an object, an unknown or missing key, a value of the wrong type or out of range.
    pub fn from_json(json: &str) -> Result<Self, ConfigError> {
        let mut fields = Fields::parse(json)?;
        let config = Self {
            target: fields.target()?,
            users: fields.required("users")?,
            first_user: fields.or("first_user", 0)?,
            providers: fields.or("providers", 16)?,
            rate: fields.required("rate")?,
            warmup_s: fields.or("warmup_s", 0.0)?,
            duration_s: fields.required("duration_s")?,
            request_bytes: fields.or("request_bytes", 32)?,
            reply_bytes: fields.or("reply_bytes", 256)?,
            timeout_s: fields.or("timeout_s", 10.0)?,
            threads: fields.or("threads", 1)?,
            seed: fields.or("seed", 0)?,
            connect_rate: fields.or("connect_rate", 0.0)?,
            connect_in_flight: fields.or("connect_in_flight", 512)?,
            arrivals: fields.or("arrivals", Arrivals::Uniform)?,
        };
        fields.finish()?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), ConfigError> {
        in_range("users", self.users, 1, MAX_USERS)?;
        in_range("first_user", self.first_user, 0, u32::MAX - self.users)?;
        in_range("providers", self.providers, 1, MAX_PROVIDERS)?;
        in_range("rate", self.rate, 1e-3, MAX_RATE)?;
        in_range("warmup_s", self.warmup_s, 0.0, MAX_TIME_S)?;
        in_range("duration_s", self.duration_s, 1e-3, MAX_TIME_S)?;
        in_range(
            "request_bytes",
            self.request_bytes,
            MIN_PAYLOAD,
            MAX_PAYLOAD,
        )?;
        in_range("reply_bytes", self.reply_bytes, MIN_PAYLOAD, MAX_PAYLOAD)?;
        in_range("timeout_s", self.timeout_s, 1e-3, 3600.0)?;
        in_range("threads", self.threads, 1, MAX_THREADS.min(self.users))?;
        in_range("connect_rate", self.connect_rate, 0.0, MAX_RATE)?;
        in_range(
            "connect_in_flight",
            self.connect_in_flight,
            self.threads,
            MAX_USERS,
        )?;
        let remembered = self.rate / f64::from(self.threads) * (self.timeout_s + 1.0);
        let limit = crate::inflight::MAX_CAPACITY as f64 / 2.0;
        if remembered > limit {
            let what = format!(
                "{} requests a second with a timeout of {} s on {} threads: a thread would have to \
                 remember {remembered:.0} requests, at most {limit:.0} are possible",
                self.rate, self.timeout_s, self.threads
            );
            return Err(ConfigError::new("rate", what));
        }
        Ok(())
    }
}

impl ProviderConfig {
    /// Reads a JSON object. Without a default are `transport` and `address`.
    ///
    /// # Errors
    /// As for [`RequestorConfig::from_json`].
    pub fn from_json(json: &str) -> Result<Self, ConfigError> {
        let mut fields = Fields::parse(json)?;
        let config = Self {
            target: fields.target()?,
            providers: fields.or("providers", 16)?,
            first_provider: fields.or("first_provider", 0)?,
            reply_bytes: fields.or("reply_bytes", 256)?,
            threads: fields.or("threads", 1)?,
        };
        fields.finish()?;
        in_range("providers", config.providers, 1, MAX_PROVIDERS)?;
        let last = MAX_PROVIDERS - config.providers;
        in_range("first_provider", config.first_provider, 0, last)?;
        in_range("reply_bytes", config.reply_bytes, MIN_PAYLOAD, MAX_PAYLOAD)?;
        in_range(
            "threads",
            config.threads,
            1,
            MAX_THREADS.min(config.providers),
        )?;
        Ok(config)
    }
}

fn in_range<T: PartialOrd + fmt::Display>(
    key: &'static str,
    value: T,
    least: T,
    most: T,
) -> Result<(), ConfigError> {
    // Written so that NaN is out of range.
    if least <= value && value <= most {
        Ok(())
    } else {
        Err(ConfigError::new(
            key,
            format!("{value} is not between {least} and {most}"),
        ))
    }
}

/// The keys that have not been read yet. Reading key by key lets every error name its own.
struct Fields(Map<String, Value>);

impl Fields {
    fn parse(json: &str) -> Result<Self, ConfigError> {
        let fields = serde_json::from_str(json);
        fields
            .map(Self)
            .map_err(|error| ConfigError::new("", format!("not a JSON object: {error}")))
    }

    fn take<T: DeserializeOwned>(&mut self, key: &'static str) -> Result<Option<T>, ConfigError> {
        let value = self.0.remove(key).map(serde_json::from_value);
        value
            .transpose()
            .map_err(|error| ConfigError::new(key, error.to_string()))
    }

    fn required<T: DeserializeOwned>(&mut self, key: &'static str) -> Result<T, ConfigError> {
        self.take(key)?
            .ok_or_else(|| ConfigError::new(key, "is missing"))
    }

    fn or<T: DeserializeOwned>(&mut self, key: &'static str, default: T) -> Result<T, ConfigError> {
        Ok(self.take(key)?.unwrap_or(default))
    }

    fn target(&mut self) -> Result<Target, ConfigError> {
        let transport = self.required("transport")?;
        let address: SocketAddr = self.required("address")?;
        let target = Target {
            transport,
            address,
            host: self.take("host")?.unwrap_or_else(|| address.to_string()),
            path: self.or("path", "/".to_owned())?,
        };
        let (host, path) = (&target.host, &target.path);
        let mut request = Vec::new();
        let unusable = |key, text| Err(ConfigError::new(key, format!("unusable: {text:?}")));
        if handshake::encode_request(&mut request, host, "/", &[0; 16]).is_err() {
            return unusable("host", host);
        }
        if handshake::encode_request(&mut request, host, path, &[0; 16]).is_err() {
            return unusable("path", path);
        }
        Ok(target)
    }

    fn finish(self) -> Result<(), ConfigError> {
        match self.0.into_iter().next() {
            None => Ok(()),
            Some((key, _)) => Err(ConfigError::new(key, "unknown key")),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A usable configuration with some keys replaced; null removes one.
    fn with(json: &str) -> String {
        let base = r#"{"transport":"ws","address":"127.0.0.1:8080","users":10,"rate":100,
            "duration_s":2}"#;
        let mut fields: Map<String, Value> = serde_json::from_str(base).unwrap();
        let changes: Map<String, Value> = serde_json::from_str(json).unwrap();
        fields.extend(changes);
        fields.retain(|_, value| !value.is_null());
        serde_json::to_string(&fields).unwrap()
    }

    #[test]
    fn defaults_are_those_of_the_benchmark() {
        let config = RequestorConfig::from_json(&with("{}")).unwrap();
        assert_eq!(
            (config.providers, config.threads, config.connect_in_flight),
            (16, 1, 512)
        );
        assert_eq!((config.request_bytes, config.reply_bytes), (32, 256));
        assert_eq!(
            (config.timeout_s, config.arrivals),
            (10.0, Arrivals::Uniform)
        );
        assert_eq!(config.target.host, "127.0.0.1:8080");
        assert_eq!(config.target.to_string(), "ws://127.0.0.1:8080/");
        let json = r#"{"transport":"tcp","address":"[::1]:4222"}"#;
        let config = ProviderConfig::from_json(json).unwrap();
        assert_eq!(
            (config.providers, config.first_provider, config.reply_bytes),
            (16, 0, 256)
        );
        assert_eq!(config.target.to_string(), "tcp://[::1]:4222");
    }

    #[test]
    fn every_key_is_read() {
        let json = r#"{"transport":"tcp","address":"10.0.0.1:1","host":"h:2","path":"/p?q",
            "users":7,"first_user":5,"providers":3,"rate":2.5,"warmup_s":1,"duration_s":2,
            "request_bytes":64,"reply_bytes":128,"timeout_s":0.5,"threads":2,"seed":9,
            "connect_rate":11.5,"connect_in_flight":4,"arrivals":"poisson"}"#;
        let expected = RequestorConfig {
            target: Target {
                transport: Transport::Tcp,
                address: "10.0.0.1:1".parse().unwrap(),
                host: "h:2".into(),
                path: "/p?q".into(),
            },
            users: 7,
            first_user: 5,
            providers: 3,
            rate: 2.5,
            warmup_s: 1.0,
            duration_s: 2.0,
            request_bytes: 64,
            reply_bytes: 128,
            timeout_s: 0.5,
            threads: 2,
            seed: 9,
            connect_rate: 11.5,
            connect_in_flight: 4,
            arrivals: Arrivals::Poisson,
        };
        assert_eq!(RequestorConfig::from_json(json), Ok(expected));
    }

    #[test]
    fn errors_name_the_key() {
        for (json, key) in [
            (r#"{"userz":1}"#, "userz"),
            (r#"{"users":null}"#, "users"),
            (r#"{"users":"many"}"#, "users"),
            (r#"{"users":0}"#, "users"),
            (r#"{"users":-1}"#, "users"),
            (r#"{"first_user":4294967295}"#, "first_user"),
            (r#"{"transport":"udp"}"#, "transport"),
            (r#"{"address":"localhost:1"}"#, "address"),
            (r#"{"host":"a b"}"#, "host"),
            (r#"{"host":""}"#, "host"),
            (r#"{"path":"x"}"#, "path"),
            (r#"{"providers":65537}"#, "providers"),
            (r#"{"rate":0}"#, "rate"),
            (r#"{"rate":50000000}"#, "rate"),
            (r#"{"warmup_s":-1}"#, "warmup_s"),
            (r#"{"duration_s":0}"#, "duration_s"),
            (r#"{"request_bytes":15}"#, "request_bytes"),
            (r#"{"reply_bytes":15}"#, "reply_bytes"),
            (r#"{"timeout_s":0}"#, "timeout_s"),
            (r#"{"threads":11}"#, "threads"),
            (r#"{"seed":-3}"#, "seed"),
            (r#"{"connect_rate":-3}"#, "connect_rate"),
            (
                r#"{"threads":5,"connect_in_flight":4}"#,
                "connect_in_flight",
            ),
            (r#"{"arrivals":"bursts"}"#, "arrivals"),
        ] {
            let error = RequestorConfig::from_json(&with(json)).unwrap_err();
            assert_eq!(error.key, key, "{json}: {error}");
            assert!(error.to_string().contains(key), "{error}");
        }
        let providers = r#"{"transport":"tcp","address":"[::1]:4222","first_provider":65530}"#;
        assert_eq!(
            ProviderConfig::from_json(providers).unwrap_err().key,
            "first_provider"
        );
        for json in ["", "[]", "{", "7"] {
            assert_eq!(
                RequestorConfig::from_json(json).unwrap_err().key,
                "",
                "{json}"
            );
        }
    }
}
