//! A list that grows without being copied: that of a pickle's objects is the largest thing that
//! reading it holds, and a list that doubles needs three times its room while it does.

use std::ops::{Index, IndexMut};

use statelens_checkpoint::{Result, room};

/// Items by number.
#[derive(Debug, Clone)]
pub(crate) struct Pieces<T> {
    /// All but the last hold [`CHUNK`].
    chunks: Vec<Vec<T>>,
}

/// Items of a piece.
const CHUNK: usize = 1 << 14;

impl<T> Pieces<T> {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        let last = self.chunks.last().map_or(0, Vec::len);
        self.chunks.len().saturating_sub(1) * CHUNK + last
    }

    pub(crate) fn get(&self, at: usize) -> Option<&T> {
        self.chunks.get(at / CHUNK)?.get(at % CHUNK)
    }

    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.chunks.get_mut(at / CHUNK)?.get_mut(at % CHUNK)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten()
    }

    /// Adds one; fails where there is no memory for it.
    pub(crate) fn push(&mut self, item: T) -> Result<()> {
        match self.chunks.last_mut() {
            Some(last) if last.len() < CHUNK => room::push(last, item),
            before => {
                // The first grows, for most lists are small.
                let room = if before.is_some() { CHUNK as u64 } else { 1 };
                let mut chunk = room::vec(room)?;
                chunk.push(item);
                room::push(&mut self.chunks, chunk)
            }
        }
    }
}

impl<T> Default for Pieces<T> {
    fn default() -> Self {
        Self { chunks: Vec::new() }
    }
}

impl<T> Index<usize> for Pieces<T> {
    type Output = T;

    fn index(&self, at: usize) -> &T {
        &self.chunks[at / CHUNK][at % CHUNK]
    }
}

impl<T> IndexMut<usize> for Pieces<T> {
    fn index_mut(&mut self, at: usize) -> &mut T {
        &mut self.chunks[at / CHUNK][at % CHUNK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_one_list() {
        let mut items = Pieces::default();
        assert_eq!((items.len(), items.get(0)), (0, None));
        for at in 0..3 * CHUNK {
            assert_eq!(items.len(), at);
            items.push(at).unwrap();
        }
        for at in [0, 1, CHUNK - 1, CHUNK, 2 * CHUNK, 3 * CHUNK - 1] {
            assert_eq!((items.get(at), items[at]), (Some(&at), at));
            items[at] = usize::MAX;
            assert_eq!(items.get_mut(at).copied(), Some(usize::MAX));
        }
        assert_eq!(items.get(3 * CHUNK), None);
        assert_eq!(items.iter().filter(|item| **item == usize::MAX).count(), 6);
        assert_eq!(items.iter().count(), 3 * CHUNK);
    }
}
