//! Which fields pass the gateway: those of requests to a message's receivers, those of replies to callers.

use std::borrow::Cow;

use protocol::http as wire;
use protocol::nats::{Headers, encode_headers as encode_block};

use super::field_names::FieldNames;

/// The status with which a server of the NATS network says that there are no subscribers.
const NO_RESPONDERS: u16 = 503;
/// The error of a service, in place of a result (NATS ADR-32): the code, if it is one of HTTP's errors,
/// becomes the answer's status.
const SERVICE_ERROR: &[u8] = b"Nats-Service-Error";
const SERVICE_ERROR_CODE: &[u8] = b"Nats-Service-Error-Code";

/// Request fields that services do not get.
///
/// Services take what a message tells about its sender from its headers. HTTP callers are strangers: what
/// only a proxy may say of a caller, and what is between a caller and the broker, must not come from them.
/// Application fields have any name, so this is a list of those that are withheld.
static NOT_FORWARDED: FieldNames<48, 23> = FieldNames::new(
    [
        // The connection's and the framing's (RFC 9110 section 7.6.1); those that `Connection` names, too.
        "connection",
        "content-length",
        "expect",
        "host",
        "http2-settings",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        // Content negotiation: the gateway answers for itself.
        "accept",
        "accept-charset",
        "accept-encoding",
        "accept-language",
        "cache-control",
        "pragma",
        "priority",
        "range",
        "x-request-timeout",
        // The browser's own.
        "date",
        "dnt",
        "origin",
        "referer",
        "upgrade-insecure-requests",
        "user-agent",
        // Credentials, which are for the broker or a proxy and not for every subscriber.
        "api-key",
        "apikey",
        "authorization",
        "cookie",
        "x-access-token",
        "x-amz-security-token",
        "x-api-key",
        "x-csrf-token",
        "x-xsrf-token",
        // The identity of the caller, as proxies state it.
        "client-cert",
        "client-cert-chain",
        "client-ip",
        "fastly-client-ip",
        "forwarded",
        "from",
        "true-client-ip",
        "via",
        "x-client-ip",
        "x-cluster-client-ip",
        "x-email",
        "x-groups",
        "x-real-ip",
        "x-rewrite-url",
    ],
    [
        // The browser's own.
        "sec-",
        // NATS gives these a meaning: errors of services, message ids, traces, JetStream.
        "nats-",
        // The identity of the caller, as proxies state it.
        "cf-",
        "proxy-",
        "remote-",
        "ssl-",
        "tailscale-",
        "x-amzn-oidc-",
        "x-arr-",
        "x-auth",
        "x-client-cert",
        "x-envoy-",
        "x-forwarded",
        "x-goog-authenticated-",
        "x-goog-iap-",
        "x-ms-client-principal",
        "x-original-",
        "x-pomerium-",
        "x-remote-",
        "x-ssl-",
        "x-user",
        "x-vouch-",
        "x-webauth-",
    ],
);

