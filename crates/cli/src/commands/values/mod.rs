//! The commands that look at values, one file each.

mod export;
mod hist;
mod measure;
mod picture;
mod stats;

use std::path::Path;

use statelens_checkpoint::{Error, Leaf, Result, known_key};
use statelens_inspect::near_keys;

use crate::args::Values;
use crate::print::Outcome;

pub(crate) fn run(command: &Values) -> Outcome {
    match command {
        Values::Stats(args) => stats::run(args),
        Values::Hist(args) => hist::run(args),
        Values::Export(args) => export::run(args),
    }
}

/// The leaf of this key; where there is none, the error names those like it.
fn leaf<'a>(leaves: &'a [Leaf], key: &str, file: &Path) -> Result<&'a Leaf> {
    let whole = leaves.iter().find(|leaf| leaf.flat.to_lossy() == key);
    let short = || leaves.iter().find(|leaf| known_key(&leaf.flat.to_lossy()) == key);
    whole.or_else(short).ok_or_else(|| {
        let near = near_keys(leaves, key, 5);
        let near: Vec<String> =
            near.iter().map(|leaf| format!("`{}`", leaf.flat.to_lossy())).collect();
        Error::refused(format!("there is no key `{key}`"))
            .in_file(file.display().to_string())
            .advice(match near.is_empty() {
                true => "`statelens ls` lists the keys.".into(),
                false => format!("Similar keys: {}.", near.join(", ")),
            })
    })
}
