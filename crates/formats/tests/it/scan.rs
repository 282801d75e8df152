//! Tests what scanning and opening report about real checkpoints and about hostile ones.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use statelens_checkpoint::{FileSet, Finding, Grade, Limits, Memory, Result, Unwatched};
use statelens_formats::ScanOptions;

/// A class that was pickled with its code, by dill. Loading it runs that code.
const CODE: &str = "a class with its code";
/// A class that was pickled by name. Loading it needs its code, which is not in the file.
const CLASS: &str = "a class by name";
/// A module that was pickled whole, with a call for each of its layers. Torch's weights-only loader
/// refuses it, too.
const OTHER: &str = "a class or function of another program";
const MODULE: &str = "a whole module of layers";
const OUTSIDE: &str = "a link to a file outside of its folder";
/// Texts may hold pickles.
const UNREAD: &str = "texts compressed by an unsupported filter";

/// Real checkpoints that refer to unknown code, with the reason. All others must have no such
/// findings.
const UNKNOWN: &[(&str, &str)] = &[
    ("cerebras/v2.10.0-special/dictsub.mdl", CODE),
    ("cerebras/v2.10.0-special/dirty.mdl", CODE),
    ("cerebras/v2.10.0-special/link_external.mdl", CODE),
    ("cerebras/v2.10.0-special/link_materialized.mdl", CODE),
    ("cerebras/v2.10.0-special/link_target.mdl", CODE),
    ("cerebras/v2.10.0-special/link_target.pt", CLASS),
    ("cerebras/v2.10.0-special/listsub.mdl", CODE),
    ("cerebras/v2.10.0/custom.mdl", CODE),
    ("cerebras/v2.10.0/custom.pt", CLASS),
    ("cerebras/v2.4.0/custom.mdl", CODE),
    ("cerebras/v2.4.0/custom.pt", CLASS),
    ("quantized_torch/torchao_floats.pt", OTHER),
    ("quantized_torch/torchao_fp8.pt", OTHER),
    ("quantized_torch/torchao_int4.pt", OTHER),
    ("quantized_torch/torchao_int8.pt", OTHER),
    ("quantized_torch/torchao_others.pt", OTHER),
    ("reports/h5_links/outer.h5", OUTSIDE),
    ("reports/modules/best.pt", MODULE),
    ("reports/modules/network.pkl", OTHER),
    ("reports/modules/zoo.pkl", MODULE),
    ("reports/modules/zoo.pt", MODULE),
    ("reports/modules/zoo0.pkl", MODULE),
    ("reports/modules/zoo_dp.pt", MODULE),
    ("reports/modules/zoo_legacy.pt", MODULE),
    ("reports/objects/net_a.pt", MODULE),
    ("reports/objects/net_b.pt", MODULE),
    ("reports/objects/objs_a.pt", OTHER),
    ("reports/objects/objs_b.pt", OTHER),
    ("reports/objects/opt_a.pt", OTHER),
    ("reports/objects/opt_b.pt", OTHER),
    ("reports4/h5_blosc/pandas_blosc.h5", UNREAD),
    ("sharded/broken_dcp_zstd_bomb/.metadata", UNREAD),
    ("sharded/broken_dcp_zstd_bomb/__0_0.distcp", UNREAD),
    ("sharded/broken_dcp_zstd_bomb/__1_0.distcp", UNREAD),
    ("sharded/broken_dcp_zstd_bomb/__9_0.distcp", UNREAD),
    ("torch/legacy_full_module.pt", MODULE),
    ("torch/zip_full_torchnn_module.pt", MODULE),
    ("torch/zip_python_objects.pt", CLASS),
    ("torch/zip_tensor_attrs_subclass.pt", CLASS),
];

/// TorchScript files contain the code of their classes, which torch runs.
const SCRIPTS: &str = "torchscript/";

fn fixtures() -> PathBuf {
    statelens_fixtures::root().to_owned()
}

/// Returns all files below a folder, sorted, with names relative to `tests/fixtures`.
fn files(folder: &str) -> Vec<(String, PathBuf)> {
    let (mut found, mut open) = (Vec::new(), vec![fixtures().join(folder)]);
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(fixtures()).unwrap();
                let parts: Vec<_> =
                    name.components().map(|part| part.as_os_str().to_string_lossy()).collect();
                found.push((parts.join("/"), path));
            }
        }
    }
    found.sort();
    found
}

fn set(path: &Path) -> FileSet {
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    let read = |path: &Path| Memory::from(std::fs::read(path).unwrap());
    let mut files = FileSet::single(name(path), read(path));
    let about = [".json", ".tsv", ".md", ".txt"];
    for entry in std::fs::read_dir(path.parent().unwrap()).unwrap() {
        let other = entry.unwrap().path();
        let small = other.metadata().unwrap().len() < 200_000;
        if other.is_file()
            && other != path
            && small
            && !about.iter().any(|end| name(&other).ends_with(end))
        {
            files.push(name(&other), Arc::new(read(&other)));
        }
    }
    files
}

