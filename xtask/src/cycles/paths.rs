//! The paths in a file that lead to other modules of its crate.

use std::collections::BTreeMap;

use syn::buffer::{Cursor, TokenBuffer};
use syn::visit::Visit;
use syn::{Attribute, File, ItemMod, ItemUse, Macro, Meta, UseTree};

/// The components of a path, including `crate`, `self` and `super`.
pub(super) type Path = Vec<String>;

/// The paths in a file, except for its tests.
#[derive(Default)]
pub(super) struct Paths {
    pub(super) used: Vec<Path>,
    /// Names imported here and defined elsewhere.
    pub(super) exported: BTreeMap<String, Path>,
    pub(super) globs: Vec<Path>,
}

impl Paths {
    pub(super) fn of(file: &File) -> Self {
        let mut paths = Self::default();
        paths.visit_file(file);
        paths
    }

    /// Collects the paths in the tokens of a macro, which need not be Rust: `html!` has paths among
    /// its tags.
    fn tokens(&mut self, mut cursor: Cursor<'_>) {
        let mut path = Path::new();
        while !cursor.eof() {
            if let Some((name, rest)) = cursor.ident() {
                path.push(name.to_string());
                cursor = rest;
                let colons = cursor.punct().filter(|(colon, _)| colon.as_char() == ':');
                let colons = colons.and_then(|(_, rest)| rest.punct());
                if let Some((_, rest)) = colons.filter(|(colon, _)| colon.as_char() == ':') {
                    cursor = rest;
                    continue;
                }
            } else if let Some((inside, _, _, rest)) = cursor.any_group() {
                self.tokens(inside);
                cursor = rest;
            } else if let Some((_, rest)) = cursor.token_tree() {
                cursor = rest;
            }
            if !path.is_empty() {
                self.used.push(std::mem::take(&mut path));
            }
        }
    }

    fn tree(&mut self, tree: &UseTree, begun: &Path, shown: bool) {
        match tree {
            UseTree::Path(path) => {
                let begun = [begun.as_slice(), &[path.ident.to_string()]].concat();
                self.tree(&path.tree, &begun, shown);
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.tree(tree, begun, shown));
            }
            UseTree::Name(name) => self.name(begun, &name.ident.to_string(), None, shown),
            UseTree::Rename(name) => {
                self.name(begun, &name.ident.to_string(), Some(name.rename.to_string()), shown);
            }
            UseTree::Glob(_) if shown => self.globs.push(begun.clone()),
            UseTree::Glob(_) => self.used.push(begun.clone()),
        }
    }

    fn name(&mut self, begun: &Path, name: &str, renamed: Option<String>, shown: bool) {
        let full = match name {
            "self" => begun.clone(),
            name => [begun.as_slice(), &[name.to_owned()]].concat(),
        };
        let known = renamed.or_else(|| full.last().cloned()).unwrap_or_default();
        // Private imports are included: child modules can use them as `super::Name`.
        self.exported.insert(known, full.clone());
        if !shown {
            self.used.push(full);
        }
    }
}

impl<'a> Visit<'a> for Paths {
    fn visit_item_mod(&mut self, item: &'a ItemMod) {
        if !item.attrs.iter().any(is_test) {
            syn::visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'a ItemUse) {
        if !item.attrs.iter().any(is_test) {
            let shown = !matches!(item.vis, syn::Visibility::Inherited);
            self.tree(&item.tree, &Vec::new(), shown);
        }
    }

    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        if !item.attrs.iter().any(is_test) {
            syn::visit::visit_item_fn(self, item);
        }
    }

    fn visit_macro(&mut self, call: &'a Macro) {
        self.tokens(TokenBuffer::new2(call.tokens.clone()).begin());
        syn::visit::visit_macro(self, call);
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let parts = path.segments.iter().map(|part| part.ident.to_string());
        self.used.push(parts.collect());
        syn::visit::visit_path(self, path);
    }
}

/// Returns whether an attribute is `#[cfg(test)]`.
fn is_test(attribute: &Attribute) -> bool {
    let Meta::List(list) = &attribute.meta else { return false };
    list.path.is_ident("cfg") && list.tokens.to_string() == "test"
}
