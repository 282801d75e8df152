//! The result of a comparison.

use serde::{Deserialize, Serialize};
use statelens_checkpoint::{Text, float_repr, grouped, order, shape_text};
use statelens_values::Json;

use super::{Numbers, Optimizers, PairChange};

/// The result of a comparison. The checkpoints match if there are no differences.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ComparisonReport {
    /// The differences, in the order of the left side's keys; then keys that are only on the right.
    pub differences: Vec<Difference>,
    /// Number of keys that are on both sides.
    pub keys: u64,
    /// Number of tensors, or parts of tensors, whose elements were compared.
    pub tensors: u64,
    /// How many of these match only within the tolerance.
    pub close: u64,
    /// The total number of their elements.
    pub elements: u64,
    /// Number of NaNs that were taken as equal because they are in the same place.
    pub nan: u64,
    /// Norms and deviations of all compared pairs of tensors, including equal ones.
    pub changes: Vec<PairChange>,
}

/// One difference.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// The flat key.
    pub key: Text,
    /// The part of a sparse or quantised tensor; empty for the whole.
    pub part: String,
    /// The kind of difference.
    pub kind: DifferenceKind,
    order: usize,
}

/// The ways in which two checkpoints can differ at a key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum DifferenceKind {
    /// The key is only on the left; describes its value.
    OnlyLeft(String),
    /// The key is only on the right; describes its value.
    OnlyRight(String),
    /// The values are of different kinds.
    Type {
        /// The value on the left.
        left: String,
        /// The value on the right.
        right: String,
    },
    /// Tensors of different shapes.
    Shape {
        /// The shape on the left.
        left: Vec<u64>,
        /// The shape on the right.
        right: Vec<u64>,
    },
    /// Tensors of different dtypes.
    DType {
        /// The dtype on the left.
        left: String,
        /// The dtype on the right.
        right: String,
        /// The comparison of their numbers; `None` if they are not comparable.
        values: Option<Box<NumericComparison>>,
    },
    /// Plain values that differ.
    Value {
        /// The value on the left.
        left: String,
        /// The value on the right.
        right: String,
    },
    /// Elements of tensors that differ, and the index of the first.
    Elements(Box<Numbers>, Vec<u64>),
    /// A tensor can't be read, so it was not compared; the reason.
    Unreadable(String),
}

impl DifferenceKind {
    /// Returns how far apart the elements are, and the index of the first that differs; `None` if
    /// they were not compared.
    pub fn numbers(&self) -> Option<(&Numbers, &[u64])> {
        match self {
            Self::Elements(numbers, first) => Some((numbers, first)),
            Self::DType { values, .. } => values.as_ref().map(|of| (&of.numbers, &*of.first)),
            _ => None,
        }
    }

    /// Returns whether elements are NaN on one side only, so that no distance is defined.
    pub fn has_one_sided_nan(&self) -> bool {
        self.numbers().is_some_and(|(numbers, _)| numbers.one_nan > 0)
    }

    /// Returns the value on the left, or why it can't be read, and the value on the right. A
    /// missing value is empty.
    pub fn sides(&self) -> (String, String) {
        match self {
            Self::OnlyLeft(text) | Self::Unreadable(text) => (text.clone(), String::new()),
            Self::OnlyRight(text) => (String::new(), text.clone()),
            Self::Type { left, right }
            | Self::DType { left, right, .. }
            | Self::Value { left, right } => (left.clone(), right.clone()),
            Self::Shape { left, right } => (shape_text(left), shape_text(right)),
            Self::Elements(..) => Default::default(),
        }
    }
}

/// The comparison of the numbers of two dtypes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NumericComparison {
    /// The comparison with both sides widened exactly.
    pub numbers: Numbers,
    /// The index of the first element that differs.
    pub first: Vec<u64>,
    /// The coarser dtype, and the number of elements that differ with the finer side rounded to it.
    pub rounded: Option<(String, u64)>,
}

impl NumericComparison {
    /// Returns `equal`, `equal at bfloat16 precision`, `NaN on one side` or `differ`.
    pub fn word(&self) -> String {
        match (&self.rounded, &self.numbers) {
            (_, numbers) if numbers.differing == 0 => "equal".to_owned(),
            (_, numbers) if numbers.one_nan > 0 => "NaN on one side".to_owned(),
            (Some((dtype, 0)), _) => format!("equal at {dtype} precision"),
            _ => "differ".to_owned(),
        }
    }

