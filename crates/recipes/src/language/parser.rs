//! Parses recipes line by line; each line is a statement or a rule.

use statelens_checkpoint::{Error, Result};

use super::line::{first_word, split_word, without_comment};
use super::pattern::KeyPattern;
use super::recipe::{Arrow, Let, Ranks, Recipe, RuleBlock, TensorScaling};
use crate::format::Implementation;
use crate::side::Side;

/// The code of errors about a recipe that can't be parsed.
pub const RECIPE_CODE: &str = "recipe-text";

/// Limit on the depth of recipes that use other recipes.
const MAX_DEPTH: usize = 4;
/// Limit on the lines of a file, more than any family needs.
const MAX_LINES: usize = 5_000;
/// Limits on blocks, on recipes that are used, and on names in a block.
const MAX_BLOCKS: usize = 1_000;
const MAX_INCLUDED: usize = 64;
const MAX_NAMES: usize = 256;
/// Limit on the formats of one side.
const MAX_FORMATS: usize = 100;

impl Recipe {
    /// Parses a recipe. `file` is its name in messages; `others` returns the texts of recipes that
    /// `use` and `like` name.
    pub fn parse(file: &str, text: &str, others: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        parse(file, text, others, 0)
    }
}

/// Parses a recipe that is nested `depth` levels deep in others.
fn parse(
    file: &str,
    text: &str,
    others: &dyn Fn(&str) -> Option<String>,
    depth: usize,
) -> Result<Recipe> {
    let mut parser = Parser {
        recipe: Recipe::default(),
        header: None,
        about: Vec::new(),
        others,
        depth,
        used: 0,
    };
    for (number, (line, text)) in lines(text).into_iter().enumerate() {
        let result = match number < MAX_LINES {
            true => parser.line(line, &text).and_then(|()| parser.bounded()),
            false => Err("the file has too many lines".to_owned()),
        };
        result.map_err(|what| {
            Error::refused(format!("{file}, line {line}: {what}"))
                .coded(RECIPE_CODE)
                .expected("what docs/recipes.md describes")
                .advice(format!("The line reads: {text}"))
        })?;
    }
    if parser.recipe.family.is_empty() {
        return Err(Error::refused(format!("{file} does not name its family"))
            .expected("a line such as `family my-model`"));
    }
    Ok(parser.recipe)
}

/// Returns the lines that are not empty; a line that ends in `\` continues in the next.
fn lines(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut open = false;
    for (number, line) in text.lines().enumerate() {
        let line = without_comment(line);
        let (line, is_continued) = match line.strip_suffix('\\') {
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
        open = is_continued;
    }
    found
}

struct Parser<'a> {
    recipe: Recipe,
    /// The start of a block, which the blocks of several components share.
    header: Option<RuleBlock>,
    /// The blocks that lines apply to: the last one, or those of another family with Hugging Face
    /// on the left.
    about: Vec<usize>,
    others: &'a dyn Fn(&str) -> Option<String>,
    depth: usize,
    /// The number of recipes that it uses.
    used: usize,
}

/// A result whose error is a message for the user.
pub(super) type ParseResult<T> = std::result::Result<T, String>;

