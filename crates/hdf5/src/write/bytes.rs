//! Little-endian numbers and padding for all HDF5 structures.

/// The undefined address.
pub(super) const UNDEFINED: u64 = u64::MAX;

pub(super) trait Put {
    fn u16(&mut self, value: u16);
    fn u32(&mut self, value: u32);
    fn u64(&mut self, value: u64);
    fn zeros(&mut self, count: usize);
    /// Appends zeros up to the next multiple of 8.
    fn align(&mut self);
    /// Appends a name and its NUL, with zeros up to a multiple of 8 bytes from its start.
    fn name(&mut self, name: &str);
}

impl Put for Vec<u8> {
    fn u16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn zeros(&mut self, count: usize) {
        self.resize(self.len() + count, 0);
    }

    fn align(&mut self) {
        self.resize(self.len().next_multiple_of(8), 0);
    }

    fn name(&mut self, name: &str) {
        self.extend_from_slice(name.as_bytes());
        self.zeros((name.len() + 1).next_multiple_of(8) - name.len());
    }
}
