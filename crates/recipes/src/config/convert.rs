//! Converts a config from one format to another.

mod older;
mod parts;

use statelens_checkpoint::{Error, Result};

use super::family::Families;
use super::nested;
use super::operation::Site;
use super::plan::ConversionStep;
use super::rule::Action;
use super::scope::{Stage, TableScope};
use super::section::{fill, model_section, set_model_section};
use super::statement::{Statement, Target};
use super::table::{Base, ConfigTable, Naming, Rules};
use super::{Language, mup, releases};
use crate::format::Implementation;
use crate::side::Side;
use crate::value::{Map, Value, unfit};

#[derive(Debug, Clone)]
pub struct Converted {
    /// The config. For models in several parts, Hugging Face's has a section per part, each of
    /// which is a file of its own: see `parts`.
    pub config: Value,
    /// The language of the target's configs.
    pub language: Language,
    /// The parts whose configs are files of their own, `PART/config.json`.
    pub parts: Vec<String>,
    /// Further files that the target needs in the same folder: path and content.
    pub files: Vec<(String, Value)>,
    /// The conversions that were applied in turn, for converting the tensors.
    pub steps: Vec<StepConfig>,
    /// Messages for the user.
    pub notes: Vec<String>,
    /// Keys of the source that the target can't hold.
    pub dropped: Vec<String>,
}

/// The configs that the tensor rules of one step read.
#[derive(Debug, Clone)]
pub struct StepConfig {
    pub step: ConversionStep,
    /// The name of the table whose rules were used, if the config chooses between several
    /// (`falcon/7b`).
    pub table: String,
    /// The config of the left side: Hugging Face's with its defaults, or the older release's.
    pub left: Value,
    /// The config of the right side: Cerebras's, or the newer release's.
    pub right: Value,
}

impl Converted {
    /// Sets the folder of the files: a text model's config names the folder of its image model.
    pub fn locate(&mut self, folder: &str) {
        if !self.parts.iter().any(|part| part == "image_model") {
            return;
        }
        let text = self.config.as_map_mut().and_then(|parts| parts.get_mut("text_model"));
        if let Some(text) = text.and_then(Value::as_map_mut) {
            let folder = if folder.is_empty() { String::new() } else { format!("{folder}/") };
            text.set("mm_vision_tower", format!("{folder}image_model"));
        }
    }
}

impl Families {
    /// Returns the parts of a model's config at Hugging Face, each a folder; empty for most models.
    pub fn parts(&self, model: &str) -> Result<Vec<String>> {
        for converter in &self.model(model)?.converters {
            if let ConfigTable::Parts(parts) = self.table(&converter.table)? {
                return Ok(parts.parts.iter().map(|(name, _)| name.clone()).collect());
            }
        }
        Ok(Vec::new())
    }

    /// Converts a config. For a model in several parts, Hugging Face's is a dict of their configs.
    pub fn convert(
        &self,
        model: &str,
        source: Implementation,
        target: Implementation,
        config: &Value,
    ) -> Result<Converted> {
        let steps = self.plan(model, source, target)?;
        let mut converted = Converted {
            config: match source.is_hf() {
                true => older::as_before_5(config),
                false => config.clone(),
            },
            language: if target.is_hf() { Language::Json } else { Language::Yaml },
            parts: Vec::new(),
            files: Vec::new(),
            steps: Vec::new(),
            notes: Vec::new(),
            dropped: Vec::new(),
        };
        let several = steps.len() > 1;
        for step in steps {
            let name = several.then(|| format!("from {} to {}", step.source, step.target));
            self.step(model, step, &mut converted).map_err(|error| match name {
                Some(name) => error.context(name),
                None => error,
            })?;
        }
        Ok(converted)
    }

    fn step(&self, model: &str, step: ConversionStep, converted: &mut Converted) -> Result<()> {
        let label = match self.model(model) {
            Ok(model) => model.label.clone(),
            Err(_) => model.to_owned(),
        };
        let config = &converted.config;
        let root = config.as_map().cloned();
        let root = root.ok_or_else(|| unfit("the config", config, "a section of keys"))?;
        let mut way = StepContext {
            families: self,
            step: &step,
            label: &label,
            converted,
            prefix: String::new(),
        };
        let done = way.table(&step.table, root)?;
        converted.config = done.config.clone();
        let (left, right) = match step.from {
            Side::Left => (done.seen, done.made),
            Side::Right => (done.made, done.seen),
        };
        converted.steps.push(StepConfig { step, table: done.table, left, right });
        Ok(())
    }
}

