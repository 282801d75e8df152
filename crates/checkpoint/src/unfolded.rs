//! What a checkpoint comes to once everything in it is written out.

use crate::pieces::Pieces;
use crate::{Error, FileId, FileSet, Layout, Limits, Result, Tensor, Value};

/// The sums of what a checkpoint holds, each thing as often as it is named.
///
/// A file can name one text a million times, take a thousand views of one storage or give a
/// constant any shape: what is small in the file is large to whoever goes through it. The sums are
/// known after opening, before anything is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unfolded {
    /// Leaves of the tree.
    pub leaves: u64,
    /// Bytes of all keys and of all texts and byte strings under them.
    pub text_bytes: u64,
    /// Logical bytes of all tensors, one that has several names once.
    pub tensor_bytes: u64,
    /// Bytes of the files that they come from.
    pub stored_bytes: u64,
}

/// Texts of less than this together are nothing to ask about, however small the file.
const SMALL_TEXTS: u64 = 64 << 20;
/// Nor are tensors: a constant of some megabytes is common in a file of a few hundred bytes.
const SMALL_TENSORS: u64 = 1 << 30;

impl Unfolded {
    /// Whether it is more than [`Limits::unfold`] times what is stored.
    pub fn is_over(&self, limits: &Limits) -> bool {
        self.over(limits).is_some()
    }

    /// Fails if going through all of it is more than `limits` allow; `what` would do so: "reading
    /// all values".
    pub fn check(&self, what: &str, limits: &Limits) -> Result<()> {
        let Some((bytes, of)) = self.over(limits) else { return Ok(()) };
        let stored = self.stored_bytes;
        Err(Error::limit(format!(
            "{what} would go through {bytes} bytes of {of}, which the file has in {stored}: more than {} times its size",
            limits.unfold
        )))
    }

    /// The same of `bytes` of tensors, those of a file to be written.
    #[must_use]
    pub fn writing(self, bytes: u64) -> Self {
        Self { text_bytes: 0, tensor_bytes: bytes, ..self }
    }

    /// What is over, and of what.
    fn over(&self, limits: &Limits) -> Option<(u64, &'static str)> {
        let allowed = self.stored_bytes.saturating_mul(limits.unfold);
        // Raised limits raise the floors as well.
        let floor = |bytes: u64| (bytes / 1_000).saturating_mul(limits.unfold);
        if self.tensor_bytes > allowed.max(floor(SMALL_TENSORS)) {
            return Some((self.tensor_bytes, "tensors"));
        }
        (self.text_bytes > allowed.max(floor(SMALL_TEXTS))).then_some((self.text_bytes, "text"))
    }

    /// The tensors of a checkpoint and the files that it needs; leaves and texts are counted by
    /// whoever walks the tree.
    pub(crate) fn of_tensors(tensors: &Pieces<Tensor>, set: &FileSet) -> Self {
        let mut unfolded = Self::default();
        let mut files = vec![false; set.count()];
        let mut name = |file: FileId| {
            if let Some(named) = files.get_mut(file.0 as usize) {
                *named = true;
            }
        };
        if let Ok(main) = set.main() {
            name(main);
        }
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
        for (id, file) in set.iter() {
            if files.get(id.0 as usize).copied().unwrap_or(false) {
                unfolded.stored_bytes = unfolded.stored_bytes.saturating_add(file.source.len());
            }
        }
        unfolded
    }
}

/// Bytes of text that a value is.
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
    fn what_is_much_larger_than_its_file_is_asked_about_but_small_things_are_not() {
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
