//! The parsed form of a recipe.

use super::pattern::KeyPattern;
use crate::expression::Expression;
use crate::format::Implementation;
use crate::side::Side;

/// A family of models in each of its formats.
#[derive(Debug, Clone, Default)]
pub struct Recipe {
    pub family: String,
    pub aliases: Vec<String>,
    /// A description for users.
    pub title: String,
    pub model_types: Vec<String>,
    pub blocks: Vec<RuleBlock>,
}

#[derive(Debug, Clone, Default)]
pub struct RuleBlock {
    /// Its first line, for messages.
    pub line: usize,
    pub left: Vec<Implementation>,
    pub right: Vec<Implementation>,
    /// The direction in which it may be used.
    pub arrow: Arrow,
    pub when: Option<Expression>,
    /// The folder of the left side that it converts, if a model has several.
    pub component: Option<String>,
    /// The family, named by the configs, whose rules are applied in addition.
    pub base: Option<Expression>,
    pub lets: Vec<Let>,
    /// A prefix that keys of the right side may have.
    pub prefix: Option<String>,
    /// The scaling that is folded into the weights on the way to the left.
    pub scaling: Option<TensorScaling>,
    /// Prefixes of the right side: keys with the first are duplicated with the second.
    pub twice: Option<(String, String)>,
    /// The side that is split into ranks, and the name of each rank's file.
    pub ranks: Option<Ranks>,
    /// Plain numbers that accompany the tensors in each file of the right side.
    pub sets: Vec<Let>,
    /// Whether only the model is kept, without the optimizer and other states.
    pub only_model: bool,
    /// The rules, in order: the first that matches applies.
    pub rules: Vec<Rule>,
    /// Tensors that are created after all rules were applied.
    pub ends: Vec<Creation>,
}

/// A side with a file for each rank of tensor parallelism.
#[derive(Debug, Clone)]
pub struct Ranks {
    pub side: Side,
    /// The name of the files, with `{rank}` for the number in two digits.
    pub file: String,
}

impl Ranks {
    /// Returns the name of a rank's file.
    pub fn name(&self, rank: usize) -> String {
        Self::named(&self.file, rank)
    }

    /// Returns the name of a rank's file, with the number in two digits instead of `{rank}`.
    pub fn named(file: &str, rank: usize) -> String {
        file.replace("{rank}", &format!("{rank:02}"))
    }
}

/// The direction in which a rule or block is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Arrow {
    /// `<->`
    #[default]
    Both,
    /// `->`
    ToRight,
    /// `<-`
    ToLeft,
}

#[derive(Debug, Clone)]
pub struct Let {
    pub name: String,
    pub value: Expression,
}

/// The kind of muP scaling to fold into the weights, as a standard model needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TensorScaling {
    Decoder,
    T5,
    /// Hugging Face's implementation scales, too.
    Kept,
}

#[derive(Debug, Clone)]
pub struct Rule {
    /// Its line, for messages.
    pub line: usize,
    pub text: String,
    /// Keys of the left side. As a source, the first is read; as a target, all are written.
    pub left: Vec<KeyPattern>,
    pub right: Vec<KeyPattern>,
    /// The direction in which it is used.
    pub arrow: Arrow,
    /// Operations from left to right, in order; undone in reverse in the other direction.
    pub operations: Vec<Operation>,
    pub when: Option<Expression>,
    /// Tensors that are created along with it.
    pub also: Vec<Creation>,
}

/// An operation on tensors, described from left to right.
#[derive(Debug, Clone)]
pub enum Operation {
    /// Transposes a matrix; leaves other tensors unchanged.
    Transpose,
    /// Splits rows into parts, in groups.
    Split {
        groups: Expression,
        slots: Vec<Slot>,
    },
    /// Reorders rotary halves to pairs, in each head.
    Rope {
        /// The number of heads: of all parts, or of named ones.
        heads: Vec<Slot>,
        /// The number of rotary rows in each head; all by default.
        dim: Option<Expression>,
    },
    /// Swaps groups and parts: rows that are groups of parts become groups with one part of each
    /// former group.
    Regroup {
        outer: Expression,
        /// The number of parts in each group.
        inner: Expression,
    },
    /// Repeats the last row as padding; removes the padding in the other direction.
    Pad {
        rows: Expression,
        /// The number of rows with padding.
        padded: Expression,
    },
    /// Removes leading dimensions of length 1.
    Lead(usize),
    /// Moves the first row to the end.
    Roll,
    Add(f64),
    /// Stacks several tensors along a new dimension.
    Stack(usize),
    /// Concatenates several tensors along a dimension.
    Concat(usize),
    /// Takes the first of several tensors; in the other direction, all are the same.
    Repeat,
    /// The other key has the same tensor, if it is missing.
    Tie(KeyPattern),
    /// Refuses to convert the key, for this reason.
    Refuse(String),
}

