//! The request of `convert-model`: the model, its source and target formats, and the outputs.

use std::path::{Path, PathBuf};

use statelens::PathText as _;
use statelens::Result;
use statelens::parts::convert::shard_size;
use statelens::parts::formats::Shards;
use statelens_recipes::config::{Converted, Families};
use statelens_recipes::conversion::OPTIMIZER_FILE;
use statelens_recipes::inference::ModelInputs;
use statelens_recipes::language::{Recipe, Side};
use statelens_recipes::{Implementation, ranks, recognise};

use super::files::{self, TextFile};
use super::siblings::{output_folder, stem, weights};
use super::source::{ModelSource, recipe};
use crate::args::ConvertModel;
use crate::{remote, source};

pub(super) struct RequestedConversion {
    pub(super) recipe: Recipe,
    pub(super) model: String,
    pub(super) source: Implementation,
    pub(super) target: Implementation,
    /// Whether the checkpoint is in several folders.
    several: bool,
    /// Whether the checkpoint has a file per rank.
    ranked: bool,
}

impl RequestedConversion {
    pub(super) fn of(
        args: &ConvertModel,
        source: &ModelSource,
        target: Implementation,
    ) -> Result<Self> {
        let shown = || args.checkpoint.to_text();
        let guesses = match &source.config {
            Some(config) if source.parts.is_empty() => Families::known()?.recognise(config),
            _ => Vec::new(),
        };
        let inputs = ModelInputs {
            checkpoint: &source.checkpoint,
            config: source.config.as_ref(),
            guesses: &guesses,
            unwrap: args.unwrap,
            of_trainer: source.of_trainer
                || !source.parts.is_empty()
                || args.src_fmt.is_none()
                    && recognise::is_training_state(&source.checkpoint, args.unwrap),
            parts: &source.parts,
        };
        let requested = args.src_fmt.as_deref();
        let format = match (&source.ranked, requested) {
            (Some((_, format)), None) => *format,
            _ => inputs.source(requested, target).map_err(|error| error.in_file(shown()))?,
        };
        let model = match (&args.model, &args.recipe) {
            (Some(model), _) => model.clone(),
            (None, Some(_)) => recipe(args, "")?.family,
            (None, None) if let Some((family, _)) = &source.ranked => family.clone(),
            (None, None) => inputs.model(format, target).map_err(|error| error.in_file(shown()))?,
        };
        let recipe = recipe(args, &model)?;
        let several = !source.parts.is_empty();
        let ranked = source.ranked.is_some();
        Ok(Self { recipe, model, source: format, target, several, ranked })
    }

    /// Returns the new configs, with the names that the original tool gives them.
    pub(super) fn configs(
        &self,
        args: &ConvertModel,
        source: &ModelSource,
        mut converted: Converted,
    ) -> Result<Vec<TextFile>> {
        let folder = output_folder(args.output_dir.as_deref(), &args.checkpoint);
        converted.locate(&folder.to_text());
        if self.target.is_hf() && converted.parts.is_empty() {
            let path = folder.join(self.stem(args)?).join("config.json");
            return Ok(vec![(path, converted.config.to_json())]);
        }
        let config = source.config_path.as_deref().unwrap_or(&args.checkpoint);
        let stem = match source.parts.is_empty() {
            true => stem(config)?,
            false => "config".to_owned(),
        };
        let name = format!("{stem}_to_{}.{}", self.target, converted.language.extension());
        Ok(files::of(&converted, &folder, &name))
    }

    /// Returns the path of a part's checkpoint and how to split it into shards.
    pub(super) fn output(
        &self,
        args: &ConvertModel,
        part: Option<&str>,
    ) -> Result<(PathBuf, Shards)> {
        let folder = output_folder(args.output_dir.as_deref(), &args.checkpoint);
        if self.target.is_cerebras() {
            return Ok((folder.join(format!("{}.mdl", self.stem(args)?)), Shards::One));
        }
        let ranked = ranks::of(&self.recipe).any(|(block, ranks)| {
            let side = if ranks.side == Side::Left { &block.left } else { &block.right };
            side.contains(&self.target)
        });
        if let Some(file) = part.filter(|_| ranked) {
            return Ok((folder.join(self.stem(args)?).join(file), Shards::One));
        }
        if part == Some(OPTIMIZER_FILE) {
            return Ok((folder.join(self.stem(args)?).join(OPTIMIZER_FILE), Shards::One));
        }
        let folder = folder.join(part.map_or(self.stem(args)?, str::to_owned));
        let name = if args.export_safetensors { "model.safetensors" } else { "pytorch_model.bin" };
        Ok((folder.join(name), Shards::Numbered(shard_size(&args.hf_shard_size)?)))
    }

    /// Returns `NAME_to_FORMAT`.
    fn stem(&self, args: &ConvertModel) -> Result<String> {
        let name = match self.several {
            true => "pytorch_model".to_owned(),
            // The files of ranks have the same name in every checkpoint; the name of the folder
            // says more.
            false if self.ranked => {
                let folder = args.checkpoint.canonicalize().unwrap_or(args.checkpoint.clone());
                let folder = if folder.is_dir() { Some(&*folder) } else { folder.parent() };
                let name = folder.and_then(Path::file_name);
                name.map_or("model".to_owned(), |name| name.to_string_lossy().into_owned())
            }
            false if remote::address(&args.checkpoint).is_some() => stem(&args.checkpoint)?,
            false => stem(&source::named(&weights(&args.checkpoint))?)?,
        };
        Ok(format!("{name}_to_{}", self.target))
    }
}
