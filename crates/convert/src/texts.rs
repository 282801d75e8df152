//! The options of a conversion as texts, as on the command line: the record that the command, jobs,
//! Python and the page fill, and the arguments that give the same conversion.

use serde::{Deserialize, Serialize};
use statelens_checkpoint::Result;

use crate::{CastRule, Edit, OutputOptions, Pattern, Rename};

/// Edits of the keys and values to write, as texts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EditTexts {
    /// Whether each name of a tied tensor gets a copy.
    pub untie: bool,
    /// Top-level states to keep.
    pub states: Vec<String>,
    /// Patterns of keys to keep.
    pub select: Vec<String>,
    /// Patterns of keys to leave out.
    pub exclude: Vec<String>,
    /// A prefix to remove.
    pub strip_prefix: String,
    /// Replacements `REGEX=>REPLACEMENT`.
    pub rename: Vec<String>,
    /// The content of a list of old and new names.
    pub rename_list: Option<String>,
    /// A prefix to add.
    pub prefix: String,
    /// Whether names are split into nested dicts.
    pub nest: bool,
    /// Casts `[PATTERN=]DTYPE`.
    pub cast: Vec<String>,
}

/// The name of the file that [`EditTexts::arguments`] assumes for the list of names.
pub const RENAME_LIST: &str = "names.txt";

impl EditTexts {
    /// Parses the texts.
    pub fn edit(&self) -> Result<Edit> {
        let list = self.rename_list.as_deref().map(Rename::list).transpose()?;
        Ok(Edit {
            untie: self.untie,
            states: self.states.clone(),
            select: Pattern::all(&self.select)?,
            exclude: Pattern::all(&self.exclude)?,
            strip_prefix: self.strip_prefix.clone(),
            rename: Rename::all(&self.rename)?.into_iter().chain(list).collect(),
            prefix: self.prefix.clone(),
            nest: self.nest,
            casts: CastRule::all(&self.cast)?,
        })
    }

    /// Returns the arguments of the command for the same edits. A list of names is in the file
    /// [`RENAME_LIST`].
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = Arguments::default();
        if !self.states.is_empty() {
            arguments.add("--states", &self.states.join(","));
        }
        self.select.iter().for_each(|pattern| arguments.add("--select", pattern));
        self.exclude.iter().for_each(|pattern| arguments.add("--exclude", pattern));
        arguments.add_some("--strip-prefix", &self.strip_prefix);
        self.rename.iter().for_each(|rule| arguments.add("--rename", rule));
        if self.rename_list.is_some() {
            arguments.add("--rename-map", RENAME_LIST);
        }
        arguments.add_some("--prefix", &self.prefix);
        self.cast.iter().for_each(|rule| arguments.add("--cast", rule));
        arguments.flag("--untie", self.untie);
        arguments.flag("--nest", self.nest);
        arguments.0
    }
}

impl OutputOptions {
    /// Returns the arguments of the command for the same output.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = Arguments::default();
        arguments.add("--to", &self.to);
        for (flag, value) in [
            ("--compress", &self.compression),
            ("--shard-size", &self.shard_size),
            ("--format-version", &self.version),
        ] {
            arguments.add_some(flag, value.as_deref().unwrap_or_default());
        }
        self.shards.iter().for_each(|rule| arguments.add("--shard", rule));
        arguments.flag("--object-graph", self.object_graph);
        arguments.flag("--state-file", self.state_file);
        arguments.0
    }
}

#[derive(Default)]
struct Arguments(Vec<String>);

impl Arguments {
    /// Adds an option. A value that looks like an option follows an equals sign.
    fn add(&mut self, flag: &str, value: &str) {
        match value.starts_with('-') {
            true => self.0.push(format!("{flag}={value}")),
            false => self.0.extend([flag.to_owned(), value.to_owned()]),
        }
    }

    /// Adds an option unless the value is empty.
    fn add_some(&mut self, flag: &str, value: &str) {
        if !value.is_empty() {
            self.add(flag, value);
        }
    }

    fn flag(&mut self, flag: &str, on: bool) {
        self.0.extend(on.then(|| flag.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_look_like_options_follow_an_equals_sign() {
        let texts =
            EditTexts { select: vec!["-x".into(), "y".into()], nest: true, ..EditTexts::default() };
        assert_eq!(texts.arguments(), ["--select=-x", "--select", "y", "--nest"]);
        assert_eq!(EditTexts::default().arguments(), Vec::<String>::new());
    }
}
