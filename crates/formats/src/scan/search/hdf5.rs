//! Finds pickles in HDF5. PyTables, pandas and Cerebras store Python objects in attributes and in
//! datasets of strings, opaque bytes and sequences of bytes. Keras stores its configuration in an
//! attribute.

use std::collections::BTreeSet;

use statelens_checkpoint::{Error, FileSet, Limits, Result};
use statelens_hdf5::{
    Class, Dataset, Datatype, Hdf5File, LinkValue, Object, ObjectKind, ObjectTree,
};

use super::super::fatal;
use super::{Blob, Container, Search, SharedSource, graphs};
use crate::keras;
use crate::paths::is_outside;

/// The maximum number of bytes read of a value.
const MAX_VALUE_BYTES: u64 = 64 << 20;
/// The maximum number of bytes read of all values together.
const MAX_BYTES: u64 = 256 << 20;
/// The maximum number of links to other files that are listed.
const MAX_LINKS: usize = 50;
/// The cost of an object, of a byte of values, and of a byte of JSON.
const OBJECT: u64 = 3_000;
const VALUE: u64 = 4;
const JSON: u64 = 60;
/// The length of the shortest pickle that calls something.
const MIN_LEN: usize = 6;

/// Examines all values in a container that may be pickles.
pub(super) fn examine(search: &mut Search<'_>, blob: &Blob) -> Result<()> {
    let mut limits: Limits = search.limits.clone();
    limits.structure = limits.structure.min(MAX_VALUE_BYTES);
    let files = FileSet::single("", SharedSource(blob.source.clone()));
    let id = files.main()?;
    let file = match Hdf5File::open(&files, id, &limits) {
        Ok(file) => file,
        Err(error) => return unread(search, blob, &error),
    };
    let start = file.user_block();
    if !search.is_new(Container::Hdf5, blob, start, 0) {
        return Ok(());
    }
    let tree = match file.tree(&mut search.quiet()) {
        Ok(tree) => tree,
        Err(error) => return unread(search, blob, &error),
    };
    if !search.spend(tree.objects.len() as u64 * OBJECT) {
        return Ok(());
    }
    for error in troubles(&tree) {
        unread(search, blob, error)?;
    }
    let links = tree.groups.links.values().flatten().flatten();
    let outside = links.filter_map(|link| match &link.target {
        LinkValue::External(external) => Some(external.file.to_lossy().into_owned()),
        _ => None,
    });
    let outside: BTreeSet<String> = outside.filter(|file| is_outside(file)).collect();
    let outside = outside.into_iter().take(MAX_LINKS);
    search.report(blob, outside.map(|file| graphs::outside(&file)).collect());
    let mut values = Values { file: &file, files: &files, left: MAX_BYTES };
    for object in tree.objects.values().flatten() {
        if !values.object(search, blob, object)? {
            break;
        }
    }
    Ok(())
}

/// Returns the errors for all parts of a file that can't be read.
fn troubles(tree: &ObjectTree) -> impl Iterator<Item = &Error> {
    let objects = tree.objects.values().flat_map(|object| match object {
        Ok(object) => {
            let unreadable = match &object.kind {
                ObjectKind::Unreadable(error) => Some(error),
                _ => None,
            };
            object.troubles.iter().chain(unreadable)
        }
        Err(error) => [].iter().chain(Some(error)),
    });
    let groups = tree.groups.links.values().filter_map(|links| links.as_ref().err());
    objects.chain(groups).chain(tree.groups.troubles.values().flatten())
}

/// Reports that a part of the file can't be read.
fn unread(search: &mut Search<'_>, blob: &Blob, error: &Error) -> Result<()> {
    fatal(error)?;
    search.unseen(blob, "a part of the HDF5 file", &error.to_string());
    Ok(())
}

/// Reads the values of a file.
struct Values<'a> {
    file: &'a Hdf5File,
    files: &'a FileSet,
    /// The remaining budget in bytes.
    left: u64,
}

