//! The part of a distributed tensor that a rank holds, as its pickle describes it.
//!
//! A `DTensor` has placements, one for each dimension of its mesh of ranks, and the rank's
//! coordinate in that mesh (`torch/distributed/tensor/placement_types.py` and `_dtensor_spec.py`,
//! `torch/distributed/device_mesh.py`, releases 2.4 to 2.15). A `ShardedTensor` lists the offsets
//! and sizes of its shards (`torch/distributed/_shard`). The classes have moved between modules, so
//! only their last names count.

use std::collections::HashMap;
use std::fmt;
use std::iter;
use std::ops::Range;
use std::sync::Arc;

use statelens_checkpoint::Tensor;
use statelens_pickle::{Node, NodeId, Pickle};

/// The maximum number of dimensions of a mesh.
const MAX_MESH: usize = 16;
/// The maximum number of separate runs of indices that a rank holds along a dimension.
const MAX_RUNS: usize = 1 << 12;
/// The maximum number of boxes that a rank holds of one tensor.
const MAX_BOXES: usize = 1 << 14;

/// A rank's part of a tensor.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RankPart {
    /// The shape of the whole tensor.
    pub(super) shape: Vec<u64>,
    /// How it is cut. The same in all ranks.
    pub(super) cut: Cut,
    /// What the rank holds of it by the placements, from left to right.
    pub(super) held: HeldPart,
    /// The same from right to left, if strided shards stand for that order. Both are equal unless
    /// lengths are uneven: then FSDP2 over tensor parallelism has cut from right to left
    /// (`FSDPParam._init_sharded_param` of torch), which `split_factor` does not express.
    pub(super) reversed: Option<HeldPart>,
    /// The rank that wrote it, of all ranks, if the mesh says it (since torch 2.11).
    pub(super) writer: Option<u64>,
}

/// How a tensor is cut into parts.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cut {
    /// Placements on a mesh.
    Mesh { placements: Vec<Placement>, mesh: Arc<Mesh> },
    /// A number of shards with offsets.
    Shards(usize),
}

/// The shape of a rank's own tensor, and the boxes in it; without boxes, the rank holds nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct HeldPart {
    pub(super) local_shape: Vec<u64>,
    pub(super) boxes: Vec<HeldBox>,
}

impl HeldPart {
    fn of(runs: &[Vec<Range<u64>>]) -> Result<Self, String> {
        let local_shape = runs.iter().map(|runs| total(runs)).collect();
        Ok(Self { local_shape, boxes: boxes(runs)? })
    }

    /// Returns whether the tensor of the rank is what it holds. That of a rank outside of the mesh
    /// does not matter.
    pub(super) fn is_of(&self, tensor: &Tensor) -> bool {
        match self.boxes.is_empty() {
            true => self.local_shape.is_empty() || tensor.numel() == Some(0),
            false => tensor.shape == self.local_shape,
        }
    }
}

/// A box of the whole tensor, and its place in the rank's own tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HeldBox {
    pub(super) at: Vec<u64>,
    pub(super) shape: Vec<u64>,
    pub(super) local_at: Vec<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Placement {
    Replicate,
    Shard(i64),
    Strided {
        dim: i64,
        factor: u64,
    },
    /// Values that are still to be reduced over the ranks, with the operation; or an unknown class.
    Other(String),
}

/// A mesh of ranks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Mesh {
    pub(super) sizes: Vec<u64>,
    pub(super) names: Vec<String>,
}

/// A mesh, and the coordinate of the rank that wrote the file; `None` if it is not in the mesh.
type MeshPlace = (Arc<Mesh>, Option<Vec<u64>>);

/// Reads the descriptions of the distributed tensors of one pickle.
pub(super) struct Descriptions<'a> {
    pickle: &'a Pickle,
    meshes: HashMap<NodeId, Option<MeshPlace>>,
}

impl<'a> Descriptions<'a> {
    pub(super) fn new(pickle: &'a Pickle) -> Self {
        Self { pickle, meshes: HashMap::new() }
    }

    /// Reads the description of a distributed tensor. Fails with a reason.
    pub(super) fn read(&mut self, node: NodeId) -> Result<RankPart, String> {
        let pickle = self.pickle;
        let unclear = || "its description can't be read".to_owned();
        let (_, args) = pickle.call(node).ok_or_else(unclear)?;
        let [_, class, args, state] = args else { return Err(unclear()) };
        let size = pickle.sequence(*args).and_then(|args| self.numbers(*args.get(2)?));
        let shape = size.ok_or_else(unclear)?;
        let class = pickle.global(*class).ok_or_else(unclear)?;
        match &*class.name {
            "ShardedTensor" => self.sharded(shape, *state).ok_or_else(unclear),
            _ => {
                let spec = self.state_field(*state, "_spec").ok_or_else(unclear)?;
                self.spec(shape, spec)
            }
        }
    }

