//! Every layout against a naive reference, fed in every way.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use statelens_checkpoint::{
    self as checkpoint, ByteOrder, Chunk, Chunked, Chunks, Concat, DType, Error, ErrorKind,
    FileSet, Layout, Memory, NumpyType, Packed, Part, Result, Span, Strided, Tensor, Unwatched,
};

use crate::{BUDGET, Gather, Need, drain, elements, verbatim_span};

/// A generator of numbers that look random: xorshift, seeded.
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below.max(1)
    }

    fn range(&mut self, len: u64) -> Range<u64> {
        let (a, b) = (self.next(len + 1), self.next(len + 1));
        a.min(b)..a.max(b)
    }

    fn shape(&mut self, rank: u64, most: u64) -> Vec<u64> {
        (0..rank).map(|_| 1 + self.next(most)).collect()
    }
}

/// Runs a gather, feeding pieces of the sizes that `piece` gives.
fn run(
    files: &FileSet,
    tensor: &Tensor,
    range: Range<u64>,
    budget: usize,
    mut piece: impl FnMut(u64) -> u64,
) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut out = |piece: &[u8]| {
        bytes.extend_from_slice(piece);
        Ok(())
    };
    let mut gather = Gather::new(files, tensor, range, budget)?;
    loop {
        match gather.need() {
            Need::Feed(span) => {
                let len = piece(span.len).min(span.len);
                let fed = files.read_vec(span.file, span.offset, len)?;
                gather.feed(&fed, &mut out)?;
            }
            Need::Step => gather.step(files, &mut out)?,
            Need::Done => return Ok(bytes),
        }
    }
}

fn whole(files: &FileSet, tensor: &Tensor) -> Result<Vec<u8>> {
    run(files, tensor, 0..tensor.numel().unwrap_or(0), BUDGET, |len| len)
}

fn bytes(len: usize) -> Vec<u8> {
    let mut random = Random(len as u64 + 1);
    (0..len).map(|_| random.next(256) as u8).collect()
}

fn file(bytes: Vec<u8>) -> FileSet {
    FileSet::single("test.bin", Memory::from(bytes))
}

fn span(files: &FileSet, offset: u64, len: u64) -> Layout {
    Layout::Span(Span { file: files.main().unwrap(), offset, len })
}

/// Elements of `size` bytes that mean nothing.
fn opaque(size: u64) -> DType {
    DType::Numpy(Arc::new(NumpyType {
        name: "void".into(),
        code: "V".into(),
        itemsize: size,
        words: Vec::new(),
        fields: Vec::new(),
    }))
}

/// All indices of a shape in C order.
fn indices(shape: &[u64]) -> Vec<Vec<u64>> {
    let total: u64 = shape.iter().product();
    (0..total)
        .map(|mut at| {
            let mut index = vec![0; shape.len()];
            for dim in (0..shape.len()).rev() {
                index[dim] = at % shape[dim];
                at /= shape[dim];
            }
            index
        })
        .collect()
}

/// The elements of a view, one by one.
fn naive_view(view: &Strided, shape: &[u64], storage: &[u8], size: usize) -> Vec<u8> {
    indices(shape)
        .iter()
        .flat_map(|index| {
            let far: i64 =
                index.iter().zip(&view.strides).map(|(at, stride)| *at as i64 * stride).sum();
            let at = (view.offset as i64 + far) as usize * size;
            storage[at..at + size].to_vec()
        })
        .collect()
}

fn deflate(plain: &[u8]) -> Vec<u8> {
    let mut machine = flate2::Compress::new(flate2::Compression::new(6), false);
    let mut packed = Vec::with_capacity(plain.len() + 100);
    machine.compress_vec(plain, &mut packed, flate2::FlushCompress::Finish).unwrap();
    packed
}

