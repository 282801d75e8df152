//! A strict lexer for Jinja. It follows `jinja2/lexer.py` of 3.1 with the default delimiters, and
//! refuses everything that other versions or programs may read differently.

/// A token of the code in a template. The text around the code is not split into tokens.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token<'t> {
    /// `{%`
    Statement,
    /// `{{`
    Output,
    /// The end of a statement or an output.
    End,
    Name(&'t str),
    /// A string without quotes and with escapes resolved.
    Text(String),
    Number,
    Operator(&'static str),
}

/// Operators, longest first.
const OPERATORS: [&str; 25] = [
    "**", "//", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}",
    ">", "<", "=", ".", ":", "|", ",",
];

const SPACE: [char; 4] = [' ', '\t', '\n', '\r'];

/// Returns the tokens of a template, or what can't be read.
pub(super) fn tokens(template: &str) -> Result<Vec<Token<'_>>, String> {
    let mut found = Vec::new();
    let mut rest = template;
    while let Some(start) = rest.find('{') {
        let (kind, inner) = rest[start + 1..].split_at_checked(1).unwrap_or_default();
        let code = inner.strip_prefix(['-', '+']).unwrap_or(inner);
        rest = match kind {
            "#" => inner.split_once("#}").ok_or("a comment that does not end")?.1,
            "%" => match raw(code)? {
                Some(after) => after,
                None => {
                    found.push(Token::Statement);
                    section(code, "%}", &mut found)?
                }
            },
            "{" => {
                found.push(Token::Output);
                section(code, "}}", &mut found)?
            }
            _ => &rest[start + 1..],
        };
    }
    Ok(found)
}

/// Returns the text after a raw block, if `code` starts with one.
fn raw(code: &str) -> Result<Option<&str>, String> {
    let tag = |code: &'_ str, name: &str| {
        let rest = code.trim_start_matches(SPACE).strip_prefix(name)?.trim_start_matches(SPACE);
        let rest = rest.strip_prefix("%}").or_else(|| rest.strip_prefix("-%}"))?;
        Some(code.len() - rest.len())
    };
    let Some(start) = tag(code, "raw") else { return Ok(None) };
    let end = || {
        let (_, after) = code[start..].split_once("{%")?;
        let after = after.strip_prefix(['-', '+']).unwrap_or(after);
        Some(&after[tag(after, "endraw")?..])
    };
    end().map(Some).ok_or_else(|| "a raw block with other code in it".to_owned())
}

/// Reads the tokens up to an `end` outside of all brackets, and returns the rest of the template.
fn section<'t>(
    mut rest: &'t str,
    end: &str,
    found: &mut Vec<Token<'t>>,
) -> Result<&'t str, String> {
    let mut open = Vec::new();
    loop {
        rest = rest.trim_start_matches(SPACE);
        let trimmed = match end {
            "%}" => rest.strip_prefix(['-', '+']).unwrap_or(rest),
            _ => rest.strip_prefix('-').unwrap_or(rest),
        };
        let ended = rest.strip_prefix(end).or_else(|| trimmed.strip_prefix(end));
        if open.is_empty()
            && let Some(after) = ended
        {
            found.push(Token::End);
            return Ok(after);
        }
        let Some(first) = rest.bytes().next() else {
            return Err("code that does not end".to_owned());
        };
        let token = match first {
            b'"' | b'\'' => {
                let (text, after) = text(&rest[1..], char::from(first))?;
                rest = after;
                Token::Text(text)
            }
            b'0'..=b'9' => {
                rest = number(rest, found.last() == Some(&Token::Operator(".")))?;
                Token::Number
            }
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                let len = rest.bytes().take_while(|byte| is_word(*byte)).count();
                let (name, after) = rest.split_at(len);
                rest = after;
                Token::Name(name)
            }
            _ => {
                let operator = OPERATORS.iter().find(|operator| rest.starts_with(**operator));
                let unknown = || format!("the sign {:?}", rest.chars().next().unwrap_or_default());
                let operator = *operator.ok_or_else(unknown)?;
                rest = &rest[operator.len()..];
                let opening = match operator {
                    ")" => "(",
                    "]" => "[",
                    "}" => "{",
                    _ => "",
                };
                match operator {
                    "(" | "[" | "{" => open.push(operator),
                    _ if !opening.is_empty() && open.pop() != Some(opening) => {
                        return Err(format!("a bracket {operator:?} that was not opened"));
                    }
                    _ => {}
                }
                Token::Operator(operator)
            }
        };
        // What follows a name or number without a space is an operator, as in every grammar.
        let glued = matches!(token, Token::Name(_) | Token::Number)
            && rest.starts_with(|next: char| !next.is_ascii() || is_word(next as u8));
        if glued {
            return Err("letters that are not ASCII, or a number with letters".to_owned());
        }
        found.push(token);
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Skips a number: digits, and a fraction unless it is an index after a period.
fn number(rest: &str, is_index: bool) -> Result<&str, String> {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let len = digits(rest);
    if len > 1 && rest.starts_with('0') {
        return Err("a number with leading zeros".to_owned());
    }
    let after = &rest[len..];
    let fraction = after.strip_prefix('.').filter(|_| !is_index);
    Ok(match fraction.map(|fraction| (fraction, digits(fraction))) {
        Some((fraction, len)) if len > 0 => &fraction[len..],
        _ => after,
    })
}

/// Reads a string up to its closing quote, and resolves the escapes as Python does. Refuses those
/// that spell a letter.
fn text(body: &str, quote: char) -> Result<(String, &str), String> {
    let mut text = String::new();
    let mut letters = body.chars();
    loop {
        let letter = letters.next().ok_or("a string that does not end")?;
        if letter == quote {
            return Ok((text, letters.as_str()));
        }
        if letter != '\\' {
            text.push(letter);
            continue;
        }
        let rest = letters.as_str();
        let (base, start, len) = match letters.next() {
            Some('x') => (16, 1, 2),
            Some('u') => (16, 1, 4),
            Some('U') => (16, 1, 8),
            Some('0'..='7') => {
                let is_octal = |byte: &u8| matches!(byte, b'0'..=b'7');
                (8, 0, rest.bytes().take(3).take_while(is_octal).count())
            }
            Some('N' | '\n' | '\r') | None => return Err(SPELLED.to_owned()),
            Some(other) => {
                match other {
                    'n' => text.push('\n'),
                    'r' => text.push('\r'),
                    't' => text.push('\t'),
                    '\\' | '\'' | '"' => text.push(other),
                    'a' | 'b' | 'f' | 'v' => text.push('\u{b}'),
                    _ if other.is_ascii() => text.extend(['\\', other]),
                    _ => return Err(SPELLED.to_owned()),
                }
                continue;
            }
        };
        let digits = rest.get(start..start + len).ok_or(SPELLED)?;
        let is_number = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u32::from_str_radix(digits, base).ok().filter(|_| is_number).ok_or(SPELLED)?;
        // No name of Python contains other characters.
        let letter = char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER);
        if letter.is_ascii_graphic() {
            return Err(SPELLED.to_owned());
        }
        text.push(letter);
        letters = rest[start + len..].chars();
    }
}

const SPELLED: &str = "letters that are written as escapes";
