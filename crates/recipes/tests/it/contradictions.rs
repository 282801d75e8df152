//! Configs that contradict their tensors: every number of a config is replaced by unrealistic ones,
//! for every family and in both directions. Each is converted or refused with one sentence, in
//! bounded time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::original::Case;
use statelens_fixtures::{busy, times};
use statelens_recipes::config::Value;

/// Replacements for a number.
const ODD: [i64; 5] = [0, -1, 3, 1_000_000_000, i64::MAX];

#[test]
fn impossible_numbers_are_refused_or_harmless() {
    let mut tried: BTreeSet<(String, bool)> = BTreeSet::new();
    let mut said: BTreeMap<String, usize> = BTreeMap::new();
    let (mut done, mut refused) = (0, 0);
    for case in Case::all() {
        let formats = (case.format("src_fmt"), case.format("tgt_fmt"));
        let (Ok(from), Ok(to)) = formats else { continue };
        let is_converted =
            case.has_tensors() && case.text("status") == "ok" && case.family != "lora";
        let converts = is_converted && !case.text("command").contains("convert-config");
        let to_or_from = from.is_hf() || to.is_hf();
        if !converts || !to_or_from || !tried.insert((case.family.clone(), from.is_hf())) {
            continue;
        }
        let (source, config) = case.source(from).unwrap();
        for path in numbers(&config) {
            for odd in ODD.into_iter().step_by(times(2, 1)) {
                let mut config = config.clone();
                *at(&mut config, &path) = Value::Int(odd);
                let begun = busy();
                match case.carry(&source, &config, from, to) {
                    Ok(_) => done += 1,
                    Err(error) => {
                        refused += 1;
                        assert!((10..20_000).contains(&error.len()), "{}: {error}", case.name());
                        *said.entry(format!("{}={odd}: {error}", path.join("."))).or_default() += 1;
                    }
                }
                let took = busy() - begun;
                let name = case.name();
                assert!(took < Duration::from_secs(5), "{name}: {path:?} {odd}: {took:?}");
            }
        }
    }
    println!("{said:#?}\n{done} done, {refused} refused");
    assert!(
        tried.len() > 60 && done > 500 && refused > times(300, 500),
        "{done} done, {refused} refused"
    );
}

/// Returns the paths of all integers in a config.
fn numbers(config: &Value) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut todo = vec![(Vec::new(), config)];
    while let Some((path, value)) = todo.pop() {
        match value {
            Value::Int(_) => found.push(path),
            Value::Map(map) => todo.extend(map.iter().filter_map(|(key, value)| {
                let mut path: Vec<String> = path.clone();
                path.push(key.as_str()?.to_owned());
                Some((path, value))
            })),
            _ => {}
        }
    }
    found
}

fn at<'a>(config: &'a mut Value, path: &[String]) -> &'a mut Value {
    path.iter().fold(config, |value, key| match value {
        Value::Map(map) => map.get_mut(key).unwrap(),
        _ => panic!("the path leads through maps"),
    })
}
