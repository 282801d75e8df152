//! The second read of statistics: hashes tensors that may be equal to another, and reads by rows
//! those that may have dead rows. Collects the findings.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;
use statelens_checkpoint::{
    Checkpoint, Finding, Leaf, Result, TensorId, grouped, listed, shape_text, visible,
};
use statelens_describe::Parameters;
use statelens_values::json::Float;
use statelens_values::weights::{
    Noticed, Seen, Survey, TensorOutcome, findings, to_hash, to_read_by_rows,
};
use statelens_values::{Json, MatrixLine, MatrixLines, Statistics, fields, number_text};

use super::{Drive, MeasuredTensors};

/// Keys that a finding names in a line.
const NAMED: usize = 3;

/// The results of the first and the second read.
pub struct SecondPass<'a> {
    statistics: HashMap<TensorId, &'a Statistics>,
    hashes: HashMap<TensorId, u128>,
    lines: HashMap<TensorId, MatrixLines>,
    parameters: Parameters,
}

impl<'a> SecondPass<'a> {
    /// Reads tensors a second time where needed; with `all_rows`, reads every matrix by rows.
    pub fn read(
        checkpoint: &Arc<Checkpoint>,
        leaves: &[Leaf],
        measured: &'a MeasuredTensors<'_>,
        all_rows: bool,
        drive: &mut Drive<'_>,
    ) -> Result<Self> {
        let (statistics, hashes) = (measured.statistics(), measured.hashes.clone());
        let lines = HashMap::new();
        let parameters = Parameters::of(checkpoint, leaves);
        let mut known = Self { statistics, hashes, lines, parameters };
        let hash = to_hash(checkpoint, leaves, &known);
        let by_rows: Vec<TensorId> = match all_rows {
            true => {
                leaves.iter().filter_map(|it| Some(checkpoint.tensor_of(it.target)?.0)).collect()
            }
            false => to_read_by_rows(checkpoint, leaves, &known),
        };
        // Tensors that can't be read were reported by the first read.
        for survey in [
            Survey::hashing(checkpoint.clone(), hash),
            match all_rows {
                true => Survey::by_rows_and_columns(checkpoint.clone(), by_rows),
                false => Survey::by_rows(checkpoint.clone(), by_rows),
            },
        ] {
            drive(survey, &mut |id, found| {
                match found {
                    TensorOutcome::Hash(hash) => drop(known.hashes.insert(id, hash)),
                    TensorOutcome::Lines(lines) => drop(known.lines.insert(id, *lines)),
                    _ => {}
                }
                Ok(())
            })?;
        }
        Ok(known)
    }

    /// Returns the findings.
    pub fn findings(&self, checkpoint: &Checkpoint, leaves: &[Leaf]) -> Vec<Noticed> {
        findings(checkpoint, leaves, self)
    }

    /// Returns the numbers of dead and copied rows of a tensor; with `each`, the figures of each row.
    pub(super) fn fields(&self, id: TensorId, shape: &[u64], each: bool) -> impl Serialize {
        let lines = self.lines.get(&id);
        let width = shape.iter().skip(1).fold(1, |all: u64, dim| all.saturating_mul(*dim));
        // If there are fewer zeros than values in a row, no row is zero.
        let none = self.statistics.get(&id).is_some_and(|of| shape.len() > 1 && of.zeros < width);
        let figures = |lines: &[MatrixLine]| {
            fields! {
                abs_max: lines.iter().map(|line| Float::from(line.abs_max)).collect::<Vec<_>>(),
                norm: lines.iter().map(|line| Float::from(line.norm)).collect::<Vec<_>>(),
                not_finite: lines.iter().map(|line| line.not_finite).collect::<Vec<_>>(),
            }
        };
        let each = lines.filter(|_| each).map(|lines| {
            fields! { rows: figures(&lines.rows), columns: figures(&lines.columns) }
        });
        fields! {
            zero_rows: lines.map(|lines| lines.zero_rows).or(none.then_some(0)),
            copied_rows: lines.map(|lines| lines.copied_rows),
            #[serde(flatten)]
            each: each,
        }
    }

    /// Describes the rows and columns of a tensor in one line.
    pub fn line(&self, id: TensorId) -> Option<String> {
        let lines = self.lines.get(&id)?;
        let mut parts = Vec::new();
        for (one, many, all) in
            [("row", "rows", &lines.rows), ("column", "columns", &lines.columns)]
        {
            let most = |of: fn(&MatrixLine) -> f64| {
                all.iter().enumerate().max_by(|one, other| of(one.1).total_cmp(&of(other.1)))
            };
            let least = all.iter().map(|line| line.norm).fold(f64::INFINITY, f64::min);
            if let (Some((at, longest)), Some((largest_at, largest))) =
                (most(|line| line.norm), most(|line| line.abs_max))
            {
                parts.push(format!(
                    "{} {}, norms {} to {} ({one} {at}), |x| max {} ({one} {largest_at})",
                    grouped(all.len() as u64),
                    if all.len() == 1 { one } else { many },
                    number_text(least),
                    number_text(longest.norm),
                    number_text(largest.abs_max),
                ));
            }
        }
        for (count, what) in [(lines.zero_rows, "all zeros"), (lines.copied_rows, "copies")] {
            if count > 0 {
                parts.push(format!("{} {what}", grouped(count)));
            }
        }
        Some(parts.join("; "))
    }
}

impl Seen for SecondPass<'_> {
    fn statistics(&self, tensor: TensorId) -> Option<&Statistics> {
        self.statistics.get(&tensor).copied()
    }

    fn hash(&self, tensor: TensorId) -> Option<u128> {
        self.hashes.get(&tensor).copied()
    }

    fn lines(&self, tensor: TensorId) -> Option<&MatrixLines> {
        self.lines.get(&tensor)
    }

    fn parameter(&self, key: &str) -> Option<&str> {
        self.parameters.of_key(key).map(|parameter| parameter.key.as_str())
    }
}

/// Writes findings as an array of objects, with the keys of each and the index of the value to look
/// at.
pub(super) fn write(found: &[Noticed], leaves: &[Leaf], json: &mut Json) {
    json.name("findings").array(|json| {
        for noticed in found {
            json.line();
            json.value(&finding(noticed, leaves));
        }
    });
}

/// Returns an observation as a finding that names its keys.
pub fn finding(noticed: &Noticed, leaves: &[Leaf]) -> Finding {
    let key = |leaf: &usize| leaves.get(*leaf).map(|leaf| leaf.flat.to_lossy().into_owned());
    let place = match &noticed.element {
        Some(element) => {
            let key = key(&element.tensor).unwrap_or_default();
            format!("{}{}", visible(&key), shape_text(&element.index))
        }
        None => {
            let keys: Vec<String> = noticed.tensors.iter().filter_map(key).collect();
            listed(&keys, NAMED)
        }
    };
    Finding::new(noticed.grade, noticed.title.clone())
        .detail(noticed.text.clone())
        .place(place)
        .advice(noticed.advice.clone())
}
