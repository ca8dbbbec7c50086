//! Short text kept in place.

/// A text of up to `INLINE` bytes kept in place, or a longer one on the heap; never changed.
///
/// `INLINE` is at most 31. A name takes `INLINE` + 1 bytes, rounded up to a multiple of 8.
pub(crate) enum Name<const INLINE: usize> {
    Inline { len: Len, bytes: [u8; INLINE] },
    Heap(Box<[u8]>),
}

/// A length of at most 31. It is an enum so that the compiler keeps in the same byte which variant a
/// [`Name`] is.
#[derive(Clone, Copy)]
#[repr(u8)]
#[rustfmt::skip]
pub(crate) enum Len {
    L0, L1, L2, L3, L4, L5, L6, L7, L8, L9, L10, L11, L12, L13, L14, L15,
    L16, L17, L18, L19, L20, L21, L22, L23, L24, L25, L26, L27, L28, L29, L30, L31,
}

impl Len {
    #[rustfmt::skip]
    const ALL: [Self; 32] = [
        Self::L0, Self::L1, Self::L2, Self::L3, Self::L4, Self::L5, Self::L6, Self::L7,
        Self::L8, Self::L9, Self::L10, Self::L11, Self::L12, Self::L13, Self::L14, Self::L15,
        Self::L16, Self::L17, Self::L18, Self::L19, Self::L20, Self::L21, Self::L22, Self::L23,
        Self::L24, Self::L25, Self::L26, Self::L27, Self::L28, Self::L29, Self::L30, Self::L31,
    ];
}

impl<const INLINE: usize> Name<INLINE> {
    pub(crate) fn new(text: &[u8]) -> Self {
        let mut bytes = [0; INLINE];
        match (bytes.get_mut(..text.len()), Len::ALL.get(text.len())) {
            (Some(place), Some(&len)) => {
                place.copy_from_slice(text);
                Self::Inline { len, bytes }
            }
            _ => Self::Heap(text.into()),
        }
    }

    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Inline { len, bytes } => bytes.get(..*len as usize).unwrap_or_default(),
            Self::Heap(text) => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<const INLINE: usize>(size: usize) {
        assert_eq!(size_of::<Name<INLINE>>(), size);
        assert_eq!(size_of::<Option<Name<INLINE>>>(), size);
        for len in 0..600 {
            let text: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            let name = Name::<INLINE>::new(&text);
            assert_eq!(name.as_bytes(), text);
            assert_eq!(matches!(name, Name::Inline { .. }), len <= INLINE);
        }
    }

    #[test]
    fn text_of_every_length_is_kept() {
        check::<23>(24);
        check::<31>(32);
    }
}
