//! The statistics of tensors by row, once they were read.

use std::collections::HashSet;
use std::rc::Rc;

use statelens_checkpoint::{float_repr, order};
use statelens_values::{StatisticsField, SummaryStatistics};

use crate::state::fmt::{cell, exact, minus};
use crate::values::message::RowStatistics;

/// The statistics known so far; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Weights(Rc<WeightsByRow>);

#[derive(Debug, Clone, Default)]
struct WeightsByRow {
    rows: Vec<Option<SummaryStatistics>>,
    /// Rows that stand out among their siblings.
    outliers: HashSet<u32>,
    /// Number of values that are NaN or infinite.
    not_finite: u64,
    any: bool,
}

impl PartialEq for Weights {
    fn eq(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

/// Totals of several rows.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RowTotals {
    /// The number of rows that were read.
    pub read: usize,
    /// The number of their values.
    pub count: u64,
    pub nan: u64,
    pub infinite: u64,
    pub zeros: u64,
    /// The median of their standard deviations.
    pub std: Option<f64>,
    pub abs_max: Option<f64>,
    pub min: Option<f64>,
    pub max: Option<f64>,
}

impl Weights {
    /// Returns true once any tensor of a scan was read.
    pub fn any(&self) -> bool {
        self.0.any
    }

    /// Returns the statistics of a row.
    pub fn get(&self, row: u32) -> Option<&SummaryStatistics> {
        self.0.rows.get(row as usize)?.as_ref()
    }

    /// Returns whether a row stands out among its siblings.
    pub fn is_outlier(&self, row: u32) -> bool {
        self.0.outliers.contains(&row)
    }

    /// Stores statistics.
    pub fn take(&mut self, read: RowStatistics) {
        let known = Rc::make_mut(&mut self.0);
        known.any = true;
        for (row, values) in read {
            let at = row as usize;
            if known.rows.len() <= at {
                known.rows.resize(at + 1, None);
            }
            let count = |values: &SummaryStatistics| values.nan.saturating_add(values.infinite);
            let before = known.rows[at].as_ref().map_or(0, count);
            known.not_finite = known.not_finite.saturating_add(count(&values)) - before;
            known.rows[at] = Some(values);
        }
    }

    /// Returns the number of values that are NaN or infinite, of the rows that were read.
    pub fn not_finite(&self) -> u64 {
        self.0.not_finite
    }

    /// Stores which rows stand out.
    pub fn mark(&mut self, outliers: impl Iterator<Item = u32>) {
        Rc::make_mut(&mut self.0).outliers = outliers.collect();
    }

    /// Returns the totals of several rows.
    pub fn sum(&self, rows: impl Iterator<Item = u32>) -> RowTotals {
        let mut sum = RowTotals::default();
        let mut deviations = Vec::new();
        for values in rows.filter_map(|row| self.get(row)) {
            sum.read += 1;
            sum.count += values.count;
            sum.nan += values.nan;
            sum.infinite += values.infinite;
            sum.zeros += values.zeros;
            sum.abs_max = either(sum.abs_max, values.abs_max(), f64::max);
            sum.min = either(sum.min, values.min, f64::min);
            sum.max = either(sum.max, values.max, f64::max);
            deviations.extend(values.std);
        }
        order::by(&mut deviations, f64::total_cmp);
        sum.std = deviations.get(deviations.len().saturating_sub(1) / 2).copied();
        sum
    }
}

/// Combines both values, or returns the only one.
fn either(one: Option<f64>, other: Option<f64>, both: fn(f64, f64) -> f64) -> Option<f64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(both(one, other)),
        (one, other) => one.or(other),
    }
}

impl RowTotals {
    /// Returns a statistic of the totals, to sort by.
    pub fn measure(&self, measure: StatisticsField) -> Option<f64> {
        let share = |count: u64| (self.count > 0).then(|| count as f64 / self.count as f64);
        match measure {
            StatisticsField::Std => self.std,
            StatisticsField::AbsMax => self.abs_max,
            StatisticsField::Min => self.min,
            StatisticsField::Max => self.max,
            StatisticsField::Zeros => share(self.zeros),
            StatisticsField::Nan => (self.read > 0).then(|| (self.nan + self.infinite) as f64),
            _ => None,
        }
    }
}

/// Formats a share: never 0 for a positive part, nor 100 unless the part is the whole.
pub fn percent(part: u64, whole: u64) -> String {
    if part == 0 || whole == 0 {
        return "0 %".into();
    }
    let share = part as f64 / whole as f64 * 100.0;
    match share {
        share if share < 0.1 => "<0.1 %".into(),
        share if part < whole && share > 99.9 => ">99.9 %".into(),
        share if share < 10.0 => format!("{share:.1} %"),
        share => format!("{share:.0} %"),
    }
}

/// Returns the labels and values of the statistics of a tensor in a summary.
pub fn summary_facts(of: &SummaryStatistics, integers: bool) -> Vec<(&'static str, String)> {
    let figures = [("min", of.min), ("max", of.max), ("mean", of.mean), ("std", of.std)];
    let figures = figures.into_iter().filter_map(|(label, value)| {
        let value = value?;
        // The mean of integers need not be an integer.
        let whole = whole(value).filter(|_| integers && matches!(label, "min" | "max"));
        Some((label, whole.unwrap_or_else(|| cell(&float_repr(value)))))
    });
    let counts = [("zeros", of.zeros), ("NaN", of.nan), ("infinite", of.infinite)];
    let counts = counts.into_iter().filter(|(label, count)| *count > 0 || *label == "zeros");
    figures.chain(counts.map(|(label, count)| (label, exact(count)))).collect()
}

