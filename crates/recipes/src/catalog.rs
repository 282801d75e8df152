//! A catalog of the families without their rules: enough to find the families that match a
//! checkpoint and the files that they need. The page embeds it instead of all files.

use statelens_checkpoint::{Error, Result, order};

use crate::format::Implementation;
use crate::kinds::Kinds;
use crate::language::{KeyPattern, Ranks};
use crate::library::{recipe_path, table_path};
use crate::ranks;

#[derive(Debug, Clone, Default)]
pub struct Catalog {
    families: Vec<ModelFamily>,
    tables: Vec<TableFile>,
}

/// A family: the patterns of its keys, and the recipes that it needs.
#[derive(Debug, Clone, Default)]
struct ModelFamily {
    name: String,
    aliases: Vec<String>,
    recipes: Vec<String>,
    blocks: Vec<BlockKeys>,
    /// Keys in a layout that is neither Cerebras's nor has a file per rank, and the corresponding
    /// keys at Hugging Face.
    named: Vec<KeyPattern>,
    /// Formats with a file per rank, and the names of these files.
    ranks: Vec<(Implementation, String)>,
}

/// A checkpoint with a file per rank.
#[derive(Debug, PartialEq, Eq)]
pub struct RankedCheckpoint<'a> {
    /// The family whose files have these names.
    pub family: &'a str,
    pub format: Implementation,
    /// Their folder: empty, or ending with `/`.
    pub folder: &'a str,
    pub files: Vec<String>,
}

#[derive(Debug, Clone, Default)]
struct BlockKeys {
    prefix: Option<String>,
    /// The keys of Hugging Face, and those of Cerebras.
    sides: [Vec<KeyPattern>; 2],
}

/// A file of config tables: its models, and the files that it needs.
#[derive(Debug, Clone, Default)]
struct TableFile {
    models: Vec<String>,
    files: Vec<String>,
}

impl Catalog {
    /// Parses the output of [`written`](Self::written).
    pub fn parse(text: &str) -> Result<Self> {
        let mut catalog = Self::default();
        for (at, line) in text.lines().enumerate() {
            catalog.line(line).ok_or_else(|| {
                Error::damaged(format!("line {} of the catalog is invalid: {line}", at + 1))
            })?;
        }
        Ok(catalog)
    }

    fn line(&mut self, line: &str) -> Option<()> {
        let (word, rest) = line.split_once(' ')?;
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let mut parts = rest.split('|');
        match word {
            "family" => self.families.push(ModelFamily {
                name: parts.next()?.to_owned(),
                aliases: words(parts.next()?),
                recipes: words(parts.next()?),
                ..ModelFamily::default()
            }),
            "ranks" => {
                let (format, file) = rest.split_once(' ')?;
                let ranks = &mut self.families.last_mut()?.ranks;
                ranks.push((format.parse().ok()?, file.to_owned()));
            }
            "named" => self.families.last_mut()?.named.push(KeyPattern::parse(rest).ok()?),
            "keys" => {
                let prefix = Some(rest.to_owned()).filter(|prefix| prefix != "-");
                let keys = BlockKeys { prefix, ..BlockKeys::default() };
                self.families.last_mut()?.blocks.push(keys);
            }
            "hf" | "cs" => {
                let side = usize::from(word == "cs");
                let keys = self.families.last_mut()?.blocks.last_mut()?;
                keys.sides.get_mut(side)?.push(KeyPattern::parse(rest).ok()?);
            }
            "table" => self
                .tables
                .push(TableFile { models: words(parts.next()?), files: words(parts.next()?) }),
            _ => return None,
        }
        Some(())
    }

    /// Returns the families that match at least nine tenths of the keys, as
    /// [`by_keys`](crate::recognise::by_keys) does.
    pub fn families(&self, keys: &[String], hf: bool) -> Vec<&str> {
        let kinds = Kinds::of(keys);
        let enough = |block: &BlockKeys| kinds.known(|key| block.knows(key, hf)).is_some();
        let found = self
            .families
            .iter()
            .filter(|family| !keys.is_empty() && family.blocks.iter().any(enough));
        found.map(|family| &*family.name).collect()
    }

    /// Returns the families with a custom layout that has some of the keys, or whose Hugging Face
    /// keys are among them.
    pub fn layouts(&self, keys: &[String]) -> Vec<&str> {
        let kinds = Kinds::of(keys);
        let names = |family: &&ModelFamily| {
            kinds.any(|key| family.named.iter().any(|pattern| pattern.matches(key).is_some()))
        };
        self.families.iter().filter(names).map(|family| &*family.name).collect()
    }

