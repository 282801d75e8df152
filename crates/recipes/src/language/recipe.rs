//! What a recipe says, once it is read.

use super::expression::{ConfigSide, Expression};
use super::pattern::KeyPattern;
use crate::format::ModelFormat;

/// What a family of models is in each of its formats.
#[derive(Debug, Clone, Default)]
pub struct Recipe {
    /// The name by which it is asked for.
    pub family: String,
    /// Other names for it.
    pub aliases: Vec<String>,
    /// What it is, for people.
    pub title: String,
    /// What Hugging Face's configs call it (`model_type`).
    pub model_types: Vec<String>,
    /// What is between which formats.
    pub blocks: Vec<RuleBlock>,
}

/// Rules between two sides.
#[derive(Debug, Clone)]
pub struct RuleBlock {
    /// Where it begins, for messages.
    pub line: usize,
    /// The formats of the left side.
    pub left: Vec<ModelFormat>,
    /// The formats of the right side.
    pub right: Vec<ModelFormat>,
    /// In which direction it may be used.
    pub arrow: Arrow,
    /// What must hold of the configs.
    pub when: Option<Expression>,
    /// The folder of the left side that this is about, where a model is in several.
    pub component: Option<String>,
    /// Which family's rules are applied besides: a name from the configs.
    pub base: Option<Expression>,
    /// Names for numbers.
    pub lets: Vec<Let>,
    /// What keys of the right side may begin with.
    pub prefix: Option<String>,
    /// The scaling that is taken out on the way to the left.
    pub scaling: Option<TensorScaling>,
    /// Prefixes of the right side: what is under the first is under the second, too.
    pub twice: Option<(String, String)>,
    /// Which side is cut into ranks, and what each rank's file is called.
    pub ranks: Option<Ranks>,
    /// Plain numbers that each file of the right side has beside its tensors.
    pub sets: Vec<Let>,
    /// Only the model is kept: no optimizer or other states.
    pub only_model: bool,
    /// Each rule, in order: the first that matches counts.
    pub rules: Vec<Rule>,
    /// Tensors that are made once all rules are done.
    pub ends: Vec<Creation>,
}

/// A side that is in several files, one for each rank of tensor parallelism.
#[derive(Debug, Clone)]
pub struct Ranks {
    /// The side.
    pub side: ConfigSide,
    /// Their names, with `{rank}` for the number in two digits.
    pub file: String,
}

impl Ranks {
    /// The name of one of the files.
    pub fn name(&self, rank: usize) -> String {
        Self::named(&self.file, rank)
    }

    /// The name of a rank's file, where `{rank}` stands for the number in two digits.
    pub fn named(file: &str, rank: usize) -> String {
        file.replace("{rank}", &format!("{rank:02}"))
    }
}

/// In which direction a rule or block is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrow {
    /// `<->`
    Both,
    /// `->`
    ToRight,
    /// `<-`
    ToLeft,
}

/// A name for a number.
#[derive(Debug, Clone)]
pub struct Let {
    /// The name.
    pub name: String,
    /// What it stands for.
    pub value: Expression,
}

/// How muP scales weights that a standard model has unscaled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TensorScaling {
    /// Decoders and BERT.
    Decoder,
    /// T5.
    T5,
    /// Hugging Face's implementation scales, too.
    Kept,
}

/// One rule.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Its line, for messages.
    pub line: usize,
    /// Its text.
    pub text: String,
    /// Keys of the left side: the first is read, all are written.
    pub left: Vec<KeyPattern>,
    /// Keys of the right side.
    pub right: Vec<KeyPattern>,
    /// In which direction it is used.
    pub arrow: Arrow,
    /// What is done from left to right, in order; the other way round, undone in reverse.
    pub operations: Vec<Operation>,
    /// What must hold.
    pub when: Option<Expression>,
    /// Tensors that are made beside it.
    pub also: Vec<Creation>,
}

