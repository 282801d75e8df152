//! Items that an extension compressed: `ZStandard` of `torch/distributed/checkpoint/_extension.py`
//! writes each as a frame of Zstandard, which does not state its length.

use std::io::Read as _;
use std::sync::Arc;

use ruzstd::decoding::StreamingDecoder;
use statelens_checkpoint::{
    Error, FileSet, Layout, Packed, Packing, ReadAt, Result, Span, Strided, size_text,
};

/// The descriptor of the extension, without its version (`stream.zstd/1`).
const ZSTD: &str = "stream.zstd";
/// The number of bytes at the start and the end of an archive that are kept: the pickle and the
/// local headers come before the data of a tensor, the small records and the directory after it.
const KEPT: usize = 256 << 10;
/// The maximum window of a frame, in bytes.
const MAX_WINDOW: u64 = 128 << 20;
/// Bytes that are decompressed at once.
const STEP: usize = 64 << 10;

/// Returns whether these transforms of an item are understood: none, or one of Zstandard. Fails with
/// the reason.
pub(super) fn is_zstd(transforms: &[String]) -> Result<bool, String> {
    let name = |text: &str| {
        let name = text.split('/').next().unwrap_or_default();
        name.split('@').next().unwrap_or_default().to_owned()
    };
    match transforms {
        [] => Ok(false),
        [one] if name(one) == ZSTD => Ok(true),
        _ => Err(format!(
            "it was transformed when it was saved, by {}, which is unknown; save the checkpoint \
             again without that",
            transforms.join(", ")
        )),
    }
}

/// The decompressed bytes of an item. Those in the middle of a long one are not kept.
#[derive(Debug)]
pub(super) struct Unfolded {
    head: Vec<u8>,
    /// The last bytes, if the head does not have all of them.
    tail: Vec<u8>,
    len: u64,
}

impl Unfolded {
    /// Decompresses an item. Fails if it is longer than `most` bytes. `whole`: whether all bytes are
    /// kept.
    pub(super) fn read(files: &FileSet, span: Span, most: u64, whole: bool) -> Result<Self> {
        let name = files.name(span.file);
        let damaged = |error: &dyn std::fmt::Display| {
            Error::damaged(format!("a stream of Zstandard is damaged: {error}"))
                .at(span.offset)
                .in_file(name)
        };
        let source = files.source(span.file)?.clone();
        let stream = SpanReader { source, at: span.offset, left: span.len };
        let mut decoder = StreamingDecoder::new_with_max_window_size(stream, MAX_WINDOW)
            .map_err(|error| damaged(&error))?;
        let mut unfolded = Self { head: Vec::new(), tail: Vec::new(), len: 0 };
        let mut piece = vec![0; STEP];
        let kept = if whole { usize::MAX } else { KEPT };
        loop {
            let read = decoder.read(&mut piece).map_err(|error| damaged(&error))?;
            if read == 0 {
                return Ok(unfolded);
            }
            unfolded.len += read as u64;
            if unfolded.len > most {
                return Err(Error::damaged(format!(
                    "a stream of Zstandard of {} holds more than {}",
                    size_text(span.len),
                    size_text(most)
                ))
                .at(span.offset)
                .in_file(name)
                .advice("It is damaged, or made to fill the memory."));
            }
            let (first, rest) =
                piece[..read].split_at(read.min(kept.saturating_sub(unfolded.head.len())));
            unfolded.head.extend_from_slice(first);
            unfolded.tail.extend_from_slice(rest);
            let excess = unfolded.tail.len().saturating_sub(2 * KEPT);
            if excess > 0 {
                unfolded.tail.drain(..excess);
            }
        }
    }
}

impl ReadAt for Unfolded {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let end = offset.checked_add(buffer.len() as u64).filter(|end| *end <= self.len);
        let part = end.and_then(|end| {
            if end <= self.head.len() as u64 {
                return self.head.get(offset as usize..end as usize);
            }
            let start = self.len - self.tail.len() as u64;
            let from = usize::try_from(offset.checked_sub(start)?).ok()?;
            self.tail.get(from..from + buffer.len())
        });
        match part {
            Some(part) => {
                buffer.copy_from_slice(part);
                Ok(())
            }
            None => Err(Error::unsupported(
                "the structure of a compressed item is in the middle of its data",
            )),
        }
    }
}

/// Returns the layout of bytes of an unfolded item in the stream at `span`.
pub(super) fn folded(layout: Layout, span: Span) -> Layout {
    match layout {
        Layout::Span(inner) => Layout::Packed(Packed {
            span,
            packing: Packing::Zstd,
            skip: inner.offset,
            len: inner.len,
        }),
        Layout::Strided(view) => Layout::Strided(Strided {
            storage: Arc::new(folded((*view.storage).clone(), span)),
            ..view
        }),
        Layout::Packed(_) => {
            Layout::Missing("it is compressed twice, which is not supported".into())
        }
        other => other,
    }
}

/// Reads a range of a file from start to end.
struct SpanReader {
    source: Arc<dyn ReadAt>,
    at: u64,
    left: u64,
}

impl std::io::Read for SpanReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let len = self.left.min(buffer.len() as u64) as usize;
        if let Some(buffer) = buffer.get_mut(..len) {
            self.source.read_at(self.at, buffer).map_err(std::io::Error::other)?;
        }
        self.at += len as u64;
        self.left -= len as u64;
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_transform_of_zstandard_is_known() {
        let of = |names: &[&str]| {
            is_zstd(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(of(&[]), Ok(false));
        assert_eq!(of(&["stream.zstd/1"]), Ok(true));
        assert_eq!(of(&["stream.zstd@torch/2"]), Ok(true));
        assert!(of(&["stream.zstd", "stream.zstd"]).is_err());
        assert!(of(&["crypt/1"]).unwrap_err().contains("crypt/1"));
    }
}