/// Reply fields that callers do not get.
///
/// Any client may serve a subject, but the answer carries the broker's origin. A list of what is allowed
/// would lose the fields that applications make up, so this lists those that act by themselves: on the
/// connection, on what a browser keeps for the origin, or on a proxy. Whatever it misses meets the policy
/// that every answer has ([`POLICY`](super::answer::POLICY)). `Link` is not listed: pages of results need
/// it, and under that policy a browser loads nothing that it names.
static NOT_RETURNED: FieldNames<49, 22> = FieldNames::new(
    [
        // The connection's and the framing's, and what the gateway writes itself.
        "alt-svc",
        "connection",
        "content-length",
        "date",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "x-content-type-options",
        // They say something about ranges, codings and other places. The request's part of that is not
        // forwarded, and the status that belongs to it is never sent.
        "accept-ranges",
        "content-encoding",
        "content-location",
        "content-range",
        "location",
        "refresh",
        // Credentials and log-ins.
        "authentication-control",
        "authentication-info",
        "optional-www-authenticate",
        "set-cookie",
        "set-cookie2",
        "set-login",
        "www-authenticate",
        // Things that a browser keeps or does for the whole origin.
        "accept-ch",
        "accept-ch-lifetime",
        "activate-storage-access",
        "clear-site-data",
        "critical-ch",
        "expect-ct",
        "nel",
        "observe-browsing-topics",
        "origin-agent-cluster",
        "origin-trial",
        "report-to",
        "reporting-endpoints",
        "server-timing",
        "service-worker-allowed",
        "sourcemap",
        "speculation-rules",
        "strict-transport-security",
        "supports-loading-mode",
        "timing-allow-origin",
        "use-as-dictionary",
        "x-dns-prefetch-control",
        "x-download-options",
        "x-frame-options",
        "x-permitted-cross-domain-policies",
        "x-sourcemap",
        "x-xss-protection",
    ],
    [
        // The origins that may read an answer, and the rights of its page, are up to the broker's settings.
        "access-control-",
        "attribution-reporting-",
        "content-security-policy",
        "cross-origin-",
        "document-isolation-policy",
        "document-policy",
        "feature-policy",
        "integrity-policy",
        "permissions-policy",
        "proxy-",
        "public-key-pins",
        "referrer-policy",
        "require-document-policy",
        "sec-",
        "x-content-security-policy",
        "x-webkit-csp",
        // Orders to a proxy in front of the broker: a file to send, a place to fetch, what to keep.
        "surrogate-",
        "x-accel-",
        "x-lighttpd-",
        "x-litespeed-",
        "x-reproxy-",
        "x-sendfile",
    ],
);

/// Return whether receivers of a message may get the field of a request with this name.
pub(super) fn is_forwarded(name: &[u8]) -> bool {
    !NOT_FORWARDED.contains(name)
}

/// Append the request's fields that receivers of its message get, as a NATS header block; nothing when
/// there are none.
pub(super) fn encode_headers(fields: &wire::Headers<'_>, out: &mut Vec<u8>) {
    // A request with too many of them has been refused.
    let of_connection = fields.connection_options().unwrap_or_default();
    let mut forwarded = fields
        .iter()
        .filter(|(name, _)| is_forwarded(name) && !of_connection.contains(name))
        .peekable();
    if forwarded.peek().is_some() && encode_block(out, None, forwarded).is_err() {
        // A parsed field has nothing that a block cannot hold.
        out.clear();
    }
}

/// Return the status and the text of a reply that is an error rather than a result.
pub(super) fn error_of<'a>(headers: &Headers<'a>) -> Option<(u16, Cow<'a, str>)> {
    let is_error = |code: &u16| (400..600).contains(code);
    if let Some(status) = headers.status()
        && is_error(&status.code)
    {
        let text = match (status.code, status.description) {
            (NO_RESPONDERS, b"") => "no subscriber to it".into(),
            (_, text) => String::from_utf8_lossy(text),
        };
        return Some((status.code, text));
    }
    let text = headers.value(SERVICE_ERROR);
    let code = headers.value(SERVICE_ERROR_CODE);
    if text.is_none() && code.is_none() {
        return None;
    }
    let code = code.and_then(|code| std::str::from_utf8(code).ok()?.parse().ok());
    let text = String::from_utf8_lossy(text.unwrap_or_default());
    Some((code.filter(is_error).unwrap_or(500), text))
}

