//! Families of models. Each is a file with its models and the tables that convert their formats.

use std::collections::{BTreeMap, HashMap};
#[cfg(feature = "embedded")]
use std::sync::LazyLock;

use statelens_checkpoint::{Error, Result};

use super::table::{ConfigTable, Rules};
use super::yaml;
use crate::format::{Implementation, Release};
use crate::value::{Map, Value};

#[derive(Debug, Clone)]
pub struct Families {
    models: BTreeMap<String, ModelConverters>,
    tables: HashMap<String, ConfigTable>,
}

/// The converters of a model, which has a name for `--model`.
#[derive(Debug, Clone)]
pub(super) struct ModelConverters {
    /// The name in Cerebras's registry.
    pub(super) label: String,
    /// The names of its classes in Hugging Face's configs.
    pub(super) architectures: Vec<String>,
    pub(super) converters: Vec<Converter>,
}

/// The formats on two sides, and the table between them.
#[derive(Debug, Clone)]
pub(super) struct Converter {
    pub(super) left: Vec<Implementation>,
    pub(super) right: Vec<Implementation>,
    pub(super) table: String,
}

/// The built-in families.
#[cfg(feature = "embedded")]
const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/configs.rs"));

impl Families {
    #[cfg(feature = "embedded")]
    pub fn known() -> Result<&'static Self> {
        static KNOWN: LazyLock<Result<Families>> = LazyLock::new(|| Families::read(FILES));
        KNOWN.as_ref().map_err(Clone::clone)
    }

    /// Returns the families whose files were supplied.
    #[cfg(not(feature = "embedded"))]
    pub fn known() -> Result<&'static Self> {
        use std::sync::{PoisonError, RwLock};

        use crate::library::{self, FamilyFile};
        static KNOWN: RwLock<Option<(usize, &'static Families)>> = RwLock::new(None);
        let files = library::all(FamilyFile::Table);
        let known = *KNOWN.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = known.filter(|(count, _)| *count == files.len()) {
            return Ok(known);
        }
        // Rebuilt when files were added. This happens a few times at most, so the old value is
        // leaked.
        let families: &'static Self = Box::leak(Box::new(Self::read(&files)?));
        *KNOWN.write().unwrap_or_else(PoisonError::into_inner) = Some((files.len(), families));
        Ok(families)
    }

    /// Returns, for each file, its models and the files that its tables need.
    #[cfg(feature = "embedded")]
    pub(crate) fn files() -> Result<Vec<(Vec<String>, Vec<String>)>> {
        let mut all = Vec::new();
        for (name, _) in FILES {
            let mut files = vec![(*name).to_owned()];
            let mut at = 0;
            while let Some(file) = files.get(at).cloned() {
                for other in Self::referenced_files(&file)? {
                    if !files.contains(&other) {
                        files.push(other);
                    }
                }
                at += 1;
            }
            all.push((Self::alone(name)?.models().map(str::to_owned).collect(), files));
        }
        Ok(all)
    }

    /// Returns the other files that the tables of a file name.
    #[cfg(feature = "embedded")]
    fn referenced_files(file: &str) -> Result<Vec<String>> {
        let own = Self::alone(file)?;
        let mut names: Vec<String> = Vec::new();
        for model in own.models.values() {
            names.extend(model.converters.iter().map(|one| one.table.clone()));
        }
        for table in own.tables.values() {
            match table {
                ConfigTable::Rules(_) => {}
                ConfigTable::Choose(choices) => {
                    names.extend(choices.iter().map(|one| one.table.clone()))
                }
                ConfigTable::Parts(parts) => {
                    names.extend(parts.parts.iter().map(|one| one.1.clone()))
                }
                // The config names the model, so any file may be needed.
                ConfigTable::Base(_) => {
                    names.extend(FILES.iter().map(|(name, _)| format!("{name}/")))
                }
            }
        }
        let files = names.iter().filter_map(|name| Some(name.split_once('/')?.0.to_owned()));
        Ok(files.filter(|other| other != file).collect())
    }

    /// Parses one file without checking that its tables refer to existing ones.
    #[cfg(feature = "embedded")]
    fn alone(file: &str) -> Result<Self> {
        let mut own = Self { models: BTreeMap::new(), tables: HashMap::new() };
        if let Some((name, text)) = FILES.iter().find(|(name, _)| *name == file) {
            own.add(name, text)?;
        }
        Ok(own)
    }

    /// Parses families from files, each with a name and a text.
    pub fn read(files: &[(&str, &str)]) -> Result<Self> {
        let mut families = Self { models: BTreeMap::new(), tables: HashMap::new() };
        families.tables.insert("same".to_owned(), ConfigTable::Rules(Box::new(Rules::same()?)));
        for (name, text) in files {
            families.add(name, text).map_err(|error| error.in_file(format!("{name}.yaml")))?;
        }
        for model in families.models.values() {
            for converter in &model.converters {
                families.table(&converter.table)?;
            }
        }
        Ok(families)
    }

    /// Returns the names of the models, sorted.
    pub fn models(&self) -> impl Iterator<Item = &str> {
        self.models.keys().map(String::as_str)
    }

    pub(super) fn model(&self, name: &str) -> Result<&ModelConverters> {
        self.models.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.models().collect();
            Error::refused(format!("there is no model \"{}\"", Value::from(name).quoted()))
                .expected(names.join(", "))
        })
    }

    pub(super) fn table(&self, name: &str) -> Result<&ConfigTable> {
        self.tables.get(name).ok_or_else(|| Error::damaged(format!("there is no table \"{name}\"")))
    }

    fn add(&mut self, file: &str, text: &str) -> Result<()> {
        let value = yaml::parse(text)?;
        let section = |key: &str| -> Result<Map> {
            let found = value.as_map().and_then(|map| map.get(key)).and_then(Value::as_map);
            found
                .cloned()
                .ok_or_else(|| Error::damaged(format!("the section \"{key}\" is missing")))
        };
        for (name, table) in section("tables")?.iter() {
            let name =
                name.as_str().ok_or_else(|| Error::damaged("a table's name is not a text"))?;
            let mut table = ConfigTable::parse(table)
                .map_err(|error| error.context(format!("table \"{name}\"")))?;
            qualify(&mut table, file);
            self.tables.insert(format!("{file}/{name}"), table);
        }
        for (name, model) in section("models")?.iter() {
            let name =
                name.as_str().ok_or_else(|| Error::damaged("a model's name is not a text"))?;
            let model = ModelConverters::parse(model, file)
                .map_err(|error| error.context(format!("model \"{name}\"")))?;
            if self.models.insert(name.to_owned(), model).is_some() {
                return Err(Error::damaged(format!("the model \"{name}\" is there twice")));
            }
        }
        Ok(())
    }
}

