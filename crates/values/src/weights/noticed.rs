//! Input and output of the rules about values.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use statelens_checkpoint::Grade;

use statelens_stats::{MatrixLines, Statistics};

/// A tensor whose values were read.
#[derive(Debug, Clone, Copy)]
pub struct Read<'a> {
    /// The key.
    pub key: &'a str,
    /// The shape.
    pub shape: &'a [u64],
    /// Whether its dtype is fractional. Zeros are normal in masks and indices, so many rules skip
    /// those.
    pub floats: bool,
    /// The statistics of its values.
    pub statistics: &'a Statistics,
    /// The statistics of its rows, if they were read.
    pub lines: Option<&'a MatrixLines>,
    /// If it is an optimizer moment, the key of its parameter, unless its own key contains that.
    pub parameter: Option<&'a str>,
}

/// A reference to an element of a tensor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElementRef {
    /// The index of the tensor.
    pub tensor: usize,
    /// The index of the element in C order.
    pub number: u64,
    /// The index of the element in each dimension.
    pub index: Vec<u64>,
}

/// A measure of sibling tensors over the layers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LayerSeries {
    /// The layer numbers.
    pub depth: Vec<u64>,
    /// The standard deviation of each layer.
    pub values: Vec<f64>,
    /// The index of the layer that stands out.
    pub marked: usize,
    /// The expected value for that layer.
    pub expected: f64,
}

/// A finding about the values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Noticed {
    /// The severity.
    pub grade: Grade,
    /// A sentence without its full stop.
    pub title: String,
    /// The figures; whole sentences.
    pub text: String,
    /// The recommended action; may be empty.
    pub advice: String,
    /// The tensors concerned; only the first ones if there are very many.
    pub tensors: Vec<usize>,
    /// The element to show.
    pub element: Option<ElementRef>,
    /// The data for a chart.
    pub series: Option<LayerSeries>,
}

/// Tensors whose keys differ only in numbers, by the common part of their keys.
pub(super) type SiblingGroups = BTreeMap<String, Vec<usize>>;

/// Maximum number of tensors that a finding lists.
const NAMED: usize = 1_000;

/// Creates a finding about these tensors without further details.
pub(super) fn noticed(grade: Grade, title: String, text: String, tensors: Vec<usize>) -> Noticed {
    let tensors = tensors.into_iter().take(NAMED).collect();
    Noticed { grade, title, text, advice: String::new(), tensors, element: None, series: None }
}
