//! The choice of a driver.

use std::str::FromStr;
use std::{fmt, io};

use super::uring;

/// A driver that the kernel permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriverKind {
    /// epoll(7).
    Epoll,
    /// io_uring(7).
    Uring,
}

/// A setting: which driver to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DriverChoice {
    /// The best one that the kernel permits.
    #[default]
    Auto,
    /// This one.
    Named(DriverKind),
}

impl DriverChoice {
    /// Return the driver to be used, with the reason if "auto" does not get the best one.
    ///
    /// # Errors
    /// The kernel does not permit the driver that was asked for by name.
    pub fn resolve(self) -> io::Result<(DriverKind, Option<String>)> {
        match self {
            Self::Named(DriverKind::Epoll) => Ok((DriverKind::Epoll, None)),
            Self::Named(DriverKind::Uring) => uring::probe().map(|()| (DriverKind::Uring, None)),
            Self::Auto => Ok(match uring::probe() {
                Ok(()) => (DriverKind::Uring, None),
                Err(error) => (DriverKind::Epoll, Some(error.to_string())),
            }),
        }
    }
}

impl fmt::Display for DriverKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Epoll => "epoll",
            Self::Uring => "uring",
        })
    }
}

impl fmt::Display for DriverChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Named(kind) => kind.fmt(f),
        }
    }
}

impl FromStr for DriverChoice {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "auto" => Ok(Self::Auto),
            "epoll" => Ok(Self::Named(DriverKind::Epoll)),
            "uring" => Ok(Self::Named(DriverKind::Uring)),
            other => Err(format!(
                "unknown driver {other:?}; known are \"auto\", \"epoll\" and \"uring\""
            )),
        }
    }
}
