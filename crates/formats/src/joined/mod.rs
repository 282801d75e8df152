//! Tensors that are stored in pieces, in one or many files.
//!
//! A format describes each piece of a [`JoinedTensor`] by its place in the tensor, a box or a range
//! of elements in C order, and by the location of its elements. This module checks that the pieces
//! cover the tensor exactly once, and nests them as a [`Layout`], so that everything that reads a
//! tensor reads the joined one. [`Joining`] collects the missing and contradictory pieces of a
//! whole checkpoint.

mod flat;
mod grid;
mod unread;
mod view;

use std::collections::{BTreeSet, HashMap};

use statelens_checkpoint::{
    DType, FileId, FileSet, Finding, FindingKind, Grade, Layout, Replica, Tensor, Text,
    contiguous_strides, counted, grouped, listed, numel, order,
};

use crate::unreadable_parts::Unread;

pub(crate) use flat::FlatTensor;
pub(crate) use unread::{UnreadFiles, of_content};
pub(crate) use view::{part, range};

/// A tensor in pieces.
#[derive(Debug)]
pub(crate) struct JoinedTensor {
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<u64>,
    pub(crate) pieces: Vec<Piece>,
}

/// A piece of a tensor: a box.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    /// The index of its first element in the tensor, per dimension.
    pub(crate) at: Vec<u64>,
    pub(crate) shape: Vec<u64>,
    /// The file that holds it, for messages.
    pub(crate) file: FileId,
    /// The location of its elements, in the dtype of the tensor, little-endian.
    pub(crate) layout: Layout,
}

impl Piece {
    fn end(&self, axis: usize) -> u64 {
        self.at[axis].saturating_add(self.shape[axis])
    }
}

/// The reason why pieces are not a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A piece is not inside the tensor.
    Outside { file: FileId, at: Vec<u64>, shape: Vec<u64> },
    /// No piece holds a part.
    Gap { at: Vec<u64>, shape: Vec<u64> },
    /// Two pieces, which differ, hold a common part.
    Overlap { files: [FileId; 2], at: Vec<u64>, shape: Vec<u64> },
    /// The partition can't be nested.
    Irregular,
}

impl Fault {
    /// Returns the reason as a sentence without a full stop.
    pub(crate) fn text(&self, files: &FileSet, whole: &[u64]) -> String {
        match self {
            Self::Outside { file, at, shape } => format!(
                "its piece of shape {shape:?} at {at:?} in {} is not inside its shape {whole:?}",
                files.name(*file)
            ),
            Self::Gap { at, shape } => {
                format!("no piece holds its part of shape {shape:?} at {at:?}")
            }
            Self::Overlap { files: [one, other], at, shape } if one == other => format!(
                "two of its pieces in {} overlap in the part of shape {shape:?} at {at:?}",
                files.name(*one)
            ),
            Self::Overlap { files: [one, other], at, shape } => format!(
                "its pieces in {} and {} overlap in the part of shape {shape:?} at {at:?}",
                files.name(*one),
                files.name(*other)
            ),
            Self::Irregular => "its pieces are cut too irregularly".to_owned(),
        }
    }
}

impl JoinedTensor {
    /// Returns the layout, and the further copies of pieces with the same box, as pairs of the copy
    /// used and the other one. The first of several copies is used.
    pub(crate) fn join(mut self) -> Result<(Layout, Vec<[Tensor; 2]>), Fault> {
        let rank = self.shape.len();
        for piece in &self.pieces {
            let fits = piece.at.len() == rank
                && piece.shape.len() == rank
                && (0..rank).all(|axis| {
                    let end = piece.at[axis].checked_add(piece.shape[axis]);
                    end.is_some_and(|end| end <= self.shape[axis])
                });
            if !fits {
                let (at, shape) = (piece.at.clone(), piece.shape.clone());
                return Err(Fault::Outside { file: piece.file, at, shape });
            }
        }
        if self.shape.contains(&0) {
            return Ok((Layout::Inline([].into()), Vec::new()));
        }
        self.pieces.retain(|piece| !piece.shape.contains(&0));
        // The sort is stable, so the first of several copies remains.
        order::by(&mut self.pieces, |a, b| (&a.at, &a.shape).cmp(&(&b.at, &b.shape)));
        let mut replicas = Vec::new();
        let dtype = &self.dtype;
        self.pieces.dedup_by(|other, used| {
            let is_same = other.at == used.at && other.shape == used.shape;
            if is_same && other.layout != used.layout {
                let copies = [&*used, other].map(|piece| {
                    Tensor::new(dtype.clone(), piece.shape.clone(), piece.layout.clone())
                });
                replicas.push(copies);
            }
            is_same
        });
        Ok((grid::nest(&self.shape, self.pieces)?, replicas))
    }
}