/// A random view that lies in its storage, and the storage's length in elements.
fn random_view(random: &mut Random) -> (Vec<u64>, Vec<i64>, u64, u64) {
    let rank = random.next(5);
    let shape = random.shape(rank, 6);
    let strides: Vec<i64> = shape.iter().map(|_| random.next(25) as i64 - 8).collect();
    let (mut low, mut high) = (0, 0);
    for (dim, stride) in shape.iter().zip(&strides) {
        let far = (*dim as i64 - 1) * stride;
        if far < 0 { low += far } else { high += far }
    }
    let before = random.next(4);
    let after = random.next(4);
    (shape, strides, before + low.unsigned_abs(), before + (high - low) as u64 + 1 + after)
}

#[test]
fn views_with_any_strides() {
    let mut random = Random(7);
    for round in 0..3000 {
        let (shape, strides, offset, elements) = random_view(&mut random);
        let size = [1, 2, 3, 4, 8, 16][random.next(6) as usize];
        let storage = bytes((elements * size) as usize);
        let (files, layout) = match round % 3 {
            0 => {
                let packed = deflate(&storage);
                let files = file(packed.clone());
                let Layout::Span(span) = span(&files, 0, packed.len() as u64) else { panic!() };
                (files, Layout::Packed(Packed { span, len: storage.len() as u64 }))
            }
            1 => (FileSet::default(), Layout::Inline(storage.clone().into())),
            _ => {
                let files = file([vec![9; 11], storage.clone(), vec![9; 3]].concat());
                let layout = span(&files, 11, storage.len() as u64);
                (files, layout)
            }
        };
        let view = Strided {
            storage: Arc::new(layout),
            storage_len: storage.len() as u64,
            offset,
            strides,
        };
        let expected = naive_view(&view, &shape, &storage, size as usize);
        let tensor = Tensor::new(opaque(size), shape, Layout::Strided(view));
        let range = random.range(tensor.numel().unwrap());
        let budget = 1 + random.next(200) as usize;
        let found = run(&files, &tensor, range.clone(), budget, |_| 1 + random.next(40)).unwrap();
        assert_eq!(
            found,
            expected[(range.start * size) as usize..(range.end * size) as usize],
            "{tensor:?} {range:?}"
        );
        assert_eq!(whole(&files, &tensor).unwrap(), expected, "{tensor:?}");
        if let Some(span) = verbatim_span(&tensor) {
            assert_eq!(files.read_vec(span.file, span.offset, span.len).unwrap(), expected);
        }
    }
}

#[test]
fn what_lies_far_apart_is_not_read() {
    // Three columns of a table with rows of 240 kB, backwards; and rows that are taken twice.
    let storage = bytes(10 * 240_000);
    let files = file(storage.clone());
    let view = Strided {
        storage: Arc::new(span(&files, 0, storage.len() as u64)),
        storage_len: storage.len() as u64,
        offset: 7 * 60_000 + 5,
        strides: vec![0, -120_000, 1],
    };
    let shape = vec![2, 3, 3];
    let expected = naive_view(&view, &shape, &storage, 4);
    let tensor = Tensor::new(DType::F32, shape, Layout::Strided(view));
    for budget in [1, 24, 1000] {
        let mut read = 0;
        let found = run(&files, &tensor, 0..18, budget, |len| {
            read += len;
            len
        });
        assert_eq!(found.unwrap(), expected);
        assert!(read <= 2 * 3 * 12, "{read}");
    }
}

#[test]
fn a_transposed_matrix_is_read_once_per_band() {
    let (rows, columns) = (300u64, 200u64);
    let storage = bytes((rows * columns * 4) as usize);
    let files = file(storage.clone());
    let view = Strided {
        storage: Arc::new(span(&files, 0, storage.len() as u64)),
        storage_len: storage.len() as u64,
        offset: 0,
        strides: vec![1, columns as i64],
    };
    let expected = naive_view(&view, &[columns, rows], &storage, 4);
    let tensor = Tensor::new(DType::F32, vec![columns, rows], Layout::Strided(view));
    for bands in [1, 4] {
        let mut read = 0;
        let budget = storage.len() / bands;
        let found = run(&files, &tensor, 0..rows * columns, budget, |len| {
            let len = len.min(999);
            read += len;
            len
        });
        assert_eq!(found.unwrap(), expected);
        assert!(read <= (bands * storage.len()) as u64, "{read}");
    }
}

