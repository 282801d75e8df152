//! A digest of a plan, by which a worker checks that it plans the same as the others.

use sha2::{Digest as _, Sha256};
use statelens_checkpoint::{Checksum, Plan, Result, Segment, hex};
use statelens_tensor::verbatim_span;

use super::division::Division;

/// Returns the SHA-256 of everything in a plan that decides on the bytes of the output and on their
/// division into tasks.
pub(crate) fn of(plan: &Plan, division: &Division) -> Result<String> {
    let mut hash = Sha256::new();
    let mut line = |text: &str, more: &[u8]| {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
        hash.update((more.len() as u64).to_le_bytes());
        hash.update(more);
    };
    for cut in division.cuts() {
        line(&format!("{cut:?}"), &[]);
    }
    for file in &plan.files {
        line(&format!("file {}", file.head_last), file.name.as_bytes());
        for segment in &file.segments {
            match segment {
                Segment::Bytes(bytes) => line("bytes", bytes),
                Segment::Zeros(len) => line(&format!("zeros {len}"), &[]),
                Segment::Late { len, .. } => line(&format!("late {len:?}"), &[]),
                Segment::Data(data) => {
                    let tensor = plan.source.tensor(data.tensor)?;
                    let sum = match data.checksum {
                        Checksum::None => "",
                        Checksum::Crc32 => "crc32",
                        Checksum::Crc32c => "crc32c",
                    };
                    let chunk = data.encoding.as_ref().map(|encoding| &encoding.chunk);
                    let span = verbatim_span(tensor);
                    let text = format!(
                        "data {sum} {} {} {:?} {chunk:?} {span:?}",
                        tensor.dtype, tensor.stored, tensor.shape
                    );
                    line(&text, &[]);
                }
            }
        }
    }
    Ok(hex(&hash.finalize()))
}
