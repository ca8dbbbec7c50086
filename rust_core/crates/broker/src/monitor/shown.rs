//! Texts that clients choose, as pages show them: cut where they are long, so that a page has a longest
//! length whatever its clients are called and subscribe to.

use std::borrow::Cow;

/// Bytes of a subject or queue group that are shown at most, as they stand in JSON.
pub(super) const SUBJECT: usize = 256;
/// Bytes of a client's name, language or version that are shown at most, as they stand in JSON.
pub(super) const NAME: usize = 128;

/// Ends a text that is cut.
const ELLIPSIS: char = '…';
/// Bytes of a character at most.
const CHARACTER: usize = 4;

/// Return a text with as many characters as fit into `longest` bytes of JSON, and an ellipsis when that is
/// not all. Bytes that are not UTF-8 become U+FFFD.
pub(super) fn shown(text: &[u8], longest: usize) -> Cow<'_, str> {
    // In JSON nothing is shorter than here, so that the bytes behind need not be looked at.
    let head = &text[..text.len().min(longest + CHARACTER)];
    let head = String::from_utf8_lossy(head);
    let mut left = longest;
    let fits = |(_, character): &(usize, char)| {
        let rest = left.checked_sub(length_in_json(*character));
        left = rest.unwrap_or(0);
        rest.is_some()
    };
    let end = head
        .char_indices()
        .take_while(fits)
        .last()
        .map_or(0, |(at, character)| at + character.len_utf8());
    if end == head.len() {
        return head;
    }
    let mut cut = head.into_owned();
    cut.truncate(end);
    cut.push(ELLIPSIS);
    Cow::Owned(cut)
}

/// Return the bytes of a character in a JSON string as `serde_json` writes it.
const fn length_in_json(character: char) -> usize {
    match character {
        '"' | '\\' | '\u{8}' | '\t' | '\n' | '\u{c}' | '\r' => 2,
        '\0'..='\u{1f}' => 6,
        other => other.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Return the bytes that a text has in JSON, without its quotes.
    fn written(text: &str) -> usize {
        serde_json::to_string(text).expect("a string").len() - 2
    }

    #[test]
    fn what_fits_is_shown_whole() {
        assert_eq!(shown(b"", 5), "");
        assert_eq!(shown(b"a.b.c", 5), "a.b.c");
        assert!(matches!(shown(b"a.b.c", 5), Cow::Borrowed(_)));
        assert_eq!(shown(b"\xff", 5), "\u{fffd}");
    }

    #[test]
    fn what_does_not_fit_ends_in_an_ellipsis() {
        assert_eq!(shown(b"a.b.cd", 5), "a.b.c…");
        assert_eq!(shown("äöü".as_bytes(), 5), "äö…");
        assert_eq!(shown(b"\x01\x01", 11), "\u{1}…");
        assert_eq!(shown(b"\"\"\"", 5), "\"\"…");
        assert_eq!(shown(&[b'a'; 5000], 256).len(), 256 + ELLIPSIS.len_utf8());
    }

    #[test]
    fn characters_are_as_long_as_they_are_written() {
        for character in (0..=0x2000).filter_map(char::from_u32) {
            let text = character.to_string();
            assert_eq!(length_in_json(character), written(&text), "{character:?}");
        }
    }

    proptest! {
        #[test]
        fn the_longest_beginning_is_shown(
            text in prop::collection::vec(any::<u8>(), 0..60),
            longest in 0_usize..40,
        ) {
            let shown = shown(&text, longest);
            let whole = String::from_utf8_lossy(&text);
            match shown.strip_suffix(ELLIPSIS).filter(|_| shown != whole) {
                None => {
                    prop_assert_eq!(&shown, &whole);
                    prop_assert!(written(&whole) <= longest);
                }
                Some(cut) => {
                    prop_assert!(whole.starts_with(cut) && written(cut) <= longest);
                    let next = whole[cut.len()..].chars().next().expect("there is more");
                    prop_assert!(written(cut) + length_in_json(next) > longest);
                }
            }
        }
    }
}
