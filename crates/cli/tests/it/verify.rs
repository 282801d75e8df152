//! `statelens verify` on real and damaged files.

use std::fs;
use std::io::Read as _;

use crate::common::{Folder, fixture, run, text};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

#[test]
fn hdf5_blocks_with_wrong_checksums_are_not_sound() {
    for (file, expected) in [
        ("h5sum_dense_links_FHDB.h5", "22 names of the group are lost"),
        (
            "h5sum_filter_deflate_l_FADB.h5",
            "the checksum of a chunk index (a fixed array) is wrong",
        ),
        ("h5_btree_key_order.h5", "a chunk that begins within an element"),
    ] {
        let path = text(&fixture(&format!("attacks2/{file}")));
        let ran = run(["verify", &path]);
        assert_eq!((ran.code, ran.err.as_str()), (Some(1), ""), "{file}");
        assert!(ran.out.contains(expected), "{file}: {}", ran.out);
        assert!(ran.out.ends_with("it is not sound: 1 problem\n"), "{file}: {}", ran.out);
    }
    // Opening the file reports the loss, too.
    let info = run(["info", "--json", &text(&fixture("attacks2/h5sum_dense_links_FHDB.h5"))]);
    let info: serde_json::Value = serde_json::from_str(&info.out).unwrap();
    assert_eq!(info["findings"][0]["grade"], "damage", "{info}");
}

#[test]
fn invalid_filter_parameters_are_not_sound() {
    let folder = Folder::new();
    let whole = fs::read(fixture("hdf5/filter_deflate_e.h5")).unwrap();
    // The filter message: its number, name, flags and one parameter, the level.
    let name = whole.windows(8).position(|bytes| bytes == b"deflate\0").unwrap();
    let mut bytes = whole.clone();
    assert!(bytes[name + 8] <= 9);
    bytes[name + 8] |= 0x40;
    let ran = run(["verify", &text(&folder.with("level.h5", &bytes))]);
    assert_eq!(ran.code, Some(1), "{}", ran.out);
    assert!(ran.out.contains("gzip") && ran.out.contains("refuses"), "{}", ran.out);
}

#[test]
fn duplicate_names_are_damage() {
    let folder = Folder::new();
    // {"a": 1, "a": 2} as msgpack.
    let twice = folder.with("dup.msgpack", b"\x82\xa1a\x01\xa1a\x02");
    let mut files = vec![(twice, "two entries named `a`")];
    for (file, expected) in [
        ("dup_h5.h5", "two links named `aa`"),
        ("dup_h5_latest.h5", "two links named `aa`"),
        ("dup_npz_ext.npz", "named `a` to numpy"),
        ("dup_npz.npz", "the same name"),
        ("dup_gguf.gguf", "are named k"),
        ("dup_st_meta.safetensors", "two entries `__metadata__`"),
    ] {
        files.push((fixture(&format!("attacks2/{file}")), expected));
    }
    for (file, expected) in files {
        let ran = run(["verify", &text(&file)]);
        assert_eq!((ran.code, ran.err.as_str()), (Some(1), ""), "{}", file.display());
        assert!(ran.out.contains(expected), "{}: {}", file.display(), ran.out);
    }
}

#[test]
fn verifies_checksums_of_zstd_frames_and_tar_headers() {
    let folder = Folder::new();
    let checksums = |file: &str| run(["verify", file, "--json"]).json()["checksums"].clone();
    let zstd = fs::read(fixture("hdf5/filter_zstd_checksum_l.h5")).unwrap();
    let sound = text(&folder.with("sound.h5", &zstd));
    assert_eq!(checksums(&sound), serde_json::json!({ "XXH64 (zstd chunks)": 6 }));
    let none = text(&fixture("hdf5/filter_zstd_e.h5"));
    assert_eq!(checksums(&none), serde_json::json!({}));
    // The last byte of the first frame's checksum, which is followed by the second frame. The data
    // decodes unchanged.
    let magic = [0x28, 0xb5, 0x2f, 0xfd];
    let second = (0..zstd.len()).filter(|at| zstd[*at..].starts_with(&magic)).nth(1).unwrap();
    let mut bytes = zstd.clone();
    bytes[second - 1] ^= 1;
    let broken = text(&folder.with("broken.h5", &bytes));
    let ran = run(["verify", &broken]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.out.contains("zstd chunk has the checksum"), "{}", ran.out);

    let tar = fs::read(fixture("torch_crafted/tar_0_1.pth")).unwrap();
    let sound = text(&folder.with("sound.pth", &tar));
    let count = checksums(&sound)["tar header sum"].as_u64().unwrap();
    assert!(count >= 4, "{count}");
    // The owner of the first member, which does not affect the checkpoint.
    let mut bytes = tar.clone();
    bytes[109] ^= 1;
    let broken = text(&folder.with("broken.pth", &bytes));
    let ran = run(["verify", &broken]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.out.contains("checksum") && ran.out.contains("tar header sum"), "{}", ran.out);
    assert!(ran.out.ends_with("it is not sound: 1 problem\n"), "{}", ran.out);
}

