//! The size of a checkpoint once links and repetition are written out.

use std::collections::BTreeSet;

use crate::pieces::Pieces;
use crate::{Error, FileId, FileSet, Layout, Limits, Result, Tensor, Value};

/// The total size of a checkpoint, counting each thing as often as it is named.
///
/// A file can name one text a million times, take a thousand views of one storage or give a
/// constant any shape: a small file can expand to huge data for code that reads all of it. The sums
/// are known after opening, before any data is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unfolded {
    /// Leaves of the tree.
    pub leaves: u64,
    /// Bytes of all keys and of all strings and byte strings.
    pub text_bytes: u64,
    /// Logical bytes of all tensors; one with several names counts once.
    pub tensor_bytes: u64,
    /// Bytes of the files that hold the checkpoint.
    pub stored_bytes: u64,
}

/// Texts that are smaller than this in total are always accepted, however small the file.
const SMALL_TEXTS: u64 = 64 << 20;
/// The same for tensors: a constant of some megabytes is common in a file of a few hundred bytes.
const SMALL_TENSORS: u64 = 1 << 30;

impl Unfolded {
    /// Returns whether the total is more than [`Limits::unfold`] times the stored bytes.
    pub fn is_over(&self, limits: &Limits) -> bool {
        self.over(limits).is_some()
    }

    /// Fails if processing everything would exceed `limits`; `what` names the operation: "reading
    /// all values".
    pub fn check(&self, what: &str, limits: &Limits) -> Result<()> {
        let Some((bytes, of)) = self.over(limits) else { return Ok(()) };
        let stored = self.stored_bytes;
        Err(Error::limit(format!(
            "{what} would process {bytes} bytes of {of}, which the file stores in {stored}: more \
             than {} times its size",
            limits.unfold
        )))
    }

    /// Returns the same with `bytes` of tensors, those of a file to be written.
    #[must_use]
    pub fn writing(self, bytes: u64) -> Self {
        Self { text_bytes: 0, tensor_bytes: bytes, ..self }
    }

    /// Returns the size that exceeds the limit, and what it is the size of.
    fn over(&self, limits: &Limits) -> Option<(u64, &'static str)> {
        let allowed = self.stored_bytes.saturating_mul(limits.unfold);
        // Raising the limits raises the minimum sizes as well.
        let floor = |bytes: u64| (bytes / 1_000).saturating_mul(limits.unfold);
        if self.tensor_bytes > allowed.max(floor(SMALL_TENSORS)) {
            return Some((self.tensor_bytes, "tensors"));
        }
        (self.text_bytes > allowed.max(floor(SMALL_TEXTS))).then_some((self.text_bytes, "text"))
    }

    /// Sums up the tensors of a checkpoint and the files that it needs. Leaves and texts are
    /// counted by the caller, which walks the tree.
    pub(crate) fn of_tensors(tensors: &Pieces<Tensor>, set: &FileSet) -> Self {
        let mut unfolded = Self::default();
        let mut files: BTreeSet<FileId> = set.main().into_iter().collect();
        let mut last = None;
        // Most tensors are in the file of the one before.
        let mut name = |file: FileId| {
            if last.replace(file) != Some(file) {
                files.insert(file);
            }
        };
        for tensor in tensors {
            let mut open = vec![&tensor.layout];
            let mut is_missing = false;
            while let Some(layout) = open.pop() {
                match layout {
                    Layout::Span(span) => name(span.file),
                    Layout::Packed(packed) => name(packed.span.file),
                    Layout::Deferred(deferred) => name(deferred.span().file),
                    Layout::Strided(strided) => open.push(&strided.storage),
                    Layout::Computed(computed) => open.extend(computed.layouts()),
                    Layout::Dequantised(parts) => open.extend(parts.layouts()),
                    Layout::Concat(concat) => {
                        open.extend(concat.parts.iter().map(|part| &part.layout));
                    }
                    Layout::Missing(_) => is_missing = true,
                    Layout::Chunked(_) | Layout::Fill(_) | Layout::Inline(_) => {}
                }
            }
            if !is_missing {
                let bytes = tensor.nbytes().unwrap_or(u64::MAX);
                unfolded.tensor_bytes = unfolded.tensor_bytes.saturating_add(bytes);
            }
        }
        for file in files {
            unfolded.stored_bytes = unfolded.stored_bytes.saturating_add(set.len(file));
        }
        unfolded
    }
}

/// Returns the bytes of text in a value.
pub(crate) fn text_len(value: &Value) -> u64 {
    match value {
        Value::Str(text) => text.as_bytes().len() as u64,
        Value::Bytes { data, .. } => data.len() as u64,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_expansion_exceeds_limits_but_small_does_not() {
        let limits = Limits::default();
        let of = |tensor_bytes, text_bytes, stored_bytes| {
            Unfolded { leaves: 1, text_bytes, tensor_bytes, stored_bytes }.is_over(&limits)
        };
        assert!(!of(900 << 20, 0, 600), "a constant");
        assert!(of(8 << 30, 0, 623), "8 GB of 623 bytes");
        assert!(!of(8 << 30, 0, 100 << 20), "zeros, compressed");
        assert!(of(62 << 40, 0, 1 << 20), "views");
        assert!(!of(0, 10 << 20, 600), "some text");
        assert!(of(0, 16 << 30, 8_000), "one text four million times");
        let all = Unfolded { tensor_bytes: 8 << 30, stored_bytes: 623, ..Unfolded::default() };
        assert!(!all.is_over(&Limits::none()) && !all.is_over(&Limits::times(10)));
        let error = all.check("reading all values", &limits).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::Limit);
    }
}
