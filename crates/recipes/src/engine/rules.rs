//! Applies the rules of a block to the keys of a state dict, one after the other.

mod scope;

use std::collections::HashMap;
use std::fmt;

use statelens_checkpoint::{Arithmetic, Error, Layout, Limits, Result, Setting, advice};

use self::scope::RuleScope;
pub(crate) use self::scope::lookup;
use super::makers;
use super::operations::OperationContext;
use super::scaling::{Factors, is_mup};
use super::state::{State, StateValue};
use crate::language::{
    Arrow, Captures, Creation, KeyGroup, KeyPattern, Maker, Match, Operation, Rule, RuleBlock,
    Scope, Side,
};
use crate::value::{MAX_NODES, Value};
use crate::view::View;

/// The code of errors about a line of the rules that can't be applied.
pub const RULE_CODE: &str = "recipe-rule";

/// Larger than in any model; limits the number of tensors that are combined.
const MAX_JOINED: u64 = 1 << 13;
/// Larger than in any recipe; limits the number of created tensors, and the bytes of those kept in
/// memory.
const MAX_CREATED: u64 = 1 << 18;
const MAX_CREATED_BYTES: u64 = 1 << 28;

/// The configs of both sides: the sections that describe the model.
#[derive(Debug, Clone, Copy)]
pub struct Configs<'a> {
    /// The config of the left side: Hugging Face, or the older release.
    pub left: &'a Value,
    pub right: &'a Value,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct ApplyOptions {
    /// Replace NaN by zero in all floating-point tensors.
    pub nan_to_zero: bool,
    /// The tensors are moments of an optimizer: operations that compute with them are refused.
    pub moments: bool,
    /// The number of files of a side that is split into ranks; 0 means one.
    pub ranks: u64,
}

#[derive(Debug, Clone, Default)]
pub struct Applied {
    pub state: State,
    /// Keys that no rule covers; they are not in the new state dict.
    pub unmatched: Vec<Unmatched>,
    /// The old and new keys of each rule that was applied, in order.
    pub moves: Vec<Move>,
}

/// A key that no rule covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmatched {
    pub key: String,
    /// The most similar pattern of a rule.
    pub nearest: Option<String>,
}

impl fmt::Display for Unmatched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.nearest {
            Some(nearest) => write!(f, "`{}` (the nearest rule is about {nearest})", self.key),
            None => write!(f, "`{}`", self.key),
        }
    }
}

/// One application of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// Keys of the source; none if the target is created.
    pub from: Vec<String>,
    /// Keys of the target; none if the source is dropped.
    pub to: Vec<String>,
    /// The text of the rule in the recipe.
    pub rule: String,
    /// The kind of rule.
    pub kind: MoveKind,
}

/// The kinds of rules that write a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MoveKind {
    /// It converts keys of the source.
    Convert,
    /// It creates a tensor.
    Create {
        /// Whether the tensor is filled with random numbers.
        random: bool,
    },
    /// It writes a key of the target a second time.
    Twice,
}

/// Applies the rules of `block` in one direction.
pub fn apply(
    block: &RuleBlock,
    towards: Side,
    source: &State,
    configs: Configs<'_>,
    options: ApplyOptions,
) -> Result<Applied> {
    let mut source = source.clone();
    prepare(block, towards, &mut source, configs, options)?;
    let mut job = RuleApplication {
        block,
        towards,
        source: &source,
        configs,
        lets: HashMap::new(),
        done: Applied::default(),
        optional: match towards {
            Side::Left => block.prefix.as_deref(),
            Side::Right => None,
        },
        made: (0, 0),
        moments: options.moments,
    };
    let mut size = 0;
    for set in &block.lets {
        let value = match block.ranks.is_some() && set.name == "ranks" {
            true => Ok(Value::Int(i64::try_from(options.ranks.max(1)).unwrap_or(i64::MAX))),
            false => set.value.value(&job.scope(&Captures::new(), "")),
        };
        let value = value.and_then(|value| value.can_nest(0).map(|()| value));
        size += value.as_ref().map_or(0, Value::nodes);
        if size > MAX_NODES {
            return Err(Error::limit("the names of a recipe have more than 500,000 values"));
        }
        job.lets.insert(set.name.clone(), value);
    }
    source.room()?;
    for (key, item) in source.iter() {
        let found = job.find(key)?;
        match found {
            Some(found) => job.run(key, item, &found)?,
            None => {
                let nearest = job.nearest(key);
                job.done.unmatched.push(Unmatched { key: key.to_owned(), nearest });
            }
        }
    }
    job.create(&block.ends, &Captures::new(), "")?;
    if let Some((first, second)) = block.twice.as_ref().filter(|_| towards == Side::Right) {
        job.copy_prefix(first, second);
    }
    Ok(job.done)
}

