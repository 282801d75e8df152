//! Files of model families: which are needed, and which the page has fetched.

use std::sync::LazyLock;

use statelens_checkpoint::{FileSet, order};
use statelens_recipes::catalog::{Catalog, RankedCheckpoint};
use statelens_recipes::{library, recognise};

use crate::family::message::FamilyRequest;
use crate::worker::opened::OpenCheckpoint;

/// Returns the catalog of all families, which does not contain the files themselves.
pub(super) fn catalog() -> &'static Catalog {
    static CATALOG: LazyLock<Catalog> = LazyLock::new(|| {
        let text = include_str!(concat!(env!("OUT_DIR"), "/catalog.txt"));
        Catalog::parse(text).unwrap_or_default()
    });
    &CATALOG
}

/// Returns the files of all ranks, if the open file belongs to one of them.
pub(super) fn ranked(files: &FileSet) -> Option<RankedCheckpoint<'_>> {
    let main = files.name(files.main().ok()?);
    catalog().ranked(main, &|name| files.find(name).is_some())
}

/// Returns the paths of the files needed to recognise the model and to convert it.
pub(crate) fn needed(open: &OpenCheckpoint, request: &FamilyRequest) -> Vec<String> {
    let catalog = catalog();
    let mut names: Vec<String> = request.model.iter().cloned().collect();
    if let Some(rules) = &request.recipe {
        names.extend(recipe_families(&rules.text));
    }
    if names.is_empty()
        && request.recipe.is_none()
        && let Some(ranked) = ranked(&open.checkpoint.files)
    {
        names.push(ranked.family.to_owned());
    }
    if names.is_empty() && request.recipe.is_none() {
        let checkpoint = &*open.checkpoint;
        let hf = !recognise::is_cerebras(checkpoint);
        // A training loop in plain PyTorch also saves a state `model` with Hugging Face's keys:
        // distinguishing it from a Cerebras checkpoint takes the families of both sides.
        let both = !hf && recognise::release(checkpoint).is_none();
        let sides: &[bool] = if both { &[false, true] } else { &[hf] };
        let families = |unwrap| {
            let mut names = Vec::new();
            for hf in sides {
                let keys = recognise::keys(checkpoint, *hf, unwrap);
                names.extend(catalog.families(&keys, *hf).into_iter().map(str::to_owned));
            }
            names
        };
        names = families(request.unwrap);
        if names.is_empty() {
            names = families(true);
        }
        if names.is_empty() {
            let keys = recognise::keys(checkpoint, hf, request.unwrap);
            names = catalog.layouts(&keys).into_iter().map(str::to_owned).collect();
        }
    }
    let mut files: Vec<String> = names.iter().flat_map(|name| catalog.files(name)).collect();
    order::natural(&mut files);
    files.dedup();
    files
}

/// Returns whether a file is loaded.
pub(crate) fn has(path: &str) -> bool {
    library::has(path)
}

/// Stores a file that the page has fetched.
pub(crate) fn take(path: &str, text: &str) {
    library::give(catalog().place(path), path, text);
}

/// Returns the family of a recipe, and those that it is derived from.
fn recipe_families(rules: &str) -> impl Iterator<Item = String> {
    rules.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let about = matches!(words.next()?, "family" | "use" | "like");
        words.next().filter(|_| about).map(str::to_owned)
    })
}
