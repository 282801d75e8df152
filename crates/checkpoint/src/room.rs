//! Memory that may not be there: where a size comes from a file or grows with one, the system is
//! asked, and its refusal is an error like any other. A program that just allocates is killed.

use crate::{Error, Result};

/// Makes room for `more` items in a vector.
pub fn make_room<T>(vec: &mut Vec<T>, more: u64) -> Result<()> {
    let bytes = more.saturating_mul(size_of::<T>().max(1) as u64);
    let size = usize::try_from(more).map_err(|_| no_room(bytes))?;
    vec.try_reserve(size).map_err(|_| no_room(bytes))
}

/// So many zeros.
pub fn zeros(len: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let size = usize::try_from(len).map_err(|_| no_room(len))?;
    bytes.try_reserve_exact(size).map_err(|_| no_room(len))?;
    bytes.resize(size, 0);
    Ok(bytes)
}

/// Adds an item; fails where there is no memory for it.
pub fn push<T>(vec: &mut Vec<T>, item: T) -> Result<()> {
    if vec.len() == vec.capacity() {
        make_room(vec, 1)?;
    }
    vec.push(item);
    Ok(())
}

fn no_room(bytes: u64) -> Error {
    Error::limit(format!("there is no memory for {bytes} more bytes"))
        .advice("Close other programs, or use a machine with more memory.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_an_error() {
        assert!(zeros(u64::MAX).is_err());
        assert!(zeros(1 << 60).is_err());
        assert_eq!(zeros(3).unwrap(), [0, 0, 0]);
        let mut words: Vec<u64> = Vec::new();
        assert!(make_room(&mut words, 1 << 58).is_err());
        push(&mut words, 7).unwrap();
        assert_eq!(words, [7]);
    }
}
