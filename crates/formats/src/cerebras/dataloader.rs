//! Dataloader state of a run. Release 1.9 kept it in separate files next to the checkpoint; later
//! releases store it in the checkpoint as the state `dataloader`.
//!
//! `data_iter_checkpoint_state_file_global` has the step on its first line.
//! `data_iter_state_file_worker_{worker}_step_{step}.txt` has the number of samples that this
//! worker had streamed by that step.

use std::collections::BTreeMap;

use statelens_checkpoint::{Checkpoint, Dict, DictKey, Error, Int, List, Result, Value, ValueId};

/// The name of the file with the step of the state.
pub const GLOBAL: &str = "data_iter_checkpoint_state_file_global";

/// The maximum number of bytes read from a state file. Only the first line matters.
pub const MAX_STATE_BYTES: u64 = 4 << 10;

const WORKER: &str = "data_iter_state_file_worker_";

/// Returns whether a file in the folder is a state file.
pub fn is_state_file(name: &str) -> bool {
    name == GLOBAL || name.starts_with(WORKER) && name.ends_with(".txt")
}

/// The kind of dataloader that the state is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loader {
    /// Map-style: picks samples by index. The state has the total number of samples and the seed of
    /// their order.
    Map { seed: i64 },
    /// Iterable: streams shards. The state has the number of samples for each worker.
    Iterable,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataState {
    /// The step of the matching checkpoint.
    pub step: u64,
    /// Worker numbers in order, with the number of samples that each had streamed.
    pub workers: Vec<(u64, u64)>,
}

impl DataState {
    /// Reads the state files of a folder, given as names and contents.
    pub fn read(files: &[(String, Vec<u8>)]) -> Result<Self> {
        let global = files.iter().find(|(name, _)| name == GLOBAL).ok_or_else(|| {
            Error::refused(format!("the file {GLOBAL} is not in the folder"))
                .advice("Name the folder that `cerebras.save_iter_state_path` named.")
        })?;
        let step = first_number(&global.0, &global.1)?;
        let mut workers = BTreeMap::new();
        // A worker that only has files for other steps would silently start from the beginning.
        let mut others: BTreeMap<u64, &str> = BTreeMap::new();
        for (name, bytes) in files.iter().filter(|(name, _)| *name != GLOBAL) {
            let Some((worker, of_step)) = worker_and_step(name)? else { continue };
            if of_step != step {
                others.entry(worker).or_insert(name);
                continue;
            }
            if workers.insert(worker, first_number(name, bytes)?).is_some() {
                let error = Error::damaged(format!("a second file of worker {worker}"));
                return Err(error.in_file(name.as_str()));
            }
        }
        if let Some((worker, name)) =
            others.iter().find(|(worker, _)| !workers.contains_key(worker))
        {
            return Err(Error::refused(format!(
                "worker {worker} has no state of step {step}, which {GLOBAL} names"
            ))
            .in_file(*name)
            .expected(format!("{WORKER}{worker}_step_{step}.txt")));
        }
        if workers.is_empty() {
            return Err(Error::refused(format!("no worker has a state of step {step}"))
                .expected(format!("files like {WORKER}0_step_{step}.txt")));
        }
        Ok(Self { step, workers: workers.into_iter().collect() })
    }

    /// Returns the number of samples that all workers had streamed.
    pub fn samples(&self) -> u64 {
        self.workers.iter().fold(0, |sum, (_, samples)| sum.saturating_add(*samples))
    }