/// Collects the faults of the tensors of a checkpoint in pieces.
#[derive(Debug)]
pub(crate) struct Joining<'a> {
    files: &'a FileSet,
    /// The missing ranks or files, such as `rank 2 of 4`; empty if none are known to be missing.
    absent: String,
    /// The names of the missing files, as far as they are known.
    missing: Vec<String>,
    /// Whether some of them are missing, and whether others are there and can't be read.
    lacks: (bool, bool),
    /// The keys of tensors with parts that no piece holds.
    incomplete: Vec<String>,
    broken: Unread,
    replicas: Vec<Replica>,
    partial: HashMap<Text, Layout>,
    /// The number of tensors and pieces.
    pub(crate) tensors: u64,
    pub(crate) pieces: u64,
}

impl<'a> Joining<'a> {
    /// Creates it for tensors in these files. `absent` names the missing part, such as `rank 2`, and
    /// `missing` has the names of the missing files, and of those that can't be read.
    pub(crate) fn new(files: &'a FileSet, absent: String, missing: Vec<String>) -> Self {
        let unread = missing.iter().filter(|name| files.find(name).is_some()).count();
        Self {
            files,
            absent,
            lacks: (unread == 0 || unread < missing.len(), unread > 0),
            missing,
            incomplete: Vec::new(),
            broken: Unread::default(),
            replicas: Vec::new(),
            partial: HashMap::new(),
            tensors: 0,
            pieces: 0,
        }
    }

    /// Joins the tensor `key`. If that is impossible, records why, and returns a layout without
    /// bytes.
    pub(crate) fn join(&mut self, key: &Text, tensor: JoinedTensor) -> Layout {
        self.tensors += 1;
        self.pieces += tensor.pieces.len() as u64;
        let (shape, key) = (tensor.shape.clone(), key.clone());
        let pieces = (!self.absent.is_empty()).then(|| tensor.pieces.clone());
        match tensor.join() {
            Ok((layout, copies)) => {
                let copies = copies.into_iter().map(|copies| Replica { key: key.clone(), copies });
                self.replicas.extend(copies);
                layout
            }
            Err(fault @ Fault::Gap { .. }) if !self.absent.is_empty() => {
                let text = fault.text(self.files, &shape);
                let layout = pieces.and_then(|pieces| with_gaps(&shape, pieces));
                self.keep(&key, layout);
                self.lack(&key, &text)
            }
            Err(fault) => {
                let text = fault.text(self.files, &shape);
                self.refuse(&key, text)
            }
        }
    }

    /// Keeps the pieces of the incomplete tensor `key`.
    pub(crate) fn keep(&mut self, key: &Text, layout: Option<Layout>) {
        self.partial.extend(layout.map(|layout| (key.clone(), layout)));
    }

    /// Records that a part of the tensor `key` is missing, and returns a layout without bytes.
    /// `what` says which part.
    pub(crate) fn lack(&mut self, key: &Text, what: &str) -> Layout {
        self.incomplete.push(key.to_lossy().into_owned());
        Layout::Missing(format!("{what}: {}", self.missing_text()).into())
    }

