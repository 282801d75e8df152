//! `statelens convert-model`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use statelens_checkpoint::{Checkpoint, Error, FileSet, Result};
use statelens_convert::{Edit, shard_size};
use statelens_formats::Shards;
use statelens_formats::cerebras::dataloader::{DataState, Loader};
use statelens_inspect::{Json, visible};
use statelens_recipes::config::{Converted, Families, Language, Value};
use statelens_recipes::conversion::{Conversion, Leg, OPTIMIZER_FILE, Wishes, components, convert};
use statelens_recipes::engine::Move;
use statelens_recipes::language::{Recipe, Side};
use statelens_recipes::proposal::{self, Clues};
use statelens_recipes::{Format, adapter, families, parts, ranks};

use super::files::{self, File};
use crate::args::{ConvertModel, Edits, Writes};
use crate::commands;
use crate::commands::convert::{Destination, Job};
use crate::commands::toolbox::dataloader;
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
    let wishes = Wishes {
        drop_unmatched: args.drop_unmatched_keys,
        unwrap: args.unwrap,
        with_optimizer: args.with_optimizer,
        ranks: u64::from(args.ranks),
    };
    let done = convert(&source.checkpoint, &asked.recipe, &stages, &params, wishes)?;
    let converts_config = converted.is_some();
    let configs = match converted {
        Some(converted) => asked.configs(args, &source, converted)?,
        None => Vec::new(),
    };
    if args.dry_run {
        return preview(args, &asked, &done);
    }
    let data = match asked.source.is_cerebras() && target.is_cerebras() {
        true => data_state(source.config.as_ref())?,
        false => None,
    };
    for one in &done.unmatched {
        complain(&format!("left out, as no rule is about it: `{}`", visible(&one.key)));
    }
    if !args.common.json {
        let mut printer = Printer::new();
        printer.line(&format!("{} from {} to {}", asked.recipe.family, asked.source, target))?;
        for key in done.random() {
            let key = visible(key);
            printer.line(&format!("`{key}` is not in the source: made of random numbers"))?;
        }
        printer.finish()?;
    }
    // Whether all can be written is found out before the first is.
    files::check(&configs, args.force)?;
    let weights = writes(args, target);
    let torch = Writes::plain("torch", args.force, args.durable);
    for (part, mut checkpoint) in done.parts {
        if let Some((state, loader)) = &data {
            let (with, replaces) = state.put_into(&checkpoint, loader)?;
            match replaces {
                true => complain("the checkpoint has a state `dataloader`, which is kept"),
                false => checkpoint = with,
            }
        }
        let writes = if part.as_deref() == Some(OPTIMIZER_FILE) { &torch } else { &weights };
        let (path, cut) = asked.output(args, part.as_deref())?;
        let job = Job {
            destination: Destination::File(path),
            writing: statelens_formats::writing(writes.to.as_deref().unwrap_or_default())?,
            edits: &Edits::default(),
            edit: Edit::default(),
            writes,
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
        if !converts_config && source.config.is_some() {
            printer.line("the config is not converted between these formats")?;
        }
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
    /// The family and format whose files of ranks these are.
    ranked: Option<(String, Format)>,
    /// The optimizer's state was in a file of its own, as Hugging Face's trainer writes it.
    of_trainer: bool,
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
        let of_ranks = RankFiles::beside(args, named.as_ref());
        let weights = weights(&args.checkpoint);
        let optimizer = weights.with_file_name(OPTIMIZER_FILE);
        let of_trainer = args.with_optimizer && weights.is_file() && optimizer.is_file();
        let optimizer = of_trainer.then_some(optimizer);
        if parts.is_empty() && of_ranks.is_none() && optimizer.is_none() {
            let (checkpoint, sources) = commands::open(&weights, &args.common.with)?;
            return Ok(Self {
                checkpoint,
                sources,
                config,
                config_path,
                parts,
                ranked: None,
                of_trainer: false,
            });
        }
        let (paths, ranked) = match of_ranks {
            Some(RankFiles { family, format, paths }) => {
                let paths = paths.into_iter().enumerate();
                let named = paths.map(|(rank, path)| (rank.to_string(), path)).collect();
                (named, Some((family, format)))
            }
            None if let Some(path) = optimizer.filter(|_| parts.is_empty()) => {
                let model = ("model".to_owned(), weights);
                (vec![model, ("optimizer".to_owned(), path)], None)
            }
            None => {
                let part = |part: &String| (part.clone(), args.checkpoint.join(part));
                (parts.iter().map(part).collect::<Vec<_>>(), None)
            }
        };
        let (checkpoint, sources) = together(paths)?;
        Ok(Self { checkpoint, sources, config, config_path, parts, ranked, of_trainer })
    }
}

/// Several checkpoints as one, under a name each.
pub(super) fn together(
    parts: Vec<(String, PathBuf)>,
) -> Result<(Checkpoint, Vec<Arc<FileSource>>)> {
    let mut sets = Vec::new();
    let mut sources = Vec::new();
    for (name, path) in parts {
        let opened = source::open(&path, &[])?;
        sets.push((name, opened.files.with_scratch(scratch::on_disk())));
        sources.extend(opened.sources);
    }
    let mut bar = Bar::new("opening", Unit::Keys);
    let checkpoint = parts::together(sets, limits(), &mut |files: FileSet| {
        statelens_formats::open(files, limits(), &mut bar)
    })?;
    Ok((checkpoint, sources))
}