    /// Returns the checkpoint with this state as `dataloader`, and whether that replaced an
    /// existing one.
    pub fn put_into(&self, checkpoint: &Checkpoint, loader: &Loader) -> Result<(Checkpoint, bool)> {
        let mut builder = checkpoint.edit();
        let mut dict = |entries: Vec<(&str, Value)>| -> Result<ValueId> {
            let mut made = Vec::new();
            for (key, value) in entries {
                made.push((DictKey::from(key), builder.push(value)?));
            }
            builder.push(Value::Dict(Dict { entries: made, ..Dict::default() }))
        };
        let state = match loader {
            Loader::Map { seed } => {
                let mut samples = self.workers.iter().map(|(_, samples)| *samples);
                let total = samples.try_fold(0u64, u64::checked_add);
                let total =
                    total.ok_or_else(|| Error::damaged("more samples than can be counted"))?;
                dict(vec![
                    ("samples_streamed", Value::Int(Int::from(total))),
                    ("seed", Value::Int(Int::from(*seed))),
                ])?
            }
            Loader::Iterable => {
                let mut items = Vec::new();
                for (worker, samples) in &self.workers {
                    items.push(dict(vec![
                        ("samples_streamed", Value::Int(Int::from(*samples))),
                        ("shard_index", Value::Int(Int::from(*worker))),
                    ])?);
                }
                let list = Value::List(List { items, ..List::default() });
                dict(vec![("all_worker_states", list)])?
            }
        };
        let Some(Value::Dict(root)) = builder.value_mut(checkpoint.root()) else {
            return Err(Error::refused("the checkpoint is not a dict, so no state can be added"));
        };
        let is_it = |key: &DictKey| matches!(key, DictKey::Str(key) if *key == *"dataloader");
        let replaced = match root.entries.iter_mut().find(|(key, _)| is_it(key)) {
            Some((_, place)) => {
                *place = state;
                true
            }
            None => {
                root.entries.push((DictKey::from("dataloader"), state));
                false
            }
        };
        Ok((builder.rebuild(checkpoint)?, replaced))
    }
}

/// Returns worker and step from the name of a worker's file, or `None` for other files.
fn worker_and_step(name: &str) -> Result<Option<(u64, u64)>> {
    let middle = name.strip_prefix(WORKER).and_then(|rest| rest.strip_suffix(".txt"));
    let Some(middle) = middle else { return Ok(None) };
    let numbers = middle.split_once("_step_").map(|(worker, step)| (worker.parse(), step.parse()));
    match numbers {
        Some((Ok(worker), Ok(step))) => Ok(Some((worker, step))),
        _ => Err(Error::damaged("the file name does not contain the numbers of worker and step")
            .in_file(name)
            .expected(format!("{WORKER}0_step_100.txt"))),
    }
}

fn first_number(name: &str, bytes: &[u8]) -> Result<u64> {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let number = std::str::from_utf8(line).ok().and_then(|line| line.trim().parse().ok());
    number.ok_or_else(|| {
        Error::damaged("its first line is not a whole number")
            .in_file(name)
            .expected("the number alone on the first line")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(list: &[(&str, &str)]) -> Vec<(String, Vec<u8>)> {
        list.iter().map(|(name, text)| ((*name).into(), text.as_bytes().to_vec())).collect()
    }

    const TWO: [(&str, &str); 4] = [
        (GLOBAL, "100\n"),
        ("data_iter_state_file_worker_1_step_100.txt", "7\nrest"),
        ("data_iter_state_file_worker_0_step_100.txt", " 5 "),
        ("data_iter_state_file_worker_0_step_50.txt", "not read"),
    ];

    #[test]
    fn reads_worker_states_in_order() {
        let state = DataState::read(&files(&TWO)).unwrap();
        assert_eq!(state, DataState { step: 100, workers: vec![(0, 5), (1, 7)] });
    }

    #[test]
    fn errors_name_the_file() {
        let with = |name: &'static str, text: &'static str| {
            let mut list: Vec<(&str, &str)> =
                TWO.into_iter().filter(|(known, _)| *known != name).collect();
            list.push((name, text));
            DataState::read(&files(&list)).unwrap_err().to_string()
        };
        let error = with(GLOBAL, "ten");
        assert!(error.contains(GLOBAL) && error.contains("whole number"), "{error}");
        let error = with("data_iter_state_file_worker_1_step_100.txt", "");
        assert!(error.contains("worker_1_step_100"), "{error}");
        let error = with("data_iter_state_file_worker_2_step_50.txt", "3");
        assert!(error.contains("worker 2 has no state of step 100"), "{error}");
        let error = with("data_iter_state_file_worker_x_step_100.txt", "3");
        assert!(error.contains("worker_x"), "{error}");
        let error = DataState::read(&files(&TWO[1..])).unwrap_err().to_string();
        assert!(error.contains(GLOBAL), "{error}");
        let error = DataState::read(&files(&[(GLOBAL, "3")])).unwrap_err().to_string();
        assert!(error.contains("no worker"), "{error}");
    }
}
