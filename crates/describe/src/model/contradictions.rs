//! Detects a config that does not belong to this checkpoint.

use statelens_checkpoint::{Finding, Grade};

use super::{Fact, FactSource, Model, sizes};

/// The ends of keys of learned position embeddings that have exactly as many rows as the config
/// says: GPT-2 and BERT. Those of vision encoders do not.
const LEARNED: [&str; 2] = ["wpe.weight", ".embeddings.position_embeddings.weight"];

/// The facts that are compared. Others (ties, buffers, positions) are missing from some configs or
/// defined differently.
const COMPARED: [&str; 9] = [
    "layers",
    "hidden_size",
    "intermediate_size",
    "heads",
    "kv_heads",
    "head_size",
    "vocabulary",
    "experts",
    "experts_per_token",
];

impl Model {
    /// Returns a warning with both numbers of each fact on which the config and the shapes
    /// disagree.
    pub fn findings(&self) -> Vec<Finding> {
        let contradictions: Vec<String> =
            self.facts.iter().filter_map(Fact::contradiction).collect();
        if contradictions.is_empty() {
            return Vec::new();
        }
        vec![
            Finding::new(Grade::Warning, format!("{} does not fit this checkpoint", self.config))
                .detail(format!("{}.", contradictions.join("; ")))
                .advice(
                    "It may be the config of another model. Put the right one next to the file.",
                ),
        ]
    }
}

impl Fact {
    /// Describes the contradiction between the config and the file, if there is one.
    fn contradiction(&self) -> Option<String> {
        let (FactSource::Config(place) | FactSource::File(place)) = &self.source else {
            return None;
        };
        let learned =
            self.name == "max_positions" && LEARNED.iter().any(|end| self.doubt.ends_with(end));
        let compared = learned || COMPARED.contains(&&*self.name) || sizes::is_field(&self.name);
        (compared && self.contradicts)
            .then(|| format!("{}: {} in {place}, but {}", self.label, self.text(), self.doubt))
    }
}