impl Values<'_> {
    /// Examines the values of an object. Returns false if the budget is exhausted.
    fn object(&mut self, search: &mut Search<'_>, blob: &Blob, object: &Object) -> Result<bool> {
        for attribute in &object.attributes {
            if !may_hold(&attribute.datatype) {
                continue;
            }
            let name = attribute.name.to_lossy();
            let found = self.bytes(&attribute.datatype, attribute.data.to_vec());
            if !self.examine(search, blob, &name, found)? {
                return Ok(false);
            }
        }
        match object.dataset() {
            Some(dataset) if may_hold(&dataset.datatype) => self.dataset(search, blob, dataset),
            _ => Ok(true),
        }
    }

    fn dataset(&mut self, search: &mut Search<'_>, blob: &Blob, dataset: &Dataset) -> Result<bool> {
        let bytes = dataset.count().unwrap_or(u64::MAX).saturating_mul(dataset.datatype.size);
        // The sweep through all bytes covers contiguous integers.
        let swept = dataset.is_contiguous() && matches!(dataset.datatype.class, Class::Int { .. });
        if bytes > MAX_VALUE_BYTES && swept {
            return Ok(true);
        }
        if bytes > MAX_VALUE_BYTES {
            let why = "It has more bytes than the limit allows.";
            search.unseen(blob, "a dataset of the HDF5 file", why);
            return Ok(true);
        }
        if !search.spend(bytes * VALUE) {
            return Ok(false);
        }
        let found = self
            .file
            .read(dataset, self.files)
            .and_then(|data| self.bytes(&dataset.datatype, data));
        self.examine(search, blob, "a dataset", found)
    }

    fn examine(
        &mut self,
        search: &mut Search<'_>,
        blob: &Blob,
        name: &str,
        found: Result<Vec<Vec<u8>>>,
    ) -> Result<bool> {
        let values = match found {
            Ok(values) => values,
            Err(error) => return unread(search, blob, &error).map(|()| true),
        };
        for bytes in values {
            // Each value gets a space of its own, which costs more than its length.
            let cost = bytes.len() as u64 + 64;
            if self.left < cost {
                let why = "There are too many bytes of them.";
                search.unseen(blob, "all attributes and strings of the HDF5 file", why);
                return Ok(false);
            }
            self.left -= cost;
            if matches!(name, "model_config" | "training_config" | "layer_config")
                && search.spend(bytes.len() as u64 * JSON)
            {
                search.report(blob, keras::code::findings(&bytes));
            }
            if bytes.len() >= MIN_LEN {
                search.decoded(blob, name, bytes)?;
            }
        }
        Ok(true)
    }

    /// Returns the runs of bytes that a program may extract from elements of this type.
    fn bytes(&mut self, datatype: &Datatype, data: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        let mut found = Vec::new();
        let mut open = vec![(datatype.clone(), data)];
        while let Some((datatype, data)) = open.pop() {
            let size = usize::try_from(datatype.size).unwrap_or(usize::MAX).max(1);
            match &datatype.class {
                _ if !may_hold(&datatype) => {}
                _ if size == 1 => found.push(data),
                Class::VlenStr | Class::Vlen(_) => {
                    let elements = self.file.vlen_elements(&datatype, &data)?;
                    match &datatype.class {
                        Class::Vlen(base) if !is_byte(base) => {
                            let base = Datatype::clone(base);
                            open.extend(elements.into_iter().map(|bytes| (base.clone(), bytes)));
                        }
                        _ => found.extend(elements),
                    }
                }
                Class::Array { base, .. } => {
                    for element in data.chunks_exact(size) {
                        open.push((Datatype::clone(base), element.to_vec()));
                    }
                }
                Class::Compound(members) => {
                    for record in data.chunks_exact(size) {
                        for member in members.iter().filter(|member| may_hold(&member.datatype)) {
                            let start = usize::try_from(member.offset).unwrap_or(usize::MAX);
                            let rest = record.get(start..).unwrap_or_default();
                            let len = usize::try_from(member.datatype.size).unwrap_or(usize::MAX);
                            let bytes = rest[..len.min(rest.len())].to_vec();
                            open.push((member.datatype.clone(), bytes));
                        }
                    }
                }
                _ => found.extend(data.chunks_exact(size).map(<[u8]>::to_vec)),
            }
            let cost = 64 * (open.len() + found.len()) as u64;
            Limits::check("values in one value of the HDF5 file", cost, MAX_BYTES)?;
        }
        Ok(found)
    }
}

/// Returns whether elements of this type are or contain arbitrary bytes.
fn may_hold(datatype: &Datatype) -> bool {
    match &datatype.class {
        Class::Str(_) | Class::Opaque { .. } | Class::VlenStr => true,
        Class::Int { .. } | Class::Bits { .. } | Class::Enum { .. } => datatype.size == 1,
        // The reader of datatypes limits their nesting.
        Class::Vlen(base) | Class::Array { base, .. } => may_hold(base),
        Class::Compound(members) => members.iter().any(|member| may_hold(&member.datatype)),
        _ => false,
    }
}

