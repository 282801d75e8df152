//! Chunks, and parts along an axis.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// Chunks whose filter flips all bits.
#[derive(Debug)]
pub(super) struct Flipped {
    table: Vec<Chunk>,
    fill: Vec<u8>,
    pub(super) decoded: AtomicUsize,
    /// The number of calls of `table`.
    listed: AtomicUsize,
}

impl Flipped {
    /// Returns the number of stored chunks.
    pub(super) fn stored(&self) -> usize {
        self.table.len()
    }
}

impl Chunks for Flipped {
    fn table(&self, _files: &FileSet) -> Result<Vec<Chunk>> {
        self.listed.fetch_add(1, Ordering::Relaxed);
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

/// Returns a file with chunks of an array, some of which are not stored; the chunks; and the array.
pub(super) fn chunked(
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
    // In random order.
    for index in (1..table.len()).rev() {
        table.swap(index, random.next(index as u64 + 1) as usize);
    }
    let chunks = Flipped {
        table,
        fill: fill.to_vec(),
        decoded: AtomicUsize::new(0),
        listed: AtomicUsize::new(0),
    };
    (file(file_bytes), Arc::new(chunks), plain)
}

#[test]
fn reads_chunks_of_any_shape() {
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
fn parts_of_an_array_share_one_chunk_table() {
    let mut random = Random(12);
    let (files, chunks, plain) = chunked(&mut random, &[60, 5], &[3, 2], 2, &[]);
    let layout = Layout::Chunked(Chunked { shape: vec![3, 2], chunks: chunks.clone() });
    let tensor = Tensor::new(opaque(2), vec![60, 5], layout);
    for part in 0..20 {
        let range = part * 15..(part + 1) * 15;
        let found = run(&files, &tensor, range.clone(), 1 << 10, |_| 64).unwrap();
        assert_eq!(found, plain[range.start as usize * 2..range.end as usize * 2]);
    }
    assert_eq!(chunks.listed.load(Ordering::Relaxed), 1);
    // Other limits may refuse the table, so it is read again.
    let files = files.within(&checkpoint::Limits::default());
    run(&files, &tensor, 0..15, 1 << 10, |_| 64).unwrap();
    assert_eq!(chunks.listed.load(Ordering::Relaxed), 2);
}

#[test]
fn small_chunk_rows_use_little_memory() {
    let mut random = Random(13);
    let longest = |rows: u64, random: &mut Random| {
        let (files, chunks, plain) = chunked(random, &[6 << 10, 256], &[rows, 64], 4, &[]);
        let layout = Layout::Chunked(Chunked { shape: vec![rows, 64], chunks: chunks.clone() });
        let tensor = Tensor::new(opaque(4), vec![6 << 10, 256], layout);
        let mut gather = Gather::new(&files, &tensor, 0..(6 << 10) * 256, BUDGET).unwrap();
        let (mut longest, mut found) = (0, Vec::new());
        let mut out = |bytes: &[u8]| {
            longest = longest.max(bytes.len());
            found.extend_from_slice(bytes);
            Ok(())
        };
        loop {
            match gather.need() {
                Need::Feed(span) => {
                    let bytes = files.read_vec(span.file, span.offset, span.len).unwrap();
                    gather.feed(&bytes, &mut out).unwrap();
                }
                Need::Step => gather.step(&files, &mut out).unwrap(),
                Need::Done => break,
            }
        }
        assert!(found == plain, "{rows}");
        assert_eq!(chunks.decoded.load(Ordering::Relaxed), chunks.stored(), "{rows}");
        longest
    };
    assert_eq!(longest(100, &mut random), 2000 << 10);
    // A row of chunks is larger than that: chunks are still decoded once.
    assert_eq!(longest(3 << 10, &mut random), 3 << 20);
}

#[test]
fn invalid_chunk_table_is_damage() {
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
        let chunks = Flipped {
            table,
            fill: vec![0; fill],
            decoded: AtomicUsize::new(0),
            listed: AtomicUsize::new(0),
        };
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
fn joins_parts_along_any_axis() {
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
        // Makes the whole array, then each part cut out of it.
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
