//! Digests of elements that refer to a heap or to other objects. Their own bytes are addresses,
//! which may be equal for values that differ, and differ for values that are equal.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest as _, Sha256};
use statelens_checkpoint::{
    Chunk, Chunked, Chunks, DType, Error, FileId, FileSet, Layout, Limits, NumpyType, Result, Span,
    Tensor, Unwatched, numel, try_alloc,
};
use statelens_hdf5::{Class, Datatype, Hdf5File, ObjectTree};

/// The first bytes of the SHA-256 of the text of an element.
pub(super) type Digest = [u8; 16];

/// Bytes of elements that are read at once from a dataset without chunks.
const BLOCK: u64 = 1 << 20;

/// Returns a tensor of digests, which are computed when it is read. `stored` has the elements as
/// stored in the file.
pub(super) fn tensor(
    file: &Hdf5File,
    tree: &ObjectTree,
    datatype: &Arc<Datatype>,
    stored: Tensor,
    limits: &Limits,
) -> Result<Tensor> {
    let of = |element: &[u8]| {
        digest(file, Some(tree), datatype, &[], element, &mut |_| {}).map(|digest| digest.to_vec())
    };
    Limits::check("bytes of an element", datatype.size, limits.chunk)?;
    if stored.shape.is_empty() {
        return Err(Error::limit(format!("a single value of {} bytes", datatype.size)));
    }
    let mut fill = vec![0; datatype.size as usize];
    let block = match &stored.layout {
        Layout::Fill(element) => {
            return Ok(of_digests(datatype, stored.shape, Layout::Fill(of(element)?.into())));
        }
        Layout::Chunked(chunked) => {
            if !chunked.chunks.fill().is_empty() {
                fill = chunked.chunks.fill().to_vec();
            }
            chunked.shape.clone()
        }
        Layout::Span(_) => {
            let mut left = (BLOCK / datatype.size).max(1);
            let dims = stored.shape.iter().rev().map(|dim| {
                let dim = (*dim).min(left);
                left /= dim.max(1);
                dim
            });
            let mut dims: Vec<u64> = dims.collect();
            dims.reverse();
            dims
        }
        _ => return Err(Error::unsupported("its elements are not in one place")),
    };
    let digests = Digests {
        file: file.id(),
        start: file.start(),
        limits: limits.clone(),
        datatype: datatype.clone(),
        block: block.clone(),
        fill: of(&fill)?,
        stored,
        opened: Mutex::default(),
    };
    let shape = digests.stored.shape.clone();
    let layout = Layout::Chunked(Chunked { shape: block, chunks: Arc::new(digests) });
    Ok(of_digests(datatype, shape, layout))
}

/// Returns a tensor of digests of elements of a datatype, which its dtype names.
pub(super) fn of_digests(datatype: &Datatype, shape: Vec<u64>, layout: Layout) -> Tensor {
    let dtype = NumpyType {
        name: datatype.describe(),
        code: "V16".into(),
        itemsize: size_of::<Digest>() as u64,
        words: Vec::new(),
        fields: Vec::new(),
    };
    Tensor::new(DType::Numpy(Arc::new(dtype)), shape, layout)
}

/// Returns the digest of the text of values; passes the text to `out`, too.
pub(super) fn digest(
    file: &Hdf5File,
    tree: Option<&ObjectTree>,
    datatype: &Datatype,
    shape: &[u64],
    data: &[u8],
    out: &mut dyn FnMut(&str),
) -> Result<Digest> {
    let mut hash = Sha256::new();
    file.render(tree, datatype, shape, data, &mut |piece| {
        hash.update(piece);
        out(piece);
        Ok(())
    })?;
    let (mut digest, hash) = (Digest::default(), hash.finalize());
    digest.copy_from_slice(&hash[..size_of::<Digest>()]);
    Ok(digest)
}

/// Returns whether elements refer to a heap or to objects. The parser limits the nesting of
/// datatypes, so recursion is bounded.
pub(super) fn is_indirect(datatype: &Datatype) -> bool {
    holds(datatype, &|class| {
        matches!(class, Class::VlenStr | Class::Vlen(_) | Class::Reference { .. })
    })
}

/// Returns whether a datatype or a part of it has a certain class.
fn holds(datatype: &Datatype, is: &dyn Fn(&Class) -> bool) -> bool {
    let class = &datatype.class;
    is(class)
        || match class {
            Class::Compound(members) => members.iter().any(|member| holds(&member.datatype, is)),
            Class::Array { base, .. } | Class::Vlen(base) => holds(base, is),
            _ => false,
        }
}

/// The digests of a dataset as chunks.
struct Digests {
    file: FileId,
    /// The offset of the container in its file.
    start: u64,
    limits: Limits,
    datatype: Arc<Datatype>,
    /// The elements as stored in the file: a span, or chunks of the shape `block`.
    stored: Tensor,
    block: Vec<u64>,
    fill: Vec<u8>,
    /// The container, opened when the chunks were listed.
    opened: Mutex<Option<Arc<Opened>>>,
}

