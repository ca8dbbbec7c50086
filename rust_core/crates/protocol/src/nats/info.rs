//! The JSON of `INFO` and `CONNECT`.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use super::error;

/// JSON that cannot be read as the options or the description that it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonError {
    what: &'static str,
    column: usize,
}

impl From<serde_json::Error> for JsonError {
    /// Drop serde_json's message, which may quote a secret.
    fn from(error: serde_json::Error) -> Self {
        let what = match error.classify() {
            serde_json::error::Category::Data => "a field of the wrong type, or twice",
            serde_json::error::Category::Eof => "incomplete",
            _ => "a syntax error",
        };
        let column = error.column();
        Self { what, column }
    }
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bad JSON at column {}: {}", self.column, self.what)
    }
}

impl std::error::Error for JsonError {}

/// Read an object and nothing else; serde alone would take a list of values in order, too.
fn parse_object<'de, T: Deserialize<'de>>(json: &'de [u8]) -> Result<T, JsonError> {
    if json.trim_ascii_start().first() == Some(&b'{') {
        Ok(serde_json::from_slice(json)?)
    } else {
        let what = "not an object";
        Err(JsonError { what, column: 1 })
    }
}

/// A credential. Its `Debug` output does not show it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Return the credential itself.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl<T: Into<String>> From<T> for Secret {
    fn from(secret: T) -> Self {
        Self(secret.into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// Read `null` as the default, as Go's JSON package leaves a field alone that is null.
fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Read `null` as true, for the options that are on unless they are turned off.
fn or_true<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Option::<bool>::deserialize(deserializer).map(|value| value.unwrap_or(true))
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_false(value: &bool) -> bool {
    !*value
}

/// Append `value` as JSON. Writing to a vector cannot fail, and neither can the serialisation of
/// structs of strings, numbers and lists.
fn append_json(out: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(out, value).expect("plain structs serialise");
}

/// The server's description of itself, sent as `INFO`. Optional fields are left out when unset,
/// and never null, which some clients cannot read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerInfo {
    /// Unique id of this server process.
    pub server_id: String,
    /// The server's name for people.
    pub server_name: String,
    /// A semantic version. Clients derive from it which features they may use.
    pub version: String,
    /// Protocol version: 1 = the server may send further `INFO`s.
    pub proto: i64,
    /// The Go version in nats-server; clients expect the field.
    pub go: String,
    /// The address that the listener is bound to.
    pub host: String,
    /// The port that the listener is bound to.
    pub port: u16,
    /// Whether the server supports headers.
    pub headers: bool,
    /// Most bytes of a payload, headers included. Signed because nats-server sends -1 for no limit.
    pub max_payload: i64,
    /// This connection's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<u64>,
    /// The address that the client connects from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_ip: Option<String>,
    /// `CONNECT` with credentials must come first.
    #[serde(skip_serializing_if = "is_false")]
    pub auth_required: bool,
    /// The client must speak TLS.
    #[serde(skip_serializing_if = "is_false")]
    pub tls_required: bool,
    /// The client must present a certificate.
    #[serde(skip_serializing_if = "is_false")]
    pub tls_verify: bool,
    /// The client may speak TLS.
    #[serde(skip_serializing_if = "is_false")]
    pub tls_available: bool,
    /// Text that a client with a key signs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nonce: Option<String>,
    /// Further addresses of the cluster, for the transport that the client uses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub connect_urls: Vec<String>,
    /// Further WebSocket addresses of the cluster.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ws_connect_urls: Vec<String>,
    /// Lame duck mode: the server is about to close this connection.
    #[serde(skip_serializing_if = "is_false")]
    pub ldm: bool,
    /// The address that the client connected to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
    /// The build's commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git_commit: Option<String>,
    /// The cluster's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Whether that name was made up.
    #[serde(skip_serializing_if = "is_false")]
    pub cluster_dynamic: bool,
    /// The JetStream domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Whether JetStream is on.
    #[serde(skip_serializing_if = "is_false")]
    pub jetstream: bool,
    /// The server's X25519 key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xkey: Option<String>,
    /// JetStream API level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_lvl: Option<u64>,
    /// This is the answer to `CONNECT`.
    #[serde(skip_serializing_if = "is_false")]
    pub connect_info: bool,
    /// The account that the connection is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_account: Option<String>,
    /// Whether that is the system account.
    #[serde(skip_serializing_if = "is_false")]
    pub acc_is_sys: bool,
}

impl ServerInfo {
    /// Read the JSON of an `INFO`. Unknown fields are ignored, absent ones take their defaults.
    ///
    /// # Errors
    ///
    /// [`JsonError`] if the text is not a JSON object with fields of the right types.
    pub fn parse(json: &[u8]) -> Result<Self, JsonError> {
        parse_object(json)
    }

    /// Append the JSON of an `INFO`, without line end.
    pub fn encode_json(&self, out: &mut Vec<u8>) {
        append_json(out, self);
    }
}

/// Options that a client requests with `CONNECT`.
///
/// The defaults are nats-server's `defaultOpts`: verbose, pedantic and echo are on. They apply
/// before any `CONNECT` and for absent fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConnectOptions {
    /// `+OK` answers every operation that succeeded, but `PING` and `PONG`.
    #[serde(deserialize_with = "or_true")]
    pub verbose: bool,
    /// Subjects that are published to are checked.
    #[serde(deserialize_with = "or_true")]
    pub pedantic: bool,
    /// Deliver this connection's messages to its own subscriptions too.
    #[serde(deserialize_with = "or_true")]
    pub echo: bool,
    /// The client wants TLS.
    #[serde(deserialize_with = "or_default")]
    pub tls_required: bool,
    /// The client's name for itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The client library's language.
    #[serde(deserialize_with = "or_default")]
    pub lang: String,
    /// The client library's version.
    #[serde(deserialize_with = "or_default")]
    pub version: String,
    /// 0, or 1 if the client understands further `INFO`s.
    #[serde(deserialize_with = "or_default")]
    pub protocol: i64,
    /// The client supports headers.
    #[serde(deserialize_with = "or_default")]
    pub headers: bool,
    /// Whether a request without a subscriber is answered with status 503.
    #[serde(deserialize_with = "or_default")]
    pub no_responders: bool,
    /// User name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pass: Option<Secret>,
    /// Token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_token: Option<Secret>,
    /// User JWT.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jwt: Option<Secret>,
    /// Public key of the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nkey: Option<String>,
    /// Signature of the server's nonce.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sig: Option<Secret>,
    /// An account to enter, which servers refuse as an authorization violation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// An account to create, likewise refused.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_false")]
    pub new_account: bool,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self::telnet()
    }
}

