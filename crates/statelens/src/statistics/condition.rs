//! Conditions on the statistics of a tensor: `nan>0`, `zeros>50%`.

use std::str::FromStr;

use statelens_values::Statistics;

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

    fn counts(self) -> bool {
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Less,
    AtMost,
    Equal,
    Other,
    AtLeast,
    More,
}

impl Condition {
    /// Returns whether the condition holds; false if there is no number.
    pub fn holds(&self, of: &Statistics) -> bool {
        let Some(mut value) = self.field.of(of) else { return false };
        if self.percent {
            value = value / of.count.max(1) as f64 * 100.0;
        }
        match self.comparison {
            Comparison::Less => value < self.number,
            Comparison::AtMost => value <= self.number,
            Comparison::Equal => value == self.number,
            Comparison::Other => value != self.number,
            Comparison::AtLeast => value >= self.number,
            Comparison::More => value > self.number,
        }
    }
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const SIGNS: [(&str, Comparison); 7] = [
            ("<=", Comparison::AtMost),
            (">=", Comparison::AtLeast),
            ("!=", Comparison::Other),
            ("==", Comparison::Equal),
            ("<", Comparison::Less),
            (">", Comparison::More),
            ("=", Comparison::Equal),
        ];
        let found = SIGNS.iter().find_map(|(sign, comparison)| {
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
        if percent && !field.counts() {
            return Err(format!("`{name}` is not a count, so it can't be a percentage"));
        }
        let number = number.parse().map_err(|_| format!("`{number}` is not a number"))?;
        Ok(Self { field, comparison, number, percent })
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
        for text in ["nan", "nope>1", "std>50%", "nan>x", "key=1", ""] {
            assert!(text.parse::<Condition>().is_err(), "{text}");
        }
    }
}
