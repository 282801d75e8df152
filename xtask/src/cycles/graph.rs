//! The modules of a crate and their dependencies.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path as FilePath;

use anyhow::{Context as _, Result};

use super::paths::{Path, Paths};
use crate::built::files_under;

/// Maximum number of re-exports to follow, which bounds cyclic ones.
const MOST_STEPS: usize = 16;

/// The files of a feature of the page, and the folders whose modules they are compared with.
///
/// A feature has a folder (`verify`) with a file per layer (`verify::page`). The check compares it as
/// a module of its layer (`page::verify`): layers may not use each other in a cycle, nor may the
/// features of one layer.
const LAYERS: [(&str, &[&str]); 5] = [
    ("message", &["protocol"]),
    ("state", &["state"]),
    ("model", &["page", "model"]),
    ("page", &["page"]),
    ("worker", &["worker"]),
];

/// The module of the page's state.
const STATE: [&str; 2] = ["page", "model"];

/// The modules of a crate by path, each with the modules that it uses.
pub(super) struct Graph {
    uses: BTreeMap<Path, BTreeSet<Path>>,
}

impl Graph {
    /// Reads all source files of a crate, which may have [`LAYERS`].
    pub(super) fn read(source: &FilePath, has_layers: bool) -> Result<Self> {
        let mut modules = BTreeMap::new();
        for file in files_under(source)? {
            if file.extension().is_none_or(|end| end != "rs") {
                continue;
            }
            let mut module: Path =
                file.with_extension("").iter().map(|part| part.to_string_lossy().into()).collect();
            if module.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
                module.pop();
            }
            if module.iter().any(|part| part == "tests") {
                continue;
            }
            let text = fs::read_to_string(source.join(&file))?;
            let parsed = syn::parse_file(&text).with_context(|| format!("{}", file.display()))?;
            modules.insert(module, Paths::of(&parsed));
        }
        Ok(Self::of(&modules, has_layers))
    }

    fn of(modules: &BTreeMap<Path, Paths>, has_layers: bool) -> Self {
        let place = |module: &Path| if has_layers { layered(module) } else { module.clone() };
        let mut uses = BTreeMap::new();
        for (module, paths) in modules {
            let found = paths.used.iter().filter_map(|path| resolve(modules, module, path));
            let (module, found) = (place(module), found.map(|other| place(&other)));
            let others =
                found.filter(|other| !other.starts_with(&module) && !module.starts_with(other));
            uses.insert(module.clone(), others.collect());
        }
        Self { uses }
    }

    /// Returns the cycles, each with its modules sorted. Sibling modules are compared including
    /// everything below them.
    pub(super) fn circles(&self) -> Vec<Vec<String>> {
        let siblings = self.siblings();
        let mut circles = BTreeSet::new();
        for module in siblings.keys() {
            let from = reached(&siblings, module);
            let circle: Vec<String> = from
                .iter()
                .filter(|other| reached(&siblings, other).contains(module))
                .map(|other| other.join("::"))
                .collect();
            if circle.len() > 1 {
                circles.insert(circle);
            }
        }
        circles.into_iter().collect()
    }

    /// Returns the dependencies between siblings, where everything below a module counts as the
    /// module.
    fn siblings(&self) -> BTreeMap<Path, BTreeSet<Path>> {
        let mut siblings: BTreeMap<Path, BTreeSet<Path>> = BTreeMap::new();
        for (module, used) in &self.uses {
            for other in used {
                let common = module.iter().zip(other).take_while(|(one, two)| one == two).count();
                let of = |path: &Path| path.iter().take(common + 1).cloned().collect::<Path>();
                siblings.entry(of(module)).or_default().insert(of(other));
            }
        }
        siblings
    }

    /// Returns the top-level modules, each with the others that it uses.
    pub(super) fn top(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut top: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (module, used) in &self.uses {
            let Some(first) = module.first() else { continue };
            let others = used.iter().filter_map(|other| other.first());
            let others = others.filter(|other| *other != first).cloned();
            top.entry(first.clone()).or_default().extend(others);
        }
        top
    }
}

/// Returns the path by which a module is compared: its layer comes before its feature.
///
/// The file of a layer's own folder (`worker/mod.rs`) is compared as a module in it. Otherwise it
/// would be the parent of all features, and could use each of them although they use it. The page's
/// state is the one file that has parts of all features.
fn layered(module: &Path) -> Path {
    let is_layer = |(_, folder): &(&str, &[&str])| *folder == module.as_slice();
    if LAYERS.iter().any(is_layer) && module.as_slice() != STATE {
        return [module.as_slice(), &["mod".to_owned()]].concat();
    }
    let [feature, layer, rest @ ..] = module.as_slice() else { return module.clone() };
    let Some((_, folder)) = LAYERS.iter().find(|(name, _)| name == layer) else {
        return module.clone();
    };
    let folder = folder.iter().map(|part| (*part).to_owned());
    folder.chain([feature.clone()]).chain(rest.iter().cloned()).collect()
}

