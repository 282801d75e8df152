//! Reads the files of all ranks side by side, and joins their tensors.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use statelens_checkpoint::json::Document;
use statelens_checkpoint::{
    Builder, ByteOrder, Checkpoint, Dict, DictKey, FileId, FileSet, Finding, FormatInfo, Grade,
    Key, Layout, Limits, Progress, Result, Span, Tensor, TensorId, Text, Value, ValueId, counted,
    in_order, listed,
};

use super::names::{RankName, ranks};
use super::placement::{Cut, Descriptions, HeldPart, RankPart};
use crate::joined::{self, JoinedTensor, Joining, Piece, UnreadFiles};
use crate::paths::folder;
use crate::torch;

/// The states that are read with the model.
const FURTHER: [&str; 2] = ["optim", EXTRA];
/// The name of the state that differs in each rank.
const EXTRA: &str = "extra_state";
/// The maximum number of ranks.
const MAX_RANKS: u64 = 1 << 16;

pub(crate) fn read(
    files: FileSet,
    limits: &Limits,
    progress: &mut dyn Progress,
) -> Result<Checkpoint> {
    let main = files.main()?;
    let name = RankName::guess(files.name(main));
    let state = name.and_then(|name| name.state()).unwrap_or("model");
    let mut set = RankSet::of(&files, main);
    let mut reading = Reading::new(&files, limits);
    reading.config(&set);
    let mut whole = match state {
        EXTRA => reading.each(&mut set, progress)?,
        _ => reading.join(&mut set, "", progress)?,
    };
    if let Some(name) = name.filter(|_| state == "model") {
        for key in FURTHER {
            let Some(other) = further(&files, &name, key) else { continue };
            let mut set = RankSet::of(&files, other);
            let part = match key {
                EXTRA => reading.each(&mut set, progress),
                _ => reading.join(&mut set, &format!("{key}."), progress),
            };
            match joined::of_content(&files, other, part)? {
                Ok(part) => whole = append(whole, &part, key)?,
                // The model can be used without them.
                Err(error) => {
                    let title = format!("The state {key} can't be read");
                    reading.findings.push(crate::unreadable_parts::finding(title, &error));
                }
            }
        }
    }
    reading.finish(whole, &set)
}

/// Returns the first file of the ranks with another state, `optim_world_size_8_rank_0.pt`.
fn further(files: &FileSet, model: &RankName<'_>, stem: &str) -> Option<FileId> {
    let is_other = |name: &str| {
        RankName::parse(name).is_some_and(|other| {
            other.state() == Some(stem)
                && other.world() == model.world()
                && folder(other.before) == folder(model.before)
        })
    };
    model.world()?;
    files.names().find(|(_, name)| is_other(name)).map(|(id, _)| id)
}

/// Adds a further state to the root, under `key`.
fn append(whole: Checkpoint, part: &Checkpoint, key: &str) -> Result<Checkpoint> {
    let mut builder = whole.edit();
    let id = builder.append(part)?;
    builder.set_outside_state(id, true);
    if let Some(Value::Dict(dict)) = builder.value_mut(whole.root()) {
        dict.entries.push((DictKey::from(key), id));
    }
    builder.rebuild(&whole)
}

/// The files of one state.
struct RankSet {
    files: BTreeMap<u64, FileId>,
    /// The rank after the last one whose file can't be read; 0 if all can.
    unread: u64,
    /// The number of ranks in the names; 0 if they do not say it.
    world: u64,
}

impl RankSet {
    fn of(files: &FileSet, main: FileId) -> Self {
        match RankName::guess(files.name(main)) {
            Some(name) => {
                let world = name.world().filter(|world| *world <= MAX_RANKS).unwrap_or(0);
                let files = ranks(files, &name);
                Self { files, unread: 0, world }
            }
            None => Self { files: BTreeMap::from([(0, main)]), unread: 0, world: 0 },
        }
    }

    fn absent(&self, world: u64) -> BTreeSet<u64> {
        (0..world).filter(|rank| !self.files.contains_key(rank)).collect()
    }

