//! Rewrites of a checkpoint in its own format.

use serde::{Deserialize, Serialize};

/// A rewrite of a checkpoint in its own format.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Rewrite {
    /// Write another format version.
    Upgrade { to: String },
    /// Repair the spec.
    Fix {
        /// Whether to write the newest format version too.
        upgrade: bool,
    },
    /// Add the state of a dataloader, from the files that came with the checkpoint.
    Dataloader {
        /// Whether the dataloader streams shards; otherwise it picks samples by number.
        iterable: bool,
        /// The seed of the order of samples, as typed.
        seed: String,
        to: String,
    },
}

/// A rewrite that the page offers for the open checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RewriteOffer {
    pub rewrite: Rewrite,
    /// The label of its button.
    pub label: String,
    /// What it does, in a sentence or two.
    pub text: String,
    /// What it changes, one per line, as far as known.
    pub lines: Vec<String>,
    /// The finding that it resolves, as an index into
    /// [`OpenedCheckpoint::findings`](crate::open::message::Opened::findings).
    pub finding: Option<u32>,
}
