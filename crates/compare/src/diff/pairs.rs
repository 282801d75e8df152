//! Matches the leaves of both sides, and compares everything except the elements of tensors.

use std::collections::{HashMap, HashSet, VecDeque};

use statelens_checkpoint::{
    Checkpoint, Layout, Leaf, Opaque, Quantizer, Tensor, TensorId, Text, Value, ValueId,
};
use statelens_describe::{dtype_of, fields_text, link_text, shape_of, text_of, type_name};
use statelens_tensor::{Axis, Slice};
use statelens_values::missing;

use super::lockstep::grain;
use super::sets::names;
use super::{
    AttributePair, ComparisonReport, DiffOptions, DifferenceKind, ElementDifference, Numbers,
    NumericComparison, PairChange, PairNumbers, Side, common_type,
};

/// Two tensors whose elements will be compared, and the leaves that refer to them.
pub(super) struct TensorPair {
    pub(super) left: TensorId,
    pub(super) right: TensorId,
    /// Order, key and part of each leaf that refers to this pair.
    pub(super) places: Vec<(usize, Text, String)>,
    pub(super) shape: Vec<u64>,
    /// Both dtypes, if they differ and that counts as a difference.
    pub(super) dtypes: Option<(String, String)>,
    /// Their shapes and their common parts, if the shapes differ. `shape` is that of the parts.
    pub(super) resized: Option<Box<Resized>>,
}

/// Tensors of different shapes, and the views of the part that both have.
pub(super) struct Resized {
    shapes: [Vec<u64>; 2],
    parts: [Tensor; 2],
}

impl Resized {
    /// Returns the common part of two tensors of numbers; `None` if they don't have one that can be
    /// compared.
    fn new(left: &Tensor, right: &Tensor) -> Option<(Self, Vec<u64>)> {
        let comparable = left.shape.len() == right.shape.len()
            && common_type::common_type(&left.dtype, &right.dtype)
                .is_some_and(|(common, ..)| common.is_numeric())
            && missing(left).is_none()
            && missing(right).is_none();
        if !comparable {
            return None;
        }
        let sides = left.shape.iter().zip(&right.shape);
        let shape: Vec<u64> = sides.map(|(one, other)| *one.min(other)).collect();
        let axis = |dim: &u64| {
            let stop = Some(i64::try_from(*dim).ok()?);
            Some(Axis::Range { start: None, stop, step: 1 })
        };
        let slice = Slice::new(shape.iter().map(axis).collect::<Option<Vec<_>>>()?);
        let parts = [slice.of(left).ok()?, slice.of(right).ok()?];
        let resized = Self { shapes: [left.shape.clone(), right.shape.clone()], parts };
        (!shape.contains(&0)).then_some((resized, shape))
    }

    fn difference(&self, values: Option<Box<NumericComparison>>) -> DifferenceKind {
        let [left, right] = self.shapes.clone();
        DifferenceKind::Shape { left, right, values }
    }
}

impl TensorPair {
    /// Returns the granularity at which both can be read; see [`grain`].
    pub(super) fn grain(&self, left: &Checkpoint, right: &Checkpoint) -> Option<u64> {
        let (left, right) = self.sides(left, right).ok()?;
        grain(left, right)
    }

    /// Returns the two tensors to compare: their common parts, if the shapes differ.
    pub(super) fn sides<'a>(
        &'a self,
        left: &'a Checkpoint,
        right: &'a Checkpoint,
    ) -> statelens_checkpoint::Result<(&'a Tensor, &'a Tensor)> {
        match &self.resized {
            Some(resized) => Ok((&resized.parts[0], &resized.parts[1])),
            None => Ok((left.tensor(self.left)?, right.tensor(self.right)?)),
        }
    }
}

