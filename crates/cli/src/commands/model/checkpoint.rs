//! `statelens convert-model`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use statelens_checkpoint::{Checkpoint, Error, FileSet, Result};
use statelens_convert::{Edit, shard_size};
use statelens_formats::Shards;
use statelens_inspect::{Json, visible};
use statelens_recipes::config::{Converted, Families, Language, Value};
use statelens_recipes::conversion::{Conversion, Leg, Wishes, components, convert};
use statelens_recipes::engine::Move;
use statelens_recipes::language::Recipe;
use statelens_recipes::proposal::{self, Clues};
use statelens_recipes::{Format, families, parts};

use super::files::{self, File};
use crate::args::{ConvertModel, Edits, Writes};
use crate::commands;
use crate::commands::convert::{Destination, Job};
use crate::limits::limits;
use crate::print::{Outcome, Printer, complain, counted};
use crate::progress::{Bar, Unit};
use crate::scratch;
use crate::source::{self, FileSource};

pub(crate) fn run(args: &ConvertModel) -> Outcome {
    let target: Format = args.tgt_fmt.parse()?;
    let source = Source::open(args)?;
    let asked = Asked::of(args, &source, target)?;
    let leg = Leg { from: asked.source, to: asked.target };
    let (stages, converted) =
        proposal::stages(&asked.recipe, &asked.model, leg, source.config.as_ref())?;
    let params = converted.as_ref().map(|converted| converted.config.clone());
    let params = params.or(source.config.clone()).unwrap_or(Value::Null);
    let wishes = Wishes { drop_unmatched: args.drop_unmatched_keys, unwrap: args.unwrap };
    let done = convert(&source.checkpoint, &asked.recipe, &stages, &params, wishes)?;
    let configs = match converted {
        Some(converted) => asked.configs(args, &source, converted)?,
        None => Vec::new(),
    };
    if args.dry_run {
        return preview(args, &asked, &done);
    }
    for one in &done.unmatched {
        complain(&format!("left out, as no rule is about it: `{}`", visible(&one.key)));
    }
    if !args.common.json {
        let mut printer = Printer::new();
        printer.line(&format!("{} from {} to {}", asked.recipe.family, asked.source, target))?;
        printer.finish()?;
    }
    if names_dataloader_state(source.config.as_ref()) && !target.is_hf() {
        complain(
            "the config names a state of the dataloader beside the checkpoint, which stays as it is: \
             put it in with `statelens convert-dataloader-state`",
        );
    }
    // Whether all can be written is found out before the first is.
    files::check(&configs, args.force)?;
    let writes = writes(args, target);
    for (part, checkpoint) in done.parts {
        let (path, cut) = asked.output(args, part.as_deref())?;
        let job = Job {
            destination: Destination::File(path),
            writing: statelens_formats::writing(writes.to.as_deref().unwrap_or_default())?,
            edits: &Edits::default(),
            edit: Edit::default(),
            writes: &writes,
            common: &args.common,
            dry_run: false,
            scan: false,
            cut,
        };
        job.run(checkpoint, &source.sources)?;
    }
    files::write(&configs, args.force, &args.durable)?;
    let mut printer = Printer::new();
    if !args.common.json {
        for (path, _) in &configs {
            printer.line(&format!("wrote {}", visible(&path.display().to_string())))?;
        }
    }
    printer.finish()?;
    Ok(true)
}

/// What is read.
struct Source {
    checkpoint: Checkpoint,
    sources: Vec<Arc<FileSource>>,
    config: Option<Value>,
    config_path: Option<PathBuf>,
    /// The folders of a model of several parts.
    parts: Vec<String>,
}

