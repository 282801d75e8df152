//! Every command of docs/faq.md, run on files that give the error.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::common::{Folder, Ran, fixture, safetensors, statelens, write_floats};

/// A command of the page, and what it does with a file that gives the error.
struct Case {
    command: &'static str,
    /// Makes the files that the command names.
    make: fn(&Folder),
    code: i32,
    shows: &'static str,
}

const fn case(command: &'static str, make: fn(&Folder), code: i32, shows: &'static str) -> Case {
    Case { command, make, code, shows }
}

const CASES: &[Case] = &[
    // Loading PyTorch files.
    case("scan model.pt", objects, 1, "__main__.Color"),
    case("scan model.pt", numpy, 0, "nothing to report"),
    case("ls model.pt", objects, 0, "argparse.Namespace"),
    case("ls model.pt", numpy, 0, "ndarray"),
    case("ls model.pt", module, 0, "0.weight"),
    case("convert model.pt model.safetensors --lossy", objects, 0, "wrote model.safetensors"),
    case("convert model.pt model.safetensors --lossy", module, 0, "wrote model.safetensors"),
    case("convert pytorch_model.bin model.safetensors", plain, 0, "wrote model.safetensors"),
    case("info model.pt", cut, 0, "The file is cut short"),
    case("verify model.pt", changed, 1, "its bytes have changed since they were written"),
    case("info model.bin", pointer, 2, "this is a Git LFS pointer"),
    case("info model.bin", web_page, 2, "this is a web page"),
    case("info model.bin", server_error, 2, "this is a server's error message"),
    case("info model.bin", empty, 2, "the file is empty"),
    case("check model.pt --against expected.pt", prefixed, 1, "--strip-prefix module."),
    case("convert model.pt renamed.pt --strip-prefix module.", prefixed, 0, "wrote renamed.pt"),
    case("check a.pt --against b.pt", other_shapes, 1, "expected float32 [9, 8]"),
    case("convert model.pt model.safetensors", cuda, 0, "wrote model.safetensors"),
    case("convert model.pt model.safetensors", tied, 0, "`safetensors.torch.save_model` does"),
    // Loading safetensors.
    case("info model.safetensors", pointer_to_safetensors, 2, "this is a Git LFS pointer"),
    case("check model.safetensors", short, 1, "file-cut"),
    case("check model.safetensors", long, 1, "file-too-long"),
    case("check model.safetensors", header_only, 1, "ends in its header"),
    case("convert model.safetensors model.pt", without_format, 0, "wrote model.pt"),
    case("convert model.pt fixed.safetensors", plain, 0, "wrote fixed.safetensors"),
    case("check model_dir", missing_shard, 1, "shard-missing"),
    case("check model_dir --fix-index", wrong_index, 0, "whole"),
    // Loading HDF5, Keras and Cerebras files.
    case("info checkpoint.mdl", cut_in_half, 2, "bytes are there"),
    case("info checkpoint.mdl", without_its_end, 0, "The file is cut short"),
    case("convert checkpoint.mdl model.safetensors", lz4, 0, "wrote model.safetensors"),
    case("fix-checkpoint-spec --upgrade checkpoint_1.7.mdl", release_1_7, 0, "repaired"),
    // Using a model.
    case("check model_dir", other_sizes, 1, "config-vocabulary"),
    case("check model_dir", larger_tokenizer, 1, "tokenizer-larger"),
    case("check model_dir", missing_layer, 1, "layer"),
    case("check model_dir", missing_head, 1, "config-head-missing"),
    case("stats model.pt --fail-on nan,inf", nan, 1, "b.weight"),
];

fn copy(folder: &Folder, from: &str, name: &str) {
    fs::copy(fixture(from), folder.file(name)).unwrap();
}

/// Copies the fixture of a folder as `model_dir`.
fn model_dir(folder: &Folder, name: &str) {
    let copy = folder.file("model_dir");
    fs::create_dir_all(&copy).unwrap();
    for entry in fs::read_dir(fixture(&format!("folders/{name}"))).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
}

fn objects(folder: &Folder) {
    copy(folder, "torch/zip_python_objects.pt", "model.pt");
}

fn numpy(folder: &Folder) {
    copy(folder, "torch/zip_numpy.pt", "model.pt");
}

fn module(folder: &Folder) {
    copy(folder, "torch/zip_full_torchnn_module.pt", "model.pt");
}

fn plain(folder: &Folder) {
    copy(folder, "torch/zip_module_state_dict.pt", "pytorch_model.bin");
    copy(folder, "torch/zip_module_state_dict.pt", "model.pt");
}

fn cut(folder: &Folder) {
    copy(folder, "torch_crafted/truncated.pt", "model.pt");
}

/// One bit of a tensor differs.
fn changed(folder: &Folder) {
    let mut bytes = fs::read(fixture("torch/zip_module_state_dict.pt")).unwrap();
    let record = bytes.windows(6).position(|name| name == b"data/0").unwrap();
    // The data follow the name and the padding to 64 bytes.
    bytes[(record + 6).next_multiple_of(64) + 2] ^= 1;
    folder.with("model.pt", &bytes);
}

fn pointer(folder: &Folder) {
    copy(folder, "torch_crafted/lfs_pointer.bin", "model.bin");
}

fn pointer_to_safetensors(folder: &Folder) {
    copy(folder, "torch_crafted/lfs_pointer.bin", "model.safetensors");
}

