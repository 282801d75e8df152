//! Groups keys by layer, so that a thousand lines become ten.

use statelens_checkpoint::order;
use std::collections::HashMap;

use super::Expected;

/// Keys that differ only in their numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyLayer {
    /// The key, with `*` in place of each number.
    pub pattern: String,
    /// Number of keys.
    pub keys: u64,
    /// The numbers in place of the first `*`, as ranges: `0-11`; empty without a number.
    pub numbers: String,
    /// The index in the list of the first of them.
    pub first: usize,
}

/// Groups keys that differ only in their numbers and have the same type, in order of first
/// occurrence.
pub fn by_layer(list: &[Expected]) -> Vec<KeyLayer> {
    let mut layers: Vec<(KeyLayer, Vec<u64>)> = Vec::new();
    let mut known: HashMap<(String, String), usize> = HashMap::new();
    for (index, one) in list.iter().enumerate() {
        let (pattern, number) = pattern(&one.key);
        let at = *known.entry((pattern.clone(), one.type_text())).or_insert_with(|| {
            let layer = KeyLayer { pattern, keys: 0, numbers: String::new(), first: index };
            layers.push((layer, Vec::new()));
            layers.len() - 1
        });
        let (layer, numbers) = &mut layers[at];
        layer.keys += 1;
        numbers.extend(number);
    }
    let finish = |(mut layer, numbers): (KeyLayer, Vec<u64>)| {
        layer.numbers = runs(numbers);
        layer
    };
    layers.into_iter().map(finish).collect()
}

/// Returns a key with `*` in place of its numbers, and the first number.
fn pattern(key: &str) -> (String, Option<u64>) {
    let mut first = None;
    let step = |step: &str| match step.parse::<u64>() {
        Ok(number) if step.bytes().all(|byte| byte.is_ascii_digit()) => {
            first.get_or_insert(number);
            "*".to_owned()
        }
        _ => step.to_owned(),
    };
    let steps: Vec<String> = key.split('.').map(step).collect();
    (steps.join("."), first)
}

/// Formats `0, 1, 2, 5` as `0-2, 5`.
fn runs(mut numbers: Vec<u64>) -> String {
    order::natural(&mut numbers);
    numbers.dedup();
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let text = |(first, last): &(u64, u64)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    runs.iter().map(text).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_keys_by_layer() {
        let keys = ["h.0.w", "h.1.w", "h.3.w", "norm", "h.0.b", "h.1.experts.7.w"];
        let list: Vec<Expected> =
            keys.iter().map(|key| Expected { key: (*key).into(), ..Expected::default() }).collect();
        let found: Vec<(String, u64, String)> = by_layer(&list)
            .into_iter()
            .map(|layer| (layer.pattern, layer.keys, layer.numbers))
            .collect();
        let expected = [
            ("h.*.w", 3, "0-1, 3"),
            ("norm", 1, ""),
            ("h.*.b", 1, "0"),
            ("h.*.experts.*.w", 1, "1"),
        ];
        assert_eq!(found, expected.map(|(a, b, c)| (a.to_owned(), b, c.to_owned())));
    }
}
