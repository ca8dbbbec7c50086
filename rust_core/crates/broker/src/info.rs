//! The `INFO` that clients are greeted with.

use std::net::SocketAddr;

use protocol::nats::ServerInfo;

use crate::config::Config;

/// The version of nats-server whose client protocol is spoken: clients derive from it which
/// features they may use.
const PROTOCOL_VERSION: &str = "2.11.0";

/// `INFO` texts that are the same for all clients, up to the client's own fields.
pub(crate) struct Info {
    server_id: String,
    server_name: String,
    /// Address for clients: over TCP, if there is a listener for it.
    address: Option<SocketAddr>,
    tcp: String,
    websocket: String,
}

impl Info {
    /// Return the texts; `id` tells this process from others, and is shown to every client.
    pub(crate) fn new(config: &Config, addresses: &[(&'static str, SocketAddr)], id: u64) -> Self {
        let server_id = format!("SB{id:016X}");
        let server_name = match config.server_name.as_str() {
            "" => format!("subjectbus-{}", &server_id[2..10]),
            name => name.to_owned(),
        };
        let json = |key: &str| {
            let address = addresses.iter().find(|(name, _)| *name == key);
            let info = ServerInfo {
                server_id: server_id.clone(),
                server_name: server_name.clone(),
                version: PROTOCOL_VERSION.into(),
                proto: 1,
                headers: true,
                max_payload: config.max_payload as i64,
                host: address
                    .map(|(_, address)| address.ip().to_string())
                    .unwrap_or_default(),
                port: address.map_or(0, |(_, address)| address.port()),
                ..ServerInfo::default()
            };
            let mut json = Vec::new();
            info.encode_json(&mut json);
            let mut json = String::from_utf8(json).expect("JSON is UTF-8");
            // Left open for the client's own fields.
            json.pop();
            json
        };
        Self {
            address: addresses
                .iter()
                .find(|(key, _)| matches!(*key, "tcp" | "http"))
                .map(|(_, address)| *address),
            tcp: json("tcp"),
            websocket: json("http"),
            server_id,
            server_name,
        }
    }

    pub(crate) fn server_id(&self) -> &str {
        &self.server_id
    }

    /// Return host and port for clients, over TCP or else HTTP.
    pub(crate) fn address(&self) -> (String, u16) {
        self.address.map_or_else(Default::default, |address| {
            (address.ip().to_string(), address.port())
        })
    }

    pub(crate) fn server_name(&self) -> &str {
        &self.server_name
    }

    /// Return the `INFO` for one client; `lame_duck` announces that it will be disconnected.
    pub(crate) fn encode(
        &self,
        is_websocket: bool,
        lame_duck: bool,
        cid: u64,
        peer: SocketAddr,
    ) -> Vec<u8> {
        let common = if is_websocket {
            &self.websocket
        } else {
            &self.tcp
        };
        let ldm = if lame_duck { ",\"ldm\":true" } else { "" };
        let ip = peer.ip().to_canonical();
        format!("INFO {common},\"client_id\":{cid},\"client_ip\":\"{ip}\"{ldm}}}\r\n").into_bytes()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn info_is_valid_json_with_the_clients_fields() {
        let address = SocketAddr::from(([127, 0, 0, 1], 4222));
        let info = Info::new(&Config::default(), &[("tcp", address)], 7);
        let line = String::from_utf8(info.encode(false, true, 42, address)).unwrap();
        let json = line
            .strip_prefix("INFO ")
            .unwrap()
            .strip_suffix("\r\n")
            .unwrap();
        let parsed = ServerInfo::parse(json.as_bytes()).unwrap();
        assert_eq!(
            (parsed.client_id, parsed.port, parsed.ldm),
            (Some(42), 4222, true)
        );
        assert_eq!(parsed.client_ip.as_deref(), Some("127.0.0.1"));
        assert!(!json.contains("null"));
    }
}