    /// Returns the files of all ranks, if `main` is named like one of them.
    pub fn ranked<'a>(
        &'a self,
        main: &'a str,
        has: &dyn Fn(&str) -> bool,
    ) -> Option<RankedCheckpoint<'a>> {
        let all = self.families.iter();
        let mut all = all.flat_map(|family| family.ranks.iter().map(move |own| (family, own)));
        all.find_map(|(family, (format, file))| {
            let (start, end) = file.split_once("{rank}")?;
            let rest = main.strip_suffix(end)?.trim_end_matches(|c: char| c.is_ascii_digit());
            let folder = rest.strip_suffix(start)?;
            let name = |rank| format!("{folder}{}", Ranks::named(file, rank));
            let files = (0..ranks::MAX_RANKS).map(name).take_while(|name| has(name));
            let files: Vec<String> = files.collect();
            let whole = (folder.is_empty() || folder.ends_with('/'))
                && files.iter().any(|name| name == main);
            whole.then_some(RankedCheckpoint {
                family: &family.name,
                format: *format,
                folder,
                files,
            })
        })
    }

    pub fn models(&self) -> impl Iterator<Item = &str> {
        let models = self.tables.iter().flat_map(|table| &table.models);
        let of_tables = models.map(String::as_str).filter(|model| self.family(model).is_some());
        let in_table = |name: &String| self.tables.iter().any(|table| table.models.contains(name));
        let layouts = self.families.iter().filter(move |family| !in_table(&family.name));
        of_tables.chain(layouts.map(|family| &*family.name))
    }

    /// Returns the paths of all files that a family needs, given its name or an alias, or the name
    /// of a shared recipe.
    pub fn files(&self, name: &str) -> Vec<String> {
        let own = self.family(name);
        let mut files: Vec<String> = match own {
            Some(family) => family.recipes.iter().map(|name| recipe_path(name)).collect(),
            None => {
                let mut parts = self.families.iter().flat_map(|family| &family.recipes);
                parts.find(|own| *own == name).map(|name| recipe_path(name)).into_iter().collect()
            }
        };
        for table in &self.tables {
            let about = |model: &String| {
                model == name
                    || own.is_some_and(|own| {
                        self.family(model).is_some_and(|family| family.name == own.name)
                    })
            };
            if table.models.iter().any(about) {
                files.extend(table.files.iter().map(|name| table_path(name)));
            }
        }
        order::natural(&mut files);
        files.dedup();
        files
    }

    /// Returns the position of a file's family among all families.
    pub fn place(&self, path: &str) -> usize {
        self.families.iter().position(|own| recipe_path(&own.name) == path).unwrap_or(0)
    }

    fn family(&self, name: &str) -> Option<&ModelFamily> {
        let called =
            |own: &&ModelFamily| own.name == name || own.aliases.iter().any(|one| one == name);
        self.families.iter().find(called)
    }
}

impl BlockKeys {
    /// Returns the same as [`RuleBlock::knows`](crate::language::RuleBlock::knows).
    fn knows(&self, key: &str, hf: bool) -> bool {
        let about = |key: &str| {
            self.sides[usize::from(!hf)].iter().any(|pattern| pattern.matches(key).is_some())
        };
        let prefix = self.prefix.as_deref().filter(|_| !hf);
        about(key) || prefix.and_then(|prefix| key.strip_prefix(prefix)).is_some_and(about)
    }
}

#[cfg(feature = "embedded")]
mod written {
    use std::cell::RefCell;
    use std::collections::BTreeSet;
    use std::fmt::Write as _;

    use super::{Catalog, Error, Result};
    use crate::config::Families;
    use crate::language::{Arrow, Recipe, RuleBlock, Side};
    use crate::recognise::identifies_family;
    use crate::{families, ranks};

    impl Catalog {
        /// Returns the catalog of the built-in families as text.
        pub fn written() -> Result<String> {
            let mut out = String::new();
            let all: Vec<&str> = families::names().collect();
            for name in &all {
                family(name, &all, &mut out).map_err(|error| error.context((*name).to_owned()))?;
            }
            for (models, files) in Families::files()? {
                line(&mut out, format_args!("table {}|{}", models.join(" "), files.join(" ")))?;
            }
            Ok(out)
        }
    }

