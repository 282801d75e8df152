//! Memory per key for opening a file with very many keys.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use peak_alloc::PeakAlloc;
use statelens::{Target, convert};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Number of keys. The read cache of a set of files, 8 MiB at most, takes 35 bytes per key at this
/// number, and less per key at larger ones.
const COUNT: usize = 240_000;

/// A single test, so that nothing else in the process allocates meanwhile. The bounds are the
/// measured values plus a margin; each reallocation counts as a copy here.
#[test]
fn memory_per_key_is_bounded() {
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
    let bounds = [
        (None, 430),
        (Some((Target::Numpy, "")), 460),
        (Some((Target::Torch, "")), 530),
        (Some((Target::Cerebras, "0.4")), 600),
    ];
    for (target, most) in bounds.into_iter().step_by(statelens_fixtures::times(2, 1)) {
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

/// Returns the peak memory of opening a file.
fn peak(path: &Path) -> usize {
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let checkpoint = statelens::open(path).unwrap();
    let peak = ALLOCATOR.peak_usage() - before;
    assert_eq!(checkpoint.keys().count(), COUNT);
    peak
}

/// Returns a safetensors file with two float32 values per key.
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
