//! The conversions that are wanted most, each set by one button.

use crate::convert::state::Conversion;
use crate::family::message::FormatChoice;

/// A conversion that is often wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Preset {
    /// The state with the model's weights, in bfloat16, as safetensors.
    WeightsOnly(String),
    /// All shards as one safetensors file.
    OneFile,
    /// A format of the model's family: its id and its name.
    Family(String, String),
}

/// Names of the states that hold the weights, as trainers use them.
const MODEL_STATES: [&str; 5] =
    ["model", "state_dict", "model_state_dict", "module", "model_state"];

impl Preset {
    /// Returns those that make sense for a checkpoint with these states and numbers of shards.
    pub fn all(convert: &Conversion, states: &[String], shards: u64) -> Vec<Self> {
        let mut all = Vec::new();
        let model = MODEL_STATES.iter().find(|name| states.iter().any(|state| state == *name));
        all.extend(
            model.filter(|_| states.len() > 1).map(|name| Self::WeightsOnly((*name).into())),
        );
        let targets = convert.family.as_ref().map(|reply| reply.recognised.targets.as_slice());
        let targets = targets.unwrap_or_default();
        let family = |cerebras: bool| {
            let found = targets.iter().find(|target| target.id.starts_with("cs-") == cerebras)?;
            let FormatChoice { id, name } = found.clone();
            Some(Self::Family(id, name))
        };
        all.extend(family(false));
        all.extend(family(true));
        all.extend((shards > 1).then_some(Self::OneFile));
        all
    }

    /// Returns the text of its button.
    pub fn label(&self) -> String {
        match self {
            Self::WeightsOnly(_) => "Weights only, bf16".to_owned(),
            Self::OneFile => "One file".to_owned(),
            Self::Family(_, name) => format!("To {name}"),
        }
    }

    /// Sets the options, apart from a format of the family. All others get their defaults.
    pub fn apply(&self, convert: &mut Conversion, states: &[String]) {
        let name = convert.options.name.clone();
        convert.options = crate::convert::message::ConvertOptions {
            to: "safetensors".to_owned(),
            name,
            ..Default::default()
        };
        convert.excluded_states.clear();
        convert.acknowledged.clear();
        convert.named = false;
        if let Self::WeightsOnly(model) = self {
            convert.options.cast = Some("bfloat16".to_owned());
            convert.options.states = vec![model.clone()];
            let others = states.iter().filter(|name| *name != model && !name.starts_with("__"));
            convert.excluded_states = others.cloned().collect();
        }
        convert.follow();
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::open::message::OpenedCheckpoint;

    fn conversion() -> Conversion {
        let opened = OpenedCheckpoint {
            name: "train.pt".into(),
            format_id: "torch".into(),
            ..OpenedCheckpoint::default()
        };
        Conversion::new(&Rc::new(opened), 1).unwrap()
    }

    #[test]
    fn presets_fit_the_checkpoint() {
        let convert = conversion();
        let states = ["model", "optimizer", "__version__"].map(str::to_owned);
        assert_eq!(Preset::all(&convert, &states, 0), [Preset::WeightsOnly("model".into())]);
        assert_eq!(Preset::all(&convert, &states[..1], 3), [Preset::OneFile]);
        assert_eq!(Preset::all(&convert, &[], 1), []);
    }

    #[test]
    fn weights_only_leaves_out_the_other_states() {
        let mut convert = conversion();
        convert.options.prefix = "x.".into();
        let states = ["model", "optimizer", "__version__"].map(str::to_owned);
        Preset::WeightsOnly("model".into()).apply(&mut convert, &states);
        assert_eq!(convert.options.states, ["model"]);
        assert_eq!(convert.options.cast.as_deref(), Some("bfloat16"));
        assert_eq!(
            (convert.options.to.as_str(), convert.options.prefix.as_str()),
            ("safetensors", "")
        );
        assert_eq!(convert.excluded_states.iter().collect::<Vec<_>>(), ["optimizer"]);
        assert!(convert.options.name.ends_with(".safetensors"), "{}", convert.options.name);
    }
}
