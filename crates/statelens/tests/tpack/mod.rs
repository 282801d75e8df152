//! Tensor packs: `TPACK1`, the number of tensors, for each its name, dtype, shape, offset and
//! CRC-32, a script that the loader runs, and the bytes.
use std::sync::Arc;

use statelens::parts::checkpoint::*;
use statelens::parts::formats::Snippet;
use statelens::parts::formats::checks::{Algorithm, Check, Checks};
use statelens::{Format, Probe, Score, WriteTarget, Writing};

pub(crate) static TPACK: Format = Format {
    reads: "all of it",
    writes: Some(Writing::named("tpack", "Tensor pack", &["tpack"], plan)),
    traits: FormatTraits { exact_read_back: true, slash_keys: true, ..FormatTraits::DEFAULT },
    weights_extensions: &["tpack"],
    snippets: Some(|leaf| {
        let code = format!("import tpack\n\ntensor = tpack.load({})[{}]\n", leaf.path, leaf.name());
        vec![Snippet { library: "tpack", code }]
    }),
    score: |probe: &Probe<'_>| match probe.head().starts_with(MAGIC) {
        true => Score::Exact,
        false => Score::No,
    },
    open: |files, limits, progress| read(files, limits, progress).map(|(checkpoint, _)| checkpoint),
    checks: Some(|checkpoint, files, limits| {
        let (again, sums) = read(files.clone(), limits, &mut Unwatched)?;
        let mut checks = Checks { summed: true, ..Checks::default() };
        for (leaf, expected) in again.each_leaf().zip(sums) {
            let Some((_, tensor)) = checkpoint.tensor_of(leaf.target) else { continue };
            checks.checks.push(Check {
                what: leaf.flat.to_lossy().into_owned(),
                algorithm: Algorithm::Crc32,
                layout: tensor.layout.clone(),
                expected,
                found: None,
            });
        }
        Ok(Some(checks))
    }),
    ..Format::named(&["tpack"], "Tensor pack")
};

const MAGIC: &[u8] = b"TPACK1";
const DTYPES: [DType; 6] = [DType::F32, DType::F16, DType::BF16, DType::F64, DType::I64, DType::U8];

/// Reads the table from the start of the file.
struct Cursor<'a> {
    files: &'a FileSet,
    file: FileId,
    at: u64,
}

impl Cursor<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.files.read(self.file, self.at, &mut bytes)?;
        self.at += N as u64;
        Ok(bytes)
    }

    fn text(&mut self, len: u16) -> Result<String> {
        let bytes = self.files.read_vec(self.file, self.at, u64::from(len))?;
        self.at += u64::from(len);
        String::from_utf8(bytes).map_err(|_| Error::damaged("a name is not UTF-8").at(self.at))
    }
}

fn read(
    files: FileSet,
    limits: &Limits,
    progress: &mut dyn Progress,
) -> Result<(Checkpoint, Vec<u32>)> {
    let mut cursor = Cursor { files: &files, file: files.main()?, at: MAGIC.len() as u64 };
    let (mut builder, mut state, mut sums) = (Builder::new(limits), Dict::default(), Vec::new());
    let count = u32::from_le_bytes(cursor.take()?);
    for index in 0..count {
        progress.check(u64::from(index), u64::from(count))?;
        let len = u16::from_le_bytes(cursor.take()?);
        let name = cursor.text(len)?;
        let [dtype, dims] = cursor.take()?;
        let dtype = DTYPES.get(usize::from(dtype)).cloned();
        let dtype =
            dtype.ok_or_else(|| Error::unsupported("a dtype that is not known").at(cursor.at))?;
        let shape =
            (0..dims).map(|_| Ok(u64::from_le_bytes(cursor.take()?))).collect::<Result<_>>()?;
        let offset = u64::from_le_bytes(cursor.take()?);
        sums.push(u32::from_le_bytes(cursor.take()?));
        let mut tensor =
            Tensor::new(dtype, shape, Layout::Span(Span { file: cursor.file, offset, len: 0 }));
        let len =
            tensor.nbytes().ok_or_else(|| Error::damaged("a shape is too large").at(cursor.at))?;
        let span = Span { file: cursor.file, offset, len };
        files.check(span)?;
        tensor.layout = Layout::Span(span);
        let value = Value::Tensor(builder.push_tensor(tensor)?);
        state.entries.push((DictKey::Str(name.into()), builder.push(value)?));
    }
    let script = u16::from_le_bytes(cursor.take()?);
    let findings = match cursor.text(script)?.as_str() {
        "" => Vec::new(),
        script => vec![
            Finding::new(Grade::UnknownCode, "Loading it runs a script")
                .detail(format!("It is {script:?}.")),
        ],
    };
    let root = builder.push(Value::Dict(state))?;
    let format = FormatInfo { id: "tpack", name: TPACK.name, ..FormatInfo::default() };
    Ok((builder.finish(root, format, files, findings)?, sums))
}

fn plan(source: Arc<Checkpoint>, _: &WriteTarget, name: &str) -> Result<Plan> {
    let (mut rows, mut losses, mut segments) = (Vec::new(), Vec::new(), Vec::new());
    for leaf in source.each_leaf() {
        let key = leaf.flat.to_lossy().into_owned();
        let Some((id, tensor)) = source.tensor_of(leaf.target) else {
            let why = "A tensor pack has tensors only.".into();
            losses.push(Loss {
                code: LossCode::Other,
                keys: vec![key],
                what: "a value is left out".into(),
                why,
                harmless: false,
            });
            continue;
        };
        let dtype = DTYPES.iter().position(|dtype| *dtype == tensor.dtype);
        let dtype = dtype
            .ok_or_else(|| Error::unsupported(format!("a tensor pack has no {}", tensor.dtype)))?;
        let mut row = Vec::from((key.len() as u16).to_le_bytes());
        row.extend(key.as_bytes());
        row.extend([dtype as u8, tensor.shape.len() as u8]);
        row.extend(tensor.shape.iter().flat_map(|dim| dim.to_le_bytes()));
        rows.push(row);
        segments.push(Segment::Data(Data::plain(id, Checksum::Crc32)));
    }
    // Offsets and checksums are known once the tensors are written.
    let len = MAGIC.len() + 4 + rows.iter().map(|row| row.len() + 12).sum::<usize>() + 2;
    let make = move |outcomes: &Outcomes<'_>| {
        let mut table = [MAGIC, &(rows.len() as u32).to_le_bytes()].concat();
        for (row, outcome) in rows.iter().zip(&outcomes.here()[1..]) {
            table.extend(row);
            table.extend(outcome.offset.to_le_bytes());
            table.extend(outcome.checksum.unwrap_or_default().to_le_bytes());
        }
        table.extend([0, 0]);
        Ok(table)
    };
    segments.insert(0, Segment::Late { len: Some(len as u64), make: Arc::new(make) });
    let files = vec![PlannedFile { name: name.to_owned(), segments, head_last: true }];
    Ok(Plan { source, files, losses })
}