/// Chunks whose filter flips all bits.
#[derive(Debug)]
struct Flipped {
    table: Vec<Chunk>,
    fill: Vec<u8>,
    decoded: AtomicUsize,
}

impl Chunks for Flipped {
    fn table(&self, _files: &FileSet) -> Result<Vec<Chunk>> {
        Ok(self.table.clone())
    }

    fn decode(&self, chunk: &Chunk, stored: &[u8], out: &mut Vec<u8>) -> Result<()> {
        assert_eq!(stored.len() as u64, chunk.span.len);
        self.decoded.fetch_add(1, Ordering::Relaxed);
        let flip = if chunk.mask == 0 { 0xff } else { 0 };
        out.extend(stored.iter().map(|byte| byte ^ flip));
        Ok(())
    }

    fn fill(&self) -> &[u8] {
        &self.fill
    }

    fn describe(&self) -> String {
        "flip".into()
    }
}

/// A file of chunks of an array, of which some are not stored; and the array.
fn chunked(
    random: &mut Random,
    shape: &[u64],
    chunk: &[u64],
    size: usize,
    fill: &[u8],
) -> (FileSet, Arc<Flipped>, Vec<u8>) {
    let grid: Vec<u64> = shape.iter().zip(chunk).map(|(dim, chunk)| dim.div_ceil(*chunk)).collect();
    let mut file_bytes = vec![7; 5];
    let mut table = Vec::new();
    let item = if fill.is_empty() { vec![0; size] } else { fill.to_vec() };
    let total: u64 = shape.iter().product();
    let mut plain = item.repeat(total as usize);
    for cell in indices(&grid) {
        if random.next(5) == 0 {
            continue;
        }
        let at: Vec<u64> = cell.iter().zip(chunk).map(|(cell, chunk)| cell * chunk).collect();
        let mask = random.next(2) as u32;
        let offset = file_bytes.len() as u64;
        for index in indices(chunk) {
            let index: Vec<u64> = index.iter().zip(&at).map(|(index, at)| index + at).collect();
            let inside = index.iter().zip(shape).all(|(index, dim)| index < dim);
            let linear = index.iter().zip(shape).fold(0, |at, (index, dim)| at * dim + index);
            for byte in 0..size {
                let value = random.next(256) as u8;
                file_bytes.push(if mask == 0 { !value } else { value });
                if inside {
                    plain[linear as usize * size + byte] = value;
                }
            }
        }
        let len = file_bytes.len() as u64 - offset;
        table.push(Chunk { at, span: Span { file: checkpoint::FileId(0), offset, len }, mask });
    }
    // In any order.
    for index in (1..table.len()).rev() {
        table.swap(index, random.next(index as u64 + 1) as usize);
    }
    let chunks = Flipped { table, fill: fill.to_vec(), decoded: AtomicUsize::new(0) };
    (file(file_bytes), Arc::new(chunks), plain)
}

#[test]
fn chunks_of_any_shape() {
    let mut random = Random(11);
    for _ in 0..1500 {
        let rank = random.next(4);
        let shape = random.shape(rank, 7);
        let chunk = random.shape(rank, 9);
        let size = [1, 2, 3, 8][random.next(4) as usize];
        let fill = if random.next(2) == 0 { Vec::new() } else { bytes(size) };
        let (files, chunks, plain) = chunked(&mut random, &shape, &chunk, size, &fill);
        let layout = Layout::Chunked(Chunked { shape: chunk.clone(), chunks: chunks.clone() });
        let tensor = Tensor::new(opaque(size as u64), shape, layout);
        let range = random.range(tensor.numel().unwrap());
        let budget = 1 + random.next(150) as usize;
        let found = run(&files, &tensor, range.clone(), budget, |_| 1 + random.next(50)).unwrap();
        let expected = &plain[range.start as usize * size..range.end as usize * size];
        assert_eq!(found, expected, "{tensor:?} {range:?} {budget}");
        chunks.decoded.store(0, Ordering::Relaxed);
        assert_eq!(whole(&files, &tensor).unwrap(), plain, "{tensor:?}");
        assert_eq!(chunks.decoded.load(Ordering::Relaxed), chunks.table.len());
    }
}

