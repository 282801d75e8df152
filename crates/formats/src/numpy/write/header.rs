//! Writes the header of an array like numpy.

use statelens_checkpoint::{DType, Error, Field, Result, order};

use crate::numpy::header::MAGIC;

/// The alignment of the elements in numpy, so that they can be mapped into memory.
const ALIGNMENT: usize = 64;

/// Returns `descr` for a dtype, and whether that is lossless. Returns `None` if numpy does not have
/// the dtype.
///
/// Logical bytes are little-endian, including those in fields of records.
pub(super) fn descr(dtype: &DType) -> Option<(String, bool)> {
    let DType::Numpy(numpy) = dtype else {
        let order = if dtype.itemsize() == 1 { '|' } else { '<' };
        return Some((format!("'{order}{}'", dtype.numpy_code()?), true));
    };
    if numpy.fields.is_empty() {
        let order = if numpy.code.starts_with(['S', 'V']) { '|' } else { '<' };
        return Some((format!("'{order}{}'", numpy.code), true));
    }
    Some(match record(&numpy.fields, numpy.itemsize) {
        Some(text) => (text, true),
        None => (format!("'|V{}'", numpy.itemsize), false),
    })
}

/// Returns a record such as `[('a', '<i4'), ('', '|V4'), ('b', '<f8', (2,))]`: consecutive fields,
/// with padding between them. Returns `None` if they overlap or have no representation. Recurses
/// into nested records, whose depth is limited by readers.
fn record(fields: &[Field], itemsize: u64) -> Option<String> {
    let mut sorted: Vec<&Field> = fields.iter().collect();
    order::by_key(&mut sorted, |field| field.offset);
    let mut parts = Vec::new();
    let mut at = 0u64;
    let padding = |len: u64| format!("('', '|V{len}')");
    for field in sorted {
        let gap = field.offset.checked_sub(at)?;
        if gap > 0 {
            parts.push(padding(gap));
        }
        let (descr, true) = descr(&field.dtype)? else { return None };
        let name = match quoted(&field.title) {
            Some(title) => format!("({title}, {})", quoted(&field.name)?),
            None => quoted(&field.name)?,
        };
        parts.push(match field.shape.as_slice() {
            [] => format!("({name}, {descr})"),
            dims => format!("({name}, {descr}, {})", tuple(dims)),
        });
        let count = field.shape.iter().try_fold(1u64, |count, dim| count.checked_mul(*dim))?;
        at = field.offset.checked_add(field.dtype.itemsize().checked_mul(count)?)?;
    }
    let rest = itemsize.checked_sub(at)?;
    if rest > 0 {
        parts.push(padding(rest));
    }
    Some(format!("[{}]", parts.join(", ")))
}

/// Returns a name as a Python literal; `None` for the empty name, which means padding.
fn quoted(name: &str) -> Option<String> {
    if name.is_empty() {
        return None;
    }
    let mut text = String::from("'");
    for c in name.chars() {
        match c {
            '\\' | '\'' => text.extend(['\\', c]),
            c if c.is_control() => text.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => text.push(c),
        }
    }
    text.push('\'');
    Some(text)
}

fn tuple(dims: &[u64]) -> String {
    match dims {
        [one] => format!("({one},)"),
        dims => format!("({})", dims.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")),
    }
}

/// Returns the header: of version 1 if possible, of version 2 for a long text, of version 3 for a
/// text that is not Latin-1.
pub(super) fn header(descr: &str, shape: &[u64]) -> Result<Vec<u8>> {
    let text = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {}, }}", tuple(shape));
    let latin1: Option<Vec<u8>> = text.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect();
    let padded = |before: usize, mut text: Vec<u8>| {
        let len = (before + text.len() + 1).next_multiple_of(ALIGNMENT) - before;
        text.resize(len - 1, b' ');
        text.push(b'\n');
        text
    };
    if let Some(text) = &latin1
        && let text = padded(10, text.clone())
        && let Ok(len) = u16::try_from(text.len())
    {
        return Ok([MAGIC, &[1, 0], &len.to_le_bytes(), &text].concat());
    }
    let (version, text) = match latin1 {
        Some(text) => (2, text),
        None => (3, text.into_bytes()),
    };
    let text = padded(12, text);
    let len = u32::try_from(text.len())
        .map_err(|_| Error::unsupported("a record has more fields than a header can name"))?;
    Ok([MAGIC, &[version, 0], &len.to_le_bytes(), &text].concat())
}