/// Returns all modules reachable from a module, which includes itself if it is part of a cycle.
fn reached(uses: &BTreeMap<Path, BTreeSet<Path>>, from: &Path) -> BTreeSet<Path> {
    let (mut found, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(module) = open.pop() {
        for used in uses.get(module).into_iter().flatten() {
            if found.insert(used.clone()) {
                open.push(used);
            }
        }
    }
    found
}

/// Returns the module that defines the target of a path; `None` if it is not in this crate.
fn resolve(modules: &BTreeMap<Path, Paths>, from: &Path, path: &Path) -> Option<Path> {
    let (mut module, mut path) = (from.clone(), path.clone());
    for _ in 0..MOST_STEPS {
        let mut parts = path.iter().map(String::as_str).peekable();
        let mut absolute = false;
        while let Some(first) = parts.peek().copied() {
            match first {
                "crate" => module.clear(),
                "super" => drop(module.pop()),
                "self" => {}
                _ => break,
            }
            absolute = true;
            parts.next();
        }
        let mut rest: Path = parts.map(str::to_owned).collect();
        let mut deeper = false;
        while let Some(first) = rest.first() {
            let next = [module.as_slice(), std::slice::from_ref(first)].concat();
            if !modules.contains_key(&next) {
                break;
            }
            (module, deeper) = (next, true);
            rest.remove(0);
        }
        let Some(name) = rest.first() else { return (absolute || deeper).then_some(module) };
        let here = modules.get(&module)?;
        match here.exported.get(name) {
            // A name imported by this file: the import itself is already counted. A path that goes
            // on may lead to a module below the imported one.
            Some(_) if !absolute && !deeper && rest.len() == 1 => return None,
            Some(exported) => path = [exported.as_slice(), &rest[1..]].concat(),
            None => {
                let glob = here.globs.iter().find_map(|glob| {
                    let target = resolve(modules, &module, glob)?;
                    (target != module).then_some(target)
                });
                return match glob {
                    Some(target) if absolute || deeper => Some(target),
                    _ => (absolute || deeper).then_some(module),
                };
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles(files: &[(&str, &str)]) -> Vec<String> {
        let modules = files.iter().map(|(name, text)| {
            let module = name.split("::").filter(|part| !part.is_empty()).map(str::to_owned);
            (module.collect::<Path>(), Paths::of(&syn::parse_file(text).unwrap()))
        });
        Graph::of(&modules.collect(), true)
            .circles()
            .iter()
            .map(|circle| circle.join(" "))
            .collect()
    }

    #[test]
    fn finds_cycles_through_re_exports() {
        let root = ("", "mod a; mod b; mod c; pub use b::B; pub use a::*;");
        let a = ("a", "mod deep; use crate::B; pub struct A;");
        // A parent and its child use each other.
        let deep = ("a::deep", "use super::A; fn f() -> A { super::A }");
        let through = |text| circles(&[root, a, deep, ("b", text), ("c", "")]);
        assert_eq!(through("pub struct B;"), [""; 0]);
        // Everything below a module is a part of it.
        assert_eq!(through("pub struct B; fn f() { crate::a::deep::f(); }"), ["a b"]);
        assert_eq!(through("use crate::a::A; pub struct B(A);"), ["a b"]);
        assert_eq!(through("pub struct B; fn f() { let a = super::A; }"), ["a b"]);
        assert_eq!(through("pub struct B; #[cfg(test)] mod tests { use crate::a::A; }"), [""; 0]);
        assert_eq!(through("use crate::c::{self}; pub struct B; "), [""; 0]);
        assert_eq!(through("pub struct B; fn f() { html! { <p>{ super::a::f() }</p> } }"), ["a b"]);
        // No file is part of a cycle, but the two folders use each other.
        let folders = [
            ("", "mod a; mod b;"),
            ("a", "mod above; mod below;"),
            ("a::above", "use crate::b::middle::M;"),
            ("a::below", "pub struct S;"),
            ("b", "pub mod middle;"),
            ("b::middle", "use crate::a::below::S; pub struct M;"),
        ];
        assert_eq!(circles(&folders), ["a b"]);
        // Features are compared within a layer, and layers with each other.
        let features = |other| {
            circles(&[
                ("", "mod a; mod b;"),
                ("a", "pub mod state; pub mod page;"),
                ("a::state", "pub struct S;"),
                ("a::page", "use crate::b::state::S; pub struct P;"),
                ("b", "pub mod state; pub mod page;"),
                ("b::state", other),
                ("b::page", "use crate::a::state::S; pub struct P;"),
            ])
        };
        assert_eq!(features("pub struct S;"), [""; 0]);
        assert_eq!(features("use crate::a::page::P; pub struct S;"), ["page state"]);
        assert_eq!(features("use crate::a::state::S; pub struct S;"), [""; 0]);
        // A layer's own file may not use the features, since they use it.
        let dispatch = |file, other| {
            circles(&[
                ("", "mod a; mod worker; mod dispatch;"),
                ("a", "pub mod worker;"),
                ("a::worker", "use crate::worker::post; pub fn start() {}"),
                ("worker", file),
                ("dispatch", other),
            ])
        };
        let post = "pub fn post() {}";
        for uses in [
            "pub fn post() { crate::a::worker::start(); }",
            "use crate::a; pub fn post() { a::worker::start(); }",
            "use crate::{a as b}; pub fn post() { b::worker::start(); }",
        ] {
            assert_eq!(dispatch(post, uses), [""; 0]);
            assert_eq!(dispatch(uses, ""), ["worker::a worker::mod"]);
        }
    }
}