#[test]
fn a_chunk_table_that_lies_is_damage() {
    let mut random = Random(3);
    let (files, chunks, _) = chunked(&mut random, &[6, 6], &[4, 4], 2, &[]);
    let sound = |at: [u64; 2]| Chunk {
        at: at.to_vec(),
        span: Span { file: checkpoint::FileId(0), offset: 0, len: 32 },
        mask: 0,
    };
    drop(chunks);
    let with = |change: &dyn Fn(&mut Vec<Chunk>), shape: &[u64], fill: usize| {
        let mut table = vec![sound([0, 0]), sound([0, 4]), sound([4, 0])];
        change(&mut table);
        let chunks = Flipped { table, fill: vec![0; fill], decoded: AtomicUsize::new(0) };
        let layout = Layout::Chunked(Chunked { shape: shape.to_vec(), chunks: Arc::new(chunks) });
        whole(&files, &Tensor::new(DType::F16, vec![6, 6], layout)).map_err(|error| error.kind())
    };
    assert!(with(&|_| {}, &[4, 4], 0).is_ok());
    let damaged = Err(ErrorKind::Damaged);
    assert_eq!(with(&|table| table[1].at = vec![0, 0], &[4, 4], 0), damaged);
    assert_eq!(with(&|table| table[1].at = vec![0, 2], &[4, 4], 0), damaged);
    assert_eq!(with(&|table| table[1].at = vec![0, 8], &[4, 4], 0), damaged);
    assert_eq!(with(&|table| table[1].at = vec![0, u64::MAX], &[4, 4], 0), damaged);
    assert_eq!(with(&|table| table[1].at = vec![0], &[4, 4], 0), damaged);
    assert_eq!(with(&|table| table[1].span.len = 31, &[4, 4], 0), damaged);
    assert_eq!(with(&|table| table[1].span.len = 0, &[4, 4], 0), damaged);
    assert_eq!(with(&|table| table[1].span.offset = u64::MAX, &[4, 4], 0), damaged);
    assert_eq!(with(&|_| {}, &[4, 0], 0), damaged);
    assert_eq!(with(&|_| {}, &[4], 0), damaged);
    assert_eq!(with(&|_| {}, &[4, 4], 1), damaged);
    assert_eq!(with(&|_| {}, &[1 << 40, 4], 0), Err(ErrorKind::Limit));
    assert_eq!(with(&|_| {}, &[u64::MAX, u64::MAX], 0), damaged);
}

#[test]
fn parts_along_any_axis() {
    let mut random = Random(5);
    for _ in 0..1500 {
        let rank = 1 + random.next(3);
        let axis = random.next(rank) as usize;
        let mut shape = random.shape(rank, 6);
        shape[axis] = 0;
        let parts: Vec<Vec<u64>> = (0..1 + random.next(4))
            .map(|_| {
                let mut part = shape.clone();
                part[axis] = random.next(4);
                part
            })
            .collect();
        shape[axis] = parts.iter().map(|part| part[axis]).sum();
        let total: u64 = shape.iter().product();
        let size = 4;
        // The whole, then each part cut out of it.
        let plain = bytes((total * size) as usize);
        let mut storage = Vec::new();
        let mut layouts = Vec::new();
        let mut first = 0;
        for part in &parts {
            let offset = storage.len() as u64;
            for index in indices(part) {
                let index: Vec<u64> = (0..index.len())
                    .map(|dim| index[dim] + if dim == axis { first } else { 0 })
                    .collect();
                let at = index.iter().zip(&shape).fold(0, |at, (index, dim)| at * dim + index);
                storage.extend_from_slice(&plain[(at * size) as usize..((at + 1) * size) as usize]);
            }
            first += part[axis];
            layouts.push((part.clone(), offset, storage.len() as u64 - offset));
        }
        let files = file(storage.clone());
        let parts = layouts
            .into_iter()
            .map(|(shape, offset, len)| {
                let inline = &storage[offset as usize..(offset + len) as usize];
                let layout = match random.next(2) {
                    0 => Layout::Inline(inline.into()),
                    _ => span(&files, offset, len),
                };
                Part { shape, layout }
            })
            .collect();
        let tensor = Tensor::new(DType::F32, shape, Layout::Concat(Concat { axis, parts }));
        let range = random.range(total);
        let budget = 1 + random.next(300) as usize;
        let found = run(&files, &tensor, range.clone(), budget, |_| 1 + random.next(30)).unwrap();
        let expected = &plain[(range.start * size) as usize..(range.end * size) as usize];
        assert_eq!(found, expected, "{tensor:?} {range:?} {budget}");
        assert_eq!(whole(&files, &tensor).unwrap(), plain, "{tensor:?}");
    }
}

