//! What a head says about its connection and body, above all what two parsers could read differently.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use proptest::sample::select;
use subjectbus_protocol::http::{
    Control, Framing, HeadLimits, HttpError, RequestHead, ResponseFraming, parse_head,
    parse_response_head,
};

const TWICE: HttpError = HttpError::DuplicateHeader;
const LENGTH: HttpError = HttpError::Malformed("invalid Content-Length");
const CODING: HttpError = HttpError::Malformed("invalid Transfer-Encoding");
const BOTH: HttpError = HttpError::Malformed("both Content-Length and Transfer-Encoding");

/// A request of this version with these field lines, and with a `Host` unless it is of HTTP/1.0.
fn request(version: &str, fields: &[&str]) -> Vec<u8> {
    let host: &[&str] = if version == "1.1" { &["Host: a"] } else { &[] };
    let lines: String = [host, fields]
        .concat()
        .iter()
        .map(|line| format!("{line}\r\n"))
        .collect();
    format!("POST / HTTP/{version}\r\n{lines}\r\n").into_bytes()
}

fn head(bytes: &[u8]) -> RequestHead<'_> {
    parse_head(bytes, HeadLimits::default()).unwrap().unwrap().0
}

/// Return the framing of a request with these fields.
fn framing(version: &str, fields: &[&str]) -> Result<Framing, HttpError> {
    let bytes = request(version, fields);
    head(&bytes).control().map(|control| control.framing)
}

#[test]
fn bodies_that_are_framed_clearly() {
    let cases: [(&[&str], Framing); 9] = [
        (&[], Framing::None),
        (&["Content-Length: 0"], Framing::Length(0)),
        (&["content-length:\t42 \t"], Framing::Length(42)),
        (&["CONTENT-LENGTH:007"], Framing::Length(7)),
        (
            &["Content-Length: 9999999999999999999"],
            Framing::Length(9_999_999_999_999_999_999),
        ),
        (&["Transfer-Encoding: chunked"], Framing::Chunked),
        (&["transfer-encoding:\tCHUNKED \t"], Framing::Chunked),
        (
            &["Content_Length: 5", "Content-Lengt: 5", "TE: chunked"],
            Framing::None,
        ),
        (
            &["Trailer: Content-Length", "X: Transfer-Encoding: chunked"],
            Framing::None,
        ),
    ];
    for (fields, want) in cases {
        assert_eq!(framing("1.1", fields), Ok(want), "{fields:?}");
    }
    assert_eq!(
        framing("1.0", &["Content-Length: 3"]),
        Ok(Framing::Length(3))
    );
    assert_eq!(framing("1.0", &[]), Ok(Framing::None));
}

#[test]
fn lengths_that_could_be_read_differently() {
    let values = [
        "",
        "+1",
        "-1",
        "1 2",
        "1\t2",
        "1,1",
        "1, 1",
        "1,",
        "0x10",
        "1a",
        "a",
        "1.0",
        "1e1",
        "1_0",
        "１",
        "\"1\"",
        "1;",
        "10000000000000000000",
        "00000000000000000001",
        "18446744073709551617",
    ];
    for value in values {
        let field = format!("Content-Length: {value}");
        assert_eq!(framing("1.1", &[&field]), Err(LENGTH), "{field}");
    }
}

#[test]
fn codings_other_than_chunked() {
    let cases = [
        ("gzip, chunked", HttpError::TransferCoding),
        ("gzip ,\tchunked", HttpError::TransferCoding),
        ("gzip;level=1, Chunked", HttpError::TransferCoding),
        ("gzip", HttpError::TransferCoding),
        ("identity", HttpError::TransferCoding),
        ("xchunked", HttpError::TransferCoding),
        ("chunkedx", HttpError::TransferCoding),
        ("chunked, chunked", CODING),
        ("gzip, chunked, chunked", CODING),
        ("chunked, gzip", CODING),
        ("chunked, identity", CODING),
        ("chunked,", CODING),
        (",chunked", CODING),
        ("", CODING),
        ("chunked;q=1", CODING),
        ("chunked ;", CODING),
        ("chunked chunked", CODING),
        ("chun ked", CODING),
        ("\"chunked\"", CODING),
        ("'chunked'/", CODING),
        ("chunked\u{a0}", CODING),
    ];
    for (value, want) in cases {
        let field = format!("Transfer-Encoding: {value}");
        assert_eq!(framing("1.1", &[&field]), Err(want), "{field}");
    }
    assert_eq!(HttpError::TransferCoding.status(), 501);
    assert_eq!(CODING.status(), 400);
}

