//! What was found of the values of tensors, kept with the open session.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use statelens_checkpoint::TensorId;
use statelens_inspect::weights::Measured;

/// What was found so far.
#[derive(Default)]
pub(super) struct Found {
    /// What values are like.
    pub(super) measured: HashMap<TensorId, Rc<Measured>>,
    /// Why some were not read.
    pub(super) unread: HashMap<TensorId, String>,
    /// Whether all were asked for.
    pub(super) scanned: bool,
    /// SHA-256 of those that may be equal to others.
    pub(super) hashes: HashMap<TensorId, [u8; 32]>,
}

/// Shared by the session and its jobs.
pub(super) type Kept = Rc<RefCell<Found>>;
