//! Runs plans: every way of feeding and writing must give the same file.

use std::sync::Arc;

use statelens_checkpoint::{
    Builder, ByteOrder, Checkpoint, Checksum, Concat, DType, Data, Encode, Encoding, ErrorKind,
    FileSet, FormatInfo, Layout, Limits, Memory, Part, Plan, PlannedFile, Result, Segment, Span,
    StoredChunk, Strided, Tensor, TensorId, Value, WrittenSegment,
};

use statelens_tensor::{Machine as _, Need, Receive};

use crate::{Composed, Composition, Run, RunReport, Step, TensorWriter, composable};

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

#[test]
fn pieces_of_whole_rows_are_copied() {
    let bytes: Vec<u8> = (0..3u32 << 20).map(|at| (at / 1_000) as u8).collect();
    let files = FileSet::single("in.bin", Memory::from(bytes.clone()));
    let half = |offset| Part {
        shape: vec![256, 1_024],
        layout: Layout::Span(Span { file: files.main().unwrap(), offset, len: 1 << 20 }),
    };
    let concat = Concat { axis: 0, parts: vec![half(2 << 20), half(0)] };
    let tensor = Tensor::new(DType::F32, vec![512, 1_024], Layout::Concat(concat));
    let mut builder = Builder::new(&Limits::default());
    builder.push_tensor(tensor).unwrap();
    let root = builder.push(Value::None).unwrap();
    let source = builder.finish(root, FormatInfo::default(), files.clone(), Vec::new()).unwrap();
    let file = |checksum| {
        let segments = vec![data(0, checksum)];
        vec![PlannedFile { name: "out".into(), segments, head_last: false }]
    };
    let plan = |checksum| Plan {
        source: Arc::new(source.clone()),
        files: file(checksum),
        losses: Vec::new(),
    };
    let mut run = Run::new(plan(Checksum::None), false).unwrap();
    let mut out = Vec::new();
    while let Some(step) = run.next_step().unwrap() {
        match step {
            Step::Begin(0) => {}
            Step::Copy(span) => {
                out.extend(files.read_vec(span.file, span.offset, span.len).unwrap())
            }
            _ => panic!("the tensor is made"),
        }
    }
    assert!(out == [&bytes[2 << 20..], &bytes[..1 << 20]].concat());
    assert_eq!((run.progress(), run.report().bytes), ((2 << 20, 2 << 20), 2 << 20));
    // A checksum needs the bytes.
    let mut run = Run::new(plan(Checksum::Crc32), false).unwrap();
    assert!(matches!(run.next_step(), Ok(Some(Step::Begin(0)))));
    assert!(matches!(run.next_step(), Ok(Some(Step::Make(_)))));
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

/// The files of a run, one after the other.
#[derive(Default)]
struct Files(Vec<Composition>);

impl Receive for Files {
    fn receive(&mut self, bytes: &[u8]) -> Result<()> {
        self.last().bytes(bytes);
        Ok(())
    }
}

impl Files {
    fn last(&mut self) -> &mut Composition {
        self.0.last_mut().unwrap()
    }

    fn bytes(self) -> Vec<u8> {
        self.0.into_iter().flat_map(|file| compose(file.into_parts())).collect()
    }
}

/// Runs a plan; tensors are fed with pieces of at most `most` bytes.
fn run(plan: Plan, compose: bool, most: u64) -> Result<(Files, RunReport)> {
    let mut run = Run::new(plan, compose)?;
    let mut files = Files::default();
    let mut before = 0;
    while let Some(step) = run.next_step()? {
        let (done, total) = run.progress();
        assert!(before <= done && done <= total, "{before} {done} {total}");
        before = done;
        match step {
            Step::Begin(index) => {
                assert_eq!(index, files.0.len());
                files.0.push(Composition::default());
            }
            Step::Bytes(bytes) => files.last().bytes(&bytes),
            Step::Copy(span) => files.last().span(span),
            Step::Make(make) => {
                let mut machine = make.all(TensorWriter { run: &mut run, file: &mut files })?;
                loop {
                    match machine.need() {
                        Need::Feed(span) => {
                            let piece = span.len.min(most);
                            let piece = machine.files().read_vec(span.file, span.offset, piece)?;
                            machine.feed(&piece)?;
                        }
                        Need::Step => machine.step()?,
                        Need::Done => break,
                    }
                }
                let cast = machine.cast_report();
                machine.into.end()?.run.made(cast);
            }
            Step::Head(head) => assert!(files.last().patch_head(&head)),
        }
    }
    let (done, total) = run.progress();
    assert_eq!(done, total);
    Ok((files, run.into_report()))
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

#[test]
fn all_run_modes_produce_the_same_file() {
    let expected = expected(&sample());
    for compose_it in [false, true] {
        let mut reports = Vec::new();
        for most in (1..30).chain([100, 1000]) {
            let (files, report) = run(sample(), compose_it, most).unwrap();
            assert_eq!(files.bytes(), expected, "{compose_it} {most}");
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
}

#[test]
fn composed_file_stores_weights_as_spans() {
    let segments = || vec![bytes(b"a"), data(0, Checksum::Crc32), late(Some(4), crc(1))];
    assert!(composable(&plan(segments(), false)));
    let (mut files, report) = run(plan(segments(), false), true, 7).unwrap();
    let parts = files.0.remove(0).into_parts();
    assert_eq!(parts.len(), 3);
    assert_eq!(parts[1], Composed::Span(span(8, 60)));
    assert_eq!(report.bytes, 65);
    assert!(!composable(&sample()));
}

#[test]
fn invalid_plans_are_errors() {
    let kind = |plan: Plan| match run(plan, false, 100) {
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
fn reports_losses_of_casts() {
    let values = [1.0f32, 1e9, 0.1].map(f32::to_le_bytes).concat();
    let tensor = Tensor::new(DType::F32, vec![3], Layout::Inline(values.into()));
    let mut plan = plan(vec![data(0, Checksum::None)], false);
    plan.source = checkpoint(vec![Tensor { dtype: DType::F16, ..tensor }]);
    let (_, report) = run(plan, false, 100).unwrap();
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

    let (files, report) = run(planned, false, 100).unwrap();
    assert_eq!(files.0.len(), 3);
    assert_eq!(files.bytes(), expected);
    assert_eq!(report.bytes, expected.len() as u64);
}