    /// Records that the tensor `key` can't be read, with the reason as a sentence without a full
    /// stop, and returns a layout without bytes.
    pub(crate) fn refuse(&mut self, key: &Text, reason: String) -> Layout {
        let layout = Layout::Missing(reason.as_str().into());
        self.broken.add(key, reason);
        layout
    }

    /// Records that a tensor is stored whole in several files. Compares nothing.
    pub(crate) fn copies(&mut self, key: &Text, copies: [Tensor; 2]) {
        if copies[0].layout != copies[1].layout {
            self.replicas.push(Replica { key: key.clone(), copies });
        }
    }

    /// Returns the number of incomplete tensors as text for a line about the checkpoint, such as
    /// `2 incomplete: rank 5 is missing`; empty if nothing is missing.
    pub(crate) fn summary(&self) -> String {
        match (self.incomplete.len() as u64, self.absent.as_str()) {
            (_, "") => String::new(),
            (0, _) => format!(", {}", self.missing_text()),
            (count, _) => format!(", {} incomplete: {}", grouped(count), self.missing_text()),
        }
    }

    /// Returns `rank 2 of 4 is missing`, `ranks 2 and 3 of 4 are missing`, or `can't be read`.
    fn missing_text(&self) -> String {
        let first = self.absent.split(' ').next().unwrap_or_default();
        let many = first == "ranks" || self.absent.ends_with(" shards");
        let missing = if many { "are missing" } else { "is missing" };
        let verb = match self.lacks {
            (_, false) => missing.to_owned(),
            (false, true) => "can't be read".to_owned(),
            (true, true) => format!("{missing} or can't be read"),
        };
        format!("{} {verb}", self.absent)
    }

    /// Returns the rest of the line about a checkpoint of which only one rank's file is there, and the
    /// finding. `rank` names it, and `tensors` are in it.
    pub(crate) fn alone(&mut self, rank: &str, tensors: usize) -> (String, Finding) {
        let finding = Finding::new(
            Grade::Damage,
            format!("This is {rank}, and the others are missing"),
        )
        .detail(format!(
            "Its {} are shown as this file holds them: where a tensor is distributed, the part \
                 of this rank.",
            counted(tensors as u64, "tensor")
        ))
        .advice("Put the files of all ranks into one folder, and open that.")
        .missing(std::mem::take(&mut self.missing))
        .kind(FindingKind::UnlistedFiles);
        (format!(" of {rank} alone"), finding)
    }

    /// Returns the findings.
    pub(crate) fn findings(&mut self) -> Vec<Finding> {
        let mut findings = Vec::new();
        if !self.absent.is_empty() {
            let incomplete = match self.incomplete.len() as u64 {
                0 => "Copies of all tensors are in the other files.".to_owned(),
                count => {
                    let keys = listed(&self.incomplete, 5);
                    let of = counted(self.tensors, "tensor");
                    format!("{} of {of} incomplete: {keys}.", grouped(count))
                }
            };
            let title = match self.missing.as_slice() {
                [] => self.missing_text(),
                names => format!("{}: {}", self.missing_text(), listed(names, 5)),
            };
            let advice = match self.lacks {
                (_, false) => "Put the files of all ranks into one folder, and open that.",
                _ => "Copy the files again, and compare their sizes with the originals.",
            };
            findings.push(
                Finding::new(Grade::Damage, title)
                    .detail(incomplete)
                    .advice(advice)
                    .missing(std::mem::take(&mut self.missing)),
            );
        }
        let rest = "The other tensors are whole. A conversion can leave these out.";
        let broken = std::mem::take(&mut self.broken).findings();
        findings.extend(broken.map(|finding| finding.advice(rest)));
        findings
    }

    /// Takes the pieces of incomplete tensors, by key.
    pub(crate) fn partial(&mut self) -> HashMap<Text, Layout> {
        std::mem::take(&mut self.partial)
    }

    /// Takes the copies to compare.
    pub(crate) fn replicas(&mut self) -> Vec<Replica> {
        std::mem::take(&mut self.replicas)
    }
}

/// The maximum number of missing parts of a tensor whose pieces are kept.
const MAX_GAPS: usize = 64;

