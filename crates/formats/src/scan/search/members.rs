//! The members of a zip archive, and anomalies in the archive.

use std::borrow::Cow;

use foldhash::{HashMap, HashMapExt, HashSet};
use statelens_checkpoint::{Finding, Grade, Result, counted, order, try_alloc};
use statelens_tensor::crc;

use super::super::section::some;
use super::super::zip::{self, Directory, Local, ZipEntry};
use super::{Blob, Container, READ, Search, storages};

/// The maximum length of a pickle whose checksum is verified.
const MAX_CHECKED: u64 = 16 << 20;

pub(super) fn examine(search: &mut Search<'_>, blob: &Blob, directory: Directory) -> Result<()> {
    let (mut entries, mut listed) = (Vec::new(), Ok(()));
    let source = blob.source.clone();
    zip::entries(&source, directory, &mut |entry| {
        let may = search.may_enter(blob, entry.name.len());
        if may {
            listed = try_alloc::push(&mut entries, entry);
        }
        may && listed.is_ok()
    });
    listed?;
    oddities(search, blob, &entries);
    storages::remember(search, blob, &entries);
    if let Some(first) = entries.iter().map(|entry| entry.header).min().filter(|first| *first > 0)
        && blob.root
        && !some(&*blob.source, 0, 4)?.starts_with(zip::LOCAL)
    {
        search.report(
            blob,
            vec![
                Finding::new(Grade::Warning, "There are bytes before the archive")
                    .detail(
                        "torch refuses a file that does not begin with the archive; other \
                             programs accept it.",
                    )
                    .place(format!("byte {}", blob.base + first)),
            ],
        );
    }
    for entry in &entries {
        member(search, blob, entry)?;
    }
    Ok(())
}

/// Examines a member that has only a local header, without a directory.
pub(super) fn orphan(search: &mut Search<'_>, blob: &Blob, at: u64) {
    if !search.is_new(Container::Local, blob, at, 0) {
        return;
    }
    let Some(local) = zip::local(&*blob.source, at) else { return };
    if let Ok(Some(packing)) = local.packing {
        let len = if local.stored > 0 { local.stored } else { blob.source.len() };
        let name = String::from_utf8_lossy(&local.name).into_owned();
        search.packed(blob, &name, local.start, len, packing);
    }
}

fn member(search: &mut Search<'_>, blob: &Blob, entry: &ZipEntry) -> Result<()> {
    let name = String::from_utf8_lossy(&entry.name);
    search.is_new(Container::Local, blob, entry.header, 0);
    let Some(local) = zip::local(&*blob.source, entry.header) else {
        search.report(
            blob,
            vec![
                Finding::new(Grade::Damage, "A member of the archive is not where it should be")
                    .detail(format!("Its name is {name:?}; no loader could read it."))
                    .place(format!("byte {}", blob.base + entry.header)),
            ],
        );
        return Ok(());
    };
    disagreement(search, blob, entry, &local, &name);
    if entry.stored > blob.source.len().saturating_sub(local.start) && !blob.cut {
        search.report(
            blob,
            vec![
                Finding::new(Grade::Damage, "A member of the archive runs past the end")
                    .detail(format!("Its name is {name:?}. The file may be cut short."))
                    .place(format!("byte {}", blob.base + local.start)),
            ],
        );
    }
    let stored = if local.stored > 0 { local.stored } else { entry.stored };
    // As described by either header: readers that stream the archive from its start only see the
    // local ones.
    for (packing, len) in [(&entry.packing, entry.stored), (&local.packing, stored)] {
        match packing {
            Ok(None) => {
                checksum(search, blob, entry, &local, &name)?;
                search.part(blob, &name, local.start, len);
            }
            Ok(Some(packing)) => search.packed(blob, &name, local.start, len, *packing),
            Err(why) => {
                let part = blob.part(&name, local.start, 0);
                search.unseen(
                    &part,
                    &format!("{name:?}"),
                    &format!("The member of the archive {why}."),
                );
            }
        }
    }
    Ok(())
}

fn disagreement(search: &mut Search<'_>, blob: &Blob, entry: &ZipEntry, local: &Local, name: &str) {
    let other = String::from_utf8_lossy(&local.name);
    let lengths = local.stored > 0 && local.stored != entry.stored;
    let what = match () {
        () if local.name != entry.name => format!("{name:?} is {other:?} there"),
        () if local.packing != entry.packing => format!("{name:?} is packed in another way"),
        () if lengths => format!("{name:?} has another length"),
        () => return,
    };
    search.report(
        blob,
        vec![
            Finding::new(
                Grade::Warning,
                "The archive's directory and the header of a member disagree",
            )
            .detail(format!(
                "In the header, {what}. Both were examined: readers choose differently."
            ))
            .place(format!("byte {}", blob.base + entry.header)),
        ],
    );
}

