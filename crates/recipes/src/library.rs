//! Where the files of families come from: they are part of the program (the feature `embedded`), or
//! are given to it one by one when they are needed, as in the page.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

/// What a file of a family is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FamilyFile {
    /// Rules for tensors.
    Recipe,
    /// Rules for configs.
    Table,
}

/// The texts that were given: by what the file is, the place of its family, and its name.
type Given = BTreeMap<(FamilyFile, usize, &'static str), &'static str>;

static GIVEN: RwLock<Given> = RwLock::new(BTreeMap::new());

/// The path of a recipe, as [`give`] takes it.
pub fn recipe_path(name: &str) -> String {
    format!("families/{name}.recipe")
}

/// The path of a family's tables for configs.
pub fn table_path(name: &str) -> String {
    format!("configs/{name}.yaml")
}

/// Gives a file by its path; `place` is the family's place among all of them. A path that is given
/// again, or means nothing, changes nothing: what a file is once it stays.
pub fn give(place: usize, path: &str, text: &str) {
    let recipe = path.strip_prefix("families/").and_then(|name| name.strip_suffix(".recipe"));
    let table = path.strip_prefix("configs/").and_then(|name| name.strip_suffix(".yaml"));
    let (file, name) = match (recipe, table) {
        (Some(name), _) => (FamilyFile::Recipe, name),
        (_, Some(name)) => (FamilyFile::Table, name),
        _ => return,
    };
    if has(path) {
        return;
    }
    let mut given = GIVEN.write().unwrap_or_else(PoisonError::into_inner);
    // There are as many as there are families: they are kept for good, like those that are built in.
    given.insert((file, place, name.to_owned().leak()), text.to_owned().leak());
}

/// Whether a file was given.
pub fn has(path: &str) -> bool {
    let own = |(file, _, name): &(FamilyFile, usize, &'static str)| match file {
        FamilyFile::Recipe => recipe_path(name) == path,
        FamilyFile::Table => table_path(name) == path,
    };
    given().keys().any(own)
}

/// The recipes or the tables that were given, by the places of their families: names and texts.
pub(crate) fn all(file: FamilyFile) -> Vec<(&'static str, &'static str)> {
    let given = given();
    let own = given.iter().filter(|((own, ..), _)| *own == file);
    own.map(|((.., name), text)| (*name, *text)).collect()
}

fn given() -> RwLockReadGuard<'static, Given> {
    GIVEN.read().unwrap_or_else(PoisonError::into_inner)
}
