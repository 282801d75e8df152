//! The two parts, as bytes.

use std::collections::HashMap;

use anyhow::{Context as _, Result, bail, ensure};
use sha2::{Digest, Sha256};
use wasmparser::{ExternalKind, GlobalType, RefType, TableType, ValType};

use super::module::Module;
use super::{Late, SplitModule};

/// What both parts begin with.
const MAGIC: &[u8] = b"\0asm\x01\0\0\0";

/// Numbers of sections.
const CUSTOM: u8 = 0;
const TYPES: u8 = 1;
const IMPORTS: u8 = 2;
const FUNCTIONS: u8 = 3;
const TABLES: u8 = 4;
const EXPORTS: u8 = 7;
const ELEMENTS: u8 = 9;
const CODE: u8 = 10;

/// The name of the module that the second part imports all from.
pub(super) const FROM: &str = "first";

/// Code that is never reached: no variables, `unreachable`.
const NEVER: &[u8] = &[0x00, 0x00, 0x0b];

/// Writes the two parts.
pub(super) fn parts(module: &Module<'_>, late: &Late) -> Result<SplitModule> {
    let moved: Vec<u32> =
        (0..).zip(&late.is).filter(|(_, is)| **is).map(|(function, _)| function).collect();
    let used = used(module, late, &moved)?;
    let table = module.tables.get(module.table as usize).context("there is no table")?;
    let places: HashMap<u32, u32> =
        late.doors.iter().copied().zip(u32::try_from(table.initial)?..).collect();
    let names = Exports::new(module, &used);
    let mut first = first(module, late, &places, &names)?;
    // What belongs together knows each other: a browser may have kept one of them from another version.
    let stamp: String = Sha256::digest(&first).iter().take(6).map(|b| format!("{b:02x}")).collect();
    first = with_stamp(module, &first, &names, &stamp)?;
    let later = later(module, late, &moved, &used, &places, &names, &stamp)?;
    Ok(SplitModule { first, later })
}

/// The functions of the first part that the second calls, those first that it calls most: their numbers are
/// written often.
fn used(module: &Module<'_>, late: &Late, moved: &[u32]) -> Result<Vec<u32>> {
    let mut counts: HashMap<u32, usize> = HashMap::new();
    for function in moved {
        for called in module.calls(*function)? {
            if !late.is[called as usize] {
                *counts.entry(called).or_default() += 1;
            }
        }
    }
    let mut used: Vec<u32> = counts.keys().copied().collect();
    used.sort_by_key(|function| (std::cmp::Reverse(counts[function]), *function));
    Ok(used)
}

/// What the first part exports, beside what it does anyway.
struct Exports {
    names: HashMap<(ExternKind, u32), String>,
    added: Vec<(String, ExternKind, u32)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum ExternKind {
    Function = 0,
    Table = 1,
    Memory = 2,
    Global = 3,
}

impl Exports {
    fn new(module: &Module<'_>, used: &[u32]) -> Self {
        let mut names = HashMap::new();
        for (name, kind, index) in &module.exports {
            let kind = match kind {
                ExternalKind::Func => ExternKind::Function,
                ExternalKind::Table => ExternKind::Table,
                ExternalKind::Memory => ExternKind::Memory,
                ExternalKind::Global => ExternKind::Global,
                _ => continue,
            };
            names.insert((kind, *index), (*name).to_owned());
        }
        let mut exports = Self { names, added: Vec::new() };
        let all = |kind, count: usize| (0..count as u32).map(move |at| (kind, at));
        let wanted = (used.iter().map(|function| (ExternKind::Function, *function)))
            .chain(all(ExternKind::Table, module.tables.len()))
            .chain(all(ExternKind::Global, module.globals.len()));
        for of in wanted {
            if !exports.names.contains_key(&of) {
                let name = short(exports.added.len());
                exports.added.push((name.clone(), of.0, of.1));
                exports.names.insert(of, name);
            }
        }
        exports
    }

