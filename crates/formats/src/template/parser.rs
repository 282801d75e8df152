//! A parser for Jinja that accepts the constructs of chat templates and judges each of them.
//!
//! The grammar is that of `jinja2/parser.py` 3.1 or wider. Nothing is run: the value of an
//! expression is a node of [`Flow`].

use std::collections::{BTreeSet, HashSet};

use statelens_checkpoint::{Grade, has_word};

use super::flow::Label::{Field, Parameter, Variable};
use super::flow::Way::{Into, Out, Same};
use super::flow::{ADDED, ANY_FIELD, ANY_VALUE, CONTEXT, Flow, MADE, Node};
use super::lexer::Token;
use super::names;
use super::scope::Scopes;

/// The maximum nesting of expressions. Python's own limit is below 100 brackets.
const MAX_DEPTH: usize = 64;

/// The result of parsing, or the construct that is not on the lists or can't be read.
type Parsed<T> = Result<T, String>;

/// A construct, and how suspicious it is.
pub(super) type Suspicion = (Grade, String);

/// The value of an expression.
#[derive(Debug, Clone, Copy, Default)]
struct Value<'t> {
    node: Node,
    kind: Kind,
    /// The name, if it is a variable.
    name: Option<&'t str>,
    /// The keys, if it is a list of keys and values.
    keys: Option<Node>,
    /// The text, if it is a literal.
    text: Option<&'t str>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Any,
    Number,
    List,
}

impl<'t> Value<'t> {
    fn of(node: Node) -> Self {
        Self { node, ..Self::default() }
    }

    fn number() -> Self {
        Self { kind: Kind::Number, ..Self::default() }
    }
}

/// The arguments of a call, with their names.
type Arguments<'t> = Vec<(Option<&'t str>, Value<'t>)>;

/// Returns the suspicious constructs in a template.
pub(super) fn judge<'t>(tokens: &'t [Token<'t>]) -> Vec<Suspicion> {
    let mut parser = Parser { tokens, ..Parser::default() };
    match parser.template() {
        Ok(()) => parser.whole(),
        Err(what) => parser.unknown(what),
    }
    parser.found
}

#[derive(Default)]
struct Parser<'t> {
    tokens: &'t [Token<'t>],
    at: usize,
    depth: usize,
    flow: Flow<'t>,
    scopes: Scopes<'t>,
    found: Vec<Suspicion>,
    macros: HashSet<&'t str>,
    /// Names of the program that are called, that have attributes, and that are values.
    called: BTreeSet<&'t str>,
    entered: BTreeSet<&'t str>,
    values: BTreeSet<&'t str>,
    /// Names of variables of the template.
    assigned: HashSet<&'t str>,
    /// Keys that are neither literals nor numbers.
    keys: Vec<Node>,
}

impl<'t> Parser<'t> {
    fn template(&mut self) -> Parsed<()> {
        while self.at < self.tokens.len() {
            match self.next()? {
                Token::Output => drop(self.tuple(true)?),
                _ => self.statement()?,
            }
            if !matches!(self.next()?, Token::End) {
                return Err(unexpected("the end of the code"));
            }
        }
        self.scopes.end()
    }

    fn next(&mut self) -> Parsed<&'t Token<'t>> {
        self.at += 1;
        self.tokens.get(self.at - 1).ok_or_else(|| "code that does not end".to_owned())
    }

    fn peek(&self) -> Option<&'t Token<'t>> {
        self.tokens.get(self.at)
    }

    fn is(&self, operator: &str) -> bool {
        matches!(self.peek(), Some(Token::Operator(found)) if *found == operator)
    }

    fn is_end(&self) -> bool {
        matches!(self.peek(), Some(Token::End) | None)
    }

    fn skip(&mut self, operator: &str) -> bool {
        let there = self.is(operator);
        self.at += usize::from(there);
        there
    }

    fn skip_word(&mut self, word: &str) -> bool {
        let there = self.peek() == Some(&Token::Name(word));
        self.at += usize::from(there);
        there
    }

