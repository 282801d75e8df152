//! The blocks of a template, and the variables that are set in them on every path.

use std::collections::{HashMap, HashSet};

#[derive(Default)]
pub(super) struct Scopes<'t> {
    open: Vec<Block<'t>>,
    /// How often a variable is bound in the open blocks.
    bound: HashMap<&'t str, usize>,
}

struct Block<'t> {
    tag: &'t str,
    names: Vec<&'t str>,
    /// The names that all branches so far set.
    common: Option<HashSet<&'t str>>,
    has_else: bool,
}

impl<'t> Scopes<'t> {
    pub(super) fn open(&mut self, tag: &'t str) {
        self.open.push(Block { tag, names: Vec::new(), common: None, has_else: false });
    }

    /// Binds a variable in the innermost block, or in the template.
    pub(super) fn bind(&mut self, name: &'t str) {
        *self.bound.entry(name).or_default() += 1;
        if let Some(block) = self.open.last_mut() {
            block.names.push(name);
        }
    }

    pub(super) fn is_bound(&self, name: &str) -> bool {
        self.bound.get(name).is_some_and(|count| *count > 0)
    }

    /// Ends a branch of an `if` or `for`, and begins the next.
    pub(super) fn branch(&mut self, is_else: bool) -> Result<(), String> {
        match self.open.last_mut() {
            Some(block) if !block.has_else => match block.tag {
                "if" => block.has_else = is_else,
                "for" if is_else => block.has_else = true,
                _ => return Err("`else` without `if`".to_owned()),
            },
            _ => return Err("`else` without `if`".to_owned()),
        }
        self.leave();
        Ok(())
    }

    /// Unbinds the names of the branch.
    fn leave(&mut self) {
        let Some(block) = self.open.last_mut() else { return };
        let names: HashSet<&str> = block.names.iter().copied().collect();
        for name in block.names.drain(..) {
            if let Some(count) = self.bound.get_mut(name) {
                *count = count.saturating_sub(1);
            }
        }
        block.common = Some(match block.common.take() {
            None => names,
            Some(common) => common.into_iter().filter(|name| names.contains(name)).collect(),
        });
    }

    /// Ends the innermost block, which has this tag.
    pub(super) fn close(&mut self, tag: &str) -> Result<(), String> {
        self.leave();
        let block = self.open.pop().filter(|block| block.tag == tag);
        let block = block.ok_or_else(|| format!("`end{tag}` without `{tag}`"))?;
        if block.tag == "if" && block.has_else {
            block.common.into_iter().flatten().for_each(|name| self.bind(name));
        }
        Ok(())
    }

    /// Fails if a block is still open.
    pub(super) fn end(&self) -> Result<(), String> {
        match self.open.last() {
            Some(block) => Err(format!("`{}` without its end", block.tag)),
            None => Ok(()),
        }
    }
}
