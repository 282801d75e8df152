//! Recipes, read from their text.

use statelens_checkpoint::{Error, Result};

use super::expression::{Expression, Side};
use super::line::{Call, arguments, calls, first_word, split_word, without_comment};
use super::pattern::{Group, Pattern};
use crate::format::Format;

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
    pub blocks: Vec<Block>,
}

/// Rules between two sides.
#[derive(Debug, Clone)]
pub struct Block {
    /// Where it begins, for messages.
    pub line: usize,
    /// The formats of the left side.
    pub left: Vec<Format>,
    /// The formats of the right side.
    pub right: Vec<Format>,
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
    pub scaling: Option<Scaling>,
    /// Prefixes of the right side: what is under the first is under the second, too.
    pub twice: Option<(String, String)>,
    /// Only the model is kept: no optimizer or other states.
    pub only_model: bool,
    /// Each rule, in order: the first that matches counts.
    pub rules: Vec<Rule>,
    /// Tensors that are made once all rules are done.
    pub ends: Vec<Creation>,
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
pub enum Scaling {
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
    pub left: Vec<Pattern>,
    /// Keys of the right side.
    pub right: Vec<Pattern>,
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
    Tie(Pattern),
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
    pub towards: Side,
    /// Its key.
    pub key: Pattern,
    /// What it is made of.
    pub maker: Maker,
    /// What must hold.
    pub when: Option<Expression>,
    /// Made once for each of these numbers.
    pub each: Option<Each>,
}

/// A range of numbers that a hole takes.
#[derive(Debug, Clone)]
pub struct Each {
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
    First(Vec<Pattern>),
}

/// Recipes that are made from recipes that are made from recipes.
const MOST_DEPTH: usize = 4;
/// More rules than any family needs; a bound for what a file may ask for.
const MOST_LINES: usize = 20_000;

impl Recipe {
    /// Reads a recipe. `file` is what messages call it, `others` finds the text of recipes that
    /// `use` and `like` name.
    pub fn parse(file: &str, text: &str, others: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        parse(file, text, others, 0)
    }

    /// Whether it goes by this name.
    pub fn is_called(&self, name: &str) -> bool {
        self.family == name || self.aliases.iter().any(|alias| alias == name)
    }
}

impl Block {
    /// Whether a rule, or a group that belongs to one, is about a key of the side that is read;
    /// conditions aside.
    pub fn knows(&self, towards: Side, key: &str) -> bool {
        let about = |key: &str| {
            self.rules.iter().any(|rule| {
                let keys = match (towards, rule.arrow) {
                    (Side::Right, Arrow::Both | Arrow::ToRight) => &rule.left,
                    (Side::Left, Arrow::Both | Arrow::ToLeft) => &rule.right,
                    _ => return false,
                };
                keys.first().is_some_and(|pattern| pattern.matches(key).is_some())
            })
        };
        let prefix = self.prefix.as_deref().filter(|_| towards == Side::Left);
        about(key) || prefix.and_then(|prefix| key.strip_prefix(prefix)).is_some_and(about)
    }

    /// Towards which side it goes from one format to another, if it does.
    pub fn towards(&self, from: Format, to: Format) -> Option<Side> {
        if self.left.contains(&from) && self.right.contains(&to) && self.arrow != Arrow::ToLeft {
            return Some(Side::Right);
        }
        let back = self.right.contains(&from) && self.left.contains(&to);
        (back && self.arrow != Arrow::ToRight).then_some(Side::Left)
    }
}

fn parse(
    file: &str,
    text: &str,
    others: &dyn Fn(&str) -> Option<String>,
    depth: usize,
) -> Result<Recipe> {
    let mut reader =
        Reader { recipe: Recipe::default(), header: None, about: Vec::new(), others, depth };
    for (number, (line, text)) in lines(text).into_iter().enumerate() {
        let result = match number < MOST_LINES {
            true => reader.line(line, &text),
            false => Err("the file has too many lines".to_owned()),
        };
        result.map_err(|what| {
            Error::refused(format!("{file}, line {line}: {what}"))
                .expected("what docs/recipes.md describes")
                .advice(format!("The line reads: {text}"))
        })?;
    }
    if reader.recipe.family.is_empty() {
        return Err(Error::refused(format!("{file} does not say which family it is about"))
            .expected("a line such as `family my-model`"));
    }
    Ok(reader.recipe)
}

/// Lines with something in them: a line that ends in `\` goes on in the next.
fn lines(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut open = false;
    for (number, line) in text.lines().enumerate() {
        let line = without_comment(line);
        let (line, goes_on) = match line.strip_suffix('\\') {
            Some(line) => (line.trim_end(), true),
            None => (line, false),
        };
        match found.last_mut() {
            Some((_, whole)) if open => {
                whole.push(' ');
                whole.push_str(line);
            }
            _ if line.is_empty() => {}
            _ => found.push((number + 1, line.to_owned())),
        }
        open = goes_on;
    }
    found
}

struct Reader<'a> {
    recipe: Recipe,
    /// What blocks of several components share.
    header: Option<Block>,
    /// The blocks that lines are about: the last one, or those of another family with Hugging Face
    /// on the left.
    about: Vec<usize>,
    others: &'a dyn Fn(&str) -> Option<String>,
    depth: usize,
}

