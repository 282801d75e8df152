//! In which way the bytes of a plan come about.

use statelens_checkpoint::{Plan, Result, Segment, Tensor};
use statelens_tensor::verbatim_span;

/// How the bytes of a segment come about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// They are headers, indexes, plain values or checksums.
    Made,
    /// They are those of the source.
    Copied,
    /// They are put together from chunks, views or constants.
    Gathered,
    /// They are cast to another dtype.
    Cast,
    /// They are compressed.
    Compressed,
}

/// The segments of all files of a plan: how each comes about, how many bytes it has, those of a
/// tensor before they are compressed, and the tensor.
pub fn shares(plan: &Plan) -> impl Iterator<Item = Result<(Share, u64, Option<&Tensor>)>> {
    plan.segments().map(|segment| {
        let bytes = match segment {
            Segment::Bytes(bytes) => bytes.len() as u64,
            Segment::Zeros(len) => *len,
            Segment::Late { len, .. } => len.unwrap_or(0),
            Segment::Data(data) => {
                let tensor = plan.source.tensor(data.tensor)?;
                let share = if data.encoding.is_some() {
                    Share::Compressed
                } else if tensor.stored != tensor.dtype {
                    Share::Cast
                } else if verbatim_span(tensor).is_some() {
                    Share::Copied
                } else {
                    Share::Gathered
                };
                return Ok((share, tensor.nbytes().unwrap_or(0), Some(tensor)));
            }
        };
        Ok((Share::Made, bytes, None))
    })
}