struct Opened {
    file: Hdf5File,
    /// Used to look up the paths of references, if there are any.
    tree: Option<ObjectTree>,
}

impl Chunks for Digests {
    fn table(&self, files: &FileSet) -> Result<Vec<Chunk>> {
        let file = Hdf5File::open_at(files, self.file, self.start, &self.limits)?.for_values();
        let refers = holds(&self.datatype, &|class| matches!(class, Class::Reference { .. }));
        let tree = refers.then(|| file.tree(&mut Unwatched)).transpose()?;
        *self.opened() = Some(Arc::new(Opened { file, tree }));
        match &self.stored.layout {
            Layout::Chunked(chunked) => chunked.chunks.table(files),
            Layout::Span(span) => self.blocks(*span),
            _ => Ok(Vec::new()),
        }
    }

    fn decode(&self, chunk: &Chunk, stored: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let opened = self.opened().clone();
        let opened = opened.ok_or_else(|| Error::damaged("chunks that are not listed"))?;
        let mut plain = Vec::new();
        let elements = match &self.stored.layout {
            Layout::Chunked(chunked) => {
                chunked.chunks.decode(chunk, stored, &mut plain)?;
                plain.as_slice()
            }
            _ => stored,
        };
        let count = numel(&self.block).unwrap_or(u64::MAX);
        out.clear();
        try_alloc::make_room(out, count.saturating_mul(self.fill.len() as u64))?;
        (0..count).for_each(|_| out.extend(&self.fill));
        let size = usize::try_from(self.datatype.size).unwrap_or(usize::MAX).max(1);
        let element = |at: u32| elements.get(at as usize * size..).and_then(|it| it.get(..size));
        let inside = (0..(elements.len() / size) as u32).filter(|at| self.is_inside(chunk, *at));
        let mut order: Vec<u32> = try_alloc::collect(inside)?;
        // Elements with the same heap collection follow each other: the address is after the length.
        order.sort_unstable_by_key(|at| element(*at).map(|it| (it.get(4..), it)));
        let mut last = None;
        for (at, bytes) in order.into_iter().filter_map(|at| Some((at as usize, element(at)?))) {
            let found = match last {
                Some((same, digest)) if same == bytes => digest,
                _ => {
                    let Opened { file, tree } = &*opened;
                    digest(file, tree.as_ref(), &self.datatype, &[], bytes, &mut |_| {})?
                }
            };
            last = Some((bytes, found));
            if let Some(place) = out.get_mut(at * found.len()..(at + 1) * found.len()) {
                place.copy_from_slice(&found);
            }
        }
        Ok(())
    }

    fn fill(&self) -> &[u8] {
        &self.fill
    }

    fn describe(&self) -> String {
        match &self.stored.layout {
            Layout::Chunked(chunked) => chunked.chunks.describe(),
            _ => String::new(),
        }
    }
}

impl Digests {
    fn opened(&self) -> std::sync::MutexGuard<'_, Option<Arc<Opened>>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Splits a dense span into blocks.
    fn blocks(&self, span: Span) -> Result<Vec<Chunk>> {
        let (shape, block) = (&self.stored.shape, &self.block);
        let wide = |dims: &[u64]| dims.iter().product::<u64>();
        // The axis along which blocks follow each other; they span all later ones.
        let axis = block.iter().zip(shape).rposition(|(block, dim)| block < dim).unwrap_or(0);
        let (dim, step, inner) = (shape[axis], block[axis], wide(&shape[axis + 1..]));
        let rows = wide(&shape[..axis]);
        let count = rows.saturating_mul(dim.div_ceil(step));
        Limits::check("blocks of a dataset", count, self.limits.members)?;
        let mut chunks = try_alloc::vec(count)?;
        for row in 0..rows {
            for first in (0..dim).step_by(usize::try_from(step).unwrap_or(usize::MAX)) {
                let mut at = vec![0; shape.len()];
                at[axis] = first;
                let mut left = row;
                for outer in (0..axis).rev() {
                    at[outer] = left % shape[outer];
                    left /= shape[outer];
                }
                let before = (row * dim + first) * inner * self.datatype.size;
                let len = step.min(dim - first) * inner * self.datatype.size;
                let span = Span { offset: span.offset.saturating_add(before), len, ..span };
                chunks.push(Chunk { at, span, mask: 0 });
            }
        }
        Ok(chunks)
    }

    /// Returns whether an element of a chunk is inside the dataset. Chunks at the edges may hold
    /// elements of a dataset that was larger, and refer to values that no longer exist.
    fn is_inside(&self, chunk: &Chunk, element: u32) -> bool {
        let mut left = u64::from(element);
        let axes = self.block.iter().zip(&chunk.at).zip(&self.stored.shape).rev();
        axes.fold(true, |inside, ((block, at), dim)| {
            let within = left % block;
            left /= block;
            inside && at.saturating_add(within) < *dim
        })
    }
}

impl fmt::Debug for Digests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digests({:?})", self.stored)
    }
}