    fn spec(&mut self, shape: Vec<u64>, spec: NodeId) -> Result<RankPart, String> {
        let unclear = |what: &str| format!("the {what} of its DTensor can't be read");
        let placements = self.field(spec, "placements").and_then(|list| self.placements(list));
        let placements = placements.ok_or_else(|| unclear("placements"))?;
        let mesh = self.field(spec, "mesh").ok_or_else(|| unclear("mesh"))?;
        let writer = self.field(mesh, "_rank").and_then(|rank| self.pickle.int(rank));
        let writer = writer.and_then(|rank| u64::try_from(rank).ok());
        let (mesh, coordinate) = self.mesh(mesh).ok_or_else(|| unclear("mesh"))?;
        if mesh.sizes.len() != placements.len() {
            return Err(format!(
                "its DTensor has {} placements on a mesh of {} dimensions",
                placements.len(),
                mesh.sizes.len()
            ));
        }
        let order = self.order(spec, placements.len());
        let cut = |placements| Cut::Mesh { placements, mesh: mesh.clone() };
        let Some(coordinate) = coordinate else {
            let held = HeldPart::default();
            return Ok(RankPart { shape, cut: cut(placements), held, reversed: None, writer });
        };
        let held = HeldPart::of(&runs(&shape, &placements, &mesh.sizes, &coordinate, &order)?)?;
        let reversed = match right_to_left(shape.len(), &placements, &mesh.sizes) {
            Some((plain, order)) => {
                let runs = runs(&shape, &plain, &mesh.sizes, &coordinate, &order)?;
                Some(HeldPart::of(&runs)?)
            }
            None => None,
        };
        Ok(RankPart { shape, cut: cut(placements), held, reversed, writer })
    }

    /// Reads a `ShardedTensor`: `(local_shards, metadata, …)`.
    fn sharded(&self, shape: Vec<u64>, state: NodeId) -> Option<RankPart> {
        let [local, metadata, ..] = *self.pickle.sequence(state)? else { return None };
        let all = self.pickle.sequence(self.field(metadata, "shards_metadata")?)?.len();
        let (mut boxes, mut local_shape) = (Vec::new(), vec![0; shape.len()]);
        for shard in self.pickle.sequence(local)? {
            let metadata = self.field(*shard, "metadata")?;
            let at = self.numbers(self.field(metadata, "shard_offsets")?)?;
            local_shape = self.numbers(self.field(metadata, "shard_sizes")?)?;
            let (shape, local_at) = (local_shape.clone(), vec![0; local_shape.len()]);
            boxes.push(HeldBox { at, shape, local_at });
        }
        let held = HeldPart { local_shape, boxes };
        Some(RankPart { shape, cut: Cut::Shards(all), held, reversed: None, writer: None })
    }

    fn placements(&self, list: NodeId) -> Option<Vec<Placement>> {
        let list = self.pickle.sequence(list).filter(|list| list.len() <= MAX_MESH)?;
        list.iter().map(|placement| self.placement(*placement)).collect()
    }

    fn placement(&self, id: NodeId) -> Option<Placement> {
        let object = self.pickle.object(id)?;
        let class = self.pickle.global(object.callable)?;
        let dim = || self.pickle.int(self.field(id, "dim")?);
        Some(match &*class.name {
            "Replicate" => Placement::Replicate,
            "Shard" => Placement::Shard(dim()?),
            "_StridedShard" => {
                let factor = self.pickle.int(self.field(id, "split_factor")?)?;
                Placement::Strided { dim: dim()?, factor: u64::try_from(factor).ok()? }
            }
            name => {
                let reduce = self.field(id, "reduce_op").and_then(|op| self.pickle.str(op));
                let reduce = reduce.map_or(String::new(), |op| format!("({op})"));
                let name: String = name.trim_start_matches('_').chars().take(60).collect();
                Placement::Other(format!("{name}{reduce}"))
            }
        })
    }

