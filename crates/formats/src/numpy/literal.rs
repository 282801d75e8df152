//! A parser, without recursion, for the Python literals in the header of an array.
//!
//! numpy writes them with `repr` and reads them with `ast.literal_eval`: dicts, lists, tuples,
//! strings, integers and the three constants. Names and calls are errors, never code.

use statelens_checkpoint::{Error, Result};

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Literal {
    None,
    Bool(bool),
    Int(i64),
    Str(String),
    List(Vec<Literal>),
    Tuple(Vec<Literal>),
    Dict(Vec<(Literal, Literal)>),
}

/// The maximum nesting of records. Far more than real files have, and low enough that dropping the
/// value may recurse.
const DEEPEST: usize = 32;

/// A container that is not closed yet.
struct OpenContainer {
    closer: char,
    items: Vec<Literal>,
    /// Whether the container is empty or a comma follows the last item.
    comma: bool,
    /// Number of items that were followed by a colon.
    colons: usize,
}

/// Parses a single literal. Only whitespace may follow it.
pub(super) fn parse(text: &str) -> Result<Literal> {
    let mut parser = Parser { rest: text, len: text.len() };
    let mut open: Vec<OpenContainer> = Vec::new();
    loop {
        parser.skip_space();
        let Some(next) = parser.rest.chars().next() else {
            return Err(parser.wrong("ends too early"));
        };
        let done = match next {
            '(' | '[' | '{' => {
                if open.len() == DEEPEST {
                    return Err(parser.wrong("nests deeper than any dtype does"));
                }
                parser.advance(1);
                let closer = match next {
                    '(' => ')',
                    '[' => ']',
                    _ => '}',
                };
                open.push(OpenContainer { closer, items: Vec::new(), comma: true, colons: 0 });
                continue;
            }
            ')' | ']' | '}' => {
                parser.advance(1);
                let container = open.pop().filter(|container| container.closer == next);
                let container = container
                    .ok_or_else(|| parser.wrong("has a closing bracket without an opening one"))?;
                close(container).ok_or_else(|| parser.wrong("has an invalid dict"))?
            }
            _ => parser.atom()?,
        };
        parser.skip_space();
        let Some(container) = open.last_mut() else {
            return match parser.rest.is_empty() {
                true => Ok(done),
                false => Err(parser.wrong("continues past its end")),
            };
        };
        if !container.comma {
            return Err(parser.wrong("lacks a comma"));
        }
        container.items.push(done);
        container.comma = parser.accept(',');
        if !container.comma && container.closer == '}' && parser.accept(':') {
            container.colons += 1;
            container.comma = true;
            if container.items.len() != 2 * container.colons - 1 {
                return Err(parser.wrong("has an invalid dict"));
            }
        }
    }
}

fn close(container: OpenContainer) -> Option<Literal> {
    let OpenContainer { closer, mut items, comma, colons } = container;
    Some(match closer {
        ']' => Literal::List(items),
        // Parentheses around a single item without a comma are not a tuple.
        ')' if items.len() == 1 && !comma => items.pop()?,
        ')' => Literal::Tuple(items),
        _ if items.len() == 2 * colons => {
            let mut entries = Vec::with_capacity(colons);
            let mut items = items.into_iter();
            while let (Some(key), Some(value)) = (items.next(), items.next()) {
                entries.push((key, value));
            }
            Literal::Dict(entries)
        }
        _ => return None,
    })
}

struct Parser<'a> {
    rest: &'a str,
    len: usize,
}

