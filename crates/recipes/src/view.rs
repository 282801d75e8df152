//! Views of tensors, which allow recipes to move elements without reading them.
//!
//! A [`View`] is a storage, an offset and axes. An axis is one or more strides, so that splitting
//! and joining axes, transposing and slicing need no copy. Views of views are one view; a view that
//! is contiguous in a file becomes a span of it.

use std::sync::Arc;

use statelens_checkpoint::{
    Arithmetic, ByteOrder, Computed, Concat, DType, Error, Layout, Part, Result, Setting, Span,
    Strided, Tensor, advice, contiguous_strides, numel,
};

/// A tensor after operations that only move elements.
#[derive(Debug, Clone)]
pub struct View {
    /// Dtype, byte order and other properties that do not depend on the position of elements.
    like: Tensor,
    storage: Arc<Layout>,
    /// The storage's length in elements.
    storage_numel: u64,
    offset: u64,
    axes: Vec<AxisStrides>,
}

/// The strides of an axis, the longest first: lengths and steps, in elements.
type AxisStrides = Vec<(u64, i64)>;

impl View {
    pub fn of(tensor: &Tensor) -> Result<Self> {
        let plain = !matches!(tensor.stored, DType::Blocks(_)) && tensor.quantizer.is_none();
        if !plain {
            return Err(Error::unsupported("the elements of a quantised tensor can't be moved")
                .advice(advice![
                    "Dequantise it first with ",
                    Setting::Convert,
                    ", to safetensors."
                ]));
        }
        let numel = tensor.numel().ok_or_else(too_large)?;
        let strides = contiguous_strides(&tensor.shape).ok_or_else(too_large)?;
        // The whole of a single-part storage is that part in another shape.
        if let Layout::Strided(Strided { storage, offset: 0, strides: own, .. }) = &tensor.layout
            && let Layout::Concat(Concat { parts, .. }) = &**storage
            && let [part] = &parts[..]
            && *own == strides
            && product(&part.shape)? == numel
        {
            return Self::of(&of_part(tensor, part))?.reshape(&tensor.shape);
        }
        let (storage, storage_numel, offset, strides) = match &tensor.layout {
            Layout::Strided(view) => {
                let held = view.storage_len / tensor.stored.itemsize().max(1);
                (view.storage.clone(), held, view.offset, view.strides.clone())
            }
            Layout::Span(_)
            | Layout::Packed(_)
            | Layout::Inline(_)
            | Layout::Fill(_)
            | Layout::Missing(_)
            | Layout::Concat(_) => (Arc::new(tensor.layout.clone()), numel, 0, strides),
            other if tensor.shape.is_empty() => (Arc::new(other.clone()), numel, 0, strides),
            other => (Arc::new(shaped(&tensor.shape, other.clone())), numel, 0, strides),
        };
        if strides.len() != tensor.shape.len() {
            return Err(Error::damaged("a view has another number of strides than dimensions"));
        }
        let axes = tensor.shape.iter().zip(strides).map(|(len, step)| vec![(*len, step)]);
        let like = Tensor { layout: Layout::Inline([].into()), ..tensor.clone() };
        Ok(Self { storage, storage_numel, offset, axes: axes.collect(), like }.renewed())
    }

    pub fn dtype(&self) -> &DType {
        &self.like.dtype
    }

    pub fn shape(&self) -> &[u64] {
        &self.like.shape
    }

    /// Returns the elements in another shape, in the same order.
    pub fn reshape(&self, shape: &[u64]) -> Result<Self> {
        let numel = product(shape)?;
        if product(self.shape())? != numel {
            return Err(Error::damaged(format!(
                "a tensor of shape {:?} can't have the shape {shape:?}",
                self.shape()
            )));
        }
        if numel == 0 {
            let axes = shape.iter().map(|len| vec![(*len, 0)]).collect();
            return Ok(Self { axes, ..self.clone() }.renewed());
        }
        let flat = merged(self.axes.iter().flatten().copied());
        match split(&flat, shape) {
            Some(axes) => Ok(Self { axes, ..self.clone() }.renewed()),
            None => {
                let settled = self.settled()?;
                let flat = vec![(numel, 1)];
                let axes = split(&flat, shape).ok_or_else(too_large)?;
                Ok(Self { axes, ..settled }.renewed())
            }
        }
    }

