//! Distinct names for the two sides of a comparison.

use crate::page::drop::DroppedFile;
use crate::state::fmt;

/// Name, location and main file of one side.
pub struct SideName<'a> {
    /// The name of the checkpoint by itself.
    pub name: String,
    /// The path of the main file, or the address.
    pub path: String,
    /// The main file, if it is a local one.
    pub file: Option<&'a DroppedFile>,
}

/// Returns distinct names for both sides. Equal names get as many folders as needed, or the size
/// and the date if the paths are equal too.
pub fn distinct_names(one: &SideName<'_>, two: &SideName<'_>) -> (String, String) {
    if one.name != two.name {
        return (one.name.clone(), two.name.clone());
    }
    if one.path != two.path {
        return (tail(&one.path, &two.path), tail(&two.path, &one.path));
    }
    let describe = |side: &SideName<'_>| match side.file {
        Some(file) => format!("{} ({}, {})", side.name, fmt::bytes(file.name.size), changed(file)),
        None => side.name.clone(),
    };
    (describe(one), describe(two))
}

/// Returns the shortest tail of `path` (whole components) that is not a tail of `other`.
fn tail(path: &str, other: &str) -> String {
    let common =
        path.rsplit('/').zip(other.rsplit('/')).take_while(|(part, others)| part == others).count();
    let parts: Vec<&str> = path.split('/').collect();
    parts[parts.len().saturating_sub(common + 1)..].join("/")
}

/// Returns the modification time of a file in local time.
fn changed(file: &DroppedFile) -> String {
    let date = js_sys::Date::new(&file.file.last_modified().into());
    format!(
        "{}-{:02}-{:02} {:02}:{:02}:{:02}",
        date.get_full_year(),
        date.get_month() + 1,
        date.get_date(),
        date.get_hours(),
        date.get_minutes(),
        date.get_seconds()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_are_distinguished_by_folder() {
        let side = |path: &str| SideName {
            name: path.rsplit('/').next().unwrap_or_default().to_owned(),
            path: path.to_owned(),
            file: None,
        };
        for (one, two, expected) in [
            ("a/m.st", "b/m.st", ("a/m.st", "b/m.st")),
            ("m.st", "b/m.st", ("m.st", "b/m.st")),
            ("x/a/1/m.st", "x/b/1/m.st", ("a/1/m.st", "b/1/m.st")),
            ("a/m.st", "a/n.st", ("m.st", "n.st")),
            ("m.st", "m.st", ("m.st", "m.st")),
        ] {
            let (first, second) = distinct_names(&side(one), &side(two));
            assert_eq!((first.as_str(), second.as_str()), expected, "{one} {two}");
        }
    }
}
