//! Compares the calls of a pickle with the usages that the table of harmless names allows.

use statelens_checkpoint::{Form, Global, Grade};

use super::{dtypes, tuple, views};
use crate::graph::is_dill;
use crate::names::{
    CallPattern, How, Kind, Kinds, NATIVE, SHARED, Usage, Verdict, Word, allowed, verdict,
};
use crate::{BuiltObject, Node, NodeId, Pickle, storage_dtype};

/// Text codecs that Python has without importing them.
const CODECS: [&str; 8] =
    ["latin1", "latin-1", "iso-8859-1", "utf-8", "utf8", "utf_8", "ascii", "UTF-8"];
/// Plain Python types whose call returns an empty value.
const PLAIN: [&str; 8] = ["int", "float", "bool", "list", "tuple", "dict", "set", "str"];

const UNUSUAL: &str = "Libraries write it with other arguments, or create its objects differently.";
const CHANGED: &str = "Libraries don't set such state or items on what it returns.";
const NAMELESS: &str = "It calls or creates something that has no name.";
const UNLISTED: &str = "It returns a name that is not known to be harmless.";

const OUTSIDE: &str =
    "The tensor reaches outside of its storage: torch would read other memory, or refuse it.";

/// The reason why a call is not harmless.
pub(super) type Refusal = (Grade, &'static str);

/// Allowed comparisons per node of a pickle: shared nodes are compared again at each use.
const STEPS: u64 = 64;

/// Compares the calls of one pickle with the table.
pub(super) struct Matcher<'a> {
    pickle: &'a Pickle,
    /// Remaining comparisons.
    steps: u64,
    /// Names and results in arguments where a pattern names them: the tuple, and the item.
    pub(super) named: Vec<(NodeId, NodeId)>,
}

impl<'a> Matcher<'a> {
    pub(super) fn new(pickle: &'a Pickle) -> Self {
        let steps = (pickle.nodes.len() as u64).saturating_mul(STEPS);
        Self { pickle, steps, named: Vec::new() }
    }

    /// Checks a call against the table. Names outside the table are accepted, since they are
    /// reported wherever they are used.
    pub(super) fn check(&mut self, object: &BuiltObject<'_>) -> Result<(), Refusal> {
        let pickle = self.pickle;
        let how = if object.form == Form::Instance { How::New } else { How::Call };
        let Some(items) = tuple(pickle, object.args) else {
            return check_without_arguments(pickle, object.callable);
        };
        let made = Made {
            how,
            container: object.args,
            args: items,
            plain: object.kwargs.is_none_or(|kwargs| is_empty_dict(pickle, kwargs)),
            states: &object.states,
            items: &object.items,
            entries: &object.entries,
        };
        self.call(object.callable, &made)?;
        self.spelled(object)?;
        let Some(callable) = pickle.global(object.callable) else { return Ok(()) };
        if &*callable.module == "torch._utils" && !views::is_inside(pickle, &callable.name, items) {
            return Err((Grade::UnknownCode, OUTSIDE));
        }
        if callable.is("numpy", "dtype")
            && !(self.take(dtypes::len(pickle, object)) && dtypes::is_sound(pickle, object))
        {
            return Err((Grade::Danger, NATIVE));
        }
        Ok(())
    }

    /// Counts comparisons; `false` if there are too many.
    fn take(&mut self, steps: u64) -> bool {
        match self.steps.checked_sub(steps) {
            Some(left) => {
                self.steps = left;
                true
            }
            None => false,
        }
    }
}

/// Checks a call whose arguments are not a tuple, so that they may change before it is made.
fn check_without_arguments(pickle: &Pickle, callable: NodeId) -> Result<(), Refusal> {
    match pickle.global(callable).and_then(|global| allowed(&global)) {
        Some(allowed) => Err(refusal(allowed.danger, UNUSUAL)),
        None => Ok(()),
    }
}

fn refusal(danger: Option<&'static str>, reason: &'static str) -> Refusal {
    match danger {
        Some(danger) => (Grade::Danger, danger),
        None => (Grade::UnknownCode, reason),
    }
}

/// An object in the form that patterns describe.
struct Made<'a> {
    how: How,
    /// The tuple that holds the arguments, perhaps among others.
    container: NodeId,
    args: &'a [NodeId],
    /// Whether it has no keyword arguments.
    plain: bool,
    states: &'a [NodeId],
    items: &'a [NodeId],
    entries: &'a [(NodeId, NodeId)],
}

