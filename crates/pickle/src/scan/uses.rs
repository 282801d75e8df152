//! The usages of names in a pickle: which are called, changed, or used as values, and which of
//! these usages the table of harmless names does not allow.

use std::collections::BTreeSet;

use foldhash::{HashMap, HashMapExt};
use statelens_checkpoint::{Form, Global, Grade};

use super::calls::{Matcher, is_persistent_storage};
use super::tuple;
use crate::names::{Allowed, How, NATIVE, Usage, allowed};
use crate::{BuiltObject, Node, NodeId, Pickle};

const HANDED: &str =
    "It is harmless when it is called in the usual way; here it is used as a value.";

/// A usage that is not harmless.
#[derive(Debug, Clone, Copy)]
pub(super) struct Misuse {
    pub(super) grade: Grade,
    pub(super) reason: &'static str,
    /// The call, if it is one.
    pub(super) object: Option<NodeId>,
}

pub(super) struct Uses<'a> {
    /// For each class or function, the first object that it would make.
    pub(super) first: HashMap<&'a Global, NodeId>,
    /// For each class or function that would itself be changed, the object that represents it.
    pub(super) changed: HashMap<&'a Global, NodeId>,
    /// Streams of torch.
    pub(super) streams: Vec<NodeId>,
    /// The first object that is made by something without a name.
    pub(super) computed: Option<NodeId>,
    /// Unusual values that are not attributed to a name: title and explanation of each.
    pub(super) oddities: BTreeSet<(&'static str, &'static str)>,
    misuses: HashMap<&'a Global, Misuse>,
    last_called: Option<NodeId>,
    pickle: &'a Pickle,
    /// Names, and results of calls, that may only be used where a pattern names them.
    inner: InnerNodes,
    /// Pairs of a tuple and one of these that it contains in such a place; sorted before use.
    placed: Vec<(NodeId, NodeId)>,
}

/// Nodes with the usages that are allowed for their names. Nearly all nodes are not in it, and a bit
/// for each answers that faster than a map.
#[derive(Default)]
struct InnerNodes {
    marks: Vec<u64>,
    allowed: HashMap<NodeId, &'static Allowed>,
}

impl InnerNodes {
    fn insert(&mut self, id: NodeId, allowed: &'static Allowed) {
        let (word, bit) = (id.0 as usize / 64, id.0 % 64);
        if self.marks.len() <= word {
            self.marks.resize(word + 1, 0);
        }
        self.marks[word] |= 1 << bit;
        self.allowed.insert(id, allowed);
    }

    fn get(&self, id: NodeId) -> Option<&'static Allowed> {
        let mark = self.marks.get(id.0 as usize / 64)? >> (id.0 % 64);
        if mark & 1 == 1 { self.allowed.get(&id).copied() } else { None }
    }
}

impl<'a> Uses<'a> {
    pub(super) fn of(pickle: &'a Pickle) -> Self {
        let mut uses = Self {
            first: HashMap::new(),
            changed: HashMap::new(),
            streams: Vec::new(),
            computed: None,
            oddities: BTreeSet::new(),
            misuses: HashMap::new(),
            last_called: None,
            pickle,
            inner: InnerNodes::default(),
            placed: Vec::new(),
        };
        uses.find_inner();
        let mut matcher = Matcher::new(pickle);
        for (id, node) in pickle.nodes() {
            match node {
                Node::Object(call) => uses.object(id, &pickle.made(*call), &mut matcher),
                Node::Persistent(name) => uses.persistent(*name),
                _ => {}
            }
        }
        uses.find_values();
        uses.find_late_descriptions();
        if !pickle.states.is_empty() {
            uses.oddities.insert((
                "The pickle sets state on a value that has no state",
                "Libraries set state only on objects that they have just made. A persistent id may \
                 return a class or an object of the program.",
            ));
        }
        uses
    }

    pub(super) fn misuse(&self, global: &Global) -> Option<&Misuse> {
        self.misuses.get(global)
    }

    /// Finds the names, and results of calls, that must not be used as values.
    fn find_inner(&mut self) {
        let pickle = self.pickle;
        let mut known: HashMap<&Global, Option<&'static Allowed>> = HashMap::new();
        let restricted = |global: &Global| allowed(global).filter(|allowed| !allowed.bare());
        for (id, node) in pickle.nodes() {
            match node {
                Node::Global(global) => {
                    let found = known.entry(global).or_insert_with(|| restricted(global));
                    if let Some(allowed) = *found {
                        self.inner.insert(id, allowed);
                    }
                }
                Node::Object(call) => {
                    if let Some(global) = pickle.spelled_global(&pickle.made(*call)) {
                        if let Some(allowed) = restricted(&global) {
                            self.inner.insert(id, allowed);
                        }
                    } else if let Some(allowed) = self.inner.get(call.callable)
                        && is_inside(allowed)
                    {
                        self.inner.insert(id, allowed);
                    }
                }
                _ => {}
            }
        }
    }

