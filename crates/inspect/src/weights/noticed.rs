//! What a rule of values goes by, and what it says.

use std::collections::BTreeMap;

use statelens_checkpoint::Grade;
use statelens_stats::{MatrixLines, Statistics};

/// A tensor whose values were read.
#[derive(Debug, Clone, Copy)]
pub struct Read<'a> {
    /// The key.
    pub key: &'a str,
    /// The shape.
    pub shape: &'a [u64],
    /// True if its values have a fraction: of masks and indices it is no wonder that they are zeros.
    pub floats: bool,
    /// What its values are like.
    pub statistics: &'a Statistics,
    /// What its rows are like, if they were looked at.
    pub lines: Option<&'a MatrixLines>,
    /// The key of the parameter that it is a moment of, where its own key doesn't say it.
    pub parameter: Option<&'a str>,
}

/// A value of a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElementRef {
    /// Which of the tensors.
    pub tensor: usize,
    /// The number of the element, counted in C order.
    pub number: u64,
    /// Its index.
    pub index: Vec<u64>,
}

/// A measure of siblings over depth.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerSeries {
    /// The number of each layer.
    pub depth: Vec<u64>,
    /// Its standard deviation.
    pub values: Vec<f64>,
    /// Which of them stands out.
    pub marked: usize,
    /// What was expected of it.
    pub expected: f64,
}

/// Something about the values.
#[derive(Debug, Clone, PartialEq)]
pub struct Noticed {
    /// How much it matters.
    pub grade: Grade,
    /// A sentence without its full stop.
    pub title: String,
    /// The numbers; whole sentences.
    pub text: String,
    /// What to do; may be empty.
    pub advice: String,
    /// The tensors that it is about, the first ones if they are very many.
    pub tensors: Vec<usize>,
    /// The value to look at.
    pub element: Option<ElementRef>,
    /// What to draw.
    pub series: Option<LayerSeries>,
}

/// Tensors whose keys differ in numbers only, by what is the same of them.
pub(super) type SiblingGroups = BTreeMap<String, Vec<usize>>;

/// Tensors that a finding names.
const NAMED: usize = 1_000;

/// A finding of these tensors, with nothing else.
pub(super) fn noticed(grade: Grade, title: String, text: String, tensors: Vec<usize>) -> Noticed {
    let tensors = tensors.into_iter().take(NAMED).collect();
    Noticed { grade, title, text, advice: String::new(), tensors, element: None, series: None }
}
