//! Elements out of bytes that come in pieces of any length.

/// The beginning of an element whose end has not come yet.
#[derive(Debug, Clone, Default)]
pub(crate) struct Begun(Vec<u8>);

impl Begun {
    /// Passes what is whole of these bytes on, in elements of `size` bytes, and keeps the rest.
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

    /// Forgets it.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
