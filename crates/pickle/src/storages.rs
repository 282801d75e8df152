//! What the lowering needs from the container that a pickle lies in.

use std::collections::HashMap;

use statelens_checkpoint::{ByteOrder, Layout, Tensor};

/// Finds the storages that a pickle of torch names.
pub trait Storages {
    /// The storage under `key`, which the pickle says has `len` bytes.
    ///
    /// What is not there is a [`Layout::Missing`] that says why.
    fn storage(&mut self, key: &str, len: u64) -> Storage;

    /// The tensor under `key`: the oldest files name whole tensors.
    fn tensor(&mut self, _key: &str) -> Option<Tensor> {
        None
    }

    /// The order of the bytes of every number in every storage.
    fn byte_order(&self) -> ByteOrder {
        ByteOrder::Little
    }
}

/// The bytes that tensors are views of.
#[derive(Debug, Clone, PartialEq)]
pub struct Storage {
    /// Its number: the same for the same storage, see [`Tensor::storage`].
    pub number: u32,
    /// Where it is: a `Span`, `Packed`, `Inline` or `Missing`.
    pub layout: Layout,
    /// How many bytes there really are.
    pub len: u64,
}

/// A pickle by itself: its storages, if it names any, are elsewhere.
#[derive(Debug, Clone, Default)]
pub struct NoStorages {
    numbers: HashMap<String, u32>,
}

impl Storages for NoStorages {
    fn storage(&mut self, key: &str, len: u64) -> Storage {
        let next = self.numbers.len() as u32;
        Storage {
            number: *self.numbers.entry(key.to_owned()).or_insert(next),
            layout: Layout::Missing("a pickle by itself holds no storages".into()),
            len,
        }
    }
}
