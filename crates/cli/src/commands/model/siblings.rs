//! Locates the files of a model, and the files in the same folder.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use statelens::PathText as _;
use statelens::parts::checkpoint::{Checkpoint, FileSet};
use statelens::{Error, Result};
use statelens_recipes::config::Language;
use statelens_recipes::conversion::OPTIMIZER_FILE;
use statelens_recipes::{adapter, inference, parts};

use crate::limits::limits;
use crate::progress::{Bar, Unit};
use crate::source::{self, FileSource, OpenedFiles};
use crate::{remote, scratch};

/// Combines several checkpoints into one; each is a state under its name.
pub(super) fn combine(parts: Vec<(String, PathBuf)>) -> Result<(Checkpoint, Vec<Arc<FileSource>>)> {
    let mut sets = Vec::new();
    let mut all_opened = Vec::new();
    for (name, path) in parts {
        let opened = source::open(&path, &[])?;
        sets.push((name, opened.files.clone().with_scratch(scratch::on_disk())));
        all_opened.push(opened);
    }
    let mut bar = Bar::new("opening", Unit::Keys);
    let checkpoint = parts::together(sets, limits(), &mut |files: FileSet| {
        statelens::parts::formats::open(files, limits(), &mut bar)
    })?;
    Ok((checkpoint, all_opened.iter().flat_map(OpenedFiles::sources).collect()))
}

/// Returns the path of Hugging Face's weights if training left its optimizer or an adapter in the
/// same folder, otherwise `checkpoint`.
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

/// Returns the config in the folder of a checkpoint: `config.json`, `params.yaml`, `params.json`,
/// or the only YAML file. For an address, there is one only in a repository on the Hugging Face Hub.
pub(super) fn sibling_config(checkpoint: &Path) -> Option<PathBuf> {
    if let Some(url) = remote::address(checkpoint) {
        return statelens::remote::sibling_config(url).map(PathBuf::from);
    }
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
        path.is_file() && Language::of_name(&path.to_text()) == Some(Language::Yaml)
    });
    let first = yaml.next()?;
    yaml.next().is_none().then_some(first)
}

/// Returns the folder to write to: the one that the user names, or that of the checkpoint; for a
/// checkpoint at an address, the current folder.
pub(super) fn output_folder(named: Option<&Path>, checkpoint: &Path) -> PathBuf {
    match named {
        Some(folder) => folder.to_owned(),
        None if remote::address(checkpoint).is_some() => PathBuf::from("."),
        None if checkpoint.is_dir() => checkpoint.to_owned(),
        None => checkpoint.parent().map(Path::to_owned).unwrap_or_default(),
    }
}

/// Returns the file name without its extensions (those that consist of letters).
pub(super) fn stem(path: &Path) -> Result<String> {
    Ok(inference::stem(&name_text(path.file_name(), path)?).to_owned())
}

/// Returns `name`, the file name or the stem of `path`, as text. Fails if the path has no file name.
pub(super) fn name_text(name: Option<&OsStr>, path: &Path) -> Result<String> {
    name.map(|name| name.to_string_lossy().into_owned())
        .ok_or_else(|| Error::refused("this path has no file name").in_file(path.to_text()))
}