/// A part with a number.
#[derive(Debug, Clone)]
pub struct Slot {
    /// The part's name, as in `[q,k,v]`; empty for all parts.
    pub name: String,
    pub value: Expression,
}

/// A tensor that is created because the source lacks it.
#[derive(Debug, Clone)]
pub struct Creation {
    /// Its line, for messages.
    pub line: usize,
    pub text: String,
    /// The direction in which it is created.
    pub towards: Side,
    pub key: KeyPattern,
    /// Its contents.
    pub maker: Maker,
    pub when: Option<Expression>,
    /// A range of numbers, for each of which it is created once.
    pub range: Option<HoleRange>,
}

#[derive(Debug, Clone)]
pub struct HoleRange {
    pub name: String,
    pub from: Expression,
    /// One more than the last number.
    pub to: Expression,
    /// Its text. Adjacent tensors with the same range are interleaved.
    pub text: String,
}

/// The contents of a created tensor.
#[derive(Debug, Clone)]
pub enum Maker {
    /// 0, 1, 2, … as 64-bit integers, one row.
    Positions(Expression),
    /// Ones on and below the diagonal, as bytes.
    Triangle(Expression),
    Number(Expression),
    /// The inverse frequencies of rotary embeddings: base and dimension.
    Frequencies(Expression, Expression),
    /// ALiBi's slopes for a number of heads.
    Slopes(Expression),
    /// Zeros, float32.
    Zeros(Vec<Expression>),
    /// Random numbers around zero, float32.
    Normal(Expression, Vec<Expression>),
    /// Random numbers up to a bound, float32.
    Uniform(Expression, Vec<Expression>),
    /// The first of these keys that the source has.
    First(Vec<KeyPattern>),
}

impl Recipe {
    /// Returns whether this is its name or an alias.
    pub fn is_called(&self, name: &str) -> bool {
        self.family == name || self.aliases.iter().any(|alias| alias == name)
    }
}

impl RuleBlock {
    /// Returns whether a rule matches the key, or the key belongs to a group of one, in this
    /// direction. Ignores conditions.
    pub fn knows(&self, towards: Side, key: &str) -> bool {
        self.is_about(towards, key, |_| true)
    }

    /// Returns the same as `knows`, but ignores rules that match every key.
    pub fn names(&self, towards: Side, key: &str) -> bool {
        self.is_about(towards, key, |pattern| pattern.text() != "{any}")
    }

    fn is_about(&self, towards: Side, key: &str, counts: impl Fn(&KeyPattern) -> bool) -> bool {
        let about = |key: &str| {
            self.rules.iter().any(|rule| {
                let keys = match (towards, rule.arrow) {
                    (Side::Right, Arrow::Both | Arrow::ToRight) => &rule.left,
                    (Side::Left, Arrow::Both | Arrow::ToLeft) => &rule.right,
                    _ => return false,
                };
                let first = keys.first().filter(|pattern| counts(pattern));
                first.is_some_and(|pattern| pattern.matches(key).is_some())
            })
        };
        let prefix = self.prefix.as_deref().filter(|_| towards == Side::Left);
        about(key) || prefix.and_then(|prefix| key.strip_prefix(prefix)).is_some_and(about)
    }

    /// Returns the direction of the block from one format to another, if it converts between them.
    pub fn towards(&self, from: Implementation, to: Implementation) -> Option<Side> {
        if self.left.contains(&from) && self.right.contains(&to) && self.arrow != Arrow::ToLeft {
            return Some(Side::Right);
        }
        let back = self.right.contains(&from) && self.left.contains(&to);
        (back && self.arrow != Arrow::ToRight).then_some(Side::Left)
    }
}