type Said<T> = std::result::Result<T, String>;

impl Reader<'_> {
    fn line(&mut self, number: usize, line: &str) -> Said<()> {
        let (word, rest) = first_word(line);
        match word {
            "family" => self.recipe.family = name(rest)?,
            "title" => self.recipe.title = rest.to_owned(),
            "alias" => {
                for alias in rest.split_whitespace() {
                    self.recipe.aliases.push(name(alias)?);
                }
            }
            "model-type" => {
                self.recipe.model_types.extend(rest.split_whitespace().map(str::to_owned));
            }
            "facts" => {}
            "use" => {
                let used = self.other(rest)?;
                self.recipe.blocks.extend(used.blocks);
                self.header = None;
                self.about.clear();
            }
            "like" => self.like(rest)?,
            "between" => self.begin(number, rest, " and ", Arrow::Both)?,
            "from" => self.begin(number, rest, " to ", Arrow::ToRight)?,
            "component" => {
                let mut block = self.header.clone().ok_or("`component` before any `between`")?;
                block.component = Some(name(rest)?);
                block.line = number;
                let waiting = self.recipe.blocks.last().is_some_and(|last| {
                    last.component.is_none() && last.rules.is_empty() && last.ends.is_empty()
                });
                if waiting {
                    let shared = self.recipe.blocks.pop();
                    block.lets = shared.map_or(Vec::new(), |shared| shared.lets);
                    if let Some(header) = &mut self.header {
                        header.lets.clone_from(&block.lets);
                    }
                }
                self.recipe.blocks.push(block);
                self.about = vec![self.recipe.blocks.len() - 1];
            }
            "let" => {
                let (own, text) = rest.split_once('=').ok_or("expected `let NAME = …`")?;
                let own = name(own.trim())?;
                for block in self.blocks()? {
                    let value = block.checked(text)?;
                    block.lets.push(Let { name: own.clone(), value });
                }
            }
            "base" => {
                for block in self.blocks()? {
                    block.base = Some(block.checked(rest)?);
                }
            }
            "prefix" => self.blocks()?.for_each(|block| block.prefix = Some(rest.to_owned())),
            "scaling" => {
                let scaling = match rest {
                    "mup" => Scaling::Decoder,
                    "mup-t5" => Scaling::T5,
                    "kept" => Scaling::Kept,
                    _ => return Err(format!("`{rest}` is not a scaling: mup, mup-t5 or kept")),
                };
                self.blocks()?.for_each(|block| block.scaling = Some(scaling));
            }
            "twice" => {
                let (first, second) =
                    rest.split_once(' ').ok_or("expected `twice FIRST. SECOND.`")?;
                let pair = (first.to_owned(), second.trim().to_owned());
                self.blocks()?.for_each(|block| block.twice = Some(pair.clone()));
            }
            "states" if rest == "none" => {
                self.blocks()?.for_each(|block| block.only_model = true);
            }
            "end" => {
                for block in self.blocks()? {
                    let creation = block.creation(number, rest)?;
                    block.ends.push(creation);
                }
            }
            "+" => {
                for block in self.blocks()? {
                    let creation = block.creation(number, rest)?;
                    let rule = block.rules.last_mut();
                    rule.ok_or("`+` without a rule before it")?.also.push(creation);
                }
            }
            _ => {
                for block in self.blocks()? {
                    let rule = block.rule(number, line)?;
                    block.rules.push(rule);
                }
            }
        }
        Ok(())
    }

    fn blocks(&mut self) -> Said<impl Iterator<Item = &mut Block>> {
        if self.about.is_empty() {
            return Err("expected `between …` first".to_owned());
        }
        let about = &self.about;
        let all = self.recipe.blocks.iter_mut().enumerate();
        Ok(all.filter(|(at, _)| about.contains(at)).map(|(_, block)| block))
    }

    /// `hf and cs-2.1..cs-2.9 [when …]`
    fn begin(&mut self, line: usize, text: &str, by: &str, arrow: Arrow) -> Said<()> {
        let (sides, when) = split_word(text, "when");
        let (left, right) =
            sides.split_once(by).ok_or_else(|| format!("expected two sides with `{by}`"))?;
        let mut block = Block {
            line,
            left: formats(left)?,
            right: formats(right)?,
            arrow,
            when: None,
            component: None,
            base: None,
            lets: Vec::new(),
            prefix: None,
            scaling: None,
            twice: None,
            only_model: false,
            rules: Vec::new(),
            ends: Vec::new(),
        };
        // From cs to hf, the left side is hf's all the same.
        if arrow == Arrow::ToRight && block.right.iter().all(|format| format.is_hf()) {
            std::mem::swap(&mut block.left, &mut block.right);
            block.arrow = Arrow::ToLeft;
        }
        block.when = when.map(|when| block.expression(when)).transpose()?;
        self.header = Some(block.clone());
        self.recipe.blocks.push(block);
        self.about = vec![self.recipe.blocks.len() - 1];
        Ok(())
    }

    fn other(&self, asked: &str) -> Said<Recipe> {
        if self.depth >= MOST_DEPTH {
            return Err("recipes made from recipes, too deep".to_owned());
        }
        let text = (self.others)(asked)
            .ok_or_else(|| format!("there is no recipe with the name `{asked}`"))?;
        parse(asked, &text, self.others, self.depth + 1).map_err(|error| error.to_string())
    }

    /// `gpt2 [without PREFIX] [omit KEY]`: the blocks of another family, changed.
    fn like(&mut self, text: &str) -> Said<()> {
        let (asked, mut rest) = first_word(text);
        let mut blocks = self.other(asked)?.blocks;
        while !rest.is_empty() {
            let (word, after) = first_word(rest);
            let (argument, after) = first_word(after);
            rest = after;
            let mut found = 0;
            match word {
                "without" => {
                    for pattern in blocks.iter_mut().flat_map(of_left) {
                        let stripped = pattern.without_prefix(argument);
                        found += usize::from(stripped.text() != pattern.text());
                        *pattern = stripped;
                    }
                }
                "omit" => {
                    for block in &mut blocks {
                        let before = block.rules.len() + block.ends.len();
                        block.rules.retain(|rule| {
                            rule.left.first().is_none_or(|left| left.text() != argument)
                        });
                        block.ends.retain(|end| end.key.text() != argument);
                        found += before - block.rules.len() - block.ends.len();
                    }
                }
                "unscaled" => {
                    for block in &mut blocks {
                        found += usize::from(block.scaling.take().is_some());
                    }
                }
                "hf" => {
                    // Only what is between Hugging Face and releases.
                    blocks.retain(|block| block.left.iter().any(|format| format.is_hf()));
                    found = blocks.len();
                }
                other => {
                    return Err(format!("`{other}` is not one of without, omit, unscaled, hf"));
                }
            }
            if found == 0 {
                return Err(format!("`{word} {argument}` changes nothing in {asked}"));
            }
        }
        let first = self.recipe.blocks.len();
        self.about = (first..first + blocks.len())
            .filter(|at| blocks[at - first].left.iter().any(|format| format.is_hf()))
            .collect();
        self.recipe.blocks.extend(blocks);
        self.header = None;
        Ok(())
    }
}

