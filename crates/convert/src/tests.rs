//! Runs plans: every way of feeding and writing must give the same file.

use std::sync::Arc;

use statelens_checkpoint::{
    Builder, ByteOrder, Checkpoint, Checksum, DType, Data, Encode, Encoding, ErrorKind, FileSet,
    FormatInfo, Layout, Limits, Memory, Plan, PlannedFile, Progress, Result, Segment, Span,
    StoredChunk, Strided, Tensor, TensorId, Unwatched, Value, WrittenSegment,
};

use crate::{
    Composed, Composition, Run, RunOptions, RunReport, Sink, Step, composable, run_blocking,
};

/// Prefixes each chunk with its length, and sets the filter mask for chunks that start with zero.
struct PrefixedChunks;

impl Encode for PrefixedChunks {
    fn encode(&self, plain: &[u8], out: &mut Vec<u8>) -> Result<u32> {
        out.push(plain.len() as u8);
        out.extend_from_slice(plain);
        Ok(u32::from(plain.first() == Some(&0)))
    }

    fn bound(&self, plain: u64) -> u64 {
        plain + 1
    }
}

const FILE: usize = 400;

fn files() -> FileSet {
    let bytes: Vec<u8> = (0..FILE).map(|at| (at * 7 % 251) as u8).collect();
    FileSet::single("in.bin", Memory::from(bytes))
}

fn checkpoint(tensors: Vec<Tensor>) -> Arc<Checkpoint> {
    let mut builder = Builder::new(&Limits::default());
    for tensor in tensors {
        builder.push_tensor(tensor).unwrap();
    }
    let root = builder.push(Value::None).unwrap();
    Arc::new(builder.finish(root, FormatInfo::default(), files(), Vec::new()).unwrap())
}

fn span(offset: u64, len: u64) -> Span {
    Span { file: files().main().unwrap(), offset, len }
}

fn tensors() -> Vec<Tensor> {
    let plain = |offset, shape: Vec<u64>| {
        let len = shape.iter().product::<u64>() * 4;
        Tensor::new(DType::F32, shape, Layout::Span(span(offset, len)))
    };
    let transposed = Strided {
        storage: Arc::new(Layout::Span(span(100, 80))),
        storage_len: 80,
        offset: 0,
        strides: vec![1, 4],
    };
    let empty = Tensor::new(DType::F32, vec![0, 3], Layout::Missing("meta".into()));
    vec![
        plain(8, vec![3, 5]),
        Tensor::new(DType::F32, vec![4, 5], Layout::Strided(transposed)),
        Tensor { byte_order: ByteOrder::Big, ..plain(200, vec![2, 5, 3]) },
        Tensor { dtype: DType::F64, ..plain(0, vec![7]) },
        empty,
    ]
}

fn data(tensor: u32, checksum: Checksum) -> Segment {
    Segment::Data(Data::plain(TensorId(tensor), checksum))
}

fn encoded(tensor: u32, chunk: &[u64], checksum: Checksum) -> Segment {
    let encoding = Encoding { chunk: chunk.to_vec(), encoder: Arc::new(PrefixedChunks) };
    Segment::Data(Data { encoding: Some(encoding), ..Data::plain(TensorId(tensor), checksum) })
}

fn late(
    len: Option<u64>,
    make: impl Fn(&[WrittenSegment]) -> Vec<u8> + Send + Sync + 'static,
) -> Segment {
    Segment::Late { len, make: Arc::new(move |outcomes| Ok(make(outcomes.here()))) }
}

fn bytes(bytes: &[u8]) -> Segment {
    Segment::Bytes(bytes.into())
}

fn crc(index: usize) -> impl Fn(&[WrittenSegment]) -> Vec<u8> {
    move |outcomes| outcomes[index].checksum.unwrap().to_le_bytes().to_vec()
}

fn plan(segments: Vec<Segment>, head_last: bool) -> Plan {
    let file = PlannedFile { name: "out".into(), segments, head_last };
    Plan { source: checkpoint(tensors()), files: vec![file], losses: Vec::new() }
}