pub(super) struct StepContext<'a> {
    pub(super) families: &'a Families,
    pub(super) step: &'a ConversionStep,
    pub(super) label: &'a str,
    pub(super) converted: &'a mut Converted,
    /// The part being converted, as a prefix of keys in messages.
    pub(super) prefix: String,
}

pub(super) struct Done {
    pub(super) config: Value,
    /// The source config, as the tensor rules read it.
    pub(super) seen: Value,
    /// The new config, as the tensor rules read it.
    pub(super) made: Value,
    pub(super) table: String,
}

impl StepContext<'_> {
    pub(super) fn table(&mut self, name: &str, root: Map) -> Result<Done> {
        match self.families.table(name)? {
            ConfigTable::Rules(rules) if rules.hf => self.between_hf_and_cs(name, rules, root),
            ConfigTable::Rules(rules) => self.between_releases(name, rules, root),
            ConfigTable::Choose(choices) => {
                let from = self.step.from;
                for choice in choices.iter().filter(|choice| choice.from == from) {
                    if match &choice.when {
                        Some(when) => when.is_true(&TableScope::of(&root))?,
                        None => true,
                    } {
                        return self.table(&choice.table, root);
                    }
                }
                Err(Error::damaged(format!("{name} has no table for this config")))
            }
            ConfigTable::Parts(parts) => parts::convert(self, name, parts, root),
            ConfigTable::Base(base) => self.base_model(base, root),
        }
    }

    fn between_hf_and_cs(&mut self, name: &str, rules: &Rules, mut root: Map) -> Result<Done> {
        let from = self.step.from;
        let section = match from {
            Side::Left => root.clone(),
            Side::Right => model_section(&root)?,
        };
        let standard = match from {
            Side::Left => None,
            Side::Right => mup::to_standard(&section, rules.mup)?,
        };
        let folded = standard.is_some();
        let mut old = standard.unwrap_or(section);
        let mut sections = Map::new();
        let mut new = self.rules(rules, &root, &mut old, &mut sections)?;
        // Tensors are scaled by muP's own keys, so their rules read the config before these were
        // removed.
        let seen = match from {
            Side::Left => Value::Map(old.clone()),
            Side::Right if folded => Value::Map(root),
            Side::Right => {
                set_model_section(&mut root, old.clone());
                Value::Map(root)
            }
        };
        let config = match from {
            Side::Right => Value::Map(new),
            Side::Left => {
                self.name_and_precision(rules, &old, &mut new);
                let mut config = Map::new();
                config.set("model", new);
                for (key, section) in sections {
                    config.set(key, section);
                }
                Value::Map(config)
            }
        };
        Ok(Done { made: config.clone(), config, seen, table: name.to_owned() })
    }

    /// Adds the keys for name and precision to Cerebras's config, as the target release has them.
    fn name_and_precision(&mut self, rules: &Rules, old: &Map, new: &mut Map) {
        let release = self.step.target.version();
        if release < Some((2, 4)) {
            // Jais's converter never sees the flag, because later the whole config is used as its
            // name.
            let has_fp16_type = release >= Some((2, 1)) && rules.naming != Naming::WholeConfig;
            let flag = old.get("use_bfloat16").filter(|_| has_fp16_type);
            if let Some(flag) = flag {
                new.set("fp16_type", if flag.is_true() { "bfloat16" } else { "float16" });
            }
            return;
        }
        if new.contains("name") {
            return;
        }
        match &rules.naming {
            Naming::Model => new.set("name", self.label),
            Naming::Fixed(name) => new.set("name", name.as_str()),
            Naming::WholeConfig => {
                new.set("name", old.clone());
                self.converted.notes.push(format!(
                    "the model's name is the whole source config, as the original tool writes it; to train with it, set it to {}",
                    self.label
                ));
            }
        }
    }

    fn between_releases(&mut self, name: &str, rules: &Rules, mut root: Map) -> Result<Done> {
        let mut old = model_section(&root)?;
        let (source, target) = (self.step.source.version(), self.step.target.version());
        if (source, target) == (Some((2, 2)), Some((2, 3))) && mup::is_old_mup(&old)? {
            old = mup::from_2_2_to_2_3(&mut root, &old)?;
        }
        let mut sections = Map::new();
        let new = self.rules(rules, &root, &mut old, &mut sections)?;
        set_model_section(&mut root, old);
        let seen = Value::Map(root.clone());
        let config = releases::finish(root, new, self.step, self.label, &mut self.converted.notes)?;
        let config = Value::Map(config);
        Ok(Done { made: config.clone(), config, seen, table: name.to_owned() })
    }

    /// Applies defaults, preparation, rules, finishing statements, and defaults again.
    fn rules(
        &mut self,
        rules: &Rules,
        root: &Map,
        old: &mut Map,
        sections: &mut Map,
    ) -> Result<Map> {
        let from = self.step.from;
        let to = from.other();
        fill(old, &rules.before[from as usize]);
        if rules.nested == Some(from) {
            *old = nested::flatten(std::mem::take(old));
        }
        let mut new = Map::new();
        let notes = &mut self.converted.notes;
        for (_, statement) in rules.prepare.iter().filter(|(side, _)| *side == from) {
            let stage = Stage::Prepare;
            let scope = TableScope { stage, from, root, old: &*old, new: &new };
            if let Some(effect) = statement.effect(&scope)? {
                let (sections, notes) = (&mut *sections, &mut *notes);
                effect.apply(stage, &mut Target { config: &mut *old, sections, notes })?;
            }
        }
        let old = &*old;
        let mut run = |statement: &Statement, stage: Stage<'_>, new: &mut Map| -> Result<()> {
            let scope = TableScope { stage, from, root, old, new: &*new };
            if let Some(effect) = statement.effect(&scope)? {
                let (sections, notes) = (&mut *sections, &mut *notes);
                effect.apply(stage, &mut Target { config: new, sections, notes })?;
            }
            Ok(())
        };
        for (key, value) in old.iter() {
            let rule = key.as_str().and_then(|key| {
                rules.rules.iter().find_map(|rule| Some((rule, key, rule.matches(from, key)?)))
            });
            let Some((rule, key, other)) = rule else {
                let key = key.as_str().unwrap_or("?");
                self.converted.dropped.push(format!("{}{key}", self.prefix));
                continue;
            };
            match &rule.action {
                Action::Copy => new.set(other, value.clone()),
                Action::Drop => {}
                Action::Must(must) => must.check(from, old, key, value)?,
                Action::By(operation) => {
                    let (other, new) = (other.as_str(), &mut new);
                    operation.apply(&mut Site { from, key, other, value, old, new })?;
                }
                Action::Run(statements) => {
                    let stage = Stage::Rule { key, other: &other, value };
                    for statement in &statements[from as usize] {
                        run(statement, stage, &mut new)?;
                    }
                }
            }
        }
        for (_, statement) in rules.finish.iter().filter(|(side, _)| *side == to) {
            run(statement, Stage::Finish, &mut new)?;
        }
        if rules.nested == Some(to) {
            new = nested::nest(new, old)?;
        }
        fill(&mut new, &rules.after[to as usize]);
        Ok(new)
    }

    /// Applies the table of the model that the config names, and adds a section.
    fn base_model(&mut self, base: &Base, root: Map) -> Result<Done> {
        let from = self.step.from;
        let mut root = root;
        let (name, key) = match from {
            Side::Left => {
                let kind = root.get("model_type").and_then(Value::as_str).unwrap_or_default();
                let name = if kind == "gpt_neox" { "gpt-neox" } else { kind };
                (name.to_owned(), "model_type")
            }
            Side::Right => {
                let mut model = model_section(&root)?;
                let name =
                    model.remove(&base.key).and_then(|name| name.as_str().map(str::to_owned));
                for key in base.section.keys() {
                    model.remove(key);
                }
                set_model_section(&mut root, model);
                (name.unwrap_or_default(), base.key.as_str())
            }
        };
        let known = base.names.contains(&name) && self.families.model(&name).is_ok();
        if !known {
            let names = base.names.iter().filter(|name| self.families.model(name).is_ok());
            let names: Vec<&str> = names.map(String::as_str).collect();
            return Err(Error::refused(format!("{key} is \"{name}\"")).expected(names.join(", ")));
        }
        let (source, target) = (self.step.source.plain(), self.step.target.plain());
        let inner = self.families.plan(&name, source, target)?;
        let [inner] = inner.as_slice() else {
            return Err(Error::refused(format!(
                "{name} can't be converted from {source} to {target} in one step"
            )));
        };
        let seen = root.clone();
        let mut way = StepContext {
            families: self.families,
            step: inner,
            label: self.label,
            converted: &mut *self.converted,
            prefix: String::new(),
        };
        let mut done = way.table(&inner.table, root)?;
        if from == Side::Left {
            let mut config = done.config.as_map().cloned().unwrap_or_default();
            let mut model = model_section(&config)?;
            model.set_default(&base.key, name.as_str());
            fill(&mut model, &base.section);
            set_model_section(&mut config, model);
            done.config = config.into();
            done.made = done.config.clone();
        } else {
            done.seen = Value::Map(seen);
        }
        Ok(done)
    }
}
