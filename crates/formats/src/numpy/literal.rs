//! A parser, without recursion, for the Python literals in the header of an array.
//!
//! numpy writes them with `repr` and reads them with `ast.literal_eval`: dicts, lists, tuples,
//! strings, integers and the three constants. Names and calls are errors, never code. Comments and
//! line continuations are skipped.

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

const LINE_ENDS: [char; 2] = ['\n', '\r'];

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
        loop {
            self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r', '\x0c']);
            let continued = self.rest.strip_prefix('\\').filter(|rest| rest.len() > 1);
            self.rest = match continued.filter(|rest| rest.starts_with(LINE_ENDS)) {
                Some(rest) => rest,
                None if self.rest.starts_with('#') => {
                    self.rest.trim_start_matches(|c| !LINE_ENDS.contains(&c))
                }
                None => return,
            };
        }
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
        if self.string_start().is_none() {
            return self.int();
        }
        // Python joins adjacent strings.
        let mut text = String::new();
        while let Some((prefix, quote)) = self.string_start() {
            let raw = self.rest[..prefix].eq_ignore_ascii_case("r");
            self.advance(prefix);
            self.string(quote, raw, &mut text)?;
            self.skip_space();
        }
        Ok(Literal::Str(text))
    }

    /// Returns the length of the prefix of a string (`u`, as Python 2 writes it, or `r`) and its
    /// quote.
    fn string_start(&self) -> Option<(usize, char)> {
        let prefix = usize::from(self.rest.starts_with(['u', 'U', 'r', 'R']));
        let quote = self.rest.get(prefix..)?.chars().next()?;
        matches!(quote, '\'' | '"').then_some((prefix, quote))
    }

    fn int(&mut self) -> Result<Literal> {
        let negative = self.rest.starts_with('-');
        self.advance(usize::from(self.rest.starts_with(['-', '+'])));
        self.skip_space();
        if !self.rest.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(
                self.wrong("holds something that is not a text, number, list, tuple or dict")
            );
        }
        let is_end = |c: char| !c.is_ascii_alphanumeric() && c != '_';
        let text = &self.rest[..self.rest.find(is_end).unwrap_or(self.rest.len())];
        let value = statelens_pickle::parse_long(text.as_bytes()).ok();
        let value = value.and_then(|value| value.to_i64());
        let value = value
            .ok_or_else(|| self.wrong("holds a number that is invalid or does not fit 64 bits"))?;
        self.advance(text.len());
        Ok(Literal::Int(if negative { -value } else { value }))
    }

    /// Appends a string to `text`.
    fn string(&mut self, quote: char, raw: bool, text: &mut String) -> Result<()> {
        let triple = quote.to_string().repeat(3);
        let end = if self.rest.starts_with(&triple) { &triple[..] } else { &triple[..1] };
        self.advance(end.len());
        loop {
            let stop = self.rest.find([quote, '\\', '\n', '\r']).unwrap_or(self.rest.len());
            text.push_str(&self.rest[..stop]);
            self.advance(stop);
            if self.rest.starts_with(end) {
                self.advance(end.len());
                return Ok(());
            }
            let len = match self.rest.as_bytes() {
                [b'\\', b'\r', b'\n', ..] if !raw => 3,
                [b'\\', b'\r' | b'\n', ..] if !raw => 2,
                [b'\\', ..] if !raw => {
                    let escape = escape(self.rest);
                    let (c, len) = escape.ok_or_else(|| self.wrong("has an invalid escape"))?;
                    text.push(c);
                    len
                }
                [b'\\', b'\\' | b'\'' | b'"', ..] => {
                    text.push_str(&self.rest[..2]);
                    2
                }
                [b'\\' | b'\'' | b'"', ..] => {
                    text.push_str(&self.rest[..1]);
                    1
                }
                [_, ..] if end.len() == 3 => {
                    text.push('\n');
                    if self.rest.starts_with("\r\n") { 2 } else { 1 }
                }
                _ => return Err(self.wrong("has a text that does not end")),
            };
            self.advance(len);
        }
    }
}

/// Returns the character for the escape at the start of `text`, and the length of the escape.
fn escape(text: &str) -> Option<(char, usize)> {
    let hex = |digits: usize| {
        let number = text.get(2..2 + digits)?;
        let number = number.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(number)?;
        Some((char::from_u32(u32::from_str_radix(number, 16).ok()?)?, 2 + digits))
    };
    let octal = text[1..].bytes().take(3).take_while(|byte| (b'0'..b'8').contains(byte)).count();
    if octal > 0 {
        let c = char::from_u32(u32::from_str_radix(&text[1..1 + octal], 8).ok()?)?;
        return Some((c, 1 + octal));
    }
    let c = match text.as_bytes().get(1)? {
        b'x' => return hex(2),
        b'u' => return hex(4),
        b'U' => return hex(8),
        b'N' => return None,
        b'a' => '\x07',
        b'b' => '\x08',
        b't' => '\t',
        b'n' => '\n',
        b'v' => '\x0b',
        b'f' => '\x0c',
        b'r' => '\r',
        b'\\' => '\\',
        b'\'' => '\'',
        b'"' => '"',
        // Not an escape: the backslash remains.
        _ => return Some(('\\', 1)),
    };
    Some((c, 2))
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
            "'\\xq'",
            "'\\N{DIGIT ONE}'",
            "'a\nb'",
            "ur'a'",
            "'a' b'b'",
            "(1, # 2)",
            "1\\\n",
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
