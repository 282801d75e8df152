//! Determines what the user did not specify: the format and the model of a checkpoint, the configs
//! for each step, and the names of the output.

use statelens_checkpoint::{Checkpoint, Error, Result, Setting, advice, order};

use crate::config::{Converted, Families, Guess, Value};
use crate::conversion::{RouteStep, StepConfigs, components, route};
use crate::format::{Release, Variant};
use crate::language::Recipe;
use crate::{Implementation, families, recognise};

#[derive(Debug, Clone, Copy)]
pub struct ModelInputs<'a> {
    pub checkpoint: &'a Checkpoint,
    pub config: Option<&'a Value>,
    /// The models that the config may describe.
    pub guesses: &'a [Guess],
    /// Whether keys are compared as [`unwrapped`](crate::conversion::unwrapped) returns them.
    pub unwrap: bool,
    /// Whether it was combined from several files, which no Cerebras release writes: then a state
    /// `model` is Hugging Face's.
    pub of_trainer: bool,
    /// The folders that a model of several parts was combined from.
    pub parts: &'a [String],
}

impl ModelInputs<'_> {
    /// Returns the format of the checkpoint. `requested` is the user's choice: `cs-auto` is the release
    /// that the checkpoint or its config names.
    pub fn source(
        &self,
        requested: Option<&str>,
        target: Implementation,
    ) -> Result<Implementation> {
        let cerebras = !self.of_trainer && recognise::is_cerebras(self.checkpoint);
        match requested {
            Some("cs-auto") | None if cerebras => recognise::release(self.checkpoint)
                .map(|format| self.variant(format))
                .or_else(|| {
                    let of_config = self.guesses.iter().map(|guess| guess.format);
                    of_config.into_iter().find(|format| !format.is_hf())
                })
                .or((requested.is_none() && target.is_hf()).then_some(Implementation::CURRENT))
                .ok_or_else(|| {
                    Error::refused("the release of the checkpoint could not be recognised")
                        .advice(advice!["Specify it, as in ", Setting::FromCerebras, "."])
                }),
            Some("cs-auto") => Err(Error::refused(
                "it has no `model` state, which Cerebras \
                                                   checkpoints have",
            )
            .advice(advice![
                "If it is a Hugging Face checkpoint, use ",
                Setting::FromHuggingFace,
                "."
            ])),
            Some(text) => text.parse(),
            None => Ok(match self.of_trainer {
                true => Implementation::HuggingFace,
                false => recognise::layout(self.checkpoint, self.config)
                    .unwrap_or(Implementation::HuggingFace),
            }),
        }
    }

    /// Adds the layout of the release, which only the config has.
    fn variant(&self, format: Implementation) -> Implementation {
        let of_config = self.guesses.iter().find_map(|guess| guess.format.release());
        match (format, of_config) {
            (Implementation::Cerebras(release), Some(config)) => {
                Implementation::Cerebras(Release { variant: config.variant, ..release })
            }
            _ => format,
        }
    }

    /// Returns the model that the config names, if its rules match the keys; of several, the first
    /// whose config can be converted.
    pub fn model(&self, format: Implementation, target: Implementation) -> Result<String> {
        // Otherwise, a lack of memory would look like an unknown model.
        self.checkpoint.room(4_000)?;
        let named = |format: Implementation| !format.is_hf() && !format.is_cerebras();
        if named(format) || named(target) {
            return self.layout(format, target);
        }
        if let Some(only) = of_variant(format, target) {
            return Ok(only);
        }
        let by_keys = match self.parts {
            [] => recognise::by_keys(self.checkpoint, format.is_hf(), self.unwrap),
            parts => recognise::by_parts(self.checkpoint, parts, target),
        };
        let best = by_keys.first().map_or(0, |guess| guess.known);
        let fits = |name: &str| {
            let family = families::find(name).map(|recipe| recipe.family);
            family.is_ok_and(|family| {
                by_keys.iter().any(|guess| guess.family == family && guess.known == best)
            })
        };
        let from_config: Vec<&str> = self
            .guesses
            .iter()
            .filter(|guess| guess.format.is_hf() == format.is_hf() && fits(&guess.model))
            .map(|guess| &*guess.model)
            .collect();
        let first: Vec<&str> = by_keys
            .iter()
            .filter(|guess| guess.known == best)
            .map(|guess| &*guess.family)
            .collect();
        // If the keys are the same, the model with a head is the more common one.
        let whole = |name: &&str| {
            name.strip_suffix("-headless").is_none_or(|whole| !first.contains(&whole))
        };
        let first: Vec<&str> = first.iter().copied().filter(whole).collect();
        let known = Families::known()?;
        let converts = |name: &&str| {
            let converted = |config| known.convert(name, format, target, config).is_ok();
            self.config.is_some_and(converted)
        };
        if let Some(name) = from_config.iter().copied().find(|name| converts(name)) {
            return Ok(name.to_owned());
        }
        let others: Vec<&str> = first.iter().copied().filter(converts).collect();
        match (&from_config[..], &others[..], &first[..]) {
            (_, [only], _) | ([only, ..], [], _) | ([], [], [only]) => Ok((*only).to_owned()),
            _ => {
                let wrapped = !self.unwrap
                    && first.is_empty()
                    && !recognise::by_keys(self.checkpoint, format.is_hf(), true).is_empty();
                let error =
                    Error::refused("the model could not be recognised").advice(match wrapped {
                        true => {
                            advice![
                                "Its keys are those of a wrapped model: use ",
                                Setting::Unwrap,
                                "."
                            ]
                        }
                        false => advice![
                            "Specify it with ",
                            Setting::Model,
                            ", and its config with ",
                            Setting::Config,
                            "."
                        ],
                    });
                Err(match first.is_empty() {
                    true => error,
                    false => error.expected(format!("one of {}", first.join(", "))),
                })
            }
        }
    }

    /// Returns the recipe between two formats, one of which is neither Hugging Face's nor
    /// Cerebras's.
    fn layout(&self, format: Implementation, target: Implementation) -> Result<String> {
        let config = self.config.unwrap_or(&Value::Null);
        let found = recognise::between(self.checkpoint, config, format, target);
        match &found[..] {
            [] if format == target => Err(Error::refused(format!(
                "its keys are those of {target} already"
            ))
            .advice(advice![
                "If only some of them are, convert the others with your own ",
                Setting::Recipe,
                "."
            ])),
            [] => Err(Error::refused(format!(
                "no recipe between {format} and {target} matches its keys"
            ))
            .advice(advice![
                Setting::ListConverters,
                " lists all formats. Specify a model with ",
                Setting::Model,
                ", or your own recipe with ",
                Setting::Recipe,
                "."
            ])),
            [first, second, ..] if first.known == second.known => {
                Err(Error::refused("several recipes match")
                    .expected(format!("one of {}, {}", first.family, second.family))
                    .advice(advice![
                        "Choose one with ",
                        Setting::Model,
                        ", or use your own with ",
                        Setting::Recipe,
                        "."
                    ]))
            }
            [first, ..] => Ok(first.family.clone()),
        }
    }
}