    /// Returns for tensor dimensions with an explicit order the mesh dimensions that cut them, in
    /// that order.
    fn order(&self, spec: NodeId, mesh: usize) -> Vec<CutOrder> {
        let as_strided = self.field(spec, "use_strided_shard_as_shard_order");
        if as_strided.is_some_and(|flag| matches!(self.pickle.node(flag), Node::Bool(true))) {
            return Vec::new();
        }
        let entries = self.field(spec, "shard_order").and_then(|list| self.pickle.sequence(list));
        let entry = |id: &NodeId| {
            let (_, args) = self.pickle.call(*id)?;
            let [dim, mesh_dims] = args else { return None };
            let mesh_dims = self.numbers(*mesh_dims)?;
            let mesh_dims = mesh_dims.iter().map(|at| usize::try_from(*at).ok());
            let mesh_dims: Option<Vec<usize>> = mesh_dims.collect();
            Some((self.pickle.int(*dim)?, mesh_dims?))
        };
        let entries = entries.unwrap_or_default().iter().take(64).filter_map(entry);
        entries.filter(|(_, dims)| dims.iter().all(|dim| *dim < mesh)).collect()
    }

    fn mesh(&mut self, id: NodeId) -> Option<MeshPlace> {
        if let Some(known) = self.meshes.get(&id) {
            return known.clone();
        }
        let read = self.read_mesh(id);
        self.meshes.insert(id, read.clone());
        read
    }

    fn read_mesh(&self, id: NodeId) -> Option<MeshPlace> {
        let sizes = match self.field(id, "mesh") {
            // A tensor of the ranks, whose shape is that of the mesh.
            Some(ranks) => {
                let (_, args) = self.pickle.call(ranks)?;
                self.numbers(*args.get(2)?)?
            }
            None => self.layout(self.field(id, "_layout")?)?,
        };
        if sizes.len() > MAX_MESH {
            return None;
        }
        let names = self.field(id, "_mesh_dim_names").or_else(|| self.field(id, "mesh_dim_names"));
        let names = names.and_then(|names| self.pickle.sequence(names)).unwrap_or_default();
        let names = names.iter().take(MAX_MESH).filter_map(|name| self.pickle.str(*name));
        let names = names.map(|name| name.chars().take(60).collect()).collect();
        let coordinate = self.field(id, "_coordinate_on_dim")?;
        let coordinate = match self.pickle.node(coordinate) {
            Node::None => None,
            _ => Some(self.numbers(coordinate).filter(|them| {
                them.len() == sizes.len() && them.iter().zip(&sizes).all(|(at, len)| at < len)
            })?),
        };
        Some((Arc::new(Mesh { sizes, names }), coordinate))
    }

    /// Reads the sizes in a `_MeshLayout`: `axes` of 2.15, each with a `shape` whose product is the
    /// size; `shape` of 2.11, a number or a tuple of numbers and tuples.
    fn layout(&self, id: NodeId) -> Option<Vec<u64>> {
        let size = |id: NodeId| match self.pickle.sequence(id) {
            Some(_) => {
                let sizes = self.numbers(id)?;
                sizes.iter().try_fold(1u64, |product, size| product.checked_mul(*size))
            }
            None => u64::try_from(self.pickle.int(id)?).ok(),
        };
        if let Some(axes) = self.field(id, "axes") {
            let axes = self.pickle.sequence(axes).filter(|axes| axes.len() <= MAX_MESH)?;
            return axes.iter().map(|axis| size(self.field(*axis, "shape")?)).collect();
        }
        let shape = self.field(id, "shape")?;
        match self.pickle.sequence(shape) {
            Some(sizes) if sizes.len() <= MAX_MESH => sizes.iter().map(|id| size(*id)).collect(),
            Some(_) => None,
            None => Some(vec![size(shape)?]),
        }
    }

    /// Returns a field of an instance.
    fn field(&self, id: NodeId, name: &str) -> Option<NodeId> {
        self.state_field(self.pickle.state(id)?, name)
    }

    /// Returns a field of a state, which may be a pair of attributes and slots.
    fn state_field(&self, state: NodeId, name: &str) -> Option<NodeId> {
        let pickle = self.pickle;
        if pickle.dict(state).is_some() {
            return pickle.field(state, name);
        }
        let parts = pickle.sequence(state)?.iter().take(2);
        parts.copied().find_map(|part| pickle.field(part, name))
    }