/// Computes on the tensors before the rules are applied.
fn prepare(
    block: &RuleBlock,
    towards: Side,
    source: &mut State,
    configs: Configs<'_>,
    options: ApplyOptions,
) -> Result<()> {
    if options.nan_to_zero {
        source.map_tensors(|_, tensor| match tensor.dtype.is_float() {
            true => View::of(tensor)?.compute(&[Arithmetic::NanToZero])?.tensor().map(Some),
            false => Ok(None),
        })?;
    }
    let to_hf = towards == Side::Left && block.left.iter().all(|format| format.is_hf());
    if to_hf && block.scaling.is_none() && block.base.is_none() && is_mup(configs.right) {
        return Err(Error::refused(
            "this is a muP model, and the recipe doesn't say how it becomes a standard one",
        ));
    }
    let scaling = block.scaling.filter(|_| towards == Side::Left);
    if let Some(factors) = scaling.and_then(|kind| Factors::of(kind, configs.right)) {
        source.map_tensors(|key, tensor| match &factors.steps(key)?[..] {
            [] => Ok(None),
            _ if options.moments => Err(not_for_moments(key, "is scaled")),
            steps => View::of(tensor)?.compute(steps)?.tensor().map(Some),
        })?;
    }
    Ok(())
}

struct RuleApplication<'a> {
    block: &'a RuleBlock,
    towards: Side,
    source: &'a State,
    configs: Configs<'a>,
    lets: HashMap<String, Result<Value>>,
    done: Applied,
    /// A prefix that keys of the source may have.
    optional: Option<&'a str>,
    /// The number of tensors that were created, and the bytes of those in memory.
    made: (u64, u64),
    moments: bool,
}

struct MatchedRule<'a> {
    rule: &'a Rule,
    matched: Match,
    /// A prefix that the rule's pattern does not include.
    prefix: &'a str,
}

