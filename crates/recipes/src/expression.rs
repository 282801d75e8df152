//! Expressions of recipes and of config tables: values and conditions that depend on the configs
//! and the keys.
//!
//! `cs.num_heads`, `H / KV`, `hf.tie_word_embeddings is true`, `has(lm_head.weight)`, `A if
//! CONDITION else B`, `default(cs.rope_theta, 10000)`, `{num_kv_groups: 1}`.
//!
//! Values compare and compute as in Python, except that whole numbers must divide without a
//! remainder. In recipes, bare names are defined by `let`; in tables, they are keys of the config.

mod evaluate;
mod parse;

use std::borrow::Cow;
use std::fmt;

use statelens_checkpoint::{Error, Result};

use crate::side::Side;
use crate::value::Value;
use evaluate::{eval, eval_or_null};

#[derive(Debug, Clone)]
pub struct Expression {
    text: String,
    node: Node,
}

/// The values that an expression can refer to.
pub trait Scope {
    /// Returns the value at a path in a config.
    fn config(&self, side: Side, path: &[String]) -> Option<&Value>;
    /// Returns the value at a path in the config that a line of a table is about.
    fn key(&self, _path: &[String]) -> Option<&Value> {
        None
    }
    /// Returns the name of such a path for messages.
    fn label(&self, path: &[String]) -> String {
        path.join(".")
    }
    /// Fails if a path without a value is an error here; otherwise it is null.
    fn missing(&self, _label: &str) -> Result<()> {
        Ok(())
    }
    /// Returns the value of a name defined by `let`.
    fn named(&self, _name: &str) -> Option<Result<&Value>> {
        None
    }
    /// Returns the text that fills a hole in the rule's key.
    fn captured(&self, _name: &str) -> Option<String> {
        None
    }
    /// Returns whether the source has a key, whose holes are filled.
    fn has(&self, _key: &str) -> bool {
        false
    }
    /// Returns whether the target has a key by now.
    fn made(&self, _key: &str) -> bool {
        false
    }
    /// Returns one more than the highest number that `{n}` has in the source's keys of this
    /// pattern.
    fn count(&self, _key: &str) -> i64 {
        0
    }
    /// Returns a plain number that accompanies the source's tensors.
    fn fact(&self, _key: &str) -> Option<&Value> {
        None
    }
    /// Returns the length of a dimension of a tensor in the source; `None` if it is missing.
    fn length(&self, _key: &str, _dim: usize) -> Option<i64> {
        None
    }
}

/// A scope without any values.
struct Nothing;

impl Scope for Nothing {
    fn config(&self, _: Side, _: &[String]) -> Option<&Value> {
        None
    }
}

