//! Fast hashes of bytes, to find equal tensors and rows. They are keyed by random numbers of this
//! process, so they differ from run to run and are never shown.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::OnceLock;

/// Bytes that one hash of [`Keys::block`] covers.
const BLOCK: usize = 1 << 10;

/// Bytes of a pair of words, which are multiplied with each other.
const PAIR: usize = 16;

/// Hashes bytes that arrive in pieces of any size.
///
/// Blocks are hashed with NH in words of 64 bits (Black, Halevi, Krawczyk, Krovetz, Rogaway, "UMAC:
/// Fast and Secure Message Authentication"): different blocks have the same hash with a probability
/// of at most 2^-64, even if they were chosen to collide.
#[derive(Debug, Clone, Default)]
pub struct ByteHash {
    sums: [u64; 2],
    /// The index of the first block, and of the block after the last complete one.
    first: u64,
    blocks: u64,
    /// The bytes of the incomplete block.
    begun: Vec<u8>,
}

impl ByteHash {
    /// Creates the hash of the bytes from an offset on, for [`ByteHash::append`]; `None` if no block
    /// begins there.
    pub fn from_offset(offset: u64) -> Option<Self> {
        let (first, within) = (offset / BLOCK as u64, offset % BLOCK as u64);
        (within == 0).then(|| Self { first, blocks: first, ..Self::default() })
    }

    /// Appends the bytes of another hash. Returns false if they do not begin where these end.
    pub fn append(&mut self, next: Self) -> bool {
        if !self.begun.is_empty() || self.blocks != next.first {
            return false;
        }
        for (sum, of_next) in self.sums.iter_mut().zip(next.sums) {
            *sum = sum.wrapping_add(of_next);
        }
        (self.blocks, self.begun) = (next.blocks, next.begun);
        true
    }

    /// Processes the next bytes.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        if !self.begun.is_empty() {
            let (head, rest) = bytes.split_at(bytes.len().min(BLOCK - self.begun.len()));
            self.begun.extend_from_slice(head);
            bytes = rest;
            if self.begun.len() < BLOCK {
                return;
            }
            let begun = std::mem::take(&mut self.begun);
            self.add(&begun);
            self.begun = begun;
            self.begun.clear();
        }
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        blocks.iter().for_each(|block| self.add(block));
        self.begun.extend_from_slice(rest);
    }

    /// Returns the hash of all bytes, and starts again.
    pub fn finish(&mut self) -> u128 {
        let rest = std::mem::take(&mut self.begun);
        self.add(&rest);
        let [one, other] = std::mem::take(&mut self.sums);
        let bytes = self.blocks.wrapping_mul(BLOCK as u64).wrapping_add(rest.len() as u64);
        (self.first, self.blocks) = (0, 0);
        self.begun = rest;
        self.begun.clear();
        u128::from(mixed(one, bytes)) << 64 | u128::from(mixed(other, bytes))
    }

    fn add(&mut self, block: &[u8]) {
        let hash = Keys::of_process().block(block);
        for (sum, hash) in self.sums.iter_mut().zip([hash as u64, (hash >> 64) as u64]) {
            *sum = sum.wrapping_add(mixed(hash, self.blocks));
        }
        self.blocks += 1;
    }
}

/// Mixes a hash with a number. With the same number, different hashes stay different.
fn mixed(hash: u64, number: u64) -> u64 {
    // The finaliser of SplitMix64.
    let mut bits = hash ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

/// The words that the words of a block are added to.
struct Keys([[u64; 2]; BLOCK / PAIR]);

impl Keys {
    /// Returns the keys of this process.
    fn of_process() -> &'static Self {
        static KEYS: OnceLock<Keys> = OnceLock::new();
        KEYS.get_or_init(|| {
            let random = RandomState::new();
            let key = |at: usize| random.hash_one(at);
            Self(std::array::from_fn(|at| [key(2 * at), key(2 * at + 1)]))
        })
    }

    /// Hashes at most [`BLOCK`] bytes; zeros at the end make no difference.
    fn block(&self, bytes: &[u8]) -> u128 {
        let (pairs, rest) = bytes.as_chunks::<PAIR>();
        let add = |sum: u128, (pair, keys)| sum.wrapping_add(product(pair, keys));
        let sum = pairs.iter().zip(&self.0).fold(0, add);
        let mut last = [0; PAIR];
        last[..rest.len()].copy_from_slice(rest);
        self.0.get(pairs.len()).map_or(sum, |keys| add(sum, (&last, keys)))
    }
}

/// Returns the product of the two words of a pair, each with its key added.
#[inline(always)]
fn product(pair: &[u8; PAIR], keys: &[u64; 2]) -> u128 {
    let words = pair.as_chunks::<8>().0;
    let word = |at: usize| u128::from(u64::from_le_bytes(words[at]).wrapping_add(keys[at]));
    word(0) * word(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(bytes: &[u8], piece: usize) -> u128 {
        let mut hash = ByteHash::default();
        bytes.chunks(piece).for_each(|piece| hash.feed(piece));
        let found = hash.finish();
        // It starts again.
        hash.feed(bytes);
        assert_eq!(hash.finish(), found);
        found
    }

    #[test]
    fn hashes_every_bit_and_ignores_pieces() {
        let bytes: Vec<u8> = (0..5_000u32).map(|at| (at * at % 251) as u8).collect();
        let whole = hash(&bytes, bytes.len());
        for piece in [1, 3, 32, 999, BLOCK, BLOCK + 1] {
            assert_eq!(hash(&bytes, piece), whole, "{piece}");
        }
        for at in [BLOCK, 3 * BLOCK] {
            let mut head = ByteHash::default();
            head.feed(&bytes[..at]);
            let mut rest = ByteHash::from_offset(at as u64).unwrap();
            rest.feed(&bytes[at..]);
            assert!(head.append(rest.clone()) && !head.append(rest), "{at}");
            assert_eq!(head.finish(), whole, "{at}");
        }
        assert!(ByteHash::from_offset(BLOCK as u64 + 1).is_none());
        let mut seen = std::collections::HashSet::from([whole]);
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1 << (at % 8);
            assert!(seen.insert(hash(&other, BLOCK)), "byte {at}");
        }
        // Lengths count, and so does the order of the blocks.
        for len in 0..100 {
            assert!(seen.insert(hash(&vec![0; len * 30], BLOCK)), "{len}");
        }
        let mut other = bytes.clone();
        other[..2 * BLOCK].rotate_left(BLOCK);
        assert!(seen.insert(hash(&other, BLOCK)));
    }
}