    /// Reorders the dimensions: the new first dimension is the `order[0]`-th old one.
    pub fn permute(&self, order: &[usize]) -> Result<Self> {
        let axes: Option<Vec<AxisStrides>> =
            order.iter().map(|at| self.axes.get(*at).cloned()).collect();
        match axes {
            Some(axes) if axes.len() == self.axes.len() => {
                Ok(Self { axes, ..self.clone() }.renewed())
            }
            _ => Err(Error::damaged("dimensions in an order that leaves some out")),
        }
    }

    pub fn slice(&self, axis: usize, start: u64, len: u64) -> Result<Self> {
        let outside = || {
            Error::damaged(format!(
                "indices {start} to {} of dimension {axis} of a tensor of shape {:?}",
                start.saturating_add(len),
                self.shape()
            ))
        };
        let whole = *self.shape().get(axis).ok_or_else(outside)?;
        if start.checked_add(len).is_none_or(|end| end > whole) {
            return Err(outside());
        }
        if let Some(part) = self.of_parts(axis, start, len)? {
            return Ok(part);
        }
        let strides = merged(self.axes[axis].iter().copied());
        let inner = strides.iter().skip(1).try_fold(1u64, |all, (len, _)| all.checked_mul(*len));
        let inner = inner.ok_or_else(too_large)?.max(1);
        if !start.is_multiple_of(inner) || !len.is_multiple_of(inner) {
            let strides = contiguous_strides(self.shape()).ok_or_else(too_large)?;
            let axes = self.shape().iter().zip(strides).map(|(len, step)| vec![(*len, step)]);
            let settled = Self { axes: axes.collect(), ..self.settled()? }.renewed();
            return settled.slice(axis, start, len);
        }
        let mut axes = self.axes.clone();
        let mut cut = strides;
        let mut offset = i128::from(self.offset);
        match cut.first_mut() {
            Some((count, step)) => {
                offset += i128::from(start / inner) * i128::from(*step);
                *count = len / inner;
            }
            None => cut.push((len, 0)),
        }
        axes[axis] = cut;
        let offset =
            if len == 0 { self.offset } else { offset.try_into().map_err(|_| outside())? };
        Ok(Self { axes, offset, ..self.clone() }.renewed())
    }

    /// If all indices are in one part of a concatenation, returns a view of that part.
    fn of_parts(&self, axis: usize, start: u64, len: u64) -> Result<Option<Self>> {
        let Layout::Concat(concat) = &*self.storage else { return Ok(None) };
        // A single part only adds a shape to chunks or other layouts that can't be sliced.
        if concat.parts.len() < 2 {
            return Ok(None);
        }
        let whole = self.offset == 0
            && merged(self.axes.iter().flatten().copied()) == [(self.storage_numel, 1)];
        let (before, after) = self.shape().split_at(axis);
        let (outer, inner) = (product(before)?, product(after.get(1..).unwrap_or(&[]))?);
        let mut at = 0;
        for part in &concat.parts {
            let rows = part.shape.get(..concat.axis).map_or(Ok(0), product)?;
            let row = part.shape.get(concat.axis..).map_or(Ok(0), product)?;
            let (first, count) = (start.saturating_mul(inner), len.saturating_mul(inner));
            let inside = first >= at && first.saturating_add(count) <= at.saturating_add(row);
            if whole && count > 0 && rows == outer && inside {
                let view = Self::of(&of_part(&self.like, part))?.reshape(&[rows, row])?;
                let mut shape = self.shape().to_vec();
                shape[axis] = len;
                return view.slice(1, first - at, count)?.reshape(&shape).map(Some);
            }
            at = at.saturating_add(row);
        }
        Ok(None)
    }

