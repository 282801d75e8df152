//! The effect of a rule's operations on views, in both directions.

use statelens_checkpoint::{Arithmetic, Error, Limits, Result};

use crate::language::{Expression, Operation, Scope, Slot};
use crate::view::View;

/// Rows; larger than the padding of any vocabulary.
const MAX_PADDING: u64 = 1 << 16;

/// The context in which a rule's operations are applied to the tensors of its groups of keys.
pub(super) struct OperationContext<'a> {
    /// Whether operations are applied from left to right; otherwise they are undone.
    pub(super) there: bool,
    /// Whether several tensors become one; otherwise one becomes several.
    pub(super) joining: bool,
    pub(super) groups: &'a [Vec<String>],
    /// The number of leading groups that the current tensors are divided by.
    pub(super) open: usize,
    pub(super) scope: &'a dyn Scope,
}

impl OperationContext<'_> {
    /// Applies one operation. Each operation on several keys uses up one of the groups.
    pub(super) fn step(&mut self, operation: &Operation, views: Vec<View>) -> Result<Vec<View>> {
        let several = matches!(
            operation,
            Operation::Split { .. }
                | Operation::Stack(_)
                | Operation::Concat(_)
                | Operation::Repeat
        );
        if !several {
            let all = views.into_iter().enumerate();
            return all.map(|(at, view)| self.each(operation, at, view)).collect();
        }
        if self.joining {
            self.open = self.open.checked_sub(1).ok_or_else(no_group)?;
            let names = self.groups.get(self.open).ok_or_else(no_group)?;
            if names.is_empty() || !views.len().is_multiple_of(names.len()) {
                return Err(no_group());
            }
            return views
                .chunks(names.len())
                .map(|part| self.join(operation, part, names))
                .collect();
        }
        let names = self.groups.get(self.open).ok_or_else(no_group)?;
        self.open += 1;
        let mut parts = Vec::new();
        for view in &views {
            parts.extend(self.cut(operation, view, names)?);
        }
        Ok(parts)
    }

    fn join(&self, operation: &Operation, views: &[View], names: &[String]) -> Result<View> {
        match operation {
            Operation::Split { groups, slots } => {
                unsplit(views, groups.count(self.scope)?, slots, names, self.scope)
            }
            Operation::Stack(axis) => View::stack(*axis, views),
            Operation::Concat(axis) => View::concat(*axis, views),
            _ => views.first().cloned().ok_or_else(no_group),
        }
    }

    fn cut(&self, operation: &Operation, whole: &View, names: &[String]) -> Result<Vec<View>> {
        let count = names.len() as u64;
        match operation {
            Operation::Split { groups, slots } => {
                split(whole, groups.count(self.scope)?, slots, names, self.scope)
            }
            Operation::Stack(axis) => {
                check_count(whole.shape().get(*axis), count)?;
                (0..count).map(|at| whole.index(*axis, at)).collect()
            }
            Operation::Concat(axis) => {
                let len = whole.shape().get(*axis).copied().unwrap_or(0);
                if count == 0 || !len.is_multiple_of(count) {
                    return Err(cannot("be cut", whole, &format!("{count} equal parts")));
                }
                let part = len / count;
                (0..count).map(|at| whole.slice(*axis, at * part, part)).collect()
            }
            _ => Ok(vec![whole.clone(); names.len()]),
        }
    }

    /// Applies an operation to a single tensor; `at` is its index among the current tensors.
    fn each(&self, operation: &Operation, at: usize, view: View) -> Result<View> {
        let scope = self.scope;
        match operation {
            Operation::Transpose if view.shape().len() == 2 => view.permute(&[1, 0]),
            Operation::Rope { heads, dim } => match self.heads_of(heads, at) {
                Some(heads) => {
                    let dim = dim.as_ref().map(|dim| dim.count(scope)).transpose()?;
                    rope(&view, heads.count(scope)?, dim, self.there)
                }
                None => Ok(view),
            },
            Operation::Regroup { outer, inner } => {
                let (outer, inner) = (outer.count(scope)?, inner.count(scope)?);
                let (outer, inner) = if self.there { (outer, inner) } else { (inner, outer) };
                regroup(&view, outer, inner)
            }
            Operation::Pad { rows, padded } if self.there => {
                pad(&view, rows.count(scope)?, padded.count(scope)?)
            }
            Operation::Pad { rows, .. } => cut_off(&view, rows.count(scope)?),
            Operation::Lead(count) => lead(&view, *count, self.there),
            Operation::Roll => roll(&view, self.there),
            Operation::Add(number) => {
                view.compute(&[Arithmetic::Add(if self.there { *number } else { -number })])
            }
            _ => Ok(view),
        }
    }

    /// Returns the number of heads for all tensors, or for the one with the name of this key.
    fn heads_of<'b>(&self, heads: &'b [Slot], mut at: usize) -> Option<&'b Expression> {
        let mut names = Vec::new();
        for group in self.groups.iter().take(self.open).rev().filter(|group| !group.is_empty()) {
            names.extend(group.get(at % group.len()));
            at /= group.len();
        }
        let named = |slot: &&Slot| slot.name.is_empty() || names.contains(&&slot.name);
        heads.iter().find(named).map(|slot| &slot.value)
    }
}

