//! What the model is, as far as keys, shapes, dtypes and its config tell: family, sizes, parameters by
//! part, quantised layouts, memory. Reads no tensor.
//!
//! Each [`Fact`] says where it comes from: read from the config or the file, inferred from names and
//! shapes, or unknown, and why.

mod config;
mod contradictions;
mod count;
mod experts;
mod facts;
mod family;
mod heads;
mod key;
mod memory;
mod packed;
mod parts;
mod roles;
mod stacks;
#[cfg(test)]
mod tests;
mod weights;
mod write;

use statelens_checkpoint::{Checkpoint, FileId, Leaf};

pub use config::Config;
pub use count::parameters;
pub(crate) use count::parameters_among;
pub use memory::MemoryEstimate;
pub use packed::Quantised;
pub use parts::PartSum;
pub use roles::ModelComponent;

use crate::entry::LeafSummary;
use crate::optimizer::Parameters;
use crate::summary::CheckpointSummary;
use weights::Weights;

/// What a model is.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Model {
    /// One line each, in the order in which they are told.
    pub facts: Vec<Fact>,
    /// Where its parameters are, the parts that it has.
    pub parts: Vec<PartSum>,
    /// How its quantised weights are laid out.
    pub quantised: Vec<Quantised>,
    /// What it takes to load and to train it; nothing if the file holds no parameters.
    pub memory: Option<MemoryEstimate>,
    /// What the numbers of its optimizer stand for: how many of the entries have a name, and how that is
    /// known.
    pub optimizer: Vec<Resolved>,
    /// The config that was read; empty if there was none.
    pub config: String,
}

/// One line of what is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// What it is called in JSON.
    pub name: &'static str,
    /// What people call it.
    pub label: &'static str,
    /// What it is.
    pub value: FactValue,
    /// How that is known.
    pub source: FactSource,
    /// What contradicts it; mostly empty.
    pub doubt: String,
    /// What contradicts it can't be true beside it, as padding can.
    pub contradicts: bool,
}

/// What a fact says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FactValue {
    /// Nobody knows.
    Unknown,
    /// A number.
    Number(u64),
    /// Yes or no.
    Flag(bool),
    /// Words.
    Text(String),
}

/// How a fact is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FactSource {
    /// It stands so in the config or the file: where.
    Read(String),
    /// It follows from names or shapes: from which.
    Inferred(String),
    /// It does not: what would tell.
    Unknown(String),
}

/// Entries of an optimizer that were resolved in one way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// How many.
    pub entries: u64,
    /// How their parameters are known; empty if they are not.
    pub basis: String,
}

impl Model {
    /// Finds out; reads no tensor. `leaves` are those of `checkpoint`.
    pub fn of(checkpoint: &Checkpoint, leaves: &[Leaf], config: Option<&Config>) -> Self {
        let (entries, places) = count::model_entries(checkpoint, leaves);
        let summary = CheckpointSummary::new(checkpoint, leaves);
        let state = summary.model().map(|(name, _)| name);
        let mut model = Self::read(&entries, &places, state, config);
        let parameters = Parameters::of(checkpoint, leaves);
        let moments = entries.iter().filter(|entry| entry.is_tensor());
        let known = parameters.known(moments.map(|entry| &*entry.key));
        model.optimizer = known
            .into_iter()
            .map(|(basis, entries)| Resolved { entries, basis: basis.to_owned() })
            .collect();
        model
    }

    /// As [`Model::of`], where only an outline is there.
    pub fn of_entries(entries: &[LeafSummary], config: Option<&Config>) -> Self {
        Self::read(entries, &[], None, config)
    }

    fn read(
        entries: &[LeafSummary],
        places: &[Option<(FileId, u64)>],
        state: Option<&str>,
        config: Option<&Config>,
    ) -> Self {
        let own = Config::of_entries(entries);
        let config = config.or(own.as_ref());
        let weights = Weights::new(entries, places, state, config);
        let stacks = stacks::find(&weights);
        let mut parts = parts::sums(&weights, &stacks, config);
        let facts = facts::all(&weights, &stacks, &parts, config);
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

    /// Whether there is anything to tell: a family or layers.
    pub fn is_recognised(&self) -> bool {
        ["family", "layers"].iter().any(|name| self.fact(name).is_some_and(Fact::is_known))
    }

    /// A fact by its name.
    pub fn fact(&self, name: &str) -> Option<&Fact> {
        self.facts.iter().find(|fact| fact.name == name)
    }

    /// A number by the name of its fact.
    pub fn number(&self, name: &str) -> Option<u64> {
        match self.fact(name)?.value {
            FactValue::Number(number) => Some(number),
            _ => None,
        }
    }
}

impl Fact {
    /// Whether it says something.
    pub fn is_known(&self) -> bool {
        self.value != FactValue::Unknown
    }
}
