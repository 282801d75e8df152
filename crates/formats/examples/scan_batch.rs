//! Scans many small files in one process, for `tests/interop/pickle_fuzz.py`.
//!
//! Standard input is a sequence of files, each a little-endian `u32` length followed by that many
//! bytes. For each, one line goes to standard output: `1` if `statelens scan` would exit with
//! status 1, else a JSON object of what the pickle machine read: `names` with a flag for those on
//! the list of harmless names, `titles` (modules named in a warning), and `calls`, in the notation of
//! `pickle_fuzz.py`.

use std::io::{self, BufWriter, Read, Write};

use serde_json::json;
use statelens_checkpoint::{FileSet, Form, Grade, Limits, Memory, Unwatched};
use statelens_formats::ScanOptions;
use statelens_pickle::{Node, NodeId, Pickle, is_harmless, read};

/// Tuples that are nested deeper, or nested and longer, are abbreviated.
const DEEPEST: u32 = 4;
const WIDEST: usize = 8;

fn main() -> io::Result<()> {
    let (mut input, mut output) = (io::stdin().lock(), BufWriter::new(io::stdout().lock()));
    let mut len = [0; 4];
    while input.read_exact(&mut len).is_ok() {
        let mut bytes = vec![0; u32::from_le_bytes(len) as usize];
        input.read_exact(&mut bytes)?;
        writeln!(output, "{}", answer(bytes))?;
        output.flush()?;
    }
    Ok(())
}

fn answer(bytes: Vec<u8>) -> String {
    let files = FileSet::single("x.bin", Memory::from(bytes.clone()));
    let options = ScanOptions::default();
    let scanned = statelens_formats::scan(files, &Limits::default(), &options, &mut Unwatched);
    let Ok(findings) = scanned else { return "1".to_owned() };
    if findings.iter().any(|finding| finding.grade > Grade::Warning) {
        return "1".to_owned();
    }
    let titles: Vec<_> = findings.iter().map(|finding| &finding.title).collect();
    let (mut names, mut calls, mut at) = (Vec::new(), Vec::new(), 0);
    while at < bytes.len() {
        match read(&bytes[at..], 0, &Limits::default()) {
            Ok(pickle) => {
                at += usize::try_from(pickle.end()).unwrap_or(usize::MAX);
                describe(&pickle, &mut names, &mut calls);
            }
            Err(broken) => {
                describe(&broken.pickle, &mut names, &mut calls);
                names.extend(broken.cut_name.map(|global| {
                    (global.module.to_string(), global.name.to_string(), is_harmless(&global))
                }));
                break;
            }
        }
    }
    json!({ "titles": titles, "names": names, "calls": calls }).to_string()
}

fn describe(pickle: &Pickle, names: &mut Vec<(String, String, bool)>, calls: &mut Vec<String>) {
    for used in pickle.globals() {
        let global = &used.global;
        names.push((global.module.to_string(), global.name.to_string(), is_harmless(global)));
    }
    for (id, node) in pickle.nodes() {
        if !matches!(node, Node::Object(_)) && pickle.state(id).is_some() {
            calls.push(format!("build {}", canon(pickle, id, 0)));
        }
        let Some(object) = pickle.object(id) else { continue };
        let target = canon(pickle, id, 0);
        if object.form != Form::Reference {
            let args = match pickle.node(object.args) {
                Node::Tuple(_) => canon(pickle, object.args, 0),
                _ => "*".to_owned(),
            };
            calls.push(format!("make {} {args}", canon(pickle, object.callable, 0)));
        }
        for state in &object.states {
            calls.push(format!("build {target} {}", canon(pickle, *state, 0)));
        }
        for item in &object.items {
            calls.push(format!("add {target} {}", canon(pickle, *item, 0)));
        }
        for (key, value) in &object.entries {
            let (key, value) = (canon(pickle, *key, 0), canon(pickle, *value, 0));
            calls.push(format!("set {target} {key} {value}"));
        }
    }
}

fn canon(pickle: &Pickle, id: NodeId, depth: u32) -> String {
    match pickle.node(id) {
        Node::None => "N".to_owned(),
        Node::Bool(value) => u8::from(*value).to_string(),
        Node::Int(int) => int.to_i64().map_or("big".to_owned(), |int| int.to_string()),
        Node::Float(value) if value.is_nan() => "nan".to_owned(),
        Node::Float(value) => format!("f{:016x}", value.to_bits()),
        Node::Str(text) => text_of(text.as_bytes()),
        Node::Bytes(bytes) => text_of(bytes),
        Node::ByteArray(_) => "bytearray".to_owned(),
        Node::List(_) => "list".to_owned(),
        Node::Set(_) => "set".to_owned(),
        Node::FrozenSet(_) => "frozenset".to_owned(),
        Node::Dict(_) => "dict".to_owned(),
        Node::Tuple(_) => {
            let items = pickle.sequence(id).unwrap_or_default();
            if depth == DEEPEST || depth > 0 && items.len() > WIDEST {
                return "(...)".to_owned();
            }
            let items: Vec<_> = items.iter().map(|item| canon(pickle, *item, depth + 1)).collect();
            format!("({})", items.join(","))
        }
        Node::Global(global) => format!("g:{}:{}", global.module, global.name),
        Node::Object(call) if call.form == Form::Reference => canon(pickle, call.callable, depth),
        Node::Object(_) => "o".to_owned(),
        Node::Persistent(_) => "p".to_owned(),
        Node::Buffer(_) => "b".to_owned(),
        Node::Extension(_) => "e".to_owned(),
    }
}

fn text_of(bytes: &[u8]) -> String {
    bytes.iter().fold("t".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}
