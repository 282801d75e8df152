//! The effects of unpickling: a finding for each name that is not known to be harmless, and for
//! each usage of a harmless one that is not.

mod calls;
mod dtypes;
mod uses;
mod views;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use statelens_checkpoint::{Finding, Global, Grade, Limits, LoaderCall, order};
use uses::{Misuse, Uses};

pub use self::dtypes::DTypeElements;

use crate::names::{SHARED, Verdict, verdict};
use crate::{Broken, Node, NodeId, Oddity, Pickle, PickleStream, read, read_stream};

/// Maximum nesting of streams that are scanned.
const NESTING: usize = 2;
/// Maximum number of findings that are listed individually.
const FINDINGS: usize = 100;
/// Maximum number of consecutive pickles that are scanned.
const PICKLES: usize = 100_000;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScanOptions {
    /// Names, each a full `module.name`, that are not reported: the user knows them. Names that are
    /// known to be dangerous are still reported.
    pub allow: BTreeSet<String>,
}

impl ScanOptions {
    pub fn allows(&self, global: &Global) -> bool {
        !self.allow.is_empty() && self.allow.contains(&global.to_string())
    }

    /// Returns whether the finding is about an allowed name: for findings from opening a file.
    pub fn covers(&self, finding: &Finding) -> bool {
        let named = finding.call.as_ref();
        finding.grade == Grade::UnknownCode
            && named.is_some_and(|call| self.allows(&Global::new(&*call.module, &*call.name)))
    }
}

impl Pickle {
    /// Returns a finding for each class or function that is not known to be harmless, graded by
    /// what it could do when Python unpickles the file. Being popped from the stack or hidden among
    /// tensors makes no difference. Also works on the pickle in a [`crate::Broken`].
    pub fn scan(&self, options: &ScanOptions) -> Vec<Finding> {
        bounded(self.scan_within(options, NESTING))
    }

    fn scan_within(&self, options: &ScanOptions, nesting: usize) -> Vec<Finding> {
        let uses = Uses::of(self);
        let mut findings: Vec<Finding> = Vec::new();
        for named in self.named() {
            findings.extend(self.finding(&named, &uses, options));
        }
        findings.extend(self.scan_streams(options, nesting, &uses));
        findings.extend(self.computed_calls(&uses));
        findings.extend(uses.oddities.iter().map(|(title, detail)| {
            Finding::new(Grade::UnknownCode, *title)
                .detail(*detail)
                .place(self.place(0))
                .advice(advice(Grade::UnknownCode))
        }));
        findings.extend(self.extensions.first().map(|(code, offset)| {
            Finding::new(Grade::UnknownCode, format!("The pickle uses extension {code}"))
                .detail("The program that loads the file decides what it is.")
                .place(self.place(*offset))
        }));
        findings.extend(self.overlong_frame.map(|offset| {
            Finding::new(Grade::Warning, "A frame of the pickle claims more bytes than there are")
                .detail("Most loaders refuse it.")
                .place(self.place(offset))
        }));
        findings.extend(self.oddities.iter().map(|(oddity, offset)| {
            let (title, detail) = oddity.texts();
            Finding::new(Grade::UnknownCode, title)
                .detail(format!("{detail} No program writes that, so the file was made by hand."))
                .place(self.place(*offset))
                .advice(advice(Grade::UnknownCode))
        }));
        findings
    }

