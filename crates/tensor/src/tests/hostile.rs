//! Layouts with false claims.

use super::*;

#[test]
fn compressed_bytes_must_have_the_exact_length() {
    let plain = bytes(300_000);
    let packed = deflate(&plain);
    let attempt = |packed: &[u8], len: u64, range: Range<u64>| {
        let files = file(packed.to_vec());
        let span = Span { file: files.main().unwrap(), offset: 0, len: packed.len() as u64 };
        let layout = Layout::Packed(Packed { span, packing: Packing::Deflate, skip: 0, len });
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
fn first_values_need_only_the_first_bytes_of_a_stream() {
    let plain = bytes(2_000_000);
    let packed = deflate(&plain);
    let files = file(packed.clone());
    let span = Span { file: files.main().unwrap(), offset: 0, len: packed.len() as u64 };
    let layout =
        Layout::Packed(Packed { span, packing: Packing::Deflate, skip: 80, len: 2_000_000 - 80 });
    let tensor = Tensor::new(DType::U8, vec![2_000_000 - 80], layout);
    for range in [0..10, 0..1, 5..70_001, 65_536 - 80..65_536 - 79] {
        for piece in [1000, 4096, 65_536] {
            let mut fed = 0;
            let found = run(&files, &tensor, range.clone(), BUDGET, |_| {
                fed += piece;
                piece
            });
            let expected = &plain[80 + range.start as usize..80 + range.end as usize];
            assert_eq!(found.unwrap(), expected);
            assert!(fed < 300_000, "{range:?} in pieces of {piece}: {fed}");
        }
    }
}

#[test]
fn skips_a_header_in_compressed_bytes() {
    let plain = bytes(1000);
    let packed = deflate(&plain);
    let files = file(packed.clone());
    let span = Span { file: files.main().unwrap(), offset: 0, len: packed.len() as u64 };
    let attempt = |skip: u64, len: u64, range: Range<u64>| {
        let tensor = Tensor::new(
            DType::U8,
            vec![len],
            Layout::Packed(Packed { span, packing: Packing::Deflate, skip, len }),
        );
        run(&files, &tensor, range, BUDGET, |_| 7).map_err(|error| error.kind())
    };
    assert_eq!(attempt(10, 990, 0..990).unwrap(), plain[10..]);
    assert_eq!(attempt(10, 990, 5..7).unwrap(), plain[15..17]);
    assert_eq!(attempt(11, 990, 0..990), Err(ErrorKind::Damaged));
    assert_eq!(attempt(u64::MAX, 990, 0..990), Err(ErrorKind::Damaged));
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
    // A tensor without elements is empty, whatever its layout claims.
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
fn random_layouts_never_panic() {
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
                packing: Packing::Deflate,
                span: Span { file: checkpoint::FileId(0), offset, len },
                skip: wild(&mut random, 16),
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
        // A view may repeat its storage arbitrarily often: that is slow, but valid.
        if tensor.numel().is_some_and(|numel| numel < 1 << 16) {
            sound += usize::from(whole(&files, &tensor).is_ok_and(|bytes| !bytes.is_empty()));
        } else {
            drop(Gather::new(&files, &tensor, 0..1, BUDGET));
        }
    }
    assert!(sound > 100, "{sound}");
}
