//! The origin of the bytes of a plan.

use statelens_checkpoint::{Plan, Result, Segment, Tensor};
use statelens_tensor::verbatim_span;

/// The origin of the bytes of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// New: headers, indexes, plain values or checksums.
    Made,
    /// Copied from the source unchanged.
    Copied,
    /// Assembled from chunks, views or constants.
    Gathered,
    /// Cast to another dtype.
    Cast,
    /// Compressed.
    Compressed,
}

/// Iterates over the segments of all files of a plan: their origin, their number of bytes (for a
/// tensor before compression), and the tensor.
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