/// Splits rows, as `[groups, sum of slots, d]`, along the second axis.
fn split(
    view: &View,
    groups: u64,
    slots: &[Slot],
    members: &[String],
    scope: &dyn Scope,
) -> Result<Vec<View>> {
    let sizes = sizes(slots, scope)?;
    let sum: u64 = sizes.iter().sum();
    let (rows, rest) = rows(view)?;
    let heads = groups.checked_mul(sum).filter(|heads| *heads > 0 && rows.is_multiple_of(*heads));
    let Some(heads) = heads else {
        return Err(cannot("be cut", view, &format!("{groups} groups of {sum}")));
    };
    let grouped = view.reshape(&with(&[groups, sum, rows / heads], rest))?;
    members
        .iter()
        .map(|member| {
            let at = place(slots, member)?;
            let part = grouped.slice(1, sizes[..at].iter().sum(), sizes[at])?;
            part.reshape(&with(&[groups * sizes[at] * (rows / heads)], rest))
        })
        .collect()
}

fn unsplit(
    views: &[View],
    groups: u64,
    slots: &[Slot],
    members: &[String],
    scope: &dyn Scope,
) -> Result<View> {
    let sizes = sizes(slots, scope)?;
    let mut parts = Vec::with_capacity(slots.len());
    let mut each = None;
    for (slot, size) in slots.iter().zip(&sizes) {
        let at = members.iter().position(|member| *member == slot.name);
        let view = at.and_then(|at| views.get(at)).ok_or_else(|| missing(&slot.name))?;
        let (rows, rest) = rows(view)?;
        let heads = groups.checked_mul(*size).filter(|heads| *heads > 0);
        let len = heads.filter(|heads| rows.is_multiple_of(*heads)).map(|heads| rows / heads);
        match (len, each) {
            (Some(len), None) => each = Some(len),
            (Some(len), Some(each)) if len == each => {}
            _ => return Err(cannot("be cut", view, &format!("{groups} groups of {size}"))),
        }
        parts.push(view.reshape(&with(&[groups, rows / groups.max(1)], rest))?);
    }
    let whole = View::concat(1, &parts)?;
    let (_, rest) = rows(views.first().ok_or_else(|| missing("first"))?)?;
    let len = whole.shape().first().zip(whole.shape().get(1)).map_or(0, |(g, len)| g * len);
    whole.reshape(&with(&[len], rest))
}

/// In each head, reorders the first `dim` rows from `[2, dim/2]` to `[dim/2, 2]`, or the other way
/// round.
fn rope(view: &View, heads: u64, dim: Option<u64>, there: bool) -> Result<View> {
    let (rows, rest) = rows(view)?;
    if heads == 0 || !rows.is_multiple_of(heads) {
        return Err(cannot("be cut", view, &format!("{heads} heads")));
    }
    let head = rows / heads;
    let dim = dim.unwrap_or(head);
    if dim > head || !dim.is_multiple_of(2) {
        return Err(cannot("be rotated", view, &format!("heads of {head} rows, {dim} of them")));
    }
    let split = view.reshape(&with(&[heads, head], rest))?;
    let halves = if there { [heads, 2, dim / 2] } else { [heads, dim / 2, 2] };
    let turned = split.slice(1, 0, dim)?.reshape(&with(&halves, rest))?;
    let order: Vec<usize> = [0, 2, 1].into_iter().chain(3..3 + rest.len()).collect();
    let turned = turned.permute(&order)?.reshape(&with(&[heads, dim], rest))?;
    let whole = match head == dim {
        true => turned,
        false => View::concat(1, &[turned, split.slice(1, dim, head - dim)?])?,
    };
    whole.reshape(&with(&[rows], rest))
}

