//! Expressions in a block, which refer to its sides and to names that it sets.

use super::parser::ParseResult;
use super::recipe::RuleBlock;
use crate::expression::Expression;

impl RuleBlock {
    pub(super) fn expression(&self, text: &str) -> ParseResult<Expression> {
        Expression::parse(&self.sides(text))
    }

    /// Replaces `hf.` and `cs.` by the side that has such a format.
    pub(super) fn sides(&self, text: &str) -> String {
        let hf_left = self.left.iter().any(|format| format.is_hf());
        let mut plain = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let starts =
                plain.chars().last().is_none_or(|c| !c.is_alphanumeric() && !"._{}".contains(c));
            let side = match hf_left && starts {
                true if rest.starts_with("hf.") => Some("left."),
                true if rest.starts_with("cs.") => Some("right."),
                _ => None,
            };
            match side {
                Some(side) => {
                    plain.push_str(side);
                    rest = &rest[3..];
                }
                None => {
                    plain.push(first);
                    rest = &rest[first.len_utf8()..];
                }
            }
        }
        plain
    }

    /// Parses an expression and checks that its names are set.
    pub(super) fn checked(&self, text: &str) -> ParseResult<Expression> {
        let expression = self.expression(text)?;
        self.check_names(std::iter::once(&expression))?;
        Ok(expression)
    }

    pub(super) fn check_names<'a>(
        &self,
        all: impl Iterator<Item = &'a Expression>,
    ) -> ParseResult<()> {
        for expression in all {
            for own in expression.names() {
                if !self.lets.iter().any(|set| set.name == own) {
                    return Err(format!("`{own}` is not set: expected `let {own} = …` before"));
                }
            }
        }
        Ok(())
    }
}