    fn object(&mut self, id: NodeId, object: &BuiltObject<'_>, matcher: &mut Matcher<'_>) {
        let pickle = self.pickle;
        match pickle.node(object.callable) {
            Node::Global(global) if object.form == Form::Reference => {
                self.changed.entry(&**global).or_insert(id);
                return;
            }
            // Most calls in a row are calls of one function.
            Node::Global(_) if self.last_called == Some(object.callable) => {}
            Node::Global(global) => {
                self.last_called = Some(object.callable);
                self.first.entry(&**global).or_insert(id);
            }
            _ if pickle.global(object.callable).is_some() => {}
            _ => {
                self.computed.get_or_insert(id);
                return;
            }
        }
        let callable = pickle.global(object.callable);
        if callable.is_some_and(|callable| callable.is("torch.storage", "_load_from_bytes")) {
            self.streams.push(id);
        }
        let done = matcher.check(object);
        for (tuple, name) in matcher.named.drain(..) {
            if self.inner.get(name).is_some() {
                self.placed.push((tuple, name));
            }
        }
        if let Err((grade, reason)) = done {
            self.misused(object.callable, grade, reason, Some(id));
        }
    }

    /// Checks a persistent id, which must name a storage. One that names a class returns that class
    /// itself.
    fn persistent(&mut self, name: NodeId) {
        let pickle = self.pickle;
        if is_persistent_storage(pickle, name) {
            return;
        }
        let class = match tuple(pickle, name) {
            Some([kind, class, _, _]) if pickle.str(*kind) == Some("module") => Some(*class),
            Some([class, _, _]) => Some(*class),
            _ => None,
        };
        // Other classes are reported by name.
        let is_module = class.is_some_and(|class| match pickle.node(class) {
            Node::Global(global) => allowed(global).is_none(),
            _ => false,
        });
        if !is_module {
            self.oddities.insert((
                "A persistent id of the pickle names neither a storage nor a module",
                "The loader of torch returns what such an id holds, and compares it with source text \
                 from the file.",
            ));
        }
    }

    /// Finds names that are used as values but may only be called. No pattern allows a name in place
    /// of the arguments of a call, or as a state.
    fn find_values(&mut self) {
        let pickle = self.pickle;
        if self.inner.allowed.is_empty() {
            return;
        }
        self.placed.sort_unstable();
        for (id, node) in pickle.nodes() {
            pickle.each_content_reference(node, &mut |part| {
                let placed = || self.placed.binary_search(&(id, part)).is_ok();
                if self.inner.get(part).is_some() && !placed() {
                    self.used_as_value(part);
                }
            });
        }
        self.used_as_value(pickle.root());
    }

    fn used_as_value(&mut self, part: NodeId) {
        if let Some(allowed) = self.inner.get(part) {
            let (grade, reason) = match allowed.danger {
                Some(danger) => (Grade::Danger, danger),
                None => (Grade::UnknownCode, HANDED),
            };
            self.misused(part, grade, reason, None);
        }
    }

    /// Finds dtypes that get a state after they were put into a tuple: the size of an array made
    /// with that tuple would have been computed from the old description.
    fn find_late_descriptions(&mut self) {
        let pickle = self.pickle;
        let mut described: HashMap<NodeId, u32> = HashMap::new();
        for (id, node) in pickle.nodes() {
            if let Node::Object(call) = node
                && let Some(at) = pickle.made(*call).built_at
                && pickle.global(call.callable).is_some_and(|global| global.is("numpy", "dtype"))
            {
                described.insert(id, at);
            }
        }
        if described.is_empty() {
            return;
        }
        for (id, node) in pickle.nodes() {
            let Node::Tuple(items) = node else { continue };
            for item in pickle.items(*items) {
                if described.get(item).is_some_and(|at| id.0 < *at)
                    && let Some(object) = pickle.object(*item)
                {
                    self.misused(object.callable, Grade::Danger, NATIVE, Some(*item));
                }
            }
        }
    }

    fn misused(
        &mut self,
        node: NodeId,
        grade: Grade,
        reason: &'static str,
        object: Option<NodeId>,
    ) {
        let global = match self.pickle.node(node) {
            Node::Global(global) => &**global,
            // A name that dill spells is reported with the function that spells it.
            Node::Object(made) => match self.pickle.node(made.callable) {
                Node::Global(global) => &**global,
                _ => return,
            },
            _ => return,
        };
        let misuse = Misuse { grade, reason, object };
        let known = self.misuses.entry(global).or_insert(misuse);
        if known.grade < grade {
            *known = misuse;
        }
    }
}

/// Returns whether the result of a call is restricted like the name itself.
fn is_inside(allowed: &Allowed) -> bool {
    allowed
        .usages
        .iter()
        .any(|usage| matches!(usage, Usage::Call(pattern) if pattern.how == How::Inside))
}
