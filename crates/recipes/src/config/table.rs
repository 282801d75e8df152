//! Tables that convert the config of one side to that of the other, read from a family's file.

use statelens_checkpoint::{Error, Result};

use super::mup::Policy;
use super::rule::ConfigRule;
use super::statement::Statement;
use crate::expression::Expression;
use crate::side::Side;
use crate::value::{List, Map, MapKey, Value};

#[derive(Debug, Clone)]
pub(super) enum ConfigTable {
    /// Rules for the model's section.
    Rules(Box<Rules>),
    /// A choice between other tables, depending on the config.
    Choose(Vec<TableChoice>),
    /// Several models in one.
    Parts(Box<ModelParts>),
    /// The table of the model that the config names.
    Base(Box<Base>),
}

#[derive(Debug, Clone)]
pub(super) struct Rules {
    /// Whether the left side is Hugging Face's config, which is the model's section alone, while
    /// Cerebras's has sections.
    pub(super) hf: bool,
    /// The side whose config has sections; the rules name its keys by paths.
    pub(super) nested: Option<Side>,
    pub(super) mup: Policy,
    pub(super) naming: Naming,
    /// Defaults of a side for missing keys, set before the rules; left and right.
    pub(super) before: [Map; 2],
    /// Changes of the source config, by the side of the source.
    pub(super) prepare: Vec<(Side, Statement)>,
    pub(super) rules: Vec<ConfigRule>,
    /// Changes of the new config, by the side of the target.
    pub(super) finish: Vec<(Side, Statement)>,
    /// Defaults of a side for keys that the rules did not write; left and right.
    pub(super) after: [Map; 2],
}

/// The value of the key for the model's name, which Cerebras's configs have since 2.4.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Naming {
    /// The registered name of the model.
    Model,
    /// The same for every model.
    Fixed(String),
    /// The whole source config, as the original tool does for Jais.
    WholeConfig,
}

#[derive(Debug, Clone)]
pub(super) struct TableChoice {
    pub(super) from: Side,
    pub(super) when: Option<Expression>,
    pub(super) table: String,
}

/// Models that are folders at Hugging Face and sections at Cerebras.
#[derive(Debug, Clone)]
pub(super) struct ModelParts {
    pub(super) parts: Vec<(String, String)>,
    pub(super) layout: PartsLayout,
    pub(super) preprocessor: Map,
    pub(super) after: Map,
}

/// The position of the parts in Cerebras's config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PartsLayout {
    /// Each part is under its name.
    Pair,
    /// As `Pair`; Hugging Face's configs say which of the two they are.
    Dpr,
    /// The parts have a projector between them.
    Llava,
    /// As `Llava`, nested; `encoder` is the key of the encoder.
    Simple { encoder: String },
}

/// A model in a layout that several families share.
#[derive(Debug, Clone)]
pub(super) struct Base {
    pub(super) key: String,
    pub(super) names: Vec<String>,
    pub(super) section: Map,
}

impl ConfigTable {
    /// Parses the value of a table's name.
    pub(super) fn parse(value: &Value) -> Result<Self> {
        let map = section(value)?;
        if let Some(choices) = map.get("choose") {
            return Ok(Self::Choose(
                lines(choices)?.map(|line| TableChoice::parse(line?)).collect::<Result<_>>()?,
            ));
        }
        if let Some(base) = map.get("base model") {
            let base = section(base)?;
            let key = text(base.get("key"))?.to_owned();
            let names = lines(base.get("names").unwrap_or(&Value::Null))?;
            let names = names.map(|name| name.map(str::to_owned)).collect::<Result<_>>()?;
            let section = section(base.get("section").unwrap_or(&Value::Null))?.clone();
            return Ok(Self::Base(Box::new(Base { key, names, section })));
        }
        if let Some(parts) = map.get("parts") {
            let parts = section(parts)?.iter().map(|(name, table)| {
                Ok((text(Some(&key_value(name)))?.to_owned(), text(Some(table))?.to_owned()))
            });
            let layout = match text(map.get("layout"))?.split_once(' ') {
                Some(("mmsimple", encoder)) => PartsLayout::Simple { encoder: encoder.to_owned() },
                None => match text(map.get("layout"))? {
                    "pair" => PartsLayout::Pair,
                    "dpr" => PartsLayout::Dpr,
                    "llava" => PartsLayout::Llava,
                    other => return Err(Error::damaged(format!("\"{other}\" is not a layout"))),
                },
                Some(_) => return Err(Error::damaged("the layout is not known")),
            };
            let [_, after] = sides(map.get("after"))?;
            let preprocessor =
                map.get("preprocessor").and_then(Value::as_map).cloned().unwrap_or_default();
            let parts = parts.collect::<Result<_>>()?;
            return Ok(Self::Parts(Box::new(ModelParts { parts, layout, preprocessor, after })));
        }
        Rules::parse(map).map(|rules| Self::Rules(Box::new(rules)))
    }
}

