//! The model as text and as JSON.

use serde::Serialize;
use statelens_checkpoint::grouped;

use super::{Fact, FactSource, FactValue, MemoryEstimate, Model, PartSum, Quantised, Resolved};

impl Fact {
    /// Formats the value.
    pub fn text(&self) -> String {
        match &self.value {
            FactValue::Unknown => "unknown".to_owned(),
            FactValue::Number(number) => grouped(*number),
            FactValue::Flag(true) => "yes".to_owned(),
            FactValue::Flag(false) => "no".to_owned(),
            FactValue::Text(text) => text.clone(),
        }
    }

    /// Returns the source, and what contradicts the value.
    pub fn basis(&self) -> String {
        let text = self.source.text();
        match self.doubt.is_empty() {
            true => text.to_owned(),
            false => format!("{text}; but {}", self.doubt),
        }
    }
}

impl FactSource {
    /// Returns `read`, `inferred` or `unknown`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Config(_) | Self::File(_) => "read",
            Self::Inferred(_) => "inferred",
            Self::Unknown(_) => "unknown",
        }
    }

    /// Returns the location, the evidence, or why it is not known.
    pub fn text(&self) -> &str {
        let (Self::Config(text) | Self::File(text) | Self::Inferred(text) | Self::Unknown(text)) =
            self;
        text
    }
}

impl Model {
    /// Summarises the family and its sizes in one line; empty if the model is not recognised.
    pub fn line(&self) -> String {
        if !self.is_recognised() {
            return String::new();
        }
        let mut parts = Vec::new();
        if let Some(family) = self.fact("family").filter(|fact| fact.is_known()) {
            let text = family.text();
            // `Llama-like` says it by itself.
            let is_guess =
                matches!(family.source, FactSource::Inferred(_)) && !text.contains("-like");
            parts.push(format!("{}{text}", if is_guess { "looks like " } else { "" }));
        }
        for (name, before, after) in [
            ("layers", "", " layers"),
            ("hidden_size", "hidden ", ""),
            ("heads", "", " heads"),
            ("vocabulary", "vocabulary ", ""),
            ("experts", "", " experts"),
        ] {
            let corrected = self.fact(name).and_then(Fact::corrected);
            let number = corrected.or_else(|| self.number(name)).map(grouped);
            parts.extend(number.map(|number| format!("{before}{number}{after}")));
        }
        parts.join("; ")
    }

    /// Returns the fields of the model's JSON object.
    pub fn report(&self) -> ModelReport<'_> {
        let fact = |fact: &'_ Fact| {
            let fact = fact.of_file();
            FactReport {
                name: fact.name.to_string(),
                value: fact.value.clone().into(),
                source: fact.source.word(),
                basis: fact.basis(),
            }
        };
        let quantised = |layout: &'_ Quantised| QuantisedReport {
            layout: layout.layout.clone(),
            block: layout.block.clone(),
            bits_per_weight: layout.bits_per_weight(),
            tensors: layout.tensors,
            parameters: layout.params,
            bytes: layout.bytes,
        };
        ModelReport {
            config: &self.config,
            facts: self.facts.iter().map(fact).collect(),
            parts: &self.parts,
            quantised: self.quantised.iter().map(quantised).collect(),
            memory: &self.memory,
            optimizer: &self.optimizer,
        }
    }
}

/// The description of a model as JSON.
#[derive(Debug, Serialize)]
pub struct ModelReport<'a> {
    config: &'a str,
    facts: Vec<FactReport>,
    parts: &'a [PartSum],
    quantised: Vec<QuantisedReport>,
    memory: &'a Option<MemoryEstimate>,
    optimizer: &'a [Resolved],
}

#[derive(Debug, Serialize)]
struct FactReport {
    name: String,
    value: FactJson,
    source: &'static str,
    basis: String,
}

/// The value of a fact, `null` if it is not known.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum FactJson {
    Unknown(()),
    Number(u64),
    Flag(bool),
    Text(String),
}

impl From<FactValue> for FactJson {
    fn from(value: FactValue) -> Self {
        match value {
            FactValue::Unknown => Self::Unknown(()),
            FactValue::Number(number) => Self::Number(number),
            FactValue::Flag(flag) => Self::Flag(flag),
            FactValue::Text(text) => Self::Text(text),
        }
    }
}

#[derive(Debug, Serialize)]
struct QuantisedReport {
    layout: String,
    block: String,
    bits_per_weight: Option<f64>,
    tensors: u64,
    parameters: u64,
    bytes: u64,
}