#[test]
fn verify_detects_changes_since_the_manifest() {
    let folder = Folder::new();
    let file = folder.file("model.pt");
    fs::copy(fixture("torch/zip_module_state_dict.pt"), &file).unwrap();
    for name in ["model.json", "model.manifest"] {
        let manifest = text(&folder.file(name));
        assert_eq!(run(["manifest", &text(&file), "-o", &manifest]).ok(), "");
        let printed = run(["verify", &text(&file), "--manifest", &manifest]).ok();
        assert!(
            printed.contains("entries match") && printed.ends_with("no damage found\n"),
            "{printed}"
        );
        let error = run(["manifest", &text(&file), "-o", &manifest]).failed();
        assert!(error.contains("exists"), "{error}");
        run(["manifest", &text(&file), "-o", &manifest, "--force"]).ok();
        // Another checkpoint does not match.
        let cast = text(&folder.file("cast.pt"));
        run(["convert", &text(&file), &cast, "--force", "--cast", "bfloat16"]).ok();
        let ran = run(["verify", &cast, "--manifest", &manifest]);
        assert_eq!((ran.code, ran.err.as_str()), (Some(1), ""));
        assert!(ran.out.contains("expected float32; found bfloat16"), "{}", ran.out);
    }
    let json = fs::read_to_string(folder.file("model.json")).unwrap();
    assert_eq!(json, run(["manifest", "--json", &text(&file)]).ok());
    let lines = fs::read_to_string(folder.file("model.manifest")).unwrap();
    assert_eq!(lines, run(["manifest", &text(&file)]).ok());
    // It stays the same manifest when it is reformatted.
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    let pretty = folder.with("pretty.json", &serde_json::to_vec_pretty(&value).unwrap());
    run(["verify", &text(&file), "--manifest", &text(&pretty)]).ok();
}

#[test]
fn verify_reports_position_and_expected_checksum() {
    let folder = Folder::new();
    let mut bytes = fs::read(fixture("torch/zip_module_state_dict.pt")).unwrap();
    let sound = text(&folder.with("sound.pt", &bytes));
    let shown = run(["show", &sound, "emb.weight", "--json"]).json();
    // `sound.pt, bytes 2624 to 2976`
    let lies = shown["entries"][0]["stored_in"].as_str().unwrap().split_once("bytes ").unwrap().1;
    let place: u64 = lies.split(' ').next().unwrap().parse().unwrap();
    let report = run(["verify", "--json", &sound]).json();
    assert_eq!((&report["sound"], report["problems"].as_array().unwrap().len()), (&true.into(), 0));
    assert!(report["checksums"]["CRC-32"].as_u64().unwrap() > 10, "{report}");
    // One byte within a tensor.
    let start = usize::try_from(place).unwrap() + 5;
    bytes[start] ^= 0x40;
    let damaged = text(&folder.with("damaged.pt", &bytes));
    let ran = run(["verify", "--json", &damaged]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(1), ""));
    let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let problem = &report["problems"][0];
    assert_eq!(problem["what"], "checksum", "{report}");
    assert_eq!(problem["file"], "damaged.pt");
    assert!(problem["key"].as_str().unwrap().contains("/data/"), "{report}");
    assert!(problem["text"].as_str().unwrap().contains("`emb.weight`"), "{report}");
    let places = ["expected", "found"].map(|side| problem[side].as_str().unwrap().to_owned());
    assert!(places[0].starts_with("CRC-32 ") && places[0] != places[1], "{report}");
    assert_eq!(problem["offset"], place);
    let printed = run(["verify", &damaged]);
    assert!(printed.out.contains("it is not sound: 1 problem"), "{}", printed.out);
    // When cut short, it does not open any more, which is a verdict, not a failure.
    let cut = text(&folder.with("cut.pt", &bytes[..bytes.len() / 2]));
    let ran = run(["verify", &cut]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(1), ""));
    assert!(ran.out.contains("damaged") && ran.out.contains("zip"), "{}", ran.out);
}

#[test]
fn files_that_the_library_refuses_are_not_sound() {
    for (name, library) in [
        ("cerebras/errors/no_version.mdl", "Cerebras library"),
        ("tf_crafted/no_crc/m.index", "TensorFlow"),
        ("attacks/t_negative_stride.pt", "torch"),
    ] {
        let ran = run(["verify", fixture(name).to_str().unwrap()]);
        assert_eq!(ran.code, Some(1), "{name}: {}", ran.out);
        assert!(ran.out.contains(&format!("{library} refuses")), "{name}: {}", ran.out);
    }
}