/// Returns the layout of pieces, in which parts that no piece holds are missing; `None` if there are
/// too many.
pub(crate) fn with_gaps(shape: &[u64], mut pieces: Vec<Piece>) -> Option<Layout> {
    for _ in 0..MAX_GAPS {
        // The dtype only matters for copies, which are not used here.
        let shape = shape.to_vec();
        let (dtype, known) = (DType::U8, pieces.clone());
        match (JoinedTensor { dtype, shape, pieces: known }).join() {
            Ok((layout, _)) => return Some(layout),
            Err(Fault::Gap { at, shape }) => {
                let layout = Layout::Missing("no piece holds this part".into());
                pieces.push(Piece { at, shape, file: FileId(0), layout });
            }
            Err(_) => return None,
        }
    }
    None
}

/// Returns whether a tensor of this shape and dtype is one that torch can have: its bytes and
/// strides fit 63 bits.
pub(crate) fn fits(shape: &[u64], dtype: &DType) -> bool {
    let bytes = numel(shape).and_then(|numel| dtype.bytes_of(numel));
    bytes.is_some_and(|bytes| bytes <= i64::MAX as u64) && contiguous_strides(shape).is_some()
}

/// Returns the names of ranks in words: `rank 2`, `ranks 2, 5 and 7`.
pub(crate) fn ranks(numbers: &BTreeSet<u64>) -> String {
    let names: Vec<String> = numbers.iter().map(u64::to_string).collect();
    match names.as_slice() {
        [] => String::new(),
        [one] => format!("rank {one}"),
        more => format!("ranks {}", listed(more, 8)),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    pub(crate) mod fixtures;

    use super::*;
    use statelens_checkpoint::{Memory, Unwatched};
    use std::sync::Arc;

    pub(super) fn piece(at: &[u64], shape: &[u64], byte: u8) -> Piece {
        let len = shape.iter().product::<u64>() as usize;
        Piece {
            at: at.to_vec(),
            shape: shape.to_vec(),
            file: FileId(byte.into()),
            layout: Layout::Inline(vec![byte; len].into()),
        }
    }

    pub(super) fn joined(shape: &[u64], pieces: Vec<Piece>) -> Result<Layout, String> {
        let mut files = FileSet::default();
        for name in ["f0", "f1"] {
            files.push(name, Arc::new(Memory::from(Vec::new())));
        }
        let tensor = JoinedTensor { dtype: DType::U8, shape: shape.to_vec(), pieces };
        tensor.join().map(|(layout, _)| layout).map_err(|fault| fault.text(&files, shape))
    }

    pub(super) fn read(shape: &[u64], layout: Layout) -> Vec<u8> {
        let tensor = Tensor::new(DType::U8, shape.to_vec(), layout);
        let mut out = Vec::new();
        let mut put = |bytes: &[u8]| {
            out.extend_from_slice(bytes);
            Ok(())
        };
        let files = FileSet::default();
        statelens_tensor::drain(&files, &tensor, 1 << 16, &mut Unwatched, &mut put).unwrap();
        out
    }

    pub(super) fn bytes(shape: &[u64], pieces: Vec<Piece>) -> Result<Vec<u8>, String> {
        joined(shape, pieces).map(|layout| read(shape, layout))
    }

    #[test]
    fn keeps_further_copies_for_comparison() {
        let mut other = piece(&[0], &[2], 9);
        other.file = FileId(1);
        let pieces = vec![piece(&[0], &[2], 1), piece(&[2], &[1], 2), other];
        let tensor = JoinedTensor { dtype: DType::U8, shape: vec![3], pieces };
        let (layout, copies) = tensor.join().unwrap();
        assert_eq!(read(&[3], layout), [1, 1, 2]);
        let [[used, other]] = &copies[..] else { panic!("{copies:?}") };
        assert_eq!(read(&[2], used.layout.clone()), [1, 1]);
        assert_eq!(read(&[2], other.layout.clone()), [9, 9]);
    }
}
