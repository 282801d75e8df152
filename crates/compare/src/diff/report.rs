//! The result of a comparison.

use serde::{Deserialize, Serialize};
use statelens_checkpoint::{Text, order, shape_text};
use statelens_values::{fields, report_json};

use super::{Distance, ElementDifference, NumericComparison, Optimizers, PairChange};

/// The result of a comparison. The checkpoints match if there are no differences.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct ComparisonReport {
    /// Number of keys that are on both sides.
    pub keys: u64,
    /// Number of tensors, or parts of tensors, whose elements were compared.
    pub tensors: u64,
    /// The total number of their elements.
    #[serde(rename = "elements")]
    pub elements: u64,
    /// How many of the tensors match only within the tolerance.
    pub close: u64,
    /// Number of NaNs that count as equal because they are in the same place.
    #[serde(rename = "equal_nans")]
    pub nan: u64,
    /// Whether optimizer entries that differ were compared by their numbers, because only those of one
    /// side are known to belong to certain parameters.
    pub by_number: bool,
    /// The differences, in the order of the left side's keys; then keys that are only on the right.
    pub differences: Vec<Difference>,
    /// Norms and deviations of all compared pairs of tensors, including equal ones.
    #[serde(skip)]
    pub changes: Vec<PairChange>,
    /// Number of keys with a tensor on one side and a NumPy array on the other.
    #[serde(skip)]
    pub array_kinds: u64,
    #[serde(skip)]
    optimizers: Optimizers,
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// The flat key.
    pub key: Text,
    /// The parameter that an optimizer entry belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameter: Option<String>,
    /// The parameter of the right side, if it is a different one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub right_parameter: Option<String>,
    /// The part of a sparse or quantised tensor; empty for the whole.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub part: String,
    /// The kind of difference.
    #[serde(flatten)]
    pub kind: DifferenceKind,
    #[serde(skip)]
    order: usize,
}

/// The ways in which two checkpoints can differ at a key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum DifferenceKind {
    /// The key is only on the left.
    OnlyLeft {
        /// Describes its value.
        left: String,
    },
    /// The key is only on the right.
    OnlyRight {
        /// Describes its value.
        right: String,
    },
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
        /// The comparison of the part that both have; `None` if it was not compared.
        #[serde(flatten)]
        values: Option<Box<NumericComparison>>,
    },
    /// Tensors of different dtypes.
    #[serde(rename = "dtype")]
    DType {
        /// The dtype on the left.
        left: String,
        /// The dtype on the right.
        right: String,
        /// The comparison of their numbers; `None` if they are not comparable.
        #[serde(flatten)]
        values: Option<Box<NumericComparison>>,
    },
    /// Plain values that differ.
    Value {
        /// The value on the left.
        left: String,
        /// The value on the right.
        right: String,
    },
    /// Elements of tensors that differ.
    Elements(Box<ElementDifference>),
    /// Elements of tensors that differ, some of which are NaN on one side only.
    Nan(Box<ElementDifference>),
    /// A tensor can't be read, so it was not compared.
    Unreadable {
        /// The reason.
        why: String,
    },
}

impl DifferenceKind {
    /// Returns how the elements differ; `None` if they were not compared.
    pub fn elements(&self) -> Option<&ElementDifference> {
        match self {
            Self::Elements(elements) | Self::Nan(elements) => Some(elements),
            Self::DType { values, .. } | Self::Shape { values, .. } => {
                values.as_ref().map(|of| &of.elements)
            }
            _ => None,
        }
    }

    /// Returns how far apart the elements are; `None` if they are not numbers, or were not compared.
    pub fn distance(&self) -> Option<&Distance> {
        self.elements()?.distance.as_ref()
    }

    /// Returns whether elements are NaN on one side only, so that no distance is defined.
    pub fn has_one_sided_nan(&self) -> bool {
        self.elements().is_some_and(ElementDifference::has_one_sided_nan)
    }

    /// Returns the value on the left, or why it can't be read, and the value on the right. A
    /// missing value is empty.
    pub fn sides(&self) -> (String, String) {
        match self {
            Self::OnlyLeft { left: text } | Self::Unreadable { why: text } => {
                (text.clone(), String::new())
            }
            Self::OnlyRight { right } => (String::new(), right.clone()),
            Self::Type { left, right }
            | Self::DType { left, right, .. }
            | Self::Value { left, right } => (left.clone(), right.clone()),
            Self::Shape { left, right, .. } => (shape_text(left), shape_text(right)),
            Self::Elements(_) | Self::Nan(_) => Default::default(),
        }
    }
}