    fn name(&self, kind: ExternKind, index: u32) -> Result<&str> {
        Ok(self.names.get(&(kind, index)).context("something is not exported")?)
    }
}

/// A name that nothing else has: nothing in Rust begins with a digit.
fn short(mut number: usize) -> String {
    const LETTERS: &[u8; 64] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";
    let mut name = String::new();
    name.push(char::from(LETTERS[number % 10]));
    number /= 10;
    while number > 0 {
        name.push(char::from(LETTERS[number % 64]));
        number /= 64;
    }
    name
}

fn first(
    module: &Module<'_>,
    late: &Late,
    places: &HashMap<u32, u32>,
    names: &Exports,
) -> Result<Vec<u8>> {
    let mut out = MAGIC.to_vec();
    for (id, range) in &module.sections {
        let whole = module.section(range);
        match *id {
            CUSTOM => {}
            FUNCTIONS => {
                let own = (module.imported..).zip(&module.functions[module.imported as usize..]);
                let types = own.map(|(function, of)| {
                    let is_kept = !late.is[function as usize] || places.contains_key(&function);
                    if is_kept { *of } else { module.simplest() }
                });
                section(&mut out, FUNCTIONS, &list(types, leb));
            }
            TABLES => {
                let mut tables = module.tables.clone();
                let table = &mut tables[module.table as usize];
                table.initial += places.len() as u64;
                table.maximum = table.maximum.map(|most| most + places.len() as u64);
                section(&mut out, TABLES, &try_list(&tables, table_type)?);
            }
            EXPORTS => section(&mut out, EXPORTS, &exports(module, names, None)),
            CODE => {
                let own = module.imported..module.functions.len() as u32;
                let code = try_list(own, |out, function| {
                    match (late.is[function as usize], places.get(&function)) {
                        (_, Some(place)) => bytes(out, &door(module, function, *place)?),
                        (true, None) => bytes(out, NEVER),
                        (false, None) => bytes(out, module.body(function)),
                    }
                    Ok(())
                })?;
                section(&mut out, CODE, &code);
            }
            _ => section(&mut out, *id, whole),
        }
    }
    Ok(out)
}

/// The first part with its memory exported under the name of its stamp, too.
fn with_stamp(module: &Module<'_>, first: &[u8], names: &Exports, stamp: &str) -> Result<Vec<u8>> {
    let before = {
        let mut out = Vec::new();
        section(&mut out, EXPORTS, &exports(module, names, None));
        out
    };
    let at = first.windows(before.len()).position(|part| part == before);
    let at = at.context("it exports nothing")?;
    let mut out = first[..at].to_vec();
    section(&mut out, EXPORTS, &exports(module, names, Some(stamp)));
    out.extend_from_slice(&first[at + before.len()..]);
    Ok(out)
}

fn exports(module: &Module<'_>, names: &Exports, stamp: Option<&str>) -> Vec<u8> {
    let old = module.exports.iter().map(|(name, kind, index)| (*name, *kind as u8, *index));
    let new = names.added.iter().map(|(name, kind, index)| (name.as_str(), *kind as u8, *index));
    let stamp = stamp.map(|stamp| (stamp, ExternKind::Memory as u8, 0));
    let all: Vec<_> = old.chain(new).chain(stamp).collect();
    list(all, |out, (name, kind, index)| {
        bytes(out, name.as_bytes());
        out.push(kind);
        leb(out, index);
    })
}

/// Code that hands on its parameters to whoever is at a place of the table.
fn door(module: &Module<'_>, function: u32, place: u32) -> Result<Vec<u8>> {
    let mut out = vec![0x00];
    for parameter in 0..module.parameters(function)? {
        out.push(0x20);
        leb(&mut out, parameter);
    }
    out.push(0x41);
    signed(&mut out, place);
    out.push(0x11);
    leb(&mut out, module.functions[function as usize]);
    leb(&mut out, module.table);
    out.push(0x0b);
    Ok(out)
}

#[allow(clippy::too_many_arguments, reason = "all of it is needed once")]
fn later(
    module: &Module<'_>,
    late: &Late,
    moved: &[u32],
    used: &[u32],
    places: &HashMap<u32, u32>,
    names: &Exports,
    stamp: &str,
) -> Result<Vec<u8>> {
    let numbers: HashMap<u32, u32> = used.iter().chain(moved).copied().zip(0..).collect();
    let mut out = MAGIC.to_vec();
    let types = module.sections.iter().find(|(id, _)| *id == TYPES).context("it has no types")?;
    section(&mut out, TYPES, module.section(&types.1));
    section(&mut out, IMPORTS, &imports(module, used, names, stamp)?);
    let own = moved.iter().map(|function| module.functions[*function as usize]);
    section(&mut out, FUNCTIONS, &list(own, leb));
    let mut filled: Vec<(u32, u32)> =
        places.iter().map(|(function, place)| (*place, *function)).collect();
    filled.extend(module.slots.iter().filter(|(_, function)| late.is[*function as usize]));
    filled.sort_unstable();
    let runs: Vec<&[(u32, u32)]> = filled.chunk_by(|one, next| one.0 + 1 == next.0).collect();
    let elements = list(runs, |out, run| {
        match module.table {
            0 => out.push(0x00),
            table => {
                out.push(0x02);
                leb(out, table);
            }
        }
        out.push(0x41);
        signed(out, run[0].0);
        out.push(0x0b);
        if module.table != 0 {
            out.push(0x00);
        }
        out.extend(list(run, |out, (_, function)| leb(out, numbers[function])));
    });
    section(&mut out, ELEMENTS, &elements);
    let code = try_list(moved, |out, function| {
        let mut body = Vec::new();
        module.code(*function, |called, raw| {
            match called {
                Some(called) => {
                    body.push(0x10);
                    leb(&mut body, *numbers.get(&called).context("a call to nowhere")?);
                }
                None => body.extend_from_slice(raw),
            }
            Ok(())
        })?;
        bytes(out, &body);
        Ok(())
    })?;
    section(&mut out, CODE, &code);
    Ok(out)
}

fn imports(module: &Module<'_>, used: &[u32], names: &Exports, stamp: &str) -> Result<Vec<u8>> {
    ensure!(module.memories.len() == 1, "it has more than one memory, or none");
    let mut all: Vec<(&str, ExternKind, Vec<u8>)> = Vec::new();
    for function in used {
        let mut of = Vec::new();
        leb(&mut of, module.functions[*function as usize]);
        all.push((names.name(ExternKind::Function, *function)?, ExternKind::Function, of));
    }
    for (at, table) in (0..).zip(&module.tables) {
        let mut of = Vec::new();
        table_type(&mut of, TableType { maximum: None, ..*table })?;
        all.push((names.name(ExternKind::Table, at)?, ExternKind::Table, of));
    }
    let mut of = vec![0x00];
    leb(&mut of, u32::try_from(module.memories[0].initial)?);
    all.push((stamp, ExternKind::Memory, of));
    for (at, global) in (0..).zip(&module.globals) {
        all.push((names.name(ExternKind::Global, at)?, ExternKind::Global, global_type(global)?));
    }
    Ok(list(all, |out, (name, kind, of)| {
        bytes(out, FROM.as_bytes());
        bytes(out, name.as_bytes());
        out.push(kind as u8);
        out.extend(of);
    }))
}

fn table_type(out: &mut Vec<u8>, table: impl std::borrow::Borrow<TableType>) -> Result<()> {
    let table = table.borrow();
    out.push(match table.element_type {
        RefType::FUNCREF => 0x70,
        RefType::EXTERNREF => 0x6f,
        other => bail!("a table of {other:?}"),
    });
    out.push(u8::from(table.maximum.is_some()));
    leb(out, u32::try_from(table.initial)?);
    if let Some(most) = table.maximum {
        leb(out, u32::try_from(most)?);
    }
    Ok(())
}

fn global_type(global: &GlobalType) -> Result<Vec<u8>> {
    let of = match global.content_type {
        ValType::I32 => 0x7f,
        ValType::I64 => 0x7e,
        ValType::F32 => 0x7d,
        ValType::F64 => 0x7c,
        other => bail!("a global of {other:?}"),
    };
    Ok(vec![of, u8::from(global.mutable)])
}

fn section(out: &mut Vec<u8>, id: u8, contents: &[u8]) {
    out.push(id);
    bytes(out, contents);
}

/// Bytes behind their length.
fn bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    leb(out, bytes.len() as u32);
    out.extend_from_slice(bytes);
}

/// Items behind their number.
fn list<T>(items: impl IntoIterator<Item = T>, mut write: impl FnMut(&mut Vec<u8>, T)) -> Vec<u8> {
    let (mut count, mut all) = (0, Vec::new());
    for item in items {
        write(&mut all, item);
        count += 1;
    }
    let mut out = Vec::new();
    leb(&mut out, count);
    out.extend(all);
    out
}

fn try_list<T>(
    items: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut Vec<u8>, T) -> Result<()>,
) -> Result<Vec<u8>> {
    let mut outcome = Ok(());
    let out = list(items, |out, item| {
        if outcome.is_ok() {
            outcome = write(out, item);
        }
    });
    outcome.map(|()| out)
}

fn leb(out: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// As `i32.const` has it: the seventh bit of the last byte is the sign.
fn signed(out: &mut Vec<u8>, mut number: u32) {
    while number >= 0x40 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}
