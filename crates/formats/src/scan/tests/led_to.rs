//! Each reader on its own: a pickle without any marker is found only where a reader leads to it.

mod graphs;
mod hdf5;
mod joblib;
mod packed;
mod pickles;
mod sets;
mod sweep;
pub(in crate::scan) mod tar;
mod zip;

use statelens_checkpoint::{FileSet, Finding, Grade, Limits, Memory, Unwatched};

use super::{
    MARKED, PLAIN, ZipMember, bzip2, gzip, hex, join, member, noise, npy, scan, scan_with,
    scan_within, tar, worst, zip, zip_by,
};
use crate::ScanOptions;

/// Replaces an item of a list. It names nothing, so that the search through all bytes does not find
/// it.
const HIDDEN: &[u8] = b"]K\x01aK\x00K\x02s.";

/// A pickle that a loader begins and can't finish.
const CUT: &[u8] = b"(";

/// Returns the cases that do not end with exit status 1.
fn missed(cases: Vec<(&str, Vec<u8>)>) -> Vec<&str> {
    let missed = cases
        .into_iter()
        .filter(|(_, bytes)| worst("x.bin", bytes.clone()) <= Some(Grade::Warning));
    missed.map(|(what, _)| what).collect()
}

/// Returns whether a finding says that something was not examined, for a reason with these words.
fn is_unseen(findings: &[Finding], what: &str, why: &str) -> bool {
    findings.iter().any(|finding| {
        finding.grade == Grade::UnknownCode
            && finding.title.contains("could not examine")
            && finding.title.contains(what)
            && finding.detail.contains(why)
    })
}

/// Returns whether a finding says that the budget was exhausted.
fn ends_early(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| {
        finding.grade == Grade::UnknownCode && finding.title.contains("ended before")
    })
}

#[test]
fn byte_search_alone_misses_the_hidden_pickle() {
    let weights = noise(1000);
    assert_eq!(worst("x.bin", join(&[&weights, HIDDEN, &weights])), Some(Grade::Note));
    assert_eq!(worst("x.bin", join(&[&weights, CUT, &weights])), Some(Grade::Note));
}

#[test]
fn readers_lead_to_hidden_pickles() {
    let zip = |bytes: &[u8]| zip(&[member("a", bytes)]);
    let escaped = b"\x93NUMPY\x01\0\x12\0{'descr': '\\x7cO'\n\n";
    let missed = missed(vec![
        ("a file", HIDDEN.to_vec()),
        ("behind another pickle", join(&[b"N.", HIDDEN])),
        ("behind another pickle in the middle", join(&[&noise(99), PLAIN, HIDDEN])),
        ("a member", zip(HIDDEN)),
        ("a member of tar", tar(&[("a", HIDDEN)], true)),
        ("a member of the first kind of tar", tar(&[("a", HIDDEN)], false)),
        ("objects", npy("'|O'", HIDDEN)),
        ("objects in a member", zip(&npy("'|O'", HIDDEN))),
        ("objects behind weights", join(&[&noise(99), &npy("'|O'", HIDDEN)])),
        ("objects, with an escape", join(&[escaped, HIDDEN])),
        ("a header that is not understood", npy("'<f4x'", HIDDEN)),
        ("an array of version 2", {
            let header = b"\x93NUMPY\x02\0\x14\0\0\0{'descr': '<f4x', }\n";
            join(&[&noise(99), header, HIDDEN])
        }),
        ("a header behind weights that is not understood", {
            join(&[&noise(99), &npy("'<f4x'", HIDDEN)])
        }),
        ("a tar archive behind weights", join(&[&noise(99), &tar(&[("a", HIDDEN)], true)])),
        ("an instance behind weights", join(&[&noise(99), b"(cos\nsystem\nS'true'\no."])),
    ]);
    assert_eq!(missed, Vec::<&str>::new());
}

