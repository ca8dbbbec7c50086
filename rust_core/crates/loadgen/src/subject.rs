//! Subjects of the workloads, written without allocating.

/// Bytes of a prefix and of the longest number.
const CAPACITY: usize = 3 + 10;

/// A prefix and a number: `/c/17`, a user; `/s/3`, a provider; `/b/0`, a broadcast.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject {
    bytes: [u8; CAPACITY],
    start: u8,
}

impl Subject {
    /// Return `/c/N`, the subject on which user N receives replies.
    #[inline]
    pub(crate) fn user(number: u32) -> Self {
        Self::new(*b"/c/", number)
    }

    /// Return `/s/K`, the subject on which provider K receives requests.
    #[inline]
    pub(crate) fn provider(number: u32) -> Self {
        Self::new(*b"/s/", number)
    }

    /// Return `/b/S`, a subject on which messages are broadcast.
    #[inline]
    pub(crate) fn broadcast(number: u32) -> Self {
        Self::new(*b"/b/", number)
    }

    /// Return `/p/K`, the subject of publisher K, on which nothing is ever published.
    pub(crate) fn publisher(number: u32) -> Self {
        Self::new(*b"/p/", number)
    }

    /// Filled from the end, so that the digits need not be counted first.
    #[inline]
    fn new(prefix: [u8; 3], mut number: u32) -> Self {
        let mut bytes = [b'0'; CAPACITY];
        let mut start = CAPACITY;
        loop {
            start -= 1;
            bytes[start] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        start -= prefix.len();
        bytes[start..start + prefix.len()].copy_from_slice(&prefix);
        Self {
            bytes,
            start: start as u8,
        }
    }

    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[usize::from(self.start)..]
    }
}

/// Return the number of the provider with this subject.
pub(crate) fn parse_provider(subject: &[u8]) -> Option<u32> {
    let digits = subject.strip_prefix(b"/s/")?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_length() {
        let mut number = 1;
        while number < u32::MAX / 10 {
            for n in [0, number, number * 10 - 1] {
                assert_eq!(Subject::user(n).as_bytes(), format!("/c/{n}").as_bytes());
                assert_eq!(parse_provider(Subject::provider(n).as_bytes()), Some(n));
            }
            number *= 10;
        }
        assert_eq!(Subject::user(u32::MAX).as_bytes(), b"/c/4294967295");
    }

    #[test]
    fn other_subjects_are_no_provider() {
        for subject in [
            &b""[..],
            b"/s/",
            b"/c/1",
            b"/s/-1",
            b"/s/x",
            b"/s/4294967296",
            b"/s/\xff",
        ] {
            assert_eq!(parse_provider(subject), None);
        }
    }
}
