//! Rules that report remarkable values, with figures and positions.

use std::collections::{BTreeMap, HashMap};

use statelens_checkpoint::numbers::pattern;
use statelens_checkpoint::{Grade, counted, grouped, order, shape_text};

use super::moments;
use super::noticed::{ElementRef, LayerSeries, Noticed, Read, SiblingGroups, noticed};
use super::rows::of_rows;
use super::trend::{MIN_SIBLINGS, outliers};
use crate::{index, number_text};
use statelens_stats::Statistics;

/// The conditions that are checked, listed if nothing is found.
pub const CHECKS: [&str; 9] = [
    "NaN and infinite values",
    "tensors that are all zeros",
    "tensors of one value",
    "layers that are not like their siblings",
    "tensors that are equal bit for bit",
    "rows that are all zeros",
    "embedding rows that were never trained",
    "optimizer moments that are all zeros or do not fit",
    "a loss scale at its floor",
];

/// Maximum number of findings of one kind; further ones are only counted.
const MAX_FINDINGS: usize = 20;

/// Returns the findings, the most severe first. `equal` has groups of tensors that are equal bit
/// for bit; `scalars` has the numbers that are not tensors, by key; `dot` separates the segments of
/// keys.
pub fn notice(
    tensors: &[Read<'_>],
    equal: &[Vec<usize>],
    scalars: &[(String, f64)],
    dot: char,
) -> Vec<Noticed> {
    let groups = groups(tensors, dot);
    let mut all = not_finite(tensors, &groups);
    all.extend(limited(standing_out(tensors, dot), "more tensors stand out among their siblings"));
    all.extend(of_one_value(tensors, &groups, dot));
    all.extend(of_moments(tensors, dot));
    all.extend(limited(of_rows(tensors, &groups, dot), "more findings about rows"));
    all.extend(limited(
        equal.iter().filter_map(|group| copies(tensors, group)).collect(),
        "more groups of equal tensors",
    ));
    all.extend(loss_scale(scalars, dot));
    order::by_key(&mut all, |noticed| std::cmp::Reverse(noticed.grade));
    all
}

/// Groups tensors whose keys differ only in numbers.
fn groups(tensors: &[Read<'_>], dot: char) -> SiblingGroups {
    let mut groups = SiblingGroups::new();
    for (at, tensor) in tensors.iter().enumerate() {
        groups.entry(pattern(tensor.key, dot).0).or_default().push(at);
    }
    groups
}

fn limited(mut found: Vec<Noticed>, rest: &str) -> Vec<Noticed> {
    let more = found.split_off(found.len().min(MAX_FINDINGS));
    if !more.is_empty() {
        let tensors = more.iter().flat_map(|noticed| noticed.tensors.iter().copied()).collect();
        let title = format!("{} {rest}", grouped(more.len() as u64));
        found.push(noticed(Grade::Note, title, String::new(), tensors));
    }
    found
}

fn not_finite(tensors: &[Read<'_>], groups: &SiblingGroups) -> Vec<Noticed> {
    let mut all = Vec::new();
    let mut masks = Vec::new();
    for (name, members) in groups {
        let mut odd = Vec::new();
        for &at in members {
            let of = tensors[at].statistics;
            if of.finite() == of.count {
            } else if of.nan + of.pos_inf == 0 && of.zeros + of.neg_inf == of.count {
                masks.push(at);
            } else {
                odd.push(at);
            }
        }
        let Some(&first) = odd.first() else { continue };
        let sum = |count: fn(&Statistics) -> u64| {
            odd.iter().map(|&at| count(tensors[at].statistics)).sum::<u64>()
        };
        let (nan, infinite) = (sum(|of| of.nan), sum(|of| of.pos_inf + of.neg_inf));
        let what: Vec<String> = [
            (nan > 0).then(|| format!("{} NaN", grouped(nan))),
            (infinite > 0).then(|| counted(infinite, "infinite value")),
        ]
        .into_iter()
        .flatten()
        .collect();
        let what = what.join(" and ");
        let of = tensors[first].statistics;
        let number = if of.nan > 0 { of.first_nan } else { of.first_inf };
        let element = number.map(|number| ElementRef {
            tensor: first,
            number,
            index: index(tensors[first].shape, number),
        });
        let title = match odd.len() {
            1 => format!("{what} in `{}`", tensors[first].key),
            some => format!(
                "{what} in {} of {} tensors `{name}`",
                grouped(some as u64),
                grouped(members.len() as u64)
            ),
        };
        let mut text = format!("Of {}", values(sum(|of| of.count)));
        if let Some(element) = &element {
            text += &match odd.len() {
                1 => format!(", the first at {}", shape_text(&element.index)),
                _ => format!(
                    ", the first in `{}` at {}",
                    tensors[first].key,
                    shape_text(&element.index)
                ),
            };
        }
        text += ".";
        let advice = "Any forward pass through it yields NaN. Use an earlier checkpoint, or check the job that wrote this one.";
        all.push(Noticed {
            advice: advice.to_owned(),
            element,
            ..noticed(Grade::Warning, title, text, odd)
        });
    }
    if !masks.is_empty() {
        let title = format!(
            "{} of \u{2212}inf and zeros: {}",
            count_of(masks.len(), "tensor"),
            if masks.len() == 1 { "a mask" } else { "masks" }
        );
        all.push(noticed(Grade::Note, title, String::new(), masks));
    }
    all
}

/// Reports tensors that are all zeros, or all of another value.
fn of_one_value(tensors: &[Read<'_>], groups: &SiblingGroups, dot: char) -> Vec<Noticed> {
    let (mut all, mut zeros, mut constants) = (Vec::new(), Vec::new(), Vec::new());
    for (name, members) in groups {
        let own = |at: &&usize| {
            let tensor = &tensors[**at];
            tensor.floats && tensor.statistics.count > 1 && moments::of(tensor.key, dot).is_none()
        };
        let members: Vec<usize> = members.iter().filter(own).copied().collect();
        for (is_zero, quiet) in [(true, &mut zeros), (false, &mut constants)] {
            let one = |at: &usize| {
                let of = tensors[*at].statistics;
                of.all_equal() && of.all_zero() == is_zero && of.finite() == of.count
            };
            let some: Vec<usize> = members.iter().copied().filter(one).collect();
            let Some(&first) = some.first() else { continue };
            let matrix = tensors[first].shape.iter().filter(|dim| **dim > 1).count() > 1;
            // If all siblings are constant, that is how they are initialised; a single one may have
            // lost its values.
            if !matrix || (some.len() == members.len() && members.len() > 1) {
                quiet.extend(some);
                continue;
            }
            let value = match is_zero {
                true => "zeros".to_owned(),
                false => number_text(tensors[first].statistics.min.unwrap_or(0.0)),
            };
            let title = match some.len() {
                1 => format!("`{}` is all {value}", tensors[first].key),
                many => format!(
                    "{} of {} tensors `{name}` are all {value}",
                    grouped(many as u64),
                    grouped(members.len() as u64)
                ),
            };
            let mut text = format!(
                "{} of shape {}.",
                values(tensors[first].statistics.count),
                shape_text(tensors[first].shape)
            );
            if members.len() > some.len() {
                text += &format!(
                    " {} like it in other layers {} not.",
                    count_of(members.len() - some.len(), "tensor"),
                    if members.len() - some.len() == 1 { "is" } else { "are" }
                );
            }
            let mut found = noticed(Grade::Warning, title, text, some);
            found.advice = "A weight that was never loaded or trained looks like this.".into();
            all.push(found);
        }
    }
    order::natural(&mut zeros);
    order::natural(&mut constants);
    if !zeros.is_empty() {
        let title = format!("{} all zeros", are(zeros.len()));
        let text = "Biases and the second half of adapters start like this.".to_owned();
        all.push(noticed(Grade::Note, title, text, zeros));
    }
    if !constants.is_empty() {
        let title = format!(
            "{} of one value{}",
            are(constants.len()),
            if constants.len() == 1 { "" } else { " each" }
        );
        let text = "The weights of norms start as ones.".to_owned();
        all.push(noticed(Grade::Note, title, text, constants));
    }
    all
}

/// The measures by which siblings are compared.
const MEASURES: [&str; 4] = ["\u{3c3}", "|x| mean", "|x| max", "1\u{2013}99 %"];
/// Number of measures that must stand out.
const VOTES: usize = 3;

/// The number of each layer, and the index of its tensor.
type Siblings = Vec<(u64, usize)>;

fn standing_out(tensors: &[Read<'_>], dot: char) -> Vec<Noticed> {
    // Siblings are tensors of the same shape whose keys differ only in the number of the layer, or in
    // that of an expert of one layer.
    let mut siblings = BTreeMap::<(bool, String, &[u64]), Siblings>::new();
    for (at, tensor) in tensors.iter().enumerate() {
        let numbered = !tensor.key.split(dot).any(|part| part == "state");
        if !tensor.floats || !numbered || measures(tensor.statistics).is_none() {
            continue;
        }
        for is_expert in [false, true] {
            if let Some((name, number)) = numbered_key(tensor.key, dot, is_expert) {
                let group = siblings.entry((is_expert, name, tensor.shape)).or_default();
                group.push((number, at));
            }
        }
    }
    let mut all = Vec::new();
    for ((is_expert, name, _), mut members) in siblings {
        if members.len() < MIN_SIBLINGS {
            continue;
        }
        order::natural(&mut members);
        let depth: Vec<f64> = members.iter().map(|(layer, _)| *layer as f64).collect();
        let rows: Vec<[f64; 4]> =
            members.iter().filter_map(|(_, at)| measures(tensors[*at].statistics)).collect();
        for outlier in outliers(&depth, &rows, VOTES) {
            let (layer, at) = members[outlier.at];
            // An expert that is reported among the layers is not reported again.
            if is_expert && all.iter().any(|noticed: &Noticed| noticed.tensors == [at]) {
                continue;
            }
            let outlying = outlier.outlying.iter().filter(|outlying| **outlying).count();
            let times = |measure: usize| {
                let (value, expected) = (rows[outlier.at][measure], outlier.expected[measure]);
                let ratio = number_text((value / expected * 100.0).round() / 100.0);
                match measure {
                    0 => format!(
                        "{} {} where {} is expected ({ratio}\u{d7})",
                        MEASURES[measure],
                        number_text(value),
                        number_text(expected)
                    ),
                    _ => format!("{} {ratio}\u{d7}", MEASURES[measure]),
                }
            };
            let listed_measures: Vec<String> = (0..MEASURES.len()).map(times).collect();
            let title = format!("`{}` is not like its siblings", tensors[at].key);
            let what = if is_expert { "Number" } else { "Layer" };
            let text = format!(
                "{what} {layer} of {} `{name}`, relative to the trend of its neighbours: {}. {outlying} \
                 of {} measures agree.",
                grouped(members.len() as u64),
                listed_measures.join(", "),
                MEASURES.len()
            );
            let mut found = noticed(Grade::Warning, title, text, vec![at]);
            found.series = Some(LayerSeries {
                depth: members.iter().map(|(layer, _)| *layer).collect(),
                values: rows.iter().map(|row| row[0]).collect(),
                marked: outlier.at,
                expected: outlier.expected[0],
            });
            all.push(found);
        }
    }
    all
}

/// Returns the measures of a tensor; `None` if they are not all positive and finite.
fn measures(of: &Statistics) -> Option<[f64; 4]> {
    let [low, .., high] = of.quantiles?;
    let all = [of.std?, of.abs_mean?, of.abs_max?.0, high - low];
    (of.count >= 16 && all.iter().all(|it| it.is_finite() && *it > 0.0)).then_some(all)
}

/// Returns the key with `*` in place of its first number, the layer's, or of its second one, that of
/// an expert of the layer; and that number. Other numbers stay.
fn numbered_key(key: &str, dot: char, is_expert: bool) -> Option<(String, u64)> {
    let mut skipped = 0;
    let mut found = None;
    let parts: Vec<&str> = key
        .split(dot)
        .map(|part| match (found, part.parse::<u64>()) {
            (None, Ok(number)) if skipped == usize::from(is_expert) => {
                found = Some(number);
                "*"
            }
            (None, Ok(_)) => {
                skipped += 1;
                part
            }
            _ => part,
        })
        .collect();
    Some((parts.join(dot.encode_utf8(&mut [0; 4])), found?))
}

fn copies(tensors: &[Read<'_>], group: &[usize]) -> Option<Noticed> {
    let (&first, rest) = group.split_first()?;
    let &second = rest.first()?;
    let title = match rest.len() {
        1 => {
            format!("`{}` and `{}` are equal bit for bit", tensors[first].key, tensors[second].key)
        }
        _ => format!(
            "{} tensors are equal bit for bit: `{}`, `{}` \u{2026}",
            grouped(group.len() as u64),
            tensors[first].key,
            tensors[second].key
        ),
    };
    let text = format!(
        "{} each, of shape {}, compared by SHA-256. The file holds them {} times.",
        values(tensors[first].statistics.count),
        shape_text(tensors[first].shape),
        group.len()
    );
    Some(noticed(Grade::Note, title, text, group.to_vec()))
}

fn of_moments(tensors: &[Read<'_>], dot: char) -> Vec<Noticed> {
    let mut all = Vec::new();
    let mut by_name: BTreeMap<&str, (Vec<usize>, Vec<usize>)> = BTreeMap::new();
    let mut by_owner: HashMap<&str, usize> = HashMap::new();
    for (at, tensor) in tensors.iter().enumerate() {
        let Some((owner, name, squares)) = moments::of(tensor.key, dot) else { continue };
        if tensor.statistics.count > 1 {
            let (zero, other) = by_name.entry(name).or_default();
            if tensor.statistics.all_zero() { zero.push(at) } else { other.push(at) }
        }
        if squares && tensor.statistics.min.is_some_and(|min| min < 0.0) {
            let title = format!("`{}` has negative values", tensor.key);
            let text = format!(
                "A mean of squares is never negative; the smallest is {}.",
                number_text(tensor.statistics.min.unwrap_or(0.0))
            );
            all.push(noticed(Grade::Warning, title, text, vec![at]));
        }
        match by_owner.get(owner) {
            Some(&other) if tensors[other].shape != tensor.shape => {
                let title = format!("The moments of `{owner}` are of different shapes");
                let text = format!(
                    "`{}` is {}, `{}` is {}: one of them belongs to another parameter.",
                    tensors[other].key,
                    shape_text(tensors[other].shape),
                    tensor.key,
                    shape_text(tensor.shape)
                );
                all.push(noticed(Grade::Warning, title, text, vec![other, at]));
            }
            Some(_) => {}
            None => {
                by_owner.insert(owner, at);
            }
        }
    }
    all.extend(of_other_parameters(tensors, &by_owner, dot));
    for (name, (zero, other)) in by_name {
        if zero.is_empty() {
            continue;
        }
        let title = match other.len() {
            0 => format!("All {} `{name}` are zeros", grouped(zero.len() as u64)),
            _ => format!(
                "{} of {} `{name}` are all zeros",
                grouped(zero.len() as u64),
                grouped((zero.len() + other.len()) as u64)
            ),
        };
        let text = match other.len() {
            0 => "The optimizer has not taken a step yet, or its state was not saved.".to_owned(),
            _ => "Their parameters received no gradient.".to_owned(),
        };
        all.push(noticed(Grade::Note, title, text, zero));
    }
    limited(all, "more findings about moments")
}

/// Reports moments that are named after a parameter but do not have its shape.
fn of_other_parameters(
    tensors: &[Read<'_>],
    owners: &HashMap<&str, usize>,
    dot: char,
) -> Vec<Noticed> {
    let parameters: HashMap<&str, usize> = tensors
        .iter()
        .enumerate()
        .filter(|(_, tensor)| moments::of(tensor.key, dot).is_none())
        .flat_map(|(at, tensor)| suffixes(tensor.key, dot).map(move |suffix| (suffix, at)))
        .collect();
    let mut all = Vec::new();
    let mut owners: Vec<(&str, usize)> = owners.iter().map(|(owner, at)| (*owner, *at)).collect();
    order::natural(&mut owners);
    for (owner, at) in owners {
        // A number alone does not identify a parameter.
        let named = suffixes(owner, dot)
            .filter(|suffix| suffix.contains(dot) && suffix.parse::<f64>().is_err());
        let own = tensors[at].parameter.and_then(|key| parameters.get(key));
        let parameter = own.or_else(|| named.filter_map(|suffix| parameters.get(suffix)).next());
        let Some(&parameter) = parameter else { continue };
        let (moment, parameter) = (&tensors[at], &tensors[parameter]);
        if moment.shape != parameter.shape && moment.statistics.count > 1 {
            let title = format!("`{}` does not fit its parameter", moment.key);
            let text = format!(
                "It is {}, and `{}` is {}.",
                shape_text(moment.shape),
                parameter.key,
                shape_text(parameter.shape)
            );
            all.push(noticed(Grade::Warning, title, text, vec![at]));
        }
    }
    all
}

/// Returns the key and its suffixes at segment boundaries, the longest first.
fn suffixes(key: &str, dot: char) -> impl Iterator<Item = &str> {
    let starts = key.match_indices(dot).map(move |(at, _)| at + dot.len_utf8());
    std::iter::once(0).chain(starts).map(|at| &key[at..])
}

/// Reports scales of automatic mixed precision that are at their minimum.
fn loss_scale(scalars: &[(String, f64)], dot: char) -> Vec<Noticed> {
    let by_key: HashMap<&str, f64> =
        scalars.iter().map(|(key, value)| (key.as_str(), *value)).collect();
    let mut all = Vec::new();
    for (key, scale) in scalars {
        let (owner, name) = key.rsplit_once(dot).unwrap_or(("", key));
        let sibling =
            |name: &str| by_key.get(format!("{owner}{dot}{name}").trim_start_matches(dot)).copied();
        // Names used by torch, DeepSpeed and cstorch.
        let floor = match name {
            "scale" | "_scale"
                if sibling("growth_factor").or_else(|| sibling("backoff_factor")).is_some() =>
            {
                1.0
            }
            "cur_scale" | "loss_scale" | "loss_scale_value" => {
                sibling("min_scale").or_else(|| sibling("min_loss_scale")).unwrap_or(1.0)
            }
            _ => continue,
        };
        if *scale > floor
            || *scale <= 0.0
            || (name == "loss_scale" && *scale == 1.0 && sibling("min_loss_scale").is_none())
        {
            continue;
        }
        let title = format!("The loss scale `{key}` is at its floor");
        let text = format!(
            "It is {}, and the minimum is {}: it was lowered step after step because gradients \
             were not finite.",
            number_text(*scale),
            number_text(floor)
        );
        all.push(noticed(Grade::Warning, title, text, Vec::new()));
    }
    all
}

fn values(count: u64) -> String {
    counted(count, "value")
}

fn count_of(count: usize, noun: &str) -> String {
    counted(count as u64, noun)
}

fn are(count: usize) -> String {
    format!("{} {}", count_of(count, "tensor"), if count == 1 { "is" } else { "are" })
}
