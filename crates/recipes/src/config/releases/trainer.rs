//! Converts the sections of 2.2 to the trainer layout of 2.3.

use std::collections::{BTreeSet, HashMap};

use statelens_checkpoint::{Error, Result, order};

use super::changes;
use crate::value::{List, Map, Value, unfit};

/// Returns the config in the trainer layout; unchanged if it has that already.
pub(super) fn from_legacy(root: Map, notes: &mut Vec<String>) -> Result<Map> {
    if root.contains("trainer") {
        return Ok(root);
    }
    let mut root = root;
    // From here on, shared objects are copies.
    root.iter_mut().for_each(|(_, value)| value.remark(&mut |_| None));
    let template = part("trainer")?;
    let mut legacy = Legacy::new(&root);
    for key in names(part("ignored")?) {
        legacy.taken.insert(key.to_owned());
    }
    legacy.place(template);
    let unplaced: Vec<&str> = legacy
        .leaves
        .iter()
        .map(|(key, _)| key.as_str())
        .filter(|key| !legacy.taken.contains(*key))
        .collect();
    if !unplaced.is_empty() {
        notes.push(format!(
            "these keys have no place in the layout of a trainer: {}",
            unplaced.join(", ")
        ));
    }
    legacy.summaries();
    let mut trainer = match filled(template, &legacy.values) {
        Some(Value::Map(trainer)) => trainer,
        _ => Map::new(),
    };
    finish(&mut trainer)?;
    let whole = Map::from([("trainer", trainer.into())]);
    Ok(whole)
}

/// Returns the class and the parameters of a scheduler by its older name.
pub(super) fn scheduler(name: &str) -> Result<Option<(&'static str, &'static Value)>> {
    let known = part("schedulers")?.as_map();
    let (name, longer) = (name.to_lowercase(), format!("{}lr", name.to_lowercase()));
    let find = |wanted: &str| {
        known?.iter().find_map(|(class, parameters)| {
            let class = class.as_str()?;
            (class.to_lowercase() == wanted).then_some((class, parameters))
        })
    };
    Ok(find(&name).or_else(|| find(&longer)))
}

fn part(key: &str) -> Result<&'static Value> {
    changes()?.get(key).ok_or_else(|| Error::damaged(format!("changes.yaml has no \"{key}\"")))
}

fn names(value: &Value) -> impl Iterator<Item = &str> {
    value.as_list().into_iter().flat_map(|list| list.iter()).filter_map(Value::as_str)
}

/// The sections of 2.2, key by key.
struct Legacy<'a> {
    root: &'a Map,
    /// Every value that is neither a section nor a list, by its path.
    leaves: Vec<(String, &'a Value)>,
    taken: BTreeSet<String>,
    /// The values for the names in the template.
    values: HashMap<String, Value>,
}

impl<'a> Legacy<'a> {
    fn new(root: &'a Map) -> Self {
        let mut leaves = Vec::new();
        for (key, value) in root.iter() {
            if let Some(key) = key.as_str() {
                collect(key, value, &mut leaves);
            }
        }
        Self { root, leaves, taken: BTreeSet::new(), values: HashMap::new() }
    }

    /// Looks up every name in the template.
    fn place(&mut self, template: &Value) {
        let mut wanted = Vec::new();
        template_names(template, &mut wanted);
        let whole: HashMap<&str, &Value> =
            self.leaves.iter().map(|(key, value)| (key.as_str(), *value)).collect();
        for name in &wanted {
            if let Some(value) = whole.get(name)
                && self.taken.insert((*name).to_owned())
            {
                self.values.insert((*name).to_owned(), (*value).clone());
            }
        }
        let mut globs: Vec<&str> = wanted
            .iter()
            .filter(|name| !self.values.contains_key(**name))
            .filter_map(|name| name.strip_suffix(".*"))
            .collect();
        order::natural(&mut globs);
        globs.dedup();
        // Longest first: a key that a longer name takes is left out of the section around it.
        order::by_key(&mut globs, |scope| std::cmp::Reverse(scope.split('.').count()));
        for scope in globs {
            let mut parts = scope.split('.');
            let first = parts.next().and_then(|part| self.root.get(part));
            let found = parts.fold(first, |value, part| value?.as_map()?.get(part));
            let Some(found) = found.filter(|value| matches!(value, Value::Map(_) | Value::List(_)))
            else {
                continue;
            };
            let has_leaves = self
                .leaves
                .iter()
                .any(|(key, _)| key.strip_prefix(scope).is_some_and(|rest| rest.starts_with('.')));
            if has_leaves && let Some(value) = self.rest(scope, found) {
                self.values.insert(format!("{scope}.*"), value);
            }
        }
    }