/// Formats an integer that is held in a float; `None` if a float of this size need not be exact.
pub fn whole(value: f64) -> Option<String> {
    let digits = (value.abs() < 9_007_199_254_740_992.0).then(|| exact(value.abs() as u64))?;
    Some(if value < 0.0 { format!("\u{2212}{digits}") } else { digits })
}

/// Formats a number with four significant digits and a true minus sign.
pub fn number(value: f64) -> String {
    short(value, true)
}

/// As [`number`], but keeps trailing zeros, so that the decimal points of numbers in a column
/// align.
pub fn figure(value: f64) -> String {
    short(value, value == value.trunc())
}

fn short(value: f64, trimmed: bool) -> String {
    if value == 0.0 || !value.is_finite() {
        return minus(&value.abs().to_string().replace("NaN", "nan"));
    }
    let text = format!("{value:.3e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let power: i32 = exponent.parse().unwrap_or(0);
    let plain = (-4..=5).contains(&power);
    let digits = match plain {
        true => format!("{value:.*}", (3 - power).max(0) as usize),
        false => digits.to_owned(),
    };
    let digits = match trimmed && digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.'),
        false => &digits,
    };
    let text = if plain { digits.to_owned() } else { format!("{digits}e{exponent}") };
    text.replace('-', "\u{2212}")
}

#[cfg(test)]
mod tests {
    use statelens_checkpoint::DType;
    use statelens_values::Statistician;

    use super::*;

    fn facts(dtype: &DType, bytes: &[u8], integers: bool) -> Vec<(&'static str, String)> {
        let mut measure = Statistician::new(dtype).expect("numbers have some");
        measure.feed(bytes);
        summary_facts(&measure.finish(), integers)
    }

    #[test]
    fn missing_statistics_are_omitted() {
        let bytes = [1.0f32, -2.0, 0.0, f32::NAN].map(f32::to_le_bytes).concat();
        let expected = [
            ("min", "\u{2212}2.0"),
            ("max", "1.0"),
            ("mean", "\u{2212}0.3333"),
            ("std", "1.2472"),
            ("zeros", "1"),
            ("NaN", "1"),
        ];
        let expected = expected.map(|(label, value)| (label, value.to_owned()));
        assert_eq!(facts(&DType::F32, &bytes, false), expected);
    }

    #[test]
    fn integers_are_formatted_exactly() {
        let bytes = [-3i64, 0, 12_000].map(i64::to_le_bytes).concat();
        let found = facts(&DType::I64, &bytes, true);
        assert_eq!([&*found[0].1, &*found[1].1], ["\u{2212}3", "12,000"]);
        assert!(found[2].1.contains("3999"), "the mean is {}", found[2].1);
    }

    fn row(row: u32, std: f64, nan: u64) -> (u32, SummaryStatistics) {
        let values = SummaryStatistics {
            count: 10,
            nan,
            zeros: 1,
            std: Some(std),
            min: Some(-std),
            max: Some(std * 4.0),
            ..SummaryStatistics::default()
        };
        (row, values)
    }

    #[test]
    fn totals_cover_the_rows_read() {
        let mut weights = Weights::default();
        assert!(!weights.any());
        weights.take(vec![row(2, 0.3, 0), row(0, 0.1, 2), row(1, 0.2, 0)]);
        let sum = weights.sum([0, 1, 2, 3].into_iter());
        assert_eq!((sum.read, sum.nan, sum.zeros, sum.count), (3, 2, 3, 30));
        assert_eq!((sum.std, sum.abs_max), (Some(0.2), Some(1.2)));
        assert_eq!((sum.min, sum.max), (Some(-0.3), Some(1.2)));
        assert_eq!(weights.get(3), None);
        assert_eq!(sum.measure(StatisticsField::Nan), Some(2.0));
    }

    #[test]
    fn percentages_never_round_to_0_or_100() {
        let texts = [(0, 10), (1, 100_000), (5, 100), (999_999, 1_000_000), (10, 10)];
        let texts = texts.map(|(part, whole)| percent(part, whole));
        assert_eq!(texts, ["0 %", "<0.1 %", "5.0 %", ">99.9 %", "100 %"]);
    }

    #[test]
    fn numbers_have_four_digits() {
        let texts = [0.0186251, -0.0186251, 1e-9, 3.5e12, 0.0, 0.02, 123456.0].map(number);
        assert_eq!(
            texts,
            ["0.01863", "\u{2212}0.01863", "1e\u{2212}9", "3.5e12", "0", "0.02", "123456"]
        );
        let texts = [0.02, 4.0, 0.126, -1.9e-6, f64::INFINITY].map(figure);
        assert_eq!(texts, ["0.02000", "4", "0.1260", "\u{2212}1.900e\u{2212}6", "inf"]);
    }
}