fn scan(path: &Path, options: &ScanOptions) -> Result<Vec<Finding>> {
    statelens_formats::scan(set(path), &Limits::default(), options, &mut Unwatched)
}

fn open(path: &Path) -> Result<Vec<Finding>> {
    let opened = statelens_formats::open(set(path), &Limits::default(), &mut Unwatched)?;
    Ok(opened.findings)
}

fn worst(findings: &[Finding]) -> Option<Grade> {
    findings.iter().map(|finding| finding.grade).max()
}

/// What the oldest writers wrote, and containers with the name of a pickle.
#[test]
fn files_of_old_writers_have_nothing_to_report() {
    let mut seen = 0;
    for (name, path) in files("usages_old") {
        let findings = scan(&path, &ScanOptions::default()).unwrap();
        assert!(worst(&findings) <= Some(Grade::Note), "{name}: {findings:?}");
        seen += 1;
    }
    assert!(seen >= 20, "{seen}");
    let evil = fixtures().join("attacks4/bytesio_evil.pt");
    let findings = scan(&evil, &ScanOptions::default()).unwrap();
    assert_eq!(worst(&findings), Some(Grade::Danger), "{findings:?}");
    assert!(findings.iter().all(|finding| !finding.title.contains("BytesIO")), "{findings:?}");
}

#[test]
fn real_checkpoints_have_only_known_names() {
    let mut unknown: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let (mut opened, mut scanned) = (0, 0);
    for (name, path) in files("") {
        if name.starts_with("attacks")
            || name.starts_with("cerebras_s3/evil/")
            || name.ends_with(".json")
            || name.ends_with(".md")
        {
            continue;
        }
        let (by_opening, by_scanning) = (open(&path), scan(&path, &ScanOptions::default()));
        opened += usize::from(by_opening.is_ok());
        scanned += usize::from(by_scanning.is_ok());
        for finding in [by_opening, by_scanning].into_iter().flatten().flatten() {
            if finding.grade >= Grade::UnknownCode {
                let call = finding
                    .call
                    .map_or(finding.title, |call| format!("{}.{}", call.module, call.name));
                unknown.entry(name.clone()).or_default().push(call);
            }
        }
    }
    assert!(opened > 400 && scanned > 400, "{opened} opened, {scanned} scanned");
    for (name, calls) in &mut unknown {
        calls.sort();
        calls.dedup();
        if name.starts_with(SCRIPTS) {
            assert!(calls.iter().all(|call| call.starts_with("__torch__.")), "{name}: {calls:?}");
        }
    }
    unknown.retain(|name, _| !name.starts_with(SCRIPTS));
    let found: Vec<&str> = unknown.keys().map(String::as_str).collect();
    let expected: Vec<&str> = UNKNOWN.iter().map(|(name, _)| *name).collect();
    assert_eq!(found, expected, "{unknown:#?}");
    for (name, why) in UNKNOWN {
        let said = |begin: &str| unknown[*name].iter().any(|call| call.starts_with(begin));
        match *why {
            CODE => assert!(said("dill._dill._create_type"), "{name}"),
            MODULE => assert!(said("torch.nn.modules."), "{name}"),
            OTHER => assert!(
                ["lib.cfg.", "torch.optim.", "torch_utils.", "torchao."].into_iter().any(said),
                "{name}"
            ),
            OUTSIDE => assert!(said("The model refers to the file"), "{name}"),
            UNREAD => assert!(said("Statelens could not examine"), "{name}"),
            _ => assert!(said("__main__."), "{name}"),
        }
    }
}

#[test]
fn names_the_call_of_hostile_pickles() {
    for (name, call) in [
        ("computed_names.pkl", "os.system"),
        ("dataclasses_create_fn.pkl", "dataclasses._create_fn"),
        ("enum_global_enum.pkl", "enum.global_enum"),
        ("enum_global_enum.pkl", "enum.eval"),
        ("numpy_savetxt.pkl", "numpy.savetxt"),
        ("osx_support_read_output.pkl", "_osx_support._read_output"),
        ("random_builtins_dict.pkl", "builtins.dict.get"),
        ("random_builtins_dict.pkl", "random.__builtins__"),
        ("legacy_sysinfo.pt", "os.system"),
        ("legacy_version.pt", "os.system"),
    ] {
        let path = fixtures().join("attacks2").join(name);
        let findings = scan(&path, &ScanOptions::default()).unwrap();
        let found = findings.iter().find(|finding| {
            finding
                .call
                .as_ref()
                .is_some_and(|found| format!("{}.{}", found.module, found.name) == call)
        });
        let found = found.unwrap_or_else(|| panic!("{name}: {findings:?}"));
        assert_eq!(found.grade, Grade::Danger, "{name}: {found:?}");
        // Opening the file must warn, too, if only in the error.
        match open(&path) {
            Ok(findings) => assert_eq!(worst(&findings), Some(Grade::Danger), "{name}"),
            Err(error) => assert!(error.to_string().contains("Beware"), "{name}: {error}"),
        }
    }
    for name in ["dup_pickle.pkl", "dup_pickle_intbool.pkl"] {
        let findings = scan(&fixtures().join("attacks2").join(name), &ScanOptions::default());
        assert!(worst(&findings.unwrap()) < Some(Grade::UnknownCode), "{name}");
    }
}

