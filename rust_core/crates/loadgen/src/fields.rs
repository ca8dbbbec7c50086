//! The keys of a configuration, read one by one.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use protocol::ws::handshake;
use reactor::DriverChoice;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::ConfigError;
use crate::target::Target;

/// Return an error that names the key unless `value` lies between the two.
pub(crate) fn in_range<T: PartialOrd + fmt::Display>(
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
pub(crate) struct Fields(Map<String, Value>);

impl Fields {
    pub(crate) fn parse(json: &str) -> Result<Self, ConfigError> {
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

    pub(crate) fn required<T: DeserializeOwned>(
        &mut self,
        key: &'static str,
    ) -> Result<T, ConfigError> {
        self.take(key)?
            .ok_or_else(|| ConfigError::new(key, "is missing"))
    }

    pub(crate) fn or<T: DeserializeOwned>(
        &mut self,
        key: &'static str,
        default: T,
    ) -> Result<T, ConfigError> {
        Ok(self.take(key)?.unwrap_or(default))
    }

    pub(crate) fn target(&mut self) -> Result<Target, ConfigError> {
        let transport = self.required("transport")?;
        let address: SocketAddr = self.required("address")?;
        let target = Target {
            transport,
            address,
            host: self.take("host")?.unwrap_or_else(|| address.to_string()),
            path: self.or("path", "/".to_owned())?,
            sources: self.or("sources", Vec::new())?,
        };
        let is_reachable = |source: &IpAddr| source.is_ipv4() == address.is_ipv4();
        if let Some(source) = target.sources.iter().find(|source| !is_reachable(source)) {
            let what = format!("{source} cannot reach {address}");
            return Err(ConfigError::new("sources", what));
        }
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

    /// Return a target that can deliver messages without a request.
    pub(crate) fn nats_target(&mut self) -> Result<Target, ConfigError> {
        let target = self.target()?;
        if target.transport.is_http() {
            let what = format!("{} carries requests only: use ws or tcp", target.transport);
            return Err(ConfigError::new("transport", what));
        }
        Ok(target)
    }

    pub(crate) fn driver(&mut self) -> Result<DriverChoice, ConfigError> {
        let name: String = self.or("driver", "auto".to_owned())?;
        name.parse()
            .map_err(|what| ConfigError::new("driver", what))
    }

    pub(crate) fn finish(self) -> Result<(), ConfigError> {
        match self.0.into_iter().next() {
            None => Ok(()),
            Some((key, _)) => Err(ConfigError::new(key, "unknown key")),
        }
    }
}
