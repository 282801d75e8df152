//! What page and worker say about what the model is.

use serde::{Deserialize, Serialize};

use super::finding::Finding;

/// What is known of the model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Understood {
    /// The facts, the family first.
    pub facts: Vec<FactLine>,
    /// Parameters by part.
    pub parts: Vec<FactLine>,
    /// Quantised layouts, memory, the optimizer.
    pub more: Vec<FactLine>,
    /// The config that was read; may be empty.
    pub config: String,
    /// What the config and the shapes contradict each other in.
    pub findings: Vec<Finding>,
    /// The name of the config that may lie beside a remote model, if it was not asked for.
    pub fetch: Option<String>,
}

/// A line.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FactLine {
    /// The name of a fact, as in the command's JSON.
    pub name: String,
    /// What it is called.
    pub label: String,
    /// What it says.
    pub value: String,
    /// `read`, `inferred` or `unknown`.
    pub source: String,
    /// What tells it.
    pub basis: String,
    /// What contradicts it; may be empty.
    pub doubt: String,
    /// What part of all it is, from 0 to 1.
    pub share: f64,
}
