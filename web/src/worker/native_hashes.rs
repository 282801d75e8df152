//! SHA-256 by the browser: its code uses instructions of the processor that Wasm does not have, and
//! runs on another thread.

use std::collections::VecDeque;
use std::ops::Range;

use js_sys::{Function, Promise, Uint8Array};
use statelens_checkpoint::{Error, Result, TensorId, hex};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;

use crate::messages::get;

/// Sizes in bytes of tensors that the browser hashes. It takes all bytes at once, and a call takes
/// as long as hashing some kilobytes here.
pub(crate) const SIZES: Range<u64> = 16 << 10..(64 << 20) + 1;
/// Bytes that may wait for their hashes.
pub(crate) const MAX_WAITING: u64 = 128 << 20;

/// Hashes of tensors whose bytes are fed in pieces.
pub(crate) struct NativeHashes {
    subtle: JsValue,
    digest: Function,
    /// The bytes of one tensor. The browser copies them when it is called, so that the next tensor
    /// can use the same memory: new memory takes longer than copying.
    buffer: Uint8Array,
    /// The tensor that is being fed, and how many of its bytes are there.
    filling: Option<(TensorId, u32)>,
    /// Hashes that are being computed, with the sizes of their tensors in bytes.
    running: VecDeque<(TensorId, u64, Promise)>,
    waiting: u64,
}

impl NativeHashes {
    /// Returns `None` if the browser has no hashes for this page: its address is not secure.
    pub(crate) fn new() -> Option<Self> {
        let subtle = get(&get(&js_sys::global(), "crypto"), "subtle");
        let digest = get(&subtle, "digest").dyn_into().ok()?;
        let (buffer, running) = (Uint8Array::new_with_length(0), VecDeque::new());
        Some(Self { subtle, digest, buffer, filling: None, running, waiting: 0 })
    }

    /// Adds bytes of a tensor of `size` bytes; the last ones begin its hash. A tensor that is not
    /// complete when the next one begins is dropped.
    ///
    /// # Errors
    /// If there are more bytes than the tensor has, or the browser refuses them.
    pub(crate) fn feed(&mut self, tensor: TensorId, size: u64, bytes: &[u8]) -> Result<()> {
        let filled = match self.filling.take() {
            Some((of, filled)) if of == tensor => filled,
            _ => 0,
        };
        let (size, end) = (size as u32, filled + bytes.len() as u32);
        if end > size {
            return Err(failed());
        }
        if self.buffer.length() < size {
            self.buffer = Uint8Array::new_with_length(size);
        }
        self.buffer.subarray(filled, end).copy_from(bytes);
        if end < size {
            self.filling = Some((tensor, end));
            return Ok(());
        }
        let whole = self.buffer.subarray(0, size);
        let promise = self.digest.call2(&self.subtle, &"SHA-256".into(), &whole);
        let promise = promise.ok().and_then(|promise| promise.dyn_into().ok());
        self.running.push_back((tensor, size.into(), promise.ok_or_else(failed)?));
        self.waiting += u64::from(size);
        Ok(())
    }

    /// Waits until at most `most` bytes wait for their hashes. Returns the hashes that were waited
    /// for, in hexadecimal.
    ///
    /// # Errors
    /// If the browser fails to compute one.
    pub(crate) async fn settle(&mut self, most: u64) -> Result<Vec<(TensorId, String)>> {
        let mut done = Vec::new();
        while self.waiting > most
            && let Some((tensor, size, promise)) = self.running.pop_front()
        {
            let hash = JsFuture::from(promise).await.map_err(|_| failed())?;
            self.waiting -= size;
            done.push((tensor, hex(&Uint8Array::new(&hash).to_vec())));
        }
        Ok(done)
    }
}

fn failed() -> Error {
    Error::io("the browser could not compute the hash of a tensor")
}
