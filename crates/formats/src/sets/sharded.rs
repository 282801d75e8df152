//! Shards that are complete checkpoints themselves: `model-00001-of-00003.safetensors` etc., with
//! or without `model.safetensors.index.json`.
//!
//! The Hugging Face libraries split large models in this way, both safetensors and PyTorch:
//! <https://huggingface.co/docs/transformers/big_models>. The index maps tensors to shards. Its
//! `total_size` is often wrong and only compared.

use std::borrow::Cow;
use std::collections::BTreeSet;

use foldhash::{HashMap, HashMapExt};
use statelens_checkpoint::{
    Checkpoint, Error, ErrorKind, FileId, FileSet, Finding, FindingKind, Grade, Limits, Progress,
    Result, capitalised, in_order, listed, order,
};

use super::join::{Join, places_of};
use super::shard_index::{ShardIndex, check_count, index_stem, is_index};
use super::{CheckpointFiles, UnclaimedNames};
use crate::gguf::{SplitPart, check_set};
use crate::joined::{UnreadFiles, of_content};
use crate::paths::{base, folder};
use crate::safetensors::pieces::ShardName;
use crate::{Probe, formats, not_a_checkpoint};

pub(crate) struct Sharded {
    index: Option<ShardIndex>,
    /// Names of the shards, in order, and their files unless missing.
    shards: Vec<(String, Option<FileId>)>,
    /// Shards of the same numbered family that the index does not name.
    unnamed: Vec<String>,
    /// The finding about an index that is ignored: it can't be read, or all of its shards are
    /// missing.
    ignored: Option<Finding>,
}

impl Sharded {
    /// Returns the set that the main file belongs to, if it is an index or one of several shards.
    pub(crate) fn of(files: &FileSet, limits: &Limits) -> Result<Option<Self>> {
        let main = files.main()?;
        let name = files.name(main);
        if is_index(name) && !not_a_checkpoint::is_pointer(files, main) {
            let index = ShardIndex::read(files, main, limits);
            let indexed = index.map(|index| Self::indexed(files, index));
            let may_ignore = match &indexed {
                Ok(indexed) => indexed.shards.iter().all(|(name, _)| files.find(name).is_none()),
                Err(error) => matches!(error.kind(), ErrorKind::Damaged | ErrorKind::Unsupported),
            };
            if may_ignore && let Some(shards) = complete(files, name) {
                let ignored = Some(ignored(name, indexed.as_ref().err()));
                return Ok(Some(Self { index: None, shards, unnamed: Vec::new(), ignored }));
            }
            let explained = |error: Error| {
                let set = files.opened_at(main);
                let probe = Probe::new(&set).ok().filter(not_a_checkpoint::is_stand_in);
                probe.map_or_else(|| error.in_file(name), |probe| not_a_checkpoint::explain(&probe))
            };
            return indexed.map(Some).map_err(explained);
        }
        let number = Number::parse(name);
        // Shards can have any name, but those in an index have one of these extensions.
        if number.is_none() && !extensions().any(|extension| has_extension(name, extension)) {
            return Ok(None);
        }
        let is_near = |other: &str| is_index(other) && folder(other) == folder(name);
        if files.any_name("json", is_near) {
            let indexes = files.names().filter(|(_, other)| is_near(other));
            for (id, _) in indexes.take(MAX_INDEXES) {
                // An index that can't be read is ignored.
                if let Ok(index) = ShardIndex::read(files, id, limits)
                    && index.shards.iter().any(|shard| shard == name)
                {
                    return Ok(Some(Self::indexed(files, index)));
                }
                files.source(id)?.release();
            }
        }
        let Some(number) = number else { return Ok(None) };
        check_count(number.count, limits)?;
        let shards = number.all(|name| files.find(name).is_some());
        let shards = shards.map(|name| (shard(files, &name), name)).map(|(id, name)| (name, id));
        let shards = shards.collect();
        let numbered = Self { index: None, shards, unnamed: Vec::new(), ignored: None };
        Ok(Some(numbered).filter(|_| number.count > 1))
    }

