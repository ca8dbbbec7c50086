//! Settings, their defaults and checks. The names are those of the configuration file.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use reactor::{DriverChoice, DriverKind};
use router::MAX_PATTERN_TOKENS;
use serde::{Deserialize, Deserializer, Serialize};

mod limits;

use crate::hosts::{self, AllowedHosts};
use crate::origins::Origins;
pub(crate) use limits::{GatewayLimits, Limits};
pub use telemetry::log::{Format as LogFormat, Level as LogLevel};

/// A setting that is unusable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The setting's name; empty when the whole text is not a configuration.
    pub key: &'static str,
    /// Description of the fault.
    pub what: String,
}

impl ConfigError {
    fn new(key: &'static str, what: impl Into<String>) -> Self {
        let what = what.into();
        Self { key, what }
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

/// A number, or "auto".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Auto<T> {
    /// Chosen when the broker starts.
    Auto,
    /// As given.
    Value(T),
}

impl<T> Auto<T> {
    /// Return the number, or `default` for "auto".
    pub(crate) fn or(self, default: T) -> T {
        match self {
            Self::Auto => default,
            Self::Value(value) => value,
        }
    }
}

impl Serialize for Auto<usize> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Value(value) => serializer.serialize_u64(*value as u64),
        }
    }
}

impl<'de> Deserialize<'de> for Auto<usize> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Raw {
            Number(usize),
            Text(String),
        }
        match Raw::deserialize(deserializer) {
            Ok(Raw::Number(value)) => Ok(Self::Value(value)),
            Ok(Raw::Text(text)) if text == "auto" => Ok(Self::Auto),
            _ => Err(serde::de::Error::custom(
                "must be a whole number or \"auto\"",
            )),
        }
    }
}

/// All settings. An address of "" turns its listener off; times are in seconds, sizes in bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// NATS over plain TCP.
    pub tcp: String,
    /// NATS over WebSocket.
    pub http: String,
    /// `/healthz` and `/varz`.
    pub monitor: String,
    /// Threads that serve connections. "auto": one per core, or more where `max_connections`
    /// needs more descriptors than one thread's table may hold.
    pub shards: Auto<usize>,
    /// Interface to the kernel: "auto", "epoll" or "uring".
    pub driver: String,
    /// Clients at once. "auto": what the shards can hold.
    pub max_connections: Auto<usize>,
    /// Serve a plain WebSocket echo at `/echo`, for conformance suites.
    pub echo: bool,
    /// The name that `INFO` shows; empty for a generated one.
    pub server_name: String,
    /// Largest message, headers included.
    pub max_payload: usize,
    /// Longest control line.
    pub max_control_line: usize,
    /// Pending output of one client beyond which it is a slow consumer.
    pub max_pending: usize,
    /// Memory that connections may hold in all; above, those that hold most are ended. "auto": half of
    /// the memory that the process may use.
    pub max_memory: Auto<usize>,
    /// Subscriptions of one client; 0 for no limit.
    pub max_subscriptions: usize,
    /// Tokens of a subscription's subject, if one of them is a wildcard.
    pub max_subject_tokens: usize,
    /// Wildcard tokens, `*` and `>`, of a subscription's subject.
    pub max_subject_wildcards: usize,
    /// Longest subject of a subscription, in bytes.
    pub max_subject_length: usize,
    /// Longest SID of a subscription, in bytes.
    pub max_sid_length: usize,
    /// Silence after which a client is pinged; 0 for never.
    pub ping_interval_s: f64,
    /// Pings that may stay unanswered.
    pub ping_max: u8,
    /// Time after which a client that does not take its output fast enough is a slow consumer.
    pub write_deadline_s: f64,
    /// Bytes per second that such a client must take over this time, unless it takes all that waited.
    pub min_drain_bytes_per_s: usize,
    /// Never stop reading from a publisher for a receiver that falls behind.
    pub no_fast_producer_stall: bool,
    /// Time from connecting to `CONNECT`, or to the handshake of a WebSocket and then to `CONNECT`, and for an
    /// HTTP request to come whole.
    pub handshake_timeout_s: f64,
    /// Silence after which an HTTP connection between two requests is closed.
    pub http_idle_timeout_s: f64,
    /// Time that a request to the gateway waits for its reply, unless it gives a time itself.
    pub request_timeout_s: f64,
    /// Time between two signs of life of a stream of events.
    pub event_heartbeat_s: f64,
    /// Origins whose pages may use the gateway, such as "https://example.org", besides the address that
    /// they call; "*" for all.
    pub cors_origins: Vec<String>,
    /// Names by which HTTP callers may call this host, besides its addresses, its own names and
    /// "localhost"; "*" for all.
    pub allowed_hosts: Vec<String>,
    /// Settings of WebSocket connections.
    pub websocket: WebSocketConfig,
    /// Bounds on new connections.
    pub limits: LimitsConfig,
    /// Time between the announcement of lame duck mode and the first close.
    pub lame_duck_grace_s: f64,
    /// Time over which lame duck mode closes the clients.
    pub lame_duck_duration_s: f64,
    /// Format of the log.
    pub log_format: LogFormat,
    /// The least grave events that are logged.
    pub log_level: LogLevel,
}

