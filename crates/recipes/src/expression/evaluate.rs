//! Evaluates expressions.

use std::borrow::Cow;

use statelens_checkpoint::{Error, Result};

use super::{Function, Node, Operator, Scope};
use crate::value::{List, MAX_NODES, Map, Value, too_large, unfit};

type Found<'a> = Result<Cow<'a, Value>>;

/// Evaluates a node. Recurses; the parser bounds the depth.
pub(super) fn eval<'a>(node: &'a Node, scope: &'a dyn Scope) -> Found<'a> {
    let value = match node {
        Node::Value(value) => return Ok(Cow::Borrowed(value)),
        Node::Config(..) | Node::Key(_) => {
            return match reference(node, scope) {
                Some(value) => Ok(Cow::Borrowed(value)),
                None => {
                    scope.missing(&label(node, scope).unwrap_or_default())?;
                    Ok(Cow::Borrowed(&Value::Null))
                }
            };
        }
        Node::Name(name) => {
            let value = scope.named(name);
            let unset = || Error::refused(format!("`{name}` is not set"));
            return Ok(Cow::Borrowed(value.ok_or_else(unset)??));
        }
        Node::Hole(name) => scope.captured(name).map(Value::from).ok_or_else(|| {
            Error::refused(format!("`{{{name}}}` is not a hole of this rule's key"))
        })?,
        Node::Has(key) => Value::Bool(scope.has(key)),
        Node::Made(key) => Value::Bool(scope.made(key)),
        Node::Count(key) => Value::Int(scope.count(key)),
        Node::Fact(key) => return Ok(Cow::Borrowed(scope.fact(key).unwrap_or(&Value::Null))),
        Node::Length(key, dim) => scope.length(key, *dim).map_or(Value::Null, Value::Int),
        Node::Call(function, arguments) => return call(*function, arguments, scope),
        Node::List(nodes) => {
            let mut size = 0;
            let items = nodes.iter().map(|node| Ok(item(node, scope, &mut size)?.into_owned()));
            Value::List(items.collect::<Result<List>>()?)
        }
        Node::Section(entries) => {
            let mut size = 0;
            let entries = entries
                .iter()
                .map(|(key, node)| Ok((key.as_str(), item(node, scope, &mut size)?.into_owned())));
            Value::Map(entries.collect::<Result<Map>>()?)
        }
        Node::Not(of) => Value::Bool(!eval_or_null(of, scope)?.is_true()),
        Node::Minus(of) => {
            let value = number(of, scope)?;
            compute(Operator::Subtract, &Value::Int(0), &value)?
        }
        Node::If(three) => {
            let [then, condition, other] = &**three;
            let chosen = if eval_or_null(condition, scope)?.is_true() { then } else { other };
            return eval(chosen, scope);
        }
        Node::Two(operator, two) => return binary(*operator, two, scope),
    };
    Ok(Cow::Owned(value))
}

/// Like [`eval`], but a path without a value is null.
pub(super) fn eval_or_null<'a>(node: &'a Node, scope: &'a dyn Scope) -> Found<'a> {
    match node {
        Node::Config(..) | Node::Key(_) => {
            Ok(Cow::Borrowed(reference(node, scope).unwrap_or(&Value::Null)))
        }
        _ => eval(node, scope),
    }
}

fn reference<'a>(node: &Node, scope: &'a dyn Scope) -> Option<&'a Value> {
    match node {
        Node::Config(side, path) => scope.config(*side, path),
        Node::Key(path) => scope.key(path),
        _ => None,
    }
}

/// Returns the name of a path for messages.
fn label(node: &Node, scope: &dyn Scope) -> Option<String> {
    match node {
        Node::Config(_, path) => Some(path.join(".")),
        Node::Key(path) => Some(scope.label(path)),
        Node::Name(name) => Some(name.clone()),
        _ => None,
    }
}

/// Evaluates an item of a list or section, whose size is limited.
fn item<'a>(node: &'a Node, scope: &'a dyn Scope, size: &mut usize) -> Found<'a> {
    let value = eval_or_null(node, scope)?;
    *size += value.nodes();
    if *size > MAX_NODES { Err(too_large()) } else { Ok(value) }
}

/// Evaluates a node whose value must be a number.
fn number<'a>(node: &'a Node, scope: &'a dyn Scope) -> Found<'a> {
    let value = eval(node, scope)?;
    if value.as_f64().is_some() {
        return Ok(value);
    }
    Err(match label(node, scope) {
        Some(name) if value.is_null() && reference(node, scope).is_none() => {
            Error::refused(format!("{name} is not in the config"))
                .expected("a number, which the conversion depends on")
        }
        Some(name) => unfit(&name, &value, "a number"),
        None if value.is_null() => {
            Error::refused("a number that the expression needs is not in the config")
        }
        None => Error::refused(format!("{} is not a number", value.quoted())),
    })
}

