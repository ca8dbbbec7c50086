//! Sets of names of header fields.

/// The longest name that a set may hold.
const MAX_LEN: usize = 47;

/// A set of `N` names, and of all names that begin with one of `P` prefixes, in any case of letters.
pub(super) struct FieldNames<const N: usize, const P: usize> {
    /// The names in the order of their length: a look-up compares only names of the right length.
    names: [&'static str; N],
    /// The index of the first name of each length or a greater one.
    starts: [u8; MAX_LEN + 2],
    /// The prefixes, each behind the number that [`mark`] makes of it: most names differ from all in that.
    prefixes: [(u32, &'static str); P],
}

impl<const N: usize, const P: usize> FieldNames<N, P> {
    /// Return the set of these names and prefixes, which must be in lower case; prefixes have three bytes
    /// at least.
    pub(super) const fn new(mut names: [&'static str; N], prefixes: [&'static str; P]) -> Self {
        let mut starts = [0; MAX_LEN + 2];
        let (mut sorted, mut len) = (0, 0);
        while len <= MAX_LEN {
            starts[len] = sorted as u8;
            let mut i = sorted;
            while i < N {
                if names[i].len() == len {
                    let name = names[i];
                    names[i] = names[sorted];
                    names[sorted] = name;
                    sorted += 1;
                }
                i += 1;
            }
            len += 1;
        }
        assert!(
            sorted == N && N < 256,
            "a name is too long, or there are too many"
        );
        starts[MAX_LEN + 1] = N as u8;
        let mut marked = [(0, ""); P];
        let mut i = 0;
        while i < P {
            marked[i] = (mark(prefixes[i].as_bytes()), prefixes[i]);
            i += 1;
        }
        Self {
            names,
            starts,
            prefixes: marked,
        }
    }

    /// Return whether the set has this name.
    #[inline]
    pub(super) fn contains(&self, name: &[u8]) -> bool {
        let is_it = |one: &&str| one.as_bytes().eq_ignore_ascii_case(name);
        let wanted = mark(name);
        let begins = |(mark, prefix): &(u32, &str)| {
            *mark == wanted
                && name
                    .get(..prefix.len())
                    .is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
        };
        self.prefixes.iter().any(begins)
            || name.len() <= MAX_LEN && {
                let [start, end] = [self.starts[name.len()], self.starts[name.len() + 1]];
                self.names[start.into()..end.into()].iter().any(is_it)
            }
    }
}

/// Return a number for the first three bytes, the same in either case of letters.
const fn mark(name: &[u8]) -> u32 {
    match name {
        [a, b, c, ..] => u32::from_le_bytes([*a, *b, *c, 0]) | 0x0020_2020,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_prefixes_in_any_case() {
        const SET: FieldNames<5, 2> =
            FieldNames::new(["te", "cookie", "x", "origin", "dnt"], ["sec-", "x-user"]);
        for name in [
            "te",
            "TE",
            "Cookie",
            "ORIGIN",
            "dnt",
            "X",
            "sec-",
            "Sec-Fetch-Site",
            "X-User",
            "x-userinfo",
        ] {
            assert!(SET.contains(name.as_bytes()), "{name}");
        }
        let long = "x".repeat(100);
        for name in [
            "", "t", "tea", "cookies", "rookie", "sec", "x-use", "y-user", "3-user", &long,
        ] {
            assert!(!SET.contains(name.as_bytes()), "{name}");
        }
        assert!(!FieldNames::<0, 0>::new([], []).contains(b"a"));
    }
}
