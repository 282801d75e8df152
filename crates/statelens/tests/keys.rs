//! What opening a file of very many keys takes in memory for each of them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use peak_alloc::PeakAlloc;
use statelens::{Target, convert};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// What a set of files keeps of what it read, 8 MiB at most, is 35 bytes for each of so many, and less
/// for each where there are more.
const COUNT: usize = 240_000;

/// One test for all, so that nothing else in the process takes memory meanwhile. The bounds are
/// what was measured and a little more; each reallocation counts as a copy here.
#[test]
fn each_key_takes_little_memory_however_many_there_are() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("keys");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let source = folder.join("source.safetensors");
    fs::write(&source, safetensors(COUNT)).unwrap();
    let of = |target: Option<(Target, &str)>| {
        let Some((target, version)) = target else { return peak(&source) };
        let file = folder.join(format!("file.{}", target.id()));
        let checkpoint = statelens::open(&source).unwrap();
        let conversion = convert(&checkpoint, target).lossy();
        let conversion = if version.is_empty() { conversion } else { conversion.version(version) };
        conversion.write(&file).unwrap();
        drop(checkpoint);
        let peak = peak(&file);
        fs::remove_file(&file).unwrap();
        peak
    };
    let mut wrong = Vec::new();
    for (target, most) in [
        (None, 430),
        (Some((Target::Numpy, "")), 460),
        (Some((Target::Torch, "")), 530),
        (Some((Target::Cerebras, "0.4")), 600),
    ] {
        let each = of(target) / COUNT;
        let name = target.map_or("safetensors", |(target, _)| target.id());
        eprintln!("{name}: {each} bytes for each key");
        if each > most {
            wrong.push(format!("{name} takes {each} bytes for each key, and should {most}"));
        }
    }
    fs::remove_dir_all(&folder).unwrap();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The most memory that opening a file takes.
fn peak(path: &Path) -> usize {
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let checkpoint = statelens::open(path).unwrap();
    let peak = ALLOCATOR.peak_usage() - before;
    assert_eq!(checkpoint.keys().count(), COUNT);
    peak
}

/// Two float32 for each key.
fn safetensors(count: usize) -> Vec<u8> {
    let entries: Vec<String> = (0..count)
        .map(|at| {
            let (layer, part, from) = (at / 10, at % 10, at * 8);
            format!(
                "\"model.layers.{layer}.part{part}\":\
                 {{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[{from},{}]}}",
                from + 8
            )
        })
        .collect();
    let header = format!("{{{}}}", entries.join(","));
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.resize(file.len() + count * 8, 1);
    file
}