/// The patterns of left keys of a block.
fn of_left(block: &mut Block) -> impl Iterator<Item = &mut Pattern> {
    block.rules.iter_mut().flat_map(|rule| {
        let also = rule.also.iter_mut().filter(|also| also.towards == Side::Left);
        rule.left.iter_mut().chain(also.map(|also| &mut also.key))
    })
}

impl Block {
    fn expression(&self, text: &str) -> Said<Expression> {
        Expression::parse(&self.sides(text))
    }

    /// `hf.` and `cs.` are the side that has such a format.
    fn sides(&self, text: &str) -> String {
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

    /// `LEFT <-> RIGHT [: OPERATIONS] [when CONDITION]`
    fn rule(&self, line: usize, text: &str) -> Said<Rule> {
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
        let operations: Said<Vec<Operation>> =
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

    /// Keys joined by `&`; none for `-`.
    fn keys(&self, text: &str) -> Said<Vec<Pattern>> {
        match text.trim() {
            "-" => Ok(Vec::new()),
            text => text.split(" & ").map(|key| self.key(key.trim())).collect(),
        }
    }

    fn key(&self, text: &str) -> Said<Pattern> {
        if text.is_empty() || text.contains(char::is_whitespace) {
            return Err(format!("`{text}` is not a key"));
        }
        // A count in a group is an expression.
        let text = match text.split_once("[0..") {
            Some((start, rest)) => format!("{start}[0..{}", self.sides(rest)),
            None => text.to_owned(),
        };
        let pattern = Pattern::parse(&text)?;
        if let Some(Group::Count(count)) = pattern.group() {
            self.check_names(std::iter::once(count))?;
        }
        Ok(pattern)
    }

    fn operation(&self, call: &Call<'_>) -> Said<Operation> {
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
            "tie" => Operation::Tie(self.key(call.arguments)?),
            "refuse" => Operation::Refuse(call.arguments.trim_matches('"').to_owned()),
            other => {
                return Err(format!(
                    "`{other}` is not an operation: expected transpose, split, rope, lead, roll, \
                     add, stack, concat, repeat, tie or refuse"
                ));
            }
        })
    }

