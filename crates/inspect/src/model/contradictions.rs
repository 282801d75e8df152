//! A config that is not of this checkpoint.

use statelens_checkpoint::{Finding, Grade};

use super::{Fact, FactSource, FactValue, Model};

/// Facts of which a config and the shapes of its model say the same. A config leaves out, or words otherwise,
/// what others say: ties, buffers, positions.
const COMPARED: [&str; 8] = [
    "layers",
    "hidden_size",
    "intermediate_size",
    "heads",
    "kv_heads",
    "head_size",
    "vocabulary",
    "experts",
];

impl Model {
    /// A warning with both numbers of each fact that the config and the shapes contradict each other in.
    pub fn findings(&self) -> Vec<Finding> {
        let told: Vec<String> = self.facts.iter().filter_map(Fact::contradiction).collect();
        if told.is_empty() {
            return Vec::new();
        }
        vec![
            Finding::new(Grade::Warning, format!("{} does not fit this checkpoint", self.config))
                .detail(format!("{}.", told.join("; ")))
                .advice("It may be the config of another model. Put the right one beside the file, or name it with --config.")
        ]
    }
}

impl Fact {
    /// What the config says and what the file says, if these differ.
    fn contradiction(&self) -> Option<String> {
        let (FactValue::Number(_), FactSource::Read(place)) = (&self.value, &self.source) else {
            return None;
        };
        let compared = COMPARED.contains(&self.name) && self.contradicts;
        compared.then(|| {
            format!("{}: {} in {place}, but {}", self.label, self.number_text(), self.doubt)
        })
    }

    fn number_text(&self) -> String {
        match self.value {
            FactValue::Number(number) => crate::grouped(number),
            _ => String::new(),
        }
    }
}
