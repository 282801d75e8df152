//! The built-in recipes: one file per family, parsed on demand.

use statelens_checkpoint::{Error, Result, Setting, advice};

use crate::language::Recipe;
use crate::library::{self, FamilyFile};

/// Names and texts, sorted by file name. This is the order in which families are tried if nothing
/// identifies the family.
#[cfg(feature = "embedded")]
const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/families.rs"));

/// Recipes that several families share.
#[cfg(feature = "embedded")]
const SHARED: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/families-steps.rs"));

#[cfg(not(feature = "embedded"))]
const FILES: &[(&str, &str)] = &[];
#[cfg(not(feature = "embedded"))]
const SHARED: &[(&str, &str)] = &[];

/// Returns the names of the available families, without aliases.
pub fn names() -> impl Iterator<Item = &'static str> {
    files().into_iter().map(|(name, _)| name)
}

pub fn text(name: &str) -> Option<&'static str> {
    let given = library::all(FamilyFile::Recipe);
    let mut all = FILES.iter().chain(SHARED).copied().chain(given);
    all.find(|(own, _)| *own == name).map(|(_, text)| text)
}

/// Returns the recipe of a family, by its name or an alias.
pub fn find(name: &str) -> Result<Recipe> {
    let files = files();
    let named = files.iter().find(|(own, text)| *own == name || is_alias(text, name));
    let Some((own, text)) = named else {
        return Err(Error::refused(format!("there is no recipe for the model `{name}`"))
            .expected(names().collect::<Vec<_>>().join(", "))
            .advice(advice![
                Setting::ListConverters,
                " lists them; ",
                Setting::Recipe,
                " reads one of your own."
            ]));
    };
    parse(&format!("{own}.recipe"), text)
}

/// Returns the families' files, without shared recipes.
fn files() -> Vec<(&'static str, &'static str)> {
    let given = library::all(FamilyFile::Recipe);
    let given = given.into_iter().filter(|(name, _)| !name.contains('/'));
    FILES.iter().copied().chain(given).collect()
}

/// Parses a recipe, which may use the available ones.
pub fn parse(file: &str, recipe: &str) -> Result<Recipe> {
    Recipe::parse(file, recipe, &|name| text(name).map(str::to_owned))
}

/// Returns whether a file declares this alias of its family.
fn is_alias(text: &str, name: &str) -> bool {
    text.lines()
        .filter_map(|line| line.strip_prefix("alias "))
        .any(|aliases| aliases.split_whitespace().any(|alias| alias == name))
}

#[cfg(all(test, feature = "embedded"))]
mod tests {
    use super::*;

    /// A new family is only a file: no source file lists the families.
    #[test]
    fn each_recipe_file_is_a_family() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/families");
        let count = |folder: &str| {
            let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
            files.filter(|name| name.to_string_lossy().ends_with(".recipe")).count()
        };
        assert_eq!(names().count(), count(folder));
        assert_eq!(SHARED.len(), count(&format!("{folder}/steps")));
        assert!(text("steps/t5-2.1").is_some_and(|text| text.contains("between")));
    }

    #[test]
    fn parses_all_families() {
        for name in names() {
            let recipe = find(name).unwrap();
            assert_eq!(recipe.family, name);
            assert!(!recipe.blocks.is_empty() && !recipe.title.is_empty(), "{name}");
        }
        assert_eq!(find("code-llama").unwrap().family, "llama");
        assert!(find("gpt-5").unwrap_err().to_string().contains("gpt-5"));
    }
}
