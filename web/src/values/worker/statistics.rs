//! Formats the statistics of a tensor in a summary for the inspector.

use statelens_checkpoint::float_repr;
use statelens_values::SummaryStatistics;

use crate::inspector::message::Fact;
use crate::state::fmt::{cell, exact};

/// Returns the label and value of each statistic.
pub fn facts(of: &SummaryStatistics, integers: bool) -> Vec<Fact> {
    let fact =
        |label: &str, value: String| Fact { label: label.to_owned(), value, note: String::new() };
    let mut facts = Vec::new();
    for (label, value) in [("min", of.min), ("max", of.max), ("mean", of.mean), ("std", of.std)] {
        let Some(value) = value else { continue };
        // The mean of integers need not be an integer.
        let whole = integers && matches!(label, "min" | "max");
        let text = if whole { exact_integer(value) } else { cell(&float_repr(value)) };
        facts.push(fact(label, text));
    }
    for (label, count) in [("zeros", of.zeros), ("NaN", of.nan), ("infinite", of.infinite)] {
        if count > 0 || label == "zeros" {
            facts.push(fact(label, exact(count)));
        }
    }
    facts
}

/// Formats an integer. It is held in a float, which is exact to about 16 digits.
fn exact_integer(value: f64) -> String {
    if value.abs() < 9_007_199_254_740_992.0 {
        let digits = exact(value.abs() as u64);
        if value < 0.0 { format!("\u{2212}{digits}") } else { digits }
    } else {
        cell(&float_repr(value))
    }
}

#[cfg(test)]
mod tests {
    use statelens_values::Statistician;

    use super::*;
    use statelens_checkpoint::DType;

    #[test]
    fn missing_statistics_are_omitted() {
        let values = [1.0f32, -2.0, 0.0, f32::NAN];
        let mut measure = Statistician::new(&DType::F32).expect("floats have some");
        values.iter().for_each(|value| measure.feed(&value.to_le_bytes()));
        let texts: Vec<(String, String)> = facts(&measure.finish(), false)
            .into_iter()
            .map(|fact| (fact.label, fact.value))
            .collect();
        let expected = [
            ("min", "\u{2212}2.0"),
            ("max", "1.0"),
            ("mean", "\u{2212}0.3333"),
            ("std", "1.2472"),
            ("zeros", "1"),
            ("NaN", "1"),
        ];
        let expected = expected.map(|(label, value)| (label.to_owned(), value.to_owned()));
        assert_eq!(texts, expected);
    }

    #[test]
    fn integers_are_formatted_exactly() {
        let mut measure = Statistician::new(&DType::I64).expect("integers have some");
        [-3i64, 0, 12_000].iter().for_each(|value| measure.feed(&value.to_le_bytes()));
        let texts: Vec<String> =
            facts(&measure.finish(), true).into_iter().map(|fact| fact.value).collect();
        assert_eq!(texts[..2], ["\u{2212}3", "12,000"]);
        assert!(texts[2].contains("3999"), "the mean is {}", texts[2]);
    }
}
