//! How a pickle uses what it names. Some names are harmless only in the way that honest files use
//! them: each of their uses is looked at, also where they are handed around instead of called.

use std::collections::HashMap;

use statelens_checkpoint::{Form, Global, Grade};

use super::{dtypes, is_harmless_always, tuple};
use crate::names::{CODE, IMPORTS, NATIVE, NESTED, REACH, SHARED, Use, Verdict, verdict};
use crate::{BuiltObject, Node, NodeId, Pickle};

/// Codecs that are text, and that Python has without importing them.
const CODECS: [&str; 8] =
    ["latin1", "latin-1", "iso-8859-1", "utf-8", "utf8", "utf_8", "ascii", "UTF-8"];

/// A use that is not harmless.
#[derive(Debug, Clone, Copy)]
pub(super) struct Misuse {
    /// How bad it is.
    pub(super) grade: Grade,
    /// Why.
    pub(super) reason: &'static str,
    /// The call, if it is one.
    pub(super) object: Option<NodeId>,
}

/// The uses of all names.
pub(super) struct Uses<'a> {
    /// For each class or function, the first object that it would make.
    pub(super) first: HashMap<&'a Global, NodeId>,
    /// For each class or function that would be changed itself, the object that stands for it.
    pub(super) changed: HashMap<&'a Global, NodeId>,
    /// Streams of torch.
    pub(super) streams: Vec<NodeId>,
    /// The first object that is made by something that is no name.
    pub(super) computed: Option<NodeId>,
    misuses: HashMap<&'a Global, Misuse>,
    pickle: &'a Pickle,
    guards: Vec<Guard>,
}

/// What must not be done with a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Guard {
    Free,
    /// It may only be called, as its name allows.
    Called(Use),
    /// The module that dill imports: only an argument of `_get_attr`.
    Import,
    /// The arguments of that, or of `numpy.dtype`: for nothing else.
    Arguments,
}

impl<'a> Uses<'a> {
    pub(super) fn of(pickle: &'a Pickle) -> Self {
        let mut uses = Self {
            first: HashMap::new(),
            changed: HashMap::new(),
            streams: Vec::new(),
            computed: None,
            misuses: HashMap::new(),
            pickle,
            guards: Vec::new(),
        };
        uses.guard();
        uses.look();
        uses
    }

    /// The gravest misuse of a name.
    pub(super) fn misuse(&self, global: &Global) -> Option<&Misuse> {
        self.misuses.get(global)
    }

    /// Notes which nodes may be used in some ways only.
    fn guard(&mut self) {
        let mut known: HashMap<&Global, Guard> = HashMap::new();
        let guard_of = |global: &Global| match verdict(global) {
            Verdict::Harmless(Use::Any) => Guard::Free,
            Verdict::Harmless(allowed) => Guard::Called(allowed),
            _ => Guard::Free,
        };
        self.guards = vec![Guard::Free; self.pickle.nodes.len()];
        for (id, node) in self.pickle.nodes() {
            if let Node::Global(global) = node {
                let guard = known.entry(&**global).or_insert_with(|| guard_of(global));
                self.guards[id.0 as usize] = *guard;
            }
        }
        if known.values().all(|guard| *guard == Guard::Free) {
            return;
        }
        for (id, node) in self.pickle.nodes() {
            let Node::Object(object) = node else { continue };
            match self.guards[object.callable.0 as usize] {
                Guard::Called(Use::DillImport) => self.guards[id.0 as usize] = Guard::Import,
                Guard::Called(Use::DillAttribute | Use::DillType) => {
                    // What is spelled so is used as the name itself.
                    if let Some(global) = self.pickle.global(id) {
                        self.guards[id.0 as usize] = guard_of(&global);
                    }
                    if self.guards[object.args.0 as usize] == Guard::Free {
                        self.guards[object.args.0 as usize] = Guard::Arguments;
                    }
                }
                Guard::Called(Use::DType) if self.guards[object.args.0 as usize] == Guard::Free => {
                    self.guards[object.args.0 as usize] = Guard::Arguments;
                }
                _ => {}
            }
        }
    }

    fn look(&mut self) {
        let pickle = self.pickle;
        let guarded = self.guards.iter().any(|guard| *guard != Guard::Free);
        for (id, node) in pickle.nodes() {
            if let Node::Object(call) = node {
                self.object(id, &pickle.made(*call));
            }
            if guarded {
                let is_arguments = self.guards[id.0 as usize] == Guard::Arguments;
                pickle.each_held(node, &mut |part| self.handed(part, is_arguments));
            }
        }
        if guarded {
            self.handed(pickle.root(), false);
            for state in pickle.states.values().flatten() {
                self.handed(*state, false);
            }
        }
    }

    fn object(&mut self, id: NodeId, object: &BuiltObject<'_>) {
        let pickle = self.pickle;
        match pickle.node(object.callable) {
            Node::Global(global) if object.form == Form::Reference => {
                self.changed.entry(&**global).or_insert(id);
            }
            Node::Global(global) => {
                self.first.entry(&**global).or_insert(id);
            }
            _ if pickle.global(object.callable).is_some() => {}
            _ => {
                self.computed.get_or_insert(id);
            }
        }
        if object.form == Form::Reference {
            return;
        }
        match self.guards[object.callable.0 as usize] {
            Guard::Called(Use::Stream) => self.streams.push(id),
            Guard::Called(allowed) => {
                if let Err((grade, reason)) = self.check(object, allowed) {
                    self.misused(object.callable, grade, reason, Some(id));
                }
            }
            // Called as it is: what a module or a tuple is not made for.
            Guard::Import | Guard::Arguments | Guard::Free => {}
        }
        let attribute = matches!(
            self.guards[object.callable.0 as usize],
            Guard::Called(Use::DillAttribute | Use::DillType | Use::DType)
        );
        if !attribute {
            self.handed(object.args, false);
        }
    }

