//! Files in which single bits are flipped, as verification sees them.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use statelens::Limits;
use statelens::parts::checkpoint::Unwatched;
use statelens::parts::compare::verify::{VerificationReport, verify};

use crate::corpus;

/// Returns the report and the manifest of the bytes of a file; `None` if they can't be opened.
fn report(name: &str, bytes: &[u8], others: &[PathBuf]) -> Option<(VerificationReport, String)> {
    let checkpoint = corpus::open(name, bytes.to_vec(), others, None).ok()?;
    let checks = statelens::parts::formats::checks(&checkpoint, &Limits::default()).ok()?;
    let manifest = corpus::manifest(&checkpoint, &mut Unwatched).unwrap_or_default();
    let report = verify(Arc::new(checkpoint), checks, None, &mut Unwatched).unwrap();
    Some((report, manifest))
}

/// Flips bits all over a file; each time, verify must report damage or read unchanged values.
#[track_caller]
fn no_flip_goes_unnoticed(path: &str, others: &[&str]) {
    let path = statelens_fixtures::path(path);
    let others: Vec<PathBuf> = others.iter().map(|other| statelens_fixtures::path(other)).collect();
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let mut bytes = fs::read(&path).unwrap();
    let (whole, manifest) = report(&name, &bytes, &others).unwrap();
    assert!(whole.sound(), "{name}: {:?}", whole.result.problems);
    assert_eq!(whole.result.unchecked_tensors, 0, "{name}");
    let step = (bytes.len() / 600).max(1);
    let mut noticed = 0;
    for at in (0..bytes.len()).step_by(step) {
        bytes[at] ^= 1 << (at % 8);
        match report(&name, &bytes, &others) {
            Some((found, now)) if found.sound() => {
                // The file's description of itself may change, such as its producer or the name of
                // a library.
                let entries = |text: &str| text.split_once("\"entries\"").unwrap().1.to_owned();
                assert_eq!(entries(&now), entries(&manifest), "{name}, byte {at}");
            }
            _ => noticed += 1,
        }
        bytes[at] ^= 1 << (at % 8);
    }
    assert!(noticed > 100, "{name}: only {noticed} were noticed");
}

#[test]
fn detects_every_bit_flip_in_a_zip_file() {
    no_flip_goes_unnoticed("torch/zip_module_state_dict.pt", &[]);
    no_flip_goes_unnoticed("torch/zip_views.pt", &[]);
    no_flip_goes_unnoticed("numpy/plain.npz", &[]);
    no_flip_goes_unnoticed("numpy/compressed.npz", &[]);
    no_flip_goes_unnoticed("keras/k3_seq_compiled.keras", &[]);
}

#[test]
fn detects_every_bit_flip_in_a_tensorflow_checkpoint() {
    for prefix in ["tf/tf2_checkpoint/ckpt-1", "tf/saver_v2_dtypes/all"] {
        let (index, data) = (format!("{prefix}.index"), format!("{prefix}.data-00000-of-00001"));
        no_flip_goes_unnoticed(&index, &[&data]);
        no_flip_goes_unnoticed(&data, &[&index]);
    }
}

#[test]
fn detects_every_bit_flip_in_a_distributed_checkpoint() {
    let files: Vec<String> = (0..4).map(|rank| format!("dcp_ranks/__{rank}_0.distcp")).collect();
    for file in &files {
        let mut others: Vec<&str> =
            files.iter().filter(|other| *other != file).map(String::as_str).collect();
        others.push("dcp_ranks/.metadata");
        no_flip_goes_unnoticed(file, &others);
    }
}

#[test]
fn detects_every_bit_flip_in_hdf5_with_checksums() {
    no_flip_goes_unnoticed("hdf5/filter_fletcher32_l.h5", &[]);
    no_flip_goes_unnoticed("hdf5/filter_fletcher_deflate_l.h5", &[]);
    no_flip_goes_unnoticed("hdf5/filter_zstd_checksum_l.h5", &[]);
    // Heaps, trees and arrays of libhdf5's latest layout.
    no_flip_goes_unnoticed("hdf5_sums/indexes_fletcher_l.h5", &[]);
}