/// One tensor of each layout, and of each transformation.
fn samples() -> Vec<(FileSet, Tensor)> {
    let plain = bytes(2 * 3 * 4);
    let packed = deflate(&plain);
    let files = file([plain.clone(), packed.clone()].concat());
    let main = files.main().unwrap();
    let here = span(&files, 0, 24);
    let compressed = Layout::Packed(Packed {
        span: Span { file: main, offset: 24, len: packed.len() as u64 },
        len: 24,
    });
    let view = |storage: &Layout| {
        Layout::Strided(Strided {
            storage: Arc::new(storage.clone()),
            storage_len: 24,
            offset: 5,
            strides: vec![-1, -2],
        })
    };
    let fill: Arc<[u8]> = Arc::from([1, 2, 3, 4].as_slice());
    let part = |layout: Layout| Part { shape: vec![2, 3], layout };
    let concat = Concat { axis: 1, parts: vec![part(view(&here)), part(here.clone())] };
    let plain = |layout: Layout| Tensor::new(DType::F32, vec![2, 3], layout);
    let mut tensors = vec![
        plain(here.clone()),
        plain(compressed.clone()),
        plain(view(&here)),
        plain(view(&compressed)),
        plain(Layout::Fill(fill)),
        Tensor::new(DType::F32, vec![2, 6], Layout::Concat(concat)),
        Tensor { byte_order: ByteOrder::Big, ..plain(view(&here)) },
        Tensor { negate: true, ..plain(compressed.clone()) },
        Tensor { dtype: DType::BF16, ..plain(here.clone()) },
        Tensor { dtype: DType::F64, byte_order: ByteOrder::Big, ..plain(view(&compressed)) },
    ];
    let complex = Tensor::new(DType::C64, vec![3], here);
    tensors.push(Tensor { conjugate: true, byte_order: ByteOrder::Big, ..complex });
    let mut samples: Vec<_> = tensors.into_iter().map(|tensor| (files.clone(), tensor)).collect();
    let (files, chunks, _) = chunked(&mut Random(1), &[5, 3], &[2, 2], 4, &[]);
    let layout = Layout::Chunked(Chunked { shape: vec![2, 2], chunks });
    samples.push((files, Tensor::new(DType::F32, vec![5, 3], layout)));
    samples
}

#[test]
fn how_the_bytes_are_cut_makes_no_difference() {
    for (files, tensor) in samples() {
        let numel = tensor.numel().unwrap();
        let expected = whole(&files, &tensor).unwrap();
        assert_eq!(expected.len() as u64, tensor.nbytes().unwrap());
        for cut in 1..=128 {
            // The first piece is cut at every place; later ones come whole, or in equal pieces.
            let mut first = true;
            let found = run(&files, &tensor, 0..numel, BUDGET, |len| {
                if std::mem::take(&mut first) { cut } else { len }
            });
            assert_eq!(found.unwrap(), expected, "{tensor:?} {cut}");
            assert_eq!(run(&files, &tensor, 0..numel, 16, |_| cut).unwrap(), expected);
        }
        // Pieces of no bytes are pieces, too.
        let mut empty = false;
        let found = run(&files, &tensor, 0..numel, BUDGET, |len| {
            empty = !empty;
            if empty { 0 } else { len }
        });
        assert_eq!(found.unwrap(), expected);
        let mut drained = Vec::new();
        let mut keep = |bytes: &[u8]| {
            drained.extend_from_slice(bytes);
            Ok(())
        };
        drain(&files, &tensor, 5, &mut Unwatched, &mut keep).unwrap();
        assert_eq!(drained, expected);
        let size = tensor.dtype.itemsize() as usize;
        assert_eq!(elements(&files, &tensor, 1..3).unwrap(), expected[size..3 * size]);
    }
}

