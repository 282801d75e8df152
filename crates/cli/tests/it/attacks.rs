//! The verdicts of scan and verify on deceptive files, and that nothing is converted by default
//! where two readers disagree.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;

use crate::common::{Folder, fixture, run};

/// For each file and folder of `attacks2`, the exit status of scan and of verify. 1 is a finding; 2
/// means that the file is not a checkpoint, or expands to far more than its size.
///
/// The source of `dcp_trail` calls it an attack; but its three files are what torch writes, and
/// loading them would run no code.
const VERDICTS: &[(&str, i32, i32)] = &[
    ("computed_names.pkl", 1, 0),
    ("dataclasses_create_fn.pkl", 1, 0),
    ("dcp_bytes", 1, 1),
    ("dcp_bytes.json", 0, 2),
    ("dcp_meta", 1, 0),
    ("dcp_trail", 0, 0),
    ("dup_gguf.gguf", 1, 1),
    ("dup_h5.h5", 1, 1),
    ("dup_h5_chunks.h5", 0, 1),
    ("dup_h5_latest.h5", 1, 1),
    ("dup_npz.npz", 1, 1),
    ("dup_npz_ext.npz", 1, 1),
    ("dup_pickle.pkl", 0, 0),
    ("dup_pickle_intbool.pkl", 0, 0),
    ("dup_st.safetensors", 1, 1),
    ("dup_st_esc.safetensors", 1, 1),
    ("dup_st_field.safetensors", 1, 1),
    ("dup_st_meta.safetensors", 1, 1),
    ("enum_global_enum.pkl", 1, 0),
    ("evil.joblib", 1, 0),
    ("evil.pkl.gz", 1, 2),
    ("evil.pkl.xz", 1, 2),
    ("evil.pkl.zlib", 1, 2),
    ("gguf_ssti.gguf", 1, 0),
    ("gguf_zero_dim_overflow.gguf", 1, 1),
    ("h5_btree_key_order.h5", 0, 1),
    ("h5_exp_hard.h5", 0, 0),
    ("h5_fill_1EB.h5", 0, 2),
    ("h5_fill_2000x1GB.h5", 0, 2),
    ("h5_fill_64GB.h5", 1, 1),
    ("h5sum_dense_links_FHDB.h5", 1, 1),
    ("h5sum_filter_deflate_l_FADB.h5", 0, 1),
    ("keras_lambda.keras", 1, 0),
    ("keras_module.keras", 1, 0),
    ("keras_poly.pt", 1, 0),
    ("legacy_sysinfo.pt", 1, 0),
    ("legacy_version.pt", 1, 0),
    ("npy_object.npy", 1, 0),
    ("npz_crc0.npz", 0, 0),
    ("npz_object.npz", 1, 0),
    ("npz_raw_member.npz", 1, 0),
    ("npz_rawname.npz", 1, 0),
    ("numpy_savetxt.pkl", 1, 0),
    ("osx_support_read_output.pkl", 1, 0),
    ("package.pt", 1, 0),
    ("poly_h5.pt", 1, 0),
    ("poly_st.bin", 1, 0),
    ("pt2_old_example.pt2", 1, 0),
    ("pt2_old_state.pt2", 1, 0),
    ("random_builtins_dict.pkl", 1, 0),
    ("shard", 1, 1),
    ("shard2", 1, 2),
    ("shard3", 1, 0),
    ("tar_storages.pth", 1, 0),
    ("tar_with_zip.tar", 1, 0),
    ("torch_150k_views_of_400MB.pt", 0, 2),
    ("torch_expand_8GB.pt", 0, 2),
    ("torch_named.keras", 1, 0),
    ("zip_ok.pt", 1, 0),
    ("zip_other_pkl.pt", 1, 0),
    ("zip_two_roots.pt", 1, 1),
    ("zz_ints_3.9M.pt", 1, 2),
    ("zz_strs_3.9M.pt", 1, 2),
    ("zz_tensor_aliases_3M.pt", 1, 2),
];

#[test]
fn attacks_get_the_expected_verdicts() {
    let listed: BTreeSet<String> = VERDICTS.iter().map(|(name, ..)| (*name).to_owned()).collect();
    let there: BTreeSet<String> = fs::read_dir(fixture("attacks2"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(listed, there);
    let mut wrong = Vec::new();
    for (name, scan, verify) in VERDICTS {
        let path = fixture(&format!("attacks2/{name}"));
        for (command, expected) in [("scan", scan), ("verify", verify)] {
            let ran = run([OsStr::new(command), path.as_os_str()]);
            if ran.code != Some(*expected) {
                wrong
                    .push(format!("{command} {name}: {:?}, not {expected}: {}", ran.code, ran.out));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// h5py refuses its object header, so part of the file is missing.
#[test]
fn unreadable_hdf5_is_not_sound() {
    let path = fixture("attacks3/hdf5_unreadable/header_version.h5");
    let ran = run([OsStr::new("verify"), path.as_os_str()]);
    assert_eq!(ran.code, Some(1), "{}", ran.out);
}

#[test]
fn refuses_to_convert_duplicate_names() {
    let folder = Folder::new();
    // {"a": 1, "a": 2} as msgpack.
    let twice = folder.with("twice.msgpack", b"\x82\xa1a\x01\xa1a\x02");
    let attack = |name: &str| fixture(&format!("attacks2/{name}"));
    let out = folder.path().join("out.pt");
    for (path, why) in [
        (twice, "two entries named `a`"),
        (attack("dup_h5.h5"), "two links named `aa`"),
        (attack("dup_h5_latest.h5"), "two links named `aa`"),
        (attack("dup_npz.npz"), "members of the archive have the same name"),
        (attack("dup_npz_ext.npz"), "named `a` to numpy"),
    ] {
        let args = [OsStr::new("convert"), path.as_os_str(), out.as_os_str()];
        let ran = run(args);
        assert_eq!(ran.code, Some(2), "{}", path.display());
        assert!(ran.err.contains(why) && ran.err.contains("--lossy"), "{}", ran.err);
        assert!(!out.exists(), "{}", path.display());
        let ran_lossy = run([&args[..], &[OsStr::new("--lossy")]].concat());
        assert_eq!(ran_lossy.code, Some(0), "{}", ran_lossy.err);
        assert!(ran_lossy.out.contains(why), "{}", ran_lossy.out);
        fs::remove_file(&out).unwrap();
    }
    // If readers disagree about the list of entries, `--lossy` can't choose between them.
    for name in ["dup_h5_chunks.h5", "dup_gguf.gguf", "dup_st_field.safetensors"] {
        let path = attack(name);
        let args = ["convert", "--lossy"].map(OsStr::new);
        let args = [&args[..], &[path.as_os_str(), out.as_os_str()]].concat();
        run(args).failed();
        assert!(!out.exists(), "{name}");
    }
}
