use std::collections::{BTreeMap, HashMap};

use statelens_checkpoint::{
    Checkpoint, Error, FileId, FileSet, Finding, FormatInfo, Grade, Layout, Limits, Progress,
    Result, Span, numel, try_alloc,
};

use super::bundle::{BundleEntry, Header};
use super::leaves::{BundleLeaves, Contents, NO_CHECKSUM};
use super::members::{self, BundleTables};
use super::table::SortedTable;
use super::{dtype, slices, strings, v1};

/// Opens the checkpoint to which the main file belongs. The main file may be the index, a data
/// file, a V1 file, a state file, or the graph of a SavedModel.
pub(crate) fn read(
    files: FileSet,
    limits: &Limits,
    progress: &mut dyn Progress,
) -> Result<Checkpoint> {
    progress.check(0, 0)?;
    let tables = members::find(&files)?;
    let Some(first) = tables.ids.first() else {
        return Err(Error::damaged("the checkpoint has no table"));
    };
    // The main file may be much smaller than the table it refers to.
    let size = tables.ids.iter().fold(0u64, |sum, id| sum.saturating_add(files.len(*id)));
    let limits = &limits.fitted(size);
    let (leaves, format, findings) = {
        let mut table = SortedTable::open(&files, *first, limits)?;
        if table.is_v1()? {
            v1::read(&files, tables, limits, progress)?
        } else {
            bundle(&files, table, tables, limits, progress)?
        }
    };
    leaves.finish(format, files, findings)
}

fn bundle(
    files: &FileSet,
    mut table: SortedTable<'_>,
    tables: BundleTables,
    limits: &Limits,
    progress: &mut dyn Progress,
) -> Result<Contents> {
    let mut header = None;
    let mut tensors: Vec<(Vec<u8>, BundleEntry)> = Vec::new();
    // Keys of slices begin with a zero byte; those of tensors never do.
    let mut parts: HashMap<Vec<u8>, BundleEntry> = HashMap::new();
    table.each(|key, block, value| {
        let value = block.bytes(value)?;
        if key.is_empty() {
            header = Some(Header::parse(&value)?);
            return Ok(());
        }
        let entry = BundleEntry::parse(&value)
            .map_err(|error| error.context(format!("`{}`", String::from_utf8_lossy(key))))?;
        match key {
            [0, ..] => drop(parts.insert(key.to_vec(), entry)),
            key => try_alloc::push(&mut tensors, (key.to_vec(), entry))?,
        }
        Ok(())
    })?;
    let header = header.ok_or_else(|| Error::damaged("the index has no header"))?;
    let mut bundle = Bundle {
        files,
        header,
        data: Data::new(files, &tables.prefix, header.shards),
        parts,
        leaves: BundleLeaves::new(limits),
        left: limits.structure,
    };
    for (index, (key, entry)) in tensors.iter().enumerate() {
        if index.is_multiple_of(1024) {
            progress.check(index as u64, tensors.len() as u64)?;
        }
        bundle.leaf(key, entry)?;
    }
    let Bundle { data, parts, leaves, .. } = bundle;
    let mut findings = tables.findings;
    findings.extend(table.findings());
    findings.extend(data.findings());
    if !parts.is_empty() {
        findings.push(Finding::new(
            Grade::Warning,
            format!("{} slices belong to no tensor, and are not shown", parts.len()),
        ));
    }
    let mut facts = vec![("Data files".into(), header.shards.to_string())];
    if header.byte_order == statelens_checkpoint::ByteOrder::Big {
        facts.push(("Byte order".into(), "big".into()));
    }
    facts.extend(tables.state.iter().flat_map(|state| state.facts()));
    let format = FormatInfo {
        id: "tensorflow",
        name: "TensorFlow checkpoint",
        version: format!("V2, {}", header.producer),
        producer: String::new(),
        facts,
        ..FormatInfo::default()
    };
    Ok((leaves, format, findings))
}

struct Bundle<'a> {
    files: &'a FileSet,
    header: Header,
    data: Data<'a>,
    parts: HashMap<Vec<u8>, BundleEntry>,
    leaves: BundleLeaves,
    /// The number of bytes of strings that may still be read.
    left: u64,
}