    /// Returns the names of the files of these ranks, if names of files have ranks.
    fn names(&self, files: &FileSet, ranks: &BTreeSet<u64>) -> Vec<String> {
        let known = self.files.values().next().and_then(|id| RankName::guess(files.name(*id)));
        let Some(known) = known else { return Vec::new() };
        ranks.iter().map(|rank| known.of_rank(*rank)).collect()
    }
}

/// The file of one rank.
struct RankFile {
    rank: u64,
    file: FileId,
    checkpoint: Checkpoint,
    /// The distributed tensors, or why their description can't be read.
    parts: HashMap<ValueId, Result<RankPart, String>>,
}

/// A leaf of a rank's file.
struct RankLeaf {
    key: Key,
    id: ValueId,
}

struct Reading<'a> {
    files: &'a FileSet,
    limits: Limits,
    findings: Vec<Finding>,
    replicas: Vec<statelens_checkpoint::Replica>,
    partial: HashMap<Text, Layout>,
    tensors: u64,
    /// The missing ranks, for the line about the checkpoint.
    summary: String,
    mesh: String,
    ranks: u64,
    /// Whether the model's file of only one rank is there.
    is_alone: bool,
    kind: &'static str,
}

impl<'a> Reading<'a> {
    fn new(files: &'a FileSet, limits: &Limits) -> Self {
        Self {
            files,
            limits: limits.clone(),
            findings: Vec::new(),
            replicas: Vec::new(),
            partial: HashMap::new(),
            tensors: 0,
            summary: String::new(),
            mesh: String::new(),
            ranks: 0,
            is_alone: false,
            kind: "FSDP",
        }
    }

    /// Compares the number of ranks with `fsdp_config.json` and with the names of other files.
    fn config(&mut self, set: &RankSet) {
        let Some(first) = set.files.values().next().filter(|_| set.world > 0) else { return };
        let first = self.files.name(*first);
        let top = folder(first);
        let others = self.files.names().filter_map(|(_, name)| {
            let other = RankName::parse(name).filter(|other| folder(other.before) == top)?;
            let world = other.world()?;
            (other.state() == RankName::parse(first)?.state() && world != set.world)
                .then(|| (name.to_owned(), world))
        });
        let other = others.min();
        let config = format!("{top}fsdp_config.json");
        let stated = || {
            let id = self.files.find(&config)?;
            let len = self.files.len(id).min(1 << 16);
            let json = Document::parse(&self.files.read_vec(id, 0, len).ok()?).ok()?;
            json.python(json.get(json.root(), "world_size")?).to_string().parse::<u64>().ok()
        };
        let config_world = stated().filter(|world| *world != set.world);
        let other = other.or(config_world.map(|world| (config, world)));
        if let Some((name, world)) = other {
            self.findings.push(
                Finding::new(
                    Grade::Damage,
                    format!("{first} is of {} ranks, and {name} of {world}", set.world),
                )
                .detail("Files of two runs are in one folder.")
                .advice("Keep the files of one run, or open the other one by its file."),
            );
        }
    }

    /// Opens the files of all ranks side by side, and calls `then` with one after the other. Removes
    /// those that can't be read from the set, and fails if none can.
    fn open(
        &mut self,
        set: &mut RankSet,
        progress: &mut dyn Progress,
        mut then: impl FnMut(&mut Self, RankFile) -> Result<()>,
    ) -> Result<()> {
        let members: Vec<(u64, FileId)> =
            set.files.iter().map(|(rank, file)| (*rank, *file)).collect();
        let (files, limits) = (self.files, self.limits.clone());
        let open = |at: usize, progress: &mut dyn Progress| {
            progress.check(0, 0)?;
            let opened = RankFile::open(files, &limits, members[at]);
            joined::of_content(files, members[at].1, opened)
        };
        let mut unread = UnreadFiles::default();
        in_order(files.workers(), members.len(), progress, open, |at, opened| {
            let (rank, file) = members[at];
            let mut opened = match opened {
                Ok(opened) => opened,
                Err(error) => {
                    unread.add(file, error);
                    set.files.remove(&rank);
                    set.unread = rank.saturating_add(1);
                    return Ok(());
                }
            };
            for mut finding in std::mem::take(&mut opened.checkpoint.findings) {
                finding.place.clear();
                if !self.findings.contains(&finding) {
                    self.findings.push(finding);
                }
            }
            then(self, opened)
        })?;
        match unread.first().filter(|_| set.files.is_empty()) {
            Some(error) => return Err(error.clone()),
            None => self.findings.extend(unread.findings(files)),
        }
        Ok(())
    }

