//! What the operations of a rule do to views, there and back.

use statelens_checkpoint::{Arithmetic, Error, Result};

use crate::language::{Expression, Operation, Scope, Slot};
use crate::view::View;

/// From left to right: `members` are the names of the keys that go together, if they have names.
pub(super) fn forward(
    operation: &Operation,
    views: Vec<View>,
    members: &[String],
    scope: &dyn Scope,
) -> Result<Vec<View>> {
    match operation {
        Operation::Split { groups, slots } => {
            split(&only(&views)?, said(groups.count(scope))?, slots, members, scope)
        }
        Operation::Stack(axis) => Ok(vec![View::stack(*axis, &views)?]),
        Operation::Concat(axis) => Ok(vec![View::concat(*axis, &views)?]),
        Operation::Repeat => Ok(vec![only(&views[..views.len().min(1)])?]),
        other => each(other, views, members, scope, true),
    }
}

/// From right to left: `count` is how many keys go together.
pub(super) fn backward(
    operation: &Operation,
    views: Vec<View>,
    members: &[String],
    count: usize,
    scope: &dyn Scope,
) -> Result<Vec<View>> {
    match operation {
        Operation::Split { groups, slots } => {
            Ok(vec![unsplit(&views, said(groups.count(scope))?, slots, members, scope)?])
        }
        Operation::Stack(axis) => {
            let whole = only(&views)?;
            check_count(whole.shape().get(*axis), count as u64)?;
            (0..count as u64).map(|at| whole.index(*axis, at)).collect()
        }
        Operation::Concat(axis) => {
            let whole = only(&views)?;
            let len = whole.shape().get(*axis).copied().unwrap_or(0);
            if count == 0 || !len.is_multiple_of(count as u64) {
                return Err(cannot("be cut", &whole, &format!("{count} equal parts")));
            }
            let part = len / count as u64;
            (0..count as u64).map(|at| whole.slice(*axis, at * part, part)).collect()
        }
        Operation::Repeat => Ok(vec![only(&views)?; count]),
        other => each(other, views, members, scope, false),
    }
}

/// Operations on one tensor each.
fn each(
    operation: &Operation,
    views: Vec<View>,
    members: &[String],
    scope: &dyn Scope,
    there: bool,
) -> Result<Vec<View>> {
    views
        .into_iter()
        .enumerate()
        .map(|(at, view)| match operation {
            Operation::Transpose if view.shape().len() == 2 => view.permute(&[1, 0]),
            Operation::Rope { heads, dim } => match heads_of(heads, members.get(at)) {
                Some(heads) => {
                    let dim = dim.as_ref().map(|dim| said(dim.count(scope))).transpose()?;
                    rope(&view, said(heads.count(scope))?, dim, there)
                }
                None => Ok(view),
            },
            Operation::Lead(count) => lead(&view, *count, there),
            Operation::Roll => roll(&view, there),
            Operation::Add(number) => {
                view.compute(&[Arithmetic::Add(if there { *number } else { -number })])
            }
            _ => Ok(view),
        })
        .collect()
}

/// Rows as `[groups, all slots, d]`, cut along the second axis.
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

/// In each head, the first `dim` rows as `[2, dim/2]` become `[dim/2, 2]`; back the other way.
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

/// Leading dimensions of one index go, or come.
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

/// The first row becomes the last, or the last the first.
fn roll(view: &View, there: bool) -> Result<View> {
    let (rows, _) = rows(view)?;
    if rows < 2 {
        return Ok(view.clone());
    }
    let at = if there { 1 } else { rows - 1 };
    View::concat(0, &[view.slice(0, at, rows - at)?, view.slice(0, 0, at)?])
}

fn heads_of<'a>(heads: &'a [Slot], member: Option<&String>) -> Option<&'a Expression> {
    let named = |slot: &&Slot| slot.name.is_empty() || member == Some(&slot.name);
    heads.iter().find(named).map(|slot| &slot.value)
}

fn sizes(slots: &[Slot], scope: &dyn Scope) -> Result<Vec<u64>> {
    let sizes: Result<Vec<u64>> = slots.iter().map(|slot| said(slot.value.count(scope))).collect();
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

fn only(views: &[View]) -> Result<View> {
    match views {
        [one] => Ok(one.clone()),
        _ => Err(Error::refused(format!("{} tensors where the rule needs one", views.len()))),
    }
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

/// The first dimension, and the others.
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
        .advice("Does the config belong to this checkpoint?")
}

pub(super) fn said<T>(result: std::result::Result<T, String>) -> Result<T> {
    result.map_err(Error::refused)
}
