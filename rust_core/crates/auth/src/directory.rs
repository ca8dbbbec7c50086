//! The users of a configuration, and the decision who a client is.

use crate::bearer::{self, BearerRules, Claims, KeySet};
use crate::grant::Grant;
use crate::nkey::{PublicKey, Role};
use crate::password::Password;
use crate::permissions::{PermissionLists, Permissions};
use crate::settings::{AuthSettings, ConnectionType, Secret, UserSettings};
use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// A table `[auth]` that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidAuth {
    /// The key, as `users[2].nkey`, relative to the table.
    pub key: String,
    /// The fault, with what to do about it.
    pub reason: String,
}

impl fmt::Display for InvalidAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "auth.{}: {}", self.key, self.reason)
    }
}

impl Error for InvalidAuth {}

/// The credentials that a client presents; each may be absent.
#[derive(Clone, Copy, Default)]
pub struct Credentials<'a> {
    /// The name of a user.
    pub user: Option<&'a str>,
    /// The user's password.
    pub password: Option<&'a str>,
    /// The secret that all clients share, or a bearer token.
    pub token: Option<&'a str>,
    /// A bearer token.
    pub jwt: Option<&'a str>,
    /// A public nkey.
    pub nkey: Option<&'a str>,
    /// The signature of the nonce by the nkey's owner.
    pub signature: Option<&'a str>,
}

impl Credentials<'_> {
    /// Return whether the client presents nothing.
    #[must_use]
    pub fn are_absent(&self) -> bool {
        [
            self.user,
            self.password,
            self.token,
            self.jwt,
            self.nkey,
            self.signature,
        ]
        .iter()
        .all(|field| field.is_none_or(str::is_empty))
    }
}

/// The circumstances in which a client presents its credentials.
#[derive(Debug, Clone, Copy)]
pub struct Circumstances<'a> {
    /// The way by which it has connected.
    pub by: ConnectionType,
    /// The nonce that it was sent.
    pub nonce: &'a [u8],
    /// Seconds since 1970.
    pub now: u64,
}

/// A client whose credentials were accepted.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The name of the user; empty if the client has the shared token.
    pub user: Arc<str>,
    /// What the client may do.
    pub grant: Grant,
    /// The most connections of the user at a time; 0: any number.
    pub max_connections: u32,
    /// The end of the credentials' time, in seconds since 1970. `None`: it does not end.
    pub expires: Option<u64>,
}

/// The reason why a client is refused: for the log. All clients are told the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The client presents nothing.
    Absent,
    /// The user, the nkey or the kind of credentials is not known.
    Unknown,
    /// The password, the token or the signature is wrong.
    Wrong,
    /// The bearer token is refused.
    Bearer(bearer::Refusal),
    /// The user may not connect in this way.
    ConnectionType,
    /// The permissions cannot be those of this client.
    Permissions(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("no credentials"),
            Self::Unknown => f.write_str("unknown user, nkey or kind of credentials"),
            Self::Wrong => f.write_str("wrong password, token or signature"),
            Self::Bearer(refusal) => refusal.fmt(f),
            Self::ConnectionType => f.write_str("the user may not connect in this way"),
            Self::Permissions(reason) => write!(f, "permissions: {reason}"),
        }
    }
}

impl Error for Refusal {}

/// The answer to credentials.
#[derive(Debug)]
pub enum Decision {
    /// The client is admitted, or refused.
    Made(Result<Identity, Refusal>),
    /// A hash has to be computed, which takes milliseconds: in a thread of its own.
    Slow(SlowCheck),
}

/// A password that is to be compared with a hash.
#[derive(Debug)]
pub struct SlowCheck {
    password: Password,
    given: Secret,
    outcome: Result<Identity, Refusal>,
}

impl SlowCheck {
    /// Compute the hash, and return the decision.
    ///
    /// # Errors
    /// [`Refusal`]: the password is wrong, or the user is unknown, which takes as long.
    pub fn finish(self) -> Result<Identity, Refusal> {
        let is_right = self.password.verify(self.given.0.as_bytes());
        self.outcome.and_then(|identity| {
            if is_right {
                Ok(identity)
            } else {
                Err(Refusal::Wrong)
            }
        })
    }
}

/// All users, compiled.
#[derive(Debug)]
pub struct Directory {
    token: Option<Password>,
    by_name: HashMap<String, Arc<User>>,
    by_nkey: HashMap<PublicKey, Arc<User>>,
    bearer: Option<(BearerRules, KeySet)>,
    no_auth_user: Option<Arc<User>>,
    default: Arc<Permissions>,
    /// A hash of the kind that users have, for clients that name an unknown user. `None`: hashes are not used.
    decoy: Option<Password>,
}

#[derive(Debug)]
struct User {
    name: Arc<str>,
    password: Option<Password>,
    permissions: Arc<Permissions>,
    connection_types: Option<Vec<ConnectionType>>,
    max_connections: u32,
}

