//! The values of a run, saved in a file in its folder, so that they need not be read again. The
//! saved values of a checkpoint are used as long as its size and modification time are unchanged.

use std::collections::HashMap;
use std::time::Duration;

use statelens_checkpoint::{Error, Result, order};
use statelens_values::Json;

use super::values::{GroupValues, Grouping, StepValues, groups_json};

/// The name of the file in the folder of the run.
pub const KEPT: &str = "statelens-values.json";
/// Maximum size in bytes of a file that is read.
pub const MAX_KEPT: u64 = 64 << 20;

/// The saved values of checkpoints by file name, for each grouping.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct KeptValues {
    of: [HashMap<String, StepValues>; Grouping::ALL.len()],
}

#[derive(serde::Deserialize)]
struct KeptFile {
    statelens: u64,
    values: Vec<KeptGrouping>,
}

#[derive(serde::Deserialize)]
struct KeptGrouping {
    by: String,
    checkpoints: Vec<StepValues>,
}

impl KeptValues {
    /// Parses the text of the file.
    pub fn parse(text: &[u8]) -> Result<Self> {
        let other = || Error::refused("this is not a file of kept values");
        let file: KeptFile =
            serde_json::from_slice(text).map_err(|error| other().caused_by(error))?;
        if file.statelens != 1 {
            return Err(other());
        }
        let mut kept = Self::default();
        for values in file.values {
            let by = Grouping::ALL.into_iter().find(|by| by.word() == values.by);
            let Some(by) = by else { continue };
            values.checkpoints.into_iter().for_each(|step| kept.keep(by, step));
        }
        Ok(kept)
    }

    /// Returns the text of the file.
    pub fn json(&self) -> String {
        let mut json = Json::new();
        json.object(|json| {
            json.name("statelens").number(1);
            json.name("values").array(|json| {
                for (by, steps) in Grouping::ALL.into_iter().zip(&self.of) {
                    let mut steps: Vec<&StepValues> = steps.values().collect();
                    order::by(&mut steps, |a, b| (a.step, &a.name).cmp(&(b.step, &b.name)));
                    if !steps.is_empty() {
                        json.line();
                        json.object(|json| groups_json(json, by, steps));
                    }
                }
            });
        });
        json.newline();
        json.take()
    }

    /// Adds the values of a checkpoint, unless they are incomplete, or there is no modification
    /// time to detect later changes.
    pub fn keep(&mut self, by: Grouping, step: StepValues) {
        let sane = |group: &GroupValues| {
            group.nan.checked_add(group.infinite).is_some_and(|odd| odd <= group.count)
        };
        let whole = step.wrong.is_empty() && !step.groups.is_empty();
        if whole && !step.modified.is_empty() && step.groups.iter().all(sane) {
            self.of[by as usize].insert(step.name.clone(), step);
        }
    }

    /// Returns the groups of a checkpoint if it is unchanged.
    pub fn groups(&self, by: Grouping, now: &StepValues) -> Option<&[GroupValues]> {
        let kept = self.of[by as usize].get(&now.name)?;
        let fits = kept.bytes == now.bytes && same_time(&kept.modified, &now.modified);
        fits.then_some(kept.groups.as_slice())
    }

    /// Returns how many values of an unchanged checkpoint are NaN or infinite; `None` if that is not
    /// known.
    pub fn not_finite(&self, now: &StepValues) -> Option<u64> {
        let groups = Grouping::ALL.into_iter().find_map(|by| self.groups(by, now))?;
        let counts = groups.iter().map(|group| group.nan.saturating_add(group.infinite));
        let count = counts.fold(0, u64::saturating_add);
        let is_known = count > 0 || groups.iter().all(|group| group.missing == 0);
        is_known.then_some(count)
    }

    /// Returns whether a checkpoint was changed since its values were saved.
    pub fn is_changed(&self, by: Grouping, now: &StepValues) -> bool {
        self.of[by as usize].contains_key(&now.name) && self.groups(by, now).is_none()
    }
}

/// Formats a time since 1970 for the file; browsers only provide milliseconds (`is_exact` is
/// false).
pub fn time_text(since: Duration, is_exact: bool) -> String {
    match is_exact {
        true => format!("{}.{:09}", since.as_secs(), since.subsec_nanos()),
        false => format!("{}.{:03}", since.as_secs(), since.subsec_millis()),
    }
}