/// Returns a plan with segments of all kinds.
fn sample() -> Plan {
    let segments = vec![
        late(Some(8), |outcomes| {
            let all: u64 = outcomes.iter().map(|outcome| outcome.len).sum();
            all.to_le_bytes().to_vec()
        }),
        bytes(b"head"),
        data(0, Checksum::Crc32),
        late(Some(4), crc(2)),
        Segment::Zeros(70_000),
        data(0, Checksum::None),
        data(1, Checksum::Crc32),
        late(None, crc(6)),
        encoded(2, &[1, 2, 3], Checksum::Crc32),
        late(None, |outcomes| {
            let last = &outcomes[8];
            assert_eq!(outcomes.len(), 10);
            last.chunks.iter().flat_map(|chunk| [chunk.offset as u8, chunk.mask as u8]).collect()
        }),
        data(3, Checksum::None),
        data(4, Checksum::Crc32),
        Segment::Zeros(0),
        bytes(b""),
        bytes(b"end"),
    ];
    plan(segments, true)
}

/// Returns the logical bytes of a tensor, by a driver that has tests of its own.
fn logical(plan: &Plan, tensor: usize) -> Vec<u8> {
    let tensor = &plan.source.tensors()[tensor];
    statelens_tensor::elements(&plan.source.files, tensor, 0..tensor.numel().unwrap()).unwrap()
}

/// Returns the file that [`sample`] plans, assembled by hand.
fn expected(plan: &Plan) -> Vec<u8> {
    let mut file = vec![0; 8];
    file.extend_from_slice(b"head");
    let first = logical(plan, 0);
    file.extend_from_slice(&first);
    file.extend_from_slice(&crc32fast::hash(&first).to_le_bytes());
    file.resize(file.len() + 70_000, 0);
    file.extend_from_slice(&first);
    let second = logical(plan, 1);
    file.extend_from_slice(&second);
    file.extend_from_slice(&crc32fast::hash(&second).to_le_bytes());
    // [2, 5, 3] in chunks of [1, 2, 3]: two rows of three chunks, the last of which is padded.
    let mut index = Vec::new();
    for row in logical(plan, 2).chunks(5 * 3 * 4) {
        for chunk in row.chunks(2 * 3 * 4) {
            index.push(file.len() as u8);
            index.push(u8::from(chunk[0] == 0));
            file.push(24);
            file.extend_from_slice(chunk);
            file.resize(file.len() + 24 - chunk.len(), 0);
        }
    }
    file.extend_from_slice(&index);
    file.extend_from_slice(&logical(plan, 3));
    file.extend_from_slice(b"end");
    let len = file.len() as u64;
    file[..8].copy_from_slice(&len.to_le_bytes());
    file
}

/// Runs a plan with pieces of at most `most` bytes; spans are copied in pieces, too.
fn run(plan: Plan, options: RunOptions, most: u64) -> Result<(Composition, RunReport)> {
    let mut run = Run::new(plan, options)?;
    let mut file = Composition::default();
    let mut before = 0;
    loop {
        match run.step() {
            Step::Read(span) => {
                let piece = run.files().read_vec(span.file, span.offset, span.len.min(most))?;
                run.feed(&piece, &mut |bytes| {
                    file.bytes(bytes);
                    Ok(())
                })?;
            }
            Step::Begin(_) => run.begun(),
            Step::Copy(span) => {
                let len = span.len.min(most);
                file.span(Span { len, ..span });
                run.copied(len);
            }
            Step::Work => run.work(&mut |bytes| {
                file.bytes(bytes);
                Ok(())
            })?,
            Step::Head(head) => {
                assert!(file.patch_head(&head));
                run.patched();
            }
            Step::Done => break,
        }
        let (done, total) = run.progress();
        assert!(before <= done && done <= total, "{before} {done} {total}");
        before = done;
    }
    let (done, total) = run.progress();
    assert_eq!(done, total);
    Ok((file, run.into_report()))
}

