//! Norms and deviations of two checkpoints by layer: all tensors with the same role form one line.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use statelens_checkpoint::numbers::pattern;
use statelens_checkpoint::{Text, order};
use statelens_values::picture::{Chart, Series};

/// Norms and deviations of a compared pair of tensors, including equal ones. They cover the
/// elements that are finite on both sides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PairChange {
    /// The index of the leaf on the left.
    pub leaf: usize,
    /// Its flat key.
    pub key: Text,
    /// The Euclidean norms of both sides.
    pub norms: (f64, f64),
    /// Their standard deviations.
    pub deviations: (f64, f64),
    /// The relative change; `None` if it is undefined.
    pub change: Option<f64>,
}

/// Tensors whose keys differ only in the number of the layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Role {
    /// The key, with `*` in place of the number.
    pub name: String,
    /// The numbers in ascending order, each with the index of its key.
    pub members: Vec<(u64, usize)>,
}

/// The quantity that is plotted by layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Quantity {
    /// Norms of both sides.
    #[default]
    Norm,
    /// Standard deviations of both sides.
    Deviation,
    /// The relative change.
    Change,
}

impl Quantity {
    /// Returns the label of the axis.
    pub fn word(self) -> &'static str {
        match self {
            Self::Norm => "norm",
            Self::Deviation => "deviation \u{3c3}",
            Self::Change => "relative change \u{2016}A \u{2212} B\u{2016} / \u{2016}B\u{2016}",
        }
    }
}

/// Returns the roles that occur for at least two of the keys, in order of first occurrence. The
/// first number in a key is the layer; further numbers are part of the role.
pub fn roles(keys: impl Iterator<Item = String>) -> Vec<Role> {
    let mut roles: Vec<Role> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    for (at, key) in keys.enumerate() {
        let Some((name, number)) = role_of(&key) else { continue };
        let role = *known.entry(name.clone()).or_insert_with(|| {
            roles.push(Role { name, members: Vec::new() });
            roles.len() - 1
        });
        roles[role].members.push((number, at));
    }
    roles.retain(|role| role.members.len() > 1);
    roles.iter_mut().for_each(|role| order::by_key(&mut role.members, |member| *member));
    roles
}

/// Returns the key with `*` in place of its first number, and that number.
pub fn role_of(key: &str) -> Option<(String, u64)> {
    let number = *pattern(key, '.').1.first()?;
    let mut parts: Vec<&str> = key.split('.').collect();
    let is_it = |part: &&mut &str| part.parse() == Ok(number);
    if let Some(part) = parts.iter_mut().find(is_it) {
        *part = "*";
    }
    Some((parts.join("."), number))
}

/// Returns the chart of a role: A as a solid and B as a dashed line, or the change between them.
pub fn by_layer(name: &str, quantity: Quantity, layers: &[(u64, &PairChange)]) -> Chart {
    let line = |name: &str, value: &dyn Fn(&PairChange) -> f64| Series {
        name: name.into(),
        points: layers.iter().map(|(at, of)| (*at as f64, value(of))).collect(),
    };
    let lines = match quantity {
        Quantity::Norm => vec![line("A", &|of| of.norms.0), line("B", &|of| of.norms.1)],
        Quantity::Deviation => {
            vec![line("A", &|of| of.deviations.0), line("B", &|of| of.deviations.1)]
        }
        Quantity::Change => vec![line("A to B", &|of| of.change.unwrap_or(f64::NAN))],
    };
    let (across, up) = ("layer".into(), quantity.word().into());
    let log = quantity == Quantity::Change;
    Chart { title: name.into(), across, up, log, lines, ..Chart::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layer_is_the_first_number() {
        let of = |key: &str| role_of(key);
        assert_eq!(of("m.layers.12.w"), Some(("m.layers.*.w".into(), 12)));
        assert_eq!(of("m.3.experts.7.w"), Some(("m.*.experts.7.w".into(), 3)));
        assert_eq!(of("model.w1"), None);
        let keys = ["h.10.w", "h.2.w", "h.2.b", "x", "h.0.w"].map(String::from);
        let found = roles(keys.into_iter());
        assert_eq!(found, [Role { name: "h.*.w".into(), members: vec![(0, 4), (2, 1), (10, 0)] }]);
    }

    #[test]
    fn chart_shows_both_sides() {
        let of = |norms, change| PairChange {
            leaf: 0,
            key: "w".into(),
            norms,
            deviations: (0.0, 0.0),
            change,
        };
        let (one, two) = (of((1.0, 2.0), None), of((3.0, 4.0), Some(0.5)));
        let layers = [(0, &one), (4, &two)];
        let chart = by_layer("h.*.w", Quantity::Norm, &layers);
        assert_eq!(chart.csv(), "layer,A,B\n0,1.0,2.0\n4,3.0,4.0\n");
        let chart = by_layer("h.*.w", Quantity::Change, &layers);
        assert_eq!(chart.csv(), "layer,A to B\n0,\n4,0.5\n");
    }
}