/// Where a loader certainly unpickles, a pickle that can't be read is a finding.
#[test]
fn reports_truncated_pickles_that_a_loader_reads() {
    for name in ["a.pkl", "a.PICKLE", "a.joblib", "a/.metadata", ".metadata"] {
        assert_eq!(worst(name, CUT.to_vec()), Some(Grade::Damage), "{name}");
    }
    assert_eq!(worst("x.bin", CUT.to_vec()), Some(Grade::Note));
    let stream = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.";
    let padded = |version: u8, len: usize, text: &[u8]| {
        let len_bytes = (len as u32).to_le_bytes();
        let mut header = join(&[
            b"\x93NUMPY",
            &[version, 0],
            &len_bytes[..if version > 1 { 4 } else { 2 }],
            text,
        ]);
        header.resize(header.len() + len - text.len(), b' ');
        join(&[&noise(99), &header, CUT])
    };
    let missed = missed(vec![
        ("marked", b"\x80\x02(".to_vec()),
        ("a stream in a member", zip(&[member("a", &join(&[stream, CUT]))])),
        ("the fourth of a stream", zip(&[member("a", &join(&[stream, b"N.", CUT]))])),
        ("the fifth of a stream", zip(&[member("a", &join(&[stream, b"N.N.", CUT]))])),
        ("objects", npy("'|O'", CUT)),
        ("a header with an escape", padded(1, 90, b"{'descr': '\\x7c")),
        ("a header with the letter", padded(1, 90, b"{'descr': '|O'")),
        ("a header that is too long", padded(2, (1 << 20) + 1, b"{'descr': ")),
    ]);
    assert_eq!(missed, Vec::<&str>::new());
    // Behind the five pickles are the storages.
    let whole = zip(&[member("a", &join(&[stream, b"N.N.N.", CUT]))]);
    assert_eq!(worst("x.bin", whole), None);
}

/// Returns whether the scan ran [`HIDDEN`].
fn is_hidden_found(bytes: Vec<u8>) -> bool {
    scan("x.bin", bytes).iter().any(|finding| finding.title.contains("replaces items of a list"))
}

fn titles(name: &str, bytes: Vec<u8>) -> Vec<(Grade, String)> {
    scan(name, bytes).into_iter().map(|finding| (finding.grade, finding.title)).collect()
}

/// `storages` ends with a pickle of views.
#[test]
fn reads_views_of_torch_0_1() {
    let storages = |bytes: &[u8]| worst("x.bin", tar(&[("storages", bytes)], true));
    assert!(storages(b"K\0.N.") <= Some(Grade::Warning));
    assert_eq!(storages(b"K\0.("), Some(Grade::Damage));
}

/// Texts, graphs and links that loaders read in ways that are easy to miss, and harmless ones next
/// to them. See the README of the fixtures.
#[test]
fn reads_files_as_loaders_do() {
    let mut open = vec![statelens_fixtures::path("attacks4")];
    let mut seen = 0;
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.to_string_lossy().replace('\\', "/");
            if path.is_dir() {
                open.push(path);
                continue;
            }
            seen += 1;
            // What the codec makes of a chunk is in `.zarray` only.
            if name.contains("/zarr/") && !name.ends_with(".zarray") {
                continue;
            }
            let worst = worst(&name, std::fs::read(&path).unwrap());
            assert_eq!(
                worst <= Some(Grade::Warning),
                name.contains("/honest"),
                "{name}: {worst:?}"
            );
        }
    }
    assert_eq!(seen, 54);
}

