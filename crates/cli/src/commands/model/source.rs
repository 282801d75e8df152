//! The inputs of `convert-model`: the checkpoint, its config and the rules.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use statelens::PathText as _;
use statelens::Result;
use statelens::parts::checkpoint::Checkpoint;
use statelens_recipes::config::Value;
use statelens_recipes::conversion::OPTIMIZER_FILE;
use statelens_recipes::language::{Recipe, Side};
use statelens_recipes::{Implementation, families, inference, ranks};

use super::files;
use super::siblings::{combine, sibling_config, weights};
use crate::args::ConvertModel;
use crate::commands;
use crate::source::FileSource;

/// The inputs of a conversion.
pub(super) struct ModelSource {
    pub(super) checkpoint: Arc<Checkpoint>,
    pub(super) sources: Arc<[Arc<FileSource>]>,
    pub(super) config: Option<Value>,
    pub(super) config_path: Option<PathBuf>,
    /// The folders of the model's parts, if it has several.
    pub(super) parts: Vec<String>,
    /// The family and format, if the checkpoint has a file per rank.
    pub(super) ranked: Option<(String, Implementation)>,
    /// Whether the state of the optimizer was in a file of its own, as Hugging Face's trainer
    /// writes it.
    pub(super) of_trainer: bool,
}

impl ModelSource {
    pub(super) fn open(args: &ConvertModel) -> Result<Self> {
        let named = args.model.as_deref().map(|name| recipe(args, name)).transpose()?;
        let parts = match &named {
            Some(recipe) if args.checkpoint.is_dir() => {
                let all = inference::folders(recipe).into_iter();
                all.filter(|part| args.checkpoint.join(part).is_dir()).collect()
            }
            None if args.recipe.is_none() => {
                inference::parts_in(&|part| args.checkpoint.join(part).is_dir())
            }
            _ => Vec::new(),
        };
        let config_path = match &args.config {
            Some(path) => Some(path.clone()),
            None if parts.is_empty() => sibling_config(&args.checkpoint),
            None => Some(args.checkpoint.clone()),
        };
        let config = config_path.as_deref().map(|path| files::read_config(path, &parts));
        let config = config.transpose()?;
        let of_ranks = RankFiles::find(args, named.as_ref());
        let weights = weights(&args.checkpoint);
        let optimizer = weights.with_file_name(OPTIMIZER_FILE);
        let of_trainer = args.with_optimizer && weights.is_file() && optimizer.is_file();
        let optimizer = of_trainer.then_some(optimizer);
        if parts.is_empty() && of_ranks.is_none() && optimizer.is_none() {
            let opened = commands::open(&weights, &args.common.with)?;
            let (checkpoint, sources) = opened.into_parts();
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
        let (checkpoint, sources) = combine(paths)?;
        let (checkpoint, sources) = (Arc::new(checkpoint), sources.into());
        Ok(Self { checkpoint, sources, config, config_path, parts, ranked, of_trainer })
    }
}

/// A checkpoint with a file per rank.
struct RankFiles {
    family: String,
    format: Implementation,
    paths: Vec<PathBuf>,
}

impl RankFiles {
    /// Finds the files of ranks in the folder of the checkpoint, or those that the checkpoint is
    /// the first of, for the named recipe or for any.
    fn find(args: &ConvertModel, named: Option<&Recipe>) -> Option<Self> {
        let all = families::names().filter(|_| named.is_none());
        let others = all.filter_map(|name| families::find(name).ok());
        named.cloned().into_iter().chain(others).find_map(|recipe| {
            ranks::of(&recipe).find_map(|(block, ranks)| {
                let formats = match ranks.side {
                    Side::Left => &block.left,
                    Side::Right => &block.right,
                };
                let format = *formats.first()?;
                let requested = args.src_fmt.as_ref();
                if requested.is_some_and(|requested| *requested != format.to_string()) {
                    return None;
                }
                let folder = match args.checkpoint.is_dir() {
                    true => args.checkpoint.clone(),
                    false => below(&args.checkpoint, &ranks.name(0))?,
                };
                let paths = (0..ranks::MAX_RANKS).map(|rank| folder.join(ranks.name(rank)));
                let paths: Vec<PathBuf> = paths.take_while(|path| path.is_file()).collect();
                let family = recipe.family.clone();
                (!paths.is_empty()).then_some(Self { family, format, paths })
            })
        })
    }
}

/// Returns the folder relative to which a path is `name`.
fn below(path: &Path, name: &str) -> Option<PathBuf> {
    let mut folder = path;
    path.ends_with(name).then_some(())?;
    for _ in Path::new(name).components() {
        folder = folder.parent()?;
    }
    Some(folder.to_owned())
}

/// Returns the user's recipe, or that of the model.
pub(super) fn recipe(args: &ConvertModel, model: &str) -> Result<Recipe> {
    let Some(path) = &args.recipe else { return families::find(model) };
    let text = files::read_text(path)?;
    families::parse(&path.to_text(), &text)
}
