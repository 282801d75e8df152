//! A file as a list of parts: new bytes, and spans of existing files.

use statelens_checkpoint::Span;

/// A part of a file that is composed rather than written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Composed {
    /// New bytes.
    Bytes(Vec<u8>),
    /// A range of an existing file.
    Span(Span),
}

/// Collects the parts of a file, first to last, and joins neighbours. Its cost depends on the
/// number of parts, not their size.
#[derive(Debug, Clone, Default)]
pub struct Composition {
    parts: Vec<Composed>,
}

impl Composition {
    /// Adds bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        match self.parts.last_mut() {
            _ if bytes.is_empty() => {}
            Some(Composed::Bytes(last)) => last.extend_from_slice(bytes),
            _ => self.parts.push(Composed::Bytes(bytes.to_vec())),
        }
    }

    /// Adds a span; merges it with the last one if it directly follows that in the same file.
    pub fn span(&mut self, span: Span) {
        match self.parts.last_mut() {
            _ if span.len == 0 => {}
            Some(Composed::Span(last))
                if last.file == span.file && last.offset + last.len == span.offset =>
            {
                last.len += span.len;
            }
            _ => self.parts.push(Composed::Span(span)),
        }
    }

    /// Replaces the first bytes of the file with a head that was made last. Returns `false` if the
    /// file does not begin with enough new bytes.
    pub fn patch_head(&mut self, head: &[u8]) -> bool {
        match self.parts.first_mut() {
            Some(Composed::Bytes(first)) if first.len() >= head.len() => {
                first[..head.len()].copy_from_slice(head);
                true
            }
            _ => head.is_empty(),
        }
    }

    /// Returns the parts, first to last.
    pub fn into_parts(self) -> Vec<Composed> {
        self.parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use statelens_checkpoint::FileId;

    #[test]
    fn joins_adjacent_spans() {
        let span = |offset, len| Span { file: FileId(0), offset, len };
        let mut composition = Composition::default();
        composition.bytes(b"head");
        composition.bytes(b"");
        composition.bytes(b"er");
        composition.span(span(10, 5));
        composition.span(span(15, 5));
        composition.span(span(0, 0));
        composition.span(span(30, 5));
        composition.bytes(b"x");
        assert!(composition.patch_head(b"HE"));
        assert_eq!(
            composition.into_parts(),
            [
                Composed::Bytes(b"HEader".into()),
                Composed::Span(span(10, 10)),
                Composed::Span(span(30, 5)),
                Composed::Bytes(b"x".into())
            ]
        );
    }
}