    fn expect(&mut self, operator: &str) -> Parsed<()> {
        match self.skip(operator) {
            true => Ok(()),
            false => Err(unexpected(&format!("{operator:?}"))),
        }
    }

    fn name(&mut self) -> Parsed<&'t str> {
        match self.next()? {
            Token::Name(name) => Ok(name),
            _ => Err(unexpected("a name")),
        }
    }

    fn unknown(&mut self, what: String) {
        self.found.push((Grade::UnknownCode, what));
    }

    fn danger(&mut self, what: String) {
        self.found.push((Grade::Danger, what));
    }

    fn statement(&mut self) -> Parsed<()> {
        let tag = self.name()?;
        match tag {
            "for" => {
                let targets = self.targets()?;
                if !self.skip_word("in") {
                    return Err(unexpected("`in`"));
                }
                let list = self.tuple(false)?;
                self.scopes.open(tag);
                let item = self.flow.join(&[(list.node, Out)]);
                let own = self.flow.node(Variable("loop"));
                self.flow.edge(list.node, own, Into);
                self.scopes.bind("loop");
                for (index, name) in targets.iter().enumerate() {
                    let key = list.keys.filter(|_| index == 0 && targets.len() == 2);
                    let from = key.unwrap_or(item);
                    self.assign(name, from)?;
                }
                if self.skip_word("if") {
                    self.expression(true)?;
                }
                if self.skip_word("recursive") {
                    return Err("a recursive loop".to_owned());
                }
            }
            "if" => {
                self.tuple(false)?;
                self.scopes.open(tag);
            }
            "elif" => {
                self.scopes.branch(false)?;
                self.tuple(false)?;
            }
            "else" => self.scopes.branch(true)?,
            "set" => self.set()?,
            "macro" => {
                let name = self.name()?;
                self.macros.insert(name);
                self.scopes.open(tag);
                self.parameters(name)?;
            }
            "generation" => self.scopes.open(tag),
            "do" => drop(self.tuple(true)?),
            "break" | "continue" => {}
            "import" | "include" | "extends" | "from" => {
                return Err(format!("`{tag}`, which runs another template"));
            }
            _ => match tag.strip_prefix("end") {
                Some(tag) => self.scopes.close(tag)?,
                None => return Err(format!("the tag `{tag}`")),
            },
        }
        Ok(())
    }

    /// Reads variables with commas and parentheses.
    fn targets(&mut self) -> Parsed<Vec<&'t str>> {
        let mut names = vec![];
        loop {
            match self.peek() {
                Some(Token::Operator("," | "(" | ")")) => {}
                Some(Token::Name(name)) if *name != "in" => names.push(*name),
                _ if names.is_empty() => return Err(unexpected("a variable")),
                _ => return Ok(names),
            }
            self.at += 1;
        }
    }

    fn set(&mut self) -> Parsed<()> {
        let (names, field) = match &self.tokens[self.at..] {
            [Token::Name(_), Token::Operator("."), Token::Name(field), ..] => {
                self.at += 3;
                self.attribute(field);
                (Vec::new(), Some(*field))
            }
            _ => (self.targets()?, None),
        };
        let is_block = !self.skip("=");
        let node = match is_block {
            true => MADE,
            false => {
                let value = self.tuple(true)?;
                let way = if names.len() > 1 { Out } else { Same };
                self.flow.join(&[(value.node, way)])
            }
        };
        while is_block && self.skip("|") {
            self.filter(Value::of(MADE))?;
        }
        if let Some(field) = field {
            self.field(field, node);
        }
        names.into_iter().try_for_each(|name| self.assign(name, node))?;
        if is_block {
            self.scopes.open("set");
        }
        Ok(())
    }

    fn assign(&mut self, name: &'t str, from: Node) -> Parsed<()> {
        if matches!(name, "loop" | "self" | "varargs" | "kwargs")
            || has_word(names::FUNCTIONS, name)
        {
            return Err(format!("`{name}` as a variable"));
        }
        let variable = self.flow.node(Variable(name));
        self.flow.edge(from, variable, Same);
        self.assigned.insert(name);
        self.scopes.bind(name);
        Ok(())
    }

    /// Reads the parameters of a macro.
    fn parameters(&mut self, of: &'t str) -> Parsed<()> {
        self.expect("(")?;
        let mut index = 0;
        while !self.skip(")") {
            let name = self.name()?;
            let from = self.flow.node(Parameter(of, index));
            self.assign(name, from)?;
            if self.skip("=") {
                let value = self.expression(true)?;
                self.assign(name, value.node)?;
            }
            index += 1;
            if !self.is(")") {
                self.expect(",")?;
            }
        }
        Ok(())
    }

    /// Reads an expression, or several with commas.
    fn tuple(&mut self, condition: bool) -> Parsed<Value<'t>> {
        let first = self.expression(condition)?;
        if !self.is(",") {
            return Ok(first);
        }
        let mut items = vec![(first.node, Into)];
        while self.skip(",") {
            if self.is_end() || self.is(")") || self.is("=") {
                break;
            }
            items.push((self.expression(condition)?.node, Into));
        }
        Ok(Value { kind: Kind::List, ..Value::of(self.flow.join(&items)) })
    }

    fn expression(&mut self, condition: bool) -> Parsed<Value<'t>> {
        let mut value = self.binary(0)?;
        while condition && self.skip_word("if") {
            self.binary(0)?;
            if self.skip_word("else") {
                let other = self.deeper(|parser| parser.expression(true))?;
                value = self.either(value, other);
            }
        }
        Ok(value)
    }

    fn deeper<T>(&mut self, parse: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth >= MAX_DEPTH {
            return Err("expressions that are nested too deeply".to_owned());
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    fn either(&mut self, left: Value<'t>, right: Value<'t>) -> Value<'t> {
        let node = self.flow.join(&[(left.node, Same), (right.node, Same)]);
        let kind = if left.kind == right.kind { left.kind } else { Kind::Any };
        Value { kind, ..Value::of(node) }
    }

    /// Returns the operator that is next, its precedence, and its number of tokens.
    fn operator(&self) -> Option<(&'static str, u8, usize)> {
        Some(match self.peek()? {
            Token::Name("or") => ("or", 0, 1),
            Token::Name("and") => ("and", 1, 1),
            Token::Name("in") => ("==", 2, 1),
            Token::Name("not") if self.tokens.get(self.at + 1) == Some(&Token::Name("in")) => {
                ("==", 2, 2)
            }
            Token::Operator("==" | "!=" | "<" | "<=" | ">" | ">=") => ("==", 2, 1),
            Token::Operator(operator @ ("+" | "-")) => (operator, 3, 1),
            Token::Operator("~") => ("~", 4, 1),
            Token::Operator(operator @ ("*" | "/" | "//" | "%" | "**")) => (operator, 5, 1),
            _ => return None,
        })
    }

    fn binary(&mut self, least: u8) -> Parsed<Value<'t>> {
        let mut left = self.unary()?;
        while let Some((operator, level, tokens)) = self.operator()
            && level >= least
        {
            self.at += tokens;
            let right = self.deeper(|parser| parser.binary(level + 1))?;
            let kinds = [left.kind, right.kind];
            left = match operator {
                "or" | "and" => self.either(left, right),
                "==" | "-" | "/" | "//" | "**" => Value::number(),
                // In Python, only a number can be added to a number, and only a list to a list.
                "+" if kinds.contains(&Kind::Number) => Value::number(),
                "+" | "*" if kinds.contains(&Kind::List) => {
                    Value { kind: Kind::List, ..self.either(left, right) }
                }
                "*" if kinds == [Kind::Number; 2] => Value::number(),
                "%" if left.kind == Kind::Number => Value::number(),
                _ => Value::of(MADE),
            };
        }
        Ok(left)
    }

    fn unary(&mut self) -> Parsed<Value<'t>> {
        if self.skip_word("not") || self.skip("-") || self.skip("+") {
            self.deeper(Self::unary)?;
            return Ok(Value::number());
        }
        let value = self.primary()?;
        self.postfix(value, true)
    }

    fn primary(&mut self) -> Parsed<Value<'t>> {
        match self.next()? {
            Token::Number => Ok(Value::number()),
            Token::Name("true" | "false" | "none" | "True" | "False" | "None") => {
                Ok(Value::number())
            }
            Token::Name(name) => self.variable(name),
            Token::Text(text) => {
                self.literal(text);
                let mut value = Value { text: Some(text), ..Value::default() };
                // Jinja joins texts that follow each other.
                while let Some(Token::Text(more)) = self.peek() {
                    self.at += 1;
                    self.literal(more);
                    value = Value::of(MADE);
                }
                Ok(value)
            }
            Token::Operator("(") => {
                if self.skip(")") {
                    return Ok(Value { kind: Kind::List, ..Value::default() });
                }
                let value = self.deeper(|parser| parser.tuple(true))?;
                self.expect(")")?;
                Ok(Value { name: None, ..value })
            }
            Token::Operator("[") => {
                let mut items = Vec::new();
                while !self.skip("]") {
                    items.push((self.deeper(|parser| parser.expression(true))?.node, Into));
                    if !self.is("]") {
                        self.expect(",")?;
                    }
                }
                Ok(Value { kind: Kind::List, ..Value::of(self.flow.join(&items)) })
            }
            Token::Operator("{") => self.dict(),
            _ => Err(unexpected("a value")),
        }
    }

    fn dict(&mut self) -> Parsed<Value<'t>> {
        let mut unnamed = Vec::new();
        while !self.skip("}") {
            let key = self.deeper(|parser| parser.expression(true))?;
            self.expect(":")?;
            let value = self.deeper(|parser| parser.expression(true))?;
            match key.text {
                Some(text) => self.named(text, value.node),
                None => unnamed.extend([(key.node, Into), (value.node, Into)]),
            }
            if !self.is("}") {
                self.expect(",")?;
            }
        }
        Ok(Value::of(self.flow.join(&unnamed)))
    }

    /// Notes that a value is in a dict under this name.
    fn named(&mut self, name: &'t str, value: Node) {
        self.field(name, value);
        self.flow.edge(value, ANY_VALUE, Into);
    }

    /// Notes that a value is in a dict or an object under this name.
    fn field(&mut self, name: &'t str, value: Node) {
        let field = self.flow.node(Field(name));
        self.flow.edge(value, field, Same);
        self.flow.edge(value, ANY_FIELD, Same);
    }

    /// Reads the variable whose name was the last token.
    fn variable(&mut self, name: &'t str) -> Parsed<Value<'t>> {
        let node = self.flow.node(Variable(name));
        let value = Value { name: Some(name), ..Value::of(node) };
        match name {
            "self" => return Err("`self`".to_owned()),
            "lipsum" => self.danger("`lipsum`".to_owned()),
            "varargs" | "kwargs" => return Ok(Value::of(MADE)),
            _ if name.starts_with("__") => self.danger(format!("`{name}`")),
            _ => {}
        }
        if self.scopes.is_bound(name) {
            if self.is("(") {
                self.unknown(format!("a call of the variable `{name}`"));
            }
            return Ok(value);
        }
        match self.peek() {
            Some(Token::Operator("(")) => drop(self.called.insert(name)),
            Some(Token::Operator("." | "[")) => drop(self.entered.insert(name)),
            Some(Token::Name("is")) => {}
            _ => drop(self.values.insert(name)),
        }
        if has_word(names::GIVEN, name) {
            return Ok(value);
        }
        let source = if name.contains("token") { MADE } else { CONTEXT };
        Ok(Value { node: self.flow.join(&[(node, Same), (source, Same)]), ..value })
    }

    /// Judges a string.
    fn literal(&mut self, text: &str) {
        let is_dunder = |part: &str| {
            let inner = part.strip_prefix("__").and_then(|part| part.strip_suffix("__"));
            inner.is_some_and(|inner| {
                inner.bytes().next().is_some_and(|first| first.is_ascii_alphabetic())
                    && inner.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            })
        };
        let start: String = text.chars().take(100).collect();
        let bytes = text.as_bytes();
        let is_part = |at: usize| {
            bytes[at..].starts_with(b"__")
                && [at.checked_sub(1), Some(at + 2)]
                    .into_iter()
                    .flatten()
                    .any(|beside| bytes.get(beside).is_some_and(u8::is_ascii_alphabetic))
        };
        if has_word(names::INTERNAL, text) || text.split(['.', ',', ' ']).any(is_dunder) {
            self.danger(format!("{start:?}"));
        } else if (0..bytes.len()).any(is_part) {
            self.unknown(format!("{start:?}, a part of a Python name"));
        }
    }

    /// Judges the name of an attribute or a key.
    fn attribute(&mut self, name: &str) {
        if name.starts_with('_') || has_word(names::INTERNAL, name) {
            self.danger(format!("the attribute `{name}`"));
        }
    }

    /// Judges a key, and returns the value of that entry.
    fn entry(&mut self, of: Value<'t>, key: Value<'t>) -> Node {
        if let Some(text) = key.text {
            self.attribute(text);
            let field = self.flow.node(Field(text));
            return self.flow.join(&[(of.node, Out), (field, Same)]);
        }
        if key.kind == Kind::Number {
            return self.flow.join(&[(of.node, Out)]);
        }
        self.keys.push(key.node);
        self.flow.join(&[(of.node, Out), (ANY_FIELD, Same)])
    }

    /// Reads attributes, keys and calls, and with `filters` also filters and tests.
    fn postfix(&mut self, mut value: Value<'t>, filters: bool) -> Parsed<Value<'t>> {
        loop {
            value = if self.skip(".") {
                match self.next()? {
                    Token::Number => Value::of(self.flow.join(&[(value.node, Out)])),
                    Token::Name(name) if self.skip("(") => self.method(value, name)?,
                    Token::Name(name)
                        if value.name == Some("loop") && has_word(names::LOOP, name) =>
                    {
                        Value::number()
                    }
                    Token::Name(name) => {
                        let key = Value { text: Some(name), ..Value::default() };
                        Value::of(self.entry(value, key))
                    }
                    _ => return Err(unexpected("an attribute")),
                }
            } else if self.skip("[") {
                self.deeper(|parser| parser.subscript(value))?
            } else if self.skip("(") {
                self.call(value)?
            } else if filters && self.skip("|") {
                self.filter(value)?
            } else if filters && self.skip_word("is") {
                self.test()?
            } else {
                return Ok(value);
            };
        }
    }

    /// Reads a key or a slice, after the bracket.
    fn subscript(&mut self, of: Value<'t>) -> Parsed<Value<'t>> {
        let mut key = None;
        let mut colons = 0;
        while !self.skip("]") {
            match self.skip(":") {
                true => colons += 1,
                false => key = Some(self.expression(true)?),
            }
        }
        match (colons, key) {
            (0, Some(key)) => Ok(Value::of(self.entry(of, key))),
            (1, _) => Ok(Value { kind: of.kind, ..Value::of(of.node) }),
            // A step takes letters from between others.
            _ => Ok(Value::of(MADE)),
        }
    }

    fn arguments(&mut self) -> Parsed<Arguments<'t>> {
        let mut arguments = Vec::new();
        while !self.skip(")") {
            let name = match &self.tokens[self.at..] {
                [Token::Operator("*" | "**"), ..] => return Err("computed arguments".to_owned()),
                [Token::Name(name), Token::Operator("="), ..] => {
                    self.at += 2;
                    Some(*name)
                }
                _ => None,
            };
            arguments.push((name, self.deeper(|parser| parser.expression(true))?));
            if !self.is(")") {
                self.expect(",")?;
            }
        }
        Ok(arguments)
    }

    /// Reads a call, after the parenthesis.
    fn call(&mut self, of: Value<'t>) -> Parsed<Value<'t>> {
        let arguments = self.arguments()?;
        let Some(name) = of.name else { return Err("a call of a computed value".to_owned()) };
        for (index, (key, value)) in arguments.iter().enumerate() {
            match key {
                Some(key) if name == "namespace" => self.field(key, value.node),
                Some(key) if name == "dict" => self.named(key, value.node),
                Some(key) => {
                    let variable = self.flow.node(Variable(key));
                    self.flow.edge(value.node, variable, Same);
                }
                None => {
                    let parameter = self.flow.node(Parameter(name, index));
                    self.flow.edge(value.node, parameter, Same);
                }
            }
        }
        let plain: Vec<_> = arguments.iter().map(|(_, value)| (value.node, Same)).collect();
        Ok(match name {
            "range" | "raise_exception" => Value::default(),
            "namespace" if plain.len() == 1 => Value::of(self.flow.join(&plain)),
            "namespace" => Value::default(),
            "dict" => Value::of(self.flow.join(&plain)),
            _ => Value::of(MADE),
        })
    }

    /// Reads a call of a method, after the parenthesis.
    fn method(&mut self, of: Value<'t>, name: &'t str) -> Parsed<Value<'t>> {
        let arguments = self.arguments()?;
        // A format can access attributes and items of its arguments.
        let is_format = name == "format" && of.text.is_none_or(|text| text.contains(['.', '[']));
        if is_format || !has_word(names::METHODS, name) {
            self.attribute(name);
            self.unknown(format!("the method `{name}`"));
        }
        if has_word(names::CHANGING, name) {
            for (_, value) in &arguments {
                self.flow.edge(value.node, ADDED, Into);
            }
        }
        Ok(self.result(of, name, &arguments))
    }

    /// Reads the name of a filter and its arguments, and returns its result.
    fn filter(&mut self, of: Value<'t>) -> Parsed<Value<'t>> {
        let name = self.name()?;
        let arguments = if self.skip("(") { self.arguments()? } else { Vec::new() };
        if name == "attr" {
            self.danger("the filter `attr`".to_owned());
        } else if !has_word(names::FILTERS, name) {
            self.unknown(format!("the filter `{name}`"));
        }
        if has_word(names::REACHING, name) {
            self.reaching(name, &arguments);
        }
        Ok(self.result(of, name, &arguments))
    }

    /// Returns the result of a filter or a method.
    fn result(&mut self, of: Value<'t>, name: &str, arguments: &Arguments<'t>) -> Value<'t> {
        let first = arguments.first().and_then(|(_, value)| value.text);
        let also = arguments.iter().map(|(_, value)| (value.node, Same));
        match (name, first) {
            ("first" | "last" | "max" | "min" | "random" | "keys", _) | ("pop", None) => {
                Value::of(self.flow.join(&[(of.node, Out)]))
            }
            ("get" | "pop" | "setdefault", Some(key)) => {
                let field = self.flow.node(Field(key));
                let nodes: Vec<_> = also.chain([(of.node, Out), (field, Same)]).collect();
                Value::of(self.flow.join(&nodes))
            }
            ("items" | "values" | "dictsort", _) => {
                let keys = self.flow.join(&[(of.node, Out)]);
                let node = self.flow.join(&[(of.node, Same), (ANY_VALUE, Same)]);
                Value { keys: Some(keys).filter(|_| name != "values"), ..Value::of(node) }
            }
            ("map", Some(path)) if arguments[0].0.is_some() && path.contains('.') => {
                Value::of(MADE)
            }
            ("map", Some(attribute)) if arguments[0].0.is_some() => {
                let field = self.flow.node(Field(attribute));
                Value::of(self.flow.join(&[(of.node, Same), (field, Into)]))
            }
            ("map", Some(filter)) if has_word(names::KEEPING, filter) => Value::of(of.node),
            ("d" | "default", _) => {
                let nodes: Vec<_> = also.chain([(of.node, Same)]).collect();
                Value::of(self.flow.join(&nodes))
            }
            _ if has_word(names::KEEPING, name) => {
                let kind = if name == "list" { Kind::List } else { of.kind };
                Value { kind, keys: of.keys, ..Value::of(of.node) }
            }
            _ if has_word(names::CUTTING, name) => {
                Value { kind: Kind::List, ..Value::of(self.flow.join(&[(of.node, Into)])) }
            }
            // With arguments, some filters return these instead.
            _ if has_word(names::COUNTING, name) && also.count() == 0 => Value::number(),
            _ => Value::of(MADE),
        }
    }

    /// Judges the arguments of a filter that may be names of attributes, tests or filters.
    fn reaching(&mut self, name: &str, arguments: &Arguments<'t>) {
        for (index, (key, value)) in arguments.iter().enumerate() {
            let is_attribute = *key == Some("attribute");
            match (name, index, value.text) {
                _ if is_attribute => self.path(name, *value),
                ("map", 0, Some("attr")) => self.danger("the filter `attr`".to_owned()),
                ("map", 0, Some(filter))
                    if has_word(names::FILTERS, filter) && !has_word(names::REACHING, filter) => {}
                ("select" | "reject", 0, Some(test)) if is_test(test) => {}
                ("selectattr" | "rejectattr", 1, Some(test)) if is_test(test) => {}
                // The arguments of the test or filter.
                ("map" | "select" | "reject", 1.., _) => {}
                ("selectattr" | "rejectattr", 2.., _) => {}
                ("map" | "select" | "reject", ..) | ("selectattr" | "rejectattr", 1, _) => {
                    self.unknown(format!("an unknown argument of `{name}`"));
                }
                _ => self.path(name, *value),
            }
        }
    }

    /// Judges an argument that may be the name of an attribute, with periods.
    fn path(&mut self, name: &str, value: Value<'t>) {
        match value.text {
            Some(path) => path.split(['.', ',']).for_each(|step| self.attribute(step)),
            None if value.kind == Kind::Number => {}
            None => self.unknown(format!("a computed attribute name for `{name}`")),
        }
    }

    /// Reads a test, after `is`.
    fn test(&mut self) -> Parsed<Value<'t>> {
        self.skip_word("not");
        let name = self.name()?;
        if !is_test(name) {
            return Err(format!("the test `{name}`"));
        }
        let is_argument = match self.peek() {
            Some(Token::Name(name)) => !has_word("and else if in is not or", name),
            Some(Token::Text(_) | Token::Number) => true,
            Some(Token::Operator(operator)) => matches!(*operator, "[" | "{"),
            _ => false,
        };
        if self.skip("(") {
            self.arguments()?;
        } else if is_argument {
            let value = self.primary()?;
            self.postfix(value, false)?;
        }
        Ok(Value::number())
    }

    /// Judges what depends on the whole template.
    fn whole(&mut self) {
        let names: BTreeSet<&str> =
            [&self.called, &self.entered, &self.values].into_iter().flatten().copied().collect();
        for name in names {
            let is_value = self.values.contains(name);
            let is_entered = self.entered.contains(name);
            let is_called = self.called.contains(name);
            let is_function = has_word(names::FUNCTIONS, name);
            let is_macro = self.macros.contains(name);
            let finding = match () {
                () if is_function && is_entered => {
                    (Grade::Danger, format!("attributes of `{name}`"))
                }
                () if has_word(names::PYTHON, name) && (is_entered || is_called && !is_macro) => {
                    (Grade::Danger, format!("`{name}`"))
                }
                () if (is_function || is_macro) && (is_value || is_entered) => {
                    (Grade::UnknownCode, format!("`{name}` as a value"))
                }
                () if is_called && (is_function == is_macro || self.assigned.contains(name)) => {
                    (Grade::UnknownCode, format!("the function `{name}`"))
                }
                () => continue,
            };
            self.found.push(finding);
        }
        let made = self.flow.made();
        // A list or dict may have several names.
        if self.keys.iter().any(|key| made[*key] || made[ADDED]) {
            self.unknown("a computed key".to_owned());
        }
    }
}

fn unexpected(expected: &str) -> String {
    format!("something that is not Jinja where {expected} should be")
}

fn is_test(name: &str) -> bool {
    has_word(names::TESTS, name) || ["==", "!=", "<", "<=", ">", ">="].contains(&name)
}