impl Source {
    fn open(args: &ConvertModel) -> Result<Self> {
        let named = args.model.as_deref().map(|name| recipe(args, name)).transpose()?;
        let parts = match &named {
            Some(recipe) if args.checkpoint.is_dir() => {
                let all = folders(recipe).into_iter();
                all.filter(|part| args.checkpoint.join(part).is_dir()).collect()
            }
            _ => Vec::new(),
        };
        let config_path = match &args.config {
            Some(path) => Some(path.clone()),
            None if parts.is_empty() => beside(&args.checkpoint),
            None => Some(args.checkpoint.clone()),
        };
        let config = config_path.as_deref().map(|path| files::read_config(path, &parts));
        let config = config.transpose()?;
        if parts.is_empty() {
            let (checkpoint, sources) = commands::open(&args.checkpoint, &args.common.with)?;
            return Ok(Self { checkpoint, sources, config, config_path, parts });
        }
        let mut sets = Vec::new();
        let mut sources = Vec::new();
        for part in &parts {
            let opened = source::open(&args.checkpoint.join(part), &[])?;
            sets.push((part.clone(), opened.files.with_scratch(scratch::on_disk())));
            sources.extend(opened.sources);
        }
        let mut bar = Bar::new("opening", Unit::Keys);
        let checkpoint = parts::together(sets, limits(), &mut |files: FileSet| {
            statelens_formats::open(files, limits(), &mut bar)
        })?;
        Ok(Self { checkpoint, sources, config, config_path, parts })
    }
}

/// What is converted, from what to what.
struct Asked {
    recipe: Recipe,
    model: String,
    source: Format,
    target: Format,
    /// It is in several folders.
    several: bool,
}

impl Asked {
    fn of(args: &ConvertModel, source: &Source, target: Format) -> Result<Self> {
        let shown = || args.checkpoint.display().to_string();
        let guesses = match &source.config {
            Some(config) if source.parts.is_empty() => Families::known()?.recognise(config),
            _ => Vec::new(),
        };
        let clues = Clues {
            checkpoint: &source.checkpoint,
            config: source.config.as_ref(),
            guesses: &guesses,
            unwrap: args.unwrap,
        };
        let asked = args.src_fmt.as_deref();
        let format = clues.source(asked, target).map_err(|error| error.in_file(shown()))?;
        let model = match (&args.model, &args.recipe) {
            (Some(model), _) => model.clone(),
            (None, Some(_)) => recipe(args, "")?.family,
            (None, None) => clues.model(format, target).map_err(|error| error.in_file(shown()))?,
        };
        let recipe = recipe(args, &model)?;
        let several = !source.parts.is_empty();
        Ok(Self { recipe, model, source: format, target, several })
    }

    /// The new configs, by the names that the original tool gives them.
    fn configs(
        &self,
        args: &ConvertModel,
        source: &Source,
        mut converted: Converted,
    ) -> Result<Vec<File>> {
        let folder = self.folder(args);
        converted.locate(&folder.display().to_string());
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

    /// Where a part's checkpoint goes, and how it is cut.
    fn output(&self, args: &ConvertModel, part: Option<&str>) -> Result<(PathBuf, Shards)> {
        let folder = self.folder(args);
        if !self.target.is_hf() {
            return Ok((folder.join(format!("{}.mdl", self.stem(args)?)), Shards::One));
        }
        let folder = folder.join(part.map_or(self.stem(args)?, str::to_owned));
        let name = if args.export_safetensors { "model.safetensors" } else { "pytorch_model.bin" };
        Ok((folder.join(name), Shards::Numbered(shard_size(&args.hf_shard_size)?)))
    }

    fn folder(&self, args: &ConvertModel) -> PathBuf {
        match &args.output_dir {
            Some(folder) => folder.clone(),
            None if args.checkpoint.is_dir() => args.checkpoint.clone(),
            None => args.checkpoint.parent().map(Path::to_owned).unwrap_or_default(),
        }
    }

    /// `NAME_to_FORMAT`.
    fn stem(&self, args: &ConvertModel) -> Result<String> {
        let name = match self.several {
            true => "pytorch_model".to_owned(),
            false => stem(&source::named(&args.checkpoint)?)?,
        };
        Ok(format!("{name}_to_{}", self.target))
    }
}

/// Whether a config of release 1.9 says where text files with the dataloader's state are.
fn names_dataloader_state(config: Option<&Value>) -> bool {
    let section = config.and_then(Value::as_map).and_then(|map| map.get("cerebras"));
    section.and_then(Value::as_map).is_some_and(|map| map.contains("save_iter_state_path"))
}

/// The name without its extensions: those that are letters only.
fn stem(path: &Path) -> Result<String> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name
        .ok_or_else(|| Error::refused("this names no file").in_file(path.display().to_string()))?;
    Ok(proposal::stem(&name).to_owned())
}