    /// Returns a section without the keys that were taken from it.
    fn rest(&mut self, path: &str, value: &Value) -> Option<Value> {
        match value {
            Value::Map(map) => {
                let mut rest = Map::new();
                for (key, value) in map.iter() {
                    let path = format!("{path}.{}", key.as_str()?);
                    if let Some(value) = self.rest(&path, value) {
                        rest.set(key.clone(), value);
                    }
                }
                Some(rest.into())
            }
            Value::List(list) => {
                let items = list.iter().enumerate();
                let rest: List = items
                    .filter_map(|(index, item)| self.rest(&format!("{path}.{index}"), item))
                    .collect();
                Some(rest.into())
            }
            leaf => {
                if let Some(value) = self.values.get(path) {
                    return Some(value.clone());
                }
                self.taken.insert(path.to_owned()).then(|| leaf.clone())
            }
        }
    }

    /// Removes `add_summaries` from the sections on sparsity; a callback has it instead.
    fn summaries(&mut self) {
        let mut any = false;
        for name in ["sparsity.*", "sparsity"] {
            if let Some(value) = self.values.get_mut(name) {
                any |= take_summaries(value);
            }
        }
        if any {
            self.values.insert("sparsity.add_summaries".to_owned(), Value::Bool(true));
        }
    }
}

fn collect<'a>(path: &str, value: &'a Value, leaves: &mut Vec<(String, &'a Value)>) {
    match value {
        Value::Map(map) => {
            for (key, value) in map.iter() {
                if let Some(key) = key.as_str() {
                    collect(&format!("{path}.{key}"), value, leaves);
                }
            }
        }
        Value::List(list) => {
            for (index, value) in list.iter().enumerate() {
                collect(&format!("{path}.{index}"), value, leaves);
            }
        }
        leaf => leaves.push((path.to_owned(), leaf)),
    }
}

fn template_names<'a>(template: &'a Value, found: &mut Vec<&'a str>) {
    match template {
        Value::Map(map) => map.values().for_each(|value| template_names(value, found)),
        Value::List(list) => list.iter().for_each(|value| template_names(value, found)),
        other => found.extend(other.as_str()),
    }
}

fn take_summaries(value: &mut Value) -> bool {
    match value {
        Value::Map(map) => {
            let own = map.remove("add_summaries").is_some_and(|flag| flag.is_true());
            map.iter_mut().fold(own, |any, (_, value)| take_summaries(value) | any)
        }
        Value::List(list) => list.iter_mut().fold(false, |any, value| take_summaries(value) | any),
        _ => false,
    }
}

/// Replaces the names in the template by their values; empty results are left out.
fn filled(template: &Value, values: &HashMap<String, Value>) -> Option<Value> {
    match template {
        Value::Map(map) => {
            let mut filled_map = Map::new();
            for (key, inner) in map.iter() {
                if key.as_str() != Some("*") {
                    if let Some(value) = filled(inner, values).filter(is_something) {
                        filled_map.set(key.clone(), value);
                    }
                    continue;
                }
                match inner.as_str().and_then(|name| values.get(name)) {
                    None => {}
                    Some(Value::Map(section)) => {
                        for (key, value) in section.iter() {
                            filled_map.set(key.clone(), value.clone());
                        }
                    }
                    Some(other) => return Some(cleaned(other)),
                }
            }
            Some(filled_map.into())
        }
        Value::List(list) => {
            let items: List =
                list.iter().filter_map(|item| filled(item, values).filter(is_something)).collect();
            Some(items.into())
        }
        other => values.get(other.as_str()?).map(cleaned),
    }
}