impl Directory {
    /// Compile the settings; `keys` is the content of the identity provider's key set.
    ///
    /// # Errors
    /// [`InvalidAuth`] names the first key that cannot be used.
    pub fn new(settings: &AuthSettings, keys: Option<&[u8]>) -> Result<Self, InvalidAuth> {
        let default = compile("default_permissions", settings.default_permissions.as_ref())?;
        let mut directory = Self {
            token: password("token", settings.token.as_ref())?,
            by_name: HashMap::new(),
            by_nkey: HashMap::new(),
            bearer: None,
            no_auth_user: None,
            default,
            decoy: None,
        };
        for (number, user) in settings.users.iter().enumerate() {
            directory.add(&format!("users[{number}]"), user)?;
        }
        if let Some(rules) = &settings.jwt {
            let set = keys.ok_or_else(|| invalid("jwt.jwks", "a key set is needed"))?;
            let set =
                KeySet::parse(set).map_err(|error| invalid("jwt.jwks", &error.to_string()))?;
            directory.bearer = Some((rules.clone(), set));
        }
        if let Some(name) = &settings.no_auth_user {
            let user = directory.by_name.get(name);
            let user =
                user.ok_or_else(|| invalid("no_auth_user", &format!("there is no user {name:?}")))?;
            directory.no_auth_user = Some(Arc::clone(user));
        }
        let hashes = directory
            .by_name
            .values()
            .filter_map(|user| user.password.as_ref());
        directory.decoy = hashes
            .filter(|password| password.is_slow())
            .max_by_key(|one| one.cost())
            .cloned();
        Ok(directory)
    }

    fn add(&mut self, key: &str, settings: &UserSettings) -> Result<(), InvalidAuth> {
        let at = |field: &str| format!("{key}.{field}");
        let permissions = match &settings.permissions {
            None => Arc::clone(&self.default),
            lists => compile(&at("permissions"), lists.as_ref())?,
        };
        let name = settings
            .name
            .as_deref()
            .or(settings.nkey.as_deref())
            .unwrap_or_default();
        if name.is_empty() {
            return Err(invalid(
                &at("name"),
                "a user needs a name with a password, or an nkey",
            ));
        }
        let user = Arc::new(User {
            name: name.into(),
            password: password(&at("password"), settings.password.as_ref())?,
            permissions,
            connection_types: settings.connection_types.clone(),
            max_connections: settings.max_connections,
        });
        if let Some(text) = &settings.nkey {
            let nkey =
                PublicKey::parse(text).map_err(|error| invalid(&at("nkey"), &error.to_string()))?;
            if nkey.role() != Role::User {
                return Err(invalid(&at("nkey"), "not the nkey of a user (U...)"));
            }
            if self.by_nkey.insert(nkey, Arc::clone(&user)).is_some() {
                return Err(invalid(&at("nkey"), "two users have this nkey"));
            }
        }
        if let Some(name) = &settings.name
            && self.by_name.insert(name.clone(), user).is_some()
        {
            return Err(invalid(
                &at("name"),
                &format!("two users have the name {name:?}"),
            ));
        }
        Ok(())
    }

    /// Return whether clients must present credentials.
    #[must_use]
    pub fn is_required(&self) -> bool {
        self.no_auth_user.is_none()
    }

    /// Return whether clients need a nonce to sign.
    #[must_use]
    pub fn needs_nonce(&self) -> bool {
        !self.by_nkey.is_empty()
    }

    /// Decide who a client is.
    #[must_use]
    pub fn decide(&self, given: &Credentials<'_>, in_: Circumstances<'_>) -> Decision {
        if given.are_absent() {
            let user = self.no_auth_user.as_ref().ok_or(Refusal::Absent);
            return Decision::Made(user.and_then(|user| user.identify(in_.by)));
        }
        if let Some(nkey) = present(given.nkey) {
            return Decision::Made(self.decide_nkey(nkey, given.signature, in_));
        }
        if let (Some((rules, keys)), Some(token)) = (&self.bearer, present(given.jwt)) {
            return Decision::Made(self.decide_bearer(keys, rules, token, in_.now));
        }
        if let Some(token) = present(given.token) {
            return self.decide_token(token, in_.now);
        }
        match present(given.user) {
            Some(user) => self.decide_password(user, given.password.unwrap_or_default(), in_.by),
            None => Decision::Made(Err(Refusal::Unknown)),
        }
    }

    fn decide_nkey(
        &self,
        nkey: &str,
        signature: Option<&str>,
        in_: Circumstances<'_>,
    ) -> Result<Identity, Refusal> {
        let key = PublicKey::parse(nkey).map_err(|_| Refusal::Unknown)?;
        let user = self.by_nkey.get(&key).ok_or(Refusal::Unknown)?;
        if in_.nonce.is_empty() || !key.verify_text(in_.nonce, signature.unwrap_or_default()) {
            return Err(Refusal::Wrong);
        }
        user.identify(in_.by)
    }