    fn text(&self) -> String {
        let numbers = &self.numbers;
        if numbers.differing == 0 {
            return "the values are equal".to_owned();
        }
        match &self.rounded {
            Some((dtype, 0)) if numbers.one_nan == 0 => {
                let far = numbers.largest().map_or_else(String::new, |most| {
                    format!(
                        ", {} of {} were rounded, max abs {}",
                        grouped(numbers.differing),
                        grouped(numbers.elements),
                        short(most)
                    )
                });
                format!("the values are equal at {dtype} precision{far}")
            }
            Some((dtype, beyond)) => format!(
                "{}, {} of them beyond {dtype} precision",
                elements_text(numbers, &self.first),
                grouped(*beyond)
            ),
            None => elements_text(numbers, &self.first),
        }
    }
}

impl ComparisonReport {
    /// Returns whether the checkpoints match.
    pub fn matches(&self) -> bool {
        self.differences.is_empty()
    }

    pub(super) fn differ(&mut self, order: usize, key: &Text, part: &str, what: DifferenceKind) {
        self.differences.push(Difference {
            key: key.clone(),
            part: part.to_owned(),
            kind: what,
            order,
        });
    }

    pub(super) fn sort(&mut self) {
        order::by_key(&mut self.differences, |difference| difference.order);
    }

    /// Sorts by size of the change: first differences that can't be measured (missing keys, other
    /// shapes, NaN on one side), then by descending relative change.
    pub fn sort_by_change(&mut self) {
        let change = |difference: &Difference| difference.kind.numbers()?.0.change();
        let most = |difference: &Difference| change(difference).unwrap_or(f64::INFINITY);
        self.differences.sort_by(|one, other| {
            let measured = |one: &Difference| change(one).is_some();
            measured(one).cmp(&measured(other)).then(most(other).total_cmp(&most(one)))
        });
    }

    /// Returns the report as JSON, with the parameters of optimizers' entries. Numbers that are not
    /// finite are strings.
    pub fn json(&self, optimizers: &Optimizers) -> String {
        let mut json = Json::new();
        json.object(|json| self.fields(optimizers, json));
        json.take()
    }

    /// Writes the fields of [`ComparisonReport::json`].
    pub fn fields(&self, optimizers: &Optimizers, json: &mut Json) {
        json.name("statelens").number(1);
        json.name("matches").bool(self.matches());
        json.name("keys").number(self.keys);
        json.name("tensors").number(self.tensors);
        json.name("params").number(self.elements);
        json.name("close").number(self.close);
        json.name("equal_nans").number(self.nan);
        json.name("differences").array(|json| {
            for difference in &self.differences {
                difference.json(json, optimizers.keys(&difference.key.to_lossy()));
            }
        });
    }
}

impl Difference {
    /// Returns the index of the leaf that differs, among those of the left side followed by those
    /// of the right.
    pub fn leaf(&self) -> usize {
        self.order
    }

    /// Describes the difference in a short line without the key.
    pub fn text(&self) -> String {
        let of = match self.part.as_str() {
            "" => String::new(),
            part => format!("{part}: "),
        };
        let text = match &self.kind {
            DifferenceKind::OnlyLeft(what) => format!("only left: {what}"),
            DifferenceKind::OnlyRight(what) => format!("only right: {what}"),
            DifferenceKind::Type { left, right } => format!("type: {left} / {right}"),
            DifferenceKind::Shape { left, right } => {
                format!("shape: {} / {}", shape_text(left), shape_text(right))
            }
            DifferenceKind::DType { left, right, values: None } => {
                format!("dtype: {left} / {right}")
            }
            DifferenceKind::DType { left, right, values: Some(values) } => {
                format!("dtype: {left} / {right}; {}", values.text())
            }
            DifferenceKind::Value { left, right } => format!("value: {left} / {right}"),
            DifferenceKind::Unreadable(why) => format!("can't be compared: {why}"),
            DifferenceKind::Elements(numbers, first) => elements_text(numbers, first),
        };
        of + &text
    }

