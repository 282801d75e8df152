//! The two sides of a comparison: edits of their keys, and the keys that were renamed between them.

use serde::Serialize;
use statelens_checkpoint::{Error, Progress, Result, Setting, advice};
use statelens_compare::diff::{
    Comparison, ComparisonReport, DiffOptions, PairChange, Renamed, Role, Unpaired, roles,
};
use statelens_convert::{Edit, Pattern};
use statelens_quantised::{
    QuantisedWeight, compared_by_numbers, with_indices, with_original_names,
};
use statelens_values::json::Float;
use statelens_values::{fields, report_json};

use crate::{Checkpoint, parallel};

/// Returns both sides of a comparison in one form, the quantised weights that were found, and whether
/// only one side is quantised. If so, or if [`compared_by_numbers`], weights are tensors of numbers on
/// both. If one has llama.cpp's names, it gets those of Hugging Face.
pub fn alike(
    left: Checkpoint,
    right: Checkpoint,
) -> Result<(Checkpoint, Checkpoint, Vec<QuantisedWeight>, bool)> {
    let (one, other) = (left.inner(), right.inner());
    let renamed = [with_original_names(one, other)?, with_original_names(other, one)?];
    let (left, right) = match renamed {
        [Some(renamed), None] => (left.edited(renamed), right),
        [None, Some(renamed)] => (left, right.edited(renamed)),
        _ => (left, right),
    };
    let (left, right, mut found) = match [with_indices(left.inner())?, with_indices(right.inner())?]
    {
        // Experts that are packed differently are equal if their indices are.
        [Some(one), Some(other)] => {
            (left.edited(one.checkpoint), right.edited(other.checkpoint), one.weights)
        }
        _ => (left, right, Vec::new()),
    };
    Ok(match (left.dequantised(None)?, right.dequantised(None)?) {
        (Some((dense, weights)), None) => {
            found.extend(weights);
            (dense, right, found, true)
        }
        (None, Some((dense, weights))) => {
            found.extend(weights);
            (left, dense, found, true)
        }
        (Some((one, of_one)), Some((other, of_other)))
            if compared_by_numbers(&of_one, &of_other) =>
        {
            found.extend(of_one.into_iter().chain(of_other));
            (one, other, found, false)
        }
        _ => (left, right, found, false),
    })
}

/// Edits of the sides before they are compared.
#[derive(Debug, Clone, Default)]
pub struct SideEdits {
    /// The keys that are compared, on both sides, as they are in the files: `select` and `exclude`.
    pub filter: Edit,
    /// New names for the keys of the left side, which are given after the filter.
    pub rename: Edit,
}

/// The sides after the edits.
pub struct EditedSides {
    /// The left side.
    pub left: Checkpoint,
    /// The right side.
    pub right: Checkpoint,
    /// The patterns of `exclude` that match no key of either side.
    pub unused: Vec<String>,
}

impl SideEdits {
    /// Edits both sides. A pattern need not match on both sides: a key that one side lacks is a
    /// difference. If keys are renamed, the sides use different names, so a side in which nothing is
    /// selected is taken whole.
    pub fn apply(self, left: Checkpoint, right: Checkpoint) -> Result<EditedSides> {
        let Self { filter, rename } = self;
        let (of_left, of_right, unused) = sides(&filter, &rename, &left, &right)?;
        let left =
            edited(left, &Edit { select: of_left.select, exclude: of_left.exclude, ..rename });
        Ok(EditedSides { left: left?, right: edited(right, &of_right)?, unused })
    }
}

