#![allow(clippy::unwrap_used)]
//! A connection against scripted responses: whole, in pieces, with following bytes, and broken.

use proptest::prelude::*;

use super::*;
use crate::rng::Rng;
use crate::target::Target;

fn endpoint(transport: Transport) -> Endpoint {
    let target = Target {
        transport,
        address: "127.0.0.1:1".parse().unwrap(),
        host: "h:1".into(),
        path: "/".into(),
        sources: Vec::new(),
    };
    Endpoint::new(target, 2000)
}

/// Status, body, bytes of the head, and whether the response is the last.
type Contents = (u16, Vec<u8>, u64, bool);

/// Return a link with a request in flight that is fed `bytes` in pieces of the given sizes.
fn feed(
    transport: Transport,
    bytes: &[u8],
    sizes: impl IntoIterator<Item = usize>,
) -> (HttpLink, Result<Vec<Contents>, LinkError>) {
    let endpoint = endpoint(transport);
    let mut link = HttpLink::new(&endpoint, &mut Rng::new(1));
    link.handle_open();
    link.expect_response();
    let (mut rest, mut received, mut sizes) = (bytes.to_vec(), Vec::new(), sizes.into_iter());
    while !rest.is_empty() {
        let size = sizes.next().unwrap_or(rest.len()).clamp(1, rest.len());
        let after = rest.split_off(size);
        let outcome = link.receive(&endpoint, &mut rest, |event, _| match event {
            Event::Response(response) => received.push((
                response.status,
                response.body.to_vec(),
                response.head_bytes,
                response.is_last,
            )),
            other => panic!("{other:?}"),
        });
        if let Err(error) = outcome {
            return (link, Err(error));
        }
        rest = after;
    }
    (link, Ok(received))
}

const PLAIN: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
const CHUNKED: &[u8] =
    b"HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x\r\nllo\r\n0\r\n\r\n";
const INTERIM: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hint\r\nA: b\r\n\r\n\
    HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
const EMPTY: &[u8] = b"HTTP/1.1 204 None\r\n\r\n";

/// Return the responses, and the expected contents of each.
fn responses() -> [(&'static [u8], Contents); 4] {
    let received = |status, body: &[u8], bytes: &[u8], framing: usize, is_last| {
        let head = bytes.len() - body.len() - framing;
        (status, body.to_vec(), head as u64, is_last)
    };
    [
        (PLAIN, received(200, b"hello", PLAIN, 0, false)),
        // Sizes, line ends, an extension and the last chunk.
        (CHUNKED, received(503, b"hello", CHUNKED, 17, false)),
        (INTERIM, received(200, b"hello", INTERIM, 0, true)),
        (EMPTY, received(204, b"", EMPTY, 0, false)),
    ]
}

proptest! {
    #[test]
    fn answers_in_any_pieces(which in 0usize..4, sizes in prop::collection::vec(1usize..40, 0..60)) {
        let (bytes, received) = &responses()[which];
        let (link, outcome) = feed(Transport::Rest, bytes, sizes);
        prop_assert_eq!(outcome, Ok(vec![received.clone()]));
        prop_assert_eq!((link.is_over(), link.is_ready()), (received.3, !received.3));
        prop_assert!(link.partial.is_none());
    }
}

#[test]
fn answers_whole_and_byte_by_byte() {
    for (bytes, received) in responses() {
        for sizes in [vec![], vec![1; bytes.len()]] {
            let (_, outcome) = feed(Transport::Rest, bytes, sizes);
            assert_eq!(outcome, Ok(vec![received.clone()]));
        }
    }
}

#[test]
fn the_next_answer_is_another_one() {
    let endpoint = endpoint(Transport::Rest);
    let (mut link, _) = feed(Transport::Rest, PLAIN, [7]);
    for response in [CHUNKED, PLAIN] {
        link.expect_response();
        assert!(link.is_ready());
        let mut received = 0;
        let outcome = link.receive(&endpoint, &mut response.to_vec(), |_, _| received += 1);
        assert_eq!((outcome, received), (Ok(()), 1));
    }
}

#[test]
fn a_connection_for_one_request_is_over_after_it() {
    let (link, outcome) = feed(Transport::RestNew, PLAIN, []);
    assert_eq!(outcome.unwrap()[0].0, 200);
    assert!(link.is_over() && !link.is_ready());
    // Also if the server announces a persistent connection.
    let more = [PLAIN, PLAIN].concat();
    let (link, outcome) = feed(Transport::RestNew, &more, []);
    assert_eq!((link.is_over(), outcome.unwrap().len()), (true, 1));
}

#[test]
fn an_older_server_ends_the_connection() {
    let bytes = b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na";
    let (link, outcome) = feed(Transport::Rest, bytes, []);
    assert!(link.is_over());
    assert_eq!(outcome, Ok(vec![(200, b"a".to_vec(), 38, true)]));
}

#[test]
fn of_a_body_that_is_too_long_the_beginning_is_kept() {
    let body = vec![b'x'; 100_000];
    let mut bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n".to_vec();
    bytes.extend_from_slice(&body);
    for sizes in [vec![], vec![1000; 200]] {
        let (link, outcome) = feed(Transport::Rest, &bytes, sizes);
        assert_eq!(outcome.unwrap()[0].1, &body[..2001]);
        assert!(link.is_ready() && link.partial.is_none());
    }
}

#[test]
fn answers_that_are_none() {
    let cases: [(&[u8], LinkError); 4] = [
        (&[PLAIN, b"H"].concat(), LinkError::UnexpectedResponse),
        (b"-ERR 'no'\r\n", LinkError::Http(HttpError::Version)),
        (b"HTTP/1.1 200 OK\r\n\r\nhello", LinkError::Http(UNFRAMED)),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            LinkError::Http(HttpError::DuplicateHeader),
        ),
    ];
    for (bytes, want) in cases {
        let (_, outcome) = feed(Transport::Rest, bytes, []);
        assert_eq!(outcome, Err(want));
    }
}

#[test]
fn an_answer_without_a_request_is_refused() {
    let endpoint = endpoint(Transport::Rest);
    let mut link = HttpLink::new(&endpoint, &mut Rng::new(1));
    link.handle_open();
    let outcome = link.receive(&endpoint, &mut PLAIN.to_vec(), |_, _| unreachable!());
    assert_eq!(outcome, Err(LinkError::UnexpectedResponse));
}

#[test]
fn an_answer_says_what_went_wrong() {
    let response = Response {
        status: 503,
        body: b"nobody\n",
        head_bytes: 0,
        is_last: false,
    };
    assert_eq!(response.to_string(), "503 Service Unavailable: nobody");
    assert!(!response.is_success());
}