/// The user's recipe, or that of a model.
fn recipe(args: &ConvertModel, model: &str) -> Result<Recipe> {
    let Some(path) = &args.recipe else { return families::find(model) };
    let text = files::read_text(path)?;
    families::parse(&path.display().to_string(), &text)
}

/// The folders that a model of several parts has at Hugging Face.
fn folders(recipe: &Recipe) -> Vec<String> {
    let releases = recipe.blocks.iter().flat_map(|block| block.right.iter().copied());
    let mut found = Vec::new();
    for to in releases {
        for name in components(recipe, Leg { from: Format::HuggingFace, to }) {
            if !found.contains(&name) {
                found.push(name);
            }
        }
    }
    found
}

/// The config beside a checkpoint: `config.json`, `params.yaml`, or the only YAML file.
pub(super) fn beside(checkpoint: &Path) -> Option<PathBuf> {
    let folder = match checkpoint.is_dir() {
        true => checkpoint,
        false => checkpoint.parent()?,
    };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let known = ["config.json", "params.yaml"].map(|name| folder.join(name));
    if let Some(found) = known.iter().find(|path| path.is_file()) {
        return Some(found.clone());
    }
    let entries = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let mut yaml = entries.filter(|path| {
        path.is_file() && Language::of_name(&path.display().to_string()) == Some(Language::Yaml)
    });
    let first = yaml.next()?;
    yaml.next().is_none().then_some(first)
}

fn writes(args: &ConvertModel, target: Format) -> Writes {
    let to = match (target.is_hf(), args.export_safetensors) {
        (false, _) => "cerebras",
        (true, true) => "safetensors",
        (true, false) => "torch",
    };
    Writes::plain(to, args.force, args.durable)
}

/// Which keys become which.
fn preview(args: &ConvertModel, asked: &Asked, done: &Conversion) -> Outcome {
    let mut printer = Printer::new();
    if args.common.json {
        printer.line(&json(asked, done))?;
        printer.finish()?;
        return Ok(true);
    }
    printer.line(&format!("{} from {} to {}", asked.recipe.family, asked.source, asked.target))?;
    for Move { from, to, rule } in &done.moves {
        let side = |keys: &[String]| match keys {
            [] => "-".to_owned(),
            keys => keys.join(" + "),
        };
        let operations = rule.split_once(" : ").map_or("", |(_, operations)| operations);
        let line = format!("{} -> {}  {operations}", side(from), side(to));
        printer.line(visible(line.trim_end()).as_ref())?;
    }
    let left_out = done.unmatched.len() as u64;
    if left_out > 0 {
        printer.line(&format!("{} left out", counted(left_out, "key")))?;
    }
    printer.finish()?;
    Ok(true)
}

fn json(asked: &Asked, done: &Conversion) -> String {
    let mut json = Json::new();
    json.object(|json| {
        json.name("statelens").number(1);
        json.name("model").str(&asked.recipe.family);
        json.name("from").str(&asked.source.to_string());
        json.name("to").str(&asked.target.to_string());
        json.name("moves").array(|json| {
            for one in &done.moves {
                json.object(|json| {
                    json.name("from").array(|json| one.from.iter().for_each(|key| json.str(key)));
                    json.name("to").array(|json| one.to.iter().for_each(|key| json.str(key)));
                    json.name("rule").str(&one.rule);
                });
            }
        });
        json.name("unmatched")
            .array(|json| done.unmatched.iter().for_each(|one| json.str(&one.key)));
    });
    json.take()
}
