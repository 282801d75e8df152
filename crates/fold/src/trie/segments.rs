//! Keys split into segments, and signatures of rows.

use std::hash::{BuildHasher, Hash};

use foldhash::quality::FixedState;
use foldhash::{HashMap, HashMapExt};
use statelens_checkpoint::numbers::Numbered;
use statelens_checkpoint::slices::{ITEMS, pause};

use super::{Foldable, NONE, Sums};

/// A deeper key keeps its tail in one segment, so that recursion over the tree is bounded.
const MAX_DEPTH: usize = 48;

/// The signature of a subtree.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Signs {
    /// Equal for equal keys, dtypes and shapes.
    pub(super) strict: u64,
    /// Equal for equal keys and dtypes.
    pub(super) loose: u64,
}

/// All keys, split into segments.
#[derive(Debug)]
pub(super) struct Segments {
    pub(super) dot: char,
    /// The texts of all segments, concatenated.
    pub(super) text: String,
    pub(super) all: Vec<KeySegment>,
    /// The last segment of each row's key.
    pub(super) of_row: Vec<u32>,
    /// The signature of each row.
    pub(super) signs: Vec<Signs>,
    /// The contribution of each row to sums.
    pub(super) sums: Vec<Sums>,
}

#[derive(Debug, Default)]
pub(super) struct KeySegment {
    pub(super) parent: u32,
    pub(super) start: u32,
    pub(super) end: u32,
    /// The last number in it.
    pub(super) number: Option<u64>,
    /// Equal for segments that differ only in that number; 0 for segments that are only a number.
    pub(super) pattern: u64,
    pub(super) hash: u64,
}

impl Segments {
    /// Splits the keys of all rows, with pauses.
    pub(super) async fn new<L: Foldable>(rows: &[L], dot: char) -> Self {
        let mut out = Self {
            dot,
            text: String::new(),
            all: Vec::with_capacity(rows.len() + 1),
            of_row: Vec::with_capacity(rows.len()),
            signs: Vec::with_capacity(rows.len()),
            sums: Vec::with_capacity(rows.len()),
        };
        out.all.push(KeySegment::default());
        let mut found = SegmentLookup::new(rows.len());
        // The segments of the previous key: neighbours have most of theirs in common.
        let mut path: Vec<(&str, u32)> = Vec::new();
        for (id, row) in rows.iter().enumerate() {
            if id % ITEMS == ITEMS - 1 {
                pause().await;
            }
            out.sums.push(Sums::of(row));
            let (mut at, mut depth) = (0, 0);
            for segment in row.properties().key.splitn(MAX_DEPTH, dot) {
                let known = path.get(depth).filter(|(name, _)| *name == segment);
                at = match known {
                    Some(&(_, known)) => known,
                    None => {
                        path.truncate(depth);
                        let at = found.get(&mut out, at, segment);
                        path.push((segment, at));
                        at
                    }
                };
                depth += 1;
            }
            path.truncate(depth);
            out.of_row.push(at);
            let before = id.checked_sub(1).map(|at| (&rows[at], out.signs[at]));
            out.signs.push(match before {
                Some((before, signs)) if is_similar(before, row) => signs,
                _ => Signs::of(row),
            });
        }
        out
    }

    fn push(&mut self, parent: u32, name: &str) -> u32 {
        let start = self.text.len() as u32;
        self.text.push_str(name);
        // The root has no siblings to fold with, so its children's names need no hash.
        let hash = if parent == 0 { 0 } else { hash_of(&name) };
        let found = Numbered::of(name);
        let pattern = match found {
            Some(found) if !found.is_all() => hash_of(&(found.before, found.after)) | 1,
            _ => 0,
        };
        let (end, number) = (self.text.len() as u32, found.map(|found| found.number));
        self.all.push(KeySegment { parent, start, end, number, pattern, hash });
        (self.all.len() - 1) as u32
    }
}

/// Finds segments by parent and name while keys are split. Most parents have a few children, which
/// are compared one by one; the others use a hash map.
struct SegmentLookup<'a> {
    /// For each segment: its name, its newest child, its previous sibling, and its number of
    /// children.
    pub(super) all: Vec<(&'a str, u32, u32, u32)>,
    many: HashMap<(u32, &'a str), u32>,
    /// The number of keys.
    keys: usize,
}

/// Up to this many names are compared one by one.
const MAX_LINEAR: u32 = 8;

impl<'a> SegmentLookup<'a> {
    /// Creates a lookup with room for a segment of each of `keys` keys.
    fn new(keys: usize) -> Self {
        let mut all = Vec::with_capacity(keys + 1);
        all.push(("", NONE, NONE, 0));
        Self { all, many: HashMap::new(), keys }
    }

    fn get(&mut self, segments: &mut Segments, parent: u32, name: &'a str) -> u32 {
        let (_, newest, _, count) = self.all[parent as usize];
        let known = if count > MAX_LINEAR {
            self.many.get(&(parent, name)).copied()
        } else {
            self.below(newest).find(|&(_, other)| other == name).map(|(at, _)| at)
        };
        if let Some(known) = known {
            return known;
        }
        let new = segments.push(parent, name);
        self.all.push((name, NONE, newest, 0));
        let above = &mut self.all[parent as usize];
        (above.1, above.3) = (new, count + 1);
        if count > MAX_LINEAR {
            self.many.insert((parent, name), new);
        } else if count == MAX_LINEAR {
            // A table that grows hashes all its names again.
            self.many.reserve(self.keys - self.many.len().min(self.keys));
            let all: Vec<_> = self.below(new).collect();
            self.many.extend(all.into_iter().map(|(at, name)| ((parent, name), at)));
        }
        new
    }

    /// Returns the children of a segment, the newest first.
    fn below(&self, newest: u32) -> impl Iterator<Item = (u32, &'a str)> {
        let next = |at: u32| self.all.get(at as usize).map(|one| (at, one.0, one.2));
        std::iter::successors(next(newest), move |one| next(one.2)).map(|one| (one.0, one.1))
    }
}

impl Signs {
    fn of(row: &impl Foldable) -> Self {
        let row = row.properties();
        let loose = (row.kind, row.dtype, row.link.is_some());
        Self { strict: hash_of(&(loose, row.shape)), loose: hash_of(&loose) }
    }

    /// Adds the signature of a child, independently of the order of children.
    pub(super) fn add(&mut self, name: u64, signs: Self) {
        self.strict = self.strict.wrapping_add(mixed(name, signs.strict));
        self.loose = self.loose.wrapping_add(mixed(name, signs.loose));
    }
}

fn hash_of(value: &impl Hash) -> u64 {
    FixedState::default().hash_one(value)
}

/// Mixes two hashes into one.
pub(super) fn mixed(one: u64, other: u64) -> u64 {
    let sum = (one.rotate_left(23) ^ other).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (sum ^ (sum >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

fn is_similar(one: &impl Foldable, other: &impl Foldable) -> bool {
    let (one, other) = (one.properties(), other.properties());
    one.kind == other.kind
        && one.shape == other.shape
        && one.dtype == other.dtype
        && one.link.is_some() == other.link.is_some()
}
