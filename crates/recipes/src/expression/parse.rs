//! Parses expressions.

use super::{Function, Node, Operator};
use crate::side::Side;
use crate::value::Value;

/// The meaning of names that are neither functions nor followed by a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Names {
    /// Names defined by `let`; `left.` and `right.` begin a path in a config.
    Lets,
    /// Keys of the config; `hf.`, `cs.`, `old.` and `new.` begin a path in that of a side.
    Keys,
}

/// Limits on nested parentheses, and on the bytes of an expression.
const MAX_DEPTH: usize = 32;
const MAX_LEN: usize = 1000;

/// Parses an expression; the error is a message for the user.
pub(super) fn parse(text: &str, names: Names) -> Result<Node, String> {
    if text.len() > MAX_LEN {
        return Err(format!("an expression of {} bytes is too long", text.len()));
    }
    let mut parser = Parser { text, names, at: 0, depth: 0 };
    let node = parser.whole()?;
    parser.space();
    if parser.at < text.len() {
        return Err(format!("`{}` in `{}` was not expected", &text[parser.at..], text.trim()));
    }
    Ok(node)
}

struct Parser<'a> {
    text: &'a str,
    names: Names,
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn whole(&mut self) -> Result<Node, String> {
        self.deeper()?;
        let then = self.binary(0)?;
        let node = if self.word("if") {
            let condition = self.binary(0)?;
            if !self.word("else") {
                return Err(format!("`if` without `else` in `{}`", self.text.trim()));
            }
            let other = self.whole()?;
            Node::If(Box::new([then, condition, other]))
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
    fn binary(&mut self, level: usize) -> Result<Node, String> {
        if level == 2 && self.word("not") {
            return Ok(Node::Not(Box::new(self.binary(3)?)));
        }
        if level == 6 {
            return self.atom();
        }
        let mut left = self.binary(level + 1)?;
        loop {
            let op = match level {
                0 if self.word("or") => Operator::Or,
                1 if self.word("and") => Operator::And,
                3 if self.word("is") => match self.word("not") {
                    true => Operator::IsNot,
                    false => Operator::Is,
                },
                3 if self.word("in") => Operator::In,
                3 if self.sign("<=") => Operator::AtMost,
                3 if self.sign("<") => Operator::Less,
                3 if self.sign(">=") => Operator::AtLeast,
                3 if self.sign(">") => Operator::More,
                4 if self.sign("+") => Operator::Add,
                4 if self.sign("-") => Operator::Subtract,
                5 if self.sign("*") => Operator::Multiply,
                5 if self.sign("//") => Operator::DivideDown,
                5 if self.sign("/") => Operator::Divide,
                5 if self.sign("%") => Operator::Remainder,
                _ => return Ok(left),
            };
            let right = self.binary(level + 1)?;
            left = Node::Two(op, Box::new([left, right]));
        }
    }

    fn atom(&mut self) -> Result<Node, String> {
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
                Ok(Node::Minus(Box::new(node)))
            }
            '"' => {
                let end = rest[1..].find('"').ok_or("a text is not closed by `\"`")?;
                self.at += end + 2;
                Ok(Node::Value(Value::from(&rest[1..=end])))
            }
            '[' => {
                self.at += 1;
                let items = self.several(']', Self::whole)?;
                Ok(Node::List(items))
            }
            '{' => self.hole_or_section(rest),
            digit if digit.is_ascii_digit() => {
                let len = number_len(rest);
                self.at += len;
                let number = &rest[..len];
                let value = number.parse().map(Value::Int);
                let value = value.or_else(|_| number.parse().map(Value::Float));
                value.map(Node::Value).map_err(|_| format!("`{number}` is not a number"))
            }
            letter if letter.is_ascii_alphabetic() || letter == '_' => self.named(),
            other => Err(format!("`{other}` in `{}` was not expected", self.text.trim())),
        }
    }

    fn named(&mut self) -> Result<Node, String> {
        let rest = &self.text[self.at..];
        let inside = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        let len = rest.find(|c: char| !inside(c)).unwrap_or(rest.len());
        let name = &rest[..len];
        self.at += len;
        match name {
            "true" => return Ok(Node::Value(Value::Bool(true))),
            "false" => return Ok(Node::Value(Value::Bool(false))),
            "null" => return Ok(Node::Value(Value::Null)),
            _ => {}
        }
        if !self.text[self.at..].starts_with('(') {
            let mut parts = name.split('.').map(str::to_owned);
            let first = parts.next().unwrap_or_default();
            let path: Vec<String> = parts.collect();
            return match (&*first, self.names, path.is_empty()) {
                ("left", Names::Lets, false) | ("hf" | "old", Names::Keys, false) => {
                    Ok(Node::Config(Side::Left, path))
                }
                ("right", Names::Lets, false) | ("cs" | "new", Names::Keys, false) => {
                    Ok(Node::Config(Side::Right, path))
                }
                (_, Names::Keys, _) => Ok(Node::Key(name.split('.').map(str::to_owned).collect())),
                (_, Names::Lets, true) => Ok(Node::Name(first)),
                _ => Err(format!("`{name}` is neither in left.… nor in right.…")),
            };
        }
        self.at += 1;
        let node = match name {
            "has" => Node::Has(self.raw()?),
            "made" => Node::Made(self.raw()?),
            "count" => Node::Count(self.raw()?),
            "fact" => Node::Fact(self.raw()?),
            "rows" => Node::Length(self.raw()?, 0),
            "columns" => Node::Length(self.raw()?, 1),
            _ => {
                let (function, count) = function(name)?;
                let arguments = self.several(')', Self::whole)?;
                let fits = count.map_or(!arguments.is_empty(), |count| arguments.len() == count);
                if !fits {
                    let count = count.map_or("one value or more".to_owned(), |one| one.to_string());
                    return Err(format!("`{name}` takes {count}, not {}", arguments.len()));
                }
                return Ok(Node::Call(function, arguments));
            }
        };
        self.close(')')?;
        Ok(node)
    }

    /// Parses `{wb}`, or a section such as `{type: "linear", factor: 2}`.
    fn hole_or_section(&mut self, rest: &str) -> Result<Node, String> {
        let end = rest.find(['}', ':']).ok_or("a hole is not closed by `}`")?;
        if rest[end..].starts_with('}') {
            self.at += end + 1;
            return Ok(Node::Hole(rest[1..end].to_owned()));
        }
        self.at += 1;
        let entry = |parser: &mut Self| {
            let rest = &parser.text[parser.at..];
            let end = rest.find(':').ok_or("a section needs `KEY: VALUE`")?;
            let key = rest[..end].trim().to_owned();
            parser.at += end + 1;
            Ok((key, parser.whole()?))
        };
        self.several('}', entry).map(Node::Section)
    }

    /// Parses items between commas, up to the closing sign.
    fn several<T>(
        &mut self,
        close: char,
        item: impl Fn(&mut Self) -> Result<T, String>,
    ) -> Result<Vec<T>, String> {
        let mut items = Vec::new();
        self.space();
        if !self.text[self.at..].starts_with(close) {
            items.push(item(self)?);
            while self.sign(",") {
                items.push(item(self)?);
            }
        }
        self.close(close)?;
        Ok(items)
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

/// Returns a function and the number of its arguments, if that is fixed.
fn function(name: &str) -> Result<(Function, Option<usize>), String> {
    Ok(match name {
        "default" => (Function::Default, None),
        "sqrt" => (Function::Sqrt, Some(1)),
        "abs" => (Function::Abs, Some(1)),
        "float" => (Function::Float, Some(1)),
        "int" => (Function::Int, Some(1)),
        "len" => (Function::Len, Some(1)),
        "starts" => (Function::Starts, Some(2)),
        "ends" => (Function::Ends, Some(2)),
        other => {
            return Err(format!(
                "`{other}` is not a function: expected has, made, count, fact, rows, columns, \
                 default, sqrt, abs, float, int, len, starts or ends"
            ));
        }
    })
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
