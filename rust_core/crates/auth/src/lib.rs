//! Who a client is, and what it may do: credentials, identities and permissions.
//!
//! Pure data: no socket, no clock, no thread. The caller brings times and random numbers.
//!
//! # Permissions
//!
//! [`Permissions`] are compiled once for each user of the configuration, or for each role that tokens
//! name. They may hold placeholders such as `{user}`. A [`Grant`] joins them with the values of one
//! client, so a million clients with the same role share one compiled list.

pub mod bearer;
pub mod directory;
mod grant;
#[cfg(test)]
mod naive;
pub mod nkey;
mod password;
mod pattern;
mod permissions;
mod replies;
pub mod settings;
mod signatures;

pub use grant::{Grant, InvalidValue};
pub use password::{InvalidHash, Password};
pub use permissions::{InvalidPermission, List, PermissionLists, Permissions, ResponseLimits};
pub use replies::Replies;
