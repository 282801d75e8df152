//! What a comparison found.

use statelens_checkpoint::{Result, Text, float_repr, order};

use super::{Numbers, pairs::Pair};
use crate::{Json, shape_text};

/// What a comparison found. Nothing in it means that the checkpoints match.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    /// The differences, in the order of the left side's keys; then keys that are only right.
    pub differences: Vec<Difference>,
    /// Keys that are on both sides.
    pub keys: u64,
    /// Tensors, or parts of one, whose elements were compared.
    pub tensors: u64,
    /// Of those, how many match only within the tolerance.
    pub close: u64,
    /// Their elements together.
    pub elements: u64,
    /// NaNs that were taken as equal for being in the same place.
    pub nan: u64,
}

/// One difference.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// The flat key.
    pub key: Text,
    /// Which part of a sparse or quantised tensor; empty for the whole.
    pub part: String,
    /// What differs.
    pub what: What,
    order: usize,
}

/// The ways in which two checkpoints can differ at a key.
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// The key is only on the left; what is there.
    OnlyLeft(String),
    /// The key is only on the right; what is there.
    OnlyRight(String),
    /// The values are of different kinds.
    Type {
        /// What is on the left.
        left: String,
        /// What is on the right.
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
    /// A tensor can't be read, so that nobody knows; why.
    Unreadable(String),
}

impl Report {
    /// Whether the checkpoints match.
    pub fn matches(&self) -> bool {
        self.differences.is_empty()
    }

    pub(super) fn differ(&mut self, order: usize, key: &Text, part: &str, what: What) {
        self.differences.push(Difference { key: key.clone(), part: part.to_owned(), what, order });
    }

    /// Notes what came of a pair of tensors; no numbers means that they are equal constants.
    pub(super) fn compared(&mut self, pair: &Pair, outcome: Result<Option<Numbers>>) {
        let what = match outcome {
            Err(error) => What::Unreadable(error.to_string()),
            Ok(numbers) => {
                let numbers = numbers.unwrap_or_default();
                self.tensors += 1;
                self.elements = self.elements.saturating_add(numbers.elements);
                if numbers.differing == 0 {
                    self.close += u64::from(numbers.unequal > 0);
                    self.nan += numbers.left_nan.min(numbers.right_nan);
                    return;
                }
                let first = unravel(numbers.first.unwrap_or(0), &pair.shape);
                What::Elements(Box::new(numbers), first)
            }
        };
        for (order, key, part) in &pair.places {
            self.differ(*order, key, part, what.clone());
        }
    }

    pub(super) fn sort(&mut self) {
        order::by_key(&mut self.differences, |difference| difference.order);
    }

    /// As JSON. Numbers that are not finite are strings.
    pub fn json(&self) -> String {
        let mut json = Json::new();
        json.object(|json| {
            json.name("statelens").number(1);
            json.name("matches").bool(self.matches());
            json.name("keys").number(self.keys);
            json.name("tensors").number(self.tensors);
            json.name("elements").number(self.elements);
            json.name("close").number(self.close);
            json.name("equal_nans").number(self.nan);
            json.name("differences").array(|json| {
                self.differences.iter().for_each(|difference| difference.json(json));
            });
        });
        json.take()
    }
}

impl Difference {
    /// Which leaf it is about, counted over those of the left side and then those of the right.
    pub fn leaf(&self) -> usize {
        self.order
    }

    /// What differs, in a short line without the key.
    pub fn text(&self) -> String {
        let of = match self.part.as_str() {
            "" => String::new(),
            part => format!("{part}: "),
        };
        let text = match &self.what {
            What::OnlyLeft(what) => format!("only left: {what}"),
            What::OnlyRight(what) => format!("only right: {what}"),
            What::Type { left, right } => format!("type: {left} / {right}"),
            What::Shape { left, right } => {
                format!("shape: {} / {}", shape_text(left), shape_text(right))
            }
            What::DType { left, right } => format!("dtype: {left} / {right}"),
            What::Value { left, right } => format!("value: {left} / {right}"),
            What::Unreadable(why) => format!("can't be compared: {why}"),
            What::Elements(numbers, first) => elements_text(numbers, first),
        };
        of + &text
    }

    fn json(&self, json: &mut Json) {
        json.object(|json| {
            json.name("key").text(&self.key);
            if !self.part.is_empty() {
                json.name("part").str(&self.part);
            }
            let mut sides = |what: &str, left: &str, right: &str| {
                json.name("what").str(what);
                json.name("left").str(left);
                json.name("right").str(right);
            };
            match &self.what {
                What::Type { left, right } => sides("type", left, right),
                What::DType { left, right } => sides("dtype", left, right),
                What::Value { left, right } => sides("value", left, right),
                What::OnlyLeft(what) => {
                    json.name("what").str("only_left");
                    json.name("left").str(what);
                }
                What::OnlyRight(what) => {
                    json.name("what").str("only_right");
                    json.name("right").str(what);
                }
                What::Shape { left, right } => {
                    json.name("what").str("shape");
                    json.name("left").numbers(left);
                    json.name("right").numbers(right);
                }
                What::Unreadable(why) => {
                    json.name("what").str("unreadable");
                    json.name("why").str(why);
                }
                What::Elements(numbers, first) => {
                    json.name("what").str("elements");
                    json.name("elements").number(numbers.elements);
                    json.name("differing").number(numbers.differing);
                    json.name("unequal").number(numbers.unequal);
                    json.name("first").numbers(first);
                    if numbers.numeric {
                        json.name("left_nan").number(numbers.left_nan);
                        json.name("right_nan").number(numbers.right_nan);
                        json.name("finite").number(numbers.finite);
                        float(json.name("max_abs"), Some(numbers.max_abs));
                        float(json.name("max_rel"), Some(numbers.max_rel));
                        float(json.name("mse"), numbers.mse());
                        float(json.name("cosine"), numbers.cosine());
                    }
                }
            }
        });
    }
}

fn float(json: &mut Json, value: Option<f64>) {
    match value {
        None => json.null(),
        Some(value) => json.float(value),
    }
}

fn elements_text(numbers: &Numbers, first: &[u64]) -> String {
    let mut text = format!(
        "elements: {} of {} differ, first at {}",
        numbers.differing,
        numbers.elements,
        shape_text(first)
    );
    if !numbers.numeric {
        return text;
    }
    let short = |value: f64| match value.is_finite() {
        true => format!("{value:.3e}"),
        false => float_repr(value),
    };
    if numbers.finite > 0 {
        text +=
            &format!(", max abs {}, max rel {}", short(numbers.max_abs), short(numbers.max_rel));
    }
    if let Some(mse) = numbers.mse() {
        text += &format!(", MSE {}", short(mse));
    }
    if let Some(cosine) = numbers.cosine() {
        text += &format!(", cosine {cosine:.6}");
    }
    if numbers.left_nan + numbers.right_nan > 0 {
        text += &format!(", NaN {} / {}", numbers.left_nan, numbers.right_nan);
    }
    text
}

/// The index in each dimension of an element that is counted in C order.
pub(crate) fn unravel(mut index: u64, shape: &[u64]) -> Vec<u64> {
    let mut place = vec![0; shape.len()];
    for (at, dim) in place.iter_mut().zip(shape).rev() {
        *at = index % (*dim).max(1);
        index /= (*dim).max(1);
    }
    place
}