/// Returns whether two times are the same, at the lower of their precisions.
fn same_time(one: &str, two: &str) -> bool {
    let (short, long) = if one.len() < two.len() { (one, two) } else { (two, one) };
    short.contains('.') && long.starts_with(short)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(name: &str, modified: &str) -> StepValues {
        let group = GroupValues {
            name: "model".into(),
            tensors: 2,
            missing: 0,
            count: 10,
            nan: 1,
            infinite: 2,
            norm: Some(f64::INFINITY),
            mean: Some(-0.1 - 0.2),
            std: Some(1e-300),
        };
        StepValues {
            name: name.into(),
            step: 7,
            bytes: 100,
            modified: modified.into(),
            wrong: String::new(),
            groups: vec![group],
        }
    }

    #[test]
    fn round_trips_cached_values() {
        let mut kept = KeptValues::default();
        kept.keep(Grouping::Role, step("b.mdl", "5.000000001"));
        kept.keep(Grouping::Role, step("a.mdl", "5.000000001"));
        kept.keep(Grouping::State, step("a.mdl", "5.25"));
        // Values are not saved without a modification time or if they are incomplete.
        kept.keep(Grouping::State, step("c.mdl", ""));
        kept.keep(Grouping::State, StepValues { wrong: "cut".into(), ..step("d.mdl", "1.5") });
        kept.keep(Grouping::State, StepValues { groups: Vec::new(), ..step("e.mdl", "1.5") });
        let text = kept.json();
        assert_eq!(KeptValues::parse(text.as_bytes()).unwrap(), kept, "{text}");
        assert_eq!(kept.of.each_ref().map(HashMap::len), [1, 2, 0]);
        assert!(text.find("a.mdl").unwrap() < text.rfind("b.mdl").unwrap());
    }

    #[test]
    fn distinguishes_changed_from_new_checkpoints() {
        let mut kept = KeptValues::default();
        kept.keep(Grouping::State, step("a.mdl", "5.123456789"));
        let state = Grouping::State;
        for fits in ["5.123456789", "5.123"] {
            let now = StepValues { groups: Vec::new(), ..step("a.mdl", fits) };
            assert_eq!(kept.groups(state, &now).map(<[_]>::len), Some(1), "{fits}");
            assert!(!kept.is_changed(state, &now) && kept.groups(Grouping::Role, &now).is_none());
        }
        for other in ["5.123456780", "5.124", "5", "", "6.123456789"] {
            assert!(kept.is_changed(state, &step("a.mdl", other)), "{other}");
        }
        let longer = StepValues { bytes: 101, ..step("a.mdl", "5.123456789") };
        assert!(kept.is_changed(state, &longer));
        assert!(!kept.is_changed(state, &step("b.mdl", "5.123456789")));
        let time = Duration::new(5, 123_456_789);
        assert_eq!(
            (time_text(time, true), time_text(time, false)),
            ("5.123456789".into(), "5.123".into())
        );
    }

    #[test]
    fn counts_values_that_are_not_finite() {
        let mut kept = KeptValues::default();
        let of = |nan, infinite, missing| {
            let mut step = step("a.mdl", "5.5");
            let group = &mut step.groups[0];
            (group.nan, group.infinite, group.missing) = (nan, infinite, missing);
            step
        };
        let now = step("a.mdl", "5.5");
        assert_eq!(kept.not_finite(&now), None);
        for (found, known) in [
            (of(1, 2, 0), Some(3)),
            (of(1, 0, 1), Some(1)),
            (of(0, 0, 1), None),
            (of(0, 0, 0), Some(0)),
        ] {
            kept.keep(Grouping::Role, found);
            assert_eq!(kept.not_finite(&now), known);
        }
        assert_eq!(kept.not_finite(&step("a.mdl", "5.6")), None);
    }

    #[test]
    fn refuses_other_files_as_cache() {
        for text in [
            "",
            "{}",
            "[]",
            "{\"statelens\":2,\"values\":[]}",
            "{\"statelens\":1,\"values\":[{\"by\":1}]}",
        ] {
            let error = KeptValues::parse(text.as_bytes()).unwrap_err();
            assert_eq!(error.what(), "this is not a file of kept values", "{text}");
        }
        // More NaNs than values: the file was not written by this program.
        let mut kept = KeptValues::default();
        kept.keep(Grouping::State, step("a.mdl", "5.5"));
        let text = kept.json().replace("\"nan\":1", "\"nan\":18446744073709551615");
        assert_eq!(KeptValues::parse(text.as_bytes()).unwrap(), KeptValues::default());
    }
}
