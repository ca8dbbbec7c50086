//! The table `[auth]` of a configuration, as it is written.

use crate::bearer::BearerRules;
use crate::permissions::PermissionLists;
use serde::Deserialize;
use std::fmt;

/// The table `[auth]` of a configuration.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuthSettings {
    /// A secret that admits whoever has it, plain or as a hash.
    pub token: Option<Secret>,
    /// The name of the user that a client without credentials is. `None`: such clients are refused.
    pub no_auth_user: Option<String>,
    /// The users.
    pub users: Vec<UserSettings>,
    /// Bearer tokens of an identity provider.
    pub jwt: Option<BearerRules>,
    /// The permissions of users and tokens that have none of their own.
    pub default_permissions: Option<PermissionLists>,
}

/// A user of the configuration.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UserSettings {
    /// The name, with which a password is presented. Users with an nkey need none.
    pub name: Option<String>,
    /// The password, plain or as a hash.
    pub password: Option<Secret>,
    /// The public nkey, `U...`.
    pub nkey: Option<String>,
    /// What the user may do. `None`: the default permissions.
    pub permissions: Option<PermissionLists>,
    /// The ways by which the user may connect. `None`: all.
    pub connection_types: Option<Vec<ConnectionType>>,
    /// The most connections of the user at a time. 0: any number.
    pub max_connections: u32,
}

/// A secret text, which is not shown.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A way to connect, by the names that nats-server gives them, and HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum ConnectionType {
    /// The NATS protocol over TCP.
    Standard,
    /// The NATS protocol over WebSocket.
    Websocket,
    /// The gateway.
    Http,
}
