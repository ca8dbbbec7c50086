//! The settings as the shards use them.

use std::time::Duration;

use super::{Config, ConfigError};
use crate::origins::Origins;
use crate::pattern::PatternLimits;

/// The longest time that a request to the gateway may ask to wait, unless the default is longer.
const MAX_REQUEST_TIMEOUT: Duration = Duration::from_secs(300);

/// The gateway's settings as the shards use them.
#[derive(Debug, Clone)]
pub(crate) struct GatewayLimits {
    pub(crate) origins: Origins,
    pub(crate) request_timeout: Duration,
    pub(crate) max_request_timeout: Duration,
    /// Longest subject of a message, in bytes.
    pub(crate) max_subject: usize,
    pub(crate) pattern: PatternLimits,
}

impl GatewayLimits {
    /// Return the gateway's settings for the shards.
    ///
    /// # Errors
    /// `cors_origins` is at fault.
    pub(crate) fn new(config: &Config) -> Result<Self, ConfigError> {
        let request_timeout = Duration::from_secs_f64(config.request_timeout_s);
        Ok(Self {
            origins: config.gateway_origins()?,
            request_timeout,
            max_request_timeout: MAX_REQUEST_TIMEOUT.max(request_timeout),
            max_subject: config.max_control_line,
            pattern: pattern_limits(config),
        })
    }
}

/// The settings as the shards use them.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    pub(crate) max_payload: usize,
    pub(crate) max_control_line: usize,
    pub(crate) max_pending: usize,
    pub(crate) max_memory: usize,
    pub(crate) max_subscriptions: usize,
    pub(crate) pattern: PatternLimits,
    /// Longest SID of a subscription, in bytes.
    pub(crate) max_sid: usize,
    /// Connections that the broker accepts in a second; 0 for any number.
    pub(crate) connects_per_s: f64,
    pub(crate) ping_interval: Option<Duration>,
    pub(crate) ping_max: u8,
    pub(crate) write_deadline: Duration,
    /// Bytes that a client must take within a write deadline.
    pub(crate) least_drained: usize,
    pub(crate) no_fast_producer_stall: bool,
    pub(crate) handshake_timeout: Duration,
    pub(crate) http_idle_timeout: Duration,
    pub(crate) http_heartbeat: Duration,
    pub(crate) lame_duck_grace: Duration,
    pub(crate) lame_duck_duration: Duration,
    pub(crate) echo: bool,
}

impl Limits {
    /// Return the settings for the shards on a machine with so many bytes of memory.
    pub(crate) fn new(config: &Config, memory: usize) -> Self {
        let ping_interval = (config.ping_interval_s > 0.0).then_some(config.ping_interval_s);
        Self {
            max_payload: config.max_payload,
            max_control_line: config.max_control_line,
            max_pending: config.max_pending,
            max_memory: config.max_memory.or(memory / 2),
            max_subscriptions: config.max_subscriptions,
            pattern: pattern_limits(config),
            max_sid: config.max_sid_length,
            connects_per_s: f64::from(config.limits.connects_per_s),
            ping_interval: ping_interval.map(Duration::from_secs_f64),
            ping_max: config.ping_max,
            write_deadline: Duration::from_secs_f64(config.write_deadline_s),
            least_drained: (config.min_drain_bytes_per_s as f64 * config.write_deadline_s) as usize,
            no_fast_producer_stall: config.no_fast_producer_stall,
            handshake_timeout: Duration::from_secs_f64(config.handshake_timeout_s),
            http_idle_timeout: Duration::from_secs_f64(config.http_idle_timeout_s),
            http_heartbeat: Duration::from_secs_f64(config.event_heartbeat_s),
            lame_duck_grace: Duration::from_secs_f64(config.lame_duck_grace_s),
            lame_duck_duration: Duration::from_secs_f64(config.lame_duck_duration_s),
            echo: config.echo,
        }
    }

    /// Return the time between two looks at the time of an HTTP connection.
    pub(crate) fn http_check(&self) -> Duration {
        self.handshake_timeout.min(self.http_idle_timeout)
    }
}

/// Return the limits of the subjects of subscriptions.
fn pattern_limits(config: &Config) -> PatternLimits {
    PatternLimits {
        tokens: config.max_subject_tokens,
        wildcards: config.max_subject_wildcards,
        length: config.max_subject_length,
    }
}