    /// Returns whether the main file is the index of shards, whether or not they are there.
    pub(crate) fn is_index(files: &FileSet, limits: &Limits) -> bool {
        let is_named = files.main().is_ok_and(|main| is_index(files.name(main)));
        is_named
            && Self::of(files, limits).is_ok_and(|set| set.is_some_and(|set| set.index.is_some()))
    }

    fn indexed(files: &FileSet, index: ShardIndex) -> Self {
        let shards = index.shards.iter().map(|name| (name.clone(), shard(files, name))).collect();
        let unnamed = unnamed(files, &index.shards);
        Self { index: Some(index), shards, unnamed, ignored: None }
    }

    /// Returns the shards that are not missing, each as a set of all files with the shard as main
    /// file.
    pub(crate) fn parts(&self, files: &FileSet) -> impl Iterator<Item = (&str, FileSet)> {
        self.shards.iter().filter_map(|(name, id)| Some((name.as_str(), files.opened_at((*id)?))))
    }

    /// Opens every shard with its own reader and joins them.
    pub(crate) fn open(
        &self,
        files: &FileSet,
        limits: &Limits,
        progress: &mut dyn Progress,
    ) -> Result<Checkpoint> {
        check_count(self.shards.len() as u64, limits)?;
        let missing = self.missing();
        if missing.len() == self.shards.len() {
            if let Some(id) = missing.iter().find_map(|name| files.find(name)) {
                // A file that is not a shard explains more than the list of missing files.
                return Err(not_a_checkpoint::explain(&Probe::new(&files.opened_at(id))?));
            }
            return Err(Error::damaged(format!(
                "this is an index; the weights are in {}, which were not given",
                listed(&missing, 5)
            ))
            .advice("Put the files next to the index, or open them all together."));
        }
        let there = self.shards.iter().filter_map(|(_, id)| *id);
        let size = there.fold(0u64, |sum, id| sum.saturating_add(files.len(id)));
        let index = self.index.as_ref();
        let mut join = Join::new(&limits.fitted(size), index.map(|index| &index.keys));
        let mut parts = Vec::new();
        let there: Vec<(usize, &str, FileId)> = (0..)
            .zip(&self.shards)
            .filter_map(|(at, (name, id))| Some((at, name.as_str(), (*id)?)))
            .collect();
        let open = |number: usize, progress: &mut dyn Progress| {
            let id = there[number].2;
            let part = crate::open_one(files.opened_at(id), limits, progress);
            let part = match of_content(files, id, part)? {
                Ok(part) => part,
                Err(error) => return Ok(Err(error)),
            };
            // Looked up here, on several threads.
            let places = index.map_or_else(Vec::new, |index| places_of(&part, &index.keys));
            Ok(Ok((part, places)))
        };
        // The name of the file in which the index has the key at this place.
        let owner = |place: u32| {
            let (_, shard) = index?.keys.get_index(place as usize)?;
            Some(self.shards.get(*shard as usize)?.0.as_str())
        };
        let mut unread = UnreadFiles::default();
        in_order(files.workers(), there.len(), progress, open, |number, part| {
            let (at, name, id) = there[number];
            let (part, places) = match part {
                Ok(part) => part,
                Err(error) => {
                    unread.add(id, error);
                    return Ok(());
                }
            };
            parts.extend(SplitPart::of(&part).map(|part| (name, at, part)));
            join.add(name, part, places, owner)
        })?;
        if let Some(error) = unread.first().filter(|_| join.is_empty()) {
            return Err(error.clone());
        }
        if let Some(index) = &self.index {
            index.check(&self.shards, &unread, &mut join)?;
        }
        if self.index.is_none() {
            for finding in check_set(&parts, self.shards.len()) {
                join.finding(finding);
            }
        }
        for finding in self.findings(&unread).into_iter().chain(unread.findings(files)) {
            join.finding(finding);
        }
        let mut facts = vec![("Shards".to_owned(), self.shards.len().to_string())];
        if let Some(index) = &self.index {
            facts.push(("Index".into(), index.name.clone()));
            facts.extend(index.facts.iter().cloned());
        }
        let has_hidden = join.has_twice();
        let joined = join.finish(facts, files.clone())?;
        let mut joined = joined.ok_or_else(|| Error::damaged("none of the shards was found"))?;
        if let Some(index) = &self.index {
            let is_whole = missing.is_empty() && unread.first().is_none();
            joined.findings.extend(index.other_size(&joined, has_hidden).filter(|_| is_whole));
            joined.findings.extend(index.single_file(files));
        }
        Ok(joined)
    }