/// Compares everything except elements. Returns the pairs of tensors whose elements must be
/// compared, and for each leaf on the left the index of its counterpart on the right. `inside`:
/// tensors that are not leaves.
pub(super) fn pairs(
    [(left, of_left), (right, of_right)]: [Side<'_>; 2],
    options: &DiffOptions,
    report: &mut ComparisonReport,
    inside: Vec<AttributePair>,
) -> (Vec<TensorPair>, Vec<Option<usize>>) {
    let (left_names, right_names) = (names(left, of_left), names(right, of_right));
    // Two leaves may have the same flat key; they are matched in order.
    let mut by_key: HashMap<&Text, VecDeque<usize>> = HashMap::new();
    for (index, name) in right_names.iter().enumerate() {
        by_key.entry(name).or_default().push_back(index);
    }
    let mut matching =
        Matching { left, right, options, report, pairs: Vec::new(), known: HashMap::new() };
    let mut met = vec![false; of_right.len()];
    let mut matches = Vec::with_capacity(of_left.len());
    for (order, leaf) in of_left.iter().enumerate() {
        let name = &left_names[order];
        let found = by_key.get_mut(name).and_then(VecDeque::pop_front);
        matches.push(found);
        match found {
            Some(other) => {
                met[other] = true;
                matching.leaf(order, leaf, &of_right[other]);
            }
            None => {
                let what = DifferenceKind::OnlyLeft { left: outline(left, leaf.target) };
                matching.report.differ(order, name, "", what);
            }
        }
    }
    for (index, leaf) in of_right.iter().enumerate().filter(|(index, _)| !met[*index]) {
        let what = DifferenceKind::OnlyRight { right: outline(right, leaf.target) };
        matching.report.differ(of_left.len() + index, &right_names[index], "", what);
    }
    for (order, key, part, left, right) in inside {
        matching.tensor(order, &key, &part, left, right);
    }
    (matching.pairs, matches)
}

/// Describes a value: `tensor float32 [2, 3]`, `int 3`.
fn outline(checkpoint: &Checkpoint, id: ValueId) -> String {
    let kind = checkpoint.value(id).kind();
    match (dtype_of(checkpoint, id), shape_of(checkpoint, id)) {
        (Some(dtype), Some(shape)) => {
            format!("{kind} {dtype} {}", statelens_checkpoint::shape_text(shape))
        }
        _ => format!("{kind} {}", text_of(checkpoint, id)).trim_end().to_owned(),
    }
}

/// Returns whether two tensors are constants with the same bytes.
pub(super) fn same_constant(left: &Tensor, right: &Tensor) -> bool {
    let same = |l: &Layout, r: &Layout| match (l, r) {
        (Layout::Fill(l), Layout::Fill(r)) => l == r,
        _ => false,
    };
    same(&left.layout, &right.layout)
        && (&left.dtype, &left.stored) == (&right.dtype, &right.stored)
        && (left.byte_order, left.conjugate, left.negate)
            == (right.byte_order, right.conjugate, right.negate)
}

struct Matching<'a> {
    left: &'a Checkpoint,
    right: &'a Checkpoint,
    options: &'a DiffOptions,
    report: &'a mut ComparisonReport,
    pairs: Vec<TensorPair>,
    known: HashMap<(TensorId, TensorId), usize>,
}

