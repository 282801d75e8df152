//! Finds the checksums of all blocks and of all tensors.

use std::collections::HashMap;

use statelens_checkpoint::{ByteOrder, Error, FileSet, Layout, Limits, Result, numel};

use super::bundle::{BundleEntry, Header};
use super::read::Data;
use super::table::SortedTable;
use super::{dtype, members, slices, strings, variants};
use crate::checks::{Algorithm, Check, Checks};

/// Finds the checksums. Reads the index, strings and variants, since the checksum of these is not
/// simply of their bytes.
pub(crate) fn checks(files: &FileSet, limits: &Limits) -> Result<Checks> {
    let tables = members::find(files)?;
    let mut checks = Checks { structure: true, ..Checks::default() };
    for id in &tables.ids {
        let mut table = SortedTable::open(files, *id, limits)?;
        checks.checks.extend(table.checks()?);
        if !table.is_v1()? {
            bundle(files, &mut table, &tables.prefix, limits, &mut checks)?;
        }
    }
    Ok(checks)
}

fn bundle(
    files: &FileSet,
    table: &mut SortedTable<'_>,
    prefix: &str,
    limits: &Limits,
    checks: &mut Checks,
) -> Result<()> {
    let mut header = None;
    let mut tensors: Vec<(String, BundleEntry)> = Vec::new();
    let mut parts: HashMap<Vec<u8>, BundleEntry> = HashMap::new();
    table.each(|key, block, value| {
        let value = block.bytes(value)?;
        match key {
            [] => header = Some(Header::parse(&value)?),
            [0, ..] => drop(parts.insert(key.to_vec(), BundleEntry::parse(&value)?)),
            key => tensors
                .push((String::from_utf8_lossy(key).into_owned(), BundleEntry::parse(&value)?)),
        }
        Ok(())
    })?;
    let header = header.ok_or_else(|| Error::damaged("the index has no header"))?;
    let mut data = Data::new(files, prefix, header.shards);
    let mut left = limits.structure;
    for (key, entry) in tensors {
        if entry.slices.is_empty() {
            checks.entry(files, &mut data, header.byte_order, key, &entry, &mut left);
            continue;
        }
        for slice in &entry.slices {
            // Missing slices were reported when the checkpoint was opened.
            let Some(part) = parts.get(&slices::key(key.as_bytes(), slice)) else { continue };
            let what = match slices::within(slice, &entry.shape) {
                Some(extents) => format!("{key}, slice {extents:?}"),
                None => format!("{key}, a slice"),
            };
            checks.entry(files, &mut data, header.byte_order, what, part, &mut left);
        }
    }
    Ok(())
}

/// Computes the checksum of the stored bytes of some elements.
type Sum = fn(&[u8], u64) -> Result<u32>;

impl Checks {
    fn entry(
        &mut self,
        files: &FileSet,
        data: &mut Data<'_>,
        order: ByteOrder,
        what: String,
        entry: &BundleEntry,
        left: &mut u64,
    ) {
        let Some(expected) = entry.crc else {
            self.without += u64::from(entry.size > 0);
            return;
        };
        let span = match data.span(entry) {
            Ok(span) => span,
            Err(why) => return self.broken.push((what, Error::damaged(why))),
        };
        let mut check = Check {
            what,
            algorithm: Algorithm::MaskedCrc32c,
            layout: Layout::Span(span),
            expected,
            found: None,
        };
        let sum: Option<Sum> = match dtype::plain(entry.dtype) {
            dtype::STRING => Some(strings::sum),
            dtype::VARIANT => Some(variants::sum),
            _ => None,
        };
        if let Some(sum) = sum {
            // The checksum covers the lengths as integers in the byte order of the writer.
            let read = (order == ByteOrder::Little).then(|| left.checked_sub(span.len)).flatten();
            let Some(rest) = read else {
                self.without += 1;
                return;
            };
            *left = rest;
            let bytes = files.read_vec(span.file, span.offset, span.len);
            let count = numel(&entry.shape).unwrap_or(u64::MAX);
            match bytes.and_then(|bytes| sum(&bytes, count)) {
                Ok(sum) => check.found = Some(sum),
                Err(error) => return self.broken.push((check.what, error)),
            }
        }
        self.checks.push(check);
    }
}