fn is_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::List(list) => !list.is_empty(),
        Value::Map(map) => !map.is_empty(),
        _ => true,
    }
}

fn cleaned(value: &Value) -> Value {
    match value {
        Value::Map(map) => {
            let kept = map.iter().map(|(key, value)| (key.clone(), cleaned(value)));
            kept.filter(|(_, value)| is_something(value)).collect::<Map>().into()
        }
        Value::List(list) => list.iter().map(cleaned).filter(is_something).collect::<List>().into(),
        other => other.clone(),
    }
}

fn section<'a>(map: &'a mut Map, key: &str) -> Option<&'a mut Map> {
    map.get_mut(key).and_then(Value::as_map_mut)
}

fn finish(trainer: &mut Map) -> Result<()> {
    let validation = section(trainer, "fit").and_then(|fit| fit.get("val_dataloader").cloned());
    if section(trainer, "fit").is_some_and(|fit| !fit.contains("train_dataloader")) {
        trainer.remove("fit");
    }
    if section(trainer, "validate").is_some_and(|validate| !validate.contains("val_dataloader")) {
        trainer.remove("validate");
    }
    trainer.set_default("init", Map::new());
    let Some(init) = section(trainer, "init") else { return Ok(()) };
    schedulers(init)?;
    callbacks(init)?;
    for path in names(part("pruned")?) {
        prune(trainer, path);
    }
    share_validation(trainer, validation);
    let Some(init) = section(trainer, "init") else { return Ok(()) };
    if let Some(Value::Map(mut optimizer)) = init.get("optimizer").cloned() {
        let kind = optimizer.remove("optimizer_type");
        let kind = kind.as_ref().and_then(Value::as_str);
        let kind = kind.ok_or_else(|| {
            Error::refused("the optimizer's section has no optimizer_type")
                .expected("a class, such as AdamW")
        })?;
        let named = Map::from([(kind, optimizer.into())]);
        init.set("optimizer", named);
    }
    Ok(())
}

/// Shares the validation dataloader as a single object between all its uses.
fn share_validation(trainer: &mut Map, validation: Option<Value>) {
    let Some(mut validation) = validation else { return };
    if let Some(map) = validation.as_map_mut() {
        map.remove("micro_batch_size");
    }
    validation.share(u32::MAX);
    for (outer, inner) in [
        ("fit", "val_dataloader"),
        ("validate", "val_dataloader"),
        ("validate_all", "val_dataloaders"),
    ] {
        if let Some(section) = section(trainer, outer)
            && section.contains(inner)
        {
            section.set(inner, validation.clone());
        }
    }
}

fn prune(trainer: &mut Map, path: &str) {
    let mut map = trainer;
    let mut rest = path;
    while let Some((key, inner)) = rest.split_once('.') {
        let Some(next) = section(map, key) else { return };
        map = next;
        rest = inner;
    }
    map.remove(rest);
}

fn schedulers(init: &mut Map) -> Result<()> {
    let optimizer = init.get("optimizer").and_then(Value::as_map).cloned().unwrap_or_default();
    let scaled = optimizer.get("adjust_learning_rate").is_some_and(Value::is_true);
    let found = match (init.get("schedulers"), optimizer.get("learning_rate")) {
        (Some(schedulers), _) => schedulers.clone(),
        (None, None) => return Ok(()),
        (None, Some(rate)) => {
            let number = match rate {
                Value::Text(text) => text.trim().parse().ok(),
                other => other.as_f64(),
            };
            let number =
                number.ok_or_else(|| unfit("optimizer.learning_rate", rate, "a number"))?;
            let constant = Map::from([
                ("scheduler", Value::from("ConstantLR")),
                ("learning_rate", Value::Float(number)),
            ]);
            constant.into()
        }
    };
    let mut converted = scheduled(&found)?;
    if scaled {
        let inner = Map::from([("scheduler", converted)]);
        let outer = Map::from([("ScalePerParamLR", inner.into())]);
        converted = outer.into();
    }
    init.set("schedulers", [converted].into_iter().collect::<List>());
    Ok(())
}