fn sides(
    filter: &Edit,
    rename: &Edit,
    left: &Checkpoint,
    right: &Checkpoint,
) -> Result<(Edit, Edit, Vec<String>)> {
    if filter.is_empty() {
        return Ok((filter.clone(), filter.clone(), Vec::new()));
    }
    let (left, right): (Vec<_>, Vec<_>) = (left.keys().collect(), right.keys().collect());
    let on = |pattern: &Pattern, keys: &[String]| keys.iter().any(|key| pattern.selects(key));
    let nowhere = |pattern: &Pattern| !on(pattern, &left) && !on(pattern, &right);
    let none = |what: String| {
        Error::refused(what).advice(advice!["List the keys with ", Setting::ListKeys, "."])
    };
    if let Some(pattern) = filter.select.iter().find(|pattern| nowhere(pattern)) {
        return Err(none(format!("no key matches {}", pattern.as_str())));
    }
    let unused = filter.exclude.iter().filter(|pattern| nowhere(pattern));
    let unused = unused.map(|pattern| pattern.as_str().to_owned()).collect();
    let of = |keys: &[String], side: &str| {
        let select = filter.select.iter().filter(|pattern| on(pattern, keys));
        let select: Vec<Pattern> = select.cloned().collect();
        if select.is_empty() && !filter.select.is_empty() && rename.is_empty() {
            let names: Vec<&str> = filter.select.iter().map(Pattern::as_str).collect();
            return Err(none(format!("no key of {side} matches {}", names.join(", "))));
        }
        Ok(Edit { select, exclude: filter.exclude.clone(), ..Edit::default() })
    };
    Ok((of(&left, "LEFT")?, of(&right, "RIGHT")?, unused))
}

fn edited(checkpoint: Checkpoint, edit: &Edit) -> Result<Checkpoint> {
    match edit.is_empty() {
        true => Ok(checkpoint),
        false => Ok(checkpoint.edited(edit.apply(checkpoint.inner())?)),
    }
}

/// Groups the changes of tensors by role, the keys that differ only in the number of their layer;
/// each change has the number.
pub fn by_role(changes: &[PairChange]) -> Vec<(Role, Vec<(u64, &PairChange)>)> {
    let all = roles(changes.iter().map(|of| of.key.to_lossy().into_owned()));
    let with_layers = |role: Role| {
        let layers = role.members.iter().filter_map(|(at, of)| Some((*at, changes.get(*of)?)));
        let layers = layers.collect();
        (role, layers)
    };
    all.into_iter().map(with_layers).collect()
}

/// Returns a comparison as JSON; `by_layer` adds the field `roles`: norms, deviations and relative
/// changes, layer by layer.
pub fn comparison_json(report: &ComparisonReport, by_layer: bool) -> String {
    let layer = |(layer, of): (u64, &PairChange)| {
        fields! {
            layer: layer,
            key: of.key.clone(),
            left_norm: Float::from(of.norms.0),
            right_norm: Float::from(of.norms.1),
            left_std: Float::from(of.deviations.0),
            right_std: Float::from(of.deviations.1),
            change: Float(of.change),
        }
    };
    let role = |(role, layers): (Role, Vec<(u64, &PairChange)>)| {
        let layers: Vec<_> = layers.into_iter().map(layer).collect();
        fields! { role: role.name, layers: layers }
    };
    let roles = by_layer.then(|| {
        let roles: Vec<_> = by_role(&report.changes).into_iter().map(role).collect();
        fields! { roles: roles }
    });
    report_json(&fields! {
        #[serde(flatten)]
        report: report.with_verdict(),
        #[serde(flatten)]
        roles: roles,
    })
}

/// Tensors that have another key on the other side.
#[derive(Debug, Clone, Serialize)]
pub struct RenameReport {
    /// Old and new keys, and how each pair was found.
    pub renames: Vec<Renamed>,
    /// The number of tensors of the left side that nothing on the right fits.
    pub left_alone: u64,
    /// The number of tensors of the right side that nothing on the left fits.
    pub right_alone: u64,
}

impl RenameReport {
    /// Finds tensors that have another key on the other side, by equal bytes, then by shape and
    /// order. `progress` counts the bytes of a side.
    pub fn find(
        left: &Checkpoint,
        right: &Checkpoint,
        options: DiffOptions,
        progress: &mut dyn Progress,
    ) -> Result<Self> {
        let _calls = (left.call(), right.call());
        let comparison = Comparison::new(left.inner().clone(), right.inner().clone(), options);
        let mut unpaired = Unpaired::of(left.inner(), right.inner(), comparison.matches());
        drop(comparison);
        for (side, mut survey) in unpaired.surveys().into_iter().enumerate() {
            let of = if side == 0 { left } else { right };
            parallel::drive(&mut survey, of.workers(), progress)?;
            unpaired.learn(side == 1, survey.take());
        }
        left.unchanged()?;
        right.unchanged()?;
        let renames = unpaired.pairs();
        let [left_alone, right_alone] = unpaired.alone(&renames);
        Ok(Self { renames, left_alone, right_alone })
    }

    /// Returns the report as JSON.
    pub fn json(&self) -> String {
        report_json(self)
    }
}