/// What is done to tensors from left to right.
#[derive(Debug, Clone)]
pub enum Operation {
    /// A matrix is transposed; anything else stays.
    Transpose,
    /// Rows are cut into parts, in groups.
    Split {
        /// How many groups.
        groups: Expression,
        /// The parts of a group.
        slots: Vec<Slot>,
    },
    /// Rotary halves to pairs, in each head.
    Rope {
        /// How many heads: of all parts, or of the named ones.
        heads: Vec<Slot>,
        /// How many rows of each head; all unless said.
        dim: Option<Expression>,
    },
    /// Rows are groups of parts, and become as many groups of what were the groups.
    Regroup {
        /// How many groups.
        outer: Expression,
        /// How many parts each has.
        inner: Expression,
    },
    /// The last row is repeated until there are so many; back, those are cut off.
    Pad {
        /// How many rows there are.
        rows: Expression,
        /// How many there are to be.
        padded: Expression,
    },
    /// Leading dimensions of one index go.
    Lead(usize),
    /// The first row becomes the last.
    Roll,
    /// A number is added.
    Add(f64),
    /// Several become one along a new dimension.
    Stack(usize),
    /// Several become one, one after the other along a dimension.
    Concat(usize),
    /// The first of several is the one; back, all are the same.
    Repeat,
    /// Another key holds the same where it is missing.
    Tie(KeyPattern),
    /// The key can't be converted, for this reason.
    Refuse(String),
}

/// A part and a number for it.
#[derive(Debug, Clone)]
pub struct Slot {
    /// The part's name, as in `[q,k,v]`; empty for all.
    pub name: String,
    /// The number.
    pub value: Expression,
}

/// A tensor that the source doesn't have.
#[derive(Debug, Clone)]
pub struct Creation {
    /// Its line, for messages.
    pub line: usize,
    /// Its text.
    pub text: String,
    /// The direction in which it is made.
    pub towards: ConfigSide,
    /// Its key.
    pub key: KeyPattern,
    /// What it is made of.
    pub maker: Maker,
    /// What must hold.
    pub when: Option<Expression>,
    /// Made once for each of these numbers.
    pub range: Option<HoleRange>,
}

/// A range of numbers that a hole takes.
#[derive(Debug, Clone)]
pub struct HoleRange {
    /// The hole.
    pub name: String,
    /// The first.
    pub from: Expression,
    /// One after the last.
    pub to: Expression,
    /// As it was written: neighbours of the same range are made in turn.
    pub text: String,
}

/// What a tensor that the source doesn't have is made of.
#[derive(Debug, Clone)]
pub enum Maker {
    /// 0, 1, 2, … as 64-bit integers, one row.
    Positions(Expression),
    /// Ones on and below the diagonal, as bytes.
    Triangle(Expression),
    /// One float32.
    Number(Expression),
    /// The inverse frequencies of rotary embeddings: base and dimension.
    Frequencies(Expression, Expression),
    /// ALiBi's slopes of so many heads.
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
    /// Whether it goes by this name.
    pub fn is_called(&self, name: &str) -> bool {
        self.family == name || self.aliases.iter().any(|alias| alias == name)
    }
}

impl RuleBlock {
    /// Whether a rule, or a group that belongs to one, is about a key of the side that is read;
    /// conditions aside.
    pub fn knows(&self, towards: ConfigSide, key: &str) -> bool {
        self.is_about(towards, key, |_| true)
    }

    /// The same, of rules that are not about any key whatever.
    pub fn names(&self, towards: ConfigSide, key: &str) -> bool {
        self.is_about(towards, key, |pattern| pattern.text() != "{any}")
    }

    fn is_about(
        &self,
        towards: ConfigSide,
        key: &str,
        counts: impl Fn(&KeyPattern) -> bool,
    ) -> bool {
        let about = |key: &str| {
            self.rules.iter().any(|rule| {
                let keys = match (towards, rule.arrow) {
                    (ConfigSide::Right, Arrow::Both | Arrow::ToRight) => &rule.left,
                    (ConfigSide::Left, Arrow::Both | Arrow::ToLeft) => &rule.right,
                    _ => return false,
                };
                let first = keys.first().filter(|pattern| counts(pattern));
                first.is_some_and(|pattern| pattern.matches(key).is_some())
            })
        };
        let prefix = self.prefix.as_deref().filter(|_| towards == ConfigSide::Left);
        about(key) || prefix.and_then(|prefix| key.strip_prefix(prefix)).is_some_and(about)
    }

    /// Towards which side it goes from one format to another, if it does.
    pub fn towards(&self, from: ModelFormat, to: ModelFormat) -> Option<ConfigSide> {
        if self.left.contains(&from) && self.right.contains(&to) && self.arrow != Arrow::ToLeft {
            return Some(ConfigSide::Right);
        }
        let back = self.right.contains(&from) && self.left.contains(&to);
        (back && self.arrow != Arrow::ToRight).then_some(ConfigSide::Left)
    }
}
