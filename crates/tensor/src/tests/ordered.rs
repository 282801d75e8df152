//! Views and chunks that are stored in another order than read: counts reads and decoding.

use std::sync::atomic::Ordering;

use statelens_checkpoint::MemoryScratch;

use super::chunks::chunked;
use super::views::{naive_view, random_view};
use super::*;

/// The cost of reading a tensor.
struct Cost {
    bytes: Vec<u8>,
    /// Bytes that were requested.
    requested_bytes: u64,
    /// The number of separate reads.
    reads: u64,
}

fn cost(files: &FileSet, tensor: &Tensor, budget: usize) -> Result<Cost> {
    let mut cost = Cost { bytes: Vec::new(), requested_bytes: 0, reads: 0 };
    let mut gather = Gather::new(files, tensor, 0..tensor.numel().unwrap(), budget)?;
    let mut behind = None;
    loop {
        let out = &mut |piece: &[u8]| {
            cost.bytes.extend_from_slice(piece);
            Ok(())
        };
        match gather.need() {
            Need::Feed(span) => {
                cost.reads += u64::from(behind != Some(span.offset));
                let fed = files.read_vec(span.file, span.offset, span.len.min(60_000))?;
                cost.requested_bytes += fed.len() as u64;
                behind = Some(span.offset + fed.len() as u64);
                gather.feed(&fed, out)?;
            }
            Need::Step => gather.step(files, out)?,
            Need::Done => return Ok(cost),
        }
    }
}

fn roomy(files: FileSet) -> FileSet {
    files.with_scratch(Arc::new(MemoryScratch::new(1 << 30)))
}

fn view_of(storage: Layout, len: u64, offset: u64, strides: &[i64]) -> Layout {
    let strides = strides.to_vec();
    Layout::Strided(Strided { storage: Arc::new(storage), storage_len: len, offset, strides })
}

/// Returns views of 1 MB that differ from the storage's order in one way or another.
fn views() -> Vec<(&'static str, Vec<u64>, u64, Vec<i64>)> {
    vec![
        ("transposed", vec![500, 500], 0, vec![1, 500]),
        ("transposed, long columns", vec![10, 25_000], 0, vec![1, 10]),
        ("transposed, short columns", vec![25_000, 10], 0, vec![1, 25_000]),
        ("transposed, backwards", vec![500, 500], 249_999, vec![-1, -500]),
        ("dimensions reversed", vec![60, 60, 60], 0, vec![1, 60, 3600]),
        ("dimensions rotated", vec![60, 60, 60], 0, vec![60, 1, 3600]),
        ("heads apart", vec![16, 125, 125], 0, vec![125, 2000, 1]),
        ("columns of it", vec![500, 250], 125, vec![500, 1]),
        ("columns of it, transposed", vec![250, 500], 125, vec![1, 500]),
        ("every other row, transposed", vec![500, 250], 0, vec![1, 1000]),
        ("windows", vec![5_000, 50], 0, vec![1, 1]),
        ("windows, transposed", vec![50, 5_000], 0, vec![1, 1]),
        ("windows of a matrix", vec![50, 450, 10], 0, vec![1, 500, 1]),
        ("repeated", vec![3, 250, 250], 0, vec![0, 1, 1000]),
    ]
}

#[test]
fn views_of_a_span_read_little_more_than_its_bytes() {
    let storage = bytes(1_000_000);
    let files = roomy(file(storage.clone()));
    for (name, shape, offset, strides) in views() {
        let layout = view_of(span(&files, 0, 1_000_000), 1_000_000, offset, &strides);
        let Layout::Strided(view) = &layout else { panic!() };
        let expected = naive_view(view, &shape, &storage, 4);
        let tensor = Tensor::new(DType::F32, shape, layout);
        let cost = cost(&files, &tensor, 16 << 10).unwrap();
        assert!(cost.bytes == expected, "{name}");
        let most = 3 * expected.len().min(1_000_000) as u64;
        assert!(cost.requested_bytes <= most, "{name}: {} of {most}", cost.requested_bytes);
        assert!(cost.reads <= 1_000, "{name}: {} reads", cost.reads);
    }
}