impl Made<'_> {
    fn is_changed(&self) -> bool {
        !(self.states.is_empty() && self.items.is_empty() && self.entries.is_empty())
    }
}

impl<'a> Matcher<'a> {
    /// Checks a call, and the call that it makes of one of its arguments. That goes one level deep:
    /// no pattern lets a function that calls another one do so for a second one.
    fn call(&mut self, callable: NodeId, made: &Made<'_>) -> Result<(), Refusal> {
        let Some(global) = self.pickle.global(callable) else {
            return Err((Grade::UnknownCode, NAMELESS));
        };
        let Some(allowed) = allowed(&global) else { return Ok(()) };
        let Some(inner) = self.inner(&global, made) else {
            let gives = allowed.usages.iter().any(|usage| {
                matches!(usage, Usage::Call(CallPattern { how: How::Existing | How::Inside, .. }))
            });
            if gives && made.is_changed() {
                return Err((Grade::Danger, SHARED));
            }
            let mut calls = allowed.usages.iter().filter_map(|usage| match usage {
                Usage::Call(pattern) => Some(pattern),
                Usage::Bare | Usage::Inner => None,
            });
            let mut reason = UNUSUAL;
            let fits = calls.any(|pattern| {
                self.attempt(|matcher| {
                    let called = matcher.is_called(pattern, made);
                    if called && made.is_changed() {
                        reason = CHANGED;
                    }
                    called && matcher.is_changed(pattern, made)
                })
            });
            return if fits { Ok(()) } else { Err(refusal(allowed.danger, reason)) };
        };
        // A function that calls one of its arguments: checks its own arguments, then that call.
        let fits = allowed.usages.iter().any(|usage| match usage {
            Usage::Call(pattern) => self.attempt(|matcher| matcher.is_called(pattern, made)),
            Usage::Bare | Usage::Inner => false,
        });
        if !fits {
            return Err(refusal(allowed.danger, UNUSUAL));
        }
        self.named.push((made.container, inner.0));
        self.call(inner.0, &inner.1)
    }

