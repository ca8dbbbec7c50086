//! Server-Sent Events (WHATWG HTML, section 9.2): the messages of a subscription as a stream.
//!
//! Each event's id counts the stream's events from 1, so that a page can tell that none is missing. The
//! body ends with the connection: it has no other end, and no chunks to be paid for.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use protocol::nats::Headers;
use protocol::nats::Message;
use serde_json::{Map, Value, json};

use super::answer::{Answer, POLICY};

/// The form of an event's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventFormat {
    /// The payload itself. One that an event stream cannot hold, because it is not UTF-8 or has a CR or
    /// NUL, comes in base64, in an event of the type `base64`.
    Raw,
    /// An object of subject, headers and payload.
    Json,
}

/// The beginning of a stream: how soon to connect again when it ends.
const PREAMBLE: &[u8] = b"retry: 2000\n\n";

/// A stream's head.
pub(super) const ANSWER: Answer<'static> = Answer {
    status: 200,
    kind: "text/event-stream",
    fields: &[
        ("Cache-Control", "no-store"),
        // Proxies that collect answers would keep events back.
        ("X-Accel-Buffering", "no"),
    ],
    policy: POLICY,
    body: PREAMBLE,
};

/// A line that means nothing, so that proxies between the two ends see that they are there.
pub(crate) const HEARTBEAT: &[u8] = b":\n\n";

/// Append the beginning of an event, before its data.
pub(crate) fn encode_id(out: &mut Vec<u8>, id: u64) {
    // A vector takes everything.
    let _ = writeln!(out, "id: {id}");
}

/// Append the part of an event that is the same for all its receivers.
pub(crate) fn encode_data(out: &mut Vec<u8>, format: EventFormat, message: &Message<'_>) {
    match format {
        EventFormat::Raw => encode_raw(out, message.payload),
        EventFormat::Json => {
            out.extend_from_slice(b"data: ");
            out.extend_from_slice(envelope(message).to_string().as_bytes());
            out.push(b'\n');
        }
    }
    out.push(b'\n');
}

fn encode_raw(out: &mut Vec<u8>, payload: &[u8]) {
    let is_text = std::str::from_utf8(payload).is_ok();
    if !is_text || payload.iter().any(|byte| matches!(byte, b'\r' | 0)) {
        out.extend_from_slice(b"event: base64\ndata: ");
        out.extend_from_slice(BASE64.encode(payload).as_bytes());
        out.push(b'\n');
        return;
    }
    for line in payload.split(|byte| *byte == b'\n') {
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(line);
        out.push(b'\n');
    }
}

fn envelope(message: &Message<'_>) -> Value {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut object = Map::new();
    object.insert("subject".into(), json!(text(message.subject)));
    if let Some(reply) = message.reply {
        object.insert("reply".into(), json!(text(reply)));
    }
    let headers = message.headers.and_then(|block| Headers::parse(block).ok());
    if let Some(headers) = headers {
        let mut fields = Map::new();
        for (name, value) in headers.iter() {
            let values = fields.entry(text(name)).or_insert_with(|| json!([]));
            if let Value::Array(values) = values {
                values.push(json!(text(value)));
            }
        }
        object.insert("headers".into(), Value::Object(fields));
    }
    match std::str::from_utf8(message.payload) {
        Ok(payload) => object.insert("data".into(), json!(payload)),
        Err(_) => object.insert("data_base64".into(), json!(BASE64.encode(message.payload))),
    };
    Value::Object(object)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn encoded(format: EventFormat, headers: Option<&[u8]>, payload: &[u8]) -> String {
        let message = Message {
            subject: b"a.b",
            reply: None,
            headers,
            payload,
        };
        let mut out = Vec::new();
        encode_id(&mut out, 7);
        encode_data(&mut out, format, &message);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn raw_events() {
        let cases: [(&[u8], &str); 6] = [
            (b"x", "data: x\n"),
            (b"", "data: \n"),
            (b"a\nb\n", "data: a\ndata: b\ndata: \n"),
            (b"a\r\nb", "event: base64\ndata: YQ0KYg==\n"),
            (b"\xff", "event: base64\ndata: /w==\n"),
            (b"\0", "event: base64\ndata: AA==\n"),
        ];
        for (payload, want) in cases {
            let want = format!("id: 7\n{want}\n");
            assert_eq!(encoded(EventFormat::Raw, None, payload), want);
        }
    }

    #[test]
    fn json_events() {
        let headers: &[u8] = b"NATS/1.0\r\nA: 1\r\nA: 2\r\n\r\n";
        assert_eq!(
            encoded(EventFormat::Json, Some(headers), b"x\r\n\"y\""),
            "id: 7\ndata: {\"data\":\"x\\r\\n\\\"y\\\"\",\"headers\":{\"A\":[\"1\",\"2\"]},\"subject\":\"a.b\"}\n\n"
        );
        assert_eq!(
            encoded(EventFormat::Json, None, b"\xff"),
            "id: 7\ndata: {\"data_base64\":\"/w==\",\"subject\":\"a.b\"}\n\n"
        );
    }
}