    /// Reads a sequence of natural numbers, perhaps a `torch.Size`.
    fn numbers(&self, id: NodeId) -> Option<Vec<u64>> {
        let id = match self.pickle.call(id) {
            Some((global, [items])) if global.is("torch", "Size") => *items,
            Some(_) => return None,
            None => id,
        };
        let numbers = self.pickle.sequence(id).filter(|numbers| numbers.len() <= 64)?.iter();
        numbers.map(|number| u64::try_from(self.pickle.int(*number)?).ok()).collect()
    }
}

/// The order of the dimensions of a mesh that cut a dimension of the tensor.
type CutOrder = (i64, Vec<usize>);

/// Returns the placements as plain shards with the order in which they cut, if the strided ones stand
/// for shards that the mesh cuts from right to left: then `split_factor` is the number of parts into
/// which the dimensions of the mesh to the right cut.
fn right_to_left(
    dims: usize,
    placements: &[Placement],
    sizes: &[u64],
) -> Option<(Vec<Placement>, Vec<CutOrder>)> {
    let (mut plain, mut orders) = (placements.to_vec(), Vec::new());
    for dim in 0..dims {
        let cuts = |of: i64| axis(of, dims) == Some(dim);
        let (mut order, mut parts, mut strided) = (Vec::new(), 1u64, false);
        for (at, placement) in placements.iter().enumerate().rev() {
            match placement {
                Placement::Shard(of) if cuts(*of) => order.insert(0, at),
                Placement::Strided { dim: of, factor } if cuts(*of) => {
                    if *factor != parts {
                        return None;
                    }
                    strided = true;
                    order.push(at);
                    plain[at] = Placement::Shard(*of);
                }
                _ => continue,
            }
            parts = parts.checked_mul(sizes[at])?;
        }
        if strided {
            orders.push((dim as i64, order));
        }
    }
    (!orders.is_empty()).then_some((plain, orders))
}

/// Returns the dimension of a tensor of `dims` dimensions; a negative one counts from the end.
fn axis(dim: i64, dims: usize) -> Option<usize> {
    let dim = if dim < 0 { dim.checked_add(dims as i64)? } else { dim };
    usize::try_from(dim).ok().filter(|dim| *dim < dims)
}

/// Returns for each dimension of the tensor the runs of indices that the rank at `coordinate`
/// holds.
fn runs(
    shape: &[u64],
    placements: &[Placement],
    sizes: &[u64],
    coordinate: &[u64],
    order: &[CutOrder],
) -> Result<Vec<Vec<Range<u64>>>, String> {
    let axis = |dim: i64| axis(dim, shape.len());
    let whole = |len: &u64| iter::once(0..*len).collect();
    let mut held: Vec<Vec<Range<u64>>> = shape.iter().map(whole).collect();
    let ascending: Vec<usize> = (0..placements.len()).collect();
    for (dim, held) in held.iter_mut().enumerate() {
        let explicit = order.iter().find(|(of, _)| axis(*of) == Some(dim));
        let mesh_dims = explicit.map_or(&ascending, |(_, mesh_dims)| mesh_dims);
        for at in mesh_dims {
            let (count, index) = (sizes[*at], coordinate[*at]);
            match &placements[*at] {
                Placement::Shard(of) if axis(*of) == Some(dim) => {
                    *held = chunk(held, count, index);
                }
                Placement::Strided { dim: of, factor } if axis(*of) == Some(dim) => {
                    *held = strided(held, *factor, count, index)?;
                }
                _ => {}
            }
        }
    }
    for placement in placements {
        match placement {
            Placement::Other(name) if name.contains("Partial") => {
                return Err(format!(
                    "each rank holds only a part of the sum ({name}), which is not added up here"
                ));
            }
            Placement::Other(name) => {
                return Err(format!("its placement {name} is unknown"));
            }
            Placement::Shard(dim) | Placement::Strided { dim, .. } if axis(*dim).is_none() => {
                return Err(format!(
                    "it is cut along dimension {dim} and has {} dimensions",
                    shape.len()
                ));
            }
            _ => {}
        }
    }
    Ok(held)
}

fn total(runs: &[Range<u64>]) -> u64 {
    runs.iter().map(|run| run.end - run.start).sum()
}

/// Returns piece `index` of `count` by the rule of `torch.chunk`: all pieces have the same length,
/// rounded up, except the last ones, which may be shorter or empty.
fn chunk(runs: &[Range<u64>], count: u64, index: u64) -> Vec<Range<u64>> {
    let len = total(runs);
    let size = len.div_ceil(count.max(1));
    let from = index.saturating_mul(size).min(len);
    cut(runs, from..from.saturating_add(size).min(len))
}