#[test]
fn parts_of_a_tensor_are_parts_of_the_whole() {
    for (files, tensor) in samples() {
        let expected = whole(&files, &tensor).unwrap();
        let size = tensor.dtype.itemsize();
        let numel = tensor.numel().unwrap();
        for start in 0..=numel {
            for end in start..=numel {
                let found = run(&files, &tensor, start..end, 24, |len| len).unwrap();
                assert_eq!(found, expected[(start * size) as usize..(end * size) as usize]);
            }
        }
        let kind = |range| Gather::new(&files, &tensor, range, BUDGET).unwrap_err().kind();
        assert_eq!(kind(0..numel + 1), ErrorKind::Io);
        #[allow(clippy::reversed_empty_ranges, reason = "that is what is tested")]
        let reversed = 2..1;
        assert_eq!(kind(reversed), ErrorKind::Io);
    }
}

#[test]
fn plain_bytes_are_passed_on_without_a_copy() {
    let files = file(bytes(64));
    let tensor = Tensor::new(DType::F32, vec![16], span(&files, 0, 64));
    let mut gather = Gather::new(&files, &tensor, 0..16, BUDGET).unwrap();
    let fed = bytes(64);
    let mut seen = Vec::new();
    gather
        .feed(&fed[..31], &mut |piece| {
            seen.push(piece.as_ptr());
            Ok(())
        })
        .unwrap();
    assert_eq!(seen, [fed.as_ptr()]);
    assert_eq!(
        gather.need(),
        Need::Feed(Span { file: files.main().unwrap(), offset: 31, len: 33 })
    );
    // More than was asked for is refused.
    assert_eq!(gather.feed(&fed, &mut |_| Ok(())).unwrap_err().kind(), ErrorKind::Io);
}

#[test]
fn byte_order_and_signs() {
    let gather = |tensor: Tensor| whole(&FileSet::default(), &tensor).unwrap();
    let inline = |dtype: DType, bytes: &[u8]| {
        let count = bytes.len() as u64 / dtype.itemsize();
        Tensor::new(dtype, vec![count], Layout::Inline(bytes.into()))
    };
    let big = |tensor: Tensor| Tensor { byte_order: ByteOrder::Big, ..tensor };
    assert_eq!(gather(big(inline(DType::I16, &[1, 2, 3, 4]))), [2, 1, 4, 3]);
    assert_eq!(gather(big(inline(DType::C32, &[1, 2, 3, 4]))), [2, 1, 4, 3]);
    assert_eq!(gather(big(inline(DType::U8, &[1, 2]))), [1, 2]);
    let record = NumpyType {
        name: "void64".into(),
        code: "V8".into(),
        itemsize: 8,
        // The last one would reach out of the element: it is left alone.
        words: vec![(1, 2), (4, 4), (7, 2), (u64::MAX, 2)],
        fields: Vec::new(),
    };
    let record = DType::Numpy(Arc::new(record));
    assert_eq!(gather(big(inline(record, &[1, 2, 3, 4, 5, 6, 7, 8]))), [1, 3, 2, 4, 8, 7, 6, 5]);
    let negative = |tensor: Tensor| Tensor { negate: true, ..tensor };
    let ints = [1i16, 0, i16::MIN, -256].map(i16::to_le_bytes).concat();
    let negated = [-1i16, 0, i16::MIN, 256].map(i16::to_le_bytes).concat();
    assert_eq!(gather(negative(inline(DType::I16, &ints))), negated);
    let floats = |values: &[f32]| -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    };
    assert_eq!(gather(negative(inline(DType::F32, &floats(&[1.5, 0.0])))), floats(&[-1.5, -0.0]));
    let complex = inline(DType::C64, &floats(&[1.0, 2.0]));
    assert_eq!(gather(negative(complex.clone())), floats(&[-1.0, -2.0]));
    let conjugate = Tensor { conjugate: true, ..complex };
    assert_eq!(gather(conjugate.clone()), floats(&[1.0, -2.0]));
    assert_eq!(gather(negative(conjugate)), floats(&[-1.0, 2.0]));
    // Conjugating real numbers does nothing.
    let real = Tensor { conjugate: true, ..inline(DType::F32, &floats(&[1.0])) };
    assert_eq!(gather(real), floats(&[1.0]));
}