fn call<'a>(function: Function, arguments: &'a [Node], scope: &'a dyn Scope) -> Found<'a> {
    let [first, rest @ ..] = arguments else { return Ok(Cow::Borrowed(&Value::Null)) };
    let starts_or_ends = |test: fn(&str, &str) -> bool| -> Result<Value> {
        let (text, part) = (eval_or_null(first, scope)?, &rest.first());
        let part = part.map(|part| eval(part, scope)).transpose()?;
        let part = part.as_deref().and_then(Value::as_str);
        Ok(Value::Bool(text.as_str().zip(part).is_some_and(|(text, part)| test(text, part))))
    };
    let value = match function {
        Function::Default => {
            for one in arguments {
                let value = eval_or_null(one, scope)?;
                if !value.is_null() {
                    return Ok(value);
                }
            }
            Value::Null
        }
        Function::Sqrt => match number(first, scope)? {
            value if value.as_f64().is_some_and(|number| number >= 0.0) => {
                Value::Float(value.as_f64().unwrap_or_default().sqrt())
            }
            value => {
                let name = label(first, scope).unwrap_or_else(|| "a value under a root".to_owned());
                return Err(unfit(&name, &value, "a number of 0 or more"));
            }
        },
        Function::Abs => {
            let value = number(first, scope)?;
            match value.as_int() {
                Some(whole) => whole.checked_abs().map(Value::Int).ok_or_else(overflow)?,
                None => Value::Float(value.as_f64().unwrap_or_default().abs()),
            }
        }
        Function::Float => Value::Float(number(first, scope)?.as_f64().unwrap_or_default()),
        Function::Int => {
            let value = number(first, scope)?;
            let limit = i64::MAX as f64;
            match (value.as_int(), value.as_f64()) {
                (Some(whole), _) => Value::Int(whole),
                (None, Some(number)) if number.abs() < limit => Value::Int(number as i64),
                _ => return Err(overflow()),
            }
        }
        Function::Len => match &*eval_or_null(first, scope)? {
            Value::List(list) => Value::Int(length(list.len())),
            Value::Map(map) => Value::Int(length(map.len())),
            _ => Value::Null,
        },
        Function::Starts => starts_or_ends(|text, part| text.starts_with(part))?,
        Function::Ends => starts_or_ends(|text, part| text.ends_with(part))?,
    };
    Ok(Cow::Owned(value))
}

fn length(len: usize) -> i64 {
    i64::try_from(len).unwrap_or(i64::MAX)
}

fn binary<'a>(operator: Operator, two: &'a [Node; 2], scope: &'a dyn Scope) -> Found<'a> {
    let [left, right] = two;
    let value = match operator {
        Operator::Or | Operator::And => {
            let value = eval_or_null(left, scope)?;
            let decided = value.is_true() == (operator == Operator::Or);
            return if decided { Ok(value) } else { eval_or_null(right, scope) };
        }
        Operator::Is | Operator::IsNot => {
            let same = eval_or_null(left, scope)?.equals(&*eval_or_null(right, scope)?);
            Value::Bool(same == (operator == Operator::Is))
        }
        Operator::In => {
            let value = eval_or_null(left, scope)?;
            Value::Bool(match &*eval_or_null(right, scope)? {
                Value::List(list) => list.iter().any(|item| item.equals(&value)),
                Value::Text(text) => value.as_str().is_some_and(|part| text.contains(part)),
                _ => false,
            })
        }
        _ => {
            let (one, other) = (number(left, scope)?, number(right, scope)?);
            let divides =
                matches!(operator, Operator::Divide | Operator::DivideDown | Operator::Remainder);
            if divides && other.as_f64() == Some(0.0) {
                let name =
                    label(right, scope).unwrap_or_else(|| "a number in the config".to_owned());
                return Err(unfit(&name, &other, "a number other than 0"));
            }
            compute(operator, &one, &other)?
        }
    };
    Ok(Cow::Owned(value))
}

fn overflow() -> Error {
    Error::refused("a number in the config is too large")
}

/// Computes with two numbers, of which the second is not 0 if it divides.
fn compute(operator: Operator, left: &Value, right: &Value) -> Result<Value> {
    if let (Some(one), Some(other)) = (left.as_int(), right.as_int()) {
        let down = || {
            let quotient = one.checked_div(other)?;
            let inexact = one.checked_rem(other)? != 0;
            Some(quotient - i64::from(inexact && (one < 0) != (other < 0)))
        };
        let whole = match operator {
            Operator::Add => one.checked_add(other),
            Operator::Subtract => one.checked_sub(other),
            Operator::Multiply => one.checked_mul(other),
            Operator::DivideDown => down(),
            Operator::Remainder => one.checked_rem(other).map(|rest| {
                if rest != 0 && (rest < 0) != (other < 0) { rest + other } else { rest }
            }),
            Operator::Less => return Ok(Value::Bool(one < other)),
            Operator::AtMost => return Ok(Value::Bool(one <= other)),
            Operator::More => return Ok(Value::Bool(one > other)),
            Operator::AtLeast => return Ok(Value::Bool(one >= other)),
            _ if one.checked_rem(other).is_some_and(|rest| rest != 0) => {
                return Err(Error::refused(format!(
                    "{one} can't be divided by {other} without a rest"
                )));
            }
            _ => one.checked_div(other),
        };
        return whole.map(Value::Int).ok_or_else(overflow);
    }
    let one = left.as_f64().unwrap_or_default();
    let other = right.as_f64().unwrap_or_default();
    let result = match operator {
        Operator::Add => one + other,
        Operator::Subtract => one - other,
        Operator::Multiply => one * other,
        Operator::DivideDown => (one / other).floor(),
        Operator::Remainder => one - (one / other).floor() * other,
        Operator::Less => return Ok(Value::Bool(one < other)),
        Operator::AtMost => return Ok(Value::Bool(one <= other)),
        Operator::More => return Ok(Value::Bool(one > other)),
        Operator::AtLeast => return Ok(Value::Bool(one >= other)),
        _ => one / other,
    };
    let overflows = one.is_finite() && other.is_finite() && !result.is_finite();
    if overflows { Err(overflow()) } else { Ok(Value::Float(result)) }
}
