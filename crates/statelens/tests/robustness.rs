//! Hostile and damaged files result in an error or an inert tree, in bounded time and memory.
//!
//! Tries the attacks and broken files unchanged, and every fixture cut short at 200 places and with
//! one byte flipped at 200 places (3 without `STATELENS_DEEP=1`). Opens and flattens each, and
//! reads its data.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking"
)]

#[path = "it/corpus.rs"]
mod corpus;

use std::collections::HashSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use corpus::{files, fixtures, manifest, name, open};
use peak_alloc::PeakAlloc;
use statelens::Progress;
use statelens::parts::checkpoint::Checkpoint;
use statelens::parts::formats::FORMATS;
use statelens_fixtures::busy;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Folders with fixtures of formats that are not named after the id of one.
const FOLDERS: [&str; 15] = [
    "attacks",
    "cerebras",
    "cerebras_s3/seed",
    "dcp_ranks",
    "dcp_single",
    "gguf_split",
    "hf_sharded_safetensors",
    "numpy",
    "sharded",
    "tf",
    "tf_crafted",
    "torch",
    "torch_crafted",
    "torch_export",
    "torchscript",
];

/// Returns the folders with fixtures of formats: [`FOLDERS`], and those named after the id of a
/// format.
fn format_folders() -> Vec<&'static str> {
    let ids = FORMATS.iter().flat_map(|format| format.ids).copied();
    let own = ids.filter(|id| fixtures().join(id).is_dir());
    let mut folders: Vec<&str> = FOLDERS.into_iter().chain(own).collect();
    folders.sort_unstable();
    folders.dedup();
    folders
}

const MAX_MEMORY: usize = 256 << 20;
const MAX_TIME: Duration = Duration::from_secs(2);
/// The file that the attacks would create if their code were run.
const CANARY: &str = "statelens-canary-PWNED";

#[test]
fn attacks_and_broken_files_stay_within_memory() {
    let _alone = alone();
    let mut opened = 0;
    for path in files("attacks").iter().chain(&files("cerebras/errors")) {
        ALLOCATOR.reset_peak_usage();
        let before = ALLOCATOR.current_usage();
        let bytes = fs::read(path).unwrap();
        opened += usize::from(survive(&name(path), &FixtureSet::of(path), &bytes));
        let used = ALLOCATOR.peak_usage() - before;
        assert!(used < MAX_MEMORY, "{}: {} MB", name(path), used >> 20);
        assert!(!canary(), "{} was run", name(path));
    }
    // Most hostile files are readable and are shown as inert trees.
    assert!(opened > 50, "only {opened} gave a tree");
}

#[test]
fn canary_name_matches_the_attacks() {
    // The check above looks in the working directory, where a call would leave the file.
    let index = fs::read_to_string(fixtures().join("attacks/index.json")).unwrap();
    assert!(index.contains(&format!("\"canary\": \"{CANARY}\"")));
}

#[test]
fn truncated_and_corrupted_fixtures_stay_within_memory() {
    let _alone = alone();
    ALLOCATOR.reset_peak_usage();
    let mut paths: Vec<PathBuf> =
        format_folders().iter().flat_map(|folder| files(folder)).collect();
    // The largest first, to balance the load of the threads.
    paths.sort_by_key(|path| std::cmp::Reverse(fs::metadata(path).unwrap().len()));
    let next = AtomicUsize::new(0);
    let count = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        // Two threads, so that the memory of both together stays under the limit for one.
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
                    count.fetch_add(damage(path), Ordering::Relaxed);
                }
            });
        }
    });
    let peak = ALLOCATOR.peak_usage();
    println!("{} damaged files, {} MB at most", count.load(Ordering::Relaxed), peak >> 20);
    assert!(peak < MAX_MEMORY, "{} MB", peak >> 20);
    assert!(!canary());
}

#[test]
fn damage_tests_cover_every_format() {
    let mut missing: Vec<_> = FORMATS.iter().map(|format| (format.name, format.ids)).collect();
    for path in format_folders().iter().flat_map(|folder| files(folder)) {
        if missing.is_empty() {
            break;
        }
        let opened = FixtureSet::of(&path).open(fs::read(&path).unwrap());
        missing.retain(|(_, ids)| !opened.as_ref().is_ok_and(|it| ids.contains(&it.format.id)));
    }
    assert!(missing.is_empty(), "no fixture in tests/fixtures/ID opens as {missing:?}");
}

/// The most files in a folder that are opened together.
const MAX_SET: usize = 8;

