//! Masking of payloads (RFC 6455 section 5.3); the same operation masks and unmasks.

/// XOR `data` in place with the endlessly repeated `key`.
///
/// `offset` is the number of bytes before `data` in the frame's payload; only its remainder by four
/// matters.
#[inline]
pub fn apply(data: &mut [u8], key: [u8; 4], offset: usize) {
    let key = rotated(key, offset);
    let word = u32::from_ne_bytes(key);
    let wide = u64::from(word) | u64::from(word) << 32;
    // Whole words first: the compiler turns this loop into vector instructions.
    let (words, tail) = data.as_chunks_mut::<8>();
    for bytes in words {
        *bytes = (u64::from_ne_bytes(*bytes) ^ wide).to_ne_bytes();
    }
    for (byte, key) in tail.iter_mut().zip(wide.to_ne_bytes()) {
        *byte ^= key;
    }
}

/// Return the key rotated for the byte `offset` bytes into the payload.
#[inline]
#[must_use]
pub(super) fn rotated(mut key: [u8; 4], offset: usize) -> [u8; 4] {
    key.rotate_left(offset % 4);
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn naive(data: &[u8], key: [u8; 4], offset: usize) -> Vec<u8> {
        let masked = data.iter().enumerate();
        masked
            .map(|(i, byte)| byte ^ key[(offset + i) % 4])
            .collect()
    }

    #[test]
    fn every_length_offset_and_alignment_agrees_with_the_definition() {
        let source: Vec<u8> = (0..=255).collect();
        for start in 0..9 {
            for len in 0..80 {
                for offset in 0..5 {
                    let mut data = source.clone();
                    let range = start..start + len;
                    apply(&mut data[range.clone()], [0x37, 0xfa, 0x21, 0x3d], offset);
                    let want = naive(&source[range.clone()], [0x37, 0xfa, 0x21, 0x3d], offset);
                    assert_eq!(data[range.clone()], want);
                    assert_eq!(data[..start], source[..start]);
                    assert_eq!(data[range.end..], source[range.end..]);
                }
            }
        }
    }

    #[test]
    fn the_largest_offset_does_not_overflow() {
        let mut data = *b"abcdefghij";
        apply(&mut data, [1, 2, 3, 4], usize::MAX);
        apply(&mut data, [1, 2, 3, 4], 3);
        assert_eq!(&data, b"abcdefghij");
    }

    proptest! {
        #[test]
        fn pieces_equal_the_whole(data: Vec<u8>, key: [u8; 4], cut: prop::sample::Index) {
            let mut whole = data.clone();
            apply(&mut whole, key, 0);
            let mut pieces = data.clone();
            let cut = cut.index(data.len() + 1);
            let (head, tail) = pieces.split_at_mut(cut);
            apply(head, key, 0);
            apply(tail, key, cut);
            prop_assert_eq!(&whole, &pieces);
            prop_assert_eq!(whole, naive(&data, key, 0));
        }
    }
}
