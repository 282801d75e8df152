//! Which values of a template may be text that the file assembles, as a graph of its variables.

use std::collections::HashMap;

/// A variable, an attribute, an argument, or the value of an expression.
pub(super) type Node = usize;

/// A value that is not the name of an attribute unless the template spells it.
pub(super) const CLEAN: Node = 0;
/// Text that the template assembles.
pub(super) const MADE: Node = 1;
/// A variable of the program. A file may set it to a text, as a special token, but not to more.
pub(super) const CONTEXT: Node = 2;
/// A value in any dict that the template writes.
pub(super) const ANY_VALUE: Node = 3;
/// The value of any attribute or key.
pub(super) const ANY_FIELD: Node = 4;
/// A value that is added to a list or dict.
pub(super) const ADDED: Node = 5;
const FIXED: usize = 6;

/// How a value flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Unchanged, or as a part of a text.
    Same,
    /// Into a container.
    Into,
    /// Out of a container.
    Out,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Label<'t> {
    Variable(&'t str),
    /// An attribute or a key, whatever the object.
    Field(&'t str),
    /// An argument of a macro.
    Parameter(&'t str, usize),
}

#[derive(Default)]
pub(super) struct Flow<'t> {
    nodes: HashMap<Label<'t>, Node>,
    joined: usize,
    edges: Vec<(Node, Node, Way)>,
}

impl<'t> Flow<'t> {
    pub(super) fn node(&mut self, label: Label<'t>) -> Node {
        let next = self.count();
        *self.nodes.entry(label).or_insert(next)
    }

    fn count(&self) -> usize {
        FIXED + self.nodes.len() + self.joined
    }

    pub(super) fn edge(&mut self, from: Node, to: Node, way: Way) {
        if from != CLEAN {
            self.edges.push((from, to, way));
        }
    }

    /// Returns a value that may be any of these.
    pub(super) fn join(&mut self, nodes: &[(Node, Way)]) -> Node {
        if nodes.iter().all(|(node, _)| *node == CLEAN) {
            return CLEAN;
        }
        let joined = self.count();
        self.joined += 1;
        for (from, way) in nodes {
            self.edge(*from, joined, *way);
        }
        joined
    }

    /// Returns for each node whether it may be text that the file assembles. Visits every edge at
    /// most twice.
    pub(super) fn made(&self) -> Vec<bool> {
        const WHOLE: u8 = 1;
        const ALL: u8 = 3;
        let mut next: Vec<Vec<(Node, Way)>> = vec![Vec::new(); self.count()];
        for (from, to, way) in &self.edges {
            next[*from].push((*to, *way));
        }
        let mut colors = vec![0; self.count()];
        let mut open = vec![(MADE, ALL), (CONTEXT, WHOLE)];
        while let Some((node, color)) = open.pop() {
            if colors[node] & color == color {
                continue;
            }
            colors[node] |= color;
            open.extend(next[node].iter().filter_map(|(to, way)| match way {
                Way::Same => Some((*to, color)),
                Way::Into => Some((*to, ALL)),
                // The letters of a text are not names.
                Way::Out => (color == ALL).then_some((*to, ALL)),
            }));
        }
        colors.into_iter().map(|color| color != 0).collect()
    }
}