impl<'a> RuleApplication<'a> {
    /// Returns the first rule that matches a key. Rules for the key without its optional prefix
    /// come last.
    fn find(&self, key: &str) -> Result<Option<MatchedRule<'a>>> {
        if let Some(found) = self.find_with(key, "")? {
            return Ok(Some(found));
        }
        let stripped = self.optional.and_then(|prefix| Some((prefix, key.strip_prefix(prefix)?)));
        match stripped {
            Some((prefix, key)) => self.find_with(key, prefix),
            None => Ok(None),
        }
    }

    fn find_with(&self, key: &str, prefix: &'a str) -> Result<Option<MatchedRule<'a>>> {
        for rule in &self.block.rules {
            let Some(pattern) = self.source_keys(rule).first() else { continue };
            let Some(matched) = pattern.matches(key) else { continue };
            let scope = self.scope(&matched.captures, prefix);
            if let Some(when) = &rule.when
                && !when.is_true(&scope).map_err(|error| at(rule, key, error))?
            {
                continue;
            }
            let counts = counts(pattern, &scope).map_err(|error| at(rule, key, error))?;
            let mut which = matched.members.iter().zip(&counts);
            if which.any(|(member, count)| *member as u64 >= *count) {
                continue;
            }
            return Ok(Some(MatchedRule { rule, matched, prefix }));
        }
        Ok(None)
    }

    /// Returns the keys that a rule reads in this direction; empty if it does not apply in this
    /// direction.
    fn source_keys(&self, rule: &'a Rule) -> &'a [KeyPattern] {
        match (self.towards, rule.arrow) {
            (Side::Right, Arrow::Both | Arrow::ToRight) => &rule.left,
            (Side::Left, Arrow::Both | Arrow::ToLeft) => &rule.right,
            _ => &[],
        }
    }

    fn run(&mut self, key: &str, value: &StateValue, found: &MatchedRule<'_>) -> Result<()> {
        let MatchedRule { rule, matched, prefix } = found;
        let named = |error: Error| at(rule, key, error);
        let (source, target) = match self.towards {
            Side::Right => (&rule.left, &rule.right),
            Side::Left => (&rule.right, &rule.left),
        };
        if let Some(Operation::Refuse(why)) =
            rule.operations.iter().find(|one| matches!(one, Operation::Refuse(_)))
        {
            return Err(named(Error::refused(why.clone())));
        }
        // The members of a group are converted together with the first of them.
        if matched.members.iter().any(|member| *member > 0) {
            let first = source.first().map(|pattern| pattern.fill(&matched.captures, &[]));
            let first = format!("{prefix}{}", first.unwrap_or_default());
            return match self.source.has(&first) {
                true => Ok(()),
                false => Err(named(missing(&first))),
            };
        }
        if target.is_empty() {
            self.moved(vec![key.to_owned()], Vec::new(), rule);
            return Ok(());
        }
        if let Some(Operation::Tie(other)) =
            rule.operations.iter().find(|one| matches!(one, Operation::Tie(_)))
        {
            return self.tie(key, value, other, found);
        }
        let computes = |one: &Operation| matches!(one, Operation::Add(_) | Operation::Pad { .. });
        if self.moments && rule.operations.iter().any(computes) {
            return Err(not_for_moments(key, "is part of a computation"));
        }
        let plain = rule.operations.is_empty();
        match value {
            StateValue::Tensor(..) => {}
            _ if plain && !self.to_hf() => {}
            _ => return Err(named(not_a_tensor(value))),
        }
        let captures = &matched.captures;
        let pattern = source.first().ok_or_else(|| Error::refused("a rule without a source"))?;
        let mut read = Vec::new();
        let mut items = Vec::new();
        let scope = self.scope(captures, prefix);
        let together = groups(pattern, &scope).map_err(named)?;
        let grouped = !together.is_empty();
        for members in all_of(&together) {
            let own = match grouped {
                true => format!("{prefix}{}", pattern.fill(captures, &members)),
                false => key.to_owned(),
            };
            let item = self.source.get(&own).ok_or_else(|| named(missing(&own)))?;
            read.push(own);
            items.push(item);
        }
        let to = target.first().ok_or_else(|| Error::refused("a rule without a target"))?;
        let apart = groups(to, &scope).map_err(named)?;
        let items: Vec<StateValue> = match plain {
            true => items.into_iter().cloned().collect(),
            false => {
                let views: Result<Vec<View>> = items
                    .into_iter()
                    .map(|item| match item {
                        StateValue::Tensor(tensor, _) => View::of(tensor),
                        other => Err(not_a_tensor(other)),
                    })
                    .collect();
                let mut views = views.map_err(named)?;
                let mut way = OperationContext {
                    there: self.towards == Side::Right,
                    joining: grouped,
                    groups: if grouped { &together } else { &apart },
                    open: if grouped { together.len() } else { 0 },
                    scope: &scope,
                };
                for step in 0..rule.operations.len() {
                    let step = match self.towards {
                        Side::Right => step,
                        Side::Left => rule.operations.len() - 1 - step,
                    };
                    views = way.step(&rule.operations[step], views).map_err(named)?;
                }
                let tensors: Result<Vec<StateValue>> =
                    views.iter().map(|view| Ok(StateValue::Tensor(view.tensor()?, None))).collect();
                tensors.map_err(named)?
            }
        };
        let mut written = Vec::new();
        for (members, item) in all_of(&apart).zip(items) {
            for (at, pattern) in target.iter().enumerate() {
                let key = pattern.fill(captures, &members);
                // Further keys are other names of the same tensor.
                if at == 0 {
                    self.check_new(&key).map_err(named)?;
                }
                written.push(key.clone());
                self.done.state.set(key, item.clone());
            }
        }
        let also = &rule.also;
        self.moved(read, written, rule);
        self.create(also, captures, prefix).map_err(named)
    }

    /// Refuses a key that was written already, because the other tensor would be lost.
    fn check_new(&self, key: &str) -> Result<()> {
        if !self.done.state.has(key) {
            return Ok(());
        }
        let mut moves = self.done.moves.iter();
        let before = moves.find(|one| one.to.iter().any(|to| to == key));
        match before.and_then(|one| one.from.first()) {
            Some(before) => Err(Error::refused(format!("`{before}` becomes `{key}`, too"))),
            None => Ok(()),
        }
    }

    /// Writes the key, and the other key if the source lacks it.
    fn tie(
        &mut self,
        key: &str,
        value: &StateValue,
        other: &KeyPattern,
        matched: &MatchedRule<'_>,
    ) -> Result<()> {
        let other = format!("{}{}", matched.prefix, other.fill(&matched.matched.captures, &[]));
        let there = self.source.get(&other).filter(|item| !matches!(item, StateValue::None));
        let own = match (value, there) {
            (StateValue::None, Some(there)) => there.clone(),
            (own, _) => own.clone(),
        };
        let mut written = vec![key.to_owned()];
        if there.is_none() {
            self.done.state.set(key.to_owned(), own.clone());
            self.done.state.set(other.clone(), own);
            written.push(other);
        } else {
            self.done.state.set(key.to_owned(), own);
        }
        self.moved(vec![key.to_owned()], written, matched.rule);
        Ok(())
    }

    /// Creates tensors that the source lacks. Adjacent rules with the same range are interleaved.
    fn create(&mut self, all: &[Creation], captures: &Captures, prefix: &str) -> Result<()> {
        let mut rest = all;
        while let Some(first) = rest.first() {
            let each = first.range.as_ref();
            let same = |one: &&Creation| {
                one.range.as_ref().map(|each| &each.text) == each.map(|each| &each.text)
            };
            let together = match each {
                Some(_) => rest.iter().take_while(same).count(),
                None => 1,
            };
            let (now, later) = rest.split_at(together);
            rest = later;
            if now.iter().all(|one| one.towards != self.towards) {
                continue;
            }
            let Some(each) = each else {
                self.create_one(first, captures, prefix)?;
                continue;
            };
            let scope = self.scope(captures, prefix);
            let named = |error: Error| creation_error(first, error);
            let from = each.from.count(&scope).map_err(named)?;
            let to = each.to.count(&scope).map_err(named)?;
            Limits::check("created tensors", to, MAX_CREATED)?;
            for number in from..to {
                let mut captures = captures.clone();
                captures.push((each.name.clone(), number.to_string()));
                for one in now {
                    self.create_one(one, &captures, prefix)?;
                }
            }
        }
        Ok(())
    }

    fn create_one(&mut self, one: &Creation, captures: &Captures, prefix: &str) -> Result<()> {
        if one.towards != self.towards {
            return Ok(());
        }
        let named = |error: Error| creation_error(one, error);
        let scope = self.scope(captures, prefix);
        if let Some(when) = &one.when
            && !when.is_true(&scope).map_err(named)?
        {
            return Ok(());
        }
        let key = one.key.fill(captures, &[]);
        match one.maker {
            // New weights have had no steps.
            Maker::Normal(..) | Maker::Uniform(..) | Maker::Zeros(_) if self.moments => {
                return Err(not_for_moments(&key, "is made"));
            }
            Maker::First(_) => {}
            // Buffers have no moments.
            _ if self.moments => return Ok(()),
            _ => {}
        }
        let item = match (makers::make(&one.maker, &key, &scope).map_err(named)?, &one.maker) {
            (Some(tensor), _) => {
                makers::check(&tensor).map_err(named)?;
                let bytes = match &tensor.layout {
                    Layout::Inline(bytes) => bytes.len() as u64,
                    Layout::Strided(view) => view.storage_len,
                    _ => 0,
                };
                self.made = (self.made.0 + 1, self.made.1.saturating_add(bytes));
                Limits::check("created tensors", self.made.0, MAX_CREATED)?;
                Limits::check("bytes of created tensors", self.made.1, MAX_CREATED_BYTES)?;
                StateValue::Tensor(tensor, None)
            }
            (None, Maker::First(keys)) => {
                let names: Vec<String> = keys.iter().map(|one| one.fill(captures, &[])).collect();
                let found = names.iter().find_map(|name| {
                    let item = self.get(name, prefix)?;
                    (!matches!(item, StateValue::None)).then(|| item.clone())
                });
                found.ok_or_else(|| {
                    named(Error::refused(format!("the checkpoint has no {}", names.join(", "))))
                })?
            }
            (None, _) => return Ok(()),
        };
        self.done.state.set(key.clone(), item);
        let random = matches!(one.maker, Maker::Normal(..) | Maker::Uniform(..));
        let (rule, kind) = (one.text.clone(), MoveKind::Create { random });
        self.done.moves.push(Move { from: Vec::new(), to: vec![key], rule, kind });
        Ok(())
    }

    /// Copies all keys with one prefix to another prefix.
    fn copy_prefix(&mut self, first: &str, second: &str) {
        let copies: Vec<(String, String, StateValue)> = self
            .done
            .state
            .iter()
            .filter_map(|(key, item)| {
                let rest = key.strip_prefix(first)?;
                Some((key.to_owned(), format!("{second}{rest}"), item.clone()))
            })
            .collect();
        for (from, to, item) in copies {
            let rule = format!("twice {first} {second}");
            let kind = MoveKind::Twice;
            self.done.moves.push(Move { from: vec![from], to: vec![to.clone()], rule, kind });
            self.done.state.set(to, item);
        }
    }

    fn moved(&mut self, from: Vec<String>, to: Vec<String>, rule: &Rule) {
        let kind = MoveKind::Convert;
        self.done.moves.push(Move { from, to, rule: rule.text.clone(), kind });
    }

    fn get(&self, key: &str, prefix: &str) -> Option<&'a StateValue> {
        let with = self.source.get(&format!("{prefix}{key}"));
        with.or_else(|| self.source.get(&format!("{}{key}", self.optional?)))
    }

    /// Returns whether the target is Hugging Face's, whose files hold tensors only.
    fn to_hf(&self) -> bool {
        self.towards == Side::Left && self.block.left.iter().all(|format| format.is_hf())
    }

    /// Returns the pattern of a rule that is most similar to a key.
    fn nearest(&self, key: &str) -> Option<String> {
        let rated = self.block.rules.iter().filter_map(|rule| {
            let pattern = self.source_keys(rule).first()?;
            Some((alike(key, pattern.text()), pattern.text()))
        });
        let best = rated.filter(|(rating, _)| *rating > 0).max_by_key(|(rating, _)| *rating);
        best.map(|(_, text)| text.to_owned())
    }

    fn scope<'b>(&'b self, captures: &'b Captures, prefix: &'b str) -> RuleScope<'b> {
        RuleScope {
            configs: self.configs,
            lets: &self.lets,
            source: self.source,
            made: &self.done.state,
            captures,
            prefix,
        }
    }
}

