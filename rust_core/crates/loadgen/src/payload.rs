//! Payloads: an id, then bytes that follow from it, so that a reply is verified without a copy of
//! it being kept.
//!
//! A request and its reply open with the same id, 8 bytes in little-endian order. The rest of each
//! is a stream of its own: an echo of the request is not a valid reply.

use crate::rng::mix;

/// Bytes of the id at the start of every payload.
pub(crate) const ID_LEN: usize = 8;

/// Which of the two payloads that share an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PayloadKind {
    Request,
    Reply,
}

impl PayloadKind {
    const fn salt(self) -> u64 {
        match self {
            Self::Request => 0x243f_6a88_85a3_08d3,
            Self::Reply => 0x1319_8a2e_0370_7344,
        }
    }

    /// Return the words that follow the id.
    #[inline]
    fn words(self, id: u64) -> impl Iterator<Item = [u8; 8]> {
        let mut state = mix(id ^ self.salt());
        std::iter::repeat_with(move || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(state).to_le_bytes()
        })
    }
}

/// Fill `payload` with the id and the bytes that follow from it.
#[inline]
pub(crate) fn fill(payload: &mut [u8], stream: PayloadKind, id: u64) {
    let Some((head, body)) = payload.split_first_chunk_mut::<ID_LEN>() else {
        return;
    };
    *head = id.to_le_bytes();
    for (bytes, word) in body.chunks_mut(8).zip(stream.words(id)) {
        let len = bytes.len();
        bytes.copy_from_slice(&word[..len]);
    }
}

/// Return the id at the start of `payload`; `None` if it is too short for one.
#[inline]
pub(crate) fn parse_id(payload: &[u8]) -> Option<u64> {
    payload
        .first_chunk::<ID_LEN>()
        .map(|id| u64::from_le_bytes(*id))
}

/// Return whether `payload` is exactly the `len` bytes that its id gives.
#[inline]
pub(crate) fn is_intact(payload: &[u8], stream: PayloadKind, len: usize) -> bool {
    let Some((head, body)) = payload.split_first_chunk::<ID_LEN>() else {
        return false;
    };
    let words = stream.words(u64::from_le_bytes(*head));
    payload.len() == len
        && body
            .chunks(8)
            .zip(words)
            .all(|(bytes, word)| bytes == &word[..bytes.len()])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trips_and_notices_every_changed_byte(
            id: u64,
            len in 2 * ID_LEN..300,
            at: prop::sample::Index,
            flip in 1u8..,
        ) {
            let mut payload = vec![0; len];
            fill(&mut payload, PayloadKind::Reply, id);
            prop_assert_eq!(parse_id(&payload), Some(id));
            prop_assert!(is_intact(&payload, PayloadKind::Reply, len));
            prop_assert!(!is_intact(&payload, PayloadKind::Reply, len + 1));
            prop_assert!(!is_intact(&payload[..len - 1], PayloadKind::Reply, len));
            let at = at.index(len);
            payload[at] ^= flip;
            prop_assert!(!is_intact(&payload, PayloadKind::Reply, len));
        }
    }

    #[test]
    fn an_echoed_request_is_no_reply() {
        let mut payload = [0; 16];
        fill(&mut payload, PayloadKind::Request, 77);
        assert!(is_intact(&payload, PayloadKind::Request, 16));
        assert!(!is_intact(&payload, PayloadKind::Reply, 16));
    }

    #[test]
    fn short_payloads_have_no_id() {
        let mut payload = [0; 7];
        fill(&mut payload, PayloadKind::Request, 1);
        assert_eq!(payload, [0; 7]);
        assert_eq!(parse_id(&payload), None);
        assert!(!is_intact(&payload, PayloadKind::Request, 7));
    }
}
