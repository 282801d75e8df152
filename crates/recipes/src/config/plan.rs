//! Finds the converters from one format to another.

use statelens_checkpoint::{Error, Result};

use super::family::{Families, ModelConverters};
use crate::format::{Implementation, Release, Variant};
use crate::side::Side;

/// One conversion between two formats, by one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversionStep {
    pub source: Implementation,
    pub target: Implementation,
    /// The side of the table that is the source.
    pub from: Side,
    /// The name of the table, as `FAMILY/TABLE`; `same` copies everything.
    pub table: String,
    /// Whether the model has no converter here, because nothing changed between the two releases.
    pub unchanged: bool,
}

/// The formats of both sides of a converter, for a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormatPair {
    pub left: Vec<Implementation>,
    pub right: Vec<Implementation>,
}

/// Releases between which models without a converter of their own did not change.
const UNCHANGED: [[(u8, u8); 2]; 12] = [
    [(1, 8), (1, 9)],
    [(1, 9), (2, 0)],
    [(2, 0), (2, 1)],
    [(2, 1), (2, 2)],
    [(2, 2), (2, 3)],
    [(2, 3), (2, 4)],
    [(2, 4), (2, 5)],
    [(2, 5), (2, 6)],
    [(2, 6), (2, 7)],
    [(2, 7), (2, 8)],
    [(2, 8), (2, 9)],
    [(2, 9), (2, 10)],
];

/// A name for rules that hold for all models.
pub(super) const ALL: &str = "all";

impl Families {
    /// Returns the steps from a format to another: one if there is a converter for both, otherwise
    /// one release after the other.
    pub fn plan(
        &self,
        model: &str,
        source: Implementation,
        target: Implementation,
    ) -> Result<Vec<ConversionStep>> {
        let known = if model == ALL { None } else { Some(self.model(model)?) };
        if source == target {
            return Err(Error::refused(format!("source and target are both {source}"))
                .advice("Name two different formats."));
        }
        if let Some(step) = direct(known, source, target) {
            return Ok(vec![step]);
        }
        chain(known, source, target).ok_or_else(|| {
            let pairs = known.map(|model| described(&pairs_of(model))).unwrap_or_default();
            let error =
                Error::refused(format!("{model} can't be converted from {source} to {target}"));
            if pairs.is_empty() {
                error.expected("neighbouring releases")
            } else {
                error.expected(pairs)
            }
        })
    }

    /// Returns the formats between which a model is converted in one step.
    pub fn pairs(&self, model: &str) -> Result<Vec<FormatPair>> {
        self.model(model).map(pairs_of)
    }
}

fn pairs_of(model: &ModelConverters) -> Vec<FormatPair> {
    let mut pairs: Vec<FormatPair> = model
        .converters
        .iter()
        .map(|one| FormatPair { left: one.left.clone(), right: with_newest(&one.right) })
        .collect();
    for [left, right] in UNCHANGED {
        let (left, right) =
            (Implementation::cerebras(left.0, left.1), Implementation::cerebras(right.0, right.1));
        let covered =
            pairs.iter().any(|pair| pair.left.contains(&left) && pair.right.contains(&right));
        if model.oldest() <= left.version() && !covered {
            pairs.push(FormatPair { left: vec![left], right: vec![right] });
        }
    }
    pairs
}

/// Adds 2.10 to formats that include 2.9: nothing changed between the two.
fn with_newest(formats: &[Implementation]) -> Vec<Implementation> {
    let mut formats = formats.to_vec();
    let newest = formats
        .iter()
        .filter_map(|format| format.release())
        .find(|release| (release.major, release.minor) == (2, 9));
    formats
        .extend(newest.map(|release| Implementation::Cerebras(Release { minor: 10, ..release })));
    formats
}

/// Describes pairs, as in `hf <-> cs-2.1 … cs-2.10; cs-2.0 <-> cs-2.1`.
fn described(pairs: &[FormatPair]) -> String {
    let formats = |formats: &[Implementation]| match formats {
        [first, .., last] if formats.len() > 2 => format!("{first} to {last}"),
        _ => formats.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    };
    let pairs =
        pairs.iter().map(|pair| format!("{} <-> {}", formats(&pair.left), formats(&pair.right)));
    pairs.collect::<Vec<_>>().join("; ")
}

fn direct(
    model: Option<&ModelConverters>,
    source: Implementation,
    target: Implementation,
) -> Option<ConversionStep> {
    let step = |from: Side, table: &str, unchanged: bool| ConversionStep {
        source,
        target,
        from,
        table: table.to_owned(),
        unchanged,
    };
    // 2.10 has the configs and tensors of 2.9, which is the latest that converters name.
    let known = |format: Implementation| match format {
        Implementation::Cerebras(release) if (release.major, release.minor) == (2, 10) => {
            Implementation::Cerebras(Release { minor: 9, ..release })
        }
        other => other,
    };
    for converter in model.map(|model| model.converters.as_slice()).unwrap_or_default() {
        let hit = |left: Implementation, right: Implementation| {
            converter.left.contains(&known(left)) && converter.right.contains(&known(right))
        };
        if hit(source, target) {
            return Some(step(Side::Left, &converter.table, false));
        }
        if hit(target, source) {
            return Some(step(Side::Right, &converter.table, false));
        }
    }
    let (Implementation::Cerebras(left), Implementation::Cerebras(right)) = (source, target) else {
        return None;
    };
    if left.variant != right.variant || !matches!(left.variant, Variant::Plain | Variant::Dpo) {
        return None;
    }
    let (older, newer) = (left.min(right), left.max(right));
    let pair = [(older.major, older.minor), (newer.major, newer.minor)];
    let after_oldest = model.is_none_or(|model| model.oldest() <= Some(pair[0]));
    let from = if left == older { Side::Left } else { Side::Right };
    (UNCHANGED.contains(&pair) && after_oldest).then(|| step(from, "same", true))
}