    /// Returns findings about shards that are missing or among `unread`, shards that the index does not name, and an index
    /// that is ignored.
    pub(crate) fn findings(&self, unread: &UnreadFiles) -> Vec<Finding> {
        let unnamed = (!self.unnamed.is_empty()).then(|| {
            let title = match self.unnamed.as_slice() {
                [one] => format!("The index does not name the shard {one}"),
                more => format!("The index does not name {} shards: {}", more.len(), listed(more, 5)),
            };
            Finding::new(Grade::Damage, title)
                .detail("It is numbered like the others. Its tensors are not in the checkpoint, \
                         and libraries that follow the index do not load them.")
                .advice("Fetch the index again, or delete it: the shards are then opened by their numbers.")
        });
        self.missing_shards(unread).into_iter().chain(self.ignored.clone()).chain(unnamed).collect()
    }

    fn missing_shards(&self, unread: &UnreadFiles) -> Option<Finding> {
        let is_unread = |id: &Option<FileId>| id.is_some_and(|id| unread.has(id));
        let lacking: Vec<_> =
            self.shards.iter().filter(|(_, id)| id.is_none() || is_unread(id)).collect();
        let damaged = lacking.iter().filter(|(_, id)| is_unread(id)).count();
        let missing: Vec<String> = lacking.iter().map(|(name, _)| name.clone()).collect();
        let verb = match (missing.len() - damaged, damaged) {
            (0, 0) => return None,
            (_, 0) => "are missing",
            (0, _) => "can't be read",
            _ => "are missing or can't be read",
        };
        let detail = match self.index {
            Some(_) => {
                "The index names the tensors in them, so they are listed; their dtypes, shapes and \
                 values are not known."
            }
            None => "Their names follow from those of the others; their content is not known.",
        };
        let (count, all) = (missing.len(), self.shards.len());
        let title = format!("{count} of {all} shards {verb}: {}", listed(&missing, 5));
        let kind = match self.index {
            Some(_) => FindingKind::Other,
            None => FindingKind::UnlistedFiles,
        };
        let advice = match damaged {
            0 => "Put the files next to the others, or open them all together.",
            _ => "Fetch the files again.",
        };
        let finding = Finding::new(Grade::Damage, title).detail(detail).advice(advice);
        Some(finding.missing(missing).kind(kind))
    }

    fn missing(&self) -> Vec<String> {
        let missing = self.shards.iter().filter(|(_, id)| id.is_none());
        missing.map(|(name, _)| name.clone()).collect()
    }
}

/// Returns the finding about an index that is ignored, because of an error or since it names only
/// other files.
fn ignored(index: &str, error: Option<&Error>) -> Finding {
    let (grade, title, why) = match error {
        Some(error) => (
            Grade::Damage,
            format!("The index {index} can't be read"),
            capitalised(&error.to_string()),
        ),
        None => (
            Grade::Warning,
            format!("The index {index} names other files"),
            "None of them exists.".to_owned(),
        ),
    };
    Finding::new(grade, title)
        .detail(format!(
            "{why} The numbered shards next to it are complete and were opened without it. \
             Libraries follow the index and refuse the folder."
        ))
        .advice("Delete the index, or fetch the one of these shards.")
        .refused()
}