#[test]
fn formats_without_checksums_claim_only_structure() {
    for name in
        ["pickle/numpy_proto2.pkl", "flax/flax_model.msgpack", "numpy/f4.npy", "gguf/quants.gguf"]
    {
        let printed = run(["verify", fixture(name).to_str().unwrap()]).ok();
        assert!(
            printed.contains("no checksums in this format: changed values can't be detected"),
            "{name}: {printed}"
        );
        assert!(
            printed.contains("structure sound") && !printed.contains("no damage found"),
            "{name}: {printed}"
        );
    }
    let folder = Folder::new();
    // {"step": 7}: no tensors, and nothing that would reveal a change to 8.
    let path = text(&folder.with("plain.msgpack", b"\x81\xa4step\x07"));
    let printed = run(["verify", &path]).ok();
    assert!(
        printed.contains("changed values can't be detected")
            && !printed.contains("no damage found"),
        "{printed}"
    );
}

#[test]
fn counts_non_finite_values_and_fails_on_request() {
    let folder = Folder::new();
    let header = br#"{"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}"#;
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header);
    for value in [1.0, f32::NAN, f32::NEG_INFINITY, f32::NAN] {
        file.extend(value.to_le_bytes());
    }
    let path = text(&folder.with("a.safetensors", &file));
    let printed = run(["verify", &path]).ok();
    assert!(printed.contains("2 NaN, 1 infinite of 4 elements, first at [0, 1]"), "{printed}");
    assert!(printed.starts_with("not finite  a  "), "{printed}");
    assert!(
        printed.contains("no checksums in this format: changed values can't be detected"),
        "{printed}"
    );
    assert!(printed.ends_with("structure sound; 2 NaN, 1 infinite in 1 tensor\n"), "{printed}");
    let report = run(["verify", &path, "--json"]).json();
    assert_eq!((&report["sound"], &report["grade"]), (&true.into(), &"warning".into()));
    assert_eq!(report["verdict"], "structure sound; 2 NaN, 1 infinite in 1 tensor");
    let ended = run(["verify", &path, "--finite"]);
    assert!(
        ended.out.ends_with("it is not finite; 2 NaN, 1 infinite in 1 tensor\n"),
        "{}",
        ended.out
    );
    let ran = run(["verify", &path, "--finite", "--json"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(1), ""));
    let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(report["sound"], false);
    assert_eq!(report["not_finite"][0]["nan"], 2);
    assert_eq!(report["not_finite"][0]["first"], serde_json::json!([0, 1]));
}

#[test]
fn summary_with_statistics_reports_nan() {
    let folder = Folder::new();
    let header = br#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header);
    for value in [1.0, f32::NAN] {
        file.extend(value.to_le_bytes());
    }
    let path = text(&folder.with("a.safetensors", &file));
    for kind in ["json", "md", "txt", "html"] {
        let printed = run(["summary", &path, "--stats", "--to", kind]).ok();
        if kind == "json" {
            let json: serde_json::Value = serde_json::from_str(&printed).unwrap();
            assert_eq!(json["findings"][0]["title"], "1 NaN in 1 tensor", "{json}");
            assert_eq!(json["findings"][0]["grade"], "warning");
        } else if kind != "html" {
            assert!(printed.contains("1 NaN in 1 tensor"), "{kind}: {printed}");
        } else {
            // The page has its list of findings compressed.
            let data = printed.split_once("id=\"data\"").unwrap().1;
            let data = data.split_once('>').unwrap().1.split_once('<').unwrap().0;
            let mut packed = Vec::new();
            let data = URL_SAFE_NO_PAD.decode(data.trim()).unwrap();
            flate2::read::DeflateDecoder::new(data.as_slice()).read_to_end(&mut packed).unwrap();
            let title = b"1 NaN in 1 tensor";
            assert!(packed.windows(title.len()).any(|bytes| bytes == title));
        }
    }
    let link = run(["summary", &path, "--stats", "--link", "https://example.org/"]).ok();
    let fragment = link.trim_end().strip_prefix("https://example.org/").unwrap();
    let findings = statelens::parts::describe::share::open_link(fragment).unwrap().findings;
    let reported = findings.iter().find(|finding| finding.title == "1 NaN in 1 tensor");
    assert!(reported.is_some(), "{findings:?}");
}

/// A job counts a checkpoint by the status, so a manifest of a damaged one must not pass.
#[test]
fn manifest_of_a_cut_file_is_not_complete() {
    let whole = fs::read(fixture("safetensors/f4.safetensors")).unwrap();
    let folder = Folder::new();
    let cut = folder.with("cut.safetensors", &whole[..whole.len() - 8]);
    let ran = run(["manifest", &text(&cut)]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(ran.err.contains("damaged: "), "{}", ran.err);
}