    /// Returns the state of each rank under its number.
    fn each(&mut self, set: &mut RankSet, progress: &mut dyn Progress) -> Result<Checkpoint> {
        let mut builder = Builder::new(&self.limits.fitted(self.size(set)));
        let mut entries = Vec::with_capacity(set.files.len());
        self.open(set, progress, |_, opened| {
            let key = DictKey::from(format!("rank_{}", opened.rank).as_str());
            entries.push((key, builder.absorb(opened.checkpoint)?));
            Ok(())
        })?;
        self.ranks = self.ranks.max(set.files.len() as u64);
        let root = builder.push(Value::Dict(Dict { entries, ..Dict::default() }))?;
        builder.finish(root, FormatInfo::default(), self.files.clone(), Vec::new())
    }

    fn size(&self, set: &RankSet) -> u64 {
        set.files.values().fold(0u64, |sum, id| sum.saturating_add(self.files.len(*id)))
    }

    /// Joins the tensors of all ranks. `prefix` is for the keys in messages.
    fn join(
        &mut self,
        set: &mut RankSet,
        prefix: &str,
        progress: &mut dyn Progress,
    ) -> Result<Checkpoint> {
        let mut base: Option<RankFile> = None;
        let mut leaves: Vec<RankLeaf> = Vec::new();
        let mut found: Vec<Vec<RankTensor>> = Vec::new();
        let mut index: Option<HashMap<Text, usize>> = None;
        let mut odd: Vec<(String, String)> = Vec::new();
        self.open(set, progress, |reading, other| {
            let others = tensor_leaves(&other.checkpoint);
            if base.is_none() {
                found = others.iter().map(|leaf| vec![other.tensor(leaf.id)]).collect();
                (leaves, base) = (others, Some(other));
                return Ok(());
            }
            let name = reading.files.name(other.file);
            let mut seen = 0;
            for (at, leaf) in others.iter().enumerate() {
                let same = leaves.get(at).is_some_and(|known| known.key == leaf.key);
                let place = if same {
                    Some(at)
                } else {
                    let index = index.get_or_insert_with(|| {
                        let keys = leaves.iter().enumerate();
                        keys.map(|(at, leaf)| (leaf.key.flat(), at)).collect()
                    });
                    index.get(&leaf.key.flat()).copied()
                };
                match place {
                    Some(place) => {
                        found[place].push(other.tensor(leaf.id));
                        seen += 1;
                    }
                    None => odd.push((leaf.key.flat().to_string(), name.to_owned())),
                }
            }
            if seen < leaves.len() {
                let lost = leaves.iter().zip(&found);
                let lost = lost.filter(|(_, found)| found.iter().all(|it| it.rank != other.rank));
                let all = format!("all but {name}");
                odd.extend(lost.map(|(leaf, _)| (leaf.key.flat().to_string(), all.clone())));
            }
            Ok(())
        })?;
        let Some(base) = base else {
            return Err(statelens_checkpoint::Error::damaged("there is no file of any rank"));
        };
        self.contradictions(set, &found);
        let world = set.world.max(mesh_size(&found)).max(set.unread);
        let absent = set.absent(world.min(MAX_RANKS));
        let mut missing = joined::ranks(&absent);
        if !missing.is_empty() {
            missing += &format!(" of {world}");
        }
        let mut joining = Joining::new(self.files, missing, set.names(self.files, &absent));
        let mut builder = base.checkpoint.edit();
        // Next to a whole model, an optimizer of one rank is incomplete.
        let may_be_alone = prefix.is_empty() || self.is_alone;
        if may_be_alone && set.files.len() == 1 && set.unread == 0 && !absent.is_empty() {
            self.is_alone = true;
            self.alone(&mut builder, &leaves, &found);
            let kept = joining.alone(&format!("rank {} of {world}", base.rank), leaves.len());
            if prefix.is_empty() {
                (self.summary, self.tensors) = (kept.0, leaves.len() as u64);
                self.findings.push(kept.1);
            }
            self.ranks = self.ranks.max(world);
            return builder.rebuild(&base.checkpoint);
        }
        for (leaf, tensors) in leaves.iter().zip(found) {
            let key = match prefix {
                "" => leaf.key.flat(),
                prefix => format!("{prefix}{}", leaf.key.flat().to_lossy()).as_str().into(),
            };
            self.tensor(&mut builder, &mut joining, leaf.id, &key, tensors);
        }
        if !odd.is_empty() {
            let texts: Vec<String> =
                odd.iter().map(|(key, name)| format!("{prefix}{key} (in {name})")).collect();
            self.findings.push(
                Finding::new(Grade::Damage, "The ranks do not have the same keys")
                    .detail(format!("{}.", listed(&texts, 5)))
                    .advice("The files may be of different runs: compare their times."),
            );
        }
        self.replicas.extend(joining.replicas());
        self.partial.extend(joining.partial());
        if prefix.is_empty() {
            self.summary = joining.summary();
            self.tensors = leaves.len() as u64;
        }
        self.ranks = self.ranks.max(world).max(set.files.len() as u64);
        self.findings.extend(joining.findings());
        ties(&mut builder, &base.checkpoint, &leaves);
        builder.rebuild(&base.checkpoint)
    }

