//! Conditions on the statistics of a tensor: `nan>0`, `zeros>50%`.

use std::str::FromStr;

use statelens_stats::Statistics;

use crate::SummaryStatistics;

/// A statistic of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StatisticsField {
    /// The number of elements.
    Count,
    /// The number of NaN.
    Nan,
    /// The number of infinities.
    Inf,
    /// The number of positive infinities.
    PosInf,
    /// The number of negative infinities.
    NegInf,
    /// The number of zeros.
    Zeros,
    /// The number of subnormal numbers.
    Subnormal,
    /// The smallest number.
    Min,
    /// The largest number.
    Max,
    /// The mean.
    Mean,
    /// The standard deviation.
    Std,
    /// The sum of magnitudes.
    L1,
    /// The root of the sum of squares.
    L2,
    /// The mean magnitude.
    AbsMean,
    /// The largest magnitude.
    AbsMax,
    /// The kurtosis.
    Kurtosis,
    /// The number of elements that are more than six standard deviations from the mean.
    Beyond6Std,
}

impl StatisticsField {
    /// All statistics by name.
    pub const ALL: [(&str, Self); 17] = [
        ("count", Self::Count),
        ("nan", Self::Nan),
        ("inf", Self::Inf),
        ("pos_inf", Self::PosInf),
        ("neg_inf", Self::NegInf),
        ("zeros", Self::Zeros),
        ("subnormal", Self::Subnormal),
        ("min", Self::Min),
        ("max", Self::Max),
        ("mean", Self::Mean),
        ("std", Self::Std),
        ("l1", Self::L1),
        ("l2", Self::L2),
        ("abs_mean", Self::AbsMean),
        ("abs_max", Self::AbsMax),
        ("kurtosis", Self::Kurtosis),
        ("beyond_6_std", Self::Beyond6Std),
    ];

    /// Returns the statistic with a name, in any case; `absmax` is another name of `abs_max`.
    pub fn named(name: &str) -> Option<Self> {
        let name = if name.eq_ignore_ascii_case("absmax") { "abs_max" } else { name };
        let found = Self::ALL.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, field)| *field)
    }

    /// Returns the number of this statistic; `None` if it is missing.
    pub fn of(self, of: &Statistics) -> Option<f64> {
        let count = |count: u64| Some(count as f64);
        match self {
            Self::Count => count(of.count),
            Self::Nan => count(of.nan),
            Self::Inf => count(of.pos_inf + of.neg_inf),
            Self::PosInf => count(of.pos_inf),
            Self::NegInf => count(of.neg_inf),
            Self::Zeros => count(of.zeros),
            Self::Subnormal => count(of.subnormal),
            Self::Min => of.min,
            Self::Max => of.max,
            Self::Mean => of.mean,
            Self::Std => of.std,
            Self::L1 => of.l1,
            Self::L2 => of.l2,
            Self::AbsMean => of.abs_mean,
            Self::AbsMax => of.abs_max.map(|(value, _)| value),
            Self::Kurtosis => of.kurtosis,
            Self::Beyond6Std => count(of.beyond_6_std),
        }
    }

    /// Returns the number of this statistic in a summary; `None` if summaries lack it.
    pub fn of_summary(self, of: &SummaryStatistics) -> Option<f64> {
        match self {
            Self::Count => Some(of.count as f64),
            Self::Nan => Some(of.nan as f64),
            Self::Inf => Some(of.infinite as f64),
            Self::Zeros => Some(of.zeros as f64),
            Self::Min => of.min,
            Self::Max => of.max,
            Self::Mean => of.mean,
            Self::Std => of.std,
            Self::AbsMax => of.abs_max(),
            _ => None,
        }
    }

    /// Returns whether it is a number of elements, which may be a percentage.
    pub fn counts(self) -> bool {
        matches!(
            self,
            Self::Nan
                | Self::Inf
                | Self::PosInf
                | Self::NegInf
                | Self::Zeros
                | Self::Subnormal
                | Self::Beyond6Std
        )
    }
}

/// A condition on a statistic of a tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    field: StatisticsField,
    comparison: Comparison,
    number: f64,
    /// The number is that of a hundred values.
    percent: bool,
}

