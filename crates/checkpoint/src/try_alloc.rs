//! Allocation that returns an error instead of aborting, for sizes that come from a file or grow
//! with one.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hash};

use crate::{Error, Result};

/// The code of the error for a failed allocation.
pub const CODE: &str = "memory";

/// Reserves room for `more` items in a vector.
pub fn make_room<T>(vec: &mut Vec<T>, more: u64) -> Result<()> {
    let bytes = more.saturating_mul(size_of::<T>().max(1) as u64);
    let size = usize::try_from(more).map_err(|_| no_room(bytes))?;
    vec.try_reserve(size).map_err(|_| no_room(bytes))
}

/// Reserves room for `more` bytes in a text.
pub fn make_room_in_text(text: &mut String, more: usize) -> Result<()> {
    text.try_reserve(more).map_err(|_| no_room(more as u64))
}

/// Returns `len` zero bytes.
pub fn zeros(len: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let size = usize::try_from(len).map_err(|_| no_room(len))?;
    bytes.try_reserve_exact(size).map_err(|_| no_room(len))?;
    bytes.resize(size, 0);
    Ok(bytes)
}

/// Returns an empty vector with room for `len` items.
pub fn vec<T>(len: u64) -> Result<Vec<T>> {
    let mut vec = Vec::new();
    let bytes = len.saturating_mul(size_of::<T>().max(1) as u64);
    let size = usize::try_from(len).map_err(|_| no_room(bytes))?;
    vec.try_reserve_exact(size).map_err(|_| no_room(bytes))?;
    Ok(vec)
}

/// Returns a vector of `len` copies of `item`.
pub fn filled<T: Clone>(item: T, len: usize) -> Result<Vec<T>> {
    let mut vec = vec(len as u64)?;
    vec.resize(len, item);
    Ok(vec)
}

/// Returns a copy of `items`.
pub fn copied<T: Clone>(items: &[T]) -> Result<Vec<T>> {
    let mut copy = vec(items.len() as u64)?;
    copy.extend_from_slice(items);
    Ok(copy)
}

/// Collects an iterator of unknown length into a vector.
pub fn collect<T>(items: impl IntoIterator<Item = T>) -> Result<Vec<T>> {
    let items = items.into_iter();
    let mut all = vec(items.size_hint().0 as u64)?;
    for item in items {
        push(&mut all, item)?;
    }
    Ok(all)
}

/// Reserves room for `more` entries in a map.
pub fn make_room_in_map<K: Eq + Hash, V, S: BuildHasher>(
    map: &mut HashMap<K, V, S>,
    more: usize,
) -> Result<()> {
    let bytes = (more as u64).saturating_mul(size_of::<(K, V)>() as u64);
    map.try_reserve(more).map_err(|_| no_room(bytes))
}

/// Sets an entry of a map; fails if there is no memory for it.
pub fn insert<K: Eq + Hash, V, S: BuildHasher>(
    map: &mut HashMap<K, V, S>,
    key: K,
    value: V,
) -> Result<Option<V>> {
    make_room_in_map(map, 1)?;
    Ok(map.insert(key, value))
}

/// Adds an item to a set and returns whether it was new; fails if there is no memory for it.
pub fn add<T: Eq + Hash>(set: &mut HashSet<T>, item: T) -> Result<bool> {
    set.try_reserve(1).map_err(|_| no_room(size_of::<T>() as u64))?;
    Ok(set.insert(item))
}

/// Appends an item; fails if there is no memory for it.
pub fn push<T>(vec: &mut Vec<T>, item: T) -> Result<()> {
    if vec.len() == vec.capacity() {
        make_room(vec, 1)?;
    }
    vec.push(item);
    Ok(())
}

/// Fails if there is no memory for `bytes` bytes. Called before code that allocates without
/// reporting failure, such as starting a thread or sorting.
pub fn ahead(bytes: u64) -> Result<()> {
    // Without this the compiler removes the unused allocation.
    std::hint::black_box(vec::<u8>(bytes)?);
    Ok(())
}

fn no_room(bytes: u64) -> Error {
    Error::limit(format!("there is no memory for {bytes} more bytes"))
        .coded(CODE)
        .advice("Close other programs, or use a machine with more memory.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_allocation_is_an_error() {
        assert!(zeros(u64::MAX).is_err());
        assert_eq!(zeros(1 << 60).unwrap_err().code(), CODE);
        assert_eq!(zeros(3).unwrap(), [0, 0, 0]);
        let mut words: Vec<u64> = Vec::new();
        assert!(make_room(&mut words, 1 << 58).is_err());
        push(&mut words, 7).unwrap();
        assert_eq!(words, [7]);
        assert!(vec::<u64>(1 << 60).is_err());
        assert!(filled(0u64, 1 << 59).is_err());
        assert!(ahead(1 << 60).is_err() && ahead(1 << 10).is_ok());
        assert_eq!(filled(5u8, 2).unwrap(), [5, 5]);
        assert_eq!(copied(&[1, 2]).unwrap(), [1, 2]);
        assert_eq!(collect((0..9).filter(|n| n % 2 == 0)).unwrap(), [0, 2, 4, 6, 8]);
        let mut map: HashMap<u64, u64> = HashMap::new();
        assert!(make_room_in_map(&mut map, 1 << 60).is_err());
        assert_eq!(insert(&mut map, 1, 2).unwrap(), None);
        assert_eq!(insert(&mut map, 1, 3).unwrap(), Some(2));
        let mut set = HashSet::new();
        assert!(add(&mut set, 1).unwrap() && !add(&mut set, 1).unwrap());
    }
}