/// Returns the shards of the complete numbered set with the name of the index. Returns `None` if
/// no set or several sets match.
fn complete(files: &FileSet, index: &str) -> Option<Vec<(String, Option<FileId>)>> {
    let (stem, variant) = index_stem(index);
    let (stem, extension) = stem.rsplit_once('.').unwrap_or((stem, ""));
    let mut found: Option<Vec<(String, Option<FileId>)>> = None;
    for (_, name) in files.names() {
        let Some(number) = Number::parse(name) else { continue };
        let variant = if variant.is_empty() { String::new() } else { format!(".{variant}") };
        let named = number.stem.strip_prefix(stem).is_some_and(|rest| rest == variant);
        if !named || number.extension != extension || number.at > 1 {
            continue;
        }
        let shards = number.all(|name| files.find(name).is_some());
        let shards: Option<Vec<_>> =
            shards.map(|name| shard(files, &name).map(|id| (name, Some(id)))).collect();
        match (&found, shards) {
            (_, None) => {}
            (None, shards) => found = shards,
            (Some(known), Some(shards)) if *known == shards => {}
            (Some(_), Some(_)) => return None,
        }
    }
    found
}

/// Returns shards of the same numbered families that the index does not name.
fn unnamed(files: &FileSet, named: &[String]) -> Vec<String> {
    let numbers = named.iter().filter_map(|name| Number::parse(name));
    let families: BTreeSet<String> = numbers.map(|number| number.family()).collect();
    if families.is_empty() {
        return Vec::new();
    }
    let names = files.names().map(|(_, name)| name);
    let is_unnamed = |name: &&str| {
        Number::parse(name).is_some_and(|number| families.contains(&number.family()))
            && named.binary_search_by(|known| known.as_str().cmp(name)).is_err()
    };
    let mut unnamed: Vec<&str> = names.filter(is_unnamed).collect();
    order::natural(&mut unnamed);
    unnamed.into_iter().map(str::to_owned).collect()
}

/// Finds the shard with this name, if a format claims it.
fn shard(files: &FileSet, name: &str) -> Option<FileId> {
    files.find(name).filter(|id| crate::is_claimed(&files.opened_at(*id)))
}

/// Finds the sharded checkpoints among many files.
pub(super) fn find(names: &UnclaimedNames<'_>) -> Vec<CheckpointFiles> {
    let mut sets: Vec<CheckpointFiles> = Vec::new();
    let mut shards: Vec<Vec<&str>> = Vec::new();
    let mut families: HashMap<String, usize> = HashMap::new();
    for name in names.iter() {
        let Some(number) = Number::parse(name) else { continue };
        let family = *families.entry(number.family()).or_insert(shards.len());
        if family == shards.len() {
            shards.push(Vec::new());
        }
        shards[family].push(name);
    }
    // The content of an index determines its shards. For numbered shards, a matching name is
    // enough.
    for name in names.iter().filter(|name| is_index(name)) {
        let (stem, variant) = index_stem(name);
        let (stem, extension) = stem.rsplit_once('.').unwrap_or((stem, ""));
        let stem = if variant.is_empty() { stem.to_owned() } else { format!("{stem}.{variant}") };
        let mut members = vec![name.to_owned()];
        for family in &mut shards {
            let number = family.first().and_then(|name| Number::parse(name));
            let is_named = number.is_some_and(|number| {
                number.stem == stem && (extension.is_empty() || number.extension == extension)
            });
            if is_named {
                members.extend(std::mem::take(family).into_iter().map(String::from));
            }
        }
        order::natural(&mut members);
        let called = format!("{}.{extension}", base(&stem));
        sets.push(CheckpointFiles { name: called, main: name.to_owned(), members });
    }
    for members in shards {
        let Some(number) = members.first().and_then(|name| Number::parse(name)) else { continue };
        if number.count > 1 {
            sets.push(CheckpointFiles {
                name: format!("{}.{}", base(number.stem), number.extension),
                main: members[0].to_owned(),
                members: members.into_iter().map(str::to_owned).collect(),
            });
        }
    }
    sets
}