impl Matching<'_> {
    fn leaf(&mut self, order: usize, left: &Leaf, right: &Leaf) {
        self.report.keys += 1;
        let (l, r) = (left.target, right.target);
        let (of_left, of_right) = (self.left.value(l), self.right.value(r));
        if let (Some(one), Some(two)) = (reference(self.left, left), reference(self.right, right)) {
            // The contents are compared in their own place.
            if left.alias_of != right.alias_of
                && !same_value(self.left, l, self.right, r, self.options)
            {
                let what = DifferenceKind::Value { left: one, right: two };
                self.report.differ(order, &left.flat, "", what);
            }
            return;
        }
        let is_array = |value: &Value| matches!(value, Value::Tensor(_) | Value::Array(_));
        let alike = is_array(of_left) && is_array(of_right) && self.options.ignore_type;
        let key = &left.flat;
        if !alike && of_left.kind() != of_right.kind() {
            self.report.array_kinds += u64::from(is_array(of_left) && is_array(of_right));
            let what =
                DifferenceKind::Type { left: outline(self.left, l), right: outline(self.right, r) };
            return self.report.differ(order, key, "", what);
        }
        match (of_left, of_right) {
            (Value::Sparse(one), Value::Sparse(two)) => {
                let parts = |sparse: &statelens_checkpoint::Sparse| -> Vec<&'static str> {
                    sparse.parts.iter().map(|(name, _)| *name).collect()
                };
                if one.shape != two.shape {
                    let what = DifferenceKind::Shape {
                        left: one.shape.clone(),
                        right: two.shape.clone(),
                        values: None,
                    };
                    return self.report.differ(order, key, "", what);
                }
                if one.layout != two.layout || parts(one) != parts(two) {
                    let what = DifferenceKind::Type {
                        left: one.layout.clone(),
                        right: two.layout.clone(),
                    };
                    return self.report.differ(order, key, "", what);
                }
                for ((name, l), (_, r)) in one.parts.iter().zip(&two.parts) {
                    self.tensor(order, key, name, *l, *r);
                }
            }
            _ if is_array(of_left) => {
                self.tensor(order, key, "", l, r);
                self.quantizers(order, key, l, r);
            }
            (Value::Opaque(one), Value::Opaque(two))
                if let (Some(one), Some(two)) = (one.contents, two.contents) =>
            {
                self.contents(order, key, (l, one), (r, two));
            }
            _ => {
                if !same_value(self.left, l, self.right, r, self.options) {
                    let (part, l, r) = self.first_item(l, r);
                    let left = value_text(self.left, l);
                    let right = value_text(self.right, r);
                    self.report.differ(order, key, &part, DifferenceKind::Value { left, right });
                }
            }
        }
    }

    /// Returns the first items that differ between two arrays of objects, and their index; for
    /// other values, the values themselves.
    fn first_item(&self, l: ValueId, r: ValueId) -> (String, ValueId, ValueId) {
        if let (Value::Opaque(one), Value::Opaque(two)) = (self.left.value(l), self.right.value(r))
            && one.items.len() == two.items.len()
        {
            let mut items = one.items.iter().zip(&two.items).enumerate();
            let differ = items.find(|(_, (one, two))| {
                !same_value(self.left, **one, self.right, **two, self.options)
            });
            if let Some((index, (one, two))) = differ {
                return (format!("[{index}]"), self.left.resolve(*one), self.right.resolve(*two));
            }
        }
        (String::new(), l, r)
    }

    fn tensor(&mut self, order: usize, key: &Text, part: &str, l: ValueId, r: ValueId) {
        let found = (self.left.tensor_of(l), self.right.tensor_of(r));
        let (Some(left), Some(right)) = found else {
            let what = DifferenceKind::Unreadable { why: "a tensor is missing".into() };
            return self.report.differ(order, key, part, what);
        };
        self.tensors(order, key, part, left, right);
    }

    /// Compares objects by their contents, whatever their texts are.
    fn contents(
        &mut self,
        order: usize,
        key: &Text,
        (l, left): (ValueId, TensorId),
        (r, right): (ValueId, TensorId),
    ) {
        let (Ok(one), Ok(two)) = (self.left.tensor(left), self.right.tensor(right)) else { return };
        let is_known = |tensor: &Tensor| matches!(tensor.layout, Layout::Inline(_));
        if let Some(what) = unreadable(one, two) {
            self.report.differ(order, key, "", what);
        } else if one.shape != two.shape || is_known(one) && is_known(two) && one != two {
            let (left, right) = (value_text(self.left, l), value_text(self.right, r));
            self.report.differ(order, key, "", DifferenceKind::Value { left, right });
        } else {
            self.tensors(order, key, "", (left, one), (right, two));
        }
    }

    fn tensors(
        &mut self,
        order: usize,
        key: &Text,
        part: &str,
        (left_id, left): (TensorId, &Tensor),
        (right_id, right): (TensorId, &Tensor),
    ) {
        if left.shape != right.shape {
            let Some((resized, shape)) = Resized::new(left, right) else {
                let (left, right) = (left.shape.clone(), right.shape.clone());
                let what = DifferenceKind::Shape { left, right, values: None };
                return self.report.differ(order, key, part, what);
            };
            return self.pairs.push(TensorPair {
                left: left_id,
                right: right_id,
                places: vec![(order, key.clone(), part.to_owned())],
                shape,
                dtypes: None,
                resized: Some(Box::new(resized)),
            });
        }
        let dtypes = (!left.dtype.is_same(&right.dtype) && !self.options.ignore_dtype).then(|| {
            match (left.dtype.to_string(), right.dtype.to_string()) {
                (one, two) if one == two => [&left.dtype, &right.dtype]
                    .map(|dtype| fields_text(dtype).unwrap_or_else(|| one.clone()))
                    .into(),
                names => names,
            }
        });
        if let Some((left_name, right_name)) = &dtypes {
            // If both are numeric, the numbers are compared as well.
            let numbers = common_type::common_type(&left.dtype, &right.dtype)
                .is_some_and(|(common, ..)| common.is_numeric())
                && missing(left).is_none()
                && missing(right).is_none();
            if !numbers {
                let (left, right) = (left_name.clone(), right_name.clone());
                let what = DifferenceKind::DType { left, right, values: None };
                return self.report.differ(order, key, part, what);
            }
        }
        if let Some(what) = unreadable(left, right) {
            return self.report.differ(order, key, part, what);
        }
        let place = (order, key.clone(), part.to_owned());
        if let Some(known) = self.known.get(&(left_id, right_id)) {
            self.pairs[*known].places.push(place);
            return;
        }
        self.known.insert((left_id, right_id), self.pairs.len());
        self.pairs.push(TensorPair {
            left: left_id,
            right: right_id,
            places: vec![place],
            shape: left.shape.clone(),
            dtypes,
            resized: None,
        });
    }

    /// Compares the quantizers of two tensors.
    fn quantizers(&mut self, order: usize, key: &Text, l: ValueId, r: ValueId) {
        let of = |checkpoint: &Checkpoint, id| {
            checkpoint.tensor_of(id).and_then(|(_, tensor)| tensor.quantizer.clone())
        };
        match (of(self.left, l), of(self.right, r)) {
            (None, None) => {}
            (
                Some(Quantizer::PerChannel { scales: s, zero_points: z, axis: a }),
                Some(Quantizer::PerChannel { scales: t, zero_points: y, axis: b }),
            ) if a == b => {
                self.tensor(order, key, "scales", s, t);
                self.tensor(order, key, "zero_points", z, y);
            }
            (
                left @ Some(Quantizer::PerTensor { .. }),
                right @ Some(Quantizer::PerTensor { .. }),
            ) if left == right => {}
            (left, right) => {
                let text = |quantizer: Option<Quantizer>| match quantizer {
                    None => "not quantised".to_owned(),
                    Some(Quantizer::PerTensor { scale, zero_point }) => {
                        format!("scale {scale}, zero point {zero_point}")
                    }
                    Some(Quantizer::PerChannel { axis, .. }) => format!("scales along axis {axis}"),
                };
                let what = DifferenceKind::Value { left: text(left), right: text(right) };
                self.report.differ(order, key, "quantizer", what);
            }
        }
    }
}

