//! ZeRO: joins the flat tensors of all ranks, and cuts them into parameters.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use statelens_checkpoint::{
    DType, DictKey, Error, FileId, Finding, Grade, Layout, Limits, List, Progress, Result, Tensor,
    Text, Value, ValueId, counted, listed, numel,
};

use super::experts::LocalExperts;
use super::flat::{Flats, PartialFlat, RankFlat};
use super::names::Members;
use super::reading::{Entries, Groups, MODULE, OPTIMIZER, Reading, Shapes, dict};
use crate::joined::{self, FlatTensor, Joining, UnreadFiles};

/// The maximum number of ranks.
const MAX_RANKS: u64 = 1 << 13;
/// The maximum number of files that are listed because they have the part of another rank.
const MAX_WRONG_RANKS: usize = 20;
/// The maximum number of groups of parameters.
const MAX_GROUPS: u64 = 1 << 12;

/// The optimizer's states of one rank.
struct RankState {
    rank: u64,
    file: FileId,
    /// The inner dict, with the flat tensors.
    inner: ValueId,
}

/// How flat tensors are cut into parameters.
struct Cutting<'a> {
    /// Those with parts of their own: with stage 3 all groups, else each group, and each again for the
    /// experts of further ranks.
    sets: Vec<FlatSet>,
    ranks: &'a [RankState],
    stage_3: bool,
}

/// Groups whose flat tensors some ranks divide among them.
struct FlatSet {
    /// The numbers of the groups, with the names and shapes of their parameters.
    groups: Vec<(usize, Shapes)>,
    /// The ranks, in the order of their parts.
    ranks: Vec<u64>,
}

impl Cutting<'_> {
    /// Returns the states of a rank.
    fn state(&self, rank: u64) -> Option<&RankState> {
        let at = self.ranks.binary_search_by_key(&rank, |state| state.rank).ok()?;
        self.ranks.get(at)
    }
}