/// Settings of WebSocket connections.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WebSocketConfig {
    /// Origins whose pages may connect, besides the address that they connect to; "*" for all.
    pub origins: Vec<String>,
}

/// Bounds on new connections.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsConfig {
    /// Connections of clients from one address, or from one IPv6 site (/64); 0 for any number.
    pub connections_per_address: usize,
    /// Connections of clients that are accepted in a second, by all shards together; 0 for any number.
    /// More wait in the kernel.
    pub connects_per_s: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            tcp: "127.0.0.1:4222".into(),
            http: "127.0.0.1:8080".into(),
            monitor: "127.0.0.1:8222".into(),
            shards: Auto::Auto,
            driver: "auto".into(),
            max_connections: Auto::Auto,
            echo: false,
            server_name: String::new(),
            max_payload: protocol::nats::DEFAULT_MAX_PAYLOAD,
            max_control_line: protocol::nats::DEFAULT_MAX_CONTROL_LINE,
            max_pending: 64 * 1024 * 1024,
            max_memory: Auto::Auto,
            max_subscriptions: 65_536,
            // So a message takes at most 13,768 look-ups for wildcards, about 0.6 ms, whatever
            // clients subscribe to: see docs/explanation/bounds.md.
            max_subject_tokens: 16,
            max_subject_wildcards: 5,
            max_subject_length: 1024,
            max_sid_length: 64,
            ping_interval_s: 120.0,
            ping_max: 2,
            write_deadline_s: 10.0,
            min_drain_bytes_per_s: 16 * 1024,
            no_fast_producer_stall: false,
            handshake_timeout_s: 10.0,
            http_idle_timeout_s: 60.0,
            request_timeout_s: 5.0,
            event_heartbeat_s: 15.0,
            cors_origins: Vec::new(),
            allowed_hosts: Vec::new(),
            websocket: WebSocketConfig::default(),
            limits: LimitsConfig::default(),
            // Together they fit into the 30 s that service managers allow for stopping.
            lame_duck_grace_s: 2.0,
            lame_duck_duration_s: 20.0,
            log_format: LogFormat::Text,
            log_level: LogLevel::Info,
        }
    }
}

