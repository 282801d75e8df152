//! Undoes chunk filters.
//!
//! `szip`, `nbit` and `scaleoffset` are decoded by hdf5-reader. The others are decoded here:
//! hdf5-reader's LZ4 refuses small blocks, and it has no LZF or Zstandard.

mod bitshuffle;
mod deflate;
pub mod lz4;
mod lzf;
pub mod shuffle;

use hdf5_reader::filters as reader;
pub use hdf5_reader::messages::filter_pipeline::FilterDescription;
use statelens_checkpoint::{Error, Result};

use crate::error::from_reader;

/// The registered ids of the filters known here.
pub mod id {
    pub const DEFLATE: u16 = 1;
    pub const SHUFFLE: u16 = 2;
    pub const FLETCHER32: u16 = 3;
    pub const SZIP: u16 = 4;
    pub const NBIT: u16 = 5;
    pub const SCALEOFFSET: u16 = 6;
    pub const LZF: u16 = 32000;
    pub const LZ4: u16 = 32004;
    pub const BITSHUFFLE: u16 = 32008;
    pub const ZSTD: u16 = 32015;
}

const NAMES: &[(u16, &str)] = &[
    (id::DEFLATE, "gzip"),
    (id::SHUFFLE, "shuffle"),
    (id::FLETCHER32, "fletcher32"),
    (id::SZIP, "szip"),
    (id::NBIT, "nbit"),
    (id::SCALEOFFSET, "scaleoffset"),
    (307, "bzip2"),
    (id::LZF, "lzf"),
    (32001, "blosc"),
    (32003, "snappy"),
    (id::LZ4, "lz4"),
    (id::BITSHUFFLE, "bitshuffle"),
    (32013, "zfp"),
    (id::ZSTD, "zstd"),
    (32017, "sz"),
    (32019, "fcidecomp"),
    (32022, "sperr"),
    (32024, "sz3"),
    (32026, "blosc2"),
];

/// The names that programs write in files for these filters.
const WRITTEN: &[(&str, u16)] = &[
    ("deflate", id::DEFLATE),
    ("shuffle", id::SHUFFLE),
    ("fletcher32", id::FLETCHER32),
    ("szip", id::SZIP),
    ("nbit", id::NBIT),
    ("scaleoffset", id::SCALEOFFSET),
    ("lzf", id::LZF),
];

/// Fails if a filter has the name of another one, which means that its id was changed. An unknown
/// id alone is not damage.
pub fn check_names(filters: &[FilterDescription]) -> Result<()> {
    let written = |filter: &&FilterDescription| {
        let name = filter.name.as_deref().unwrap_or_default().trim_end_matches('\0');
        WRITTEN.iter().any(|(known, id)| *known == name && *id != filter.id)
    };
    match filters.iter().find(written) {
        None => Ok(()),
        Some(filter) => Err(Error::damaged(format!(
            "filter {} has the name {}, which is that of another",
            filter.id,
            filter.name.as_deref().unwrap_or_default()
        ))),
    }
}

/// Returns the display name of a filter: its common name, else the one in the file, else its id.
pub fn name(filter: &FilterDescription) -> String {
    let known = NAMES.iter().find(|(id, _)| *id == filter.id).map(|(_, name)| (*name).to_owned());
    let written = || filter.name.clone().filter(|name| !name.is_empty());
    known.or_else(written).unwrap_or_else(|| format!("filter {}", filter.id))
}