#[test]
fn views_of_a_stream_read_it_at_most_twice() {
    let storage = bytes(1_000_000);
    let packed = deflate(&storage);
    let len = packed.len() as u64;
    let files = roomy(file(packed));
    let stream = Span { file: files.main().unwrap(), offset: 0, len };
    for (name, shape, offset, strides) in views() {
        let stream = Layout::Packed(Packed {
            packing: Packing::Deflate,
            span: stream,
            skip: 0,
            len: 1_000_000,
        });
        let layout = view_of(stream, 1_000_000, offset, &strides);
        let Layout::Strided(view) = &layout else { panic!() };
        let expected = naive_view(view, &shape, &storage, 4);
        let tensor = Tensor::new(DType::F32, shape, layout);
        let cost = cost(&files, &tensor, 16 << 10).unwrap();
        assert!(cost.bytes == expected, "{name}");
        assert!(cost.requested_bytes <= 2 * len, "{name}: {} of {len}", cost.requested_bytes);
    }
}

#[test]
fn transposed_chunks_are_decoded_at_most_three_times() {
    let mut random = Random(17);
    for chunk in [[500, 7], [150, 150], [1, 500], [7, 450], [499, 499]] {
        let shape = [500, 500];
        let (files, chunks, plain) = chunked(&mut random, &shape, &chunk, 4, &[]);
        let files = roomy(files);
        let layout = Layout::Chunked(Chunked { shape: chunk.to_vec(), chunks: chunks.clone() });
        let stored = chunks.stored();
        let tensor = Tensor::new(DType::F32, shape.to_vec(), layout.clone());
        let found = cost(&files, &tensor, 16 << 10).unwrap();
        assert!(found.bytes == plain, "{chunk:?}");
        let decoded = chunks.decoded.swap(0, Ordering::Relaxed);
        assert!(decoded <= 3 * stored, "{chunk:?}: {decoded} of {stored}");

        // The same transposed: the storage of the view is the chunked array.
        let part = Part { shape: shape.to_vec(), layout };
        let storage = Layout::Concat(Concat { axis: 0, parts: vec![part] });
        let layout = view_of(storage, 1_000_000, 0, &[1, 500]);
        let Layout::Strided(view) = &layout else { panic!() };
        let expected = naive_view(view, &shape, &plain, 4);
        let tensor = Tensor::new(DType::F32, shape.to_vec(), layout);
        let found = cost(&files, &tensor, 16 << 10).unwrap();
        assert!(found.bytes == expected, "{chunk:?}");
        let decoded = chunks.decoded.swap(0, Ordering::Relaxed);
        assert!(decoded <= 3 * stored, "{chunk:?}: {decoded} of {stored}");
    }
}

#[test]
fn compressed_parts_are_read_once() {
    // Two matrices side by side, each deflated.
    let half = bytes(500_000);
    let packed = deflate(&half);
    let len = packed.len() as u64;
    let files = roomy(file([packed.clone(), packed].concat()));
    let part = |offset: u64| {
        let span = Span { file: checkpoint::FileId(0), offset, len };
        let layout =
            Layout::Packed(Packed { span, packing: Packing::Deflate, skip: 0, len: 500_000 });
        Part { shape: vec![500, 250], layout }
    };
    let layout = Layout::Concat(Concat { axis: 1, parts: vec![part(0), part(len)] });
    let tensor = Tensor::new(DType::F32, vec![500, 500], layout);
    let expected: Vec<u8> = half.chunks(1000).flat_map(|row| [row, row].concat()).collect();
    let cost = cost(&files, &tensor, 16 << 10).unwrap();
    assert!(cost.bytes == expected);
    assert!(cost.requested_bytes <= 3 * len, "{} of {len}", cost.requested_bytes);
}

