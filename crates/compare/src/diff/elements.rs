//! How the elements of two tensors differ.

use serde::{Deserialize, Serialize};
use statelens_checkpoint::{float_repr, grouped, shape_text};
use statelens_stats::Spread;
use statelens_values::index;
use statelens_values::json::{float, optional_float};

use super::Numbers;

/// How the elements of two tensors differ.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ElementDifference {
    /// Number of elements of either tensor.
    #[serde(rename = "elements")]
    pub count: u64,
    /// Number of elements that do not match: unequal, or beyond the tolerance if there is one.
    pub differing: u64,
    /// Number of elements that are not equal, within the tolerance or not.
    pub unequal: u64,
    /// The index of the first element that does not match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<Vec<u64>>,
    /// How far apart they are; `None` if they are not numbers.
    #[serde(flatten)]
    pub distance: Option<Distance>,
}

/// The distance between two tensors of numbers. Figures are `None` if they are undefined.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Distance {
    /// Number of NaNs on the left.
    pub left_nan: u64,
    /// Number of NaNs on the right.
    pub right_nan: u64,
    /// Number of elements that are NaN on one side only.
    #[serde(rename = "nan_on_one_side")]
    pub one_nan: u64,
    /// Number of elements that are finite on both sides.
    pub finite: u64,
    /// The largest `|left - right|`.
    #[serde(with = "float")]
    pub max_abs: Option<f64>,
    /// The largest `|left - right| / |right|`.
    #[serde(with = "float")]
    pub max_rel: Option<f64>,
    /// The mean of the squared differences.
    #[serde(with = "float")]
    pub mse: Option<f64>,
    /// The cosine of the angle between both sides as vectors.
    #[serde(with = "float")]
    pub cosine: Option<f64>,
    /// The relative change, `‖left - right‖ / ‖right‖`.
    #[serde(with = "float")]
    pub change: Option<f64>,
    /// The distribution of the differences; `None` if nothing differs or has a distance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
    /// The largest `|left - right|` of the elements that are finite on both sides, if others do not
    /// have a finite distance; `Some(None)` if none are finite on both sides.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "optional_float")]
    pub finite_max_abs: Option<Option<f64>>,
}

/// The comparison of the numbers of two dtypes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NumericComparison {
    /// `equal`, `equal within the tolerance`, `equal at bfloat16 precision`, `NaN on one side` or
    /// `differ`.
    #[serde(rename = "values")]
    pub word: String,
    /// The coarser dtype.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub precision: Option<String>,
    /// Number of elements that differ with the finer side rounded to the coarser dtype.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beyond_precision: Option<u64>,
    /// The comparison with both sides widened exactly.
    #[serde(flatten)]
    pub elements: ElementDifference,
}

impl ElementDifference {
    /// Describes the distance of two tensors of this shape.
    pub(super) fn new(numbers: Numbers, shape: &[u64]) -> Self {
        let Numbers { elements: count, differing, unequal, .. } = numbers;
        let first = numbers.first.map(|first| index(shape, first));
        let all_finite = numbers.one_nan + numbers.far == 0;
        let finite_max_abs = (numbers.finite > 0).then_some(numbers.max_abs);
        let distance = numbers.numeric.then(|| Distance {
            left_nan: numbers.left_nan,
            right_nan: numbers.right_nan,
            one_nan: numbers.one_nan,
            finite: numbers.finite,
            max_abs: numbers.largest(),
            max_rel: numbers.largest_relative(),
            mse: numbers.mse(),
            cosine: numbers.cosine(),
            change: numbers.change(),
            finite_max_abs: (!all_finite).then_some(finite_max_abs),
            spread: numbers.spread,
        });
        Self { count, differing, unequal, first, distance }
    }

    /// Returns whether elements are NaN on one side only, so that figures are undefined.
    pub fn has_one_sided_nan(&self) -> bool {
        self.distance.as_ref().is_some_and(|distance| distance.one_nan > 0)
    }