    /// Returns the slice at one index and removes the dimension.
    pub fn index(&self, axis: usize, at: u64) -> Result<Self> {
        let mut one = self.slice(axis, at, 1)?;
        one.axes.remove(axis);
        Ok(one.renewed())
    }

    pub fn unsqueeze(&self, axis: usize) -> Result<Self> {
        if axis > self.axes.len() {
            return Err(Error::damaged(format!(
                "a tensor of {} dimensions can't have a new dimension {axis}",
                self.axes.len()
            )));
        }
        let mut axes = self.axes.clone();
        axes.insert(axis, vec![(1, 0)]);
        Ok(Self { axes, ..self.clone() }.renewed())
    }

    pub fn concat(axis: usize, views: &[Self]) -> Result<Self> {
        let Some(first) = views.first() else {
            return Err(Error::damaged("nothing to join"));
        };
        if views.len() == 1 {
            return Ok(first.clone());
        }
        for view in views {
            let same = view.shape().len() == first.shape().len()
                && axis < first.shape().len()
                && (0..first.shape().len())
                    .all(|dim| dim == axis || view.shape()[dim] == first.shape()[dim]);
            if !same || view.dtype() != first.dtype() {
                return Err(Error::unsupported(format!(
                    "tensors of shapes {:?} ({}) and {:?} ({}) can't be joined along dimension \
                     {axis}",
                    first.shape(),
                    first.dtype(),
                    view.shape(),
                    view.dtype()
                )));
            }
        }
        if let Some(joined) = joined(axis, views) {
            return Ok(joined);
        }
        // All parts of a layout must have the same byte order and stored dtype.
        let alike = views.iter().all(|view| same_elements(&view.like, &first.like));
        let mut parts = Vec::with_capacity(views.len());
        let mut like = first.like.clone();
        for view in views {
            let view = if alike { view.clone() } else { view.compute(&[])? };
            like = Tensor { shape: like.shape, ..view.like.clone() };
            let tensor = view.tensor()?;
            parts.push(Part { shape: tensor.shape, layout: tensor.layout });
        }
        like.shape = first.shape().to_vec();
        let along = views.iter().try_fold(0u64, |sum, view| sum.checked_add(view.shape()[axis]));
        like.shape[axis] = along.ok_or_else(too_large)?;
        like.layout = Layout::Concat(Concat { axis, parts });
        Self::of(&like)
    }

    pub fn stack(axis: usize, views: &[Self]) -> Result<Self> {
        let parts: Result<Vec<Self>> = views.iter().map(|view| view.unsqueeze(axis)).collect();
        Self::concat(axis, &parts?)
    }

    pub fn compute(&self, steps: &[Arithmetic]) -> Result<Self> {
        let of = self.tensor()?;
        let computed = Computed { of: of.clone(), steps: steps.to_vec(), product: None };
        Self::of(&Tensor {
            stored: of.dtype.clone(),
            byte_order: ByteOrder::Little,
            conjugate: false,
            negate: false,
            layout: Layout::Computed(Arc::new(computed)),
            ..of
        })
    }

    pub fn tensor(&self) -> Result<Tensor> {
        let shape = self.shape().to_vec();
        let layout = self.layout(&shape)?;
        Ok(Tensor { shape, layout, storage: None, ..self.like.clone() })
    }

