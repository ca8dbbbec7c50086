//! Enums whose variants name the places of a set: a counter, a value, a description for each.

use std::fmt;
use std::ops::{Index, IndexMut};

/// Enum whose variants are the keys of a set. [`keys!`](crate::keys) declares one.
pub trait Key: Copy + Send + Sync + 'static {
    /// Type of a key's description: a name, or a whole [`Metric`](crate::metric::Metric).
    type About: 'static;
    /// Array with one element for each key.
    type Array<T: Send + Sync>: AsRef<[T]> + AsMut<[T]> + Send + Sync;

    /// All keys, in the order of their indexes.
    const ALL: &'static [Self];

    /// Return the index of this key, below the number of keys.
    fn index(self) -> usize;

    /// Return the description of this key.
    fn about(self) -> &'static Self::About;

    /// Make an array from a value for each key.
    fn array<T: Send + Sync>(make: impl FnMut(Self) -> T) -> Self::Array<T>;
}

/// Declare an enum of keys: each variant stands once, with its description.
///
/// ```
/// use subjectbus_telemetry::key::Key;
///
/// subjectbus_telemetry::keys! {
///     /// A colour, described by its name.
///     pub enum Colour: &'static str {
///         /// Not blue.
///         Red = "red",
///         /// Not red.
///         Blue = "blue",
///     }
/// }
/// assert_eq!((Colour::Blue.index(), *Colour::Blue.about()), (1, "blue"));
/// ```
#[macro_export]
macro_rules! keys {
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $name:ident: $about:ty {
            $($(#[$variant_attribute:meta])* $variant:ident = $description:expr,)*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $visibility enum $name {
            $($(#[$variant_attribute])* $variant,)*
        }

        impl $crate::key::Key for $name {
            type About = $about;
            type Array<T: Send + Sync> = [T; [$(Self::$variant),*].len()];

            const ALL: &'static [Self] = &[$(Self::$variant,)*];

            #[inline]
            fn index(self) -> usize {
                self as usize
            }

            fn about(self) -> &'static Self::About {
                const ABOUT: &[$about] = &[$($description,)*];
                &ABOUT[self as usize]
            }

            fn array<T: Send + Sync>(mut make: impl FnMut(Self) -> T) -> Self::Array<T> {
                std::array::from_fn(|index| make(Self::ALL[index]))
            }
        }
    };
}

/// Map that has a value for every key.
pub struct KeyMap<K: Key, V: Send + Sync>(K::Array<V>);

impl<K: Key, V: Send + Sync> KeyMap<K, V> {
    /// Make a map from a value for each key.
    pub fn new(make: impl FnMut(K) -> V) -> Self {
        Self(K::array(make))
    }

    /// Visit all keys with their values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        K::ALL.iter().copied().zip(self.0.as_ref())
    }
}

impl<K: Key, V: Send + Sync> Index<K> for KeyMap<K, V> {
    type Output = V;

    #[inline]
    fn index(&self, key: K) -> &V {
        &self.0.as_ref()[key.index()]
    }
}

impl<K: Key, V: Send + Sync> IndexMut<K> for KeyMap<K, V> {
    #[inline]
    fn index_mut(&mut self, key: K) -> &mut V {
        &mut self.0.as_mut()[key.index()]
    }
}

impl<K: Key, V: Clone + Send + Sync> Clone for KeyMap<K, V> {
    fn clone(&self) -> Self {
        Self::new(|key| self[key].clone())
    }
}

impl<K: Key, V: PartialEq + Send + Sync> PartialEq for KeyMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_ref() == other.0.as_ref()
    }
}

impl<K: Key, V: Eq + Send + Sync> Eq for KeyMap<K, V> {}

impl<K: Key + fmt::Debug, V: fmt::Debug + Send + Sync> fmt::Debug for KeyMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::keys! {
        /// Sizes with their numbers.
        enum Size: u32 {
            Small = 1,
            Large = 10,
        }
    }

    #[test]
    fn every_key_has_its_own_place_and_description() {
        let indexes: Vec<_> = Size::ALL.iter().map(|size| size.index()).collect();
        assert_eq!(indexes, [0, 1]);
        let about: Vec<_> = Size::ALL.iter().map(|size| *size.about()).collect();
        assert_eq!(about, [1, 10]);
    }

    #[test]
    fn a_map_has_a_value_for_every_key() {
        let mut map = KeyMap::new(|size: Size| size.about() * 2);
        assert_eq!((map[Size::Small], map[Size::Large]), (2, 20));
        let before = map.clone();
        map[Size::Large] = 7;
        let pairs: Vec<_> = map.iter().map(|(size, value)| (size, *value)).collect();
        assert_eq!(pairs, [(Size::Small, 2), (Size::Large, 7)]);
        assert_ne!(map, before);
        assert_eq!(format!("{map:?}"), "{Small: 2, Large: 7}");
    }
}