#[test]
fn finds_second_and_truncated_pickles() {
    let scan = |bytes: &[u8]| {
        let files = FileSet::single("x.pkl", Memory::from(bytes.to_vec()));
        let findings = statelens_formats::scan(
            files.clone(),
            &Limits::default(),
            &ScanOptions::default(),
            &mut Unwatched,
        )
        .unwrap();
        let opened = statelens_formats::open(files, &Limits::default(), &mut Unwatched);
        (worst(&findings), opened.map(|checkpoint| worst(&checkpoint.findings)).ok())
    };
    let evil = b"\x80\x02cos\nsystem\n(X\x02\x00\x00\x00idtR.";
    let fine = b"\x80\x02}X\x01\x00\x00\x00aK\x01s.";
    assert_eq!(scan(fine), (None, Some(None)));
    let both = (Some(Grade::Danger), Some(Some(Grade::Danger)));
    assert_eq!(scan(&[&fine[..], evil].concat()), both);
    assert_eq!(scan(&[&fine[..], fine, fine, evil].concat()), both);
    // Truncated after the name.
    assert_eq!(scan(&[&fine[..], &evil[..14]].concat()), both);
    assert_eq!(scan(&[&fine[..], &b"no pickle"[..]].concat()), (None, Some(Some(Grade::Note))));
    assert_eq!(scan(&fine[..12]), (Some(Grade::Damage), None));
    assert_eq!(scan(&evil[..18]), (Some(Grade::Danger), None));
}

#[test]
fn allow_option_accepts_names() {
    let path = fixtures().join("torch/zip_full_torchnn_module.pt");
    let findings = scan(&path, &ScanOptions::default()).unwrap();
    assert_eq!(worst(&findings), Some(Grade::UnknownCode));
    let names = findings.iter().map(|finding| finding.call.as_ref().unwrap());
    let allow = names.map(|call| format!("{}.{}", call.module, call.name)).collect();
    let allowed = ScanOptions { allow };
    assert_eq!(scan(&path, &allowed).unwrap(), []);
    // Dangerous names remain findings even if they are allowed.
    let allow = ["numpy.savetxt".to_owned()].into();
    let path = fixtures().join("attacks2/numpy_savetxt.pkl");
    assert_eq!(worst(&scan(&path, &ScanOptions { allow }).unwrap()), Some(Grade::Danger));
}

/// Tensors that exceed their memory: storages longer than their bytes, views outside of storages,
/// and indices outside of shapes. Torch 2.4 and 2.15 write them without a check.
#[test]
fn out_of_bounds_tensors_are_findings() {
    let files = files("attacks3/tensors");
    let mut count = 0;
    for (name, path) in files.iter().filter(|(name, _)| !name.ends_with(".py")) {
        let findings = scan(path, &ScanOptions::default()).unwrap();
        assert!(worst(&findings) >= Some(Grade::Damage), "{name}: {findings:?}");
        count += 1;
    }
    assert_eq!(count, 22);
}

/// The archive of a traced module has the shapes of its example inputs, with empty records.
#[test]
fn example_inputs_of_traced_modules_are_not_damage() {
    let path = fixtures().join("torchscript/jit_trace.pt");
    let findings = scan(&path, &ScanOptions::default()).unwrap();
    assert!(findings.iter().all(|finding| finding.grade != Grade::Damage), "{findings:?}");
    assert_eq!(worst(&findings), Some(Grade::UnknownCode));
}

/// Files that torch 2.4 and 2.15, and NumPy 1.26 and 2.4 write must not cause findings.
#[test]
fn files_written_by_torch_and_numpy_have_no_findings() {
    let files = files("usages");
    for (name, path) in &files {
        let findings = scan(path, &ScanOptions::default()).unwrap();
        assert!(worst(&findings) <= Some(Grade::Warning), "{name}: {findings:?}");
    }
    assert_eq!(files.len(), 23);
}