    /// `q H, k KV` or just `H`.
    fn slots(&self, text: &str) -> Said<Vec<Slot>> {
        let slot = |text: &str| -> Said<Slot> {
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

    /// `left KEY = MAKER [for i in A..B] [when CONDITION]`
    fn creation(&self, line: usize, text: &str) -> Said<Creation> {
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
            each,
        };
        self.check_names(creation.when.iter())?;
        Ok(creation)
    }

    /// `i in 1..K`
    fn each(&self, text: &str) -> Said<Each> {
        let (own, range) = text.split_once(" in ").ok_or("expected `for NAME in FIRST..END`")?;
        let (from, to) = range.split_once("..").ok_or("expected `for NAME in FIRST..END`")?;
        Ok(Each {
            name: name(own.trim())?,
            from: self.checked(from)?,
            to: self.checked(to)?,
            text: text.to_owned(),
        })
    }

    fn maker(&self, text: &str, _each: Option<&Each>) -> Said<Maker> {
        let found = calls(text)?;
        let [call] = &found[..] else { return Err(format!("`{text}` does not make one tensor")) };
        let all = |text: &str| -> Said<Vec<Expression>> {
            arguments(text, ',').into_iter().map(|one| self.checked(one)).collect()
        };
        let one = || -> Said<Expression> { self.checked(call.arguments) };
        let shaped = || -> Said<(Expression, Vec<Expression>)> {
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
                Maker::First(keys.collect::<Said<_>>()?)
            }
            other => {
                return Err(format!(
                    "`{other}` makes no tensor: expected positions, triangle, number, \
                     frequencies, slopes, zeros, normal, uniform or first"
                ));
            }
        })
    }

    /// An expression of names that are set.
    fn checked(&self, text: &str) -> Said<Expression> {
        let expression = self.expression(text)?;
        self.check_names(std::iter::once(&expression))?;
        Ok(expression)
    }

    fn check_names<'a>(&self, all: impl Iterator<Item = &'a Expression>) -> Said<()> {
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

/// What can't be right in a rule whatever the checkpoint.
fn check(rule: &Rule) -> Said<()> {
    let ways = [
        (Arrow::ToLeft, &rule.left, &rule.right, "left"),
        (Arrow::ToRight, &rule.right, &rule.left, "right"),
    ];
    for (other_way, source, target, side) in ways {
        let Some(source) = source.first().filter(|_| rule.arrow != other_way) else { continue };
        for hole in target.iter().flat_map(Pattern::holes) {
            if !source.holes().any(|own| own == hole) {
                return Err(format!("nothing on the {side} side fills `{{{hole}}}`"));
            }
        }
    }
    if rule.left.is_empty() && rule.right.is_empty() {
        return Err("a rule without keys".to_owned());
    }
    let grouped = |keys: &[Pattern]| keys.first().and_then(Pattern::group).is_some();
    let (left, right) = (grouped(&rule.left), grouped(&rule.right));
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
        (true, true, _) => Err("only one side can be a group of keys".to_owned()),
        (false, false, 0) | (true, false, 1) | (false, true, 1) => Ok(()),
        (false, false, _) => {
            Err("an operation on several keys needs a group such as [q,k,v]".to_owned())
        }
        _ if rule.left.is_empty() || rule.right.is_empty() => Ok(()),
        _ => Err("a group of keys needs split, stack, concat or repeat".to_owned()),
    }
}