impl Rules {
    /// Returns the table that copies everything.
    pub(super) fn same() -> Result<Self> {
        Ok(Self {
            hf: false,
            nested: None,
            mup: Policy::Kept,
            naming: Naming::Model,
            before: Default::default(),
            prepare: Vec::new(),
            rules: vec![ConfigRule::parse("* copied")?],
            finish: Vec::new(),
            after: Default::default(),
        })
    }

    fn parse(map: &Map) -> Result<Self> {
        const KEYS: [&str; 8] =
            ["nested", "mup", "name", "before", "prepare", "rules", "finish", "after"];
        if let Some(other) = map.keys().find(|key| !KEYS.contains(key)) {
            return Err(
                Error::damaged(format!("a table has no \"{other}\"")).expected(KEYS.join(", "))
            );
        }
        let (hf, mup) = match map.get("mup").map(|value| text(Some(value))).transpose()? {
            None => (false, Policy::Kept),
            Some("kept") => (true, Policy::Kept),
            Some("converted") => (true, Policy::Converted),
            Some("converted (t5)") => (true, Policy::ConvertedT5),
            Some("refused") => (true, Policy::Refused),
            Some(other) => {
                return Err(Error::damaged(format!(
                    "\"{other}\" is not what a table does with muP"
                ))
                .expected("kept, converted, converted (t5) or refused"));
            }
        };
        let naming = match map.get("name").map(|value| text(Some(value))).transpose()? {
            None => Naming::Model,
            Some("whole config") => Naming::WholeConfig,
            Some(name) => Naming::Fixed(name.to_owned()),
        };
        let nested = match map.get("nested") {
            None => None,
            side => Some(Side::named(text(side)?).ok_or_else(|| {
                Error::damaged("the nested config of a table is not known").expected("old or new")
            })?),
        };
        let statements = |key: &str| -> Result<Vec<(Side, Statement)>> {
            let Some(list) = map.get(key) else { return Ok(Vec::new()) };
            let with_side = |line: Result<&str>| {
                let line = line?;
                let (side, rest) = line.split_once(' ').unwrap_or((line, ""));
                let side = Side::named(side).ok_or_else(|| {
                    Error::damaged(format!("\"{line}\" does not begin with a side"))
                        .expected("hf or cs, or old or new")
                })?;
                Ok((side, Statement::parse(rest)?))
            };
            lines(list)?.map(with_side).collect()
        };
        let rule = |rule: &Value| match rule.as_map() {
            None => ConfigRule::parse(text(Some(rule))?),
            Some(map) => match map.iter().next() {
                Some((keys, sides)) if map.len() == 1 => {
                    ConfigRule::with_statements(text(Some(&key_value(keys)))?, sides)
                }
                _ => Err(Error::damaged("a rule with statements has one line of keys")),
            },
        };
        let rules = items(map.get("rules").unwrap_or(&Value::Null))?;
        Ok(Self {
            hf,
            nested,
            mup,
            naming,
            before: sides(map.get("before"))?,
            prepare: statements("prepare")?,
            rules: rules.iter().map(rule).collect::<Result<_>>()?,
            finish: statements("finish")?,
            after: sides(map.get("after"))?,
        })
    }
}

impl TableChoice {
    fn parse(line: &str) -> Result<Self> {
        let bad = || {
            Error::damaged(format!("\"{line}\" is not a choice"))
                .expected("SIDE [CONDITION] then TABLE")
        };
        let (condition, table) = line.split_once(" then ").ok_or_else(bad)?;
        let (side, when) = match condition.split_once(' ') {
            None => (condition, None),
            Some((side, when)) => (side, Some(Expression::of_table(when)?)),
        };
        Ok(Self { from: Side::named(side).ok_or_else(bad)?, when, table: table.to_owned() })
    }
}

fn section(value: &Value) -> Result<&Map> {
    value.as_map().ok_or_else(|| Error::damaged(format!("{} is not a section", value.quoted())))
}

fn text(value: Option<&Value>) -> Result<&str> {
    let value = value.unwrap_or(&Value::Null);
    value.as_str().ok_or_else(|| Error::damaged(format!("{} is not a text", value.quoted())))
}

fn key_value(key: &MapKey) -> Value {
    key.as_str().map_or(Value::Null, Value::from)
}

fn lines(value: &Value) -> Result<impl Iterator<Item = Result<&str>>> {
    Ok(items(value)?.iter().map(|line| text(Some(line))))
}

fn items(value: &Value) -> Result<&List> {
    value.as_list().ok_or_else(|| Error::damaged(format!("{} is not a list", value.quoted())))
}

/// Returns the sections `hf` and `cs`, or `old` and `new`.
fn sides(value: Option<&Value>) -> Result<[Map; 2]> {
    let mut both = [Map::new(), Map::new()];
    let Some(value) = value else { return Ok(both) };
    for (key, map) in section(value)?.iter() {
        let side = key.as_str().and_then(Side::named);
        let side =
            side.ok_or_else(|| Error::damaged("defaults are under hf and cs, or old and new"))?;
        both[side as usize] = section(map)?.clone();
    }
    Ok(both)
}
