//! Long lists for checkpoints with very many keys. They grow without copying, since a vector that
//! doubles needs three times its size meanwhile, and free the memory of items that were taken.

use std::ops::{Index, IndexMut};
use std::{slice, vec};

use crate::{Limits, Result, try_alloc};

/// A list stored in chunks, indexed by number.
#[derive(Debug, Clone)]
pub struct Pieces<T> {
    chunks: Vec<PieceChunk<T>>,
}

/// A list of slices, each identified by its start and length.
#[derive(Debug, Clone)]
pub struct Slices<T> {
    chunks: Vec<PieceChunk<T>>,
}

/// A chunk, which is freed as a whole.
#[derive(Debug, Clone)]
struct PieceChunk<T> {
    items: Vec<T>,
    /// The number of items that were taken or forgotten.
    released: usize,
}

/// Maximum number of bytes in a chunk; a longer slice has a chunk of its own. Chunks of all lists
/// have about the same size, so that the memory of a freed one fits a new one.
const BYTES: usize = 256 << 10;

/// Returns the number of items in a chunk: a power of two.
const fn items_of<T>() -> usize {
    let most = match size_of::<T>() {
        0 => BYTES,
        size => BYTES / size,
    };
    if most < 2 { 1 } else { 1 << most.ilog2() }
}

impl<T> Pieces<T> {
    const CHUNK: usize = items_of::<T>();

    /// Returns the number of items, including those already taken.
    pub fn len(&self) -> usize {
        // The last chunk is never freed.
        let last = self.chunks.last().map_or(0, |chunk| chunk.items.len());
        self.chunks.len().saturating_sub(1) * Self::CHUNK + last
    }

    /// Returns whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the item.
    pub fn get(&self, at: usize) -> Option<&T> {
        self.chunks.get(at / Self::CHUNK)?.items.get(at % Self::CHUNK)
    }

    /// Returns the item for editing.
    pub fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.chunks.get_mut(at / Self::CHUNK)?.items.get_mut(at % Self::CHUNK)
    }

    /// Iterates over the items that have not been freed.
    pub fn iter(&self) -> Iter<'_, T> {
        Iter { chunks: self.chunks.iter(), items: [].iter() }
    }

    /// Iterates over the items that have not been freed, with their numbers.
    pub fn numbered(&self) -> impl Iterator<Item = (usize, &T)> {
        self.chunks.iter().enumerate().flat_map(|(chunk, items)| {
            items.items.iter().enumerate().map(move |(at, item)| (chunk * Self::CHUNK + at, item))
        })
    }

    /// Appends an item; fails if there is no memory for it.
    pub fn push(&mut self, item: T) -> Result<()> {
        room_for(&mut self.chunks, 1)?.push(item);
        Ok(())
    }

    /// Takes an item and puts `instead` in its place. Must be called at most once per item. Once
    /// all items of a chunk are taken, the chunk is freed and its items no longer exist.
    pub fn take(&mut self, at: usize, instead: T) -> Option<T> {
        let item = std::mem::replace(self.get_mut(at)?, instead);
        forget(&mut self.chunks, at / Self::CHUNK, 1);
        Some(item)
    }
}

impl<T: Copy> Slices<T> {
    const CHUNK: usize = items_of::<T>();

    /// Appends a slice; returns its start.
    pub fn push(&mut self, items: &[T]) -> Result<u32> {
        let chunk = room_for(&mut self.chunks, items.len())?;
        let at = chunk.len();
        chunk.extend_from_slice(items);
        let start = (self.chunks.len() - 1) * Self::CHUNK + at;
        Limits::check("items of all tuples", start as u64, u64::from(u32::MAX))?;
        Ok(start as u32)
    }

    /// Returns the slice of `len` items that begins at `start`; empty if it does not exist.
    pub fn get(&self, start: u32, len: u32) -> &[T] {
        let (start, len) = (start as usize, len as usize);
        let (chunk, at) = (self.chunks.get(start / Self::CHUNK), start % Self::CHUNK);
        chunk.and_then(|chunk| chunk.items.get(at..at + len)).unwrap_or_default()
    }

    /// Marks a slice as unused. Must be called at most once per slice.
    pub fn forget(&mut self, start: u32, len: u32) {
        forget(&mut self.chunks, start as usize / Self::CHUNK, len as usize);
    }
}

/// An iterator over the items of a [`Pieces`], which frees each chunk after its last item.
#[derive(Debug)]
pub struct IntoIter<T> {
    chunks: vec::IntoIter<PieceChunk<T>>,
    items: vec::IntoIter<T>,
}