/// Returns the number of members of each group in a pattern.
fn counts(pattern: &KeyPattern, scope: &dyn Scope) -> Result<Vec<u64>> {
    let count = |group: &KeyGroup| match group {
        KeyGroup::Names(names) => Ok(names.len() as u64),
        KeyGroup::Count(count) => count.count(scope),
    };
    pattern.groups().map(count).collect()
}

/// Returns the names of the members of each group in a pattern; numbers if the group is counted.
fn groups(pattern: &KeyPattern, scope: &dyn Scope) -> Result<Vec<Vec<String>>> {
    let mut all = 1u64;
    let mut found = Vec::new();
    for group in pattern.groups() {
        let names: Vec<String> = match group {
            KeyGroup::Names(names) => names.clone(),
            KeyGroup::Count(count) => {
                let count = count.count(scope)?;
                Limits::check("joined tensors", count, MAX_JOINED)?;
                (0..count).map(|member| member.to_string()).collect()
            }
        };
        all = all.saturating_mul(names.len() as u64);
        Limits::check("joined tensors", all, MAX_JOINED)?;
        found.push(names);
    }
    Ok(found)
}

/// Iterates over all combinations of members; the last group varies fastest.
fn all_of(groups: &[Vec<String>]) -> impl Iterator<Item = Vec<usize>> {
    let count: usize = groups.iter().map(Vec::len).product();
    (0..count).map(|at| {
        let mut rest = at;
        let mut members: Vec<usize> = groups
            .iter()
            .rev()
            .map(|names| {
                let member = rest % names.len().max(1);
                rest /= names.len().max(1);
                member
            })
            .collect();
        members.reverse();
        members
    })
}