impl Parser<'_> {
    fn wrong(&self, what: &str) -> Error {
        Error::damaged(format!(
            "the description of a numpy array {what} (at character {})",
            self.len - self.rest.len()
        ))
        .expected("a dict with 'descr', 'fortran_order' and 'shape', as numpy writes it")
    }

    fn advance(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or("");
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r', '\x0c']);
    }

    fn accept(&mut self, wanted: char) -> bool {
        match self.rest.strip_prefix(wanted) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn atom(&mut self) -> Result<Literal> {
        for (word, literal) in [
            ("True", Literal::Bool(true)),
            ("False", Literal::Bool(false)),
            ("None", Literal::None),
        ] {
            if let Some(rest) = self.rest.strip_prefix(word)
                && !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_')
            {
                self.rest = rest;
                return Ok(literal);
            }
        }
        // Python 2 marks texts with `u`.
        if self.rest.starts_with("u'") || self.rest.starts_with("u\"") {
            self.advance(1);
        }
        match self.rest.chars().next() {
            Some(quote @ ('\'' | '"')) => self.string(quote),
            _ => self.int(),
        }
    }

    fn int(&mut self) -> Result<Literal> {
        let unsigned = self.rest.strip_prefix(['-', '+']).unwrap_or(self.rest);
        if !unsigned.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(
                self.wrong("holds something that is not a text, number, list, tuple or dict")
            );
        }
        let is_end = |c: char| !c.is_ascii_alphanumeric() && c != '_';
        let end = unsigned.find(is_end).unwrap_or(unsigned.len());
        let text = &self.rest[..self.rest.len() - unsigned.len() + end];
        let value = statelens_pickle::parse_long(text.as_bytes()).ok();
        let value = value.and_then(|value| value.to_i64());
        let value = value
            .ok_or_else(|| self.wrong("holds a number that is invalid or does not fit 64 bits"))?;
        self.advance(text.len());
        Ok(Literal::Int(value))
    }

    fn string(&mut self, quote: char) -> Result<Literal> {
        self.advance(1);
        let mut text = String::new();
        loop {
            let end = self.rest.find([quote, '\\', '\n', '\r']);
            let Some(at) = end.filter(|at| !self.rest[*at..].starts_with(['\n', '\r'])) else {
                return Err(self.wrong("has a text that does not end"));
            };
            text.push_str(&self.rest[..at]);
            self.advance(at);
            if self.accept(quote) {
                return Ok(Literal::Str(text));
            }
            let (c, len) = escape(self.rest).ok_or_else(|| self.wrong("has an invalid escape"))?;
            text.push(c);
            self.advance(len);
        }
    }
}

/// Returns the character for an escape, and the length of the escape.
fn escape(text: &str) -> Option<(char, usize)> {
    let hex = |digits: usize| {
        let number = text.get(2..2 + digits)?;
        let number = number.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(number)?;
        Some((char::from_u32(u32::from_str_radix(number, 16).ok()?)?, 2 + digits))
    };
    match text.as_bytes().get(1)? {
        b'n' => Some(('\n', 2)),
        b'r' => Some(('\r', 2)),
        b't' => Some(('\t', 2)),
        b'\\' => Some(('\\', 2)),
        b'\'' => Some(('\'', 2)),
        b'"' => Some(('"', 2)),
        b'x' => hex(2),
        b'u' => hex(4),
        b'U' => hex(8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_python_literals() {
        let header =
            "{'descr': [('a', '<i4'), (u\"b\\xe9'\", \">f8\", (2L,))], 'shape': (), 'x': (3)}  \n";
        let text = |text: &str| Literal::Str(text.into());
        let expected = Literal::Dict(vec![
            (
                text("descr"),
                Literal::List(vec![
                    Literal::Tuple(vec![text("a"), text("<i4")]),
                    Literal::Tuple(vec![
                        text("bé'"),
                        text(">f8"),
                        Literal::Tuple(vec![Literal::Int(2)]),
                    ]),
                ]),
            ),
            (text("shape"), Literal::Tuple(vec![])),
            (text("x"), Literal::Int(3)),
        ]);
        assert_eq!(parse(header).unwrap(), expected);
        assert_eq!(
            parse("(1, -2,)").unwrap(),
            Literal::Tuple(vec![Literal::Int(1), Literal::Int(-2)])
        );
        assert_eq!(
            parse("[True, None]").unwrap(),
            Literal::List(vec![Literal::Bool(true), Literal::None])
        );
    }

    #[test]
    fn refuses_invalid_literals() {
        let deep = "[".repeat(100_000);
        let wrong = [
            "",
            "{",
            "(1",
            "1 2",
            "{1}",
            "{1:2:3}",
            "{1:}",
            "{:1}",
            "[1 2]",
            "(]",
            "'a",
            "'\\q'",
            "__import__('os')",
            "Truer",
            "1.5",
            "99999999999999999999",
            "--1",
            "[1:2]",
            "{1, 2}",
            "{1: 2, 3}",
            "'\\ud800'",
            &deep,
        ];
        for text in wrong {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