#[test]
fn fields_that_contradict_each_other() {
    const FIVE: &str = "Content-Length: 5";
    const SIX: &str = "Content-Length: 6";
    const CHUNKED: &str = "Transfer-Encoding: chunked";
    const GZIP: &str = "Transfer-Encoding: gzip";
    let cases: [(&[&str], HttpError); 8] = [
        (&[FIVE, SIX], TWICE),
        (&[FIVE, "X: y", "content-length: 5"], TWICE),
        (&[CHUNKED, CHUNKED], TWICE),
        (&[GZIP, CHUNKED], TWICE),
        (&[FIVE, CHUNKED], BOTH),
        (&[CHUNKED, FIVE], BOTH),
        (&[GZIP, "Content-Length: +5"], BOTH),
        (&["Transfer-Encoding:", FIVE], BOTH),
    ];
    for (fields, want) in cases {
        assert_eq!(framing("1.1", fields), Err(want), "{fields:?}");
        assert_eq!(want.status(), 400);
    }
    let want = HttpError::Malformed("Transfer-Encoding in HTTP/1.0");
    assert_eq!(framing("1.0", &[CHUNKED]), Err(want));
    assert_eq!(framing("1.0", &[CHUNKED, FIVE]), Err(BOTH));
}

#[test]
fn fields_that_are_none() {
    let lines = [
        "Transfer-Encoding : chunked",
        "Transfer-Encoding\t: chunked",
        " Transfer-Encoding: chunked",
        "X: y\r\n Transfer-Encoding: chunked",
        "X: y\rTransfer-Encoding: chunked",
        "X: y\nTransfer-Encoding: chunked",
        "X: y\n\nTransfer-Encoding: chunked",
        "Transfer-Encoding:\u{b}chunked",
        "Transfer-Encoding: chunked\u{c}",
        "Transfer-Encoding: chunked\0",
        "Transfer\u{ad}-Encoding: chunked",
        "Transfer-Encoding",
        "Content-Length\0: 5",
        "Content-Length: 5\n",
        "Content-Length: 1\r\n\t2",
        "(Content-Length): 5",
    ];
    for line in lines {
        let error = parse_head(&request("1.1", &[line]), HeadLimits::default()).unwrap_err();
        assert_eq!(error.status(), 400, "{line:?}");
    }
}

#[test]
fn expectations() {
    let cases: [(&[&str], Result<bool, HttpError>); 10] = [
        (&[], Ok(false)),
        (&["Expect: 100-continue"], Ok(true)),
        (&["EXPECT:100-Continue"], Ok(true)),
        (&["Expect: 100-continue, 100-CONTINUE"], Ok(true)),
        (&["Expect: 100-continue", "Expect: 100-continue"], Ok(true)),
        (&["Expect:", "Expect: ,"], Ok(false)),
        (
            &["Expect: 100-continue", "Expect: x"],
            Err(HttpError::Expectation),
        ),
        (
            &["Expect: x", "Expect: 100-continue"],
            Err(HttpError::Expectation),
        ),
        (&["Expect: 100-continue, x=y"], Err(HttpError::Expectation)),
        (&["Expect: 100-continue;x"], Err(HttpError::Expectation)),
    ];
    for (fields, want) in cases {
        let bytes = request("1.1", fields);
        let control = head(&bytes).control();
        let found = control.map(|control| control.expects_continue);
        assert_eq!(found, want, "{fields:?}");
        let old = request("1.0", fields);
        assert!(!head(&old).control().unwrap().expects_continue);
    }
    assert_eq!(HttpError::Expectation.status(), 417);
}