/// Returns the folders of a Hugging Face model of several parts, if all folders of a family exist.
pub fn parts_in(has: &dyn Fn(&str) -> bool) -> Vec<String> {
    let recipes = families::names().filter_map(|name| families::find(name).ok());
    let mut all = recipes.map(|recipe| folders(&recipe));
    all.find(|parts| !parts.is_empty() && parts.iter().all(|part| has(part))).unwrap_or_default()
}

/// Returns the folders that a model of several parts has at Hugging Face.
pub fn folders(recipe: &Recipe) -> Vec<String> {
    let releases = recipe.blocks.iter().flat_map(|block| block.right.iter().copied());
    let mut found = Vec::new();
    for to in releases {
        for name in components(recipe, RouteStep { from: Implementation::HuggingFace, to }) {
            if !found.contains(&name) {
                found.push(name);
            }
        }
    }
    found
}

/// Returns the formats of a recipe that are neither Cerebras's nor Hugging Face's and don't have a
/// file per rank.
pub fn layouts(recipe: &Recipe) -> Vec<Implementation> {
    let blocks = recipe.blocks.iter().filter(|block| block.ranks.is_none());
    let mut all: Vec<Implementation> =
        blocks.flat_map(|block| block.left.iter().chain(&block.right)).copied().collect();
    all.retain(|format| !format.is_hf() && !format.is_cerebras());
    order::natural(&mut all);
    all.dedup();
    all
}

/// Returns the only family with such a layout of a release, as in `cs-2.9-dpo`.
fn of_variant(format: Implementation, target: Implementation) -> Option<String> {
    let plain =
        |format: Implementation| format.release().is_none_or(|own| own.variant == Variant::Plain);
    if plain(format) && plain(target) {
        return None;
    }
    let leads = |name: &&str| {
        families::find(name).is_ok_and(|recipe| route(&recipe, format, target).is_ok())
    };
    let mut found = families::names().filter(leads);
    found.next().filter(|_| found.next().is_none()).map(str::to_owned)
}

/// Returns the steps from one format to another with the configs of both sides, and the new config,
/// which is `None` for a model that only the user's recipe supports.
pub fn stages(
    recipe: &Recipe,
    model: &str,
    step: RouteStep,
    config: Option<&Value>,
) -> Result<(Vec<StepConfigs>, Option<Converted>)> {
    let known = Families::known()?;
    if known.models().any(|own| own == model) {
        let config = config.ok_or_else(|| {
            Error::refused("the model's config is needed, but the folder has no config")
                .advice(advice!["Choose it with ", Setting::Config, "."])
        })?;
        let converted = known.convert(model, step.from, step.to, config)?;
        let stages = converted.steps.iter().map(|step| StepConfigs {
            step: RouteStep { from: step.step.source, to: step.step.target },
            left: step.left.clone(),
            right: step.right.clone(),
        });
        return Ok((stages.collect(), Some(converted)));
    }
    // A recipe of the user's reads both sides' values from the available config.
    let config = config.cloned().unwrap_or(Value::Null);
    let way = route(recipe, step.from, step.to)?;
    let stage = |step| StepConfigs { step, left: config.clone(), right: config.clone() };
    Ok((way.into_iter().map(stage).collect(), None))
}

/// Returns the name of a file without its extensions (those that consist of letters).
pub fn stem(name: &str) -> &str {
    let mut name = name;
    while let Some((stem, extension)) = name.rsplit_once('.') {
        let letters = extension.chars().all(|c| c.is_ascii_alphabetic());
        if stem.is_empty() || !letters {
            break;
        }
        name = stem;
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_alphabetic_extensions() {
        for (name, expected) in [
            ("model.safetensors.index.json", "model"),
            ("checkpoint_0.mdl", "checkpoint_0"),
            ("model-00001-of-00002.safetensors", "model-00001-of-00002"),
            ("a.2.pt", "a.2"),
            (".mdl", ".mdl"),
        ] {
            assert_eq!(stem(name), expected);
        }
    }
}
