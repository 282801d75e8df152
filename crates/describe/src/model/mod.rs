//! Describes the model, as far as keys, shapes, dtypes and its config allow: family, sizes,
//! parameters by component, quantised layouts, memory. Does not read tensors.
//!
//! Each [`Fact`] has its source: read from the config or the file, inferred from names and shapes,
//! or unknown, with the reason.

mod config;
mod contradictions;
mod count;
mod experts;
mod facts;
mod family;
mod heads;
mod key;
mod leaf;
mod memory;
mod packed;
mod parts;
mod roles;
mod sizes;
mod stacks;
#[cfg(test)]
mod tests;
mod weights;
mod write;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use statelens_checkpoint::{Checkpoint, Leaf};

pub use config::Config;
pub(crate) use count::parameters_among;
pub use count::{parameters, summarised};
pub(crate) use leaf::ModelLeaf;
pub use memory::MemoryEstimate;
pub use packed::Quantised;
pub use parts::PartSum;
pub use roles::ModelComponent;
pub use write::ModelReport;

use crate::optimizer::Parameters;
use crate::parameters::ParameterCount;
use crate::summary::CheckpointSummary;
use weights::Weights;

/// A description of a model.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Model {
    /// The facts, in the order in which they are shown.
    pub facts: Vec<Fact>,
    /// The parameters by component, for the components that it has.
    pub parts: Vec<PartSum>,
    /// The layouts of its quantised weights.
    pub quantised: Vec<Quantised>,
    /// The memory needed to load and to train it; `None` if the file does not have parameters.
    pub memory: Option<MemoryEstimate>,
    /// How many optimizer entries have a parameter name, by how the name was found.
    pub optimizer: Vec<Resolved>,
    /// The name of the config; empty if the model has no config.
    pub config: String,
}

/// A fact about a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// The name in JSON.
    pub name: Cow<'static, str>,
    /// The label for users.
    pub label: Cow<'static, str>,
    /// The value.
    pub value: FactValue,
    /// The source of the value.
    pub source: FactSource,
    /// What contradicts the value; mostly empty.
    pub doubt: String,
    /// Whether `doubt` is a real contradiction, and not, for example, just padding.
    pub contradicts: bool,
    /// The number that names and shapes give, if it is not the value.
    #[serde(default)]
    pub in_file: Option<u64>,
}

/// The value of a fact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FactValue {
    /// The value is not known.
    Unknown,
    /// A number.
    Number(u64),
    /// Yes or no.
    Flag(bool),
    /// Text.
    Text(String),
}

/// The source of a fact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FactSource {
    /// It was read from the config, at this location.
    Config(String),
    /// It was read from the file, at this location.
    File(String),
    /// It was inferred from these names or shapes.
    Inferred(String),
    /// It is not known, for this reason.
    Unknown(String),
}

/// Optimizer entries whose parameters were found in the same way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolved {
    /// Number of entries.
    pub entries: u64,
    /// How their parameters were found; empty if they were not.
    pub basis: String,
}

impl Model {
    /// Describes a model; does not read tensors. `leaves` are those of `checkpoint`.
    pub fn of(checkpoint: &Checkpoint, leaves: &[Leaf], config: Option<&Config>) -> Self {
        Self::counted(checkpoint, leaves, &CheckpointSummary::new(checkpoint, leaves), config).0
    }

    /// Describes a model, and returns the number of its parameters, which [`parameters`] would count
    /// again. `leaves` and `summary` are those of `checkpoint`.
    pub fn counted(
        checkpoint: &Checkpoint,
        leaves: &[Leaf],
        summary: &CheckpointSummary,
        config: Option<&Config>,
    ) -> (Self, ParameterCount) {
        let of_model = leaf::model_leaves(checkpoint, leaves);
        let state = summary.model().map(|(name, _)| name);
        let mut model = Self::read(&of_model, state, config);
        let parameters = Parameters::of(checkpoint, leaves);
        let tensors = of_model.iter().filter(|leaf| leaf.is_tensor);
        let known = parameters.known(tensors.map(|leaf| &*leaf.key));
        model.optimizer = known
            .into_iter()
            .map(|(basis, entries)| Resolved { entries, basis: basis.to_owned() })
            .collect();
        let count = ParameterCount {
            model: parts::params(&model.parts),
            all: summary.totals.all.elements,
            state: state.map(str::to_owned),
        };
        (model, count)
    }

    /// Describes a model by its leaves alone. `state` is the state that is the model, if there are
    /// others.
    pub(crate) fn read(
        leaves: &[ModelLeaf<'_>],
        state: Option<&str>,
        config: Option<&Config>,
    ) -> Self {
        let own = Config::of_leaves(leaves);
        let config = config.or(own.as_ref());
        let weights = Weights::new(leaves, state, config);
        let stacks = stacks::find(&weights);
        let mut parts = parts::sums(&weights, &stacks, config);
        let mut facts = facts::all(&weights, &stacks, &parts, config);
        facts.extend(config.into_iter().flat_map(|config| sizes::contradictions(&weights, config)));
        parts.retain(|part| part.tensors > 0);
        Self {
            facts,
            memory: MemoryEstimate::of(&parts),
            parts,
            quantised: weights.quantised,
            optimizer: Vec::new(),
            config: config.map(|config| config.name.clone()).unwrap_or_default(),
        }
    }

    /// Returns whether the model was recognised: the family or the layers are known.
    pub fn is_recognised(&self) -> bool {
        ["family", "layers"].iter().any(|name| self.fact(name).is_some_and(Fact::is_known))
    }

    /// Returns a fact by name.
    pub fn fact(&self, name: &str) -> Option<&Fact> {
        self.facts.iter().find(|fact| fact.name == name)
    }

    /// Returns a number by the name of its fact.
    pub fn number(&self, name: &str) -> Option<u64> {
        match self.fact(name)?.value {
            FactValue::Number(number) => Some(number),
            _ => None,
        }
    }
}

impl Fact {
    /// Returns the number that names and shapes give if the value contradicts it: the file is right
    /// then, and the config is that of another model.
    pub fn corrected(&self) -> Option<u64> {
        self.in_file.filter(|_| self.contradicts)
    }

    /// Returns the fact as names and shapes give it, if the config contradicts them; the doubt is then
    /// what the config says.
    pub fn of_file(&self) -> Cow<'_, Self> {
        let Some(number) = self.corrected() else { return Cow::Borrowed(self) };
        // The doubt ends with the evidence.
        let evidence = self.doubt.split_once(": ").map_or("", |(_, evidence)| evidence);
        Cow::Owned(Self {
            value: FactValue::Number(number),
            source: FactSource::Inferred(evidence.to_owned()),
            doubt: format!("{} says {}", self.source.text(), self.text()),
            in_file: None,
            ..self.clone()
        })
    }

    /// Returns whether the value is known.
    pub fn is_known(&self) -> bool {
        self.value != FactValue::Unknown
    }
}