    /// Reports names with fewer ranks than the tensors are cut for, and two files of one rank.
    fn contradictions(&mut self, set: &RankSet, found: &[Vec<RankTensor>]) {
        let cut_for = mesh_size(found);
        if let Some(first) = set.files.values().next().filter(|_| (1..cut_for).contains(&set.world))
        {
            let name = self.files.name(*first);
            self.findings.push(
                Finding::new(
                    Grade::Damage,
                    format!(
                        "{name} is of {} ranks by its name, and its tensors are cut for {cut_for}",
                        set.world
                    ),
                )
                .advice("The files may be renamed, or of different runs: compare their times."),
            );
        }
        let mut writers: BTreeMap<u64, FileId> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for tensor in found.iter().flatten() {
            let Some(Ok(part)) = &tensor.part else { continue };
            let Some(writer) = part.writer.filter(|_| seen.insert(tensor.file)) else { continue };
            let Some(other) = writers.insert(writer, tensor.file) else { continue };
            let (one, other) = (self.files.name(other), self.files.name(tensor.file));
            self.findings.push(
                Finding::new(
                    Grade::Damage,
                    format!("{one} and {other} were both written by rank {writer}"),
                )
                .detail("One has the name of another rank, or they are of different runs.")
                .advice("Copy the files of all ranks again."),
            );
        }
    }

    /// Leaves the parts of the only rank as they are, with their places as attributes.
    fn alone(&mut self, builder: &mut Builder, leaves: &[RankLeaf], found: &[Vec<RankTensor>]) {
        for (leaf, tensors) in leaves.iter().zip(found) {
            let Some(Ok(part)) = tensors.first().and_then(|tensor| tensor.part.as_ref()) else {
                continue;
            };
            let at = part.held.boxes.first().map_or(String::new(), |held| format!("{:?}", held.at));
            let texts = [
                ("placements", part.cut.to_string()),
                ("whole shape", format!("{:?}", part.shape)),
                ("begins at", at),
            ];
            let texts = texts.into_iter().filter(|(_, text)| !text.is_empty());
            let texts = texts.map(|(name, text)| (name.into(), text.into()));
            builder.set_raw_attributes(leaf.id, texts.collect());
            self.note(&part.cut);
        }
    }