#[derive(Debug, Clone)]
enum Node {
    Value(Value),
    Config(Side, Vec<String>),
    Key(Vec<String>),
    Name(String),
    Hole(String),
    Has(String),
    Made(String),
    Count(String),
    Fact(String),
    Length(String, usize),
    Call(Function, Vec<Node>),
    List(Vec<Node>),
    Section(Vec<(String, Node)>),
    Not(Box<Node>),
    Minus(Box<Node>),
    Two(Operator, Box<[Node; 2]>),
    /// The value, the condition, and the value otherwise.
    If(Box<[Node; 3]>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Function {
    Default,
    Sqrt,
    Abs,
    Float,
    Int,
    Len,
    Starts,
    Ends,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Or,
    And,
    Is,
    IsNot,
    In,
    Less,
    AtMost,
    More,
    AtLeast,
    Add,
    Subtract,
    Multiply,
    Divide,
    DivideDown,
    Remainder,
}

impl Expression {
    /// Parses an expression of a recipe; the error is a message for the user.
    pub fn parse(text: &str) -> Result<Self, String> {
        let node = parse::parse(text, parse::Names::Lets)?;
        Ok(Self { text: text.trim().to_owned(), node })
    }

    /// Parses an expression of a config table, in which names are keys.
    pub(crate) fn of_table(text: &str) -> Result<Self> {
        let node = parse::parse(text, parse::Names::Keys).map_err(Error::damaged)?;
        Ok(Self { text: text.trim().to_owned(), node })
    }

    /// Returns the value; an error refuses the conversion.
    pub fn value(&self, scope: &dyn Scope) -> Result<Value> {
        eval(&self.node, scope).map(Cow::into_owned)
    }

    /// Evaluates an expression that refers to nothing else.
    pub fn constant(&self) -> Result<Value> {
        self.value(&Nothing)
    }

    /// Returns the truth value, as Python's `bool()` does; a missing value is false.
    pub fn is_true(&self, scope: &dyn Scope) -> Result<bool> {
        Ok(eval_or_null(&self.node, scope)?.is_true())
    }

    pub fn count(&self, scope: &dyn Scope) -> Result<u64> {
        match self.value(scope)? {
            Value::Int(number) if number >= 0 => Ok(number as u64),
            Value::Float(number) if number >= 0.0 && number.fract() == 0.0 && number < 1e15 => {
                Ok(number as u64)
            }
            Value::Null => Err(Error::refused(format!("`{}` is not in the config", self.text))),
            other => {
                let value = other.quoted();
                Err(Error::refused(format!("`{}` is {value}, not a count", self.text)))
            }
        }
    }

    pub fn number(&self, scope: &dyn Scope) -> Result<f64> {
        let value = self.value(scope)?;
        let what =
            || Error::refused(format!("`{}` is {}, not a number", self.text, value.quoted()));
        value.as_f64().ok_or_else(what)
    }

    /// Returns the names in it that are neither configs nor functions.
    pub fn names(&self) -> Vec<&str> {
        let mut found = Vec::new();
        let mut open = vec![&self.node];
        while let Some(node) = open.pop() {
            match node {
                Node::Name(name) => found.push(&**name),
                Node::Call(_, all) | Node::List(all) => open.extend(all),
                Node::Section(all) => open.extend(all.iter().map(|(_, node)| node)),
                Node::Not(one) | Node::Minus(one) => open.push(one),
                Node::Two(_, two) => open.extend(&**two),
                Node::If(three) => open.extend(&**three),
                _ => {}
            }
        }
        found
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct TestScope(Value);

    impl TestScope {
        fn new() -> Self {
            let text = "{left: {tied: true, kind: \"rotary\", many: [1, \"two\"]}, \
                 right: {num_heads: 12, extra: {groups: 4}, none: 0}, lets: {H: 12}}";
            Self(Expression::parse(text).unwrap().constant().unwrap())
        }

        fn get(&self, section: &str, path: &[String]) -> Option<&Value> {
            self.0.at(&[section.to_owned()])?.at(path)
        }
    }

    impl Scope for TestScope {
        fn config(&self, side: Side, path: &[String]) -> Option<&Value> {
            self.get(if side == Side::Left { "left" } else { "right" }, path)
        }
        fn key(&self, path: &[String]) -> Option<&Value> {
            self.get("right", path)
        }
        fn named(&self, name: &str) -> Option<Result<&Value>> {
            self.get("lets", &[name.to_owned()]).map(Ok)
        }
        fn captured(&self, name: &str) -> Option<String> {
            (name == "wb").then(|| "bias".to_owned())
        }
        fn has(&self, key: &str) -> bool {
            key == "lm_head.{wb}"
        }
        fn count(&self, _: &str) -> i64 {
            3
        }
        fn length(&self, _: &str, dim: usize) -> Option<i64> {
            Some([5, 7][dim])
        }
    }

    #[test]
    fn evaluates_expressions() {
        let scope = TestScope::new();
        for (text, value) in [
            ("right.num_heads / right.extra.groups", Value::Int(3)),
            ("H // 5 + 2 * 3", Value::Int(8)),
            ("-7 // 2", Value::Int(-4)),
            ("-7 % 4", Value::Int(1)),
            ("7.5 % 4", Value::Float(3.5)),
            ("float(3) / 2", Value::Float(1.5)),
            ("int(-1.9)", Value::Int(-1)),
            ("abs(2 - 5)", Value::Int(3)),
            ("H // 5 * 0.25", Value::Float(0.5)),
            ("1 if left.tied is true and not right.nothing else 2", Value::Int(1)),
            ("\"a\" if left.kind is \"rotary\" else \"b\"", Value::from("a")),
            ("{wb} is \"bias\"", Value::Bool(true)),
            ("has(lm_head.{wb}) and not made(x)", Value::Bool(true)),
            ("default(right.nothing, -1e4)", Value::Float(-1e4)),
            ("right.nothing is null or 1 / 0", Value::Bool(true)),
            ("count(a.{n}.b) > 2", Value::Bool(true)),
            ("1 <= 1 and 2 >= 3", Value::Bool(false)),
            ("sqrt(16) * rows(x) - columns(x)", Value::Float(13.0)),
            ("false is not null", Value::Bool(true)),
            ("2 in left.many", Value::Bool(false)),
            ("\"two\" in left.many and \"ota\" in left.kind", Value::Bool(true)),
            ("null in [1, right.nothing]", Value::Bool(true)),
            ("left.many.1", Value::from("two")),
            ("len({a: 1, b: [2]}) + len([])", Value::Int(2)),
            ("starts(left.kind, \"rot\") and ends(left.kind, \"ry\")", Value::Bool(true)),
        ] {
            assert_eq!(Expression::parse(text).unwrap().value(&scope).unwrap(), value, "{text}");
        }
    }

    #[test]
    fn names_are_keys_in_tables() {
        let value = |text: &str| Expression::of_table(text).unwrap().value(&TestScope::new());
        assert_eq!(value("num_heads // extra.groups").unwrap(), Value::Int(3));
        assert_eq!(value("new.num_heads * 2").unwrap(), Value::Int(24));
        assert!(value("hidden / none").unwrap_err().to_string().contains("hidden is not in"));
        assert!(value("num_heads / none").unwrap_err().to_string().contains("none is 0"));
        assert!(value("old.kind + 1").unwrap_err().to_string().contains("kind is rotary"));
    }

    #[test]
    fn reports_invalid_expressions() {
        for (text, said) in [
            ("", "ends too early"),
            ("1 +", "ends too early"),
            ("(1", "missing"),
            ("[1", "missing"),
            ("{a: 1", "missing"),
            ("1 2", "not expected"),
            ("what(1)", "not a function"),
            ("starts(1)", "takes 2"),
            ("config.x", "neither"),
            ("1 if 2", "without `else`"),
            (&"(".repeat(100), "too deep"),
            (&"[".repeat(100), "too deep"),
            (&"{a:".repeat(100), "too deep"),
            (&"-".repeat(100), "too deep"),
            (&"not ".repeat(100), "not expected"),
            (&"1+".repeat(1000), "too long"),
        ] {
            let error = Expression::parse(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
        for (text, said) in [
            ("12 / 5", "without a rest"),
            ("1 // 0", "other than 0"),
            ("1e300 * 1e300", "too large"),
            ("9223372036854775807 * 2", "too large"),
            ("sqrt(0 - 1)", "0 or more"),
            ("K", "not set"),
            ("right.nothing + 1", "not in the config"),
        ] {
            let error = Expression::parse(text).unwrap().value(&TestScope::new()).unwrap_err();
            assert!(error.to_string().contains(said), "{text}: {error}");
        }
        let count = Expression::parse("right.nothing").unwrap().count(&TestScope::new());
        assert!(count.unwrap_err().what().contains("`right.nothing` is not in the config"));
    }

    #[test]
    fn refuses_values_that_grow_too_large() {
        struct One(Value);
        impl Scope for One {
            fn config(&self, _: Side, _: &[String]) -> Option<&Value> {
                Some(&self.0)
            }
        }
        let double = Expression::parse("[left.x, {a: left.x}]").unwrap();
        let mut scope = One(Value::Int(1));
        let error = loop {
            match double.value(&scope) {
                Ok(value) => scope.0 = value,
                Err(error) => break error,
            }
        };
        assert!(error.to_string().contains("500,000 values"), "{error}");
    }
}