fn is_byte(datatype: &Datatype) -> bool {
    datatype.size == 1
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use statelens_checkpoint::{ErrorKind, Grade, Memory, OneThread, ReadAt, Unwatched};

    use super::*;
    use crate::ScanOptions;
    use crate::budget::Budget;

    /// Returns the kinds of errors in a file.
    fn kinds(bytes: &[u8]) -> BTreeSet<&'static str> {
        let limits = Limits::default();
        let files = FileSet::single("", Memory::from(bytes.to_vec()));
        let file = files.main().and_then(|id| Hdf5File::open(&files, id, &limits));
        let Ok(file) = file else { return BTreeSet::from(["file"]) };
        let Ok(tree) = file.tree(&mut Unwatched) else { return BTreeSet::from(["tree"]) };
        let mut kinds = BTreeSet::new();
        for object in tree.objects.values() {
            match object {
                Ok(Object { kind: ObjectKind::Unreadable(_), .. }) => kinds.insert("unreadable"),
                Ok(object) if !object.troubles.is_empty() => kinds.insert("part of an object"),
                Ok(_) => false,
                Err(_) => kinds.insert("object"),
            };
        }
        if tree.groups.links.values().any(Result::is_err) {
            kinds.insert("links");
        }
        if tree.groups.troubles.values().any(|troubles| !troubles.is_empty()) {
            kinds.insert("part of a group");
        }
        kinds
    }

    /// A file whose reads fail after some.
    #[derive(Debug)]
    struct Failing {
        bytes: Memory,
        left: AtomicUsize,
    }

    impl ReadAt for Failing {
        fn len(&self) -> u64 {
            self.bytes.len()
        }

        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
            let left = self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
            left.map_err(|_| Error::io("the disk is gone"))?;
            self.bytes.read_at(offset, buffer)
        }
    }

    /// An error of the disk ends the scan: it says nothing about the file.
    #[test]
    fn failed_reads_end_the_scan() {
        let whole = statelens_fixtures::read("attacks_hdf5/enumeration.h5");
        let examine_with = |left: usize| {
            let (limits, options) = (Limits::default(), ScanOptions::default());
            let mut progress = Unwatched;
            let budget = Budget::within(&limits);
            let mut search = Search::new(&limits, &options, budget, &OneThread, &mut progress);
            let (bytes, left) = (Memory::from(whole.clone()), AtomicUsize::new(left));
            let blob = search.root_blob(Arc::new(Failing { bytes, left }));
            examine(&mut search, &blob)
        };
        let enough = (0..100).find(|reads| examine_with(*reads).is_ok()).unwrap();
        assert!(enough > 0);
        for reads in 0..enough {
            assert_eq!(examine_with(reads).unwrap_err().kind(), ErrorKind::Io, "{reads}");
        }
    }

    /// Damages a file in every place, and expects a finding for each kind of error.
    #[test]
    fn every_error_of_the_reader_is_a_finding() {
        let mut seen = BTreeSet::new();
        let mut silent = Vec::new();
        for name in ["attribute_text", "attribute_opaque", "enumeration"] {
            let whole = statelens_fixtures::read(&format!("attacks_hdf5/{name}.h5"));
            for place in 0..whole.len() {
                let mut bytes = whole.clone();
                bytes[place] ^= 0xff;
                let kinds = kinds(&bytes);
                if kinds.is_empty() {
                    continue;
                }
                let (limits, options) = (Limits::default(), ScanOptions::default());
                let mut progress = Unwatched;
                let budget = Budget::within(&limits);
                let mut search = Search::new(&limits, &options, budget, &OneThread, &mut progress);
                let blob = search.root_blob(Arc::new(Memory::from(bytes)));
                examine(&mut search, &blob).unwrap();
                let findings = search.findings.finish();
                let unseen = findings.iter().any(|finding| {
                    finding.grade == Grade::UnknownCode && finding.title.contains("a part of")
                });
                if !unseen {
                    silent.push((name, place, kinds.clone()));
                }
                if kinds.len() == 1 {
                    seen.extend(kinds);
                }
            }
        }
        assert_eq!(silent, Vec::new());
        let all = ["file", "links", "object", "part of a group", "part of an object", "unreadable"];
        assert!(seen.into_iter().eq(all));
    }
}
