//! Recognises the model and the format of a config by its contents.

use statelens_checkpoint::order;

use super::family::Families;
use super::section::model_section;
use super::table::ConfigTable;
use crate::format::Implementation;
use crate::side::Side;
use crate::value::{Map, Value};

/// A possible model and format of a config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guess {
    /// The name for `--model`.
    pub model: String,
    pub format: Implementation,
}

impl Families {
    /// Returns the possible models of a config, the likeliest first; empty if nothing matches.
    pub fn recognise(&self, config: &Value) -> Vec<Guess> {
        let Some(root) = config.as_map() else { return Vec::new() };
        match model_section(root) {
            Ok(model) => self.of_cerebras(root, &model),
            Err(_) => self.of_hf(root),
        }
    }

    fn of_hf(&self, config: &Map) -> Vec<Guess> {
        let architectures: Vec<&str> = config
            .get("architectures")
            .and_then(Value::as_list)
            .map(|list| list.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default();
        let kind = config.get("model_type").unwrap_or(&Value::Null);
        let mut exact = Vec::new();
        let mut likely = Vec::new();
        for name in self.models() {
            let Ok(model) = self.model(name) else { continue };
            let known = model.architectures.iter().any(|one| architectures.contains(&one.as_str()));
            // A model without an architecture of its own is an alias of another.
            if known {
                exact.push(name);
            } else if !model.architectures.is_empty()
                && !name.ends_with("-headless")
                && self.has_kind(name, kind)
            {
                likely.push(name);
            }
        }
        // A config with an unknown architecture may still have a known `model_type`.
        let found = if exact.is_empty() { likely } else { exact };
        let guess =
            |model: &str| Guess { model: model.to_owned(), format: Implementation::HuggingFace };
        found.into_iter().map(guess).collect()
    }

    /// Returns whether a table of the model requires this `model_type`.
    fn has_kind(&self, model: &str, kind: &Value) -> bool {
        let Ok(model) = self.model(model) else { return false };
        let of_hf =
            model.converters.iter().filter(|one| one.left.contains(&Implementation::HuggingFace));
        let mut names: Vec<&str> = of_hf.map(|one| one.table.as_str()).collect();
        while let Some(name) = names.pop() {
            match self.table(name) {
                Ok(ConfigTable::Choose(choices)) => {
                    names.extend(choices.iter().map(|choice| choice.table.as_str()))
                }
                Ok(ConfigTable::Rules(rules)) => {
                    // The first rule for a key decides.
                    let rule = rules
                        .rules
                        .iter()
                        .find(|rule| rule.matches(Side::Left, "model_type").is_some());
                    if rule.is_some_and(|rule| rule.requires(kind)) {
                        return true;
                    }
                }
                _ => {}
            }
        }
        false
    }

    fn of_cerebras(&self, root: &Map, model: &Map) -> Vec<Guess> {
        let format = release(root, model);
        let name = model.get("name").unwrap_or(&Value::Null);
        // For Jais, the original tool writes Hugging Face's whole config as the name.
        let kind = name.as_map().and_then(|config| config.get("model_type"));
        let Some(label) = kind.unwrap_or(name).as_str() else { return Vec::new() };
        let format = match (model.get("dpo"), format.release()) {
            (Some(_), Some(release)) => Implementation::Cerebras(crate::format::Release {
                variant: crate::format::Variant::Dpo,
                ..release
            }),
            _ => format,
        };
        let of_label = |name: &&str| {
            let known = self.model(name).is_ok_and(|model| model.label == label);
            known && !name.ends_with("-headless")
        };
        let mut names: Vec<&str> = self.models().filter(of_label).collect();
        // A model with the same name as in the registry comes first.
        order::by_key(&mut names, |name| *name != label);
        names.into_iter().map(|name| Guess { model: name.to_owned(), format }).collect()
    }
}

/// Returns the newest release that writes configs with these keys.
fn release(root: &Map, model: &Map) -> Implementation {
    let has = |section: &str, key: &str| {
        root.get(section).and_then(Value::as_map).is_some_and(|section| section.contains(key))
    };
    let (major, minor) = if root.contains("trainer") {
        if model.contains("name") { (2, 9) } else { (2, 3) }
    } else if model.contains("name") {
        // The output of a conversion from Hugging Face: the model's section alone.
        (2, 9)
    } else if has("train_input", "micro_batch_size") || has("eval_input", "micro_batch_size") {
        (2, 2)
    } else if model.contains("use_bfloat16") || has("runconfig", "num_act_servers") {
        (2, 0)
    } else if ["use_rms_norm", "use_biasless_norm", "use_t5_layer_norm"]
        .iter()
        .any(|key| model.contains(key))
    {
        (1, 9)
    } else {
        (2, 2)
    };
    Implementation::cerebras(major, minor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Language, parse};

    fn guesses(text: &str) -> Vec<String> {
        let config = parse(text, Language::Yaml).unwrap();
        let guesses = Families::known().unwrap().recognise(&config);
        guesses.into_iter().map(|guess| format!("{} {}", guess.model, guess.format)).collect()
    }

    #[test]
    fn recognises_a_config_in_place_of_a_name() {
        assert_eq!(guesses("{model: {name: {model_type: jais}}}"), ["jais cs-2.9"]);
        assert_eq!(guesses("{model: {name: {n_head: 4}}}"), Vec::<String>::new());
    }

    #[test]
    fn recognises_by_architecture_or_model_type() {
        assert_eq!(guesses("{architectures: [LlamaForCausalLM], model_type: llama}"), ["llama hf"]);
        assert_eq!(guesses("{architectures: [GPT2Model], model_type: gpt2}"), ["gpt2-headless hf"]);
        assert_eq!(
            guesses("{architectures: [LlavaLlamaModel], model_type: mistral}"),
            ["mistral hf"]
        );
        assert_eq!(guesses("{model_type: RefinedWeb}"), ["falcon hf"]);
        assert_eq!(guesses("{model_type: bert}")[0], "bert hf");
        assert_eq!(guesses("{model_type: qwen9}"), Vec::<String>::new());
        assert_eq!(guesses("[1]"), Vec::<String>::new());
    }

    #[test]
    fn recognises_by_name_and_layout_of_cerebras() {
        assert_eq!(guesses("{trainer: {init: {model: {name: llama}}}}")[0], "llama cs-2.9");
        assert_eq!(guesses("{model: {name: dpo, dpo: {}}}")[0], "dpo cs-2.9-dpo");
        assert_eq!(guesses("{model: {hidden_size: 4}}"), Vec::<String>::new());
    }
}