/// Check a request with these field lines and no others.
fn host(version: &str, lines: &str) -> Result<(), HttpError> {
    let bytes = format!("GET http://b/ HTTP/{version}\r\n{lines}\r\n");
    head(bytes.as_bytes()).control().map(|_| ())
}

#[test]
fn hosts() {
    const MISSING: HttpError = HttpError::Malformed("missing Host");
    const INVALID: HttpError = HttpError::Malformed("invalid Host");
    let hosts = [
        "",
        "a",
        "A.example:8080",
        "127.0.0.1:",
        "[::1]:80",
        "[v7.a:b]",
        "%41_~-.",
        "!$&'()*+,;=",
    ];
    for value in hosts {
        let line = format!("hOST: {value} \r\n");
        assert_eq!(host("1.1", &line), Ok(()), "{line:?}");
        assert_eq!(host("1.0", &line), Ok(()), "{line:?}");
    }
    let invalid = [
        "a b", "a/b", "u@a", "a?b", "a#b", "a\\b", "<a>", "\"a\"", "é", "a\tb", "{a}|^`",
    ];
    for value in invalid {
        let line = format!("Host: {value}\r\n");
        assert_eq!(host("1.1", &line), Err(INVALID), "{line:?}");
        assert_eq!(host("1.0", &line), Err(INVALID), "{line:?}");
    }
    assert_eq!(host("1.1", ""), Err(MISSING));
    assert_eq!(host("1.1", "Hos: a\r\n"), Err(MISSING));
    assert_eq!(host("1.0", ""), Ok(()));
    for version in ["1.0", "1.1"] {
        assert_eq!(host(version, "Host: a\r\nX: y\r\nhost: a\r\n"), Err(TWICE));
        assert_eq!(host(version, "Host: a\r\nhost:\r\n"), Err(TWICE));
    }
}

#[test]
fn everything_at_once() {
    let bytes = request(
        "1.1",
        &[
            "Connection: TE, Close",
            "Upgrade: x",
            "Expect: 100-continue",
            "Content-Length: 5",
        ],
    );
    let want = Control {
        framing: Framing::Length(5),
        keep_alive: false,
        expects_continue: true,
        upgrade: true,
    };
    assert_eq!(head(&bytes).control(), Ok(want));
    let want = Control {
        framing: Framing::None,
        keep_alive: true,
        expects_continue: false,
        upgrade: false,
    };
    assert_eq!(
        head(&request("1.1", &["Connection: x", "Upgrades: x"])).control(),
        Ok(want)
    );
}

#[test]
fn connection_options() {
    let bytes = request(
        "1.1",
        &["Connection: X-One,\tx-two , keep-alive", "connection: ,y"],
    );
    let options = head(&bytes).headers.connection_options().unwrap();
    for member in ["x-one", "X-TWO", "Keep-Alive", "y", ""] {
        assert!(options.contains(member.as_bytes()), "{member}");
    }
    for other in ["x-on", "x-thr", "z", "Connection"] {
        assert!(!options.contains(other.as_bytes()), "{other}");
    }
    let bytes = request("1.1", &[]);
    let none = head(&bytes).headers.connection_options().unwrap();
    assert!(!none.contains(b""));
}

#[test]
fn connection_options_have_a_limit() {
    let with = |lists: &[&str]| {
        let fields: Vec<_> = lists
            .iter()
            .map(|list| format!("Connection: {list}"))
            .collect();
        let fields: Vec<_> = fields.iter().map(String::as_str).collect();
        let bytes = request("1.1", &fields);
        let head = head(&bytes);
        let control = head.control().map(|control| control.keep_alive);
        let options = head.headers.connection_options();
        assert_eq!(control.err(), options.err());
        control
    };
    let nine = "a,b,c,d,e,f,g,h,i";
    assert_eq!(with(&[nine, "a,b,c,d,e,f,close"]), Ok(false));
    assert_eq!(with(&[nine, "a,b,c,d,e,f,g"]), Ok(true));
    // Empty members count: what is skipped costs time, too.
    for lists in [[nine, "a,b,c,d,e,f,g,h"], [nine, ",,,,,,,"]] {
        assert_eq!(with(&lists), Err(HttpError::TooManyConnectionOptions));
    }
    assert_eq!(HttpError::TooManyConnectionOptions.status(), 431);
}

