//! Results of reading the values of tensors, kept with the open session.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use statelens_checkpoint::TensorId;
use statelens_values::weights::{Measured, Seen};
use statelens_values::{MatrixLines, Statistics};

use crate::worker::opened::OpenCheckpoint;

/// The results so far.
#[derive(Default)]
pub(crate) struct Measurements {
    /// Statistics and histograms.
    pub(crate) measured: HashMap<TensorId, Rc<Measured>>,
    /// Why some were not read.
    pub(crate) unread: HashMap<TensorId, String>,
    /// How many times all tensors were read; results derived from them are made again after each.
    pub(crate) scans: u32,
    /// Hashes of tensors that may be equal to others, from scans.
    pub(crate) hashes: HashMap<TensorId, u128>,
    /// SHA-256 in hexadecimal, from verification.
    pub(crate) sha256: HashMap<TensorId, String>,
    /// Statistics by row, of embeddings and of tensors that may have dead rows.
    pub(crate) lines: HashMap<TensorId, MatrixLines>,
}

/// The open checkpoint with its results.
pub(crate) struct Results<'a>(pub(crate) &'a OpenCheckpoint, pub(crate) &'a Measurements);

impl Seen for Results<'_> {
    fn statistics(&self, tensor: TensorId) -> Option<&Statistics> {
        self.1.measured.get(&tensor).map(|measured| &measured.statistics)
    }

    fn hash(&self, tensor: TensorId) -> Option<u128> {
        self.1.hashes.get(&tensor).copied()
    }

    fn other_hash(&self, tensor: TensorId) -> Option<u128> {
        u128::from_str_radix(self.1.sha256.get(&tensor)?.get(..32)?, 16).ok()
    }

    fn lines(&self, tensor: TensorId) -> Option<&MatrixLines> {
        self.1.lines.get(&tensor)
    }

    fn parameter(&self, key: &str) -> Option<&str> {
        self.0.parameter_of(key).map(|parameter| parameter.key.as_str())
    }
}

/// Results, shared by the session and its jobs.
pub(crate) type SharedMeasurements = Rc<RefCell<Measurements>>;