/// Returns the indices at the positions `range` of the runs.
fn cut(runs: &[Range<u64>], range: Range<u64>) -> Vec<Range<u64>> {
    let mut found: Vec<Range<u64>> = Vec::new();
    let mut before = 0;
    for run in runs {
        let len = run.end - run.start;
        let from = range.start.clamp(before, before + len) - before;
        let to = range.end.clamp(before, before + len) - before;
        if from < to {
            found.push(run.start + from..run.start + to);
        }
        before += len;
    }
    found
}

/// Cuts into `factor` pieces and each of those into `count`, and joins piece `index` of each.
fn strided(
    runs: &[Range<u64>],
    factor: u64,
    count: u64,
    index: u64,
) -> Result<Vec<Range<u64>>, String> {
    let len = total(runs);
    let size = len.div_ceil(factor.max(1)).max(1);
    let outer = len.div_ceil(size);
    if outer > MAX_RUNS as u64 {
        return Err(format!("it is cut into {outer} strided parts"));
    }
    let mut found: Vec<Range<u64>> = Vec::new();
    for at in 0..outer {
        let piece = cut(runs, at * size..(at + 1).saturating_mul(size).min(len));
        for run in chunk(&piece, count, index) {
            match found.last_mut() {
                Some(last) if last.end == run.start => last.end = run.end,
                _ => found.push(run),
            }
        }
        if found.len() > MAX_RUNS {
            return Err("it is cut into too many strided parts".to_owned());
        }
    }
    Ok(found)
}

