//! The model as text and as JSON.

use statelens_checkpoint::grouped;
use statelens_values::Json;

use super::{Fact, FactSource, FactValue, Model};

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
            let looks =
                if matches!(family.source, FactSource::Inferred(_)) { "looks like " } else { "" };
            parts.push(format!("{looks}{}", family.text()));
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

    /// Writes the fields of the model's JSON object.
    pub fn write(&self, json: &mut Json) {
        json.name("config").str(&self.config);
        json.name("facts").objects(&self.facts, |json, fact| {
            json.name("name").str(&fact.name);
            let json = json.name("value");
            match &fact.value {
                FactValue::Unknown => json.null(),
                FactValue::Number(number) => json.number(*number),
                FactValue::Flag(flag) => json.bool(*flag),
                FactValue::Text(text) => json.str(text),
            }
            json.name("source").str(fact.source.word());
            json.name("basis").str(&fact.basis());
        });
        json.name("parts").value(&self.parts);
        json.name("quantised").objects(&self.quantised, |json, layout| {
            json.name("layout").str(&layout.layout);
            json.name("block").str(&layout.block);
            json.name("bits_per_weight").value(&layout.bits_per_weight());
            json.name("tensors").number(layout.tensors);
            json.name("params").number(layout.params);
            json.name("bytes").number(layout.bytes);
        });
        json.name("memory").value(&self.memory);
        json.name("optimizer").value(&self.optimizer);
    }
}