/// `hf`, `cs-1.8, cs-1.9` or `cs-2.1..cs-2.9`.
fn formats(text: &str) -> Said<Vec<Format>> {
    let one = |text: &str| text.trim().parse::<Format>().map_err(|error| error.to_string());
    let mut found = Vec::new();
    for part in text.split(',') {
        match part.split_once("..") {
            None => found.push(one(part)?),
            Some((first, last)) => {
                let (first, last) = (one(first)?, one(last)?);
                let (Some(from), Some(to)) = (first.release(), last.release()) else {
                    return Err(format!("`{part}` is not a range of releases"));
                };
                let before = found.len();
                for (major, minor) in Format::RELEASES {
                    if ((from.major, from.minor)..=(to.major, to.minor)).contains(&(major, minor)) {
                        let release =
                            crate::format::Release { major, minor, variant: from.variant };
                        found.push(Format::Cerebras(release));
                    }
                }
                if from.variant != to.variant || found.len() == before {
                    return Err(format!("`{part}` is not a range of releases"));
                }
            }
        }
    }
    Ok(found)
}

fn name(text: &str) -> Said<String> {
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    match !text.is_empty() && text.chars().all(fine) {
        true => Ok(text.to_owned()),
        false => Err(format!("`{text}` is not a name")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Recipe> {
        Recipe::parse("my.recipe", text, &|name| {
            (name == "base").then(|| {
                "family base\nbetween hf and cs-2.1..cs-2.3\nlet H = cs.num_heads\n\
                 head.{wb} <-> lm_head.{wb}\nt.h.{n}.w <-> l.{n}.w : rope(H)\n\
                 + hf t.h.{n}.ids = positions(hf.max)\n"
                    .to_owned()
            })
        })
    }

    #[test]
    fn a_recipe_is_read() {
        let recipe = read(
            "# A family.\nfamily mine\nalias other\nbetween hf and cs-2.1..cs-2.9 when hf.x is 1\n\
             let H = cs.num_heads\nprefix model.\n\
             h.{n}.qkv.{wb} <-> l.{n}.[q,k,v].{wb} \\\n : transpose split(1; q H, k H, v H)\n\
             + hf h.{n}.mask = triangle(hf.n) when {wb} is \"bias\"\n\
             - <- ln_f.{wb}  # written twice\n\
             end cs head = first(h.w) when not made(head)\n",
        )
        .unwrap();
        assert!(recipe.is_called("other") && !recipe.is_called("third"));
        let block = &recipe.blocks[0];
        assert_eq!((block.left.len(), block.right.len(), block.rules.len()), (1, 9, 2));
        assert_eq!((block.rules[0].line, block.rules[0].operations.len()), (7, 2));
        assert_eq!(block.rules[0].also.len(), 1);
        assert_eq!(block.ends[0].towards, Side::Right);
        let (hf, cs) = ("hf".parse().unwrap(), "cs-2.9".parse().unwrap());
        assert_eq!(block.towards(cs, hf), Some(Side::Left));
        assert_eq!(block.towards(cs, cs), None);
    }

    #[test]
    fn a_recipe_is_made_from_another() {
        let recipe = read("family mine\nlike base without t. omit head.{wb}\n").unwrap();
        let rules = &recipe.blocks[0].rules;
        assert_eq!(rules.len(), 1);
        assert_eq!(rules[0].left[0].text(), "h.{n}.w");
        assert_eq!(rules[0].also[0].key.text(), "h.{n}.ids");
        assert!(read("family mine\nlike base without x.\n").is_err());
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let between = "family x\nbetween hf and cs-2.1\n";
        for (line, said) in [
            ("a.{n} <-> b", "nothing on the right side fills `{n}`"),
            ("a <-> b : turn", "`turn` is not an operation"),
            ("a <-> [b,c]", "needs split"),
            ("a <-> b : stack(0)", "needs a group"),
            ("a b <-> c", "not a key"),
            ("a = b", "expected a rule"),
            ("a <-> b : rope(H)", "`H` is not set"),
            ("end cs a = ones(1)", "makes no tensor"),
            ("end up a = zeros(1)", "not a side"),
            ("use nothing", "no recipe with the name"),
            ("between hf and cs-9.9", "no release"),
            ("- <-> -", "without keys"),
        ] {
            let error = read(&format!("{between}{line}\n")).unwrap_err().to_string();
            assert!(error.contains("my.recipe, line 3") && error.contains(said), "{line}: {error}");
        }
        assert!(read("").is_err());
        assert!(read("a <-> b").unwrap_err().to_string().contains("expected `between"));
    }
}