    /// Returns each name once.
    fn named(&self) -> Vec<NamedGlobal<'_>> {
        let mut first: HashMap<(&Global, bool), usize> = HashMap::new();
        let mut named: Vec<NamedGlobal<'_>> = Vec::new();
        for used in &self.globals {
            match first.get(&(&*used.global, used.computed)) {
                Some(index) => named[*index].count += 1,
                None => {
                    first.insert((&used.global, used.computed), named.len());
                    let (global, offset, computed) = (&used.global, used.offset, used.computed);
                    named.push(NamedGlobal { global, offset, computed, count: 1 });
                }
            }
        }
        named
    }

    fn finding(
        &self,
        named: &NamedGlobal<'_>,
        uses: &Uses<'_>,
        options: &ScanOptions,
    ) -> Option<Finding> {
        let global = named.global;
        let changed = uses.changed.get(&**global).copied();
        let call = changed.or_else(|| uses.first.get(&**global).copied());
        let name = shorten(&global.to_string());
        let object = call.and_then(|id| self.object(id));
        let verb = if call.is_some() { "call" } else { "get hold of" };
        let (grade, title, reason) = if named.computed {
            (
                Grade::Danger,
                format!("Loading would build the name `{name}`"),
                "Only code that hides has a reason to build a name during loading.",
            )
        } else {
            match (verdict(global), uses.misuse(global)) {
                (Verdict::Danger(reason), _) => {
                    (Grade::Danger, format!("Loading would {verb} `{name}`"), reason)
                }
                _ if changed.is_some() => {
                    (Grade::Danger, format!("Loading would change `{name}` itself"), SHARED)
                }
                (_, Some(Misuse { grade: Grade::Danger, reason, .. })) => {
                    (Grade::Danger, format!("Loading would {verb} `{name}`"), *reason)
                }
                _ if options.allows(global) => return None,
                (_, Some(Misuse { grade, reason, .. })) => {
                    (*grade, format!("The pickle uses `{name}` in an unknown way"), *reason)
                }
                (Verdict::Harmless, None) => return None,
                (Verdict::Unknown, None) if is_script(global) => (
                    Grade::UnknownCode,
                    format!("The pickle names `{name}`"),
                    "It is a class of TorchScript: its code comes with the file and runs in torch.",
                ),
                (Verdict::Unknown, None) => (
                    Grade::UnknownCode,
                    format!("The pickle names `{name}`"),
                    "It is not known to be harmless; its effect depends on code that is not in \
                     this file.",
                ),
            }
        };
        let misused = uses.misuse(global).and_then(|misuse| self.object(misuse.object?));
        let arguments = misused.or(object);
        let arguments = arguments.map_or(String::new(), |object| self.arguments(object.args));
        let times = match named.count {
            1 => String::new(),
            count => format!(" It is named {count} times."),
        };
        let mut finding = Finding::new(grade, title)
            .detail(format!("{reason}{times}"))
            .place(self.place(named.offset));
        finding.advice = advice(grade).into();
        finding.call = Some(LoaderCall {
            module: shorten(&global.module),
            name: shorten(&global.name),
            arguments,
        });
        Some(finding)
    }

    /// Scans the streams of torch inside the pickle.
    fn scan_streams(&self, options: &ScanOptions, nesting: usize, uses: &Uses<'_>) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut seen = HashSet::new();
        for id in &uses.streams {
            let stream = self.object(*id).and_then(|object| tuple(self, object.args));
            let spelled = match stream {
                Some([bytes]) => self.spelled(*bytes),
                _ => None,
            };
            if spelled.is_some_and(|spelled| !seen.insert(spelled)) {
                continue;
            }
            let bytes = spelled.and_then(|spelled| self.spelled_bytes(spelled));
            match (bytes, nesting.checked_sub(1)) {
                (Some(bytes), Some(nesting)) => match read_stream(&bytes, 0, &self.limits) {
                    Ok(stream) => {
                        findings.extend(stream.scan_within(options, nesting));
                        if stream.pickle.indexed_tensors() > 0 {
                            findings.push(self.unread_stream(*id));
                        }
                    }
                    Err(broken) => {
                        findings.extend(broken.scan_within(options, nesting));
                        findings.push(self.unread_stream(*id));
                    }
                },
                _ => findings.push(self.unread_stream(*id)),
            }
        }
        findings
    }

    /// Returns the finding for an unreadable stream, which may contain anything.
    fn unread_stream(&self, id: NodeId) -> Finding {
        let global = Global::new("torch.storage", "_load_from_bytes");
        let arguments = self.object(id).map(|object| self.arguments(object.args));
        let mut finding = Finding::new(Grade::Danger, format!("Loading would call `{global}`"))
            .detail(crate::names::NESTED)
            .place(self.place(0));
        finding.advice = advice(Grade::Danger).into();
        finding.call = Some(LoaderCall {
            module: global.module.to_string(),
            name: global.name.to_string(),
            arguments: arguments.unwrap_or_default(),
        });
        finding
    }

    /// Returns a finding for calls of the result of another call, which has no name.
    fn computed_calls(&self, uses: &Uses<'_>) -> Option<Finding> {
        let object = self.object(uses.computed?)?;
        let what = match self.node(object.callable) {
            Node::Object(inner) => self.global(inner.callable),
            _ => None,
        };
        let title = match what {
            Some(global) => {
                format!("Loading would call the result of `{}`", shorten(&global.to_string()))
            }
            None => "Loading would call something that has no name".to_owned(),
        };
        Some(
            Finding::new(Grade::UnknownCode, title)
                .detail("The callable is only known when the file is loaded.")
                .place(self.place(0))
                .advice(advice(Grade::UnknownCode)),
        )
    }

    fn place(&self, offset: u64) -> String {
        format!("byte {}", self.base.saturating_add(offset))
    }
}

impl Oddity {
    /// Returns a title, and the behaviour of Python.
    fn texts(self) -> (&'static str, &'static str) {
        match self {
            Self::ListItemSet => (
                "The pickle replaces items of a list",
                "Python would replace them while it loads the file.",
            ),
            Self::ByteArrayChanged => {
                ("The pickle changes a bytearray", "Python would change it after it is made.")
            }
            Self::UnknownChanged => (
                "The pickle changes an object of the program that loads it",
                "The object is a persistent id, an extension code or a buffer.",
            ),
            Self::FrameCrossed => (
                "A frame of the pickle ends within an opcode",
                "Loaders disagree about the rest: some skip the bytes before that end.",
            ),
            Self::FrameBehindStop => (
                "A frame of the pickle ends past the pickle",
                "A loader that reads another pickle starts it at the end of the frame, not where \
                 this pickle ends.",
            ),
        }
    }
}