    /// Joins one tensor and puts it in the place of the first rank's.
    fn tensor(
        &mut self,
        builder: &mut Builder,
        joining: &mut Joining<'_>,
        id: ValueId,
        key: &Text,
        tensors: Vec<RankTensor>,
    ) {
        let Some(Value::Tensor(place)) = builder.value(id) else { return };
        let place = *place;
        let Some(first) = tensors.first() else { return };
        let joined = match &first.part {
            None => self.whole(joining, key, &tensors),
            Some(_) => {
                let cut = self.cut(joining, key, &tensors);
                if let Some(Ok(part)) = first.part.as_ref() {
                    let text = part.cut.to_string();
                    builder.set_raw_attributes(id, vec![("placements".into(), text.into())]);
                    self.note(&part.cut);
                }
                cut
            }
        };
        if let (Some((shape, layout)), Some(tensor)) = (joined, builder.tensor_mut(place)) {
            let has_room = crate::joined::fits(&shape, &tensor.stored);
            (tensor.shape, tensor.layout) = match has_room {
                true => (shape, layout),
                false => {
                    let reason = format!("its shape {shape:?} is too large");
                    (vec![0], joining.refuse(key, reason))
                }
            };
        }
    }

    /// Compares a tensor that every rank has whole. The first rank's stays.
    fn whole(
        &mut self,
        joining: &mut Joining<'_>,
        key: &Text,
        tensors: &[RankTensor],
    ) -> Option<(Vec<u64>, Layout)> {
        let (first, others) = tensors.split_first()?;
        for other in others {
            let same = |one: &Tensor, other: &Tensor| {
                one.shape == other.shape && one.stored == other.stored
            };
            if other.part.is_some() || !same(&first.tensor, &other.tensor) {
                let what = |tensor: &RankTensor| {
                    let kind = if tensor.part.is_some() { "a part of " } else { "" };
                    let of = &tensor.tensor;
                    format!("{kind}{} {:?}", of.stored, of.shape)
                };
                let reason = format!(
                    "{} of rank {} has {}, and {} of rank {} has {}",
                    self.files.name(first.file),
                    first.rank,
                    what(first),
                    self.files.name(other.file),
                    other.rank,
                    what(other)
                );
                return Some((first.tensor.shape.clone(), joining.refuse(key, reason)));
            }
            joining.copies(key, [first.tensor.clone(), other.tensor.clone()]);
        }
        None
    }

    /// Joins the parts of a distributed tensor.
    fn cut(
        &mut self,
        joining: &mut Joining<'_>,
        key: &Text,
        tensors: &[RankTensor],
    ) -> Option<(Vec<u64>, Layout)> {
        let first = tensors.first()?;
        let of_first = match first.part.as_ref()? {
            Ok(part) => part,
            Err(reason) => {
                let shape = first.tensor.shape.clone();
                return Some((shape, joining.refuse(key, reason.clone())));
            }
        };
        let shape = of_first.shape.clone();
        let reversed = tensors.iter().any(|one| !one.fits(|part| Some(&part.held)))
            && tensors.iter().all(|one| one.fits(|part| part.reversed.as_ref()));
        let mut pieces = Vec::with_capacity(tensors.len());
        for one in tensors {
            match self.pieces(first, of_first, one, reversed) {
                Ok(held) => pieces.extend(held),
                Err(reason) => return Some((shape, joining.refuse(key, reason))),
            }
        }
        let dtype = first.tensor.stored.clone();
        let layout = joining.join(key, JoinedTensor { dtype, shape: shape.clone(), pieces });
        Some((shape, layout))
    }

