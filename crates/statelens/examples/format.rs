//! Reads a custom format: `WGT1`, then for each tensor a letter, its length, and its float32
//! values.
#![allow(clippy::print_stdout, reason = "a program prints")]

use statelens::parts::checkpoint::*;
use statelens::{Format, Opener, Score, register};

static WGT: Format = Format {
    score: |probe| [Score::No, Score::Exact][usize::from(probe.head().starts_with(b"WGT1"))],
    open,
    ..Format::named(&["wgt"], "Weights")
};

fn open(files: FileSet, limits: &Limits, _: &mut dyn Progress) -> Result<Checkpoint> {
    let (file, mut offset) = (files.main()?, 4);
    let (mut builder, mut state) = (Builder::new(limits), Dict::default());
    while offset < files.len(file) {
        let mut head = [0; 5];
        files.read(file, offset, &mut head)?;
        let len = u64::from(u32::from_le_bytes([head[1], head[2], head[3], head[4]]));
        let span = Span { file, offset: offset + 5, len: len * 4 };
        files.check(span)?;
        let tensor = builder.push_tensor(Tensor::new(DType::F32, vec![len], Layout::Span(span)))?;
        let key = DictKey::Str(char::from(head[0]).to_string().into());
        state.entries.push((key, builder.push(Value::Tensor(tensor))?));
        offset = span.offset + span.len;
    }
    let root = builder.push(Value::Dict(state))?;
    let format = FormatInfo { id: "wgt", name: WGT.name, ..FormatInfo::default() };
    builder.finish(root, format, files, Vec::new())
}

fn main() -> Result<()> {
    let file = [&b"WGT1b\x02\0\0\0"[..], &1f32.to_le_bytes(), &2f32.to_le_bytes()].concat();
    register(&WGT)?;
    let checkpoint = Opener::new().open_source("a.wgt", Memory::from(file))?;
    println!("{}: {:?}", checkpoint.format().name, checkpoint.tensor("b")?.read::<f32>()?);
    Ok(())
}
