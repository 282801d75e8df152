//! What the two sides of a comparison are called, so that they can be told apart.

use crate::page::drop::Dropped;
use crate::state::fmt;

/// One side: what its checkpoint is called, where it was, and the file it begins with.
pub struct SideName<'a> {
    /// As it is called where it is alone.
    pub name: String,
    /// The path of its main file, or its address.
    pub path: String,
    /// Its main file, if it is one of this computer.
    pub file: Option<&'a Dropped>,
}

/// A name for each: with as many of its folders as it takes, or its size and date.
pub fn apart(one: &SideName<'_>, two: &SideName<'_>) -> (String, String) {
    if one.name != two.name {
        return (one.name.clone(), two.name.clone());
    }
    if one.path != two.path {
        return (tail(&one.path, &two.path), tail(&two.path, &one.path));
    }
    let told = |side: &SideName<'_>| match side.file {
        Some(file) => format!("{} ({}, {})", side.name, fmt::bytes(file.name.size), changed(file)),
        None => side.name.clone(),
    };
    (told(one), told(two))
}

/// The end of a path from the last folder on that the other has not at the same place.
fn tail(path: &str, other: &str) -> String {
    let common =
        path.rsplit('/').zip(other.rsplit('/')).take_while(|(part, others)| part == others).count();
    let parts: Vec<&str> = path.split('/').collect();
    parts[parts.len().saturating_sub(common + 1)..].join("/")
}

/// When a file was changed, by the clock of whoever looks at it.
fn changed(file: &Dropped) -> String {
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
    fn sides_of_one_name_are_told_apart_by_their_folders() {
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
            let (first, second) = apart(&side(one), &side(two));
            assert_eq!((first.as_str(), second.as_str()), expected, "{one} {two}");
        }
    }
}