impl Config {
    /// Read a JSON object; absent keys take their defaults.
    ///
    /// # Errors
    /// Not such an object, an unknown key, a value of the wrong type or out of range.
    pub fn from_json(json: &str) -> Result<Self, ConfigError> {
        let mut reader = serde_json::Deserializer::from_str(json);
        let config: Self = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
            let what = error.inner().to_string();
            match error.path().to_string().as_str() {
                "." => ConfigError::new("", what),
                key => ConfigError::new("", format!("{key}: {what}")),
            }
        })?;
        let rest = reader.end();
        rest.map_err(|error| ConfigError::new("", error.to_string()))?;
        config.check()?;
        Ok(config)
    }

    /// Return the settings as a JSON object.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("plain settings serialise")
    }

    /// Return the backend by its name.
    pub(crate) fn driver(&self) -> Result<DriverChoice, ConfigError> {
        DriverChoice::from_str(&self.driver).map_err(|what| ConfigError::new("driver", what))
    }

    /// Return the backend that is used here, and the reason if "auto" cannot use the best one.
    ///
    /// # Errors
    /// The name is unknown, or the kernel does not permit the backend.
    pub fn resolve_driver(&self) -> Result<(DriverKind, Option<String>), ConfigError> {
        let refused = |error| ConfigError {
            key: "driver",
            what: format!("the kernel permits no {} here: {error}", self.driver),
        };
        self.driver()?.resolve().map_err(refused)
    }

    /// Return the address of each listener that is on, by its key.
    pub(crate) fn addresses(&self) -> Result<Vec<(&'static str, SocketAddr)>, ConfigError> {
        [
            ("tcp", &self.tcp),
            ("http", &self.http),
            ("monitor", &self.monitor),
        ]
        .into_iter()
        .filter(|(_, address)| !address.is_empty())
        .map(|(key, address)| Ok((key, resolve(key, address)?)))
        .collect()
    }

    /// Return the origins whose pages may use the gateway.
    ///
    /// # Errors
    /// `cors_origins` is at fault.
    pub(crate) fn gateway_origins(&self) -> Result<Origins, ConfigError> {
        origins("cors_origins", &self.cors_origins)
    }

    /// Return the origins whose pages may open WebSocket connections.
    ///
    /// # Errors
    /// `websocket.origins` is at fault.
    pub(crate) fn websocket_origins(&self) -> Result<Origins, ConfigError> {
        origins("websocket.origins", &self.websocket.origins)
    }

    /// Return the names that HTTP callers may use: the names listed, the host's own, and the names in the
    /// listeners' addresses.
    ///
    /// # Errors
    /// `allowed_hosts` is at fault.
    pub(crate) fn hosts(&self) -> Result<AllowedHosts, ConfigError> {
        let mut own = hosts::own_names();
        for address in [&self.http, &self.monitor] {
            own.extend(address.rsplit_once(':').map(|(host, _)| host.to_owned()));
        }
        let hosts = AllowedHosts::new(&self.allowed_hosts, &own);
        hosts.map_err(|what| ConfigError::new("allowed_hosts", what))
    }

    /// Check that the settings can be used, without looking at the machine.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let tokens = 1..=MAX_PATTERN_TOKENS;
        let sizes = [
            ("shards", self.shards.or(1), 1..=1024),
            (
                "max_connections",
                self.max_connections.or(1),
                1..=usize::MAX,
            ),
            ("max_payload", self.max_payload, 1..=64 << 20),
            ("max_control_line", self.max_control_line, 64..=1 << 20),
            (
                "max_subject_tokens",
                self.max_subject_tokens,
                tokens.clone(),
            ),
            ("max_subject_wildcards", self.max_subject_wildcards, tokens),
            (
                "max_subject_length",
                self.max_subject_length,
                64..=usize::MAX,
            ),
            ("max_sid_length", self.max_sid_length, 1..=usize::MAX),
            ("max_pending", self.max_pending, 1..=1 << 31),
        ];
        for (key, size, range) in sizes {
            let what = if size < *range.start() {
                format!("must be at least {}", range.start())
            } else if size > *range.end() {
                format!("must be at most {}", range.end())
            } else {
                continue;
            };
            return Err(ConfigError::new(key, what));
        }
        if self.max_pending < self.max_payload {
            let what = format!(
                "must be at least max_payload, which is {}",
                self.max_payload
            );
            return Err(ConfigError::new("max_pending", what));
        }
        let times = [
            ("ping_interval_s", self.ping_interval_s, 0.0),
            ("write_deadline_s", self.write_deadline_s, 0.001),
            ("handshake_timeout_s", self.handshake_timeout_s, 0.001),
            ("http_idle_timeout_s", self.http_idle_timeout_s, 0.001),
            ("request_timeout_s", self.request_timeout_s, 0.001),
            ("event_heartbeat_s", self.event_heartbeat_s, 0.1),
            ("lame_duck_grace_s", self.lame_duck_grace_s, 0.0),
            ("lame_duck_duration_s", self.lame_duck_duration_s, 0.0),
        ];
        for (key, seconds, least) in times {
            if !(least..=86_400.0).contains(&seconds) {
                let what = format!("must be from {least} to 86400 seconds");
                return Err(ConfigError::new(key, what));
            }
        }
        if self.server_name.chars().any(char::is_control) {
            let what = "must not contain control characters";
            return Err(ConfigError::new("server_name", what));
        }
        self.gateway_origins()?;
        self.websocket_origins()?;
        self.hosts()?;
        if self.addresses()?.iter().all(|(key, _)| *key == "monitor") {
            let what = "either tcp or http must have an address";
            return Err(ConfigError::new("tcp", what));
        }
        self.driver().map(|_| ())
    }
}

