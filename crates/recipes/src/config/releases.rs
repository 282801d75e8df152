//! Changes between releases in the sections of Cerebras's configs other than the model's.

mod trainer;

use std::collections::HashMap;
use std::sync::LazyLock;

use statelens_checkpoint::{Error, Result};

use super::plan::ConversionStep;
use super::section::{model_section, set_model_section};
use super::yaml;
use crate::value::{List, Map, Value};

/// Returns the lists and tables of the changes.
pub(super) fn changes() -> Result<&'static Map> {
    static CHANGES: LazyLock<Result<Map>> = LazyLock::new(|| {
        let value = yaml::parse(include_str!("../../releases/changes.yaml"))?;
        value.as_map().cloned().ok_or_else(|| Error::damaged("changes.yaml is not a section"))
    });
    CHANGES.as_ref().map_err(Clone::clone)
}

/// Builds the whole target config from the sections of the source and the new model section.
pub(super) fn finish(
    mut root: Map,
    model: Map,
    step: &ConversionStep,
    label: &str,
    notes: &mut Vec<String>,
) -> Result<Map> {
    separate(&mut root);
    set_model_section(&mut root, model);
    root.remove("cerebras");
    let (source, target) = (step.source.version(), step.target.version());
    if matches!(source, Some((1, 9) | (2, 0))) {
        if let Some(runconfig) = section(&mut root, "runconfig") {
            after_2_0(runconfig, notes)?;
        }
        root.remove("csconfig");
    }
    if source == Some((2, 1)) {
        gradient_accumulation(&mut root)?;
        sparsity(&mut root)?;
    }
    if (source, target) == (Some((2, 0)), Some((2, 1))) {
        if let Some(optimizer) = section(&mut root, "optimizer") {
            rename_optimizer(optimizer)?;
            rename_schedulers(optimizer)?;
        }
        precision(&mut root);
    }
    if (source, target) == (Some((2, 2)), Some((2, 3))) {
        root = trainer::from_legacy(root, notes)?;
    }
    if (source, target) == (Some((2, 3)), Some((2, 4))) {
        let mut model = model_section(&root)?;
        model.set_default("name", label);
        set_model_section(&mut root, model);
    }
    Ok(root)
}

fn section<'a>(root: &'a mut Map, key: &str) -> Option<&'a mut Map> {
    root.get_mut(key).and_then(Value::as_map_mut)
}

/// Copies objects that several sections share.
fn separate(root: &mut Map) {
    let mut marks: HashMap<(usize, u32), u32> = HashMap::new();
    for (index, (_, value)) in root.iter_mut().enumerate() {
        value.remark(&mut |mark| {
            let next = u32::try_from(marks.len()).ok()?;
            Some(*marks.entry((index, mark)).or_insert(next))
        });
    }
}

fn after_2_0(runconfig: &mut Map, notes: &mut Vec<String>) -> Result<()> {
    for key in list("removed")? {
        if runconfig.remove(key).is_some() && key.ends_with("_servers") {
            notes.push(format!(
                "runconfig.{key} was removed: since 2.0 the best value is found automatically"
            ));
        }
    }
    if runconfig.remove("is_pretrained_checkpoint").is_some_and(|flag| flag.is_true()) {
        let states: List = ["model", "dataloader"].into_iter().collect();
        runconfig.set("load_checkpoint_states", states);
    }
    let most = runconfig.remove("keep_checkpoint_max").filter(|most| !most.is_null());
    if let Some(most) = most {
        runconfig.set_default("max_checkpoints", most);
    }
    Ok(())
}

fn list(key: &str) -> Result<Vec<&'static str>> {
    let found = changes()?.get(key).and_then(Value::as_list);
    let found =
        found.ok_or_else(|| Error::damaged(format!("changes.yaml has no list \"{key}\"")))?;
    Ok(found.iter().filter_map(Value::as_str).collect())
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_list().map(|list| list.iter().filter_map(Value::as_str).collect()).unwrap_or_default()
}

fn table(key: &str) -> Result<&'static Map> {
    let found = changes()?.get(key).and_then(Value::as_map);
    found.ok_or_else(|| Error::damaged(format!("changes.yaml has no section \"{key}\"")))
}

fn gradient_accumulation(root: &mut Map) -> Result<()> {
    let Some(runconfig) = section(root, "runconfig") else { return Ok(()) };
    runconfig.remove("autogen_policy");
    let Some(flag) = runconfig.remove("use_cs_grad_accum") else { return Ok(()) };
    let Value::Bool(on) = flag else {
        return Err(Error::refused(format!("runconfig.use_cs_grad_accum is {}", flag.quoted()))
            .expected("true or false"));
    };
    for key in ["train_input", "eval_input"] {
        root.set_default(key, Map::new());
        let Some(input) = section(root, key) else { continue };
        if on {
            input.set_default("micro_batch_size", "auto");
        } else {
            input.set("micro_batch_size", Value::Null);
        }
    }
    Ok(())
}

fn is_number(value: &Value) -> bool {
    value.as_f64().is_some()
}