#[test]
fn packed_bytes_must_be_exact() {
    let plain = bytes(300_000);
    let packed = deflate(&plain);
    let attempt = |packed: &[u8], len: u64, range: Range<u64>| {
        let files = file(packed.to_vec());
        let span = Span { file: files.main().unwrap(), offset: 0, len: packed.len() as u64 };
        let layout = Layout::Packed(Packed { span, len });
        let tensor = Tensor::new(DType::U8, vec![len], layout);
        run(&files, &tensor, range, BUDGET, |_| 1000).map_err(|error| error.kind())
    };
    assert_eq!(attempt(&packed, 300_000, 0..300_000).unwrap(), plain);
    assert_eq!(attempt(&packed, 300_000, 70_000..70_010).unwrap(), plain[70_000..70_010]);
    let damaged = Err(ErrorKind::Damaged);
    assert_eq!(attempt(&packed, 300_001, 0..300_001), damaged);
    assert_eq!(attempt(&packed, 299_999, 0..299_999), damaged);
    assert_eq!(attempt(&packed[..packed.len() - 1], 300_000, 0..300_000), damaged);
    assert_eq!(attempt(&[&packed, b"x".as_slice()].concat(), 300_000, 0..300_000), damaged);
    assert_eq!(attempt(&[], 300_000, 0..300_000), damaged);
    assert_eq!(attempt(&[0xff; 100], 300_000, 0..300_000), damaged);
}