fn compose(parts: Vec<Composed>) -> Vec<u8> {
    let files = files();
    let mut bytes = Vec::new();
    for part in parts {
        match part {
            Composed::Bytes(made) => bytes.extend_from_slice(&made),
            Composed::Span(span) => {
                bytes.extend(files.read_vec(span.file, span.offset, span.len).unwrap());
            }
        }
    }
    bytes
}

#[derive(Default)]
struct KeptBytes(Vec<u8>);

impl Sink for KeptBytes {
    fn begin(&mut self, _index: usize) -> Result<()> {
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn patch_head(&mut self, head: &[u8]) -> Result<()> {
        self.0[..head.len()].copy_from_slice(head);
        Ok(())
    }
}

#[test]
fn all_run_modes_produce_the_same_file() {
    let expected = expected(&sample());
    for compose_it in [false, true] {
        let mut reports = Vec::new();
        for most in (1..30).chain([100, 1000]) {
            let options = RunOptions { compose: compose_it, ..RunOptions::default() };
            let (file, report) = run(sample(), options, most).unwrap();
            assert_eq!(compose(file.into_parts()), expected, "{compose_it} {most}");
            assert_eq!(report.bytes, expected.len() as u64);
            reports.push(report);
        }
        assert!(reports.windows(2).all(|pair| pair[0] == pair[1]));
        let outcomes = &reports[0].outcomes[0];
        assert_eq!(outcomes.len(), 15);
        let mut at = 0;
        for outcome in outcomes {
            assert_eq!(outcome.offset, at);
            at += outcome.len;
        }
        assert_eq!(outcomes[8].chunks.len(), 6);
        let first = outcomes[8].offset;
        assert_eq!(outcomes[8].chunks[1], StoredChunk { offset: first + 25, len: 25, mask: 0 });
        let encoded = &expected[first as usize..(first + outcomes[8].len) as usize];
        assert_eq!(outcomes[8].checksum, Some(crc32fast::hash(encoded)));
        assert_eq!(outcomes[11].checksum, Some(0));
        assert_eq!(reports[0].cast.elements, 7);
    }
    let mut kept = KeptBytes::default();
    let report = run_blocking(sample(), &mut kept, &mut Unwatched).unwrap();
    assert_eq!(kept.0, expected);
    assert_eq!(report.bytes, expected.len() as u64);
}

#[test]
fn composed_file_stores_weights_as_spans() {
    let segments = || vec![bytes(b"a"), data(0, Checksum::Crc32), late(Some(4), crc(1))];
    assert!(composable(&plan(segments(), false)));
    let (file, report) =
        run(plan(segments(), false), RunOptions { compose: true, ..RunOptions::default() }, 7)
            .unwrap();
    let parts = file.into_parts();
    assert_eq!(parts.len(), 3);
    assert_eq!(parts[1], Composed::Span(span(8, 60)));
    assert_eq!(report.bytes, 65);
    assert!(!composable(&sample()));
}

#[test]
fn invalid_plans_are_errors() {
    let kind = |plan: Plan| match run(plan, RunOptions::default(), 100) {
        Ok(_) => None,
        Err(error) => Some(error.kind()),
    };
    let unsupported = Some(ErrorKind::Unsupported);
    assert_eq!(kind(plan(vec![late(Some(3), |_| vec![1, 2])], false)), unsupported);
    assert_eq!(kind(plan(vec![late(Some(3), |_| vec![1, 2])], true)), unsupported);
    assert_eq!(kind(plan(vec![late(None, |_| vec![])], true)), unsupported);
    assert_eq!(kind(plan(vec![], true)), unsupported);
    assert_eq!(kind(plan(vec![data(9, Checksum::None)], false)), Some(ErrorKind::Damaged));
    // Chunks that are not contiguous in C order.
    for chunk in [vec![2, 2, 3], vec![1, 1, 2, 3], vec![1, 2, 2], vec![1, 0, 3]] {
        let segments = vec![encoded(2, &chunk, Checksum::None)];
        assert_eq!(kind(plan(segments, false)), unsupported, "{chunk:?}");
    }
    for chunk in [vec![1, 1, 2], vec![1, 5, 3], vec![2, 5, 3], vec![3, 5, 3], vec![1, 9, 3]] {
        assert_eq!(kind(plan(vec![encoded(2, &chunk, Checksum::None)], false)), None, "{chunk:?}");
    }
    let huge = plan(vec![encoded(2, &[1 << 40, 5, 3], Checksum::None)], false);
    assert_eq!(kind(huge), Some(ErrorKind::Limit));
    // The file is shorter than the tensor.
    let cut = Tensor::new(DType::U8, vec![500], Layout::Span(span(0, 500)));
    for checksum in [Checksum::None, Checksum::Crc32] {
        let mut short = plan(vec![data(0, checksum)], false);
        short.source = checkpoint(vec![cut.clone()]);
        assert_eq!(kind(short), Some(ErrorKind::Damaged));
    }
}

#[test]
fn cancelled_run_returns_an_error() {
    struct StopAfter(u64);
    impl Progress for StopAfter {
        fn report(&mut self, done: u64, _total: u64) -> bool {
            done < self.0
        }
    }
    let mut kept = KeptBytes::default();
    let error = run_blocking(sample(), &mut kept, &mut StopAfter(20_000)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert!(kept.0.len() < 70_000);
}

#[test]
fn reports_losses_of_casts() {
    let values = [1.0f32, 1e9, 0.1].map(f32::to_le_bytes).concat();
    let tensor = Tensor::new(DType::F32, vec![3], Layout::Inline(values.into()));
    let mut plan = plan(vec![data(0, Checksum::None)], false);
    plan.source = checkpoint(vec![Tensor { dtype: DType::F16, ..tensor }]);
    let (_, report) = run(plan, RunOptions::default(), 100).unwrap();
    assert_eq!((report.cast.elements, report.cast.changed, report.cast.overflowed), (3, 2, 1));
    assert_eq!(report.changed, [(TensorId(0), report.cast)]);
}

#[test]
fn later_files_receive_earlier_outcomes() {
    let file =
        |name: &str, segments, head_last| PlannedFile { name: name.into(), segments, head_last };
    let index = Segment::Late {
        len: None,
        make: Arc::new(|outcomes| {
            assert_eq!((outcomes.here().len(), outcomes.file(2).len()), (2, 2));
            let of = |file: usize, segment: usize| &outcomes.file(file)[segment];
            let mut made = of(0, 1).checksum.unwrap().to_le_bytes().to_vec();
            made.extend([
                of(0, 1).offset as u8,
                of(1, 1).offset as u8,
                outcomes.here()[0].len as u8,
            ]);
            Ok(made)
        }),
    };
    let head = late(Some(1), |outcomes| vec![outcomes[1].len as u8]);
    let planned = Plan {
        files: vec![
            file("a", vec![bytes(b"ab"), data(0, Checksum::Crc32c)], false),
            file("b", vec![head, bytes(b"xyz")], true),
            file("c", vec![bytes(b"index"), index], false),
        ],
        ..plan(Vec::new(), false)
    };
    let first = logical(&planned, 0);
    let mut expected = b"ab".to_vec();
    expected.extend_from_slice(&first);
    expected.extend_from_slice(b"\x03xyzindex");
    expected.extend(crc32c::crc32c(&first).to_le_bytes());
    expected.extend([2, 1, 5]);

    struct Files(Vec<Vec<u8>>);
    impl Sink for Files {
        fn begin(&mut self, index: usize) -> Result<()> {
            assert_eq!(index, self.0.len());
            self.0.push(Vec::new());
            Ok(())
        }
        fn write(&mut self, bytes: &[u8]) -> Result<()> {
            self.0.last_mut().unwrap().extend_from_slice(bytes);
            Ok(())
        }
        fn patch_head(&mut self, head: &[u8]) -> Result<()> {
            self.0.last_mut().unwrap()[..head.len()].copy_from_slice(head);
            Ok(())
        }
    }
    let mut files = Files(Vec::new());
    let report = run_blocking(planned, &mut files, &mut Unwatched).unwrap();
    assert_eq!(files.0.len(), 3);
    assert_eq!(files.0.concat(), expected);
    assert_eq!(report.bytes, expected.len() as u64);
}