impl Bundle<'_> {
    fn leaf(&mut self, key: &[u8], entry: &BundleEntry) -> Result<()> {
        if entry.crc.is_none() && entry.slices.is_empty() && entry.size > 0 {
            self.leaves.problem(
                Grade::Warning,
                NO_CHECKSUM,
                key,
                "the checksum of its bytes is not stored",
            );
        }
        if dtype::plain(entry.dtype) == dtype::STRING {
            return self.strings(key, entry);
        }
        let layout = match entry.slices.is_empty() {
            true => self.layout(entry),
            false => self.slices(key, entry),
        };
        let order = self.header.byte_order;
        self.leaves.tensor(key, entry.dtype, &entry.shape, layout, order)
    }

    /// Returns the layout of the bytes of a tensor or slice.
    fn layout(&mut self, entry: &BundleEntry) -> Result<Layout, String> {
        let itemsize = dtype::elements(entry.dtype).map_or(1, |dtype| dtype.itemsize());
        let len = numel(&entry.shape).and_then(|numel| numel.checked_mul(itemsize));
        if len != Some(entry.size) {
            return Err(format!(
                "the index gives it {} bytes, which does not match shape {:?}",
                entry.size, entry.shape
            ));
        }
        if entry.size == 0 {
            return Ok(Layout::Inline([].into()));
        }
        self.data.span(entry).map(Layout::Span)
    }

    fn slices(&mut self, key: &[u8], entry: &BundleEntry) -> Result<Layout, String> {
        let mut parts = Vec::with_capacity(entry.slices.len());
        for (extents, part) in self.parts_of(key, entry)? {
            parts.push((extents, self.layout(&part)?));
        }
        slices::assemble(&entry.shape, parts)
    }

    /// Returns the entries of a tensor's slices with their extents: start and length per dimension.
    fn parts_of(&mut self, key: &[u8], entry: &BundleEntry) -> Result<Vec<Placed>, String> {
        // Removes all of them, so that the remaining ones belong to no tensor.
        let found: Vec<Option<BundleEntry>> =
            entry.slices.iter().map(|slice| self.parts.remove(&slices::key(key, slice))).collect();
        let placed = |(slice, part): (&slices::SliceExtents, Option<BundleEntry>)| {
            let extents = slices::within(slice, &entry.shape)
                .ok_or_else(|| format!("a slice of it is outside of shape {:?}", entry.shape))?;
            let part =
                part.ok_or_else(|| format!("the slice {extents:?} (start, length) is missing"))?;
            if part.dtype != entry.dtype
                || !part.shape.iter().eq(extents.iter().map(|(_, len)| len))
            {
                return Err(format!("the slice {extents:?} has another dtype or shape"));
            }
            Ok((extents, part))
        };
        entry.slices.iter().zip(found).map(placed).collect()
    }

    fn strings(&mut self, key: &[u8], entry: &BundleEntry) -> Result<()> {
        let parts = match entry.slices.is_empty() {
            true => Ok(vec![(entry.shape.iter().map(|dim| (0, *dim)).collect(), entry.clone())]),
            false => self.parts_of(key, entry),
        };
        let bytes = parts.and_then(|parts| {
            let bytes = |(extents, part)| self.string_bytes(&part).map(|bytes| (extents, bytes));
            parts.into_iter().map(bytes).collect::<Result<Vec<(slices::Extents, Vec<u8>)>, _>>()
        });
        let mut intact = true;
        let found = bytes.as_ref().map_err(Clone::clone).and_then(|parts| {
            let mut strings = Vec::with_capacity(parts.len());
            for (extents, bytes) in parts {
                let lengths: Vec<u64> = extents.iter().map(|(_, len)| *len).collect();
                let count = numel(&lengths).ok_or("there are too many")?;
                let split = strings::split(bytes, count);
                let (found, right) = split.map_err(|error| error.what().to_owned())?;
                intact &= right;
                strings.push((extents.clone(), found));
            }
            match (entry.slices.is_empty(), strings.pop()) {
                (true, Some((_, only))) => Ok(only),
                (_, last) => {
                    strings.extend(last);
                    slices::place(&entry.shape, &strings)
                }
            }
        });
        // The checksum covers integers in the byte order of the writer.
        let little = self.header.byte_order == statelens_checkpoint::ByteOrder::Little;
        if little && found.is_ok() && !intact {
            self.leaves.problem(
                Grade::Damage,
                "The checksum of the lengths of strings is wrong",
                key,
                "the strings have changed since they were written",
            );
        }
        self.leaves.strings(key, &entry.shape, found)
    }

    fn string_bytes(&mut self, entry: &BundleEntry) -> Result<Vec<u8>, String> {
        let span = self.data.span(entry)?;
        self.left = self.left.checked_sub(span.len).ok_or("there are too many strings to hold")?;
        let read = self.files.read_vec(span.file, span.offset, span.len);
        read.map_err(|error| error.what().to_owned())
    }
}

/// A slice and its extents.
type Placed = (slices::Extents, BundleEntry);

/// The data files of a bundle.
pub(super) struct Data<'a> {
    files: &'a FileSet,
    prefix: &'a str,
    shards: u64,
    /// Files by shard number; `None` if the file is missing.
    known: BTreeMap<u64, Option<FileId>>,
}

impl<'a> Data<'a> {
    pub(super) fn new(files: &'a FileSet, prefix: &'a str, shards: u64) -> Self {
        Self { files, prefix, shards, known: BTreeMap::new() }
    }

    fn name(&self, shard: u64) -> String {
        members::data_name(self.prefix, shard, self.shards)
    }

    /// Returns the location of an entry's bytes, or the reason why they are not available.
    pub(super) fn span(&mut self, entry: &BundleEntry) -> Result<Span, String> {
        let BundleEntry { shard, offset, size, .. } = *entry;
        if shard >= self.shards {
            return Err(format!("the index puts it in data file {shard} of {}", self.shards));
        }
        let name = self.name(shard);
        let find = || crate::not_a_checkpoint::data_file(self.files, &name);
        let file = *self.known.entry(shard).or_insert_with(find);
        let file = file.ok_or_else(|| format!("the file {name} is not here"))?;
        let len = self.files.len(file);
        match offset.checked_add(size) {
            Some(end) if end <= len => Ok(Span { file, offset, len: size }),
            _ => Err(format!(
                "its {size} bytes from byte {offset} of {name} are not there: the file ends at \
                 byte {len}, and may be cut short"
            )),
        }
    }

    fn findings(&self) -> Option<Finding> {
        let missing = self.known.iter().filter(|(_, file)| file.is_none());
        let missing: Vec<String> = missing.map(|(shard, _)| self.name(*shard)).collect();
        if missing.is_empty() {
            return None;
        }
        let title = match (missing.len(), self.shards) {
            (1, 1) => "The data file is missing".to_owned(),
            (1, all) => format!("1 of {all} data files is missing"),
            (some, all) => format!("{some} of {all} data files are missing"),
        };
        let shown: Vec<&str> = missing.iter().take(5).map(String::as_str).collect();
        Some(
            Finding::new(Grade::Damage, title)
                .detail(format!("Missing: {}.", shown.join(", ")))
                .advice("Put them next to the index, or open them as well.")
                .missing(missing),
        )
    }
}
