//! The errors of starting a broker.

use std::fmt;
use std::io;

use reactor::ListenError;

use crate::config::ConfigError;

/// The broker could not be started.
#[derive(Debug)]
pub enum StartError {
    /// A setting is unusable.
    Config(ConfigError),
    /// A listener's address, by its key, is not available.
    Listen(&'static str, ListenError),
    /// The kernel refused threads or descriptors.
    Io(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Listen(key, error) => write!(f, "{key}: {error}"),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StartError {}