    fn json(&self, json: &mut Json, parameter: Option<(&str, Option<&str>)>) {
        json.object(|json| {
            json.name("key").text(&self.key);
            if let Some((parameter, right)) = parameter {
                json.name("parameter").str(parameter);
                if let Some(right) = right {
                    json.name("right_parameter").str(right);
                }
            }
            if !self.part.is_empty() {
                json.name("part").str(&self.part);
            }
            let mut sides = |what: &str, left: &str, right: &str| {
                json.name("what").str(what);
                json.name("left").str(left);
                json.name("right").str(right);
            };
            match &self.kind {
                DifferenceKind::Type { left, right } => sides("type", left, right),
                DifferenceKind::DType { left, right, values } => {
                    sides("dtype", left, right);
                    if let Some(values) = values {
                        json.name("values").str(&values.word());
                        if let Some((dtype, beyond)) = &values.rounded {
                            json.name("precision").str(dtype);
                            json.name("beyond_precision").number(*beyond);
                        }
                        numbers_json(json, &values.numbers, &values.first);
                    }
                }
                DifferenceKind::Value { left, right } => sides("value", left, right),
                DifferenceKind::OnlyLeft(what) => {
                    json.name("what").str("only_left");
                    json.name("left").str(what);
                }
                DifferenceKind::OnlyRight(what) => {
                    json.name("what").str("only_right");
                    json.name("right").str(what);
                }
                DifferenceKind::Shape { left, right } => {
                    json.name("what").str("shape");
                    json.name("left").numbers(left);
                    json.name("right").numbers(right);
                }
                DifferenceKind::Unreadable(why) => {
                    json.name("what").str("unreadable");
                    json.name("why").str(why);
                }
                DifferenceKind::Elements(numbers, first) => {
                    json.name("what").str(if numbers.one_nan > 0 { "nan" } else { "elements" });
                    numbers_json(json, numbers, first);
                }
            }
        });
    }
}

fn numbers_json(json: &mut Json, numbers: &Numbers, first: &[u64]) {
    json.name("params").number(numbers.elements);
    json.name("differing").number(numbers.differing);
    json.name("unequal").number(numbers.unequal);
    if numbers.differing > 0 {
        json.name("first").numbers(first);
    }
    if !numbers.numeric {
        return;
    }
    json.name("left_nan").number(numbers.left_nan);
    json.name("right_nan").number(numbers.right_nan);
    json.name("nan_on_one_side").number(numbers.one_nan);
    json.name("finite").number(numbers.finite);
    json.name("max_abs").float(numbers.largest());
    json.name("max_rel").float(numbers.largest_relative());
    json.name("mse").float(numbers.mse());
    json.name("cosine").float(numbers.cosine());
    json.name("change").float(numbers.change());
    if let Some(spread) = &numbers.spread {
        json.name("spread").object(|json| {
            json.name("within").float(Some(spread.within));
            json.name("counts").numbers(&spread.counts);
        });
    }
    if numbers.one_nan + numbers.far > 0 {
        json.name("finite_max_abs").float((numbers.finite > 0).then_some(numbers.max_abs));
    }
}

fn short(value: f64) -> String {
    match value.is_finite() {
        true => format!("{value:.3e}"),
        false => float_repr(value),
    }
}

fn elements_text(numbers: &Numbers, first: &[u64]) -> String {
    let mut text = match numbers.one_nan {
        0 => "elements: ".to_owned(),
        1 => "NaN: 1 element is NaN on one side only; ".to_owned(),
        count => format!("NaN: {} elements are NaN on one side only; ", grouped(count)),
    };
    text += &format!(
        "{} of {} differ, first at {}",
        grouped(numbers.differing),
        grouped(numbers.elements),
        shape_text(first)
    );
    if !numbers.numeric {
        return text;
    }
    match (numbers.largest(), numbers.largest_relative(), numbers.mse()) {
        (Some(abs), Some(rel), Some(mse)) => {
            text +=
                &format!(", max abs {}, max rel {}, MSE {}", short(abs), short(rel), short(mse));
            text += &match numbers.cosine() {
                Some(cosine) => format!(", cosine {cosine:.6}"),
                None => ", cosine undefined".to_owned(),
            };
            if let Some(change) = numbers.change() {
                text += &format!(", relative change {}", short(change));
            }
        }
        _ => text += ", max abs, MSE and cosine undefined",
    }
    if numbers.one_nan + numbers.far > 0 && numbers.finite > 0 {
        let finite = short(numbers.max_abs);
        let count = grouped(numbers.finite);
        text += &format!(", max abs {finite} of the {count} finite on both sides");
    }
    if numbers.left_nan + numbers.right_nan > 0 {
        let (left, right) = (grouped(numbers.left_nan), grouped(numbers.right_nan));
        text += &format!(", NaN {left} / {right}");
    }
    text
}