#[test]
fn hostile_layouts_are_errors() {
    let files = file(bytes(1000));
    let kind = |dtype: DType, shape: &[u64], layout: Layout| {
        whole(&files, &Tensor::new(dtype, shape.to_vec(), layout)).map_err(|error| error.kind())
    };
    let view = |offset: u64, strides: &[i64], storage_len: u64| {
        let storage = Arc::new(span(&files, 0, 1000));
        Layout::Strided(Strided { storage, storage_len, offset, strides: strides.to_vec() })
    };
    let damaged = Err(ErrorKind::Damaged);
    for (shape, layout) in [
        (vec![2, 2], view(0, &[1], 1000)),
        (vec![2], view(250, &[1], 1000)),
        (vec![2], view(0, &[-1], 1000)),
        (vec![2], view(u64::MAX, &[1], 1000)),
        (vec![1], view(u64::MAX, &[1], 1000)),
        (vec![], view(u64::MAX / 4 + 1, &[], 1000)),
        (vec![1 << 40, 3], view(0, &[i64::MAX, 1], 1000)),
        (vec![1 << 40, 3], view(0, &[i64::MIN, 1], 1000)),
        (vec![1 << 31, 1 << 31], view(0, &[i64::MAX, i64::MIN], u64::MAX)),
        (vec![251], view(0, &[1], 1004)),
        (vec![300], view(0, &[0], 0)),
        (vec![251], span(&files, 0, 1004)),
        (vec![250], span(&files, 1, 1000)),
        (vec![250], span(&files, u64::MAX, 1000)),
        (vec![249], span(&files, 0, 1000)),
        (vec![u64::MAX, 2], Layout::Fill([0; 4].as_slice().into())),
        (vec![u64::MAX], Layout::Fill([0; 4].as_slice().into())),
        (vec![2], Layout::Fill([0; 3].as_slice().into())),
        (vec![2], Layout::Fill([].as_slice().into())),
        (vec![2], Layout::Inline([0; 7].as_slice().into())),
    ] {
        assert_eq!(kind(DType::F32, &shape, layout.clone()), damaged, "{shape:?} {layout:?}");
    }
    // Nothing is what there is of no elements, wherever they would be.
    assert_eq!(kind(DType::F32, &[0, u64::MAX], view(9999, &[1, 1], 1000)), Ok(vec![]));
    assert_eq!(kind(opaque(0), &[9], span(&files, 0, 0)), Ok(vec![]));
    assert_eq!(kind(opaque(1 << 40), &[1], Layout::Missing("x".into())), Err(ErrorKind::Limit));
    let elsewhere = Span { file: checkpoint::FileId(9), offset: 0, len: 4 };
    assert_eq!(kind(DType::F32, &[1], Layout::Span(elsewhere)), Err(ErrorKind::Io));
    let missing = Layout::Missing("weights.bin was not given".into());
    assert_eq!(kind(DType::F32, &[1], missing), Err(ErrorKind::Unsupported));

    let part = |shape: &[u64]| Part { shape: shape.to_vec(), layout: span(&files, 0, 8) };
    for (axis, parts) in [
        (0, vec![part(&[2]), part(&[2])]),
        (1, vec![part(&[2]), part(&[1])]),
        (0, vec![part(&[2, 1]), part(&[1])]),
        (0, vec![part(&[u64::MAX]), part(&[4])]),
        (0, vec![]),
    ] {
        let concat = Layout::Concat(Concat { axis, parts });
        assert_eq!(kind(DType::F32, &[3], concat.clone()), damaged, "{concat:?}");
    }
    let mut nested = span(&files, 0, 4);
    for _ in 0..20 {
        let parts = vec![Part { shape: vec![1], layout: nested }];
        nested = Layout::Concat(Concat { axis: 0, parts });
    }
    assert_eq!(kind(DType::F32, &[1], nested), Err(ErrorKind::Limit));
    let big = Tensor { negate: true, ..Tensor::new(DType::Bool, vec![4], span(&files, 0, 4)) };
    assert_eq!(whole(&files, &big).unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn random_nonsense_never_panics() {
    let mut random = Random(99);
    let files = file(bytes(4096));
    let mut sound = 0;
    for _ in 0..20_000 {
        let rank = random.next(4) as usize;
        let wild = |random: &mut Random, most: u64| match random.next(12) {
            0 => u64::MAX - random.next(3),
            1 => 1 << random.next(64),
            2 => 0,
            _ => random.next(most),
        };
        let shape: Vec<u64> = (0..rank).map(|_| wild(&mut random, 9)).collect();
        let strides = (0..rank).map(|_| (wild(&mut random, 12) as i64).wrapping_sub(3)).collect();
        let offset = wild(&mut random, 4096);
        let len = wild(&mut random, 4096);
        let base = match random.next(3) {
            0 => Layout::Packed(Packed {
                span: Span { file: checkpoint::FileId(0), offset, len },
                len: wild(&mut random, 4096),
            }),
            _ => span(&files, offset, len),
        };
        let layout = match random.next(2) {
            0 => base,
            _ => Layout::Strided(Strided {
                storage: Arc::new(base),
                storage_len: wild(&mut random, 4096),
                offset: wild(&mut random, 500),
                strides,
            }),
        };
        let tensor = Tensor::new(DType::I32, shape, layout);
        // A view may repeat its storage as often as it likes: that is long, not wrong.
        if tensor.numel().is_some_and(|numel| numel < 1 << 16) {
            sound += usize::from(whole(&files, &tensor).is_ok_and(|bytes| !bytes.is_empty()));
        } else {
            drop(Gather::new(&files, &tensor, 0..1, BUDGET));
        }
    }
    assert!(sound > 100, "{sound}");
}

#[test]
fn a_stop_is_heard() {
    struct Stop;
    impl checkpoint::Progress for Stop {
        fn report(&mut self, done: u64, total: u64) -> bool {
            assert_eq!(total, 64);
            done < 20
        }
    }
    let files = file(bytes(64));
    let tensor = Tensor::new(DType::F32, vec![16], span(&files, 0, 64));
    let mut seen = 0;
    let error: Error = drain(&files, &tensor, 10, &mut Stop, &mut |bytes| {
        seen += bytes.len();
        Ok(())
    })
    .unwrap_err();
    assert_eq!((error.kind(), seen), (ErrorKind::Cancelled, 20));
}