/// A fixture with the other files of its checkpoint.
struct FixtureSet {
    name: String,
    /// The file to open, if it is another one.
    main: Option<String>,
    others: Vec<PathBuf>,
}

impl FixtureSet {
    /// Finds the other files: those of a small folder that has an index.
    fn of(path: &Path) -> Self {
        let folder = path.parent().unwrap();
        let base = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
        let mut set = Self { name: base(path), main: None, others: Vec::new() };
        let mut all: Vec<PathBuf> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        all.sort();
        all.retain(|other| other.is_file());
        let is_index = |name: &str| {
            [".metadata", ".index", ".index.json"].iter().any(|end| name.ends_with(end))
        };
        let index = all.iter().map(|path| base(path)).find(|name| is_index(name));
        if let Some(index) = index.filter(|_| all.len() <= MAX_SET) {
            set.main = Some(index).filter(|_| !is_index(&set.name));
            all.retain(|other| other != path);
            set.others = all;
        }
        set
    }

    /// Opens the checkpoint with `bytes` in place of the fixture.
    fn open(&self, bytes: Vec<u8>) -> statelens::Result<Checkpoint> {
        open(&self.name, bytes, &self.others, self.main.as_deref())
    }
}

/// Tries one fixture in all its damaged forms; returns their number.
fn damage(path: &Path) -> usize {
    let set = &FixtureSet::of(path);
    let whole = fs::read(path).unwrap();
    let name = name(path);
    let mut random = Random(whole.len() as u64 ^ 0x9e37_79b9_7f4a_7c15);
    let variants = variants(whole.len());
    let cuts: HashSet<usize> = (0..variants).map(|i| random.place(i, whole.len())).collect();
    let flips: HashSet<usize> = (0..variants).map(|i| random.place(i, whole.len())).collect();
    for cut in &cuts {
        survive(&format!("{name}, cut at {cut}"), set, &whole[..*cut]);
    }
    let mut bytes = whole;
    for flip in flips.iter().filter(|flip| **flip < bytes.len()).copied().collect::<Vec<_>>() {
        let mask = random.next().to_le_bytes()[0].max(1);
        bytes[flip] ^= mask;
        survive(&format!("{name}, byte {flip} ^ {mask:#x}"), set, &bytes);
        bytes[flip] ^= mask;
    }
    cuts.len() + flips.len()
}

/// Returns the number of places: 200, fewer in files of more than a megabyte, or a few unless the
/// sweep is deep.
fn variants(len: usize) -> usize {
    statelens_fixtures::times(3, ((200 << 20) / len.max(1)).clamp(30, 200))
}

/// Opens the file and reads everything in it; returns whether it could be opened. Fails on a panic,
/// or if it takes too long.
fn survive(name: &str, set: &FixtureSet, bytes: &[u8]) -> bool {
    let before = busy();
    let outcome = catch_unwind(AssertUnwindSafe(|| read_all(name, set, bytes)));
    let taken = busy().saturating_sub(before);
    assert!(taken < MAX_TIME, "{name}: took {taken:?}");
    outcome.unwrap_or_else(|_| panic!("{name}: panicked"))
}

fn read_all(name: &str, set: &FixtureSet, bytes: &[u8]) -> bool {
    match set.open(bytes.to_vec()) {
        Ok(checkpoint) => {
            // Damaged bytes of a tensor are an error of their own.
            if let Err(error) = manifest(&checkpoint, &mut Patience) {
                assert!(!error.to_string().is_empty(), "{name}");
            }
            true
        }
        Err(error) => {
            assert!(!error.to_string().is_empty(), "{name}");
            false
        }
    }
}

/// Cancels after 32 MiB of data: a damaged shape can make a tensor of gigabytes out of one chunk
/// and a fill value, which takes long to hash.
struct Patience;

impl Progress for Patience {
    fn report(&mut self, done: u64, _total: u64) -> bool {
        done < 32 << 20
    }
}

fn canary() -> bool {
    Path::new(CANARY).exists()
}

/// Memory is counted for the whole process, so tests run one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// SplitMix64: the same places on every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns a place in a file of `len` bytes. Every other one is near the start or the end,
    /// where formats keep their structure.
    fn place(&mut self, index: usize, len: usize) -> usize {
        let below = |random: &mut Self, n: usize| (random.next() % n.max(1) as u64) as usize;
        let near = len.min(4096);
        match index % 4 {
            0 => below(self, near),
            2 => len - 1.min(len) - below(self, near).min(len.saturating_sub(1)),
            _ => below(self, len),
        }
    }
}
