//! The conversions that are wanted most, each set by one button.

use crate::convert::state::Conversion;
use crate::family::message::FormatChoice;
use crate::rows::Row;
use crate::state::fmt;

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

/// The dtypes that a cast to bfloat16 changes.
const FLOATS: [&str; 4] = ["float64", "float32", "float16", "bfloat16"];

/// Words in the names of states that trainers write next to the weights.
const TRAINER: [&str; 11] = [
    "optim", "sched", "epoch", "step", "iter", "args", "hyper", "rng", "scaler", "callback",
    "version",
];

impl Preset {
    /// Returns those that make sense for a checkpoint with these states and numbers of shards.
    pub fn all(convert: &Conversion, states: &[String], shards: u64) -> Vec<Self> {
        let mut all = Vec::new();
        let model = MODEL_STATES.iter().find(|name| states.iter().any(|state| state == *name));
        // Models of Hugging Face have heads next to `model`, which are weights, too.
        let is_of_trainer = |state: &String| TRAINER.iter().any(|word| state.contains(word));
        let model = model.filter(|_| states.iter().any(is_of_trainer));
        all.extend(model.map(|name| Self::WeightsOnly((*name).into())));
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

    /// Returns the size and the losses of its output, in a few words. The size is that of the tensors.
    pub fn note(&self, rows: &[Row]) -> String {
        let about = |bytes: u64| format!("about {}", fmt::bytes(bytes));
        match self {
            Self::WeightsOnly(state) => {
                let own = |row: &&Row| row.key.split('.').next() == Some(state);
                let is_float = |row: &Row| FLOATS.contains(&row.dtype.as_str());
                let size = |row: &Row| match is_float(row) {
                    true => row.params.saturating_mul(2),
                    false => row.bytes,
                };
                let own = || rows.iter().filter(own);
                let about = about(own().fold(0, |all, row| all.saturating_add(size(row))));
                match own().any(|row| is_float(row) && row.dtype != "bfloat16") {
                    true => format!("{about}, rounds"),
                    false => format!("{about}, no loss"),
                }
            }
            Self::OneFile => {
                let bytes = rows.iter().fold(0u64, |all, row| all.saturating_add(row.bytes));
                format!("{}, no loss", about(bytes))
            }
            Self::Family(..) => "renames, writes the config".to_owned(),
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
        let states = ["model", "lm_head"].map(str::to_owned);
        assert_eq!(Preset::all(&convert, &states, 1), [], "the head is a part of the weights");
    }

    #[test]
    fn notes_have_the_size_of_the_output() {
        let row = |key: &str, dtype: &str, params: u64, bytes: u64| Row {
            key: key.into(),
            dtype: dtype.into(),
            params,
            bytes,
            kind: crate::rows::LeafKind::Tensor,
            shape: vec![params],
            value: String::new(),
            link: None,
        };
        let mut rows = vec![
            row("model.a", "float32", 1_000, 4_000),
            row("model.b", "int64", 10, 80),
            row("optimizer.a", "float32", 1_000, 4_000),
        ];
        let weights = Preset::WeightsOnly("model".into());
        assert_eq!(weights.note(&rows), "about 2.08 kB, rounds");
        assert_eq!(Preset::OneFile.note(&rows), "about 8.08 kB, no loss");
        rows[0].dtype = "bfloat16".into();
        assert_eq!(weights.note(&rows), "about 2.08 kB, no loss");
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