/// A comparison of two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `=` or `==`
    Equal,
    /// `!=`
    Other,
    /// `>=`
    AtLeast,
    /// `>`
    More,
}

impl Comparison {
    /// The signs; one that begins with another comes before it.
    pub const SIGNS: [(&str, Self); 7] = [
        ("<=", Self::AtMost),
        (">=", Self::AtLeast),
        ("!=", Self::Other),
        ("==", Self::Equal),
        ("<", Self::Less),
        (">", Self::More),
        ("=", Self::Equal),
    ];

    /// Returns the comparison at the start of a text, and the text after its sign.
    pub fn strip(text: &str) -> Option<(Self, &str)> {
        Self::SIGNS.iter().find_map(|(sign, it)| Some((*it, text.strip_prefix(sign)?)))
    }

    /// Returns whether it holds.
    pub fn holds<T: PartialOrd>(self, value: T, limit: T) -> bool {
        match self {
            Self::Less => value < limit,
            Self::AtMost => value <= limit,
            Self::Equal => value == limit,
            Self::Other => value != limit,
            Self::AtLeast => value >= limit,
            Self::More => value > limit,
        }
    }
}

impl Condition {
    /// Compares a statistic with a number, with `percent` with that number of a hundred values.
    /// `None` if the statistic is not a count, and so not a percentage.
    pub fn new(
        field: StatisticsField,
        comparison: Comparison,
        number: f64,
        percent: bool,
    ) -> Option<Self> {
        let known = !percent || field.counts();
        known.then_some(Self { field, comparison, number, percent })
    }

    /// Returns whether the condition holds; false if there is no number.
    pub fn holds(&self, of: &Statistics) -> bool {
        self.holds_for(self.field.of(of), of.count)
    }

    /// Returns whether the condition holds for a summary; false if there is no number.
    pub fn holds_in(&self, of: &SummaryStatistics) -> bool {
        self.holds_for(self.field.of_summary(of), of.count)
    }

    fn holds_for(&self, value: Option<f64>, count: u64) -> bool {
        let Some(mut value) = value else { return false };
        if self.percent {
            value = value / count.max(1) as f64 * 100.0;
        }
        self.comparison.holds(value, self.number)
    }
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Comparison::SIGNS.iter().find_map(|(sign, comparison)| {
            let (name, number) = text.split_once(sign)?;
            Some((name.trim(), *comparison, number.trim()))
        });
        let Some((name, comparison, number)) = found else {
            return Err("expected a comparison such as nan>0 or std<1e-6".into());
        };
        let field = StatisticsField::named(name).ok_or_else(|| {
            let names = StatisticsField::ALL.map(|(name, _)| name);
            format!("unknown statistic `{name}`; known are {}", names.join(", "))
        })?;
        let (number, percent) = match number.strip_suffix('%') {
            Some(number) => (number.trim(), true),
            None => (number, false),
        };
        let not_counted = || format!("`{name}` is not a count, so it can't be a percentage");
        if percent && !field.counts() {
            return Err(not_counted());
        }
        let number = number.parse().map_err(|_| format!("`{number}` is not a number"))?;
        Self::new(field, comparison, number, percent).ok_or_else(not_counted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_conditions() {
        let of =
            Statistics { count: 8, nan: 2, zeros: 4, std: Some(1e-7), ..Statistics::default() };
        let is = |text: &str| text.parse::<Condition>().unwrap().holds(&of);
        assert!(is("nan>0") && is("nan = 2") && is("zeros>=50%") && is("std<1e-6") && is("inf==0"));
        assert!(!is("nan>2") && !is("zeros>50%") && !is("mean<5") && !is("nan!=2"));
        let of = SummaryStatistics { count: 8, zeros: 4, ..SummaryStatistics::default() };
        let is = |text: &str| text.parse::<Condition>().unwrap().holds_in(&of);
        assert!(is("zeros>=50%") && is("zeros=4") && !is("std<1") && !is("kurtosis<1"));
        for text in ["nan", "nope>1", "std>50%", "nan>x", "key=1", ""] {
            assert!(text.parse::<Condition>().is_err(), "{text}");
        }
    }
}
