//! A lexer for the code in Jinja templates; follows `jinja2/lexer.py` with the default delimiters.

/// A code section: the text between `{{` and `}}`, or between `{%` and `%}`.
pub(super) struct Code {
    pub(super) statement: bool,
    pub(super) tokens: Vec<Token>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    Name(String),
    /// A string without quotes and with escapes resolved; `spelled` says whether it had numeric or
    /// named character escapes.
    Text {
        text: String,
        spelled: bool,
    },
    Number,
    Operator(&'static str),
    /// Input that Jinja rejects.
    Other,
}

impl Token {
    pub(super) fn is(&self, operator: &str) -> bool {
        matches!(self, Self::Operator(found) if *found == operator)
    }

    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Self::Name(name) => Some(name),
            _ => None,
        }
    }
}

/// Operators, longest first.
const OPERATORS: [&str; 27] = [
    "**", "//", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}",
    ">", "<", "=", ".", ":", "|", ",", ";", "!",
];

/// Returns the code sections of a template, without comments and raw blocks.
pub(super) fn code(template: &str) -> Vec<Code> {
    let mut found = Vec::new();
    let mut rest = template;
    while let Some(start) = rest.find('{') {
        let after = rest.get(start + 2..).unwrap_or_default();
        match rest.as_bytes().get(start + 1) {
            Some(b'#') => rest = after.find("#}").map_or("", |end| &after[end + 2..]),
            Some(b'%') => {
                if let Some(raw) = raw(after) {
                    rest = raw;
                    continue;
                }
                let (tokens, left) = tokens(after, "%}");
                found.push(Code { statement: true, tokens });
                rest = left;
            }
            Some(b'{') => {
                let (tokens, left) = tokens(after, "}}");
                found.push(Code { statement: false, tokens });
                rest = left;
            }
            _ => rest = &rest[start + 1..],
        }
    }
    found
}

/// Returns the text after a raw block, if `code` starts with one. The content of a raw block is
/// text.
fn raw(code: &str) -> Option<&str> {
    let tag = |code: &str, name: &str| {
        let inner = code.trim_start_matches(['-', '+']).trim_start().strip_prefix(name)?;
        let inner = inner.trim_start();
        let end = inner.trim_start_matches(['-', '+']).strip_prefix("%}")?;
        Some(code.len() - end.len())
    };
    let start = tag(code, "raw")?;
    let mut rest = &code[start..];
    while let Some(at) = rest.find("{%") {
        rest = &rest[at + 2..];
        if let Some(end) = tag(rest, "endraw") {
            return Some(&rest[end..]);
        }
    }
    Some("")
}

/// Reads tokens up to an `end` outside of all brackets, and returns them with the rest of the
/// template. Without such an `end`, the rest is all code.
fn tokens<'a>(code: &'a str, end: &str) -> (Vec<Token>, &'a str) {
    let mut found = Vec::new();
    let mut depth = 0_usize;
    let mut rest = code.strip_prefix(['-', '+']).unwrap_or(code);
    while let Some(first) = rest.chars().next() {
        if depth == 0 {
            let trimmed = rest.strip_prefix(['-', '+']).unwrap_or(rest);
            if let Some(left) = rest.strip_prefix(end).or_else(|| trimmed.strip_prefix(end)) {
                return (found, left);
            }
        }
        let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
        let (token, left) = if first.is_whitespace() {
            rest = &rest[first.len_utf8()..];
            continue;
        } else if first == '"' || first == '\'' {
            text(&rest[1..], first)
        } else if first.is_ascii_digit() {
            let len = rest.find(|letter| !is_name(letter)).unwrap_or(rest.len());
            (Token::Number, &rest[len..])
        } else if is_name(first) {
            let len = rest.find(|letter| !is_name(letter)).unwrap_or(rest.len());
            (Token::Name(rest[..len].to_owned()), &rest[len..])
        } else {
            match OPERATORS.iter().find(|operator| rest.starts_with(**operator)) {
                Some(operator) => (Token::Operator(operator), &rest[operator.len()..]),
                None => (Token::Other, &rest[first.len_utf8()..]),
            }
        };
        if ["(", "[", "{"].iter().any(|open| token.is(open)) {
            depth += 1;
        } else if [")", "]", "}"].iter().any(|close| token.is(close)) {
            depth = depth.saturating_sub(1);
        }
        found.push(token);
        rest = left;
    }
    (found, "")
}

fn text(body: &str, quote: char) -> (Token, &str) {
    let mut escaped = false;
    let end = body.char_indices().find(|(_, letter)| {
        let ends = *letter == quote && !escaped;
        escaped = *letter == '\\' && !escaped;
        ends
    });
    let end = end.map_or(body.len(), |(end, _)| end);
    let (text, spelled) = unescape(&body[..end]);
    (Token::Text { text, spelled }, body.get(end + 1..).unwrap_or_default())
}

/// Resolves Python's escapes. The flag says whether an ASCII character was given by number, or any
/// character by name. Numeric escapes of other characters are common and harmless, since no name
/// of Python itself contains such characters.
fn unescape(body: &str) -> (String, bool) {
    let mut text = String::new();
    let mut spelled = false;
    let mut letters = body.chars();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            text.push(letter);
            continue;
        }
        let number = match letters.next() {
            None => {
                text.push('\\');
                continue;
            }
            Some('x') => number(&mut letters, 0, 16, 2),
            Some('u') => number(&mut letters, 0, 16, 4),
            Some('U') => number(&mut letters, 0, 16, 8),
            Some(digit @ '0'..='7') => {
                number(&mut letters, digit.to_digit(8).unwrap_or_default(), 8, 2)
            }
            Some(plain) => {
                spelled |= plain == 'N';
                text.push(match plain {
                    'n' => '\n',
                    'r' => '\r',
                    't' => '\t',
                    other => other,
                });
                continue;
            }
        };
        spelled |= number.is_ascii_graphic();
        text.push(number);
    }
    (text, spelled)
}

/// Returns the character with the code `first` followed by at most `most` digits.
fn number(letters: &mut std::str::Chars<'_>, first: u32, base: u32, most: usize) -> char {
    let digits = letters.clone().take(most).map_while(|letter| letter.to_digit(base));
    let (count, value) =
        digits.fold((0, first), |(count, value), digit| (count + 1, value * base + digit));
    letters.by_ref().take(count).for_each(|_: char| {});
    char::from_u32(value).unwrap_or(char::REPLACEMENT_CHARACTER)
}