/// Hugging Face's weights in a folder where training has left its optimizer or an adapter, too.
pub(super) fn weights(checkpoint: &Path) -> PathBuf {
    const NAMES: [&str; 4] = [
        "model.safetensors.index.json",
        "model.safetensors",
        "pytorch_model.bin.index.json",
        "pytorch_model.bin",
    ];
    let mut left = adapter::FILES.iter().chain(&[OPTIMIZER_FILE]);
    let training = left.any(|name| checkpoint.join(name).is_file());
    let mut names = NAMES.iter().map(|name| checkpoint.join(name)).filter(|_| training);
    names.find(|path| path.is_file()).unwrap_or_else(|| checkpoint.to_owned())
}

/// A checkpoint in a file for each rank.
struct RankFiles {
    family: String,
    format: Format,
    paths: Vec<PathBuf>,
}

impl RankFiles {
    /// Those in the folder of the checkpoint, or of which it is the first: of the recipe that was
    /// named, or of any.
    fn beside(args: &ConvertModel, named: Option<&Recipe>) -> Option<Self> {
        let all = families::names().filter(|_| named.is_none());
        let others = all.filter_map(|name| families::find(name).ok());
        named.cloned().into_iter().chain(others).find_map(|recipe| {
            ranks::of(&recipe).find_map(|(block, ranks)| {
                let formats = match ranks.side {
                    Side::Left => &block.left,
                    Side::Right => &block.right,
                };
                let format = *formats.first()?;
                let asked = args.src_fmt.as_ref();
                if asked.is_some_and(|asked| *asked != format.to_string()) {
                    return None;
                }
                let folder = match args.checkpoint.is_dir() {
                    true => args.checkpoint.clone(),
                    false => below(&args.checkpoint, &ranks.name(0))?,
                };
                let paths = (0..ranks::MOST).map(|rank| folder.join(ranks.name(rank)));
                let paths: Vec<PathBuf> = paths.take_while(|path| path.is_file()).collect();
                let family = recipe.family.clone();
                (!paths.is_empty()).then_some(Self { family, format, paths })
            })
        })
    }
}

/// The folder below which a path has this name.
fn below(path: &Path, name: &str) -> Option<PathBuf> {
    let mut folder = path;
    path.ends_with(name).then_some(())?;
    for _ in Path::new(name).components() {
        folder = folder.parent()?;
    }
    Some(folder.to_owned())
}

/// What is converted, from what to what.
struct Asked {
    recipe: Recipe,
    model: String,
    source: Format,
    target: Format,
    /// It is in several folders.
    several: bool,
    /// It is in a file for each rank.
    ranked: bool,
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
            of_trainer: source.of_trainer || !source.parts.is_empty(),
        };
        let asked = args.src_fmt.as_deref();
        let format = match (&source.ranked, asked) {
            (Some((_, format)), None) => *format,
            _ => clues.source(asked, target).map_err(|error| error.in_file(shown()))?,
        };
        let model = match (&args.model, &args.recipe) {
            (Some(model), _) => model.clone(),
            (None, Some(_)) => recipe(args, "")?.family,
            (None, None) if let Some((family, _)) = &source.ranked => family.clone(),
            (None, None) => clues.model(format, target).map_err(|error| error.in_file(shown()))?,
        };
        let recipe = recipe(args, &model)?;
        let several = !source.parts.is_empty();
        let ranked = source.ranked.is_some();
        Ok(Self { recipe, model, source: format, target, several, ranked })
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
            // The files of all ranks have one name; the folder's says more.
            false if self.ranked => {
                let folder = args.checkpoint.canonicalize().unwrap_or(args.checkpoint.clone());
                let folder = if folder.is_dir() { Some(&*folder) } else { folder.parent() };
                let name = folder.and_then(Path::file_name);
                name.map_or("model".to_owned(), |name| name.to_string_lossy().into_owned())
            }
            false => stem(&source::named(&weights(&args.checkpoint))?)?,
        };
        Ok(format!("{name}_to_{}", self.target))
    }
}

/// The dataloader's state that release 1.9 kept in text files, where its config says that they are.
fn data_state(config: Option<&Value>) -> Result<Option<(DataState, Loader)>> {
    let section = |name: &str| config?.as_map()?.get(name)?.as_map();
    let folder = section("cerebras").and_then(|map| map.get("save_iter_state_path"));
    let Some(folder) = folder.and_then(Value::as_str) else { return Ok(None) };
    let processor = section("train_input").and_then(|map| map.get("data_processor"));
    let loader = match processor.and_then(Value::as_str) {
        Some("GptHDF5MapDataProcessor") => Loader::Map { seed: 0 },
        Some("GptHDF5DataProcessor") => Loader::Iterable,
        _ => {
            return Err(Error::refused(
                "the config names a state of the dataloader, and no dataloader that has one",
            )
            .expected("train_input.data_processor GptHDF5MapDataProcessor or GptHDF5DataProcessor")
            .advice(
                "Take cerebras.save_iter_state_path out of the config to convert without it.",
            ));
        }
    };
    Ok(Some((dataloader::read(Path::new(folder))?, loader)))
}

/// The name without its extensions: those that are letters only.
pub(super) fn stem(path: &Path) -> Result<String> {
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

/// The config beside a checkpoint: `config.json`, `params.yaml`, `params.json`, or the only YAML file.
pub(super) fn beside(checkpoint: &Path) -> Option<PathBuf> {
    let folder = match checkpoint.is_dir() {
        true => checkpoint,
        false => checkpoint.parent()?,
    };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let known = ["config.json", "params.yaml", "params.json"].map(|name| folder.join(name));
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
    let to = match (target.is_cerebras(), args.export_safetensors) {
        (true, _) => "cerebras",
        (false, true) => "safetensors",
        (false, false) => "torch",
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