impl ComparisonReport {
    pub(super) fn new(optimizers: Optimizers) -> Self {
        Self { optimizers, ..Self::default() }
    }

    /// Returns whether the checkpoints match.
    pub fn matches(&self) -> bool {
        self.differences.is_empty()
    }

    pub(super) fn differ(&mut self, order: usize, key: &Text, part: &str, what: DifferenceKind) {
        let [left, right] = self.optimizers.parameters(&key.to_lossy());
        let (parameter, right_parameter) = match (&what, left, right) {
            (DifferenceKind::OnlyLeft { .. }, left, _) => (left, None),
            (DifferenceKind::OnlyRight { .. }, _, right) => (right, None),
            (_, Some(left), Some(right)) => (Some(left), Some(right).filter(|it| *it != left)),
            (_, None, None) => (None, None),
            // An entry of the same number may be of another parameter.
            _ => {
                self.by_number = true;
                (None, None)
            }
        };
        let (parameter, right_parameter) = (parameter.cloned(), right_parameter.cloned());
        self.differences.push(Difference {
            key: key.clone(),
            parameter,
            right_parameter,
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
        let change = |one: &Difference| match one.kind {
            DifferenceKind::Shape { .. } => None,
            _ => one.kind.distance()?.change,
        };
        let most = |difference: &Difference| change(difference).unwrap_or(f64::INFINITY);
        self.differences.sort_by(|one, other| {
            let measured = |one: &Difference| change(one).is_some();
            measured(one).cmp(&measured(other)).then(most(other).total_cmp(&most(one)))
        });
    }

    /// Returns the report as JSON. Numbers that are not finite are strings.
    pub fn json(&self) -> String {
        report_json(&self.with_verdict())
    }

    /// Returns the fields of [`ComparisonReport::json`].
    pub fn with_verdict(&self) -> impl Serialize {
        fields! {
            matches: self.matches(),
            #[serde(flatten)]
            report: self,
        }
    }
}

impl Difference {
    /// Returns the index of the leaf that differs, among those of the left side followed by those
    /// of the right.
    pub fn leaf(&self) -> usize {
        self.order
    }

    /// Returns the parameter of an optimizer entry in backticks; both parameters if those of the two
    /// sides differ.
    pub fn parameter_text(&self) -> Option<String> {
        let left = self.parameter.as_ref()?;
        Some(match &self.right_parameter {
            Some(right) => format!("`{left}` / `{right}`"),
            None => format!("`{left}`"),
        })
    }

    /// Describes the difference in a short line without the key.
    pub fn text(&self) -> String {
        let of = match self.part.as_str() {
            "" => String::new(),
            part => format!("{part}: "),
        };
        let text = match &self.kind {
            DifferenceKind::OnlyLeft { left } => format!("only left: {left}"),
            DifferenceKind::OnlyRight { right } => format!("only right: {right}"),
            DifferenceKind::Type { left, right } => format!("type: {left} / {right}"),
            DifferenceKind::Shape { left, right, values } => {
                let shapes = format!("shape: {} / {}", shape_text(left), shape_text(right));
                let common: Vec<u64> =
                    left.iter().zip(right).map(|(one, other)| *one.min(other)).collect();
                match values {
                    None => shapes,
                    Some(values) => {
                        format!(
                            "{shapes}; in the common {}, {}",
                            shape_text(&common),
                            values.text()
                        )
                    }
                }
            }
            DifferenceKind::DType { left, right, values: None } => {
                format!("dtype: {left} / {right}")
            }
            DifferenceKind::DType { left, right, values: Some(values) } => {
                format!("dtype: {left} / {right}; {}", values.text())
            }
            DifferenceKind::Value { left, right } => format!("value: {left} / {right}"),
            DifferenceKind::Unreadable { why } => format!("can't be compared: {why}"),
            DifferenceKind::Elements(elements) | DifferenceKind::Nan(elements) => elements.text(),
        };
        of + &text
    }
}