fn origins(key: &'static str, list: &[String]) -> Result<Origins, ConfigError> {
    Origins::new(list).map_err(|what| ConfigError::new(key, what))
}

fn resolve(key: &'static str, address: &str) -> Result<SocketAddr, ConfigError> {
    let unusable = |why: &dyn fmt::Display| ConfigError {
        key,
        what: format!("unusable address {address:?}, wanted HOST:PORT: {why}"),
    };
    let mut found = address
        .to_socket_addrs()
        .map_err(|error| unusable(&error))?;
    found.next().ok_or_else(|| unusable(&"no such host"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn defaults_are_usable_and_round_trip() {
        let config = Config::default();
        assert_eq!(config.check(), Ok(()));
        assert_eq!(Config::from_json(&config.to_json()), Ok(config));
        assert_eq!(Config::from_json("{}"), Ok(Config::default()));
    }

    #[test]
    fn errors_name_the_key() {
        for (json, key) in [
            (r#"{"shards":0}"#, "shards"),
            (r#"{"max_payload":0}"#, "max_payload"),
            (r#"{"max_pending":10}"#, "max_pending"),
            (r#"{"max_subject_tokens":0}"#, "max_subject_tokens"),
            (r#"{"max_subject_tokens":65}"#, "max_subject_tokens"),
            (r#"{"max_subject_wildcards":0}"#, "max_subject_wildcards"),
            (r#"{"max_subject_length":63}"#, "max_subject_length"),
            (r#"{"max_sid_length":0}"#, "max_sid_length"),
            (r#"{"ping_interval_s":-1}"#, "ping_interval_s"),
            (r#"{"tcp":"nowhere"}"#, "tcp"),
            (r#"{"tcp":"","http":""}"#, "tcp"),
            (r#"{"driver":"kqueue"}"#, "driver"),
            (r#"{"server_name":"a\u0007b"}"#, "server_name"),
            (r#"{"request_timeout_s":0}"#, "request_timeout_s"),
            (r#"{"cors_origins":["*","https://a.b/c"]}"#, "cors_origins"),
            (r#"{"websocket":{"origins":["a.b"]}}"#, "websocket.origins"),
            (r#"{"allowed_hosts":["a.b:80"]}"#, "allowed_hosts"),
            (r#"{"limits":{"connects_per_s":-1}}"#, ""),
        ] {
            assert_eq!(Config::from_json(json).unwrap_err().key, key, "{json}");
        }
        let unknown = Config::from_json(r#"{"shardz":1}"#).unwrap_err();
        assert!(unknown.to_string().contains("shardz"), "{unknown}");
        let nested = Config::from_json(r#"{"websocket":{"origin":[]}}"#).unwrap_err();
        assert!(nested.to_string().contains("websocket"), "{nested}");
        let negative = Config::from_json(r#"{"max_payload":-1}"#).unwrap_err();
        assert!(negative.to_string().contains("max_payload"), "{negative}");
        let mistyped = Config::from_json(r#"{"shards":"many"}"#).unwrap_err();
        assert!(mistyped.to_string().contains("auto"), "{mistyped}");
    }

    #[test]
    fn an_empty_address_turns_a_listener_off() {
        let config = Config::from_json(r#"{"tcp":"","monitor":""}"#).unwrap();
        let keys: Vec<_> = config
            .addresses()
            .unwrap()
            .into_iter()
            .map(|(key, _)| key)
            .collect();
        assert_eq!(keys, ["http"]);
    }
}
