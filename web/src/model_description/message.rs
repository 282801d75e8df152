//! Messages about what the model is.

use serde::{Deserialize, Serialize};
use statelens_checkpoint::Finding;

/// The facts known about the model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelDescription {
    /// The facts, the family first.
    pub facts: Vec<FactLine>,
    /// Parameters by component.
    pub parts: Vec<FactLine>,
    /// Quantised layouts, memory, the optimizer.
    pub more: Vec<FactLine>,
    /// The name of the config that was read; may be empty.
    pub config: String,
    /// Contradictions between the config and the shapes.
    pub findings: Vec<Finding>,
    /// The name of the config that may be next to a remote model, if it was not requested yet.
    pub fetch: Option<String>,
}

/// A fact.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FactLine {
    /// The name of the fact, as in the command's JSON.
    pub name: String,
    /// Its display name.
    pub label: String,
    pub value: String,
    /// `read`, `inferred` or `unknown`.
    pub source: String,
    /// The evidence for it.
    pub basis: String,
    /// What contradicts it; may be empty.
    pub doubt: String,
    /// Its share of the whole, from 0 to 1.
    pub share: f64,
}