/// Reports a stored pickle with a wrong checksum; 0 means unknown.
fn checksum(
    search: &mut Search<'_>,
    blob: &Blob,
    entry: &ZipEntry,
    local: &Local,
    name: &str,
) -> Result<()> {
    if !name.ends_with(".pkl") || entry.crc == 0 || entry.stored > MAX_CHECKED {
        return Ok(());
    }
    // Several directories may list one member many times.
    if !search.spend(entry.stored * READ) {
        return Ok(());
    }
    let bytes = some(&*blob.source, local.start, entry.stored)?;
    if crc::crc32(0, &bytes) != entry.crc {
        let base = name.rsplit('/').next().unwrap_or(name);
        let finding = Finding::new(Grade::Damage, format!("The checksum of {base} is wrong"))
            .detail("The structure of the checkpoint has changed since it was written.")
            .advice("Fetch the file again.");
        search.report(blob, vec![finding.place(name.to_owned())]);
    }
    Ok(())
}

/// Reports anomalies in the names of the members.
fn oddities(search: &mut Search<'_>, blob: &Blob, entries: &[ZipEntry]) {
    let names: Vec<Cow<'_, str>> =
        entries.iter().map(|entry| String::from_utf8_lossy(&entry.name)).collect();
    let mut findings = Vec::new();
    let mut by_lower: HashMap<Cow<'_, str>, &str> = HashMap::with_capacity(names.len());
    for name in &names {
        match by_lower.insert(lowercase(name), name) {
            Some(other) if other == name => findings.push(
                Finding::new(Grade::Damage, "Two members of the archive have the same name")
                    .detail(format!(
                        "Both are {name:?}; readers disagree about which of them counts."
                    ))
                    .advice("Do not trust the file."),
            ),
            Some(other) => findings.push(
                Finding::new(Grade::Warning, "Names in the archive differ in capitals only")
                    .detail(format!(
                        "{other:?} and {name:?}: torch confuses them. Both were examined."
                    )),
            ),
            None => {}
        }
    }
    let pickles = names.iter().filter_map(|name| name.strip_suffix("data.pkl"));
    let roots: HashSet<&str> =
        pickles.filter(|root| root.ends_with('/') && root.matches('/').count() == 1).collect();
    if roots.len() > 1 {
        let mut roots: Vec<&str> = roots.into_iter().collect();
        order::natural(&mut roots);
        findings.push(
            Finding::new(Grade::Warning, "The archive holds more than one checkpoint")
                .detail(format!("In {}; all were examined.", roots.join(", "))),
        );
    }
    findings.extend(code(&names));
    findings.truncate(100);
    search.report(blob, findings);
}

/// Returns the name in lower case, without a copy if it is.
fn lowercase(name: &str) -> Cow<'_, str> {
    match name.bytes().any(|byte| byte.is_ascii_uppercase() || !byte.is_ascii()) {
        true => name.to_lowercase().into(),
        false => name.into(),
    }
}

/// Returns a finding for Python code in the archive.
fn code(names: &[Cow<'_, str>]) -> Option<Finding> {
    let python: Vec<&str> =
        names.iter().map(AsRef::as_ref).filter(|name| name.ends_with(".py")).collect();
    let first = python.first()?;
    if names.iter().any(|name| name.ends_with(".data/extern_modules")) {
        return Some(
            Finding::new(
                Grade::UnknownCode,
                "The archive contains Python code that loading would run",
            )
            .detail(format!(
                "It was made by `torch.package`: {first:?}{} would be run as a module when \
                 something in it is loaded.",
                others(python.len())
            ))
            .advice("Read the code before you load it."),
        );
    }
    let script = |name: &&&str| name.contains("/code/") || name.starts_with("code/");
    let count = python.iter().filter(script).count();
    (count > 0 && names.iter().any(|name| name.ends_with("constants.pkl"))).then(|| {
        Finding::new(Grade::Note, "The archive holds the code of a TorchScript model").detail(
            format!(
                "{} in the folder `code`. torch compiles it for its own interpreter, which calls \
                 torch's operators and those that the loading program has registered, but no other \
                 Python. It runs when the model is called.",
                counted(count as u64, "file")
            ),
        )
    })
}

fn others(count: usize) -> String {
    match count {
        1 => String::new(),
        2 => " and one more".to_owned(),
        count => format!(" and {} more", count - 1),
    }
}
