//! What a checkpoint can be rewritten as in its own format.

use serde::{Deserialize, Serialize};

/// What a checkpoint is rewritten as in its own format.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Rewrite {
    /// Another format version.
    Upgrade {
        /// Which.
        to: String,
    },
    /// With its spec repaired.
    Fix {
        /// Whether it becomes the newest format version, too.
        upgrade: bool,
    },
    /// With the state of a dataloader, from the files that came with it.
    Dataloader {
        /// Whether the dataloader streams shards; else it picks samples by their number.
        iterable: bool,
        /// The seed of the order of samples, as it was typed.
        seed: String,
        /// The format version to write.
        to: String,
    },
}

/// Something that can be done with the checkpoint as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// What is done.
    pub rewrite: Rewrite,
    /// What its button says.
    pub label: String,
    /// What it gives, in a sentence or two.
    pub text: String,
    /// What it changes, a line each, as far as that is known.
    pub lines: Vec<String>,
    /// The finding that it settles, as an index of [`Opened::findings`](super::opened::Opened::findings).
    pub finding: Option<u32>,
}