    fn family(name: &str, all: &[&str], out: &mut String) -> Result<()> {
        let text = families::text(name).unwrap_or_default();
        let used = RefCell::new(BTreeSet::from([name.to_owned()]));
        let recipe = Recipe::parse(name, text, &|other| {
            used.borrow_mut().insert(other.to_owned());
            families::text(other).map(str::to_owned)
        })?;
        let mut used = used.into_inner();
        // The config may name any family as the base.
        if recipe.blocks.iter().any(|block| block.base.is_some()) {
            used.extend(all.iter().map(|name| (*name).to_owned()));
        }
        let used: Vec<String> = used.into_iter().collect();
        let aliases = recipe.aliases.join(" ");
        line(out, format_args!("family {name}|{aliases}|{}", used.join(" ")))?;
        for (block, ranks) in ranks::of(&recipe) {
            let formats = if ranks.side == Side::Left { &block.left } else { &block.right };
            for format in formats {
                line(out, format_args!("ranks {format} {}", ranks.file))?;
            }
        }
        for block in recipe.blocks.iter().filter(|block| is_layout(block)) {
            let keys = block.rules.iter().flat_map(|rule| [rule.left.first(), rule.right.first()]);
            let keys: BTreeSet<&str> = keys.flatten().map(|pattern| pattern.text()).collect();
            for key in keys.into_iter().filter(|key| *key != "{any}") {
                line(out, format_args!("named {key}"))?;
            }
        }
        for block in recipe.blocks.iter().filter(|block| identifies_family(block, false)) {
            line(out, format_args!("keys {}", block.prefix.as_deref().unwrap_or("-")))?;
            for (word, hf, towards) in [("hf", true, Side::Right), ("cs", false, Side::Left)] {
                if !identifies_family(block, hf) {
                    continue;
                }
                let mut patterns = BTreeSet::new();
                for rule in &block.rules {
                    let keys = match (towards, rule.arrow) {
                        (Side::Right, Arrow::Both | Arrow::ToRight) => &rule.left,
                        (Side::Left, Arrow::Both | Arrow::ToLeft) => &rule.right,
                        _ => continue,
                    };
                    patterns.extend(keys.first().map(|pattern| pattern.text()));
                }
                for pattern in patterns {
                    line(out, format_args!("{word} {pattern}"))?;
                }
            }
        }
        Ok(())
    }

    /// Returns whether a block's formats are neither Cerebras's nor have a file per rank.
    fn is_layout(block: &RuleBlock) -> bool {
        let mut formats = block.left.iter().chain(&block.right);
        block.ranks.is_none() && formats.all(|format| !format.is_cerebras())
    }

    fn line(out: &mut String, text: std::fmt::Arguments<'_>) -> Result<()> {
        writeln!(out, "{text}").map_err(|_| Error::limit("the catalog is too long"))
    }
}

#[cfg(all(test, feature = "embedded"))]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn catalog() -> Catalog {
        Catalog::parse(&Catalog::written().unwrap()).unwrap()
    }

    #[test]
    fn recognises_families_from_keys_and_lists_their_files() {
        let catalog = catalog();
        let keys = ["model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"];
        let keys: Vec<String> = keys.map(str::to_owned).into();
        assert!(catalog.families(&keys, true).contains(&"llama"));
        assert!(!catalog.families(&keys, true).contains(&"gpt2"));
        assert!(catalog.families(&[], true).is_empty());
        let files = catalog.files("wizardlm");
        for path in [
            "families/llama.recipe",
            "families/steps/tied-1.9.recipe",
            "configs/llama.yaml",
            "configs/gpt2.yaml",
        ] {
            assert!(files.iter().any(|own| own == path), "{path} in {files:?}");
        }
        assert!(files.len() < 8, "{files:?}");
        assert!(catalog.files("nothing").is_empty());
        assert_eq!(catalog.files("steps/tied-1.9"), ["families/steps/tied-1.9.recipe"]);
    }

    #[test]
    fn recognises_layouts_from_some_keys() {
        let catalog = catalog();
        let found = |key: &str| catalog.layouts(&["x".to_owned(), key.to_owned()]);
        assert_eq!(found("block.11.attn.qkv.weight"), ["gpt-oss"]);
        let experts = found("model.layers.7.mlp.experts.12.gate_proj.weight");
        assert!(experts.contains(&"moe-experts") && !experts.contains(&"gpt-oss"), "{experts:?}");
        assert!(found("tok_embeddings.weight").is_empty());
        assert!(catalog.models().any(|model| model == "gpt-oss"));
    }

    #[test]
    fn recognises_rank_files_by_name() {
        let catalog = catalog();
        let there = ["a/consolidated.00.pth", "a/consolidated.01.pth", "a/consolidated.03.pth"];
        let has = |name: &str| there.contains(&name);
        for main in &there[..2] {
            let found = catalog.ranked(main, &has).unwrap();
            assert_eq!((found.family, found.folder), ("llama-meta", "a/"));
            assert_eq!(found.format.to_string(), "meta");
            assert_eq!(found.files, there[..2]);
        }
        // The first rank's file is missing, or the name only ends the same.
        assert_eq!(catalog.ranked(there[2], &has), None);
        assert_eq!(catalog.ranked("a/unconsolidated.00.pth", &|_| true), None);
        let found = catalog.ranked("mp_rank_00/model_optim_rng.pt", &|name| name.contains("_00"));
        assert_eq!(found.map(|found| found.family), Some("gpt2-megatron"));
    }

    #[test]
    fn every_model_has_files() {
        let catalog = catalog();
        for model in catalog.models() {
            let files = catalog.files(model);
            assert!(files.iter().any(|path| path.starts_with("families/")), "{model}");
            let table = files.iter().any(|path| path.starts_with("configs/"));
            let layout = catalog
                .family(model)
                .is_some_and(|own| !own.named.is_empty() || !own.ranks.is_empty());
            assert!(table != layout, "{model}");
        }
        assert!(catalog.models().count() > 50);
        assert!(Catalog::parse("family x").is_err() && Catalog::parse("hf x").is_err());
    }
}