/// Returns whether the content of an index may name this file. Shards can have any name, but those in
/// an index have an extension of a format that is split into shards.
pub(super) fn may_be_named(index: &str, name: &str) -> bool {
    let is_shard = || extensions().any(|extension| has_extension(name, extension));
    is_index(index) && name.starts_with(folder(index)) && is_shard()
}

/// Returns the names of the files in an index; empty if it can't be read as an index.
pub(super) fn named(files: &FileSet, name: &str) -> Vec<String> {
    let index = files.find(name).filter(|_| is_index(name));
    let shards = index.and_then(|id| ShardIndex::shards(files, id, &Limits::default()).ok());
    shards.unwrap_or_default()
}

/// Returns the names in folders below that the indexes of a set give to shards. Empty for files
/// that are neither shards nor indexes.
pub(super) fn below(files: &FileSet) -> Vec<String> {
    let Some(name) = files.main().ok().map(|id| files.name(id)) else { return Vec::new() };
    let is_shard = extensions().any(|extension| has_extension(name, extension));
    let is_near = |other: &str| is_index(other) && folder(other) == folder(name);
    let has_index = is_index(name) || is_shard && files.any_name("json", is_near);
    if !has_index {
        return Vec::new();
    }
    let indexes = files.names().filter(|(_, other)| match is_index(name) {
        true => *other == name,
        false => is_near(other),
    });
    let mut found = BTreeSet::new();
    for (id, _) in indexes.take(MAX_INDEXES) {
        // Few indexes name folders, and this is faster than parsing them.
        if !has_slash(files, id).unwrap_or(false) {
            continue;
        }
        let shards = ShardIndex::shards(files, id, files.limits());
        let top = folder(files.name(id)).len();
        found.extend(shards.into_iter().flatten().filter(|shard| shard[top..].contains('/')));
    }
    found.into_iter().collect()
}

/// Returns whether a file has a slash. Takes no memory for its content.
fn has_slash(files: &FileSet, id: FileId) -> Result<bool> {
    let mut buffer = vec![0; SEARCHED];
    let (mut at, end) = (0, files.len(id).min(files.limits().structure));
    while at < end {
        let len = (end - at).min(SEARCHED as u64);
        let piece = &mut buffer[..len as usize];
        files.read(id, at, piece)?;
        if memchr::memchr(b'/', piece).is_some() {
            return Ok(true);
        }
        at += len;
    }
    Ok(false)
}

/// Bytes of an index that are searched at once.
const SEARCHED: usize = 1 << 20;

/// Returns the shards in an index that are numbered under its name in its own folder, as the
/// Hugging Face libraries and Statelens write them: `STEM-00001-of-00003.EXTENSION` in
/// `STEM.EXTENSION.index.json`. Includes the second names that shards have while their set is
/// replaced.
pub(super) fn numbered_shards(files: &FileSet, index: &str) -> Vec<String> {
    let (stem, variant) = index_stem(index);
    let (stem, extension) = stem.rsplit_once('.').unwrap_or((stem, ""));
    let dot = if variant.is_empty() { "" } else { "." };
    let stem = format!("{stem}{dot}{variant}");
    let is_own = |name: &str| {
        let name = first_name(name);
        Number::split(&name).is_some_and(|number| {
            (number.stem, number.extension) == (stem.as_str(), extension)
                && number.separator == '-'
                && number.digits >= 5
                && number.of.len() >= 5
        })
    };
    let mut names = named(files, index);
    names.retain(|name| is_own(name));
    names
}