impl PickleStream {
    /// Scans the pickles of the stream, including those around the object.
    pub fn scan(&self, options: &ScanOptions) -> Vec<Finding> {
        bounded(self.scan_within(options, NESTING))
    }

    fn scan_within(&self, options: &ScanOptions, nesting: usize) -> Vec<Finding> {
        let pickles = self.others.iter().chain([&self.pickle]);
        pickles.flat_map(|pickle| pickle.scan_within(options, nesting)).collect()
    }
}

impl Broken {
    /// Scans the part before the error, and adds a finding for the error.
    pub fn scan(&self, options: &ScanOptions) -> Vec<Finding> {
        bounded(self.all(options))
    }

    fn all(&self, options: &ScanOptions) -> Vec<Finding> {
        let mut findings = self.scan_within(options, NESTING);
        findings.push(
            Finding::new(Grade::Damage, "The pickle breaks off")
                .detail(format!("{} The part after that was not examined.", self.error)),
        );
        findings
    }

    fn scan_within(&self, options: &ScanOptions, nesting: usize) -> Vec<Finding> {
        let pickles = self.before.iter().chain([&*self.pickle]);
        pickles.flat_map(|pickle| pickle.scan_within(options, nesting)).collect()
    }
}

/// Scans all consecutive pickles at the start of `bytes`, since a program may load any of them.
/// Also returns the offset of data after the last one, if there is any.
pub fn scan_pickles(
    bytes: &[u8],
    base: u64,
    limits: &Limits,
    options: &ScanOptions,
) -> (Vec<Finding>, Option<u64>) {
    let (mut findings, mut reported) = (Vec::new(), HashSet::new());
    let mut add = |found: Vec<Finding>| {
        let key = |finding: &Finding| {
            let arguments = finding.call.as_ref().map(|call| call.arguments.clone());
            (finding.title.clone(), arguments)
        };
        let new = |finding: &Finding| reported.insert(key(finding));
        findings.extend(found.into_iter().filter(new));
    };
    let (mut at, mut count) = (0u64, 0);
    let rest = loop {
        let rest = bytes.get(at as usize..).unwrap_or_default();
        if rest.is_empty() {
            break None;
        }
        if count == PICKLES {
            let title = format!("Only the first {PICKLES} pickles of the file were examined");
            add(vec![Finding::new(Grade::UnknownCode, title)]);
            break Some(at);
        }
        match read(rest, base + at, limits) {
            Ok(pickle) => {
                add(pickle.scan_within(options, NESTING));
                at += pickle.end();
                count += 1;
            }
            // After a complete pickle there may be other data; it is only reported if it gets as
            // far as a name.
            Err(broken) if count > 0 && !broken.names_anything() => break Some(at),
            Err(broken) => {
                add(broken.all(options));
                break None;
            }
        }
    };
    (bounded(findings), rest)
}

impl Broken {
    fn names_anything(&self) -> bool {
        !self.pickle.globals.is_empty() || !self.pickle.extensions.is_empty()
    }
}

/// A name, its first use, and the number of its uses.
struct NamedGlobal<'a> {
    global: &'a Arc<Global>,
    offset: u64,
    computed: bool,
    count: u64,
}

/// Sorts findings by severity and limits their number.
fn bounded(mut findings: Vec<Finding>) -> Vec<Finding> {
    order::by_key(&mut findings, |finding| std::cmp::Reverse(finding.grade));
    if findings.len() > FINDINGS {
        let rest = findings.split_off(FINDINGS);
        let grade = rest.first().map_or(Grade::Note, |finding| finding.grade);
        let title = match rest.len() {
            1 => "1 more finding about the pickle is not listed".to_owned(),
            more => format!("{more} more findings about the pickle are not listed"),
        };
        findings.push(Finding::new(grade, title));
    }
    findings
}

fn advice(grade: Grade) -> &'static str {
    match grade {
        Grade::Danger => {
            "Do not load this file with Python. Nothing was called here; its tensors can be \
             inspected and converted safely."
        }
        _ => {
            "Load this file with Python only if you know where it comes from. Nothing was called \
             here; its tensors can be inspected and converted safely."
        }
    }
}

/// Returns whether it is a class of a TorchScript archive, which includes its code.
fn is_script(global: &Global) -> bool {
    &*global.module == "__torch__" || global.module.starts_with("__torch__.")
}

fn shorten(name: &str) -> String {
    match name.char_indices().nth(200) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

/// Returns whether the name is known to be harmless in the usual usages.
pub fn is_harmless(global: &Global) -> bool {
    verdict(global) == Verdict::Harmless
}

/// Returns the items of a tuple. Lists are not accepted as arguments, since they can change before
/// the call.
fn tuple(pickle: &Pickle, id: NodeId) -> Option<&[NodeId]> {
    match pickle.node(id) {
        Node::Tuple(items) => Some(pickle.items(*items)),
        _ => None,
    }
}
