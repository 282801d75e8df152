//! Rules: `KEY <-> KEY : OPERATIONS when CONDITION`.

use super::line::{RecipeCall, arguments, calls, first_word, split_word};
use super::parser::ParseResult;
use super::pattern::{KeyGroup, KeyPattern};
use super::recipe::{Arrow, Operation, Rule, RuleBlock, Slot};

impl RuleBlock {
    /// Parses `LEFT <-> RIGHT [: OPERATIONS] [when CONDITION]`.
    pub(super) fn rule(&self, line: usize, text: &str) -> ParseResult<Rule> {
        let (sides, when) = split_word(text, "when");
        let (sides, operations) = match sides.split_once(" : ") {
            Some((sides, operations)) => (sides, operations),
            None => (sides, ""),
        };
        let arrows = [(" <-> ", Arrow::Both), (" -> ", Arrow::ToRight), (" <- ", Arrow::ToLeft)];
        let found = arrows.iter().find(|(arrow, _)| sides.contains(arrow));
        let Some((arrow, direction)) = found else {
            return Err("expected a rule: KEY <-> KEY, KEY -> KEY or KEY <- KEY".to_owned());
        };
        let (left, right) = sides.split_once(arrow).unwrap_or_default();
        let operations: ParseResult<Vec<Operation>> =
            calls(operations)?.iter().map(|call| self.operation(call)).collect();
        let rule = Rule {
            line,
            text: text.to_owned(),
            left: self.keys(left)?,
            right: self.keys(right)?,
            arrow: *direction,
            operations: operations?,
            when: when.map(|when| self.expression(when)).transpose()?,
            also: Vec::new(),
        };
        check(&rule)?;
        self.check_names(rule.when.iter())?;
        Ok(rule)
    }

    /// Parses keys joined by `&`; `-` means no keys.
    fn keys(&self, text: &str) -> ParseResult<Vec<KeyPattern>> {
        match text.trim() {
            "-" => Ok(Vec::new()),
            text => text.split(" & ").map(|key| self.key(key.trim())).collect(),
        }
    }

    pub(super) fn key(&self, text: &str) -> ParseResult<KeyPattern> {
        if text.is_empty() || text.contains(char::is_whitespace) {
            return Err(format!("`{text}` is not a key"));
        }
        // The count of a group is an expression.
        let text = match text.split_once("[0..") {
            Some((start, rest)) => format!("{start}[0..{}", self.sides(rest)),
            None => text.to_owned(),
        };
        let pattern = KeyPattern::parse(&text)?;
        for group in pattern.groups() {
            if let KeyGroup::Count(count) = group {
                self.check_names(std::iter::once(count))?;
            }
        }
        Ok(pattern)
    }

    fn operation(&self, call: &RecipeCall<'_>) -> ParseResult<Operation> {
        let number = |default: usize| match call.arguments {
            "" => Ok(default),
            text => text
                .parse()
                .ok()
                .filter(|number| *number < 8)
                .ok_or_else(|| format!("`{text}` is not a dimension")),
        };
        Ok(match call.name {
            "transpose" => Operation::Transpose,
            "split" => {
                let (groups, slots) = call
                    .arguments
                    .split_once(';')
                    .ok_or("expected split(GROUPS; q ROWS, k ROWS, v ROWS)")?;
                let slots = self.slots(slots)?;
                if slots.len() < 2 || slots.iter().any(|slot| slot.name.is_empty()) {
                    return Err("each part of `split` needs a name and a number".to_owned());
                }
                Operation::Split { groups: self.checked(groups)?, slots }
            }
            "rope" => {
                let (heads, dim) = match call.arguments.split_once(';') {
                    Some((heads, dim)) => (heads, Some(self.checked(dim)?)),
                    None => (call.arguments, None),
                };
                let heads = self.slots(heads)?;
                if heads.is_empty() {
                    return Err("expected rope(HEADS) or rope(HEADS; ROWS)".to_owned());
                }
                Operation::Rope { heads, dim }
            }
            "lead" => Operation::Lead(number(1)?),
            "roll" => Operation::Roll,
            "add" => Operation::Add(
                call.arguments.parse().map_err(|_| "expected add(NUMBER)".to_owned())?,
            ),
            "stack" => Operation::Stack(number(0)?),
            "concat" => Operation::Concat(number(0)?),
            "repeat" => Operation::Repeat,
            "regroup" => {
                let (outer, inner) = call
                    .arguments
                    .split_once(';')
                    .ok_or("expected regroup(GROUPS; PARTS OF EACH)")?;
                Operation::Regroup { outer: self.checked(outer)?, inner: self.checked(inner)? }
            }
            "pad" => {
                let (rows, padded) =
                    call.arguments.split_once(';').ok_or("expected pad(ROWS; PADDED ROWS)")?;
                Operation::Pad { rows: self.checked(rows)?, padded: self.checked(padded)? }
            }
            "tie" => Operation::Tie(self.key(call.arguments)?),
            "refuse" => Operation::Refuse(call.arguments.trim_matches('"').to_owned()),
            other => {
                return Err(format!(
                    "`{other}` is not an operation: expected transpose, split, rope, regroup, pad, \
                     lead, roll, add, stack, concat, repeat, tie or refuse"
                ));
            }
        })
    }

    /// Parses `q H, k KV` or just `H`.
    fn slots(&self, text: &str) -> ParseResult<Vec<Slot>> {
        let slot = |text: &str| -> ParseResult<Slot> {
            let (own, value) = first_word(text);
            let named = !value.is_empty()
                && own.chars().all(|c| c.is_ascii_alphanumeric())
                && !value.starts_with(['/', '*', '+', '-', '<', '>'])
                && !value.starts_with("if ");
            Ok(match named {
                true => Slot { name: own.to_owned(), value: self.checked(value)? },
                false => Slot { name: String::new(), value: self.checked(text)? },
            })
        };
        arguments(text, ',').into_iter().map(slot).collect()
    }
}

/// Checks a rule for errors that do not depend on the checkpoint.
fn check(rule: &Rule) -> ParseResult<()> {
    let ways = [
        (Arrow::ToLeft, &rule.left, &rule.right, "left"),
        (Arrow::ToRight, &rule.right, &rule.left, "right"),
    ];
    for (other_way, source, target, side) in ways {
        let Some(source) = source.first().filter(|_| rule.arrow != other_way) else { continue };
        for hole in target.iter().flat_map(KeyPattern::holes) {
            if !source.holes().any(|own| own == hole) {
                return Err(format!("nothing on the {side} side fills `{{{hole}}}`"));
            }
        }
    }
    if rule.left.is_empty() && rule.right.is_empty() {
        return Err("a rule without keys".to_owned());
    }
    let groups = |keys: &[KeyPattern]| keys.first().map_or(0, |key| key.groups().count());
    let (left, right) = (groups(&rule.left), groups(&rule.right));
    let several = rule.operations.iter().filter(|operation| {
        matches!(
            operation,
            Operation::Split { .. }
                | Operation::Stack(_)
                | Operation::Concat(_)
                | Operation::Repeat
        )
    });
    match (left, right, several.count()) {
        (0, 0, 0) => Ok(()),
        (0, 0, _) => Err("an operation on several keys needs a group such as [q,k,v]".to_owned()),
        _ if rule.left.is_empty() || rule.right.is_empty() => Ok(()),
        (groups, 0, several) | (0, groups, several) if groups == several => Ok(()),
        (_, 0, _) | (0, _, _) => {
            Err("each group of keys needs split, stack, concat or repeat".to_owned())
        }
        _ => Err("only one side can be a group of keys".to_owned()),
    }
}