    /// Returns the call that a function makes of one of its arguments, if it does so.
    fn inner<'b>(&self, global: &Global, made: &Made<'b>) -> Option<(NodeId, Made<'b>)>
    where
        'a: 'b,
    {
        let pickle = self.pickle;
        let of = |how, container, args, plain| Made {
            how,
            container,
            args,
            plain,
            states: made.states,
            items: made.items,
            entries: made.entries,
        };
        let items = |id| tuple(pickle, id).unwrap_or_default();
        Some(match (&*global.module, &*global.name, made.args) {
            ("copyreg", "__newobj__", [class, args @ ..]) => {
                (*class, of(How::New, made.container, args, true))
            }
            ("copyreg", "__newobj_ex__", [class, args, kwargs]) => {
                (*class, of(How::New, *args, items(*args), is_empty_dict(pickle, *kwargs)))
            }
            ("copyreg", "_reconstructor", [class, ..]) => {
                (*class, of(How::New, made.container, &[], true))
            }
            (
                "torch._tensor" | "torch.tensor",
                "_rebuild_from_type" | "_rebuild_from_type_v2",
                [function, _, args, _],
            ) => (*function, of(How::Call, *args, items(*args), true)),
            (_, "_create_array", [function, args, ..]) if is_dill(global) && !made.is_changed() => {
                let states = &made.args[2..made.args.len().min(3)];
                (*function, Made { states, ..of(How::Call, *args, items(*args), true) })
            }
            _ => return None,
        })
    }

    /// Checks the name that a function of dill returns.
    fn spelled(&self, object: &BuiltObject<'_>) -> Result<(), Refusal> {
        let spelled = self.pickle.spelled_global(object);
        match spelled.map(|global| verdict(&global)) {
            Some(Verdict::Danger(reason)) => Err((Grade::Danger, reason)),
            Some(Verdict::Unknown) => Err((Grade::UnknownCode, UNLISTED)),
            Some(Verdict::Harmless) | None => Ok(()),
        }
    }

    /// Tries a pattern; discards the names that it recorded if it does not fit.
    fn attempt(&mut self, fits: impl FnOnce(&mut Self) -> bool) -> bool {
        let before = self.named.len();
        let fits = fits(self);
        if !fits {
            self.named.truncate(before);
        }
        fits
    }

    fn is_called(&mut self, pattern: &CallPattern, made: &Made<'_>) -> bool {
        let how = match pattern.how {
            How::Existing | How::Inside => How::Call,
            how => how,
        };
        how == made.how && made.plain && self.all(&pattern.args, made.args, made.container)
    }

    fn is_changed(&mut self, pattern: &CallPattern, made: &Made<'_>) -> bool {
        let state = match (made.states, &pattern.state) {
            ([], _) => true,
            ([state], Some(kind)) => self.fits(kind, *state, *state),
            _ => false,
        };
        let mut each = |kind: &Option<Kind>, id: NodeId| {
            kind.as_ref().is_some_and(|kind| self.fits(kind, id, id))
        };
        state
            && made.items.iter().all(|item| each(&pattern.items, *item))
            && made.entries.iter().all(|(_, value)| each(&pattern.entries, *value))
    }

    /// Returns whether the items of the tuple `container` are of these kinds.
    fn all(&mut self, kinds: &Kinds, items: &[NodeId], container: NodeId) -> bool {
        let most = if kinds.repeats { usize::MAX } else { kinds.kinds.len() };
        (kinds.required..=most).contains(&items.len())
            && items.iter().enumerate().all(|(index, item)| {
                let kind = kinds.kinds.get(index).or(kinds.kinds.last());
                kind.is_some_and(|kind| self.fits(kind, *item, container))
            })
    }

    /// Returns whether the value is of this kind. The patterns bound the recursion.
    fn fits(&mut self, kind: &Kind, id: NodeId, container: NodeId) -> bool {
        let pickle = self.pickle;
        if !self.take(1) {
            return false;
        }
        match kind {
            Kind::Word(word) => self.is(*word, id, container),
            Kind::Text(text) => is_text(pickle, id, text),
            Kind::Name(name) => {
                let fits = self.named(id).is_some_and(|global| is_name(&global, name));
                if fits {
                    self.named.push((container, id));
                }
                fits
            }
            Kind::Made(name) => {
                let fits = pickle.object(id).is_some_and(|object| {
                    self.named(object.callable).is_some_and(|global| is_name(&global, name))
                });
                if fits {
                    self.named.push((container, id));
                }
                fits
            }
            Kind::Tuple(kinds) => tuple(pickle, id).is_some_and(|items| self.all(kinds, items, id)),
            Kind::List(kind) => match pickle.node(id) {
                Node::List(_) if matches!(**kind, Kind::Word(Word::Any)) => true,
                Node::List(items) => items.iter().all(|item| self.fits(kind, *item, id)),
                _ => false,
            },
            Kind::Record(fields) => match pickle.node(id) {
                Node::Dict(entries) => entries.iter().all(|(key, value)| {
                    let key = pickle.str(*key);
                    let field = fields.iter().find(|(name, _)| key == Some(name));
                    field.is_some_and(|(_, kind)| self.fits(kind, *value, id))
                }),
                _ => false,
            },
            Kind::Either(kinds) => {
                kinds.iter().any(|kind| self.attempt(|matcher| matcher.fits(kind, id, container)))
            }
        }
    }

    fn is(&mut self, word: Word, id: NodeId, container: NodeId) -> bool {
        let pickle = self.pickle;
        let node = pickle.node(id);
        let within = |last| pickle.int(id).is_some_and(|int| (0..=last).contains(&int));
        match word {
            Word::Any => true,
            Word::None => *node == Node::None,
            Word::False => within(0),
            Word::True => within(1) && !within(0),
            Word::Bool => within(1),
            Word::Int => matches!(node, Node::Int(_) | Node::Bool(_)),
            Word::Nat => within(i64::MAX),
            Word::Zero => within(0),
            Word::Position => within(624),
            Word::Buffered => within(4),
            Word::Float => matches!(node, Node::Float(_) | Node::Int(_) | Node::Bool(_)),
            Word::Str => matches!(node, Node::Str(_)),
            Word::Bytes => matches!(node, Node::Buffer(_)) || pickle.spelled(id).is_some(),
            Word::List => matches!(node, Node::List(_)),
            Word::Dict => matches!(node, Node::Dict(_)),
            Word::Attributes => pickle.dict(id).is_some_and(|entries| {
                let plain = |name: &str| !name.starts_with("__");
                self.take(entries.len() as u64)
                    && entries.iter().all(|(key, _)| pickle.str(*key).is_some_and(plain))
            }),
            Word::Factory => {
                let plain = |global: &Global| {
                    &*global.module == "builtins" && PLAIN.contains(&&*global.name)
                        || global.is("collections", "OrderedDict")
                };
                *node == Node::None
                    || self.named(id).is_some_and(|global| plain(&global))
                    || self.is_unlisted(id)
            }
            Word::Unlisted => self.is_unlisted(id),
            Word::Storage => is_storage(pickle, id),
            Word::Hooks if *node == Node::None => true,
            Word::Hooks => pickle.object(id).is_some_and(|object| {
                let class = self.named(object.callable);
                let is_dict = class.is_some_and(|class| class.is("collections", "OrderedDict"));
                is_dict
                    && tuple(pickle, object.args).is_some_and(<[_]>::is_empty)
                    && object.entries.is_empty()
            }),
            // `dtypes::is_sound` checks the element and the state of a dtype together.
            Word::Element => {
                if let Node::Global(_) = node {
                    self.named.push((container, id));
                }
                true
            }
            Word::DTypeState => true,
            // The call that is made with them is judged.
            Word::ApplyArgs => true,
            Word::Codec => pickle.str(id).is_some_and(|codec| CODECS.contains(&codec)),
            Word::Constant => {
                pickle.str(id).is_some_and(|repr| repr.len() < 100 && is_constant_repr(repr))
            }
            Word::BuiltinName | Word::MemberName => matches!(node, Node::Str(_)),
        }
    }

    /// Returns the class or function that a node refers to; `None` for a persistent id, whatever it
    /// returns.
    fn named(&self, id: NodeId) -> Option<std::sync::Arc<Global>> {
        match self.pickle.node(id) {
            Node::Persistent(_) => None,
            _ => self.pickle.global(id),
        }
    }

    fn is_unlisted(&self, id: NodeId) -> bool {
        match self.pickle.node(id) {
            Node::Global(global) => allowed(global).is_none(),
            _ => false,
        }
    }
}

