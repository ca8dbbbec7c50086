#![allow(clippy::unwrap_used)]
//! A connection against scripted answers: whole, in pieces, with what follows, and broken.

use proptest::prelude::*;

use super::*;
use crate::config::Target;
use crate::rng::Rng;

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

/// What an answer says: status, body, bytes of the head, whether it is the last.
type Told = (u16, Vec<u8>, u64, bool);

/// A link with a request under way that is fed `bytes` in pieces of the given sizes.
fn feed(
    transport: Transport,
    bytes: &[u8],
    sizes: impl IntoIterator<Item = usize>,
) -> (HttpLink, Result<Vec<Told>, LinkError>) {
    let endpoint = endpoint(transport);
    let mut link = HttpLink::new(&endpoint, &mut Rng::new(1));
    link.handle_open();
    link.expect_answer();
    let (mut rest, mut told, mut sizes) = (bytes.to_vec(), Vec::new(), sizes.into_iter());
    while !rest.is_empty() {
        let size = sizes.next().unwrap_or(rest.len()).clamp(1, rest.len());
        let after = rest.split_off(size);
        let outcome = link.receive(&endpoint, &mut rest, |event, _| match event {
            Event::Answer(answer) => told.push((
                answer.status,
                answer.body.to_vec(),
                answer.head_bytes,
                answer.is_last,
            )),
            other => panic!("{other:?}"),
        });
        if let Err(error) = outcome {
            return (link, Err(error));
        }
        rest = after;
    }
    (link, Ok(told))
}

const PLAIN: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
const CHUNKED: &[u8] =
    b"HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x\r\nllo\r\n0\r\n\r\n";
const INTERIM: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hint\r\nA: b\r\n\r\n\
    HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
const EMPTY: &[u8] = b"HTTP/1.1 204 None\r\n\r\n";

/// The answers, and what each says.
fn answers() -> [(&'static [u8], Told); 4] {
    let told = |status, body: &[u8], bytes: &[u8], framing: usize, is_last| {
        let head = bytes.len() - body.len() - framing;
        (status, body.to_vec(), head as u64, is_last)
    };
    [
        (PLAIN, told(200, b"hello", PLAIN, 0, false)),
        // Sizes, line ends, an extension and the last chunk.
        (CHUNKED, told(503, b"hello", CHUNKED, 17, false)),
        (INTERIM, told(200, b"hello", INTERIM, 0, true)),
        (EMPTY, told(204, b"", EMPTY, 0, false)),
    ]
}

proptest! {
    #[test]
    fn answers_in_any_pieces(which in 0usize..4, sizes in prop::collection::vec(1usize..40, 0..60)) {
        let (bytes, told) = &answers()[which];
        let (link, outcome) = feed(Transport::Rest, bytes, sizes);
        prop_assert_eq!(outcome, Ok(vec![told.clone()]));
        prop_assert_eq!((link.is_over(), link.is_ready()), (told.3, !told.3));
        prop_assert!(link.partial.is_none());
    }
}

#[test]
fn answers_whole_and_byte_by_byte() {
    for (bytes, told) in answers() {
        for sizes in [vec![], vec![1; bytes.len()]] {
            let (_, outcome) = feed(Transport::Rest, bytes, sizes);
            assert_eq!(outcome, Ok(vec![told.clone()]));
        }
    }
}

#[test]
fn the_next_answer_is_another_one() {
    let endpoint = endpoint(Transport::Rest);
    let (mut link, _) = feed(Transport::Rest, PLAIN, [7]);
    for answer in [CHUNKED, PLAIN] {
        link.expect_answer();
        assert!(link.is_ready());
        let mut told = 0;
        let outcome = link.receive(&endpoint, &mut answer.to_vec(), |_, _| told += 1);
        assert_eq!((outcome, told), (Ok(()), 1));
    }
}

#[test]
fn a_connection_for_one_request_is_over_after_it() {
    let (link, outcome) = feed(Transport::RestNew, PLAIN, []);
    assert_eq!(outcome.unwrap()[0].0, 200);
    assert!(link.is_over() && !link.is_ready());
    // Also where the server says that it would go on.
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
        (&[PLAIN, b"H"].concat(), LinkError::Unasked),
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
    assert_eq!(outcome, Err(LinkError::Unasked));
}

#[test]
fn an_answer_says_what_went_wrong() {
    let answer = Answer {
        status: 503,
        body: b"nobody\n",
        head_bytes: 0,
        is_last: false,
    };
    assert_eq!(answer.to_string(), "503 Service Unavailable: nobody");
    assert!(!answer.is_success());
}