impl Parser<'_> {
    fn line(&mut self, number: usize, line: &str) -> ParseResult<()> {
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
            "let" | "set" => {
                let expected = || format!("expected `{word} NAME = …`");
                let (own, text) = rest.split_once('=').ok_or_else(expected)?;
                let own = name(own.trim())?;
                for block in self.blocks()? {
                    let value = block.checked(text)?;
                    let list = if word == "let" { &mut block.lets } else { &mut block.sets };
                    list.push(Let { name: own.clone(), value });
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
                    "mup" => TensorScaling::Decoder,
                    "mup-t5" => TensorScaling::T5,
                    "kept" => TensorScaling::Kept,
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
            "ranks" => {
                let (side, file) = first_word(rest);
                let side = match side {
                    "left" => Side::Left,
                    "right" => Side::Right,
                    _ => return Err("expected `ranks left FILE` or `ranks right FILE`".to_owned()),
                };
                check_file(file)?;
                for block in self.blocks()? {
                    block.ranks = Some(Ranks { side, file: file.to_owned() });
                    let value = block.expression("1")?;
                    block.lets.push(Let { name: "ranks".to_owned(), value });
                }
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

    fn blocks(&mut self) -> ParseResult<impl Iterator<Item = &mut RuleBlock>> {
        if self.about.is_empty() {
            return Err("expected `between …` first".to_owned());
        }
        let about = &self.about;
        let all = self.recipe.blocks.iter_mut().enumerate();
        Ok(all.filter(|(at, _)| about.contains(at)).map(|(_, block)| block))
    }

    /// Parses `hf and cs-2.1..cs-2.9 [when …]`.
    fn begin(&mut self, line: usize, text: &str, by: &str, arrow: Arrow) -> ParseResult<()> {
        let (sides, when) = split_word(text, "when");
        let (left, right) =
            sides.split_once(by).ok_or_else(|| format!("expected two sides with `{by}`"))?;
        let mut block = RuleBlock {
            line,
            left: formats(left)?,
            right: formats(right)?,
            arrow,
            ..RuleBlock::default()
        };
        // The left side is Hugging Face's even if the conversion goes from cs to hf.
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

    fn bounded(&self) -> ParseResult<()> {
        let names = |block: &RuleBlock| block.lets.len() + block.sets.len();
        let blocks = &self.recipe.blocks;
        let last = self.about.last().and_then(|at| blocks.get(*at));
        if blocks.len() > MAX_BLOCKS {
            return Err("the file has too many blocks".to_owned());
        }
        if last.is_some_and(|last| names(last) > MAX_NAMES) {
            return Err("too many names are set".to_owned());
        }
        Ok(())
    }

    fn other(&mut self, base: &str) -> ParseResult<Recipe> {
        self.used += 1;
        if self.used > MAX_INCLUDED {
            return Err("a recipe made from too many recipes".to_owned());
        }
        if self.depth >= MAX_DEPTH {
            return Err("recipes made from recipes, too deep".to_owned());
        }
        let text = (self.others)(base)
            .ok_or_else(|| format!("there is no recipe with the name `{base}`"))?;
        parse(base, &text, self.others, self.depth + 1).map_err(|error| error.to_string())
    }

    /// Parses `gpt2 [without PREFIX] [omit KEY]`: adds the blocks of another family with changes.
    fn like(&mut self, text: &str) -> ParseResult<()> {
        let (base, mut rest) = first_word(text);
        let mut blocks = self.other(base)?.blocks;
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
                    // Keep only blocks between Hugging Face and releases.
                    blocks.retain(|block| block.left.iter().any(|format| format.is_hf()));
                    found = blocks.len();
                }
                other => {
                    return Err(format!("`{other}` is not one of without, omit, unscaled, hf"));
                }
            }
            if found == 0 {
                return Err(format!("`{word} {argument}` changes nothing in {base}"));
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

/// Checks the name of a rank's file: it must be below the folder of the checkpoint and contain the
/// rank.
fn check_file(file: &str) -> ParseResult<()> {
    let parts = file.split('/');
    let fine = |part: &str| {
        let name = part.replace("{rank}", "0");
        !name.is_empty()
            && !name.starts_with('.')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    match file.matches("{rank}").count() == 1 && parts.into_iter().all(fine) {
        true => Ok(()),
        false => Err(format!("`{file}` is not a file's name with one {{rank}} in it")),
    }
}

/// Returns the patterns of left keys of a block.
fn of_left(block: &mut RuleBlock) -> impl Iterator<Item = &mut KeyPattern> {
    block.rules.iter_mut().flat_map(|rule| {
        let also = rule.also.iter_mut().filter(|also| also.towards == Side::Left);
        rule.left.iter_mut().chain(also.map(|also| &mut also.key))
    })
}

/// Parses `hf`, `cs-1.8, cs-1.9` or `cs-2.1..cs-2.9`.
fn formats(text: &str) -> ParseResult<Vec<Implementation>> {
    let one = |text: &str| text.trim().parse::<Implementation>().map_err(|error| error.to_string());
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
                for (major, minor) in Implementation::RELEASES {
                    if ((from.major, from.minor)..=(to.major, to.minor)).contains(&(major, minor)) {
                        let release =
                            crate::format::Release { major, minor, variant: from.variant };
                        found.push(Implementation::Cerebras(release));
                    }
                }
                if from.variant != to.variant || found.len() == before {
                    return Err(format!("`{part}` is not a range of releases"));
                }
            }
        }
    }
    let mut seen = std::collections::HashSet::new();
    found.retain(|format| seen.insert(*format));
    match found.len() <= MAX_FORMATS {
        true => Ok(found),
        false => Err("too many formats".to_owned()),
    }
}

pub(super) fn name(text: &str) -> ParseResult<String> {
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
    fn parses_a_recipe() {
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
    fn derives_a_recipe_from_another() {
        let recipe = read("family mine\nlike base without t. omit head.{wb}\n").unwrap();
        let rules = &recipe.blocks[0].rules;
        assert_eq!(rules.len(), 1);
        assert_eq!(rules[0].left[0].text(), "h.{n}.w");
        assert_eq!(rules[0].also[0].key.text(), "h.{n}.ids");
        assert!(read("family mine\nlike base without x.\n").is_err());
    }

    #[test]
    fn reports_errors_with_the_line() {
        let between = "family x\nbetween hf and cs-2.1\n";
        for (line, said) in [
            ("a.{n} <-> b", "nothing on the right side fills `{n}`"),
            ("a <-> b : turn", "`turn` is not an operation"),
            ("a <-> [b,c]", "needs split"),
            ("a <-> b : stack(0)", "needs a group"),
            ("a b <-> c", "not a key"),
            ("a = b", "expected a rule"),
            ("a <-> b : rope(H)", "`H` is not set"),
            ("end cs a = ones(1)", "does not create a tensor"),
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