    fn decide_bearer(
        &self,
        keys: &KeySet,
        rules: &BearerRules,
        token: &str,
        now: u64,
    ) -> Result<Identity, Refusal> {
        let claims = keys.verify(token, rules, now).map_err(Refusal::Bearer)?;
        let permissions = match &claims.permissions {
            None => Arc::clone(&self.default),
            Some(lists) => match Permissions::new(lists) {
                Ok(permissions) => Arc::new(permissions),
                Err(error) => return Err(Refusal::Permissions(error.to_string())),
            },
        };
        let value_of = |name: &str| match name {
            "user" => Some(claims.user.as_str()),
            name => claims.text(name),
        };
        let grant = Grant::new(permissions, value_of);
        let grant = grant.map_err(|error| Refusal::Permissions(error.to_string()))?;
        let Claims { user, expires, .. } = claims;
        // A token lives as long as it is accepted, the leeway included.
        let expires = expires.map(|end| end.saturating_add(rules.leeway_s));
        Ok(Identity {
            user: user.into(),
            grant,
            max_connections: 0,
            expires,
        })
    }

    fn decide_token(&self, token: &str, now: u64) -> Decision {
        let bearer = self.bearer.as_ref();
        let bearer = bearer.map(|(rules, keys)| self.decide_bearer(keys, rules, token, now));
        match (&self.token, bearer) {
            (None, bearer) => Decision::Made(bearer.unwrap_or(Err(Refusal::Unknown))),
            (Some(_), Some(Ok(identity))) => Decision::Made(Ok(identity)),
            (Some(password), _) if password.is_slow() => Decision::Slow(SlowCheck {
                password: password.clone(),
                given: Secret(token.to_owned()),
                outcome: self.identify_token(),
            }),
            (Some(password), bearer) => Decision::Made(if password.verify(token.as_bytes()) {
                self.identify_token()
            } else {
                bearer.unwrap_or(Err(Refusal::Wrong))
            }),
        }
    }

    fn identify_token(&self) -> Result<Identity, Refusal> {
        let grant = Grant::new(Arc::clone(&self.default), |_| None);
        let grant = grant.map_err(|error| Refusal::Permissions(error.to_string()))?;
        Ok(Identity {
            user: "".into(),
            grant,
            max_connections: 0,
            expires: None,
        })
    }

    fn decide_password(&self, name: &str, given: &str, by: ConnectionType) -> Decision {
        let slow = |password: &Password, outcome| {
            let given = Secret(given.to_owned());
            Decision::Slow(SlowCheck {
                password: password.clone(),
                given,
                outcome,
            })
        };
        let known = self
            .by_name
            .get(name)
            .and_then(|user| Some((user, user.password.as_ref()?)));
        match (known, &self.decoy) {
            (Some((user, password)), _) if password.is_slow() => slow(password, user.identify(by)),
            (Some((user, password)), _) => Decision::Made(if password.verify(given.as_bytes()) {
                user.identify(by)
            } else {
                Err(Refusal::Wrong)
            }),
            // The time of the answer must not tell which users there are.
            (None, Some(decoy)) => slow(decoy, Err(Refusal::Unknown)),
            (None, None) => Decision::Made(Err(Refusal::Unknown)),
        }
    }
}

impl User {
    fn identify(&self, by: ConnectionType) -> Result<Identity, Refusal> {
        if self
            .connection_types
            .as_ref()
            .is_some_and(|types| !types.contains(&by))
        {
            return Err(Refusal::ConnectionType);
        }
        let name: &str = &self.name;
        let grant = Grant::new(Arc::clone(&self.permissions), |placeholder| {
            (placeholder == "user").then_some(name)
        });
        Ok(Identity {
            user: Arc::clone(&self.name),
            grant: grant.map_err(|error| Refusal::Permissions(error.to_string()))?,
            max_connections: self.max_connections,
            expires: None,
        })
    }
}

fn present(field: Option<&str>) -> Option<&str> {
    field.filter(|text| !text.is_empty())
}

fn invalid(key: &str, reason: &str) -> InvalidAuth {
    InvalidAuth {
        key: key.into(),
        reason: reason.into(),
    }
}

fn password(key: &str, secret: Option<&Secret>) -> Result<Option<Password>, InvalidAuth> {
    let read = |Secret(text): &Secret| match text.as_str() {
        "" => Err(invalid(key, "an empty secret admits everybody")),
        text => Password::new(text).map_err(|error| invalid(key, &error.to_string())),
    };
    secret.map(read).transpose()
}

fn compile(key: &str, lists: Option<&PermissionLists>) -> Result<Arc<Permissions>, InvalidAuth> {
    let Some(lists) = lists else {
        return Ok(Arc::default());
    };
    match Permissions::new(lists) {
        Ok(permissions) => Ok(Arc::new(permissions)),
        Err(error) => {
            let reason = format!("{:?}: {}", error.entry, error.reason);
            Err(invalid(&format!("{key}.{}", error.key), &reason))
        }
    }
}

#[cfg(test)]
mod tests;