/// Returns the boxes for all combinations of runs.
fn boxes(runs: &[Vec<Range<u64>>]) -> Result<Vec<HeldBox>, String> {
    if runs.iter().any(|runs| total(runs) == 0) {
        return Ok(Vec::new());
    }
    let mut found = vec![HeldBox { at: Vec::new(), shape: Vec::new(), local_at: Vec::new() }];
    for runs in runs {
        if found.len().saturating_mul(runs.len()) > MAX_BOXES {
            return Err("it is cut into too many boxes".to_owned());
        }
        let mut next = Vec::with_capacity(found.len() * runs.len());
        for known in &found {
            let mut local = 0;
            for run in runs {
                let mut known = known.clone();
                known.at.push(run.start);
                known.shape.push(run.end - run.start);
                known.local_at.push(local);
                local += run.end - run.start;
                next.push(known);
            }
        }
        found = next;
    }
    Ok(found)
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replicate => f.write_str("Replicate"),
            Self::Shard(dim) => write!(f, "Shard({dim})"),
            Self::Strided { dim, factor } => write!(f, "_StridedShard({dim}, {factor})"),
            Self::Other(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, size) in self.sizes.iter().enumerate() {
            let name = self.names.get(at).map_or("", String::as_str);
            let (times, space) =
                (if at > 0 { " × " } else { "" }, if name.is_empty() { "" } else { " " });
            write!(f, "{times}{name}{space}{size}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shards(count) => write!(f, "{count} shards"),
            Self::Mesh { placements, mesh } => {
                let placements: Vec<String> = placements.iter().map(ToString::to_string).collect();
                write!(f, "{} on mesh {mesh}", placements.join(", "))
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "a list of runs may have one")]
mod tests {
    use statelens_checkpoint::{DType, Layout};

    use super::*;
    use Placement::{Replicate, Shard, Strided};

    fn lens(len: u64, count: u64) -> Vec<u64> {
        let whole = 0..len;
        (0..count).map(|index| total(&chunk(std::slice::from_ref(&whole), count, index))).collect()
    }

    /// The lengths of `torch.chunk`.
    #[test]
    fn cuts_as_torch_chunk_does() {
        assert_eq!(lens(10, 4), [3, 3, 3, 1]);
        assert_eq!(lens(5, 4), [2, 2, 1, 0]);
        assert_eq!(lens(2, 4), [1, 1, 0, 0]);
        assert_eq!(lens(6, 4), [2, 2, 2, 0]);
        assert_eq!(lens(0, 2), [0, 0]);
    }

    fn of(
        shape: &[u64],
        placements: &[Placement],
        sizes: &[u64],
        order: &[(i64, Vec<usize>)],
    ) -> Vec<Vec<Vec<Range<u64>>>> {
        let all = sizes.iter().product::<u64>();
        let at = |rank: u64| -> Vec<u64> {
            let mut rest = rank;
            let mut at: Vec<u64> = sizes
                .iter()
                .rev()
                .map(|size| {
                    let at = rest % size;
                    rest /= size;
                    at
                })
                .collect();
            at.reverse();
            at
        };
        (0..all).map(|rank| runs(shape, placements, sizes, &at(rank), order).unwrap()).collect()
    }

    /// The example in the documentation of `_StridedShard`, and FSDP over tensor parallelism.
    #[test]
    fn strided_shards_interleave() {
        let strided = [Strided { dim: 0, factor: 2 }, Shard(0)];
        let found = of(&[8], &strided, &[2, 2], &[]);
        assert_eq!(found, [0..2, 4..6, 2..4, 6..8].map(|run| vec![vec![run]]));
        let alone = of(&[9], &[Strided { dim: 0, factor: 2 }], &[2], &[]);
        assert_eq!(alone[0], [[0..3, 5..7]]);
        assert_eq!(alone[1], [[3..5, 7..9]]);
        // Explicit: the second dimension of the mesh cuts first.
        let ordered = of(&[8], &[Shard(0), Shard(0)], &[2, 2], &[(0, vec![1, 0])]);
        assert_eq!(ordered, found);
    }

    /// 7 rows on 3 ranks of FSDP2 over 2 of tensor parallelism, which cuts first: 4 and 3 rows.
    #[test]
    fn strided_shards_stand_for_cuts_from_right_to_left() {
        let strided = [Strided { dim: 0, factor: 2 }, Shard(0)];
        let (plain, order) = right_to_left(1, &strided, &[3, 2]).unwrap();
        let found = of(&[7], &plain, &[3, 2], &order);
        let expected = [0..2, 4..5, 2..4, 5..6, 0..0, 6..7];
        let expected = expected.map(|run| if run.is_empty() { vec![] } else { vec![run] });
        assert_eq!(found, expected.map(|runs| vec![runs]));
        // Equal lengths are cut alike in both orders.
        let (plain, order) = right_to_left(1, &strided, &[2, 2]).unwrap();
        assert_eq!(of(&[8], &plain, &[2, 2], &order), of(&[8], &strided, &[2, 2], &[]));
        // Not a stand-in for an order: the factor is not the number of parts to the right.
        assert_eq!(right_to_left(1, &strided, &[2, 3]), None);
        assert_eq!(right_to_left(1, &[Shard(0), Replicate], &[2, 2]), None);
    }

    #[test]
    fn rank_without_a_place_holds_no_elements() {
        let tensor = |rows| {
            Tensor::new(DType::F32, vec![rows, 4], Layout::Missing("not in this test".into()))
        };
        let held =
            |local_shape: &[u64]| HeldPart { local_shape: local_shape.to_vec(), boxes: vec![] };
        assert!(held(&[0, 4]).is_of(&tensor(0)));
        assert!(!held(&[0, 4]).is_of(&tensor(2)), "rows that no place has");
        // A rank outside of the mesh.
        assert!(held(&[]).is_of(&tensor(2)));
    }

    #[test]
    fn replicas_hold_all_and_negative_dimensions_count_from_the_end() {
        let found = of(&[4, 6], &[Replicate, Shard(-1)], &[2, 2], &[]);
        assert_eq!(found[1], [[0..4], [3..6]]);
        assert_eq!(found[1], found[3]);
        assert!(runs(&[4], &[Shard(1)], &[2], &[0], &[]).is_err());
        let partial = Placement::Other("Partial(sum)".into());
        let error = runs(&[4], &[partial], &[2], &[0], &[]).unwrap_err();
        assert!(error.contains("Partial(sum)"), "{error}");
        let huge = Strided { dim: 0, factor: u64::MAX };
        assert!(runs(&[u64::MAX], &[huge], &[2], &[0], &[]).is_err());
    }

    #[test]
    fn runs_become_boxes() {
        let found = boxes(&[vec![0..2, 5..6], vec![1..4]]).unwrap();
        let held = |at: [u64; 2], shape: [u64; 2], local: [u64; 2]| HeldBox {
            at: at.to_vec(),
            shape: shape.to_vec(),
            local_at: local.to_vec(),
        };
        assert_eq!(found, [held([0, 1], [2, 3], [0, 0]), held([5, 1], [1, 3], [2, 0])]);
        assert_eq!(boxes(&[vec![], vec![0..2]]).unwrap(), []);
        assert_eq!(boxes(&[]).unwrap().len(), 1);
    }
}