fn scheduled(found: &Value) -> Result<Value> {
    if let Some(map) = found.as_map() {
        return one_scheduler(map.clone());
    }
    let list = found.as_list().ok_or_else(|| {
        Error::refused(format!("optimizer.learning_rate is {}", found.quoted()))
            .expected("a section, or a list of them")
    })?;
    let mut main: BTreeSet<String> = BTreeSet::new();
    let mut schedulers = Vec::new();
    for one in list.iter() {
        let mut one = one.as_map().cloned().ok_or_else(|| {
            Error::refused(format!("a learning rate is {}", one.quoted())).expected("a section")
        })?;
        let own = one.remove("main_scheduler").filter(Value::is_true);
        main.extend(own.as_ref().and_then(Value::as_str).map(str::to_owned));
        schedulers.push(one_scheduler(one)?);
    }
    if main.len() > 1 {
        return Err(Error::refused("the learning rates name different main schedulers")
            .expected("the same main_scheduler in each"));
    }
    let chained = main
        .first()
        .is_some_and(|name| matches!(name.to_lowercase().as_str(), "chained" | "chainedlr"));
    if let ([one], false) = (schedulers.as_slice(), chained) {
        return Ok(one.clone());
    }
    let inner = Map::from([("schedulers", schedulers.into_iter().collect::<List>().into())]);
    let outer =
        Map::from([(if chained { "ChainedScheduler" } else { "SequentialLR" }, inner.into())]);
    Ok(outer.into())
}

fn one_scheduler(mut parameters: Map) -> Result<Value> {
    let name = parameters.remove("scheduler");
    let name = name.as_ref().and_then(Value::as_str).unwrap_or_default();
    let Some((class, _)) = scheduler(name)? else {
        let known =
            part("schedulers")?.as_map().map(|map| map.keys().collect::<Vec<_>>().join(", "));
        return Err(Error::refused(format!(
            "there is no learning rate scheduler \"{}\"",
            Value::from(name).quoted()
        ))
        .expected(known.unwrap_or_default()));
    };
    let named = Map::from([(class, parameters.into())]);
    Ok(named.into())
}

fn callbacks(init: &mut Map) -> Result<()> {
    const SIZE: &str = "csx.performance.micro_batch_size";
    let found = init.get("callbacks").and_then(Value::as_list).cloned().unwrap_or_default();
    let mut callbacks = List::default();
    for callback in found.iter() {
        let Some((class, value)) = callback.as_map().and_then(|map| map.iter().next()) else {
            continue;
        };
        let class = class.as_str().unwrap_or_default();
        let mut value = value.clone();
        value = match value {
            Value::Bool(true) => Map::new().into(),
            Value::Bool(false) => Value::Null,
            other => other,
        };
        if class == "Listener" {
            let listeners =
                value.as_map().and_then(|map| map.get("listeners")).and_then(Value::as_list);
            for listener in listeners.into_iter().flat_map(|list| list.iter()) {
                let mut listener = listener.as_map().cloned().unwrap_or_default();
                let kind = listener.remove("listener_type");
                let kind = kind.as_ref().and_then(Value::as_str).ok_or_else(|| {
                    Error::refused("a listener in runconfig.experimental has no listener_type")
                })?;
                callbacks.push([(kind, listener.into())].into_iter().collect::<Map>().into());
            }
            continue;
        }
        if let Some(map) = value.as_map_mut().filter(|_| class.starts_with("Scoped")) {
            let inner = map.get(SIZE).and_then(Value::as_map);
            let only =
                inner.filter(|inner| inner.len() == 1).and_then(|inner| inner.get(SIZE)).cloned();
            if let Some(only) = only {
                map.set(SIZE, only);
            }
        }
        callbacks.push([(class, value)].into_iter().collect::<Map>().into());
    }
    if !callbacks.is_empty() {
        init.set("callbacks", callbacks);
    }
    Ok(())
}
