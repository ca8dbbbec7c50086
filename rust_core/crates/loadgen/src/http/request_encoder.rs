//! Encoding of requests over HTTP.

use protocol::http::encode_request;

use crate::config::RequestorConfig;
use crate::payload::{self, PayloadKind};
use crate::subject::Subject;
use crate::target::{Target, Transport};

/// Encoder of one thread's requests, with heads that are encoded ahead.
#[derive(Debug)]
pub(crate) struct RequestEncoder {
    /// Heads from the request line to the empty line, one for each provider, or one for all.
    heads: Box<[Box<[u8]>]>,
    /// Buffer in which the body is composed; empty if there is none.
    body: Box<[u8]>,
}

impl RequestEncoder {
    /// Encode the heads: `POST {path}v1/request/{subject}` for each provider, or `GET {path}` with
    /// `fetch`.
    pub(crate) fn new(config: &RequestorConfig) -> Self {
        let target = &config.target;
        if config.fetch {
            return Self {
                heads: Box::new([head(target, "GET", &target.path, None)]),
                body: Box::default(),
            };
        }
        let base = target.path.trim_end_matches('/');
        let body = vec![0; config.request_bytes].into_boxed_slice();
        let heads = (0..config.providers).map(|number| {
            let subject = encode_percent(Subject::provider(number).as_bytes());
            let path = format!("{base}/v1/request/{subject}");
            head(target, "POST", &path, Some(&body))
        });
        Self {
            heads: heads.collect(),
            body,
        }
    }

    /// Return the number of bytes of each request's body.
    #[inline]
    pub(crate) fn body_bytes(&self) -> usize {
        self.body.len()
    }

    /// Append request `id` to a provider; return the bytes of its head.
    #[inline]
    pub(crate) fn encode(&mut self, out: &mut Vec<u8>, provider: u32, id: u64) -> usize {
        let Some(head) = self.heads.get(provider as usize) else {
            return 0;
        };
        out.extend_from_slice(head);
        payload::fill(&mut self.body, PayloadKind::Request, id);
        out.extend_from_slice(&self.body);
        head.len()
    }
}

fn head(target: &Target, method: &str, path: &str, body: Option<&[u8]>) -> Box<[u8]> {
    let fields = [("Host", target.host.as_str()), ("Connection", "close")];
    let fields = match target.transport {
        Transport::RestNew => &fields[..],
        _ => &fields[..1],
    };
    let mut out = Vec::new();
    encode_request(&mut out, method, path, fields, body);
    out.truncate(out.len() - body.map_or(0, <[u8]>::len));
    out.into_boxed_slice()
}

/// Return a subject as one segment of a path (RFC 3986 section 3.3).
fn encode_percent(subject: &[u8]) -> String {
    let encoded = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    subject.iter().copied().map(encoded).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn encoded(json: &str, provider: u32, id: u64) -> (Vec<u8>, usize) {
        let json = format!(
            r#"{{"address":"127.0.0.1:1","users":1,"outstanding":1,"duration_s":1,"host":"h"{json}}}"#
        );
        let config = RequestorConfig::from_json(&json).unwrap();
        let mut out = Vec::new();
        let head = RequestEncoder::new(&config).encode(&mut out, provider, id);
        (out, head)
    }

    #[test]
    fn a_request_to_a_provider() {
        let (bytes, head) = encoded(r#","transport":"rest","path":"/base/""#, 12, 77);
        let text =
            "POST /base/v1/request/%2Fs%2F12 HTTP/1.1\r\nHost: h\r\nContent-Length: 32\r\n\r\n";
        assert_eq!(std::str::from_utf8(&bytes[..head]).unwrap(), text);
        assert_eq!(payload::parse_id(&bytes[head..]), Some(77));
        assert!(payload::is_intact(&bytes[head..], PayloadKind::Request, 32));
    }

    #[test]
    fn a_request_that_ends_its_connection() {
        let (bytes, head) = encoded(r#","transport":"rest-new""#, 0, 1);
        let text = "POST /v1/request/%2Fs%2F0 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\
            Content-Length: 32\r\n\r\n";
        assert_eq!(std::str::from_utf8(&bytes[..head]).unwrap(), text);
    }

    #[test]
    fn a_page() {
        let more = r#","transport":"rest","path":"/byte?x","fetch":true,"reply_bytes":1"#;
        let text = b"GET /byte?x HTTP/1.1\r\nHost: h\r\n\r\n".to_vec();
        assert_eq!(encoded(more, 0, 9), (text.clone(), text.len()));
    }
}