    /// Returns the pieces that one rank holds, or the reason why they do not fit. `reversed` if the
    /// tensor was cut from right to left.
    fn pieces(
        &self,
        first: &RankTensor,
        of_first: &RankPart,
        one: &RankTensor,
        reversed: bool,
    ) -> Result<Vec<Piece>, String> {
        let (rank, name) = (one.rank, self.files.name(one.file));
        let part = match &one.part {
            Some(Ok(part)) => part,
            Some(Err(reason)) => return Err(format!("in {name}, {reason}")),
            None => return Err(format!("{name} of rank {rank} has it whole, and others in parts")),
        };
        let differs = |what: &str, here: String, there: String| {
            Err(format!(
                "rank {rank} says {what} {here} in {name}, and rank {} says {there} in {}: the \
                 files do not agree",
                first.rank,
                self.files.name(first.file)
            ))
        };
        if part.shape != of_first.shape {
            let (here, there) = (&part.shape, &of_first.shape);
            return differs("shape", format!("{here:?}"), format!("{there:?}"));
        }
        if part.cut != of_first.cut {
            return differs("placements", part.cut.to_string(), of_first.cut.to_string());
        }
        let tensor = &one.tensor;
        if tensor.stored != first.tensor.stored {
            let (here, there) = (&tensor.stored, &first.tensor.stored);
            return differs("dtype", here.to_string(), there.to_string());
        }
        let held = part.reversed.as_ref().filter(|_| reversed).unwrap_or(&part.held);
        if !held.is_of(tensor) {
            return Err(format!(
                "the part of rank {rank} in {name} has shape {:?}, and its place has {:?}",
                tensor.shape, held.local_shape
            ));
        }
        if tensor.byte_order == ByteOrder::Big && tensor.stored.itemsize() > 1 {
            return Err(format!("the part in {name} is big-endian"));
        }
        let lazy = |tensor: &Tensor| (tensor.conjugate, tensor.negate);
        if lazy(tensor) != lazy(&first.tensor) || tensor.quantizer.is_some() {
            return Err(format!(
                "the part in {name} is quantised, or conjugated or negated unlike that of the others"
            ));
        }
        let held = held.boxes.iter().map(|held| {
            let layout = joined::part(tensor, &held.local_at, &held.shape);
            let layout = layout.ok_or_else(|| format!("a part in {name} is outside its data"))?;
            let (at, shape) = (held.at.clone(), held.shape.clone());
            Ok(Piece { at, shape, file: one.file, layout })
        });
        held.collect()
    }

    /// Keeps the mesh with the most dimensions for the facts.
    fn note(&mut self, cut: &Cut) {
        match cut {
            Cut::Mesh { mesh, .. } => {
                let text = mesh.to_string();
                if text.len() > self.mesh.len() {
                    self.mesh = text;
                }
            }
            Cut::Shards(_) => self.kind = "FSDP (ShardedTensor)",
        }
    }

    fn finish(self, mut whole: Checkpoint, set: &RankSet) -> Result<Checkpoint> {
        let Self { mut findings, replicas, partial, tensors, summary, mesh, ranks, kind, .. } =
            self;
        let line = format!(
            "{kind}, {}, {}{summary}",
            counted(ranks.max(1), "rank"),
            counted(tensors, "tensor")
        );
        let mut facts =
            vec![("Joined".to_owned(), line), ("Files".to_owned(), set.files.len().to_string())];
        if !mesh.is_empty() {
            facts.push(("Mesh".to_owned(), mesh));
        }
        order_findings(&mut findings);
        let format = FormatInfo {
            id: "torch-fsdp",
            name: "PyTorch FSDP ranks",
            facts,
            ..FormatInfo::default()
        };
        (whole.format, whole.findings) = (format, findings);
        (whole.replicas, whole.partial) = (replicas, partial);
        Ok(whole)
    }
}

/// Sorts findings by grade, the worst first, and those of a grade with missing files first.
fn order_findings(findings: &mut [Finding]) {
    findings.sort_by_key(|finding| (std::cmp::Reverse(finding.grade), finding.missing.is_empty()));
}

/// A tensor of a rank, or its part of a distributed tensor.
struct RankTensor {
    rank: u64,
    file: FileId,
    tensor: Tensor,
    part: Option<Result<RankPart, String>>,
}

impl RankTensor {
    /// Returns whether the tensor is the part that `held` selects.
    fn fits(&self, held: impl Fn(&RankPart) -> Option<&HeldPart>) -> bool {
        let part = self.part.as_ref().and_then(|part| part.as_ref().ok());
        part.and_then(held).is_some_and(|held| held.is_of(&self.tensor))
    }
}