#[test]
fn without_scratch_rereads_or_refuses_with_the_cost() {
    let storage = bytes(1_000_000);
    let packed = deflate(&storage);
    let len = packed.len() as u64;
    let files = file(packed);
    let stream = Span { file: files.main().unwrap(), offset: 0, len };
    let stream =
        |len| Layout::Packed(Packed { packing: Packing::Deflate, span: stream, skip: 0, len });
    let view = view_of(stream(1_000_000), 1_000_000, 0, &[1, 500]);
    let Layout::Strided(of) = &view else { panic!() };
    let expected = naive_view(of, &[500, 500], &storage, 4);
    let tensor = Tensor::new(DType::F32, vec![500, 500], view.clone());
    assert!(cost(&files, &tensor, 16 << 10).unwrap().bytes == expected);
    // A terabyte, in bands of 16 kB: refused before anything is read.
    let side = 1u64 << 19;
    let view = view_of(stream(side * side * 4), side * side * 4, 0, &[1, side as i64]);
    let tensor = Tensor::new(DType::F32, vec![side, side], view);
    let error = Gather::new(&files, &tensor, 0..side * side, 16 << 10).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Limit);
    assert!(error.to_string().contains("67108864 times"), "{error}");
    // Too little scratch space is an error of the scratch.
    let little = files.with_scratch(Arc::new(MemoryScratch::new(1000)));
    let error = Gather::new(&little, &tensor, 0..side * side, 16 << 10).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Limit);
}

#[test]
fn views_of_any_storage_with_and_without_scratch() {
    let mut random = Random(23);
    for round in 0..2400 {
        let (mut shape, mut strides, mut offset, mut elements) = random_view(&mut random);
        let size = [1, 2, 3, 4, 8][random.next(5) as usize];
        let mut storage_shape = Vec::new();
        if round % 2 == 0 {
            // A permutation of a dense array, or of a part of one.
            let rank = 1 + random.next(4);
            storage_shape = random.shape(rank, 7);
            elements = storage_shape.iter().product();
            let mut dense = vec![1i64; storage_shape.len()];
            for dim in (1..dense.len()).rev() {
                dense[dim - 1] = dense[dim] * storage_shape[dim] as i64;
            }
            let mut order: Vec<usize> = (0..dense.len()).collect();
            for dim in (1..order.len()).rev() {
                order.swap(dim, random.next(dim as u64 + 1) as usize);
            }
            offset = 0;
            (shape, strides) = (Vec::new(), Vec::new());
            for dim in order {
                let range = random.range(storage_shape[dim] - 1);
                let backwards = random.next(4) == 0;
                offset += if backwards { range.end } else { range.start } * dense[dim] as u64;
                shape.push(range.end - range.start + 1);
                strides.push(if backwards { -dense[dim] } else { dense[dim] });
            }
        }
        let (files, layout, storage) = match round % 8 {
            0 | 1 => {
                let storage = bytes((elements * size) as usize);
                let packed = deflate(&storage);
                let files = file(packed.clone());
                let Layout::Span(span) = span(&files, 0, packed.len() as u64) else { panic!() };
                let len = storage.len() as u64;
                (
                    files,
                    Layout::Packed(Packed { span, packing: Packing::Deflate, skip: 0, len }),
                    storage,
                )
            }
            2 | 3 => {
                if storage_shape.is_empty() {
                    storage_shape = vec![elements];
                }
                let chunk: Vec<u64> =
                    storage_shape.iter().map(|dim| 1 + random.next(*dim + 1)).collect();
                let size = size as usize;
                let (files, chunks, plain) =
                    chunked(&mut random, &storage_shape, &chunk, size, &[]);
                let layout = Layout::Chunked(Chunked { shape: chunk, chunks });
                let part = Part { shape: storage_shape, layout };
                (files, Layout::Concat(Concat { axis: 0, parts: vec![part] }), plain)
            }
            _ => {
                let storage = bytes((elements * size) as usize);
                let files = file([vec![9; 11], storage.clone(), vec![9; 3]].concat());
                let layout = span(&files, 11, storage.len() as u64);
                (files, layout, storage)
            }
        };
        let files = if random.next(4) == 0 { files } else { roomy(files) };
        let layout = view_of(layout, storage.len() as u64, offset, &strides);
        let Layout::Strided(view) = &layout else { panic!() };
        let expected = naive_view(view, &shape, &storage, size as usize);
        let tensor = Tensor::new(opaque(size), shape, layout);
        let numel = tensor.numel().unwrap();
        let range = if random.next(2) == 0 { 0..numel } else { random.range(numel) };
        let budget = 1 + random.next(200) as usize;
        let cut = 1 + random.next(40);
        let found = run(&files, &tensor, range.clone(), budget, |_| cut).unwrap();
        let expected = &expected[(range.start * size) as usize..(range.end * size) as usize];
        assert_eq!(found, expected, "{tensor:?} {range:?} {budget} {cut}");
    }
}