/// Returns why two tensors can't be compared, if one of them does not have bytes.
fn unreadable(left: &Tensor, right: &Tensor) -> Option<DifferenceKind> {
    let (side, why) = match (missing(left), missing(right)) {
        (Some(why), _) => ("left", why),
        (None, why) => ("right", why?),
    };
    Some(DifferenceKind::Unreadable { why: format!("{side}: {why}") })
}

/// Returns the text of a reference to a container or an object that has a place of its own; `None`
/// for any other leaf.
fn reference(checkpoint: &Checkpoint, leaf: &Leaf) -> Option<String> {
    let target = leaf.alias_of.as_ref()?;
    let value = checkpoint.value(leaf.target);
    let has_place = !target.is_empty() || leaf.target == checkpoint.root();
    let is_shared = value.is_container() || matches!(value, Value::Opaque(_));
    if has_place && is_shared { link_text(leaf) } else { None }
}

fn value_text(checkpoint: &Checkpoint, id: ValueId) -> String {
    match type_name(checkpoint, id) {
        Some(name) => format!("{name} {}", text_of(checkpoint, id)),
        None => text_of(checkpoint, id),
    }
}

/// Returns whether two values, including everything below them, are equal; objects that were not
/// built are compared as well. Iterative, and visits each pair once, because objects may contain
/// themselves. Tensors in objects are separate leaves, so they are not compared here.
pub(crate) fn same_value(
    left: &Checkpoint,
    l: ValueId,
    right: &Checkpoint,
    r: ValueId,
    options: &DiffOptions,
) -> bool {
    let root = (left.resolve(l), right.resolve(r));
    let mut seen = HashSet::new();
    let mut open = vec![root];
    while let Some((l, r)) = open.pop() {
        let (l, r) = (left.resolve(l), right.resolve(r));
        if !seen.insert((l, r)) {
            continue;
        }
        let (one, two) = (left.value(l), right.value(r));
        let same = match (one, two) {
            (Value::Tensor(_) | Value::Array(_), Value::Tensor(_) | Value::Array(_)) => {
                let tensors = (left.tensor_of(l), right.tensor_of(r));
                matches!(tensors, (Some((_, one)), Some((_, two))) if one.shape == two.shape)
            }
            (Value::Float(one), Value::Float(two)) => float(*one, *two, options),
            (Value::Complex(a, b), Value::Complex(c, d)) => {
                float(*a, *c, options) && float(*b, *d, options)
            }
            (Value::Opaque(one), Value::Opaque(two)) => same_head(one, two),
            (Value::Dict(one), Value::Dict(two)) => {
                one.class == two.class
                    && one.entries.len() == two.entries.len()
                    && one.entries.iter().zip(&two.entries).all(|((a, _), (b, _))| a == b)
            }
            (Value::List(one), Value::List(two)) => one.class == two.class,
            (Value::Tuple(one), Value::Tuple(two)) => one.class == two.class,
            (Value::Set(one), Value::Set(two)) => one.frozen == two.frozen,
            (Value::Sparse(one), Value::Sparse(two)) => {
                one.shape == two.shape && one.layout == two.layout
            }
            (one, two) => one == two,
        };
        let (below_l, below_r) = (one.children(), two.children());
        if !same || below_l.len() != below_r.len() {
            return false;
        }
        open.extend(below_l.into_iter().zip(below_r));
        // The metadata of a dtype in another value; a value's own is compared at its key.
        if let Value::DType { .. } = one
            && (l, r) != root
        {
            match (left.attributes(l), right.attributes(r)) {
                (Some(one), Some(two)) => open.push((one, two)),
                (one, two) if one.is_some() != two.is_some() => return false,
                _ => {}
            }
        }
    }
    true
}