    pub(super) fn text(&self) -> String {
        let mut text = match self.distance.as_ref().map_or(0, |distance| distance.one_nan) {
            0 => "elements: ".to_owned(),
            1 => "NaN: 1 element is NaN on one side only; ".to_owned(),
            count => format!("NaN: {} elements are NaN on one side only; ", grouped(count)),
        };
        text += &format!(
            "{} of {} differ, first at {}",
            grouped(self.differing),
            grouped(self.count),
            shape_text(self.first.as_deref().unwrap_or_default())
        );
        if let Some(distance) = &self.distance {
            text += &distance.text();
        }
        text
    }
}

impl Distance {
    /// Returns the largest `|left - right|`, or that of the elements which are finite on both sides if
    /// others have no distance.
    pub fn largest_finite(&self) -> Option<f64> {
        self.max_abs.or(self.finite_max_abs.flatten())
    }

    fn text(&self) -> String {
        let mut text = match (self.max_abs, self.max_rel, self.mse) {
            (Some(abs), Some(rel), Some(mse)) => {
                let cosine = match self.cosine {
                    Some(cosine) => format!("{cosine:.6}"),
                    None => "undefined".to_owned(),
                };
                let (abs, rel, mse) = (short(abs), short(rel), short(mse));
                format!(", max abs {abs}, max rel {rel}, MSE {mse}, cosine {cosine}")
            }
            _ => ", max abs, MSE and cosine undefined".to_owned(),
        };
        if let Some(change) = self.change {
            text += &format!(", relative change {}", short(change));
        }
        if let Some(Some(max)) = self.finite_max_abs {
            let count = grouped(self.finite);
            text += &format!(", max abs {} of the {count} finite on both sides", short(max));
        }
        if self.left_nan + self.right_nan > 0 {
            text += &format!(", NaN {} / {}", grouped(self.left_nan), grouped(self.right_nan));
        }
        text
    }
}

impl NumericComparison {
    /// Describes the comparison; `rounded` has the coarser dtype, and the number of elements that
    /// differ with the finer side rounded to it.
    pub(super) fn new(elements: ElementDifference, rounded: Option<(String, u64)>) -> Self {
        let word = match &rounded {
            _ if elements.unequal == 0 => "equal".to_owned(),
            _ if elements.differing == 0 => "equal within the tolerance".to_owned(),
            _ if elements.has_one_sided_nan() => "NaN on one side".to_owned(),
            Some((dtype, 0)) => format!("equal at {dtype} precision"),
            _ => "differ".to_owned(),
        };
        let (precision, beyond_precision) = rounded.unzip();
        Self { word, precision, beyond_precision, elements }
    }

    /// Returns whether a cast explains all differences: the values are equal, or equal at the
    /// coarser dtype's precision.
    pub fn is_cast(&self) -> bool {
        let rounded = self.beyond_precision == Some(0) && !self.elements.has_one_sided_nan();
        self.elements.differing == 0 || rounded
    }

    pub(super) fn text(&self) -> String {
        let elements = &self.elements;
        let largest = elements.distance.as_ref().and_then(|distance| distance.max_abs);
        let far = |what: &str| {
            largest.map_or_else(String::new, |most| {
                let (differing, count) = (grouped(elements.unequal), grouped(elements.count));
                format!(", {differing} of {count} {what}, max abs {}", short(most))
            })
        };
        if elements.unequal == 0 {
            return "the values are equal".to_owned();
        }
        if elements.differing == 0 {
            return format!("the values are equal within the tolerance{}", far("differ"));
        }
        match self.precision.as_ref().zip(self.beyond_precision) {
            Some((dtype, 0)) if !elements.has_one_sided_nan() => {
                format!("the values are equal at {dtype} precision{}", far("were rounded"))
            }
            Some((dtype, beyond)) => {
                format!("{}, {} of them beyond {dtype} precision", elements.text(), grouped(beyond))
            }
            None => elements.text(),
        }
    }
}

fn short(value: f64) -> String {
    match value.is_finite() {
        true => format!("{value:.3e}"),
        false => float_repr(value),
    }
}
