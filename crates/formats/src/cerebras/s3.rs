//! Cerebras checkpoints in S3: what `cstorch.save(state, "s3://bucket/key")` of releases 2.5 to 2.10
//! writes.
//!
//! There is no public specification; this follows cerebras-appliance 2.10
//! (`cerebras/appliance/storage/s3_storage.py`) and what it writes. `KEY/__METADATA__` has the texts
//! of format 0.5 (see [`super`]), as one pickled dict. Each tensor, array and pickled value is an
//! object `KEY/FLATKEY`: its elements, or one frame of Zstandard. The user metadata of each object
//! repeats its description; the library needs it to read the object, Statelens only to verify it.
//!
//! | | read | written |
//! |---|---|---|
//! | tensors, arrays, plain and pickled values, ties, constants | yes | yes |
//! | bodies compressed with Zstandard | yes | no |
//! | links of each weight to itself, of runs on Cerebras systems | yes, also after a move | no |
//! | links to other addresses and files | shown, never followed | no |
//! | the same objects in a folder on disk | yes | no |

mod frame;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use statelens_checkpoint::{
    Checkpoint, Error, ErrorKind, FileId, FileSet, Finding, FormatTraits, Grade, Limits, Memory,
    ObjectHeader, PythonTypes, ReadAt, Result, counted, listed,
};

use super::metadata::{CLASSES, Entries, NAME, ObjectFacts, StoredObject};
use super::read::prefix;
use crate::checks::Checks;
use crate::paths::base;
use crate::{Format, Probe, PythonLeaf, Score, Snippet, Writing};

pub use super::metadata::{NAME as METADATA, split};
pub use super::write::prefix::{MAX_KEY, first_metadata, headers, is_prefix, metadata};

pub(crate) static FORMAT: Format = Format {
    short: "Cerebras S3",
    extensions: &[],
    reads: "`s3://bucket/key` of releases 2.5 to 2.10, or the same objects in a folder",
    traits: FormatTraits {
        python_types: PythonTypes::All,
        exact_read_back: true,
        ..FormatTraits::DEFAULT
    },
    score,
    writes_objects: Some(Writing {
        about: "An object for each value, below s3://bucket/key. Read by cstorch.load of releases 2.5 to 2.10.",
        what: "to `s3://bucket/key` with `--to cerebras-s3`",
        has: |_| false,
        ..Writing::named("cerebras-s3", "Cerebras S3", &[], |source, _, _| {
            super::write::plan_objects(source)
        })
    }),
    open: prefix::read,
    checks: Some(checks),
    snippets: Some(snippets),
    ..Format::named(&["cerebras-s3"], "Cerebras S3")
};

/// The code of the error for an object that a store does not have.
pub const NOT_FOUND: &str = "not-found";

/// The class of a value that the library unpickles.
const OBJECT: &str = "ObjectSerializer";

/// Names listed in one finding.
const MAX_NAMES: usize = 5;

/// Returns the names of the objects of a checkpoint after its prefix, with the lengths of their
/// bodies as far as `metadata`, the content of `__METADATA__`, has them. `address` is that of the
/// checkpoint in S3, if known.
pub fn objects(metadata: &[u8], address: Option<&str>) -> Result<Vec<(String, Option<u64>)>> {
    let objects = Entries::parse(metadata)?.objects(address).into_iter();
    let len = |object: &StoredObject| object.facts.body_len(object.linked);
    Ok(objects.map(|object| (len(&object), object.name)).map(|(len, name)| (name, len)).collect())
}

/// Returns whether a key may be the prefix of a checkpoint rather than a file: it has no extension of
/// a file, or one that the library's trainer gives to both.
pub fn may_be_prefix(key: &str) -> bool {
    let name = base(key).to_ascii_lowercase();
    let is_own = super::FORMAT.extensions.iter().any(|end| name.ends_with(&format!(".{end}")));
    is_own || !crate::has_known_extension(&name) && !name.ends_with(".json")
}