fn sparsity(root: &mut Map) -> Result<()> {
    let Some(sparsity) = section(root, "sparsity") else { return Ok(()) };
    if let Some(kind) = sparsity.remove("type") {
        sparsity.set("algorithm", kind);
    }
    if sparsity.get("algorithm").and_then(Value::as_str) == Some("static") {
        sparsity.remove("algorithm");
        if let (1, Some(level)) = (sparsity.len(), sparsity.get("sparsity").cloned()) {
            root.set("sparsity", level);
            return Ok(());
        }
    }
    if let Some(schedule) = sparsity.remove("schedule") {
        sparsity.set("update", schedule);
    }
    if let Some(schedule) = sparsity.remove("sparsity_schedule") {
        let pairs = schedule.as_list().map(|pairs| {
            pairs.iter().map(|pair| match pair.as_list().map(|pair| pair.as_slice()) {
                Some([step, level]) => Some((step.clone(), level.clone())),
                _ => None,
            })
        });
        let pairs: Option<Vec<_>> = pairs.and_then(Iterator::collect);
        let pairs = pairs.ok_or_else(|| {
            Error::refused("sparsity.sparsity_schedule is not a list of pairs")
                .expected("[[step, sparsity], …]")
        })?;
        let (steps, levels): (Vec<Value>, Vec<Value>) = pairs.into_iter().unzip();
        sparsity.set("schedule", levels.into_iter().collect::<List>());
        let update = Map::from([("steps", steps.into_iter().collect::<List>().into())]);
        sparsity.set("update", update);
    }
    if sparsity.get("sparsity").is_some_and(|level| !is_number(level)) {
        let schedule = sparsity.remove("sparsity").unwrap_or(Value::Null);
        sparsity.set("schedule", schedule);
    }
    if let Some(frequency) = sparsity.get("update").and_then(Value::as_int) {
        if frequency == 1 {
            sparsity.remove("update");
        } else {
            let frequency = sparsity.remove("update").unwrap_or(Value::Null);
            let update = Map::from([("freq", frequency)]);
            sparsity.set("update", update);
        }
    }
    let glob = |pattern: &str| pattern.replace(".*", "*");
    match sparsity.remove("param_name_patterns") {
        None => {}
        Some(Value::Text(pattern)) => sparsity.set("param_filter", glob(&pattern)),
        Some(Value::List(patterns)) => {
            let filters: List = patterns.iter().filter_map(Value::as_str).map(glob).collect();
            sparsity.set("param_filter", filters);
        }
        Some(Value::Map(groups)) => {
            let common = sparsity.clone();
            Value::Map(common.clone()).can_repeat(groups.len())?;
            let groups: List = groups
                .iter()
                .map(|(pattern, own)| {
                    let mut group = Map::new();
                    group.set("param_filter", glob(pattern.as_str().unwrap_or_default()));
                    let own = own.as_map().into_iter().flat_map(Map::iter);
                    for (key, value) in common.iter().chain(own) {
                        group.set(key.clone(), value.clone());
                    }
                    group
                })
                .collect();
            root.set("sparsity", groups);
        }
        Some(other) => {
            return Err(Error::refused(format!(
                "sparsity.param_name_patterns is {}",
                other.quoted()
            ))
            .expected("a pattern, a list of patterns, or a section of them"));
        }
    }
    Ok(())
}

fn rename_optimizer(optimizer: &mut Map) -> Result<()> {
    let kind =
        optimizer.get("optimizer_type").and_then(Value::as_str).unwrap_or_default().to_lowercase();
    let Some(parameters) = table("optimizers")?.get(&kind) else { return Ok(()) };
    let aliases = table("optimizer aliases")?;
    for name in texts(parameters) {
        let Some(aliases) = aliases.get(name).map(texts) else { continue };
        if optimizer.contains(name) || !aliases.iter().all(|alias| optimizer.contains(alias)) {
            continue;
        }
        let values: Vec<Value> =
            aliases.iter().filter_map(|alias| optimizer.remove(alias)).collect();
        // Two older names become a pair.
        let value = match <[Value; 1]>::try_from(values) {
            Ok([one]) => one,
            Err(several) => several.into_iter().collect::<List>().into(),
        };
        optimizer.set(name, value);
    }
    Ok(())
}

fn rename_schedulers(optimizer: &mut Map) -> Result<()> {
    let schedulers: &mut [Value] = match optimizer.get_mut("learning_rate") {
        Some(Value::List(list)) => list.as_mut_slice(),
        Some(one @ Value::Map(_)) => std::slice::from_mut(one),
        _ => return Ok(()),
    };
    let aliases = table("scheduler aliases")?;
    for scheduler in schedulers {
        let Some(scheduler) = scheduler.as_map_mut() else { continue };
        let Some(name) = scheduler.get("scheduler").and_then(Value::as_str) else {
            return Err(Error::refused("a learning rate's section has no scheduler"));
        };
        let Some((_, parameters)) = trainer::scheduler(name)? else { continue };
        for parameter in texts(parameters) {
            let Some(aliases) = aliases.get(parameter).map(texts) else { continue };
            if scheduler.contains(parameter) {
                continue;
            }
            if let Some(alias) = aliases.into_iter().find(|alias| scheduler.contains(alias)) {
                let value = scheduler.remove(alias).unwrap_or(Value::Null);
                scheduler.set(parameter, value);
            }
        }
    }
    Ok(())
}

fn precision(root: &mut Map) {
    let Some(model) = section(root, "model") else { return };
    if let Some(flag) = model.remove("use_bfloat16") {
        model.set("fp16_type", if flag.is_true() { "bfloat16" } else { "float16" });
    }
    let Some(level) = model.get("precision_opt_level").cloned() else { return };
    if let Some(runconfig) = section(root, "runconfig") {
        runconfig.set_default("precision_opt_level", level);
        if let Some(model) = section(root, "model") {
            model.remove("precision_opt_level");
        }
    }
}
