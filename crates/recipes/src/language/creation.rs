//! Tensors that a recipe creates: `end SIDE KEY = MAKER for NAME in A..B when CONDITION`.

use super::line::{arguments, calls, first_word, split_word};
use super::parser::{ParseResult, name};
use super::recipe::{Creation, HoleRange, Maker, RuleBlock};
use crate::expression::Expression;
use crate::side::Side;

impl RuleBlock {
    /// Parses `left KEY = MAKER [for i in A..B] [when CONDITION]`.
    pub(super) fn creation(&self, line: usize, text: &str) -> ParseResult<Creation> {
        let (rest, when) = split_word(text, "when");
        let (rest, each) = split_word(rest, "for");
        let (side, rest) = first_word(rest);
        let hf_left = self.left.iter().any(|format| format.is_hf());
        let towards = match side {
            "left" => Side::Left,
            "right" => Side::Right,
            "hf" if hf_left => Side::Left,
            "cs" if hf_left => Side::Right,
            other => return Err(format!("`{other}` is not a side: left, right, hf or cs")),
        };
        let (key, maker) = rest.split_once(" = ").ok_or("expected KEY = MAKER(…)")?;
        let each = each.map(|each| self.each(each)).transpose()?;
        let creation = Creation {
            line,
            text: text.to_owned(),
            towards,
            key: self.key(key.trim())?,
            maker: self.maker(maker, each.as_ref())?,
            when: when.map(|when| self.expression(when)).transpose()?,
            range: each,
        };
        self.check_names(creation.when.iter())?;
        Ok(creation)
    }

    /// Parses `i in 1..K`.
    fn each(&self, text: &str) -> ParseResult<HoleRange> {
        let (own, range) = text.split_once(" in ").ok_or("expected `for NAME in FIRST..END`")?;
        let (from, to) = range.split_once("..").ok_or("expected `for NAME in FIRST..END`")?;
        Ok(HoleRange {
            name: name(own.trim())?,
            from: self.checked(from)?,
            to: self.checked(to)?,
            text: text.to_owned(),
        })
    }

    fn maker(&self, text: &str, _each: Option<&HoleRange>) -> ParseResult<Maker> {
        let found = calls(text)?;
        let [call] = &found[..] else { return Err(format!("`{text}` does not create one tensor")) };
        let all = |text: &str| -> ParseResult<Vec<Expression>> {
            arguments(text, ',').into_iter().map(|one| self.checked(one)).collect()
        };
        let one = || -> ParseResult<Expression> { self.checked(call.arguments) };
        let shaped = || -> ParseResult<(Expression, Vec<Expression>)> {
            let (first, shape) = call
                .arguments
                .split_once(';')
                .ok_or_else(|| format!("expected {}(NUMBER; ROWS, COLUMNS)", call.name))?;
            Ok((self.checked(first)?, all(shape)?))
        };
        Ok(match call.name {
            "positions" => Maker::Positions(one()?),
            "triangle" => Maker::Triangle(one()?),
            "number" => Maker::Number(one()?),
            "frequencies" => match &all(call.arguments)?[..] {
                [base, dim] => Maker::Frequencies(base.clone(), dim.clone()),
                _ => return Err("expected frequencies(BASE, DIMENSION)".to_owned()),
            },
            "slopes" => Maker::Slopes(one()?),
            "zeros" => Maker::Zeros(all(call.arguments)?),
            "normal" => {
                let (deviation, shape) = shaped()?;
                Maker::Normal(deviation, shape)
            }
            "uniform" => {
                let (bound, shape) = shaped()?;
                Maker::Uniform(bound, shape)
            }
            "first" => {
                let keys = arguments(call.arguments, ',').into_iter().map(|key| self.key(key));
                Maker::First(keys.collect::<ParseResult<_>>()?)
            }
            other => {
                return Err(format!(
                    "`{other}` does not create a tensor: expected positions, triangle, number, \
                     frequencies, slopes, zeros, normal, uniform or first"
                ));
            }
        })
    }
}
