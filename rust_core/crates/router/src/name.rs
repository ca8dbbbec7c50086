//! Short text kept in place.

/// Longest text kept in place, in bytes: the random token of a client's inbox has this length.
const INLINE: usize = 22;

/// An immutable byte string of 24 bytes that allocates only beyond [`INLINE`] bytes.
pub(crate) enum Name {
    Inline { len: u8, bytes: [u8; INLINE] },
    Heap(Box<[u8]>),
}

impl Name {
    pub(crate) fn new(text: &[u8]) -> Self {
        let mut bytes = [0; INLINE];
        match (bytes.get_mut(..text.len()), u8::try_from(text.len())) {
            (Some(place), Ok(len)) => {
                place.copy_from_slice(text);
                Self::Inline { len, bytes }
            }
            _ => Self::Heap(text.into()),
        }
    }

    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Inline { len, bytes } => bytes.get(..usize::from(*len)).unwrap_or_default(),
            Self::Heap(text) => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_every_length_is_kept() {
        assert_eq!(size_of::<Name>(), 24);
        for len in 0..600 {
            let text: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            let name = Name::new(&text);
            assert_eq!(name.as_bytes(), text);
            assert_eq!(matches!(name, Name::Inline { .. }), len <= INLINE);
        }
    }
}