/// Code that is not a pickle.
#[test]
fn finds_code_outside_pickles() {
    let lambda = br#"{"class_name":"Lambda","config":{"function":["4wEA",null,null]}}"#;
    let list = br#"[{"idx": 0, "name": "0", "path": "", "type": "os.Thing"}]"#;
    let template = b"{{ ''.__class__ }}";
    let elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0";
    let mut windows = vec![0; 0x44];
    windows[..2].copy_from_slice(b"MZ");
    windows[0x3c] = 0x40;
    windows[0x40..].copy_from_slice(b"PE\0\0");
    let mut silent = Vec::new();
    for (name, bytes) in [
        ("config.json", &lambda[..]),
        ("config.json", b"{'not': JSON"),
        ("config.json\0.txt", lambda),
        ("modules.json", list),
        ("tokenizer_config.json", br#"{"chat_template": "{{ ''.__class__ }}"}"#),
        ("tokenizer_config.json", br#"{"chat_template": {"a": "{{ ''.__class__ }}"}}"#),
        ("config.json", br#"{"auto_map": {"AutoModel": "modeling.X"}}"#),
        ("chat_template.jinja", template),
        ("chat_template.jinja2", template),
        ("chat_template.j2", template),
        ("chat_template.jinja", b"\xff"),
        (".zarray", br#"{"filters": [{"id": "pickle"}]}"#),
        ("model.yaml", b"_target_: os.system\n"),
        ("model.yml", b"a: !!python/object/apply:os.system [id]\n"),
        ("model.yml", b"a: !<tag:yaml.org,2002:p%79thon/object/apply:os.system> [id]\n"),
        ("a", elf),
        ("a", &windows),
        ("a", b"\xcf\xfa\xed\xfe\x0c\0\0\x01\0\0\0\0"),
        ("a", b"\xfe\xed\xfa\xcf\x01\0\0\x0c\0\0\0\0"),
        ("a", b"\xca\xfe\xba\xbe\0\0\0\x02\x01\0\0\x07"),
        ("libx.so", b"text"),
        ("libx.so.1", b"text"),
        ("x.DLL", b"text"),
        ("x.dylib", b"text"),
        ("x.pyd", b"text"),
        ("model.gguf", &statelens_fixtures::read("attacks3/templates/slice.gguf")),
    ] {
        if worst("x.bin", zip(&[member(name, bytes)])) <= Some(Grade::Warning) {
            silent.push(format!("a member {name:?}: {:?}", String::from_utf8_lossy(bytes)));
        }
        // No loader opens a library that is a file by itself.
        let is_library = name == "a" || bytes == b"text";
        if !is_library && worst(name, bytes.to_vec()) <= Some(Grade::Warning) {
            silent.push(format!("a file {name:?}: {:?}", String::from_utf8_lossy(bytes)));
        }
    }
    // A configuration of any name.
    if worst("x.bin", lambda.to_vec()) <= Some(Grade::Warning) {
        silent.push("a file without a name".to_owned());
    }
    assert_eq!(silent, Vec::<String>::new());
    let long = b"a: 1\n".repeat((32 << 20) / 5 + 1);
    assert!(is_unseen(&scan("a.yaml", long), "a configuration", "longer"));
}

/// Names of pickles for containers of other formats.
#[test]
fn content_decides_over_the_name() {
    let padded = |text: &str, len: u64| {
        let mut header = format!("{text:<width$}", width = len as usize).into_bytes();
        header.splice(..0, len.to_le_bytes());
        header
    };
    for (name, bytes) in [
        ("x.pkl", zip(&[member("a", b"N.")])),
        ("x.joblib", gzip(b"N.")),
        ("x.pkl", super::zlib(b"N.")),
        ("x.pkl", tar(&[("a", b"N.")], true)),
        ("x.pkl", padded("{}", 640)),
        ("x", padded("{}", 896)),
        ("x", padded("{}", 26_920)),
    ] {
        let worst = worst(name, bytes);
        assert!(worst <= Some(Grade::Note), "{name}: {worst:?}");
    }
    for (name, bytes) in [
        ("x.pkl", zip(&[member("a", MARKED)])),
        ("x.joblib", super::zlib(MARKED)),
        ("x.pkl", join(&[b"P1\n", MARKED])),
        ("x.pkl", b"PK\x03\x04 and so on".to_vec()),
        ("x.safetensors", join(&[b"\x80\x02cos\nsystem\n(V", &b"x".repeat(99), b"\ntR."])),
    ] {
        let worst = worst(name, bytes);
        assert!(worst > Some(Grade::Warning), "{name}: {worst:?}");
    }
}
