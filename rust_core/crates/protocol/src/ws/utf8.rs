//! UTF-8 validation of text that arrives in pieces (RFC 6455 section 8.1).

/// The text is not UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidUtf8;

/// Validates a text given in pieces and keeps only the character that a piece left incomplete.
#[derive(Clone, Copy, Debug, Default)]
pub struct Validator {
    /// First bytes of an incomplete character, of which `len`, at most three, are valid.
    tail: [u8; 3],
    len: u8,
}

impl Validator {
    /// Return a validator at the start of a text.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            tail: [0; 3],
            len: 0,
        }
    }

    /// Check the next piece.
    ///
    /// # Errors
    /// [`InvalidUtf8`] as soon as no continuation could make the text valid, that is, at the
    /// earliest byte that shows it. The validator must not be used after that.
    #[inline]
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<(), InvalidUtf8> {
        if self.len > 0 {
            bytes = self.complete_character(bytes)?;
        }
        let Err(error) = std::str::from_utf8(bytes) else {
            return Ok(());
        };
        let incomplete = bytes.get(error.valid_up_to()..).unwrap_or_default();
        if error.error_len().is_some() || incomplete.len() > self.tail.len() {
            return Err(InvalidUtf8);
        }
        for (kept, byte) in self.tail.iter_mut().zip(incomplete) {
            *kept = *byte;
            self.len += 1;
        }
        Ok(())
    }

    /// End the text and make the validator ready for the next one.
    ///
    /// # Errors
    /// [`InvalidUtf8`] when the text ends inside a character.
    #[inline]
    pub fn finish(&mut self) -> Result<(), InvalidUtf8> {
        match std::mem::take(&mut self.len) {
            0 => Ok(()),
            _ => Err(InvalidUtf8),
        }
    }

    /// Take bytes until the kept character is complete; return the bytes after it.
    fn complete_character<'a>(&mut self, mut bytes: &'a [u8]) -> Result<&'a [u8], InvalidUtf8> {
        let [a, b, c] = self.tail;
        let mut character = [a, b, c, 0];
        while self.len > 0 {
            let Some((&byte, rest)) = bytes.split_first() else {
                break;
            };
            let len = usize::from(self.len);
            *character.get_mut(len).ok_or(InvalidUtf8)? = byte;
            bytes = rest;
            match std::str::from_utf8(&character[..=len]) {
                Ok(_) => self.len = 0,
                Err(error) if error.error_len().is_some() => return Err(InvalidUtf8),
                Err(_) => self.len += 1,
            }
        }
        self.tail.copy_from_slice(&character[..3]);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    /// Return the number of bytes fed one by one before the first error, `finish` being one more
    /// step.
    fn first_error(bytes: &[u8]) -> Option<usize> {
        let mut validator = Validator::default();
        for (i, byte) in bytes.iter().enumerate() {
            if validator.feed(&[*byte]).is_err() {
                return Some(i);
            }
        }
        validator.finish().is_err().then_some(bytes.len())
    }

    #[test]
    fn state_is_small() {
        assert!(size_of::<Validator>() <= 4);
    }

    #[test]
    fn fails_at_the_earliest_impossible_byte() {
        let cases: [(&[u8], Option<usize>); 14] = [
            (b"", None),
            ("κόσμε \u{10ffff} \u{ffff}".as_bytes(), None),
            (b"\x80", Some(0)),
            (b"\xc0\xaf", Some(0)),
            (b"\xc3", Some(1)),
            (b"a\xc3\x28", Some(2)),
            (b"\xe0\x9f\xbf", Some(1)),
            (b"\xed\xa0\x80", Some(1)),
            (b"\xe2\x82", Some(2)),
            (b"\xf0\x8f\xbf\xbf", Some(1)),
            (b"\xf4\x90\x80\x80", Some(1)),
            (b"\xf0\x9f\x98", Some(3)),
            (b"\xf0\x9f\x98\x28", Some(3)),
            (b"\xf5", Some(0)),
        ];
        for (bytes, want) in cases {
            assert_eq!(first_error(bytes), want, "{bytes:x?}");
        }
    }

    #[test]
    fn finish_makes_ready_for_the_next_text() {
        let mut validator = Validator::default();
        validator.feed(b"\xe2\x82").unwrap();
        assert_eq!(validator.finish(), Err(InvalidUtf8));
        validator.feed(b"\xe2\x82\xac").unwrap();
        assert_eq!(validator.finish(), Ok(()));
    }

    proptest! {
        #[test]
        fn pieces_agree_with_the_standard_library(
            bytes in prop_oneof![
                any::<Vec<u8>>(),
                any::<String>().prop_map(String::into_bytes),
                (any::<String>(), any::<u8>()).prop_map(|(s, b)| {
                    let mut bytes = s.into_bytes();
                    let middle = bytes.len() / 2;
                    bytes.insert(middle, b);
                    bytes
                }),
            ],
            size in 1_usize..9,
        ) {
            let mut validator = Validator::default();
            let fed = bytes.chunks(size).try_for_each(|piece| validator.feed(piece));
            let valid = fed.and_then(|()| validator.finish()).is_ok();
            prop_assert_eq!(valid, std::str::from_utf8(&bytes).is_ok());
        }
    }
}
