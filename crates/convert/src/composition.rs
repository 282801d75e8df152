//! A file as parts: bytes that were made, and spans of files that are there.

use statelens_checkpoint::Span;

/// A part of a file that is composed rather than written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Composed {
    /// Bytes that were made.
    Bytes(Vec<u8>),
    /// A run of a file that is there.
    Span(Span),
}

/// Collects the parts of a file, first to last, and joins neighbours: a composition costs what
/// its parts number, not what they weigh.
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

    /// Adds a span; one that follows the last in the same file is made one with it.
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

    /// Replaces the first bytes of the file, where they were made: for a head that comes last.
    /// Returns whether they were.
    pub fn patch_head(&mut self, head: &[u8]) -> bool {
        match self.parts.first_mut() {
            Some(Composed::Bytes(first)) if first.len() >= head.len() => {
                first[..head.len()].copy_from_slice(head);
                true
            }
            _ => head.is_empty(),
        }
    }

    /// The parts, first to last.
    pub fn into_parts(self) -> Vec<Composed> {
        self.parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use statelens_checkpoint::FileId;

    #[test]
    fn neighbours_are_joined() {
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