/// Reorders rows from `[outer, inner, d]` to `[inner, outer, d]`.
fn regroup(view: &View, outer: u64, inner: u64) -> Result<View> {
    let (rows, rest) = rows(view)?;
    let parts = outer.checked_mul(inner).filter(|parts| *parts > 0 && rows.is_multiple_of(*parts));
    let Some(parts) = parts else {
        return Err(cannot("be cut", view, &format!("{outer} groups of {inner}")));
    };
    let split = view.reshape(&with(&[outer, inner, rows / parts], rest))?;
    let order: Vec<usize> = [1, 0].into_iter().chain(2..3 + rest.len()).collect();
    split.permute(&order)?.reshape(&with(&[rows], rest))
}

/// Repeats the last row until there are `padded` rows.
fn pad(view: &View, own: u64, padded: u64) -> Result<View> {
    let (rows, _) = rows(view)?;
    if rows != own || padded < rows || rows == 0 {
        return Err(cannot("be padded", view, &format!("{padded} rows, where {own} are expected")));
    }
    if padded == rows {
        return Ok(view.clone());
    }
    let more = padded - rows;
    Limits::check("rows of padding", more, MAX_PADDING)?;
    let last = view.slice(0, rows - 1, 1)?;
    let mut parts = vec![view.clone()];
    parts.extend(vec![last; more as usize]);
    View::concat(0, &parts)
}

fn cut_off(view: &View, own: u64) -> Result<View> {
    let (rows, _) = rows(view)?;
    match own <= rows {
        true => view.slice(0, 0, own),
        false => Err(cannot("lose padding down", view, &format!("{own} rows"))),
    }
}

/// Removes or adds leading dimensions of length 1.
fn lead(view: &View, count: usize, there: bool) -> Result<View> {
    let shape = view.shape();
    if !there {
        let mut longer = vec![1; count];
        longer.extend(shape);
        return view.reshape(&longer);
    }
    match shape.get(..count) {
        Some(leading) if leading.iter().all(|len| *len == 1) => view.reshape(&shape[count..]),
        _ => Err(cannot("lose", view, &format!("{count} leading dimensions of one index"))),
    }
}

/// Moves the first row to the end, or the last to the start.
fn roll(view: &View, there: bool) -> Result<View> {
    let (rows, _) = rows(view)?;
    if rows < 2 {
        return Ok(view.clone());
    }
    let at = if there { 1 } else { rows - 1 };
    View::concat(0, &[view.slice(0, at, rows - at)?, view.slice(0, 0, at)?])
}

fn sizes(slots: &[Slot], scope: &dyn Scope) -> Result<Vec<u64>> {
    let sizes: Result<Vec<u64>> = slots.iter().map(|slot| slot.value.count(scope)).collect();
    match sizes?.into_iter().map(|size| (size < 1 << 32).then_some(size)).collect() {
        Some(sizes) => Ok(sizes),
        None => Err(Error::refused("a part of a tensor is larger than any tensor")),
    }
}

fn place(slots: &[Slot], member: &str) -> Result<usize> {
    slots.iter().position(|slot| slot.name == member).ok_or_else(|| missing(member))
}

fn missing(name: &str) -> Error {
    Error::refused(format!("the rule does not say which part `{name}` is"))
}

fn no_group() -> Error {
    Error::refused("the rule's operations need another number of groups of keys than it has")
}

fn check_count(len: Option<&u64>, count: u64) -> Result<()> {
    match len {
        Some(len) if *len == count => Ok(()),
        len => Err(Error::refused(format!(
            "the config says {count} parts, and the tensor has {}",
            len.copied().unwrap_or(0)
        ))),
    }
}

/// Returns the first dimension, and the others.
fn rows(view: &View) -> Result<(u64, &[u64])> {
    match view.shape() {
        [rows, rest @ ..] => Ok((*rows, rest)),
        [] => Err(Error::refused("a number where a tensor with rows was expected")),
    }
}

fn with(first: &[u64], rest: &[u64]) -> Vec<u64> {
    first.iter().chain(rest).copied().collect()
}

fn cannot(what: &str, view: &View, into: &str) -> Error {
    Error::refused(format!("a tensor of shape {:?} can't {what} into {into}", view.shape()))
        .advice("Check that the config belongs to this checkpoint.")
}