/// The first bytes of the pickle up to the name of its first entry.
const HEAD: usize = 64;

pub(crate) fn score(probe: &Probe<'_>) -> Score {
    let head = &probe.head()[..probe.head().len().min(HEAD)];
    let is_pickle = head.first() == Some(&0x80);
    let spec = b"__spec__";
    let is_named = base(probe.name()) == NAME;
    match is_pickle && (is_named || head.windows(spec.len()).any(|name| name == spec)) {
        true => Score::Exact,
        // The reader reports its faults.
        false if is_named => Score::Named,
        false => Score::No,
    }
}

fn snippets(leaf: &PythonLeaf<'_>) -> Vec<Snippet> {
    let (what, index) = (leaf.variable(), leaf.torch_index());
    // The library does not load a copy on disk.
    if !leaf.main.contains("s3://") {
        return Vec::new();
    }
    let main = leaf.main.replace(&format!("/{NAME}"), "");
    let cstorch = leaf.subscripts().map(|keys| Snippet {
        library: "cstorch",
        code: format!(
            "import cerebras.pytorch as cstorch\n\nstate = cstorch.load({main}, \
             map_location=\"cpu\")\n{what} = state{keys}{index}\n"
        ),
    });
    cstorch.into_iter().collect()
}

/// The pickled values of a checkpoint, and findings about the headers of its objects.
pub(crate) struct ObjectScan {
    pub(crate) findings: Vec<Finding>,
    /// The bodies that the library would unpickle, decompressed.
    pub(crate) pickled: Vec<(String, Arc<dyn ReadAt>)>,
}

/// Judges the header of each object, with one request for each. The header decides how the library
/// reads an object, whatever `__METADATA__` says. `progress` gets the number of objects so far, and
/// that of all.
pub(crate) fn scan(
    files: &FileSet,
    limits: &Limits,
    progress: &mut dyn FnMut(u64, u64) -> Result<()>,
) -> Result<ObjectScan> {
    let objects = prefix::entries(files, limits)?.objects(prefix::address(files));
    let mut found = ObjectScan { findings: Vec::new(), pickled: Vec::new() };
    let (mut bare, mut unseen) = (Vec::new(), 0);
    described(files, &objects, progress, |id, object, header| {
        let scanned = header.and_then(|header| {
            scan_object(files, id, object, header, &mut found, &mut bare, &mut unseen)
        });
        if let Err(error) = scanned {
            if error.kind() == ErrorKind::Cancelled
                || error.kind() == ErrorKind::Io && error.code() != NOT_FOUND
            {
                return Err(error);
            }
            found.findings.push(
                Finding::new(
                    Grade::UnknownCode,
                    format!("The object {} could not be examined", object.name),
                )
                .detail(error.to_string())
                .place(object.name.clone()),
            );
        }
        Ok(())
    })?;
    if !bare.is_empty() {
        let count = counted(bare.len() as u64, "object");
        found.findings.push(
            Finding::new(Grade::Damage, format!("{count} without a header `metadata`"))
                .detail(format!(
                    "{}. The Cerebras library can't read them.",
                    listed(&bare, MAX_NAMES)
                ))
                .advice("Copy the checkpoint with a tool that keeps the user metadata of objects."),
        );
    }
    if unseen > 0 {
        found.findings.push(
            Finding::new(Grade::Note, "The headers of the objects could not be examined")
                .detail(
                    "They are part of a bucket and not of a folder. Which bodies are pickles is \
                     taken from `__METADATA__`.",
                )
                .advice("Before the checkpoint is loaded from a bucket, scan it there."),
        );
    }
    Ok(found)
}

/// Objects whose headers are requested before the first of them is judged.
const AT_ONCE: usize = 256;