    fn layout(&self, shape: &[u64]) -> Result<Layout> {
        let itemsize = self.like.stored.itemsize();
        let numel = product(shape)?;
        if numel == 0 {
            return Ok(match &*self.storage {
                Layout::Missing(why) => Layout::Missing(why.clone()),
                _ => Layout::Inline([].into()),
            });
        }
        let storage_len = self.storage_numel.checked_mul(itemsize).ok_or_else(too_large)?;
        let flat = merged(self.axes.iter().flatten().copied());
        let dense = matches!(flat[..], [] | [(_, 1)]);
        match &*self.storage {
            Layout::Fill(item) => return Ok(Layout::Fill(item.clone())),
            Layout::Missing(why) => return Ok(Layout::Missing(why.clone())),
            Layout::Span(span) if dense => {
                let start = self.offset.checked_mul(itemsize).ok_or_else(too_large)?;
                let len = numel.checked_mul(itemsize).ok_or_else(too_large)?;
                let offset = span.offset.checked_add(start).ok_or_else(too_large)?;
                if start.checked_add(len).is_none_or(|end| end > span.len) {
                    return Err(Error::damaged("a view reaches out of its storage"));
                }
                return Ok(Layout::Span(Span { file: span.file, offset, len }));
            }
            whole if dense && self.offset == 0 && self.storage_numel == numel => match whole {
                Layout::Concat(concat) => {
                    if let [part] = &concat.parts[..]
                        && part.shape == shape
                    {
                        return Ok(part.layout.clone());
                    }
                    if concat_shape(concat).as_deref() == Some(shape) {
                        return Ok(whole.clone());
                    }
                }
                _ => return Ok(whole.clone()),
            },
            _ => {}
        }
        let strided = |strides| {
            let (storage, offset) = (self.storage.clone(), self.offset);
            Layout::Strided(Strided { storage, storage_len, offset, strides })
        };
        let single: Option<Vec<i64>> = self
            .axes
            .iter()
            .map(|axis| match merged(axis.iter().copied())[..] {
                [] => Some(0),
                [(_, step)] => Some(step),
                _ => None,
            })
            .collect();
        if let Some(strides) = single {
            return Ok(strided(strides));
        }
        // There are more strides than dimensions, so view a storage of the finer shape in the
        // target shape.
        let (fine, strides): (Vec<u64>, Vec<i64>) = self.strides().into_iter().unzip();
        Ok(Layout::Strided(Strided {
            storage: Arc::new(shaped(&fine, strided(strides))),
            storage_len: numel.checked_mul(itemsize).ok_or_else(too_large)?,
            offset: 0,
            strides: contiguous_strides(shape).ok_or_else(too_large)?,
        }))
    }

    /// Returns the strides of all axes.
    fn strides(&self) -> AxisStrides {
        self.axes.iter().flat_map(|axis| merged(axis.iter().copied())).collect()
    }

    /// Returns the same elements as a dense storage; the caller must set its axes.
    fn settled(&self) -> Result<Self> {
        let strides = self.strides();
        let fine: Vec<u64> = strides.iter().map(|(len, _)| *len).collect();
        let axes = strides.into_iter().map(|stride| vec![stride]).collect();
        let inner = Self { axes, ..self.clone() }.renewed().layout(&fine)?;
        let storage = Arc::new(shaped(&fine, inner));
        Ok(Self { storage, storage_numel: product(&fine)?, offset: 0, ..self.clone() })
    }

    fn renewed(mut self) -> Self {
        self.like.shape =
            self.axes.iter().map(|axis| axis.iter().map(|(len, _)| len).product()).collect();
        self
    }
}

/// Returns a part of a storage as a tensor.
fn of_part(like: &Tensor, part: &Part) -> Tensor {
    Tensor { shape: part.shape.clone(), layout: part.layout.clone(), ..like.clone() }
}

/// Returns a layout that includes its shape.
fn shaped(shape: &[u64], layout: Layout) -> Layout {
    match layout {
        Layout::Concat(concat) if concat_shape(&concat).as_deref() == Some(shape) => {
            Layout::Concat(concat)
        }
        layout => {
            Layout::Concat(Concat { axis: 0, parts: vec![Part { shape: shape.to_vec(), layout }] })
        }
    }
}

fn concat_shape(concat: &Concat) -> Option<Vec<u64>> {
    let mut shape = concat.parts.first()?.shape.clone();
    let mut lengths = concat.parts.iter().map(|part| part.shape.get(concat.axis));
    *shape.get_mut(concat.axis)? = lengths.try_fold(0u64, |sum, len| sum.checked_add(*len?))?;
    Some(shape)
}