impl RankFile {
    /// Opens the file of a rank. Each distributed tensor is the rank's own part.
    fn open(files: &FileSet, limits: &Limits, (rank, file): (u64, FileId)) -> Result<Self> {
        let len = files.len(file);
        let mut builder = Builder::new(&limits.fitted(len));
        let span = Span { file, offset: 0, len };
        let mut parts = HashMap::new();
        let opened =
            torch::read::parts(files.structure(file)?, span, &mut builder, |pickle, found| {
                let mut descriptions = Descriptions::new(pickle);
                parts.extend(found.iter().map(|(id, node)| (*id, descriptions.read(*node))));
            });
        let lowered = opened.map_err(|error| error.in_file(files.name(file)))?;
        let format = FormatInfo::default();
        let checkpoint = builder.finish(lowered.root, format, files.clone(), lowered.findings)?;
        Ok(Self { rank, file, checkpoint, parts })
    }

    fn tensor(&self, id: ValueId) -> RankTensor {
        let tensor = match self.checkpoint.value(id) {
            Value::Tensor(tensor) => self.checkpoint.tensor(*tensor).ok().cloned(),
            _ => None,
        };
        let missing = || {
            let dtype = statelens_checkpoint::DType::U8;
            Tensor::new(dtype, vec![0], Layout::Missing("it is not a tensor".into()))
        };
        let part = self.parts.get(&id).cloned();
        let tensor = tensor.unwrap_or_else(missing);
        RankTensor { rank: self.rank, file: self.file, tensor, part }
    }
}

/// Returns the leaves that are tensors. Links to other leaves are not tensors of their own.
fn tensor_leaves(checkpoint: &Checkpoint) -> Vec<RankLeaf> {
    let is_tensor = |id: ValueId| matches!(checkpoint.value(id), Value::Tensor(_));
    let leaves = checkpoint.each_leaf().filter(|leaf| is_tensor(leaf.id));
    leaves.map(|leaf| RankLeaf { key: leaf.key, id: leaf.id }).collect()
}

/// Returns the size of the largest mesh.
fn mesh_size(found: &[Vec<RankTensor>]) -> u64 {
    let first = found.iter().filter_map(|tensors| tensors.first()?.part.as_ref()?.as_ref().ok());
    let size = |part: &RankPart| match &part.cut {
        Cut::Mesh { mesh, .. } => mesh.sizes.iter().fold(1u64, |all, len| all.saturating_mul(*len)),
        Cut::Shards(_) => 0,
    };
    first.map(size).max().unwrap_or(0)
}

/// Links tied tensors: those of the first rank with one storage that are joined from the same
/// bytes.
fn ties(builder: &mut Builder, base: &Checkpoint, leaves: &[RankLeaf]) {
    let mut by_storage: HashMap<u32, Vec<(ValueId, TensorId)>> = HashMap::new();
    for leaf in leaves {
        let Value::Tensor(id) = base.value(leaf.id) else { continue };
        let Some(tensor) = builder.tensor(*id) else { continue };
        let Some(storage) = tensor.storage else { continue };
        let known = by_storage.entry(storage).or_default();
        let twin = known.iter().take(16).find(|(_, other)| {
            builder.tensor(*other).is_some_and(|other| {
                (&other.layout, &other.shape, &other.stored)
                    == (&tensor.layout, &tensor.shape, &tensor.stored)
                    && matches!(other.layout, Layout::Concat(_))
            })
        });
        match twin.copied() {
            Some((first, _)) => {
                if let Some(value) = builder.value_mut(leaf.id) {
                    *value = Value::Link(first);
                }
            }
            None => known.push((leaf.id, *id)),
        }
    }
    // The storages are those of one rank.
    for leaf in leaves {
        if let Value::Tensor(id) = base.value(leaf.id)
            && let Some(tensor) = builder.tensor_mut(*id)
            && matches!(tensor.layout, Layout::Concat(_) | Layout::Missing(_))
        {
            tensor.storage = None;
        }
    }
}
