//! Splits bytes that arrive in pieces of any length into elements.

/// The bytes of an element that has not fully arrived.
#[derive(Debug, Clone, Default)]
pub(crate) struct Begun(Vec<u8>);

impl Begun {
    /// Passes the complete elements of `size` bytes in these bytes on and keeps the rest.
    pub(crate) fn feed(&mut self, size: usize, bytes: &[u8], whole: &mut impl FnMut(&[u8])) {
        let mut rest = bytes;
        if !self.0.is_empty() {
            let (end, tail) = rest.split_at((size - self.0.len()).min(rest.len()));
            self.0.extend_from_slice(end);
            rest = tail;
            if self.0.len() < size {
                return;
            }
            whole(&self.0);
            self.0.clear();
        }
        let (elements, begun) = rest.split_at(rest.len() - rest.len() % size);
        whole(elements);
        self.0.extend_from_slice(begun);
    }

    /// Discards the incomplete element.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