    /// A node is a part of something else, or what unpickling returns.
    fn handed(&mut self, part: NodeId, by_arguments: bool) {
        match self.guards[part.0 as usize] {
            Guard::Free => {}
            Guard::Called(Use::Codec { bare: true } | Use::AsItIs { bare: true }) => {}
            // The result of `_get_attr` that names it is judged where that is called.
            Guard::Called(Use::Stream) => self.misused(part, Grade::Danger, NESTED, None),
            Guard::Called(Use::DillRepr) => self.misused(part, Grade::Danger, CODE, None),
            Guard::Called(Use::DillAttribute) => self.misused(part, Grade::Danger, REACH, None),
            Guard::Called(Use::DillImport) => self.misused(part, Grade::Danger, IMPORTS, None),
            Guard::Called(Use::Element) if by_arguments => {}
            Guard::Called(_) => self.misused(
                part,
                Grade::UnknownCode,
                "It is harmless when it is called in the usual way; here it is handed around.",
                None,
            ),
            Guard::Import if by_arguments => {}
            Guard::Import => {
                if let Some(object) = self.pickle.object(part) {
                    self.misused(object.callable, Grade::Danger, IMPORTS, Some(part));
                }
            }
            Guard::Arguments => {
                // What is in them would be handed on with them.
                let items = self.pickle.sequence(part).unwrap_or_default().to_vec();
                for item in items {
                    let guard = self.guards[item.0 as usize];
                    if matches!(guard, Guard::Import | Guard::Called(Use::Element)) {
                        self.handed(item, false);
                    }
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
            // Spelled by dill: told of the function that spells it.
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

    /// Whether a call is one of those that are harmless.
    fn check(&self, object: &BuiltObject<'_>, allowed: Use) -> Result<(), (Grade, &'static str)> {
        let pickle = self.pickle;
        let unknown = |reason| Err((Grade::UnknownCode, reason));
        let danger = |reason| Err((Grade::Danger, reason));
        let args = match object.kwargs {
            None => tuple(pickle, object.args),
            Some(_) => None,
        };
        let text = |id: &NodeId| match pickle.node(*id) {
            Node::Str(text) => text.as_str(),
            _ => None,
        };
        let gives_what_is_there = matches!(
            allowed,
            Use::AsItIs { .. }
                | Use::Type
                | Use::DillType
                | Use::DillRepr
                | Use::DillAttribute
                | Use::DillImport
        );
        let changed =
            [object.states.is_empty(), object.items.is_empty(), object.entries.is_empty()]
                .contains(&false);
        if gives_what_is_there && changed {
            return danger(SHARED);
        }
        match (allowed, args) {
            (Use::Any | Use::Stream | Use::AsItIs { .. }, _) => Ok(()),
            (Use::Made, Some([])) if object.form == Form::Instance => Ok(()),
            (Use::Made, _) => unknown(
                "An object of it may be made without its constructor; here that would be called.",
            ),
            (Use::Element, _) => unknown("It is a type of elements; here it would be called."),
            (Use::Codec { .. }, Some([] | [_])) => Ok(()),
            (Use::Codec { .. }, Some([_, codec]))
                if text(codec).is_some_and(|codec| CODECS.contains(&codec)) =>
            {
                Ok(())
            }
            (Use::Codec { .. }, _) => unknown("It would use a codec that is not plain text."),
            (Use::Type, Some([of])) => match pickle.node(*of) {
                Node::None => Ok(()),
                Node::Global(global) if is_constant(global) => Ok(()),
                _ => unknown("It would look up a class or make one."),
            },
            (Use::Type, _) => unknown("It would look up a class or make one."),
            (Use::DType, _) => match dtypes::is_sound(pickle, object) {
                true => Ok(()),
                false => danger(NATIVE),
            },
            (Use::Scalar, Some([_])) => Ok(()),
            (Use::Scalar, Some([_, data])) if pickle.spelled(*data).is_some() => Ok(()),
            (Use::Scalar, _) => danger(NATIVE),
            (Use::DillRepr, Some([repr])) if text(repr).is_some_and(is_constant_repr) => Ok(()),
            (Use::DillRepr, _) => danger(CODE),
            (Use::DillImport, Some([module])) if text(module).is_some() => Ok(()),
            (Use::DillImport, _) => danger(IMPORTS),
            (Use::DillAttribute | Use::DillType, _) => {
                let spelled = match object.form {
                    Form::Call => pickle.spelled_global(object),
                    _ => None,
                };
                match spelled.map(|global| verdict(&global)) {
                    Some(Verdict::Harmless(_)) => Ok(()),
                    Some(Verdict::Danger(reason)) => danger(reason),
                    Some(Verdict::Unknown) => unknown(
                        "It gives a name that is not among those that are known to be harmless.",
                    ),
                    None => danger(REACH),
                }
            }
        }
    }
}

fn is_constant(global: &Global) -> bool {
    is_harmless_always(global) && matches!(&*global.name, "Ellipsis" | "NotImplemented" | "None")
}

/// What dill has evaluated: the names of Python's constants, and ranges of numbers.
fn is_constant_repr(repr: &str) -> bool {
    let numbers = repr.strip_prefix("range(").and_then(|rest| rest.strip_suffix(')'));
    match numbers {
        None => matches!(repr, "Ellipsis" | "NotImplemented" | "None"),
        Some(numbers) => {
            let is_number = |text: &str| {
                let digits = text.strip_prefix('-').unwrap_or(text);
                !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
            };
            numbers.split(", ").all(is_number)
        }
    }
}