/// Calls `each` with every object that has a file, in order, and its header. Requests headers side by
/// side if there are threads. `progress` gets the number of objects so far, and that of all.
fn described(
    files: &FileSet,
    objects: &[StoredObject],
    progress: &mut dyn FnMut(u64, u64) -> Result<()>,
    mut each: impl FnMut(FileId, &StoredObject, Result<Option<ObjectHeader>>) -> Result<()>,
) -> Result<()> {
    let workers = files.requests();
    let run = if workers.count() > 1 { AT_ONCE } else { 1 };
    for (number, run_of) in objects.chunks(run).enumerate() {
        progress((number * run) as u64, objects.len() as u64)?;
        let found: Vec<(&StoredObject, FileId)> = run_of
            .iter()
            .filter_map(|object| Some((object, prefix::find(files, &object.name)?)))
            .collect();
        let headers: Vec<OnceLock<Result<Option<ObjectHeader>>>> =
            found.iter().map(|_| OnceLock::new()).collect();
        workers.each(found.len(), &|at| {
            if let (Some((_, id)), Some(slot)) = (found.get(at), headers.get(at)) {
                let header = files.source(*id).and_then(|source| source.described());
                let _ = slot.set(header);
            }
        });
        for ((object, id), header) in found.into_iter().zip(headers) {
            each(id, object, header.into_inner().unwrap_or(Ok(None)))?;
        }
    }
    Ok(())
}

fn scan_object(
    files: &FileSet,
    id: FileId,
    object: &StoredObject,
    header: Option<ObjectHeader>,
    found: &mut ObjectScan,
    bare: &mut Vec<String>,
    unseen: &mut u64,
) -> Result<()> {
    let own = object.facts.class.as_deref().unwrap_or_default();
    let header = match header {
        None => {
            *unseen += 1;
            None
        }
        Some(described) => {
            if described.metadata.is_none() {
                bare.push(object.name.clone());
            }
            described.metadata.map(|text| ObjectFacts::parse(&text)).transpose()?
        }
    };
    let class = header.as_ref().and_then(|header| header.class.clone());
    let class = class.unwrap_or_else(|| own.to_owned());
    if class != own {
        let (grade, what) = match class.as_str() {
            OBJECT => (Grade::Danger, "The header of a tensor makes the loader unpickle its body"),
            known if CLASSES.contains(&known) => {
                (Grade::Warning, "The header of an object names another class than `__METADATA__`")
            }
            _ => (Grade::UnknownCode, "The header of an object names a class that is not a value"),
        };
        found.findings.push(
            Finding::new(grade, format!("{what}: {}", object.name))
                .detail(format!(
                    "`__METADATA__` says {own}, and the header, which the Cerebras library \
                     follows, says {class}."
                ))
                .place(object.name.clone())
                .advice("Do not load this checkpoint."),
        );
    }
    if class == OBJECT {
        let facts = header.unwrap_or_default().or(object.facts.clone());
        let body: Arc<dyn ReadAt> = match facts.compressed {
            Some(true) => Arc::new(Memory::from(prefix::body(files, id, &facts)?)),
            _ => files.structure(id)?,
        };
        found.pickled.push((object.name.clone(), body));
    }
    Ok(())
}

/// Compares each object with its header and with `__METADATA__`. There are no checksums.
fn checks(_: &Checkpoint, files: &FileSet, limits: &Limits) -> Result<Option<Checks>> {
    let mut checks = Checks::default();
    let objects = prefix::entries(files, limits)?.objects(prefix::address(files));
    described(files, &objects, &mut |_, _| Ok(()), |id, object, header| {
        let mut problems = Vec::new();
        let compared = header.and_then(|header| compare(files, id, object, header, &mut problems));
        if let Err(error) = compared {
            if error.kind() == ErrorKind::Cancelled {
                return Err(error);
            }
            problems.push(error);
        }
        let problems = problems.into_iter().map(|error| error.in_file(files.name(id)));
        checks.broken.extend(problems.map(|error| (object.name.clone(), error)));
        Ok(())
    })?;
    Ok(Some(checks))
}