/// Drops strides of length 1 and merges adjacent strides.
fn merged(strides: impl Iterator<Item = (u64, i64)>) -> AxisStrides {
    let mut all: AxisStrides = Vec::new();
    for (len, step) in strides.filter(|(len, _)| *len != 1) {
        let reach = i64::try_from(len).ok().and_then(|len| len.checked_mul(step));
        match all.last_mut() {
            Some((outer, outer_step)) if reach == Some(*outer_step) => {
                *outer = outer.saturating_mul(len);
                *outer_step = step;
            }
            _ => all.push((len, step)),
        }
    }
    all
}

/// Splits strides into the dimensions of `shape`; `None` if a stride would be split unevenly.
fn split(flat: &[(u64, i64)], shape: &[u64]) -> Option<Vec<AxisStrides>> {
    let mut rest = flat.iter().copied();
    let mut open = rest.next();
    let mut axes = Vec::with_capacity(shape.len());
    for dim in shape {
        let mut axis = AxisStrides::new();
        let mut left = *dim;
        while left > 1 {
            let (len, step) = open?;
            if len <= left {
                if !left.is_multiple_of(len) {
                    return None;
                }
                axis.push((len, step));
                left /= len;
                open = rest.next();
            } else {
                if !len.is_multiple_of(left) {
                    return None;
                }
                let inner = len / left;
                axis.push((left, i64::try_from(inner).ok()?.checked_mul(step)?));
                open = Some((inner, step));
                left = 1;
            }
        }
        if axis.is_empty() {
            axis.push((*dim, 0));
        }
        axes.push(axis);
    }
    Some(axes)
}

/// Merges adjacent views of one storage.
fn joined(axis: usize, views: &[View]) -> Option<View> {
    let (first, others) = views.split_first()?;
    let step_of = |view: &View| match merged(view.axes[axis].iter().copied())[..] {
        [] => Some(None),
        [(_, step)] => Some(Some(step)),
        _ => None,
    };
    let mut step = step_of(first)?;
    let mut len = first.shape()[axis];
    for view in others {
        let alike = (0..first.axes.len()).all(|dim| {
            dim == axis
                || merged(view.axes[dim].iter().copied()) == merged(first.axes[dim].iter().copied())
        });
        let one_storage = Arc::ptr_eq(&view.storage, &first.storage)
            || matches!((&*view.storage, &*first.storage),
                (Layout::Span(one), Layout::Span(other)) if one == other);
        if !alike || !one_storage || !same_elements(&view.like, &first.like) {
            return None;
        }
        let apart = i64::try_from(view.offset).ok()? - i64::try_from(first.offset).ok()?;
        let own = step_of(view)?;
        let wanted = step.or(own).or_else(|| {
            let len = i64::try_from(len).ok()?;
            (apart % len == 0).then(|| apart / len)
        })?;
        if own.is_some_and(|own| own != wanted)
            || i64::try_from(len).ok()?.checked_mul(wanted)? != apart
        {
            return None;
        }
        step = Some(wanted);
        len = len.checked_add(view.shape()[axis])?;
    }
    let mut axes = first.axes.clone();
    axes[axis] = vec![(len, step?)];
    Some(View { axes, ..first.clone() }.renewed())
}

fn same_elements(one: &Tensor, other: &Tensor) -> bool {
    one.dtype == other.dtype
        && one.stored == other.stored
        && one.byte_order == other.byte_order
        && one.conjugate == other.conjugate
        && one.negate == other.negate
}

fn product(shape: &[u64]) -> Result<u64> {
    numel(shape).ok_or_else(too_large)
}

fn too_large() -> Error {
    Error::damaged("a tensor has more elements than can be counted")
}

#[cfg(test)]
mod tests {
    use statelens_checkpoint::{FileSet, Memory};
    use statelens_tensor::elements;

    use super::*;

    /// Returns a tensor of the bytes 0, 1, 2, … in a file.
    fn counted(shape: &[u64]) -> (FileSet, Tensor) {
        let numel: u64 = shape.iter().product();
        let files = FileSet::single("x", Memory::from((0..numel as u8).collect::<Vec<u8>>()));
        let span = Span { file: files.main().unwrap(), offset: 0, len: numel };
        (files, Tensor::new(DType::U8, shape.to_vec(), Layout::Span(span)))
    }

