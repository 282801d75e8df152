//! The source of the families' files: embedded in the program (the feature `embedded`), or supplied
//! one by one when they are needed, as on the page.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FamilyFile {
    /// Rules for tensors.
    Recipe,
    /// Rules for configs.
    Table,
}

/// The supplied texts, by kind of file, position of the family, and name.
type SuppliedFiles = BTreeMap<(FamilyFile, usize, &'static str), &'static str>;

static SUPPLIED: RwLock<SuppliedFiles> = RwLock::new(BTreeMap::new());

/// Returns the path of a recipe for [`give`].
pub fn recipe_path(name: &str) -> String {
    format!("families/{name}.recipe")
}

/// Returns the path of a family's config tables for [`give`].
pub fn table_path(name: &str) -> String {
    format!("configs/{name}.yaml")
}

/// Supplies a file by its path; `place` is the family's position among all families. Ignores
/// unknown paths and those that were supplied before.
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
    let mut supplied = SUPPLIED.write().unwrap_or_else(PoisonError::into_inner);
    // Leaked, because there are only as many as there are families and they stay in use.
    supplied.insert((file, place, name.to_owned().leak()), text.to_owned().leak());
}

pub fn has(path: &str) -> bool {
    let own = |(file, _, name): &(FamilyFile, usize, &'static str)| match file {
        FamilyFile::Recipe => recipe_path(name) == path,
        FamilyFile::Table => table_path(name) == path,
    };
    supplied().keys().any(own)
}

/// Returns the names and texts of the supplied recipes or tables, in the order of their families.
pub(crate) fn all(file: FamilyFile) -> Vec<(&'static str, &'static str)> {
    let supplied = supplied();
    let own = supplied.iter().filter(|((own, ..), _)| *own == file);
    own.map(|((.., name), text)| (*name, *text)).collect()
}

fn supplied() -> RwLockReadGuard<'static, SuppliedFiles> {
    SUPPLIED.read().unwrap_or_else(PoisonError::into_inner)
}