/// Returns several steps, each to the next release with a converter.
fn chain(
    model: Option<&ModelConverters>,
    source: Implementation,
    target: Implementation,
) -> Option<Vec<ConversionStep>> {
    match (source, target) {
        (Implementation::Cerebras(_), Implementation::Cerebras(_)) => walk(model, source, target),
        (Implementation::HuggingFace, Implementation::Cerebras(_)) => {
            let (pivot, mut rest) = through(model?, target, |pivot| walk(model, pivot, target))?;
            rest.insert(0, direct(model, source, pivot)?);
            Some(rest)
        }
        (Implementation::Cerebras(_), Implementation::HuggingFace) => {
            let (pivot, mut steps) = through(model?, source, |pivot| walk(model, source, pivot))?;
            steps.push(direct(model, pivot, target)?);
            Some(steps)
        }
        // Only configs of Hugging Face and Cerebras have tables.
        _ => None,
    }
}

/// Returns the release between Hugging Face's config and `other` that takes the fewest steps.
fn through(
    model: &ModelConverters,
    other: Implementation,
    steps: impl Fn(Implementation) -> Option<Vec<ConversionStep>>,
) -> Option<(Implementation, Vec<ConversionStep>)> {
    let other = other.release()?;
    let pivots =
        model.converters.iter().filter(|one| one.left.contains(&Implementation::HuggingFace));
    let pivots = pivots
        .flat_map(|one| &one.right)
        .filter(|pivot| pivot.release().is_some_and(|release| release.variant == other.variant));
    let ways = pivots.filter_map(|&pivot| Some((pivot, steps(pivot)?)));
    ways.min_by_key(|(_, steps)| steps.len())
}

fn walk(
    model: Option<&ModelConverters>,
    source: Implementation,
    target: Implementation,
) -> Option<Vec<ConversionStep>> {
    let (mut here, goal) = (source.release()?, target.release()?);
    if here.variant != goal.variant {
        return None;
    }
    let mut steps = Vec::new();
    while here != goal {
        let up = here < goal;
        let ahead = |release: &Release| {
            if up {
                here < *release && *release <= goal
            } else {
                goal <= *release && *release < here
            }
        };
        let mut releases: Vec<Release> = Implementation::RELEASES
            .iter()
            .map(|&(major, minor)| Release { major, minor, variant: here.variant })
            .filter(ahead)
            .collect();
        if !up {
            releases.reverse();
        }
        let next = releases.into_iter().find_map(|next| {
            Some((
                next,
                direct(model, Implementation::Cerebras(here), Implementation::Cerebras(next))?,
            ))
        });
        let (next, step) = next?;
        steps.push(step);
        here = next;
    }
    Some(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(model: &str, source: &str, target: &str) -> Result<String> {
        let steps = Families::known()?.plan(model, source.parse()?, target.parse()?)?;
        let mut way = source.to_owned();
        for step in steps {
            way.push_str(&format!(" {}", step.target));
        }
        Ok(way)
    }

    #[test]
    fn uses_one_step_if_available() {
        assert_eq!(way("gpt2", "hf", "cs-2.9").unwrap(), "hf cs-2.9");
        assert_eq!(way("gpt2", "cs-2.2", "cs-2.9").unwrap(), "cs-2.2 cs-2.9");
        assert_eq!(way("llama", "hf", "cs-2.10").unwrap(), "hf cs-2.10");
        assert_eq!(way("all", "cs-2.1", "cs-2.2").unwrap(), "cs-2.1 cs-2.2");
        assert_eq!(way("dpo", "hf", "cs-2.9-dpo").unwrap(), "hf cs-2.9-dpo");
    }

    #[test]
    fn chains_several_releases() {
        let way_up = "cs-1.8 cs-2.0 cs-2.1 cs-2.2 cs-2.3 cs-2.4 cs-2.5 cs-2.6 cs-2.7 cs-2.8 cs-2.9";
        assert_eq!(
            way("gpt2", "cs-1.8", "cs-2.9").unwrap(),
            way_up.replace("cs-1.8", "cs-1.8 cs-1.9")
        );
        assert_eq!(way("gpt2", "cs-2.1", "cs-1.8").unwrap(), "cs-2.1 cs-2.0 cs-1.9 cs-1.8");
        assert_eq!(way("llama", "cs-1.9", "hf").unwrap(), "cs-1.9 cs-2.0 cs-2.1 hf");
        assert_eq!(way("llama", "hf", "cs-2.0").unwrap(), "hf cs-2.1 cs-2.0");
        assert_eq!(
            way("bert", "cs-1.6", "cs-2.2").unwrap(),
            "cs-1.6 cs-1.7 cs-1.8 cs-1.9 cs-2.0 cs-2.1 cs-2.2"
        );
    }

    #[test]
    fn reports_alternatives_if_there_is_no_route() {
        for (model, source, target) in
            [("mistral", "cs-1.9", "cs-2.0"), ("dpo", "hf", "cs-2.9"), ("all", "hf", "cs-2.9")]
        {
            let error = way(model, source, target).unwrap_err().to_string();
            assert!(error.contains(source) && error.contains(target), "{error}");
        }
        assert!(way("gpt5", "hf", "cs-2.9").unwrap_err().to_string().contains("gpt2"));
        assert!(way("gpt2", "hf", "hf").is_err());
    }
}