/// Return the fields of a reply that its caller gets.
pub(super) fn returned<'a>(headers: &Headers<'a>) -> impl Iterator<Item = (&'a str, &'a str)> {
    headers.iter().filter_map(|(name, value)| {
        let is_token =
            |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
        let is_plain = |byte: &u8| !byte.is_ascii_control() || *byte == b'\t';
        let is_sound = name.iter().all(is_token) && value.iter().all(is_plain);
        (is_sound && !NOT_RETURNED.contains(name))
            .then(|| {
                Some((
                    std::str::from_utf8(name).ok()?,
                    std::str::from_utf8(value).ok()?,
                ))
            })
            .flatten()
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use protocol::http::{HeadLimits, parse_head};

    use super::*;

    #[test]
    fn callers_do_not_say_who_they_are() {
        for name in [
            "Authorization",
            "Cookie",
            "X-Api-Key",
            "X-Auth-User",
            "X-Authenticated-User",
            "Proxy-Authorization",
            "X-Forwarded-For",
            "X-Forwarded-User",
            "Forwarded",
            "X-Real-IP",
            "X-User",
            "X-User-Id",
            "Remote-User",
            "X-Remote-Group",
            "X-Client-Cert",
            "X-SSL-Client-Verify",
            "SSL-Client-S-DN",
            "Client-Cert",
            "Tailscale-User-Login",
            "CF-Connecting-IP",
            "X-Goog-IAP-JWT-Assertion",
            "X-WEBAUTH-USER",
            "Nats-Msg-Id",
            "nats-service-error",
            "Sec-Fetch-Site",
            "Connection",
            "HTTP2-Settings",
        ] {
            assert!(!is_forwarded(name.as_bytes()), "{name}");
        }
        for name in [
            "Content-Type",
            "Content-Encoding",
            "Traceparent",
            "X-Request-Id",
            "Idempotency-Key",
            "Tenant",
            "X-Trace",
            "If-Match",
            "Prefer",
        ] {
            assert!(is_forwarded(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn replies_do_not_act_on_browser_origin_or_proxy() {
        let passes = |name: &str| {
            let block = format!("NATS/1.0\r\n{name}: x\r\n\r\n");
            returned(&Headers::parse(block.as_bytes()).unwrap()).count() == 1
        };
        for name in [
            "Set-Cookie",
            "Set-Cookie2",
            "Clear-Site-Data",
            "Strict-Transport-Security",
            "Alt-Svc",
            "WWW-Authenticate",
            "Proxy-Authenticate",
            "Location",
            "Refresh",
            "Content-Location",
            "Content-Security-Policy",
            "Content-Security-Policy-Report-Only",
            "X-Frame-Options",
            "X-Content-Type-Options",
            "Permissions-Policy",
            "Report-To",
            "Reporting-Endpoints",
            "NEL",
            "SourceMap",
            "X-SourceMap",
            "Service-Worker-Allowed",
            "Cross-Origin-Opener-Policy",
            "Cross-Origin-Resource-Policy",
            "Origin-Agent-Cluster",
            "Public-Key-Pins",
            "Expect-CT",
            "Timing-Allow-Origin",
            "Server-Timing",
            "Referrer-Policy",
            "Access-Control-Allow-Origin",
            "Content-Encoding",
            "Content-Length",
            "Content-Range",
            "Accept-Ranges",
            "Transfer-Encoding",
            "Connection",
            "Upgrade",
            "Date",
            "X-Accel-Redirect",
            "X-Sendfile",
        ] {
            assert!(!passes(name), "{name}");
            assert!(!passes(&name.to_lowercase()), "{name}");
        }
        for name in [
            "Content-Type",
            "Content-Language",
            "Content-Disposition",
            "Cache-Control",
            "ETag",
            "Expires",
            "Last-Modified",
            "Link",
            "Retry-After",
            "Vary",
            "Allow",
            "Nats-Service-Error",
            "Request-Id",
            "X-Total-Count",
            "Document-Id",
        ] {
            assert!(passes(name), "{name}");
        }
    }

    #[test]
    fn fields_become_headers() {
        let head = "POST /v1/publish/a HTTP/1.1\r\nHost: a\r\nConnection: X-Hop, close\r\nx-hop: 1\r\n\
            X-User: root\r\nNats-Msg-Id: 1\r\nX-A: 1\r\nx-a: 2\r\n\r\n";
        let (head, _) = parse_head(head.as_bytes(), HeadLimits::default())
            .unwrap()
            .unwrap();
        let mut block = Vec::new();
        encode_headers(&head.headers, &mut block);
        assert_eq!(block, b"NATS/1.0\r\nX-A: 1\r\nx-a: 2\r\n\r\n");
    }
}