impl ConnectOptions {
    /// Return the options of a connection that never sends `CONNECT`.
    #[must_use]
    pub const fn telnet() -> Self {
        Self {
            verbose: true,
            pedantic: true,
            echo: true,
            tls_required: false,
            name: None,
            lang: String::new(),
            version: String::new(),
            protocol: 0,
            headers: false,
            no_responders: false,
            user: None,
            pass: None,
            auth_token: None,
            jwt: None,
            nkey: None,
            sig: None,
            account: None,
            new_account: false,
        }
    }

    /// Read the JSON of a `CONNECT`. Unknown fields are ignored; absent and null ones take their
    /// defaults.
    ///
    /// # Errors
    ///
    /// [`JsonError`] if the text is not a JSON object with fields of the right types. The server
    /// then closes the connection without `-ERR`.
    pub fn parse(json: &[u8]) -> Result<Self, JsonError> {
        parse_object(json)
    }

    /// Check the options that a server must refuse for every client, in nats-server's order.
    ///
    /// # Errors
    ///
    /// The text of the `-ERR` to send before the connection is closed.
    pub fn validate(&self, server_headers: bool) -> Result<(), &'static str> {
        if self.new_account || self.account.as_deref().is_some_and(|name| !name.is_empty()) {
            return Err(error::AUTHORIZATION_VIOLATION);
        }
        if !(0..=1).contains(&self.protocol) {
            return Err(error::INVALID_CLIENT_PROTOCOL);
        }
        if self.no_responders && !(server_headers && self.headers) {
            return Err(error::NO_RESPONDERS_REQUIRES_HEADERS);
        }
        Ok(())
    }

    /// Append the JSON of a `CONNECT`, without line end.
    pub fn encode_json(&self, out: &mut Vec<u8>) {
        append_json(out, self);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn absent_fields_take_nats_servers_defaults() {
        let options = ConnectOptions::parse(b"{}").unwrap();
        assert_eq!(options, ConnectOptions::telnet());
        assert!(options.verbose && options.pedantic && options.echo);
        assert!(!options.headers && !options.no_responders && options.protocol == 0);
    }

    #[test]
    fn nulls_and_unknown_fields_are_harmless() {
        let json = br#"{"verbose":null,"echo":null,"headers":null,"lang":null,"protocol":null,
            "user":null,"pass":null,"name":null,"import":{"allow":[]},"x":[1,{}]}"#;
        assert_eq!(
            ConnectOptions::parse(json).unwrap(),
            ConnectOptions::telnet()
        );
    }

    #[test]
    fn a_real_clients_connect() {
        let json = br#"{"echo": true, "headers": true, "lang": "python3", "name": "n",
            "no_responders": true, "pedantic": false, "protocol": 1, "verbose": false,
            "version": "2.9.0", "user": "u", "pass": "p"}"#;
        let options = ConnectOptions::parse(json).unwrap();
        let expected = ConnectOptions {
            verbose: false,
            pedantic: false,
            name: Some("n".into()),
            lang: "python3".into(),
            version: "2.9.0".into(),
            protocol: 1,
            headers: true,
            no_responders: true,
            user: Some("u".into()),
            pass: Some("p".into()),
            ..ConnectOptions::telnet()
        };
        assert_eq!(options, expected);
        assert_eq!(options.validate(true), Ok(()));
    }

    #[test]
    fn bad_json_is_refused() {
        for json in [
            &b""[..],
            b"x",
            b"[]",
            b"null",
            b"{",
            b"{} {}",
            br#"{"verbose":1}"#,
            br#"{"protocol":"1"}"#,
            br#"{"lang":7}"#,
            b"{\"lang\":\"\xff\"}",
        ] {
            assert!(
                ConnectOptions::parse(json).is_err(),
                "{}",
                json.escape_ascii()
            );
        }
        let deep = [b'['; 4096];
        assert!(ConnectOptions::parse(&deep).is_err());
    }

    #[test]
    fn refused_options_name_their_error() {
        let refused = |json: &str, server_headers| {
            ConnectOptions::parse(json.as_bytes())
                .unwrap()
                .validate(server_headers)
                .unwrap_err()
        };
        assert_eq!(
            refused(r#"{"protocol":2}"#, true),
            "invalid client protocol"
        );
        assert_eq!(
            refused(r#"{"protocol":-1}"#, true),
            "invalid client protocol"
        );
        let text = "no responders requires headers support";
        assert_eq!(refused(r#"{"no_responders":true}"#, true), text);
        assert_eq!(
            refused(r#"{"no_responders":true,"headers":true}"#, false),
            text
        );
        assert_eq!(
            refused(r#"{"account":"a"}"#, true),
            "Authorization Violation"
        );
        assert_eq!(
            refused(r#"{"new_account":true}"#, true),
            "Authorization Violation"
        );
    }

    #[test]
    fn secrets_do_not_show() {
        let json = br#"{"user":"alice","pass":"s3cret1","auth_token":"s3cret2","jwt":"s3cret3",
            "sig":"s3cret4","nkey":"UABC"}"#;
        let options = ConnectOptions::parse(json).unwrap();
        let shown = format!("{options:?}");
        assert!(!shown.contains("s3cret"), "{shown}");
        assert!(shown.contains("alice") && shown.contains("UABC"), "{shown}");
        assert_eq!(options.pass.as_ref().map(Secret::expose), Some("s3cret1"));
        let error = ConnectOptions::parse(br#"{"verbose":"s3cret"}"#).unwrap_err();
        assert!(!error.to_string().contains("s3cret"), "{error}");
    }

    #[test]
    fn connect_round_trips() {
        let options = ConnectOptions {
            name: Some("a \"name\"".into()),
            auth_token: Some("t".into()),
            protocol: 1,
            ..ConnectOptions::telnet()
        };
        let mut json = Vec::new();
        options.encode_json(&mut json);
        assert_eq!(ConnectOptions::parse(&json).unwrap(), options);
        assert!(!String::from_utf8(json).unwrap().contains("null"));
    }

    #[test]
    fn info_leaves_unset_fields_out() {
        let mut json = Vec::new();
        ServerInfo::default().encode_json(&mut json);
        assert_eq!(
            String::from_utf8(json).unwrap(),
            concat!(
                r#"{"server_id":"","server_name":"","version":"","proto":0,"go":"","host":"","#,
                r#""port":0,"headers":false,"max_payload":0}"#
            )
        );
    }

    #[test]
    fn info_round_trips_and_reads_what_nats_server_sends() {
        let json = br#"{"server_id":"NA","server_name":"NA","version":"2.12.0","proto":1,
            "git_commit":"abc","go":"go1.25","host":"0.0.0.0","port":4222,"headers":true,
            "max_payload":1048576,"client_id":5,"client_ip":"127.0.0.1","xkey":"XA",
            "connect_urls":["10.0.0.1:4222"],"ldm":true,"new_field":{}} "#;
        let info = ServerInfo::parse(json).unwrap();
        assert_eq!(info.max_payload, 1_048_576);
        assert_eq!(info.client_id, Some(5));
        assert!(info.ldm && info.headers && !info.auth_required);
        let mut again = Vec::new();
        info.encode_json(&mut again);
        assert_eq!(ServerInfo::parse(&again).unwrap(), info);
    }
}
