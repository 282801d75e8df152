//! Tensors that are not stored in C order: the disk space used to reorder them.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use crate::common::{Folder, run};

/// Rows and columns of a matrix of 70 MB: four times the limit in memory.
const SIDE: u64 = 4200;

/// Writes a matrix in Fortran order that is zero except for the given elements.
fn matrix(path: &Path, elements: &[(u64, u64, f32)]) {
    let mut head =
        format!("{{'descr': '<f4', 'fortran_order': True, 'shape': ({SIDE}, {SIDE}), }}");
    while (10 + head.len() + 1) % 64 != 0 {
        head.push(' ');
    }
    head.push('\n');
    let mut file = File::create(path).unwrap();
    file.write_all(b"\x93NUMPY\x01\x00").unwrap();
    file.write_all(&(head.len() as u16).to_le_bytes()).unwrap();
    file.write_all(head.as_bytes()).unwrap();
    let start = 10 + head.len() as u64;
    file.set_len(start + SIDE * SIDE * 4).unwrap();
    for (row, column, value) in elements {
        file.seek(SeekFrom::Start(start + (column * SIDE + row) * 4)).unwrap();
        file.write_all(&value.to_le_bytes()).unwrap();
    }
}

#[test]
fn transposed_matrix_uses_scratch_space_within_its_limit() {
    let folder = Folder::new();
    let (source, target) = (folder.file("m.npy"), folder.file("m.safetensors"));
    let elements = [(0, 1, 1.0), (4199, 0, 2.0), (2077, 3011, 3.0), (4199, 4199, 4.0)];
    matrix(&source, &elements);
    let arguments = ["convert".as_ref(), source.as_os_str(), target.as_os_str()];
    let little = [&arguments[..], &["--scratch".as_ref(), "1MB".as_ref()]].concat();
    let error = run(little).failed();
    assert!(error.contains("70,560,000 bytes of scratch space"), "{error}");
    assert!(error.contains("--scratch 1GB"), "{error}");
    assert_eq!(folder.names(), ["m.npy"]);
    run(arguments).ok();
    let mut file = File::open(&target).unwrap();
    let mut len = [0; 8];
    file.read_exact(&mut len).unwrap();
    let start = 8 + u64::from_le_bytes(len);
    for (row, column, value) in elements {
        file.seek(SeekFrom::Start(start + (row * SIDE + column) * 4)).unwrap();
        let mut found = [0; 4];
        file.read_exact(&mut found).unwrap();
        assert_eq!(f32::from_le_bytes(found), value);
    }
    let mut sum = 0f32;
    file.seek(SeekFrom::Start(start)).unwrap();
    let mut rest = Vec::new();
    file.read_to_end(&mut rest).unwrap();
    for four in rest.chunks_exact(4) {
        sum += f32::from_le_bytes([four[0], four[1], four[2], four[3]]);
    }
    assert_eq!((rest.len() as u64, sum), (SIDE * SIDE * 4, 10.0));
}