fn web_page(folder: &Folder) {
    folder.with("model.bin", b"<!DOCTYPE html><html><body>Not found</body></html>");
}

fn server_error(folder: &Folder) {
    folder.with("model.bin", br#"{"error":"Invalid username or password."}"#);
}

fn empty(folder: &Folder) {
    folder.with("model.bin", b"");
}

fn prefixed(folder: &Folder) {
    copy(folder, "torch/zip_module_state_dict.pt", "expected.pt");
    command(folder, "convert expected.pt model.pt --prefix module.").ok();
}

fn other_shapes(folder: &Folder) {
    write_floats(&folder.file("a.pt"), &[("fc.weight", &[8, 8], vec![1.0; 64])]);
    write_floats(&folder.file("b.pt"), &[("fc.weight", &[9, 8], vec![1.0; 72])]);
}

fn cuda(folder: &Folder) {
    copy(folder, "torch_crafted/rebuild_parameter_cuda.pt", "model.pt");
}

fn tied(folder: &Folder) {
    copy(folder, "torch/zip_tied.pt", "model.pt");
}

fn short(folder: &Folder) {
    copy(folder, "safetensors/x_short.safetensors", "model.safetensors");
}

fn long(folder: &Folder) {
    copy(folder, "safetensors/x_trailing.safetensors", "model.safetensors");
}

fn header_only(folder: &Folder) {
    let bytes = fs::read(fixture("safetensors/order.safetensors")).unwrap();
    folder.with("model.safetensors", &bytes[..60]);
}

fn without_format(folder: &Folder) {
    folder.with("model.safetensors", &safetensors(&[("w", "F32", &[1], &[0; 4])]));
}

fn missing_shard(folder: &Folder) {
    model_dir(folder, "missing_shard");
}

fn wrong_index(folder: &Folder) {
    model_dir(folder, "tensor_not_in_index");
}

/// The root group of a Cerebras checkpoint is near its end.
fn cut_in_half(folder: &Folder) {
    let bytes = fs::read(fixture("cerebras/v2.10.0/gpt_small.mdl")).unwrap();
    folder.with("checkpoint.mdl", &bytes[..bytes.len() / 2]);
}

fn without_its_end(folder: &Folder) {
    let bytes = fs::read(fixture("cerebras/v2.10.0/gpt_small.mdl")).unwrap();
    folder.with("checkpoint.mdl", &bytes[..bytes.len() - 100]);
}

fn lz4(folder: &Folder) {
    copy(folder, "cerebras/v2.10.0/constants.mdl", "checkpoint.mdl");
}

fn release_1_7(folder: &Folder) {
    copy(folder, "cerebras/compat/synthetic_1.7.mdl", "checkpoint_1.7.mdl");
}

fn other_sizes(folder: &Folder) {
    model_dir(folder, "config_vocabulary");
}

fn larger_tokenizer(folder: &Folder) {
    model_dir(folder, "tokenizer_larger");
}

fn missing_layer(folder: &Folder) {
    model_dir(folder, "layer_missing");
}

fn missing_head(folder: &Folder) {
    model_dir(folder, "untied_without_a_head");
}

fn nan(folder: &Folder) {
    let tensors: [(&str, &[u64], Vec<f32>); 2] =
        [("a.weight", &[2], vec![1.0, 2.0]), ("b.weight", &[2], vec![1.0, f32::NAN])];
    write_floats(&folder.file("model.pt"), &tensors);
}

/// Runs a command in a folder.
fn command(folder: &Folder, arguments: &str) -> Ran {
    let mut command = statelens();
    command.current_dir(folder.path()).args(arguments.split_whitespace());
    Ran::from(command.output().unwrap())
}

/// Returns the commands of the page: lines of their own, and code in its sentences.
fn commands(page: &str) -> BTreeSet<String> {
    let lines = page.lines().filter_map(|line| line.strip_prefix("    statelens "));
    let sentences: Vec<&str> = page.lines().filter(|line| !line.starts_with("    ")).collect();
    let sentences = sentences.join(" ");
    let code = sentences.split('`').skip(1).step_by(2);
    let inline = code.filter_map(|code| code.strip_prefix("statelens "));
    lines.chain(inline).map(|command| command.trim().to_owned()).collect()
}

#[test]
fn commands_help_with_the_errors_that_they_are_for() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/faq.md");
    let mut failures = Vec::new();
    for Case { command: arguments, make, code, shows } in CASES {
        let folder = Folder::new();
        make(&folder);
        let ran = command(&folder, arguments);
        if ran.code != Some(*code) || !(ran.out.contains(shows) || ran.err.contains(shows)) {
            let Ran { code, out, err } = ran;
            failures.push(format!("{arguments}: {code:?}, without {shows:?}: {out}{err}"));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
    let tried: BTreeSet<String> = CASES.iter().map(|case| case.command.to_owned()).collect();
    assert_eq!(commands(&fs::read_to_string(path).unwrap()), tried, "in the page, and tried here");
}

/// The two commands together add what old releases of transformers need.
#[test]
fn a_copy_through_pytorch_has_the_format() {
    let folder = Folder::new();
    without_format(&folder);
    command(&folder, "convert model.safetensors model.pt").ok();
    command(&folder, "convert model.pt fixed.safetensors").ok();
    let fixed = fs::read(folder.file("fixed.safetensors")).unwrap();
    assert!(String::from_utf8_lossy(&fixed).contains(r#""format":"pt""#));
}