fn is_name(global: &Global, name: &str) -> bool {
    let (module, name) = name.rsplit_once('.').unwrap_or(("", name));
    global.is(module, name)
}

fn is_text(pickle: &Pickle, id: NodeId, text: &str) -> bool {
    let bytes = || {
        let spelled = pickle.spelled(id)?;
        // Longer ones would be copied needlessly.
        (pickle.spelled_len(spelled) <= 2 * text.len()).then(|| pickle.spelled_bytes(spelled))?
    };
    pickle.str(id) == Some(text) || bytes().is_some_and(|bytes| *bytes == *text.as_bytes())
}

fn is_empty_dict(pickle: &Pickle, id: NodeId) -> bool {
    pickle.dict(id).is_some_and(<[_]>::is_empty)
}

/// Returns whether the value is a storage of the file, a tensor's number in an old tar archive, or
/// a storage in a stream of its own.
fn is_storage(pickle: &Pickle, id: NodeId) -> bool {
    match pickle.node(id) {
        Node::Persistent(name) => is_persistent_storage(pickle, *name),
        Node::Object(call) => pickle
            .global(call.callable)
            .is_some_and(|global| global.is("torch.storage", "_load_from_bytes")),
        _ => false,
    }
}

/// Returns whether a persistent id names a storage: `('storage', class, key, location, numel[,
/// view])`, or a number or text in the old tar archives.
pub(super) fn is_persistent_storage(pickle: &Pickle, name: NodeId) -> bool {
    if let Node::Int(_) | Node::Str(_) = pickle.node(name) {
        return true;
    }
    let Some([kind, class, key, location, numel, view @ ..]) = tuple(pickle, name) else {
        return false;
    };
    let class = match pickle.node(*class) {
        Node::Global(class) => storage_dtype(class).is_some(),
        _ => false,
    };
    let text = |id: &NodeId| matches!(pickle.node(*id), Node::Str(_));
    let key = text(key) || matches!(pickle.node(*key), Node::Int(_));
    let view = match view {
        [] => true,
        [view] => match pickle.node(*view) {
            Node::None => true,
            Node::Tuple(view) => match pickle.items(*view) {
                [_, offset, size] => {
                    [offset, size].map(|id| pickle.int(*id)).iter().all(Option::is_some)
                }
                _ => false,
            },
            _ => false,
        },
        _ => false,
    };
    class
        && key
        && view
        && is_text(pickle, *kind, "storage")
        && text(location)
        && pickle.int(*numel).is_some_and(|numel| numel >= 0)
}

/// Returns whether dill evaluates the text to a constant: the names of Python's constants, and
/// ranges of numbers.
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