/// Counts the equal parts of a key and a pattern, from both ends.
fn alike(key: &str, pattern: &str) -> usize {
    let key: Vec<&str> = key.split('.').collect();
    let pattern: Vec<&str> = pattern.split('.').collect();
    let same = |(one, other): &(&&str, &&str)| {
        one == other || other.contains(['{', '[']) && !one.is_empty()
    };
    let exact = |(one, other): &(&&str, &&str)| one == other;
    let front = key.iter().zip(&pattern).take_while(same).filter(exact).count();
    let back = key.iter().rev().zip(pattern.iter().rev()).take_while(same).filter(exact).count();
    front + back
}

fn not_for_moments(key: &str, what: &str) -> Error {
    Error::refused(format!("`{key}` {what}, so its moments can't be converted")).advice(advice![
        "Convert without ",
        Setting::WithOptimizer,
        "."
    ])
}

/// Returns the error for a missing member of a group.
fn missing(key: &str) -> Error {
    Error::refused(format!("`{key}` belongs to it, but isn't in the checkpoint"))
}

fn not_a_tensor(value: &StateValue) -> Error {
    match value {
        StateValue::None => {
            Error::refused("the value of this key is None, not a tensor").advice(advice![
                "A tied weight saved as None: fill it in with ",
                Setting::Upgrade,
                ", or leave the key out.",
            ])
        }
        _ => Error::refused("the value of this key is not a tensor"),
    }
}

/// Adds the key and the rule to an error.
fn at(rule: &Rule, key: &str, error: Error) -> Error {
    let what = error.to_string();
    Error::refused(format!("`{key}`: {}", what.trim_end_matches('.')))
        .coded(RULE_CODE)
        .advice(format!("The rule is in line {}: {}", rule.line, rule.text))
}

fn creation_error(one: &Creation, error: Error) -> Error {
    let what = error.to_string();
    let what = what.trim_end_matches('.');
    Error::refused(format!("`{}` can't be made: {what}", one.key.text()))
        .coded(RULE_CODE)
        .advice(format!("The rule is in line {}: {}", one.line, one.text))
}
