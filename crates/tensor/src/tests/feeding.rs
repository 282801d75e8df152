//! Feeding a gather, and the transformations of elements.

use super::chunks::chunked;
use super::*;

/// Returns one tensor for each layout and for each transformation.
fn samples() -> Vec<(FileSet, Tensor)> {
    let plain = bytes(2 * 3 * 4);
    let packed = deflate(&plain);
    let files = file([plain.clone(), packed.clone()].concat());
    let main = files.main().unwrap();
    let here = span(&files, 0, 24);
    let compressed = Layout::Packed(Packed {
        packing: Packing::Deflate,
        span: Span { file: main, offset: 24, len: packed.len() as u64 },
        skip: 0,
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
fn result_does_not_depend_on_piece_size() {
    for (files, tensor) in samples() {
        let numel = tensor.numel().unwrap();
        let expected = whole(&files, &tensor).unwrap();
        assert_eq!(expected.len() as u64, tensor.nbytes().unwrap());
        for cut in 1..=128 {
            // The first piece is cut at every place; later ones are complete, or of equal size.
            let mut first = true;
            let found = run(&files, &tensor, 0..numel, BUDGET, |len| {
                if std::mem::take(&mut first) { cut } else { len }
            });
            assert_eq!(found.unwrap(), expected, "{tensor:?} {cut}");
            assert_eq!(run(&files, &tensor, 0..numel, 16, |_| cut).unwrap(), expected);
        }
        // Empty pieces are allowed, too.
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
fn element_ranges_equal_parts_of_the_whole() {
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
fn passes_plain_bytes_on_without_a_copy() {
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
    // More bytes than needed are refused.
    assert_eq!(gather.feed(&fed, &mut |_| Ok(())).unwrap_err().kind(), ErrorKind::Io);
}

#[test]
fn applies_byte_order_negation_and_conjugation() {
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
        // The last two would extend beyond the element and are ignored.
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
fn swaps_long_strings_by_character() {
    let dtype = DType::from_numpy_code("U70000").unwrap();
    let stored: Vec<u8> = (0..140_000u32).flat_map(u32::to_be_bytes).collect();
    let files = file(stored);
    let mut tensor = Tensor::new(dtype, vec![2], span(&files, 0, 560_000));
    tensor.byte_order = ByteOrder::Big;
    let expected: Vec<u8> = (0..140_000u32).flat_map(u32::to_le_bytes).collect();
    assert!(whole(&files, &tensor).unwrap() == expected);
}

#[test]
fn progress_can_cancel() {
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