/// Adds the faults of an object, its header, and its frame.
fn compare(
    files: &FileSet,
    id: FileId,
    object: &StoredObject,
    described: Option<ObjectHeader>,
    problems: &mut Vec<Error>,
) -> Result<()> {
    let len = described.as_ref().map_or_else(|| files.len(id), |described| described.len);
    let mut facts = object.facts.clone();
    if described.is_none() {
        facts = facts.without_header(object.linked, len);
    }
    if let Some(described) = described {
        match described.metadata.map(|text| ObjectFacts::parse(&text)) {
            None => problems.push(
                Error::damaged(
                    "its header `metadata` is missing, so the Cerebras library can't read it",
                )
                .advice("Copy the checkpoint with a tool that keeps the user metadata of objects."),
            ),
            Some(Err(error)) => problems.push(error),
            Some(Ok(header)) => {
                if header.numpy.is_none() && !header.rtfx && header.class.as_deref() != Some(OBJECT)
                {
                    problems.push(Error::damaged(
                        "its header has no `__NUMPY__`, so the Cerebras library can't read it",
                    ));
                }
                problems.extend(contradictions(&header, &object.facts));
                facts = header.or(facts);
            }
        }
    }
    let needed = match facts.class.as_deref() {
        Some(OBJECT) => facts.plain_len,
        _ => facts.elements_len(),
    };
    let differs = |what: &str, is: u64, should: u64| {
        Error::damaged(format!("{what} has {is} bytes")).expected(format!("{should} bytes"))
    };
    if let Some(stored) = facts.stored_len.filter(|stored| *stored != len) {
        problems.push(differs("the object", len, stored));
    }
    if let (Some(needed), Some(plain)) = (needed, facts.plain_len)
        && needed != plain
    {
        problems.push(
            Error::damaged(format!("its `data_sizes` is {plain} bytes"))
                .expected(format!("{needed} bytes by its shape and dtype")),
        );
    }
    match facts.compressed {
        Some(true) => frame::check(files, id, len, needed, problems)?,
        _ => problems.extend(
            needed
                .filter(|needed| {
                    *needed != len && facts.stored_len.is_none_or(|stored| stored == len)
                })
                .map(|needed| differs("the object", len, needed)),
        ),
    }
    Ok(())
}

/// Returns what the header of an object and `__METADATA__` say differently.
fn contradictions(header: &ObjectFacts, own: &ObjectFacts) -> Vec<Error> {
    let mut found = Vec::new();
    let mut add = |what: &str, one: Option<String>, other: Option<String>| {
        if let (Some(one), Some(other)) = (one, other)
            && one != other
        {
            found.push(
                Error::damaged(format!("its header says {what} {one}"))
                    .expected(format!("{other}, as in `__METADATA__`")),
            );
        }
    };
    let shape = |shape: &Option<Vec<u64>>| shape.as_ref().map(|shape| format!("{shape:?}"));
    let number = |number: Option<u64>| number.map(|number| number.to_string());
    let numpy = |facts: &ObjectFacts| {
        facts.numpy.as_ref().map(|(shape, dtype)| format!("{dtype} {shape:?}"))
    };
    add("`__TYPE__`", header.class.clone(), own.class.clone());
    add("shape", shape(&header.shape), shape(&own.shape));
    let dtype = |facts: &ObjectFacts| facts.dtype.as_ref().map(ToString::to_string);
    add("dtype", dtype(header), dtype(own));
    add("`__NUMPY__`", numpy(header), numpy(own));
    let flag = |flag: Option<bool>| flag.map(|flag| flag.to_string());
    add("`compressed`", flag(header.compressed), flag(own.compressed));
    add("`data_sizes`", number(header.plain_len), number(own.plain_len));
    add("`boundaries`", number(header.stored_len), number(own.stored_len));
    found
}