/// Returns the filters in the order they were applied, for display: `shuffle, gzip 4`.
pub fn describe(filters: &[FilterDescription]) -> String {
    let one = |filter: &FilterDescription| match (filter.id, filter.client_data.first()) {
        (id::DEFLATE, Some(level)) => format!("gzip {level}"),
        _ => name(filter),
    };
    filters.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Checks that the filters which `mask` doesn't skip can be undone. The error names the first that
/// can't: an unknown one, or (damaged) one with parameters that libhdf5 refuses.
pub fn check(filters: &[FilterDescription], mask: u32) -> Result<()> {
    let used = filters.iter().enumerate().filter(|(index, _)| !is_skipped(mask, *index));
    used.map(|(_, filter)| filter).try_for_each(|filter| match is_known(filter.id) {
        true => parameters(filter),
        false => Err(unknown(filter)),
    })
}

fn is_known(number: u16) -> bool {
    matches!(
        number,
        id::DEFLATE
            | id::SHUFFLE
            | id::FLETCHER32
            | id::SZIP
            | id::NBIT
            | id::SCALEOFFSET
            | id::LZF
            | id::LZ4
            | id::BITSHUFFLE
            | id::ZSTD
    )
}

/// Returns whether the filter mask of a chunk skips the filter at this position.
fn is_skipped(mask: u32, index: usize) -> bool {
    let bit = u32::try_from(index).ok().and_then(|index| mask.checked_shr(index));
    bit.unwrap_or(0) & 1 == 1
}

/// Checks the parameters of a filter as libhdf5 does before it undoes the filter.
fn parameters(filter: &FilterDescription) -> Result<()> {
    let (sound, expected) = match (filter.id, filter.client_data.as_slice()) {
        (id::DEFLATE, data) => (matches!(data, [..=9]), "one level from 0 to 9"),
        (id::SHUFFLE, data) => (matches!(data, [size] if *size > 0), "the size of an element"),
        (id::SCALEOFFSET, data) => (data.len() == 20, "20 numbers"),
        _ => (true, ""),
    };
    match sound {
        true => Ok(()),
        false => Err(Error::damaged(format!(
            "the filter {} has the parameters {:?}, which libhdf5 refuses",
            name(filter),
            filter.client_data
        ))
        .expected(expected)),
    }
}

fn unknown(filter: &FilterDescription) -> Error {
    Error::unsupported(format!(
        "the data is stored with filter {} ({}), which Statelens can't decode",
        filter.id,
        name(filter)
    ))
    .coded(crate::NOT_DECODED)
    .advice("`h5repack -f NONE` with that filter's plugin writes the same file without it.")
}

/// Undoes the filters of one chunk, the last one first, except those that `mask` skips. Clears
/// `out`, which then receives the chunk.
///
/// `len` is the length of the chunk without filters; no more than about twice that is ever
/// allocated. `element` is the size of an element.
pub fn decode(
    filters: &[FilterDescription],
    mask: u32,
    stored: &[u8],
    element: usize,
    len: usize,
    out: &mut Vec<u8>,
) -> Result<()> {
    out.clear();
    let mut bytes: Option<Vec<u8>> = None;
    for (index, filter) in filters.iter().enumerate().rev() {
        if is_skipped(mask, index) {
            continue;
        }
        parameters(filter)?;
        // The output of an outer filter is the chunk, or the chunk as encoded by an inner filter,
        // which may be slightly longer.
        let limit = if index == 0 { len } else { len.saturating_mul(2).saturating_add(1024) };
        let input = bytes.as_deref().unwrap_or(stored);
        bytes = Some(undo(filter, input, element, limit)?);
    }
    match bytes {
        Some(bytes) => *out = bytes,
        None => out.extend_from_slice(stored),
    }
    if out.len() != len {
        let got = out.len();
        out.clear();
        return Err(Error::damaged(format!("a decoded chunk has {got} bytes"))
            .expected(format!("{len} bytes")));
    }
    Ok(())
}

fn undo(filter: &FilterDescription, input: &[u8], element: usize, limit: usize) -> Result<Vec<u8>> {
    match filter.id {
        id::DEFLATE => deflate::decode(input, limit),
        id::SHUFFLE => Ok(shuffle::decode(input, element_of(filter, element))),
        id::LZF => lzf::decode(input, limit),
        id::LZ4 => lz4::decode(input, limit),
        id::BITSHUFFLE => bitshuffle::decode(filter, input, element, limit),
        id::ZSTD => deflate::decode_zstd(input, limit),
        id::FLETCHER32 | id::SZIP | id::NBIT | id::SCALEOFFSET => {
            let one = std::slice::from_ref(filter);
            reader::apply_pipeline_with_limit(input, one, 0, element, None, Some(limit)).map_err(
                |error| from_reader(error).context(format_args!("undoing {}", name(filter))),
            )
        }
        _ => Err(unknown(filter)),
    }
}

/// Returns the element size that is stored in the parameters of shuffle.
fn element_of(filter: &FilterDescription, element: usize) -> usize {
    match filter.client_data.first() {
        Some(size) => usize::try_from(*size).unwrap_or(element),
        None => element,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(id: u16) -> FilterDescription {
        FilterDescription { id, name: None, client_data: Vec::new() }
    }

    #[test]
    fn filter_mask_skips_filters() {
        let plain: Vec<u8> = (0..64).collect();
        let mut stored = Vec::new();
        lz4::encode(&shuffle::encode(&plain, 4), &mut stored).unwrap();
        let shuffle = FilterDescription { client_data: vec![4], ..filter(id::SHUFFLE) };
        let pipeline = [shuffle, filter(id::LZ4)];
        let mut out = Vec::new();
        decode(&pipeline, 0, &stored, 4, 64, &mut out).unwrap();
        assert_eq!(out, plain);
        decode(&pipeline, 0b10, &shuffle::encode(&plain, 4), 4, 64, &mut out).unwrap();
        assert_eq!(out, plain);
        decode(&pipeline, 0b11, &plain, 4, 64, &mut out).unwrap();
        assert_eq!(out, plain);
        assert!(decode(&pipeline, 0, &stored, 4, 60, &mut out).is_err());
    }

    #[test]
    fn names_an_unknown_filter() {
        let filters = [filter(id::LZ4), filter(32013)];
        let error = check(&filters, 0).unwrap_err();
        assert!(error.what().contains("filter 32013 (zfp)"), "{error}");
        assert!(check(&filters, 0b10).is_ok());
    }
}