proptest! {
    #[test]
    fn control_agrees_with_the_fields(
        version in select(vec!["1.0", "1.1"]),
        fields in prop::collection::vec(select(FIELDS.to_vec()), 0..5),
    ) {
        let lines = fields.concat();
        let bytes = format!("GET / HTTP/{version}\r\n{lines}\r\n");
        let (head, is_new) = (head(bytes.as_bytes()), version == "1.1");
        let (count, has) = (|name| head.headers.count(name), |name, token| head.headers.has_token(name, token));
        if let Ok(control) = head.control() {
            prop_assert!(count("host") == 1 || (!is_new && count("host") == 0));
            prop_assert_eq!(count("content-length"), usize::from(control.framing == Framing::Length(5)));
            prop_assert_eq!(count("transfer-encoding"), usize::from(control.framing == Framing::Chunked));
            prop_assert_eq!(control.expects_continue, is_new && has("expect", "100-continue"));
            prop_assert_eq!(control.keep_alive, is_new && !has("connection", "close"));
            prop_assert_eq!(control.upgrade, count("upgrade") > 0);
        }
    }
}

/// Field lines that together make heads of every kind.
const FIELDS: &[&str] = &[
    "Host: a\r\n",
    "host: b\r\n",
    "Host: a b\r\n",
    "Host: a\r\nConnection: keep-alive, x\r\n",
    "Host: a\r\nConnection: close\r\n",
    "connection: x,CLOSE\r\n",
    "Connection: a,b,c,d,e,f,g,h,i,,\r\n",
    "Content-Length: 5\r\n",
    "content-length: x\r\n",
    "Transfer-Encoding: chunked\r\n",
    "transfer-encoding: gzip\r\n",
    "Expect: 100-continue\r\n",
    "expect: x\r\n",
    "Upgrade: websocket\r\n",
    "X: y\r\n",
];

#[test]
fn responses() {
    let framing = |start: &str, fields: &str, method_was_head: bool| {
        let bytes = format!("HTTP/{start} x\r\n{fields}\r\n");
        let parsed = parse_response_head(bytes.as_bytes(), HeadLimits::default());
        parsed.unwrap().unwrap().0.framing(method_was_head)
    };
    const FIVE: &str = "Content-Length: 5\r\n";
    const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";
    let cases = [
        ("1.1 200", FIVE, Ok(ResponseFraming::Length(5))),
        ("1.0 200", FIVE, Ok(ResponseFraming::Length(5))),
        ("1.1 404", CHUNKED, Ok(ResponseFraming::Chunked)),
        ("1.1 200", "", Ok(ResponseFraming::UntilClose)),
        ("1.0 500", "", Ok(ResponseFraming::UntilClose)),
        (
            "1.1 205",
            "Content-Length: 0\r\n",
            Ok(ResponseFraming::Length(0)),
        ),
        ("1.1 100", "", Ok(ResponseFraming::None)),
        ("1.1 101", FIVE, Ok(ResponseFraming::None)),
        ("1.1 204", CHUNKED, Ok(ResponseFraming::None)),
        ("1.1 304", FIVE, Ok(ResponseFraming::None)),
        ("1.1 200", "Content-Length: 5, 5\r\n", Err(LENGTH)),
        (
            "1.1 200",
            "Content-Length: 5\r\nContent-Length: 5\r\n",
            Err(TWICE),
        ),
        (
            "1.1 200",
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            Err(BOTH),
        ),
        (
            "1.1 200",
            "Transfer-Encoding: gzip\r\n",
            Err(HttpError::TransferCoding),
        ),
        (
            "1.1 200",
            "Transfer-Encoding: chunked, gzip\r\n",
            Err(CODING),
        ),
        (
            "1.0 200",
            CHUNKED,
            Err(HttpError::Malformed("Transfer-Encoding in HTTP/1.0")),
        ),
    ];
    for (start, fields, want) in cases {
        assert_eq!(framing(start, fields, false), want, "{start} {fields}");
        assert_eq!(framing(start, fields, true), Ok(ResponseFraming::None));
    }
}
