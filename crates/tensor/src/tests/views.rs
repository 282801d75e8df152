//! Views of a storage.

use super::*;

/// Returns the elements of a view, one by one.
pub(super) fn naive_view(view: &Strided, shape: &[u64], storage: &[u8], size: usize) -> Vec<u8> {
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

/// Returns a random view that is within its storage, and the storage's length in elements.
pub(super) fn random_view(random: &mut Random) -> (Vec<u64>, Vec<i64>, u64, u64) {
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
fn reads_views_with_any_strides() {
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
                (
                    files,
                    Layout::Packed(Packed {
                        span,
                        packing: Packing::Deflate,
                        skip: 0,
                        len: storage.len() as u64,
                    }),
                )
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
fn spans_of_pieces_are_the_logical_bytes() {
    const ROW: u64 = 1 << 10;
    let files = file(bytes(900 << 10));
    let part = |at: u64, rows: u64| Part {
        shape: vec![rows, ROW / 4],
        layout: span(&files, at * ROW, rows * ROW),
    };
    let concat = |axis, parts: &[Part]| Layout::Concat(Concat { axis, parts: parts.to_vec() });
    // The second and the third are neighbours in the file.
    let parts = [part(600, 300), part(0, 200), part(200, 100)];
    let rows = Tensor::new(DType::F32, vec![600, ROW / 4], concat(0, &parts));
    let flat = parts.clone().map(|part| Part { shape: vec![part.shape[0] * ROW / 4], ..part });
    let view = Strided {
        storage: Arc::new(concat(0, &flat)),
        storage_len: 600 * ROW,
        offset: ROW / 8,
        strides: vec![300, 1],
    };
    let view = Tensor::new(DType::F32, vec![500, 300], Layout::Strided(view));
    let one = Tensor::new(DType::F32, vec![1, 600, ROW / 4], {
        let parts =
            parts.clone().map(|part| Part { shape: [&[1], &part.shape[..]].concat(), ..part });
        concat(1, &parts)
    });
    for tensor in [&rows, &view, &one] {
        let numel = tensor.numel().unwrap();
        let expected = whole(&files, tensor).unwrap();
        for range in [0..numel, 5..numel - 7, 300 * ROW / 4..numel, 9..9] {
            let spans = verbatim_spans(&files, tensor, &range).unwrap();
            let read = |span: &Span| files.read_vec(span.file, span.offset, span.len).unwrap();
            let found: Vec<u8> = spans.iter().flat_map(read).collect();
            assert!(found == expected[4 * range.start as usize..4 * range.end as usize]);
            assert!(spans.len() <= 2);
        }
    }
    let none = |tensor: &Tensor| {
        assert_eq!(verbatim_spans(&files, tensor, &(0..tensor.numel().unwrap())), None);
    };
    none(&Tensor { dtype: DType::F64, ..rows.clone() });
    none(&Tensor { byte_order: ByteOrder::Big, ..rows.clone() });
    let columns = [part(600, 300), part(0, 300)];
    none(&Tensor::new(DType::F32, vec![300, ROW / 2], concat(1, &columns)));
    none(&Tensor::new(DType::F32, vec![500, ROW / 4], concat(0, &parts)));
    let missing = Part { layout: Layout::Missing("gone".into()), ..part(0, 300) };
    none(&Tensor::new(DType::F32, vec![600, ROW / 4], concat(0, &[part(0, 300), missing])));
    let thin: Vec<Part> = (0..600).rev().map(|at| part(at, 1)).collect();
    none(&Tensor::new(DType::F32, vec![600, ROW / 4], concat(0, &thin)));
}

#[test]
fn does_not_read_gaps_between_elements() {
    // Three columns of every other row, backwards, of a table with rows of 240 kB; all of it twice.
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
fn reads_a_transposed_matrix_once_per_band() {
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
