//! Compares the storages that a pickle of torch refers to with the archive members that hold their
//! data.
//!
//! torch takes the length of a storage from the pickle (`PyTorchFileReader::getRecord` gives it the
//! bytes of the member), so a longer one reaches into other memory.

use foldhash::{HashMap, HashMapExt};
use statelens_checkpoint::{Finding, Grade};
use statelens_pickle::Pickle;

use super::super::zip::{self, ZipEntry};
use super::{Blob, Search};

/// The folder of the example inputs of a traced module.
const TRACED_INPUTS: &[u8] = b"/traced_inputs";

/// The cost of looking up the length of a member.
const LOOKUP: u64 = 200;

/// Members of archives that may hold storages.
#[derive(Default)]
pub(super) struct Records {
    /// For each directory with pickles, the lengths of its members by name.
    directories: Vec<HashMap<Vec<u8>, u64>>,
    /// For each pickle, by space and offset, the folders with its storages.
    stored: HashMap<(usize, u64), Vec<Folder>>,
    /// The same for compressed pickles, by the path to them.
    packed: HashMap<String, Vec<Folder>>,
}

/// A directory, and the folder in it with the storages of a pickle.
#[derive(Clone)]
struct Folder {
    directory: usize,
    name: Vec<u8>,
}

/// Records the lengths of an archive's members, if there are pickles among them.
pub(super) fn remember(search: &mut Search<'_>, blob: &Blob, entries: &[ZipEntry]) {
    let directory = search.records.directories.len();
    let mut any = false;
    for entry in entries {
        let Some(name) = entry.name.strip_suffix(b".pkl") else { continue };
        let folder = Folder { directory, name: name.to_vec() };
        any = true;
        if let Some(local) = zip::local(&*blob.source, entry.header) {
            let start = (blob.space, blob.base + local.start);
            search.records.stored.entry(start).or_default().push(folder.clone());
        }
        let way = blob.within(&String::from_utf8_lossy(&entry.name));
        search.records.packed.entry(way).or_default().push(folder);
    }
    if !any {
        return;
    }
    let mut lengths = HashMap::with_capacity(entries.len());
    for entry in entries {
        // If two members have the same name, a loader may read either.
        let len = lengths.entry(entry.name.clone()).or_insert(entry.len);
        *len = entry.len.min(*len);
    }
    search.records.directories.push(lengths);
}

/// Compares the storages that the pickle at `at` refers to with the members in the folder of the
/// same name: those of `archive/data.pkl` are `archive/data/0` etc.
pub(super) fn compare(search: &mut Search<'_>, blob: &Blob, at: u64, pickle: &Pickle) {
    let records = &search.records;
    let unpacked = || records.packed.get(&blob.name).filter(|_| blob.root);
    let folders = records.stored.get(&(blob.space, blob.base + at)).or_else(unpacked);
    let Some(folders) = folders.cloned() else { return };
    let comparisons = pickle.storage_lengths().count() * folders.len();
    if !search.spend(comparisons as u64 * LOOKUP) {
        return;
    }
    let records = &search.records;
    let (mut first, mut count) = (None, 0u64);
    let mut name = Vec::new();
    for (key, len) in pickle.storage_lengths() {
        for Folder { directory, name: folder } in &folders {
            name.clear();
            [folder, &b"/"[..], key.as_bytes()].iter().for_each(|part| name.extend(*part));
            let there = records.directories.get(*directory).and_then(|lengths| lengths.get(&name));
            // `torch.jit.save` keeps the shapes of example inputs, and no values.
            let shapes_only = folder.ends_with(TRACED_INPUTS) && there == Some(&0);
            if let Some(there) = there.filter(|there| **there < len && !shapes_only) {
                count += 1;
                first.get_or_insert_with(|| {
                    let name = String::from_utf8_lossy(&name);
                    format!("{name} should have {len} bytes and has {there}.")
                });
            }
        }
    }
    let Some(first) = first else { return };
    let others = match count {
        1 => String::new(),
        count => format!(" There are {} more.", count - 1),
    };
    let finding = Finding::new(Grade::Damage, "A storage is longer than its bytes in the file")
        .detail(format!("{first}{others} torch would read other memory past their end."))
        .advice("Do not load the file.");
    search.report(blob, vec![finding]);
}