    fn read(files: &FileSet, view: &View) -> Vec<u8> {
        let tensor = view.tensor().unwrap();
        elements(files, &tensor, 0..tensor.numel().unwrap()).unwrap()
    }

    /// Interleaves the halves of each of two heads.
    fn interleaved(view: &View) -> View {
        let heads = view.reshape(&[2, 2, 2, 3]).unwrap();
        heads.permute(&[0, 2, 1, 3]).unwrap().reshape(&[8, 3]).unwrap()
    }

    #[test]
    fn reads_and_inverts_a_permutation_within_heads() {
        let (files, tensor) = counted(&[8, 3]);
        let view = View::of(&tensor).unwrap();
        let there = interleaved(&view);
        let rows: Vec<u8> = read(&files, &there).iter().step_by(3).map(|byte| byte / 3).collect();
        assert_eq!(rows, [0, 2, 1, 3, 4, 6, 5, 7]);
        assert_eq!(interleaved(&there).tensor().unwrap().layout, tensor.layout);
    }

    #[test]
    fn joined_slices_of_a_span_are_a_span() {
        let (files, tensor) = counted(&[6, 4]);
        let view = View::of(&tensor).unwrap().reshape(&[2, 3, 4]).unwrap();
        let parts: Vec<View> = (0..3).map(|at| view.slice(1, at, 1).unwrap()).collect();
        let flat = parts[1].reshape(&[2, 4]).unwrap();
        assert_eq!(read(&files, &flat), [4, 5, 6, 7, 16, 17, 18, 19]);
        let whole = View::concat(1, &parts).unwrap().reshape(&[6, 4]).unwrap();
        assert_eq!(whole.tensor().unwrap().layout, tensor.layout);
    }

    #[test]
    fn rolls_rows_and_stacks_experts() {
        let (files, tensor) = counted(&[3, 2]);
        let view = View::of(&tensor).unwrap();
        let (last, first) = (view.slice(0, 1, 2).unwrap(), view.slice(0, 0, 1).unwrap());
        let rolled = View::concat(0, &[last, first]).unwrap();
        assert_eq!(read(&files, &rolled), [2, 3, 4, 5, 0, 1]);
        let stacked = View::stack(1, &[rolled, view.clone()]).unwrap();
        assert_eq!(stacked.shape(), [3, 2, 2]);
        assert_eq!(read(&files, &stacked), [2, 3, 0, 1, 4, 5, 2, 3, 0, 1, 4, 5]);
        assert_eq!(read(&files, &stacked.index(1, 0).unwrap()), [2, 3, 4, 5, 0, 1]);
    }

    #[test]
    fn reshapes_and_slices_a_transposed_matrix() {
        let (files, tensor) = counted(&[4, 3]);
        let turned = View::of(&tensor).unwrap().permute(&[1, 0]).unwrap();
        let other = turned.reshape(&[2, 6]).unwrap();
        assert_eq!(read(&files, &other), [0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11]);
        assert_eq!(read(&files, &other.slice(1, 1, 2).unwrap()), [3, 6, 10, 2]);
        let back = turned.permute(&[1, 0]).unwrap().tensor().unwrap();
        assert_eq!(back.layout, tensor.layout);
    }

    #[test]
    fn refuses_invalid_shapes() {
        let (_, tensor) = counted(&[4, 3]);
        let view = View::of(&tensor).unwrap();
        assert!(view.reshape(&[5, 3]).is_err());
        assert!(view.slice(0, 3, 2).is_err());
        assert!(view.slice(2, 0, 1).is_err());
        assert!(view.permute(&[0]).is_err());
        assert!(View::concat(0, &[view.clone(), view.permute(&[1, 0]).unwrap()]).is_err());
        let empty = view.slice(0, 4, 0).unwrap().reshape(&[3, 0]).unwrap();
        assert_eq!(empty.tensor().unwrap().shape, [3, 0]);
    }
}