impl ModelConverters {
    fn parse(value: &Value, file: &str) -> Result<Self> {
        let map = value.as_map().ok_or_else(|| Error::damaged("it is not a section"))?;
        let label = map.get("name").and_then(Value::as_str);
        let label = label.ok_or_else(|| Error::damaged("it has no \"name\""))?.to_owned();
        let lines = map.get("converters").and_then(Value::as_list);
        let lines = lines.ok_or_else(|| Error::damaged("it has no list of \"converters\""))?;
        let converters =
            lines.iter().map(|line| Converter::parse(line.as_str().unwrap_or_default(), file));
        let architectures = map.get("architectures").and_then(Value::as_list);
        let architectures = architectures.into_iter().flat_map(|list| list.iter());
        let architectures =
            architectures.filter_map(|name| name.as_str().map(str::to_owned)).collect();
        Ok(Self { label, architectures, converters: converters.collect::<Result<_>>()? })
    }

    /// Returns the oldest release that any of its converters supports.
    pub(super) fn oldest(&self) -> Option<(u8, u8)> {
        let formats = self.converters.iter().flat_map(|one| one.left.iter().chain(&one.right));
        formats.filter_map(|format| format.version()).min()
    }
}

impl Converter {
    /// Parses `hf <-> cs-2.1..cs-2.9 by TABLE`.
    fn parse(line: &str, file: &str) -> Result<Self> {
        let bad = || {
            Error::damaged(format!("\"{line}\" is not a converter"))
                .expected("FORMAT… <-> FORMAT… by TABLE")
        };
        let (formats, table) = line.split_once(" by ").ok_or_else(bad)?;
        let (left, right) = formats.split_once(" <-> ").ok_or_else(bad)?;
        let formats = |text: &str| -> Result<Vec<Implementation>> {
            let ranges = text.split(' ').map(range).collect::<Result<Vec<_>>>()?;
            Ok(ranges.into_iter().flatten().collect())
        };
        Ok(Self { left: formats(left)?, right: formats(right)?, table: qualified(table, file) })
    }
}

/// Parses a range such as `cs-2.1..cs-2.9`, or one format.
fn range(text: &str) -> Result<Vec<Implementation>> {
    let Some((first, last)) = text.split_once("..") else { return Ok(vec![text.parse()?]) };
    let (first, last): (Implementation, Implementation) = (first.parse()?, last.parse()?);
    let (Some(first), Some(last)) = (first.release(), last.release()) else {
        return Err(Error::damaged(format!("\"{text}\" is not a range of releases")));
    };
    let within = |number: &&(u8, u8)| {
        (first.major, first.minor) <= **number && **number <= (last.major, last.minor)
    };
    let releases = Implementation::RELEASES.iter().filter(within);
    let format = |&(major, minor): &(u8, u8)| {
        Implementation::Cerebras(Release { major, minor, variant: first.variant })
    };
    Ok(releases.map(format).collect())
}

fn qualified(table: &str, file: &str) -> String {
    if table == "same" || table.contains('/') {
        table.to_owned()
    } else {
        format!("{file}/{table}")
    }
}

/// Qualifies the names of tables in the same file with the file's name.
fn qualify(table: &mut ConfigTable, file: &str) {
    match table {
        ConfigTable::Rules(_) | ConfigTable::Base(_) => {}
        ConfigTable::Choose(choices) => {
            for choice in choices {
                choice.table = qualified(&choice.table, file);
            }
        }
        ConfigTable::Parts(parts) => {
            for (_, table) in &mut parts.parts {
                *table = qualified(table, file);
            }
        }
    }
}