/// Returns whether two objects are equal, apart from the values below them.
fn same_head(one: &Opaque, two: &Opaque) -> bool {
    one.global == two.global
        && one.form == two.form
        && one.repr == two.repr
        && one.args.len() == two.args.len()
        && one.items.len() == two.items.len()
        && one.entries.len() == two.entries.len()
        && one.state.is_some() == two.state.is_some()
}

fn float(left: f64, right: f64, options: &DiffOptions) -> bool {
    let mut numbers = Numbers::new(true);
    numbers.real(left, right, options.equality());
    numbers.differing == 0
}

impl ComparisonReport {
    /// Keeps the norms and deviations of a pair of tensors for charts by layer.
    fn measure(&mut self, pair: &TensorPair, numbers: &Numbers) {
        if !numbers.numeric || numbers.finite == 0 {
            return;
        }
        let (norms, deviations, change) = (numbers.norms(), numbers.deviations(), numbers.change());
        let whole = pair.places.iter().filter(|(.., part)| part.is_empty());
        self.changes.extend(whole.map(|(leaf, key, _)| PairChange {
            leaf: *leaf,
            key: key.clone(),
            norms,
            deviations,
            change,
        }));
    }

    /// Records the result of a pair of tensors; without numbers, they are equal constants.
    pub(super) fn compared(
        &mut self,
        pair: &TensorPair,
        outcome: statelens_checkpoint::Result<Option<PairNumbers>>,
    ) {
        let dtype = |values| {
            let (left, right) = pair.dtypes.clone()?;
            Some(DifferenceKind::DType { left, right, values })
        };
        let mut kinds = Vec::new();
        match (outcome, &pair.resized) {
            (Err(_), Some(resized)) => kinds.push(resized.difference(None)),
            (Ok(outcome), Some(resized)) => {
                let was_read = outcome.is_some();
                let mut numbers = outcome.map(|outcome| outcome.numbers).unwrap_or_default();
                numbers.settle();
                self.tensors += u64::from(was_read);
                self.elements = self.elements.saturating_add(numbers.elements);
                let elements = ElementDifference::new(numbers, &pair.shape);
                let values = Box::new(NumericComparison::new(elements, None));
                kinds.push(resized.difference(Some(values)));
            }
            (Err(error), None) => {
                kinds.extend(dtype(None));
                kinds.push(DifferenceKind::Unreadable { why: error.to_string() });
            }
            (Ok(outcome), None) => {
                let (mut numbers, rounded) = match outcome {
                    Some(PairNumbers { numbers, rounded }) => (numbers, rounded),
                    None => (Numbers::default(), None),
                };
                numbers.settle();
                self.measure(pair, &numbers);
                self.tensors += 1;
                self.elements = self.elements.saturating_add(numbers.elements);
                if numbers.differing == 0 {
                    self.close += u64::from(numbers.unequal > 0);
                    self.nan += numbers.left_nan.min(numbers.right_nan);
                }
                let elements = ElementDifference::new(numbers, &pair.shape);
                match pair.dtypes {
                    Some(_) => {
                        let rounded = rounded.map(|(dtype, numbers)| (dtype, numbers.differing));
                        let values = NumericComparison::new(elements, rounded);
                        kinds.extend(dtype(Some(Box::new(values))));
                    }
                    None if elements.differing == 0 => {}
                    None if elements.has_one_sided_nan() => {
                        kinds.push(DifferenceKind::Nan(Box::new(elements)));
                    }
                    None => kinds.push(DifferenceKind::Elements(Box::new(elements))),
                }
            }
        };
        for (order, key, part) in &pair.places {
            kinds.iter().for_each(|what| self.differ(*order, key, part, what.clone()));
        }
    }
}