impl<T> Iterator for IntoIter<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        loop {
            if let Some(item) = self.items.next() {
                return Some(item);
            }
            self.items = self.chunks.next()?.items.into_iter();
        }
    }
}

/// An iterator over a [`Pieces`].
#[derive(Debug, Clone)]
pub struct Iter<'a, T> {
    chunks: slice::Iter<'a, PieceChunk<T>>,
    items: slice::Iter<'a, T>,
}

impl<'a, T> Iterator for Iter<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        loop {
            if let Some(item) = self.items.next() {
                return Some(item);
            }
            self.items = self.chunks.next()?.items.iter();
        }
    }
}

impl<T> IntoIterator for Pieces<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;

    fn into_iter(self) -> IntoIter<T> {
        IntoIter { chunks: self.chunks.into_iter(), items: Vec::new().into_iter() }
    }
}

impl<'a, T> IntoIterator for &'a Pieces<T> {
    type Item = &'a T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

/// Returns a chunk with room for `more` items.
fn room_for<T>(chunks: &mut Vec<PieceChunk<T>>, more: usize) -> Result<&mut Vec<T>> {
    let fits = chunks.last().is_some_and(|chunk| chunk.items.len() + more <= items_of::<T>());
    if !fits {
        // The first chunk grows on demand, since most lists are small.
        let room = if chunks.is_empty() { more } else { more.max(items_of::<T>()) };
        let items = try_alloc::vec(room as u64)?;
        try_alloc::push(chunks, PieceChunk { items, released: 0 })?;
    }
    let last = chunks.len() - 1;
    try_alloc::make_room(&mut chunks[last].items, more as u64)?;
    Ok(&mut chunks[last].items)
}

/// Counts `count` items of a chunk as unused and frees the chunk once all are. The last chunk is
/// kept, since it may grow.
fn forget<T>(chunks: &mut [PieceChunk<T>], at: usize, count: usize) {
    let is_last = at + 1 >= chunks.len();
    if let Some(chunk) = chunks.get_mut(at) {
        chunk.released += count;
        if chunk.released >= chunk.items.len() && !is_last {
            chunk.items = Vec::new();
        }
    }
}

impl<T> Default for Pieces<T> {
    fn default() -> Self {
        Self { chunks: Vec::new() }
    }
}

impl<T> Default for Slices<T> {
    fn default() -> Self {
        Self { chunks: Vec::new() }
    }
}

impl<T> Index<usize> for Pieces<T> {
    type Output = T;

    fn index(&self, at: usize) -> &T {
        &self.chunks[at / Self::CHUNK].items[at % Self::CHUNK]
    }
}

impl<T> IndexMut<usize> for Pieces<T> {
    fn index_mut(&mut self, at: usize) -> &mut T {
        &mut self.chunks[at / Self::CHUNK].items[at % Self::CHUNK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: usize = items_of::<usize>();

    #[test]
    fn pieces_behave_as_one_list() {
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

    #[test]
    fn frees_a_chunk_when_all_items_are_released() {
        let mut items = Pieces::default();
        for at in 0..2 * CHUNK + 1 {
            items.push(at).unwrap();
        }
        for at in CHUNK..2 * CHUNK {
            assert_eq!(items.get(2 * CHUNK - 1), Some(&(2 * CHUNK - 1)));
            assert_eq!(items.take(at, 0), Some(at));
        }
        assert_eq!(items.get(CHUNK), None);
        assert_eq!(items.take(CHUNK, 0), None);
        assert_eq!(items.take(2 * CHUNK, 7), Some(2 * CHUNK));
        // The last chunk is kept, and items keep their numbers.
        assert_eq!((items.len(), items.get(2 * CHUNK)), (2 * CHUNK + 1, Some(&7)));
        assert_eq!(items.numbered().nth(CHUNK), Some((2 * CHUNK, &7)));
    }

    #[test]
    fn slices_are_contiguous_and_freed_on_release() {
        let mut slices = Slices::default();
        let long: Vec<usize> = (0..2 * CHUNK + 5).collect();
        let lists = [&long[..3], &long[..CHUNK - 1], &long, &long[5..8], &[]];
        let starts: Vec<u32> = lists.iter().map(|list| slices.push(list).unwrap()).collect();
        for (list, start) in lists.iter().zip(&starts) {
            assert_eq!(slices.get(*start, list.len() as u32), *list);
        }
        slices.forget(starts[2], long.len() as u32);
        assert!(slices.get(starts[2], long.len() as u32).is_empty());
        assert_eq!(slices.get(starts[1], 2), [0, 1]);
        assert_eq!(slices.get(starts[3], 3), [5, 6, 7]);
        assert!(slices.get(u32::MAX, u32::MAX).is_empty());
    }
}
