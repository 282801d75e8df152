//! Expressions of a recipe: numbers and conditions that depend on the configs and the keys.
//!
//! `cs.num_heads`, `H / KV`, `hf.tie_word_embeddings is true`, `has(lm_head.weight)`, `A if
//! CONDITION else B`, `default(cs.rope_theta, 10000)`.

use std::fmt;

use statelens_checkpoint::{self as checkpoint, Error};

#[derive(Debug, Clone)]
pub struct Expression {
    text: String,
    node: ExpressionNode,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Scalar {
    /// Python's `None`, or a missing value.
    Null,
    Bool(bool),
    Int(i64),
    /// Any other number.
    Float(f64),
    Text(String),
    /// A list or dict, of which only the length is used.
    Container {
        len: usize,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigSide {
    /// The left side: Hugging Face, or the older release.
    Left,
    Right,
}

/// The values that an expression can refer to.
pub trait Scope {
    /// Returns the value at a path in a config; [`Scalar::Null`] if it is missing.
    fn config(&self, side: ConfigSide, path: &[String]) -> Scalar;
    /// Returns the value of a name defined by `let`.
    fn named(&self, _name: &str) -> Option<Result<Scalar, String>> {
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
    fn fact(&self, _key: &str) -> Scalar {
        Scalar::Null
    }
    /// Returns the length of a dimension of a tensor in the source; `None` if it is missing.
    fn length(&self, _key: &str, _dim: usize) -> Option<i64> {
        None
    }
}

/// A scope without any values.
struct Nothing;

impl Scope for Nothing {
    fn config(&self, _: ConfigSide, _: &[String]) -> Scalar {
        Scalar::Null
    }
}

#[derive(Debug, Clone)]
enum ExpressionNode {
    Value(Scalar),
    Path(ConfigSide, Vec<String>),
    Name(String),
    Hole(String),
    Has(String),
    Made(String),
    Count(String),
    Fact(String),
    Length(String, usize),
    Default(Vec<ExpressionNode>),
    Root(Box<ExpressionNode>),
    Len(Box<ExpressionNode>),
    Starts(Box<ExpressionNode>, String),
    Not(Box<ExpressionNode>),
    Minus(Box<ExpressionNode>),
    Two(Op, Box<(ExpressionNode, ExpressionNode)>),
    If(Box<(ExpressionNode, ExpressionNode, ExpressionNode)>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Or,
    And,
    Is,
    IsNot,
    Less,
    More,
    Add,
    Subtract,
    Multiply,
    Divide,
    DivideDown,
}

/// Limits on nested parentheses, and on the bytes of an expression.
const MAX_DEPTH: usize = 32;
const MAX_LEN: usize = 1000;

impl Expression {
    /// Parses an expression; the error is a message for the user.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_LEN {
            return Err(format!("an expression of {} bytes is too long", text.len()));
        }
        let mut parser = Parser { text, at: 0, depth: 0 };
        let node = parser.whole()?;
        parser.space();
        if parser.at < text.len() {
            return Err(format!("`{}` in `{}` was not expected", &text[parser.at..], text.trim()));
        }
        Ok(Self { text: text.trim().to_owned(), node })
    }

    pub fn eval(&self, scope: &dyn Scope) -> Result<Scalar, String> {
        eval(&self.node, scope)
    }

    /// Returns the value; an error refuses the conversion.
    pub fn value(&self, scope: &dyn Scope) -> checkpoint::Result<Scalar> {
        self.eval(scope).map_err(Error::refused)
    }

    /// Evaluates an expression that refers to nothing else.
    pub fn constant(&self) -> checkpoint::Result<Scalar> {
        self.value(&Nothing)
    }

    pub fn is_true(&self, scope: &dyn Scope) -> checkpoint::Result<bool> {
        Ok(self.value(scope)?.is_true())
    }

    pub fn count(&self, scope: &dyn Scope) -> checkpoint::Result<u64> {
        match self.value(scope)? {
            Scalar::Int(number) if number >= 0 => Ok(number as u64),
            Scalar::Float(number) if number >= 0.0 && number.fract() == 0.0 && number < 1e15 => {
                Ok(number as u64)
            }
            Scalar::Null => Err(Error::refused(format!("`{}` is not in the config", self.text))),
            other => Err(Error::refused(format!("`{}` is {other}, not a count", self.text))),
        }
    }

    pub fn number(&self, scope: &dyn Scope) -> checkpoint::Result<f64> {
        let value = self.value(scope)?;
        let what = || Error::refused(format!("`{}` is {value}, not a number", self.text));
        value.number().ok_or_else(what)
    }

    /// Returns the names in it that are neither configs nor functions.
    pub fn names(&self) -> Vec<&str> {
        let mut found = Vec::new();
        let mut open = vec![&self.node];
        while let Some(node) = open.pop() {
            match node {
                ExpressionNode::Name(name) => found.push(&**name),
                ExpressionNode::Default(all) => open.extend(all),
                ExpressionNode::Not(one)
                | ExpressionNode::Minus(one)
                | ExpressionNode::Root(one)
                | ExpressionNode::Len(one)
                | ExpressionNode::Starts(one, _) => open.push(one),
                ExpressionNode::Two(_, two) => open.extend([&two.0, &two.1]),
                ExpressionNode::If(three) => open.extend([&three.0, &three.1, &three.2]),
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

impl Scalar {
    /// Returns the truth value, as Python's `bool()` does.
    pub fn is_true(&self) -> bool {
        match self {
            Self::Null => false,
            Self::Bool(truth) => *truth,
            Self::Int(number) => *number != 0,
            Self::Float(number) => *number != 0.0,
            Self::Text(text) => !text.is_empty(),
            Self::Container { len } => *len > 0,
        }
    }

    fn number(&self) -> Option<f64> {
        match self {
            Self::Int(number) => Some(*number as f64),
            Self::Float(number) => Some(*number),
            Self::Bool(truth) => Some(f64::from(u8::from(*truth))),
            _ => None,
        }
    }

    fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Bool(one), Self::Bool(other)) => one == other,
            (Self::Bool(_), _) | (_, Self::Bool(_)) => false,
            (one, other) => match (one.number(), other.number()) {
                (Some(one), Some(other)) => one == other,
                _ => one == other,
            },
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(truth) => write!(f, "{truth}"),
            Self::Int(number) => write!(f, "{number}"),
            Self::Float(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "\"{text}\""),
            Self::Container { len } => write!(f, "a list or dict of {len}"),
        }
    }
}

/// Evaluates a node. Recurses; the parser bounds the depth.
fn eval(node: &ExpressionNode, scope: &dyn Scope) -> Result<Scalar, String> {
    Ok(match node {
        ExpressionNode::Value(value) => value.clone(),
        ExpressionNode::Path(side, path) => scope.config(*side, path),
        ExpressionNode::Name(name) => {
            scope.named(name).ok_or_else(|| format!("`{name}` is not set"))??
        }
        ExpressionNode::Hole(name) => Scalar::Text(
            scope
                .captured(name)
                .ok_or_else(|| format!("`{{{name}}}` is not a hole of this rule's key"))?,
        ),
        ExpressionNode::Has(key) => Scalar::Bool(scope.has(key)),
        ExpressionNode::Made(key) => Scalar::Bool(scope.made(key)),
        ExpressionNode::Count(key) => Scalar::Int(scope.count(key)),
        ExpressionNode::Fact(key) => scope.fact(key),
        ExpressionNode::Length(key, dim) => {
            scope.length(key, *dim).map_or(Scalar::Null, Scalar::Int)
        }
        ExpressionNode::Default(all) => {
            for one in all {
                let value = eval(one, scope)?;
                if value != Scalar::Null {
                    return Ok(value);
                }
            }
            Scalar::Null
        }
        ExpressionNode::Root(of) => match eval(of, scope)?.number() {
            Some(number) if number >= 0.0 => Scalar::Float(number.sqrt()),
            _ => return Err("the root of something that is not a number".to_owned()),
        },
        ExpressionNode::Len(of) => match eval(of, scope)? {
            Scalar::Container { len } => Scalar::Int(i64::try_from(len).unwrap_or(i64::MAX)),
            _ => Scalar::Null,
        },
        ExpressionNode::Starts(of, with) => match eval(of, scope)? {
            Scalar::Text(text) => Scalar::Bool(text.starts_with(with.as_str())),
            _ => Scalar::Bool(false),
        },
        ExpressionNode::Not(of) => Scalar::Bool(!eval(of, scope)?.is_true()),
        ExpressionNode::Minus(of) => arithmetic(Op::Subtract, Scalar::Int(0), eval(of, scope)?)?,
        ExpressionNode::If(three) => {
            let (then, condition, other) = &**three;
            if eval(condition, scope)?.is_true() { eval(then, scope)? } else { eval(other, scope)? }
        }
        ExpressionNode::Two(op, two) => {
            let left = eval(&two.0, scope)?;
            match op {
                Op::Or if left.is_true() => left,
                Op::And if !left.is_true() => left,
                Op::Or | Op::And => eval(&two.1, scope)?,
                Op::Is => Scalar::Bool(left.equals(&eval(&two.1, scope)?)),
                Op::IsNot => Scalar::Bool(!left.equals(&eval(&two.1, scope)?)),
                op => arithmetic(*op, left, eval(&two.1, scope)?)?,
            }
        }
    })
}

fn arithmetic(op: Op, left: Scalar, right: Scalar) -> Result<Scalar, String> {
    if let (Scalar::Int(one), Scalar::Int(other)) = (&left, &right) {
        let (one, other) = (*one, *other);
        let whole = match op {
            Op::Add => one.checked_add(other),
            Op::Subtract => one.checked_sub(other),
            Op::Multiply => one.checked_mul(other),
            Op::Less => return Ok(Scalar::Bool(one < other)),
            Op::More => return Ok(Scalar::Bool(one > other)),
            Op::DivideDown => one.checked_div_euclid(other),
            _ if one.checked_rem(other).is_some_and(|rest| rest != 0) => {
                return Err(format!("{one} can't be divided by {other} without a rest"));
            }
            _ => one.checked_div(other),
        };
        return whole.map(Scalar::Int).ok_or_else(|| format!("{one} and {other} make no number"));
    }
    let (Some(one), Some(other)) = (left.number(), right.number()) else {
        let bad = if left.number().is_none() { left } else { right };
        return Err(match bad {
            Scalar::Null => "a number that the expression needs is not in the config".to_owned(),
            bad => format!("{bad} is not a number"),
        });
    };
    Ok(match op {
        Op::Add => Scalar::Float(one + other),
        Op::Subtract => Scalar::Float(one - other),
        Op::Multiply => Scalar::Float(one * other),
        Op::Less => Scalar::Bool(one < other),
        Op::More => Scalar::Bool(one > other),
        Op::DivideDown => Scalar::Float((one / other).floor()),
        _ => Scalar::Float(one / other),
    })
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn whole(&mut self) -> Result<ExpressionNode, String> {
        self.deeper()?;
        let then = self.binary(0)?;
        let node = if self.word("if") {
            let condition = self.binary(0)?;
            if !self.word("else") {
                return Err(format!("`if` without `else` in `{}`", self.text.trim()));
            }
            let other = self.whole()?;
            ExpressionNode::If(Box::new((then, condition, other)))
        } else {
            then
        };
        self.depth -= 1;
        Ok(node)
    }

    fn deeper(&mut self) -> Result<(), String> {
        self.depth += 1;
        match self.depth > MAX_DEPTH {
            true => Err(format!("`{}` is nested too deep", self.text.trim())),
            false => Ok(()),
        }
    }

    /// Parses binary operators of a precedence level, from the loosest to the tightest.
    fn binary(&mut self, level: usize) -> Result<ExpressionNode, String> {
        if level == 2 && self.word("not") {
            return Ok(ExpressionNode::Not(Box::new(self.binary(3)?)));
        }
        if level == 6 {
            return self.atom();
        }
        let mut left = self.binary(level + 1)?;
        loop {
            let op = match level {
                0 if self.word("or") => Op::Or,
                1 if self.word("and") => Op::And,
                3 if self.word("is") => match self.word("not") {
                    true => Op::IsNot,
                    false => Op::Is,
                },
                3 if self.sign("<") => Op::Less,
                3 if self.sign(">") => Op::More,
                4 if self.sign("+") => Op::Add,
                4 if self.sign("-") => Op::Subtract,
                5 if self.sign("*") => Op::Multiply,
                5 if self.sign("//") => Op::DivideDown,
                5 if self.sign("/") => Op::Divide,
                _ => return Ok(left),
            };
            let right = self.binary(level + 1)?;
            left = ExpressionNode::Two(op, Box::new((left, right)));
        }
    }

    fn atom(&mut self) -> Result<ExpressionNode, String> {
        self.space();
        let rest = &self.text[self.at..];
        let Some(first) = rest.chars().next() else {
            return Err(format!("`{}` ends too early", self.text.trim()));
        };
        match first {
            '(' => {
                self.at += 1;
                let node = self.whole()?;
                self.close(')')?;
                Ok(node)
            }
            '-' => {
                self.at += 1;
                self.deeper()?;
                let node = self.atom()?;
                self.depth -= 1;
                Ok(ExpressionNode::Minus(Box::new(node)))
            }
            '"' => {
                let end = rest[1..].find('"').ok_or("a text is not closed by `\"`")?;
                self.at += end + 2;
                Ok(ExpressionNode::Value(Scalar::Text(rest[1..=end].to_owned())))
            }
            '{' => {
                let end = rest.find('}').ok_or("a hole is not closed by `}`")?;
                self.at += end + 1;
                Ok(ExpressionNode::Hole(rest[1..end].to_owned()))
            }
            digit if digit.is_ascii_digit() => {
                let len = number_len(rest);
                self.at += len;
                let number = &rest[..len];
                let value = number.parse().map(Scalar::Int);
                let value = value.or_else(|_| number.parse().map(Scalar::Float));
                value.map(ExpressionNode::Value).map_err(|_| format!("`{number}` is not a number"))
            }
            letter if letter.is_ascii_alphabetic() || letter == '_' => self.named(),
            other => Err(format!("`{other}` in `{}` was not expected", self.text.trim())),
        }
    }

    fn named(&mut self) -> Result<ExpressionNode, String> {
        let rest = &self.text[self.at..];
        let inside = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        let len = rest.find(|c: char| !inside(c)).unwrap_or(rest.len());
        let name = &rest[..len];
        self.at += len;
        match name {
            "true" => return Ok(ExpressionNode::Value(Scalar::Bool(true))),
            "false" => return Ok(ExpressionNode::Value(Scalar::Bool(false))),
            "null" => return Ok(ExpressionNode::Value(Scalar::Null)),
            _ => {}
        }
        if !self.text[self.at..].starts_with('(') {
            let mut parts = name.split('.').map(str::to_owned);
            let first = parts.next().unwrap_or_default();
            let path: Vec<String> = parts.collect();
            return match (&*first, path.is_empty()) {
                ("left", false) => Ok(ExpressionNode::Path(ConfigSide::Left, path)),
                ("right", false) => Ok(ExpressionNode::Path(ConfigSide::Right, path)),
                (_, true) => Ok(ExpressionNode::Name(first)),
                _ => Err(format!("`{name}` is neither in left.… nor in right.…")),
            };
        }
        self.at += 1;
        let node = match name {
            "has" => ExpressionNode::Has(self.raw()?),
            "made" => ExpressionNode::Made(self.raw()?),
            "count" => ExpressionNode::Count(self.raw()?),
            "fact" => ExpressionNode::Fact(self.raw()?),
            "rows" => ExpressionNode::Length(self.raw()?, 0),
            "columns" => ExpressionNode::Length(self.raw()?, 1),
            "sqrt" => ExpressionNode::Root(Box::new(self.whole()?)),
            "len" => ExpressionNode::Len(Box::new(self.whole()?)),
            "starts" => {
                let of = Box::new(self.whole()?);
                let with = self.sign(",").then(|| self.atom()).transpose()?;
                let Some(ExpressionNode::Value(Scalar::Text(with))) = with else {
                    return Err("expected starts(VALUE, \"TEXT\")".to_owned());
                };
                ExpressionNode::Starts(of, with)
            }
            "default" => {
                let mut all = vec![self.whole()?];
                while self.sign(",") {
                    all.push(self.whole()?);
                }
                ExpressionNode::Default(all)
            }
            other => {
                return Err(format!(
                    "`{other}` is not a function: expected has, made, count, rows, columns, sqrt, \
                     len, starts or default"
                ));
            }
        };
        self.close(')')?;
        Ok(node)
    }

    /// Parses a key, up to the closing parenthesis.
    fn raw(&mut self) -> Result<String, String> {
        let rest = &self.text[self.at..];
        let end = rest.find(')').ok_or("a function is not closed by `)`")?;
        self.at += end;
        Ok(rest[..end].trim().to_owned())
    }

    fn close(&mut self, close: char) -> Result<(), String> {
        self.space();
        match self.text[self.at..].starts_with(close) {
            true => {
                self.at += close.len_utf8();
                Ok(())
            }
            false => Err(format!("`{close}` is missing in `{}`", self.text.trim())),
        }
    }

    fn sign(&mut self, sign: &str) -> bool {
        self.space();
        let there = self.text[self.at..].starts_with(sign);
        if there {
            self.at += sign.len();
        }
        there
    }

    fn word(&mut self, word: &str) -> bool {
        self.space();
        let rest = &self.text[self.at..];
        let ends = |after: &str| {
            !after.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.')
        };
        let there = rest.strip_prefix(word).is_some_and(ends);
        if there {
            self.at += word.len();
        }
        there
    }

    fn space(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }
}

/// Returns the length of the number at the start of a text.
fn number_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let exponent = matches!(bytes.get(at.wrapping_sub(1)), Some(b'e' | b'E'));
        match byte {
            b'0'..=b'9' | b'.' | b'e' | b'E' => at += 1,
            b'-' | b'+' if exponent => at += 1,
            _ => break,
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    struct TestScope;

    impl Scope for TestScope {
        fn config(&self, side: ConfigSide, path: &[String]) -> Scalar {
            match (side, &*path.join(".")) {
                (ConfigSide::Right, "num_heads") => Scalar::Int(12),
                (ConfigSide::Right, "extra.groups") => Scalar::Int(4),
                (ConfigSide::Left, "tied") => Scalar::Bool(true),
                (ConfigSide::Left, "kind") => Scalar::Text("rotary".to_owned()),
                _ => Scalar::Null,
            }
        }
        fn named(&self, name: &str) -> Option<Result<Scalar, String>> {
            (name == "H").then_some(Ok(Scalar::Int(12)))
        }
        fn captured(&self, name: &str) -> Option<String> {
            (name == "wb").then(|| "bias".to_owned())
        }
        fn has(&self, key: &str) -> bool {
            key == "lm_head.{wb}"
        }
        fn made(&self, _: &str) -> bool {
            false
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
        for (text, value) in [
            ("right.num_heads / right.extra.groups", Scalar::Int(3)),
            ("H // 5 + 2 * 3", Scalar::Int(8)),
            ("1 if left.tied is true and not right.nothing else 2", Scalar::Int(1)),
            ("\"a\" if left.kind is \"rotary\" else \"b\"", Scalar::Text("a".to_owned())),
            ("{wb} is \"bias\"", Scalar::Bool(true)),
            ("has(lm_head.{wb}) and not made(x)", Scalar::Bool(true)),
            ("default(right.nothing, -1e4)", Scalar::Float(-1e4)),
            ("right.nothing is null or 1 / 0", Scalar::Bool(true)),
            ("count(a.{n}.b) > 2", Scalar::Bool(true)),
            ("sqrt(16) * rows(x) - columns(x)", Scalar::Float(13.0)),
            ("false is not null", Scalar::Bool(true)),
        ] {
            assert_eq!(Expression::parse(text).unwrap().eval(&TestScope), Ok(value), "{text}");
        }
    }

    #[test]
    fn reports_invalid_expressions() {
        for (text, said) in [
            ("", "ends too early"),
            ("1 +", "ends too early"),
            ("(1", "missing"),
            ("1 2", "not expected"),
            ("what(1)", "not a function"),
            ("config.x", "neither"),
            ("1 if 2", "without `else`"),
            (&"(".repeat(100), "too deep"),
            (&"-".repeat(100), "too deep"),
            (&"1+".repeat(1000), "too long"),
        ] {
            let error = Expression::parse(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
        for (text, said) in [
            ("12 / 5", "without a rest"),
            ("1 // 0", "no number"),
            ("K", "not set"),
            ("right.nothing + 1", "not in the config"),
        ] {
            let error = Expression::parse(text).unwrap().eval(&TestScope).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
        let count = Expression::parse("right.nothing").unwrap().count(&TestScope).unwrap_err();
        assert!(count.what().contains("`right.nothing` is not in the config"), "{count}");
    }
}