impl Reading<'_> {
    /// Adds the parameters and the optimizer's moments. Returns the line about the checkpoint, or
    /// `None` if no file of the optimizer can be read. `experts` are the weights in the files of
    /// experts.
    pub(super) fn zero(
        &mut self,
        states: ValueId,
        members: &Members,
        experts: &Entries,
        progress: &mut dyn Progress,
    ) -> Result<Option<String>> {
        let mut ranks = Vec::new();
        let mut world = 0u64;
        let mut stated: Option<(u64, FileId)> = None;
        let optims: Vec<FileId> = members.optims.values().copied().collect();
        let roots = self.load_all(&optims, progress)?;
        for ((rank, file), root) in members.optims.iter().zip(roots) {
            let Some(root) = root else { continue };
            let Some(inner) = self.get(root, "optimizer_state_dict") else {
                let error = Error::damaged("the file has no `optimizer_state_dict`");
                self.unread.add(*file, error.in_file(self.files.name(*file)));
                continue;
            };
            let count = self.partitions(inner);
            match (stated, count) {
                (Some((known, first)), Some(count)) if known != count => {
                    let (first, other) = (self.files.name(first), self.files.name(*file));
                    self.findings.push(
                        Finding::new(
                            Grade::Damage,
                            format!("{first} is of {known} ranks, and {other} of {count}"),
                        )
                        .detail("They are of different runs, and can't be joined."),
                    );
                }
                (None, Some(count)) => stated = Some((count, *file)),
                _ => {}
            }
            ranks.push(RankState { rank: *rank, file: *file, inner });
        }
        if ranks.is_empty() {
            return Ok(None);
        }
        world = world.max(stated.map_or(0, |(count, _)| count));
        let last = members.optims.keys().last().map_or(0, |last| last + 1);
        if world > 0 && last > world {
            let extra: Vec<&str> = members
                .optims
                .iter()
                .filter(|(rank, _)| **rank >= world)
                .map(|(_, id)| self.files.name(*id))
                .collect();
            let title =
                format!("There are files of more than {world} ranks: {}", listed(&extra, 5));
            let detail = "They are of another run, and were not read.";
            self.findings.push(Finding::new(Grade::Damage, title).detail(detail));
            ranks.retain(|rank| rank.rank < world);
        }
        let world = world.max(if world == 0 { last } else { 0 }).clamp(1, MAX_RANKS);
        let stage_3 = ranks.iter().any(|rank| self.get(rank.inner, "fp32_flat_groups").is_some());
        // With stage 3, the file of each rank's model has its part of frozen parameters.
        let frozen = self.get(states, "frozen_param_shapes").map(|shapes| self.sizes(shapes));
        let frozen = frozen.filter(|shapes| !shapes.is_empty());
        let models = match stage_3 && frozen.is_some() {
            true => self.models(states, members, progress)?,
            false => vec![(0, states)],
        };
        let without = |files: &BTreeMap<u64, FileId>, unread: &UnreadFiles| -> BTreeSet<u64> {
            let is_read = |rank: &u64| files.get(rank).is_some_and(|id| !unread.has(*id));
            (0..world).filter(|rank| !is_read(rank)).collect()
        };
        let of_models = match stage_3 {
            true => without(&members.models, &self.unread),
            false => BTreeSet::new(),
        };
        let of_optims = without(&members.optims, &self.unread);
        let absent: BTreeSet<u64> = of_optims.union(&of_models).copied().collect();
        let mut missing = joined::ranks(&absent);
        if !missing.is_empty() {
            missing += &format!(" of {world}");
        }
        let mut names = self.missing_names(&members.optims, &of_optims);
        names.extend(self.missing_names(&members.models, &of_models));
        let files = self.files;
        let mut joining = Joining::new(files, missing, names);
        let groups = self.shapes(states);
        Limits::check("groups of parameters", groups.len() as u64, MAX_GROUPS)?;
        self.buffers(states)?;
        self.frozen(frozen.unwrap_or_default(), &models, stage_3, world, &mut joining)?;
        let sets = self.sets(groups, &ranks, world, stage_3, self.data_before_experts(states));
        let cut = Cutting { sets, ranks: &ranks, stage_3 };
        self.weights(&cut, &mut joining)?;
        self.lone_experts(experts)?;
        self.shared(states)?;
        self.tensors = self.entries.len() as u64;
        self.moments(&cut, &mut joining)?;
        if !stage_3 && self.get(states, MODULE).is_some() {
            let module = self.module(states, experts.clone());
            let module = self.builder.push(dict(module))?;
            self.further(MODULE, module);
        }
        let stage = if stage_3 { "stage 3" } else { "stages 1 and 2" };
        let line = format!("DeepSpeed ZeRO ({stage}), {}", counted(world, "rank"));
        let summary = joining.summary();
        self.findings.extend(joining.findings());
        self.partial = joining.partial();
        Ok(Some(format!("{line}, {}{summary}", counted(self.tensors, "tensor"))))
    }

    /// Returns the model's states of all ranks. Those of the first file that can be read are `states`.
    fn models(
        &mut self,
        states: ValueId,
        members: &Members,
        progress: &mut dyn Progress,
    ) -> Result<Vec<(u64, ValueId)>> {
        let there: Vec<(u64, FileId)> = members
            .models
            .iter()
            .filter(|(_, id)| !self.unread.has(**id))
            .map(|(rank, id)| (*rank, *id))
            .collect();
        let Some(((first, _), others)) = there.split_first() else { return Ok(Vec::new()) };
        let ids: Vec<FileId> = others.iter().map(|(_, id)| *id).collect();
        let roots = self.load_all(&ids, progress)?;
        let others = others.iter().zip(roots).filter_map(|((rank, _), root)| Some((*rank, root?)));
        Ok([(*first, states)].into_iter().chain(others).collect())
    }

    /// Returns the groups with the ranks that divide them. A group of experts is repeated for each
    /// part of the ranks with other experts; without the known names, only that of the first rank is
    /// there.
    fn sets(
        &self,
        groups: Groups,
        ranks: &[RankState],
        world: u64,
        stage_3: bool,
        data_first: bool,
    ) -> Vec<FlatSet> {
        if stage_3 {
            let groups = groups.into_iter().enumerate().collect();
            return vec![FlatSet { groups, ranks: (0..world).collect() }];
        }
        let local = LocalExperts::of(groups.iter().flatten().map(|(name, _)| name));
        let mut sets = Vec::new();
        for (number, shapes) in groups.into_iter().enumerate() {
            let parts = self.expert_parts(ranks, world, number);
            for part in 0..parts {
                let named: Option<Shapes> = match part {
                    0 => Some(shapes.clone()),
                    _ => shapes
                        .iter()
                        .map(|(name, shape)| Some((local.global(name, part)?, shape.clone())))
                        .collect(),
                };
                let share = world / parts;
                let ranks = match data_first {
                    true => (part * share..(part + 1) * share).collect(),
                    false => (part..world).step_by(parts as usize).collect(),
                };
                sets.extend(named.map(|named| FlatSet { groups: vec![(number, named)], ranks }));
            }
        }
        sets
    }

    /// Returns the number of ranks that a file states: a number, or one for each group.
    fn partitions(&self, inner: ValueId) -> Option<u64> {
        let count = self.get(inner, "partition_count")?;
        let all = self.items(count).iter().filter_map(|id| self.int(*id)).max();
        self.int(count).or(all).filter(|count| *count > 0)
    }

    /// Returns the names of the files of missing ranks, like those of the others.
    fn missing_names(
        &self,
        members: &BTreeMap<u64, FileId>,
        absent: &BTreeSet<u64>,
    ) -> Vec<String> {
        let Some((rank, file)) = members.iter().next() else { return Vec::new() };
        let known = self.files.name(*file);
        let of = |missing: &u64| {
            known.replacen(&format!("pp_rank_{rank}_"), &format!("pp_rank_{missing}_"), 1)
        };
        absent.iter().map(of).collect()
    }

    /// Adds the buffers of the first rank; floating ones become float32.
    fn buffers(&mut self, states: ValueId) -> Result<()> {
        let names: Vec<Text> = self.get(states, "buffer_names").map_or(Vec::new(), |names| {
            let name = |id: &ValueId| match self.value(*id)? {
                Value::Str(name) => Some(name.clone()),
                _ => None,
            };
            self.items(names).iter().filter_map(name).collect()
        });
        let Some(module) = self.get(states, MODULE) else { return Ok(()) };
        let known: BTreeSet<String> =
            names.iter().map(|name| name.to_lossy().into_owned()).collect();
        let buffers: Vec<(DictKey, Tensor)> = self
            .dict(module)
            .iter()
            .filter_map(|(key, id)| {
                let DictKey::Str(name) = key else { return None };
                known.contains(&*name.to_lossy()).then_some(())?;
                Some((key.clone(), self.tensor(*id)?.clone()))
            })
            .collect();
        for (key, mut tensor) in buffers {
            if matches!(tensor.dtype, DType::F16 | DType::BF16 | DType::F64) {
                tensor.dtype = DType::F32;
                tensor.storage = None;
            }
            let id = self.push(tensor)?;
            self.entries.push((key, id));
        }
        Ok(())
    }

    /// Adds the frozen parameters, in the dtype that they have. With stage 3, every rank's `models` has
    /// a fragment.
    fn frozen(
        &mut self,
        shapes: Shapes,
        models: &[(u64, ValueId)],
        stage_3: bool,
        world: u64,
        joining: &mut Joining<'_>,
    ) -> Result<()> {
        for (name, shape) in shapes {
            let key = name.to_lossy().into_owned();
            let fragments: BTreeMap<u64, Tensor> = models
                .iter()
                .filter_map(|(rank, states)| {
                    let fragments = self.get(*states, "frozen_param_fragments")?;
                    Some((*rank, self.tensor(self.get(fragments, &key)?)?.clone()))
                })
                .collect();
            let Some(first) = fragments.values().next().cloned() else { continue };
            let tensor = if stage_3 {
                let flats = (0..world).map(|rank| {
                    let mut flat = RankFlat::default();
                    flat.push(fragments.get(&rank)?).then_some(flat)
                });
                let flats = Flats::new(flats.collect());
                let numel = numel(&shape).unwrap_or(0);
                let flat = flats.joined(0, numel);
                self.flat(&name, flat, &first, shape, joining)
            } else {
                Tensor { shape, ..first }
            };
            let id = self.push(tensor)?;
            self.entries.push((DictKey::Str(name), id));
        }
        Ok(())
    }

    /// Returns the tensor `name` that consists of ranges; `like` has its dtype.
    fn flat(
        &self,
        name: &Text,
        flat: Result<FlatTensor, Option<PartialFlat>>,
        like: &Tensor,
        shape: Vec<u64>,
        joining: &mut Joining<'_>,
    ) -> Tensor {
        joining.tensors += 1;
        let itemsize = like.stored.itemsize();
        let layout = match flat {
            Ok(flat) => flat.layout(&shape, itemsize),
            Err(Some((rank, flat))) => {
                joining.keep(name, flat.layout(&shape, itemsize));
                Some(joining.lack(name, &format!("a part of it is in rank {rank}")))
            }
            Err(None) => None,
        };
        let layout = layout.unwrap_or_else(|| {
            let reason = "the flat tensors of the ranks are shorter than its place".to_owned();
            joining.refuse(name, reason)
        });
        let mut tensor = Tensor::new(like.stored.clone(), shape, layout);
        tensor.byte_order = like.byte_order;
        tensor
    }

    /// Adds the trained parameters.
    fn weights(&mut self, cut: &Cutting<'_>, joining: &mut Joining<'_>) -> Result<()> {
        let name = if cut.stage_3 { "fp32_flat_groups" } else { "single_partition_of_fp32_groups" };
        let flat_of = |this: &Self, rank: &RankState, group: usize| {
            let groups = this.get(rank.inner, name)?;
            this.items(groups).get(group).copied()
        };
        let flats = self.flats(cut, flat_of);
        self.check(cut, &flats);
        self.check_slices(cut, &flats);
        for (name, tensor) in self.cut(cut, &flats, joining) {
            let id = self.push(tensor)?;
            self.entries.push((DictKey::Str(name), id));
        }
        Ok(())
    }

    /// Returns the flat tensors of each set. `find` returns the tensor of a rank and a group.
    fn flats(
        &self,
        cut: &Cutting<'_>,
        find: impl Fn(&Self, &RankState, usize) -> Option<ValueId>,
    ) -> Vec<Flats> {
        let of = |set: &FlatSet| {
            let rank = |rank: &u64| {
                let state = cut.state(*rank)?;
                let mut flat = RankFlat::default();
                for (group, _) in &set.groups {
                    flat.push(self.tensor(find(self, state, *group)?)?).then_some(())?;
                }
                // Some releases merge the groups of stage 3 in fewer or more flat tensors.
                let mut group = set.groups.len();
                while cut.stage_3
                    && let Some(more) = find(self, state, group)
                {
                    flat.push(self.tensor(more)?).then_some(())?;
                    group += 1;
                }
                Some(flat)
            };
            Flats::new(set.ranks.iter().map(rank).collect())
        };
        cut.sets.iter().map(of).collect()
    }

    /// Returns the number of ranks with different experts of a group, 1 for other parameters:
    /// `partition_count` has the number of parts of its flat tensor.
    fn expert_parts(&self, ranks: &[RankState], world: u64, group: usize) -> u64 {
        let counts = ranks.first().and_then(|rank| self.get(rank.inner, "partition_count"));
        let parts = counts.and_then(|counts| self.int(*self.items(counts).get(group)?));
        let whole = parts.filter(|parts| *parts > 0 && world.is_multiple_of(*parts));
        whole.map_or(1, |parts| world / parts)
    }

    /// Compares the number of elements with the shapes, as `zero_to_fp32.py` does.
    fn check(&mut self, cut: &Cutting<'_>, flats: &[Flats]) {
        for (set, flats) in cut.sets.iter().zip(flats) {
            if !flats.are_complete() {
                continue;
            }
            let world = set.ranks.len() as u64;
            let numels = set.groups.iter().flat_map(|(_, shapes)| shapes);
            let numels = numels.map(|(_, shape)| numel(shape).unwrap_or(0));
            let (wanted, unit) = match cut.stage_3 {
                true => (numels.map(|numel| numel.div_ceil(world)).sum::<u64>() * world, 1),
                false => {
                    (numels.sum::<u64>() + self.paddings(cut, set).iter().sum::<u64>(), 2 * world)
                }
            };
            let there = flats.numel();
            if wanted.next_multiple_of(unit) != there.next_multiple_of(unit) {
                let number = set.groups.first().map_or(0, |(number, _)| *number);
                let title = format!(
                    "The ranks hold {there} numbers of group {number}, and its shapes need {wanted}"
                );
                self.findings.push(
                    Finding::new(Grade::Damage, title)
                        .detail("Files of different runs may be in one folder.")
                        .advice("Compare the times of the files."),
                );
            }
        }
    }

    /// Compares the place of each rank's part with the numbers of elements of each parameter that its
    /// file states, since release 0.7: a file may have the name of another rank.
    fn check_slices(&mut self, cut: &Cutting<'_>, flats: &[Flats]) {
        let mut found: BTreeMap<FileId, Finding> = BTreeMap::new();
        for (set, flats) in cut.sets.iter().zip(flats).filter(|_| !cut.stage_3) {
            let Some((group, shapes)) = set.groups.first() else { continue };
            let mut places: HashMap<&Text, (u64, u64)> = HashMap::new();
            let (mut start, paddings) = (0u64, self.paddings(cut, set));
            for (at, (name, shape)) in shapes.iter().enumerate() {
                let numel = numel(shape).unwrap_or(0);
                places.insert(name, (start, start.saturating_add(numel)));
                let padding = paddings.get(at).copied().unwrap_or(0);
                start = start.saturating_add(numel).saturating_add(padding);
            }
            for (place, rank) in set.ranks.iter().enumerate() {
                let Some((first, after)) = flats.range(place) else { continue };
                let state = cut.state(*rank);
                let Some((state, slices)) = state.and_then(|state| {
                    let all = self.get(state.inner, "param_slice_mappings")?;
                    Some((state, *self.items(all).get(*group)?))
                }) else {
                    continue;
                };
                let differs = self.dict(slices).iter().find_map(|(key, slice)| {
                    let DictKey::Str(name) = key else { return None };
                    let (from, to) = places.get(name)?;
                    let stated = self.get(*slice, "numel").and_then(|numel| self.int(numel))?;
                    let there = (*to).min(after).saturating_sub((*from).max(first));
                    (stated != there).then_some((name, stated, there))
                });
                if let Some((name, stated, there)) = differs {
                    let file = self.files.name(state.file);
                    let title = format!("{file} does not have the part of rank {rank}");
                    let finding = Finding::new(Grade::Damage, title).detail(format!(
                        "It says that it has {} of {}, and the place of rank {rank} has {there}. It \
                         has the name of another rank, or is of another run.",
                        counted(stated, "number"),
                        name.to_lossy(),
                    ));
                    found.entry(state.file).or_insert_with(|| finding.place(file));
                }
            }
        }
        self.findings.extend(found.into_values().take(MAX_WRONG_RANKS));
    }

    /// Returns the padding after each parameter of a set, where the file states it.
    fn paddings(&self, cut: &Cutting<'_>, set: &FlatSet) -> Vec<u64> {
        let first = cut.ranks.first().filter(|_| !cut.stage_3);
        let all = first.and_then(|rank| self.get(rank.inner, "param_alignment_paddings"));
        let of = all.and_then(|all| {
            let (group, _) = set.groups.first()?;
            self.items(all).get(*group).copied()
        });
        let of = of.map_or(Vec::new(), |of| self.items(of).to_vec());
        of.iter().map(|id| self.int(*id).unwrap_or(0)).collect()
    }

    /// Cuts the flat tensors into parameters.
    fn cut(
        &self,
        cut: &Cutting<'_>,
        flats: &[Flats],
        joining: &mut Joining<'_>,
    ) -> Vec<(Text, Tensor)> {
        let mut found = Vec::new();
        let none = Tensor::new(DType::F32, vec![0], Layout::Inline([].into()));
        for (set, flats) in cut.sets.iter().zip(flats) {
            let (paddings, world) = (self.paddings(cut, set), set.ranks.len() as u64);
            let like = flats.first().unwrap_or(&none).clone();
            let mut start = 0u64;
            let shapes = set.groups.iter().flat_map(|(_, shapes)| shapes);
            for (at, (name, shape)) in shapes.enumerate() {
                let numel = numel(shape).unwrap_or(0);
                let flat = match cut.stage_3 {
                    true => {
                        let part = numel.div_ceil(world);
                        let flat = flats.interleaved(start, part, numel);
                        start = start.saturating_add(part);
                        flat
                    }
                    false => {
                        let flat = flats.joined(start, numel);
                        let padding = paddings.get(at).copied().unwrap_or(0);
                        start = start.saturating_add(numel).saturating_add(padding);
                        flat
                    }
                };
                // The place among the ranks of the set.
                let rank = |place: u64| set.ranks.get(place as usize).copied().unwrap_or(place);
                let flat = flat.map_err(|partial| partial.map(|(at, flat)| (rank(at), flat)));
                let tensor = self.flat(name, flat, &like, shape.clone(), joining);
                found.push((name.clone(), tensor));
            }
        }
        found
    }

    /// Adds the shared parameters as links to those that they share with.
    fn shared(&mut self, states: ValueId) -> Result<()> {
        let Some(shared) = self.get(states, "shared_params") else { return Ok(()) };
        let pairs: Vec<(DictKey, String)> = match self.value(shared) {
            Some(Value::Dict(dict)) => dict
                .entries
                .iter()
                .filter_map(|(key, id)| match self.value(*id)? {
                    Value::Str(source) => Some((key.clone(), source.to_lossy().into_owned())),
                    _ => None,
                })
                .collect(),
            // Some releases wrote pairs.
            _ => self
                .items(shared)
                .iter()
                .filter_map(|pair| {
                    let [name, source] = *self.items(*pair) else { return None };
                    match (self.value(name)?, self.value(source)?) {
                        (Value::Str(name), Value::Str(source)) => {
                            Some((DictKey::Str(name.clone()), source.to_lossy().into_owned()))
                        }
                        _ => None,
                    }
                })
                .collect(),
        };
        // The source may be trained, frozen, or a buffer.
        let mut known: HashMap<String, ValueId> =
            self.entries.iter().map(|(key, id)| (key.to_string(), *id)).collect();
        for (key, source) in pairs {
            if let Some(target) = known.get(&source).copied()
                && let Entry::Vacant(place) = known.entry(key.to_string())
            {
                place.insert(target);
                let id = self.builder.push(Value::Link(target))?;
                self.entries.push((key, id));
            }
        }
        Ok(())
    }

    /// Adds the optimizer's moments under the names of their parameters, in the form of
    /// `torch.distributed.checkpoint.state_dict`: `state` by name, and `param_groups` with names.
    fn moments(&mut self, cut: &Cutting<'_>, joining: &mut Joining<'_>) -> Result<()> {
        let Some(first) = cut.ranks.first() else { return Ok(()) };
        let base = |this: &Self, rank: &RankState| {
            ["base_optimizer_state", "optimizer_state_dict"]
                .iter()
                .find_map(|key| this.get(rank.inner, key))
        };
        let state_of = |this: &Self, rank: &RankState, group: usize| -> Option<ValueId> {
            let base = base(this, rank)?;
            let Some(state) = this.get(base, "state") else {
                // Older releases wrote a list with the states of each group.
                return this.items(base).get(group).copied();
            };
            let is_group = |key: &DictKey| match key {
                DictKey::Int(int) => int.to_u64() == Some(group as u64),
                _ => false,
            };
            Some(this.dict(state).iter().find(|(key, _)| is_group(key))?.1)
        };
        // The names of flat moments, and the plain values of each group.
        let mut names: Vec<Text> = Vec::new();
        let mut others: Vec<(&Shapes, Entries)> = Vec::new();
        let groups = cut.sets.iter().flat_map(|set| set.groups.iter().map(move |of| (set, of)));
        for (set, (group, shapes)) in groups {
            let own = set.ranks.iter().find_map(|rank| cut.state(*rank));
            let state = state_of(self, own.unwrap_or(first), *group);
            let mut plain = Vec::new();
            for (key, id) in state.map_or(&[][..], |state| self.dict(state)) {
                match (key, self.tensor(*id)) {
                    (DictKey::Str(name), Some(tensor)) if tensor.shape.len() == 1 => {
                        if !names.contains(name) {
                            names.push(name.clone());
                        }
                    }
                    _ => plain.push((key.clone(), *id)),
                }
            }
            others.push((shapes, plain));
        }
        let mut by_name: BTreeMap<String, Vec<(DictKey, ValueId)>> = BTreeMap::new();
        for moment in &names {
            let key = moment.to_lossy().into_owned();
            let flats =
                self.flats(cut, |this, rank, group| this.get(state_of(this, rank, group)?, &key));
            if flats.iter().all(|flats| flats.first().is_none()) {
                continue;
            }
            for (name, tensor) in self.cut(cut, &flats, joining) {
                let id = self.push(tensor)?;
                let of = by_name.entry(name.to_lossy().into_owned()).or_default();
                of.push((DictKey::Str(moment.clone()), id));
            }
        }
        let mut entries = Vec::new();
        for (shapes, plain) in &others {
            for (at, (name, _)) in shapes.iter().enumerate() {
                let mut state = by_name.remove(&*name.to_lossy()).unwrap_or_default();
                for (key, id) in plain {
                    // The value belongs to the first parameter of the group.
                    let id = if at == 0 { *id } else { self.builder.push(Value::Link(*id))? };
                    state.insert(0, (key.clone(), id));
                }
                if !state.is_empty() {
                    let state = self.builder.push(dict(state))?;
                    entries.push((DictKey::Str(name.clone()), state));
                }
            }
        }
        let state = self.builder.push(dict(entries))?;
        let mut optimizer = vec![(DictKey::from("state"), state)];
        if let Some(groups) = base(self, first).and_then(|base| self.get(base, "param_groups")) {
            self.name_groups(groups, cut)?;
            optimizer.push((DictKey::from("param_groups"), groups));
        }
        let optimizer = self.builder.push(dict(optimizer))?;
        self.further(OPTIMIZER, optimizer);
        Ok(())
    }

    /// Replaces the numbers of flat tensors in the `params` of each group by the names of the
    /// parameters in them.
    fn name_groups(&mut self, list: ValueId, cut: &Cutting<'_>) -> Result<()> {
        for group in self.items(list).to_vec() {
            let Some(params) = self.get(group, "params") else { continue };
            let numbers: Vec<Option<u64>> =
                self.items(params).iter().map(|id| self.int(*id)).collect();
            let mut items = Vec::new();
            for number in numbers.into_iter().flatten() {
                let groups = cut.sets.iter().flat_map(|set| &set.groups);
                let own = groups.filter(|(group, _)| *group as u64 == number);
                for (name, _) in own.flat_map(|(_, shapes)| shapes) {
                    items.push(self.builder.push(Value::Str(name.clone()))?);
                }
            }
            let params = self.resolve(params);
            if let Some(value) = self.builder.value_mut(params) {
                *value = Value::List(List { items, ..List::default() });
            }
        }
        Ok(())
    }
}
