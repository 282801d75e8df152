//! LZF (filter 32000), as in h5py.
//!
//! A control byte below 32 is followed by that many literals plus one. Otherwise its upper three
//! bits are a length (7: one more byte is added), and its lower five with the next byte a distance.
//! The chunk's size is the third parameter, but it does not limit the result: an earlier filter may
//! have lengthened the chunk, and h5py's filter then enlarges its buffer.

use statelens_checkpoint::{Error, Result};

/// Undoes LZF; an error if the result exceeds `limit` bytes.
pub(super) fn decode(input: &[u8], limit: usize) -> Result<Vec<u8>> {
    let short = || Error::damaged("an lzf chunk ends too early");
    let long = || Error::damaged(format!("an lzf chunk holds more than its {limit} bytes"));
    let mut out = Vec::with_capacity(limit.min(input.len().saturating_mul(4)));
    let mut rest = input.iter();
    while let Some(&control) = rest.next() {
        let control = usize::from(control);
        if control < 32 {
            let from = rest.as_slice();
            let literals = from.get(..=control).ok_or_else(short)?;
            if out.len() + literals.len() > limit {
                return Err(long());
            }
            out.extend_from_slice(literals);
            rest = from[control + 1..].iter();
            continue;
        }
        let mut len = control >> 5;
        if len == 7 {
            len += usize::from(*rest.next().ok_or_else(short)?);
        }
        let low = usize::from(*rest.next().ok_or_else(short)?);
        let back = ((control & 31) << 8 | low) + 1;
        let start = out
            .len()
            .checked_sub(back)
            .ok_or_else(|| Error::damaged("an lzf chunk refers to bytes before its start"))?;
        if out.len() + len + 2 > limit {
            return Err(long());
        }
        // Byte by byte, since the copy may overlap its own output.
        for at in start..start + len + 2 {
            out.push(out[at]);
        }
    }
    Ok(out)
}