/// The part of a shard's second name before the number of the process that gave it:
/// `model-00001-of-00003.statelens-4711.safetensors`.
pub const SECOND_NAME: &str = ".statelens-";

/// Returns the name that a shard had before it got a second one.
fn first_name(name: &str) -> Cow<'_, str> {
    let first = name.rsplit_once('.').and_then(|(rest, extension)| {
        let (stem, process) = rest.rsplit_once(SECOND_NAME)?;
        let is_number = !process.is_empty() && process.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| format!("{stem}.{extension}"))
    });
    first.map_or(Cow::Borrowed(name), Cow::Owned)
}

fn has_extension(name: &str, extension: &str) -> bool {
    name.strip_suffix(extension).is_some_and(|stem| stem.ends_with('.'))
}

/// The maximum number of indexes that are read to find that of a shard.
const MAX_INDEXES: usize = 16;

/// Returns the extensions of formats that are split into numbered shards.
fn extensions() -> impl Iterator<Item = &'static str> {
    formats().flat_map(|format| format.shard_extensions).copied()
}

/// The maximum number of shards of a set that is known by its numbers.
const MAX_NUMBERED: u64 = 999_999;

/// The parts of a shard's name, `STEM-00001-of-00003.EXTENSION`, `STEM-1-of-3.EXTENSION` etc.
#[derive(Debug, PartialEq, Eq)]
struct Number<'a> {
    /// Includes the folder, but not the separator.
    stem: &'a str,
    separator: char,
    at: u64,
    /// The number of digits of `at`, including leading zeros.
    digits: usize,
    count: u64,
    /// The digits of `count`.
    of: &'a str,
    extension: &'a str,
}

impl<'a> Number<'a> {
    /// Parses the name of a shard of a format that is split into such files.
    fn parse(name: &'a str) -> Option<Self> {
        // The files of ranks are pieces of tensors, which their own reader joins.
        let number = Self::split(name).filter(|_| ShardName::parse(name).is_none());
        number.filter(|number| extensions().any(|known| known == number.extension))
    }

    fn split(name: &'a str) -> Option<Self> {
        let (rest, extension) = name.rsplit_once('.')?;
        let (rest, of) = rest.rsplit_once("-of-")?;
        let cut = rest.rfind(|c: char| !c.is_ascii_digit())?;
        let separator = rest[cut..].chars().next().filter(|c| matches!(c, '-' | '_'))?;
        let (stem, at) = (&rest[..cut], &rest[cut + 1..]);
        let digits = at.len();
        if digits > 20 || stem.is_empty() {
            return None;
        }
        let (at, count): (u64, u64) = (at.parse().ok()?, of.parse().ok()?);
        (at <= count && count <= MAX_NUMBERED).then_some(Self {
            stem,
            separator,
            at,
            digits,
            count,
            of,
            extension,
        })
    }

    fn name(&self, at: u64, digits: usize) -> String {
        let Self { stem, separator, of, extension, .. } = self;
        format!("{stem}{separator}{at:0digits$}-of-{of}.{extension}")
    }

    /// Returns the common part of all shards' names.
    fn family(&self) -> String {
        format!("{}{}*-of-{}.{}", self.stem, self.separator, self.of, self.extension)
    }

    /// Returns the names of all shards. Most sets count from 1, some from 0.
    fn all(&self, is_there: impl Fn(&str) -> bool) -> impl Iterator<Item = String> {
        // `10-of-12` does not show whether the first is `01-of-12` or `1-of-12`.
        let is_full = self.digits > 1 && self.at.to_string().len() == self.digits;
        let digits = match is_full && (0..10).any(|at| is_there(&self.name(at, 1))) {
            true => 1,
            false => self.digits,
        };
        let zero = self.at == 0 || is_there(&self.name(0, digits));
        let first = u64::from(!zero);
        (first..first + self.count).map(move |at| self.name(at, digits))
    }
}
