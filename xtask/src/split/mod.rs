//! Divides the page's Wasm in two: what opening, listing and filtering a checkpoint take, and what is
//! fetched when the page has answered already.
//!
//! The second module imports memory, tables and functions of the first. In the first, what went into the
//! second keeps its number, so that nothing in there has to be written anew: what is only reached through
//! the table of functions traps until the second module has put itself there, and so does what is called,
//! by way of a place in the table that is added for it. Nobody may call either before; the page's worker
//! holds messages until then (web/src/worker/later.rs).
//!
//! A function goes into the second part if nothing in the first calls it, but for the doors to the second
//! ([`names::is_door`]), nor finds it in the table of functions, but for those that are known by their names
//! to be of no use before ([`names::is_later`]).

mod module;
mod names;
mod write;

use anyhow::{Context as _, Result, ensure};
use wasmparser::Validator;

use self::module::Module;
pub(crate) use self::names::FunctionNames;

/// The two parts.
pub(crate) struct SplitModule {
    /// What runs by itself, but for what is in the other.
    pub(crate) first: Vec<u8>,
    /// What is given the exports of the first as its imports.
    pub(crate) later: Vec<u8>,
}

/// Divides a module, by the names of its functions.
pub(crate) fn split(bytes: &[u8], names: &FunctionNames) -> Result<SplitModule> {
    let module = Module::parse(bytes).context("reading the Wasm")?;
    let late = late(&module, names)?;
    let parts = write::parts(&module, &late)?;
    for part in [&parts.first, &parts.later] {
        Validator::new().validate_all(part).context("a part of the Wasm is not valid")?;
    }
    Ok(parts)
}

/// How many instructions there are that add or multiply two 64-bit floats at once: what loops over weights become where
/// they are compiled to vectors.
pub(crate) fn vector_sums(bytes: &[u8]) -> Result<usize> {
    /// `f64x2.add` and `f64x2.mul`.
    const SUMS: [&[u8]; 2] = [&[0xfd, 0xf0, 0x01], &[0xfd, 0xf2, 0x01]];
    let module = Module::parse(bytes).context("reading the Wasm")?;
    let mut sums = 0;
    for function in module.imported..module.functions.len() as u32 {
        module.code(function, |_, instruction| {
            sums += usize::from(SUMS.contains(&instruction));
            Ok(())
        })?;
    }
    Ok(sums)
}

/// What goes into the second part.
struct Late {
    /// Whether a function does, by its number.
    is: Vec<bool>,
    /// Those of them that the first part calls.
    doors: Vec<u32>,
}

fn late(module: &Module<'_>, names: &FunctionNames) -> Result<Late> {
    let all = module.functions.len();
    let is_door = |function: u32| !module.is_import(function) && names.is_door(function);
    let mut kept = vec![false; all];
    let mut to_do: Vec<u32> = module.roots();
    let in_table = module.slots.iter().map(|(_, function)| *function);
    to_do.extend(in_table.filter(|function| {
        module.is_import(*function) || !names.is_later(*function, module.body(*function).len())
    }));
    let mut doors = Vec::new();
    while let Some(function) = to_do.pop() {
        if std::mem::replace(&mut kept[function as usize], true) {
            continue;
        }
        for called in module.calls(function)? {
            match is_door(called) {
                true => doors.push(called),
                false => to_do.push(called),
            }
        }
    }
    // What is exported, or in the table, is there from the beginning, door or not.
    doors.retain(|door| !kept[*door as usize]);
    doors.sort_unstable();
    doors.dedup();
    ensure!(!doors.is_empty(), "the first part calls nothing of the second: names have changed");
    let first = module.imported as usize;
    Ok(Late { is: (0..all).map(|at| at >= first && !kept[at]).collect(), doors })
}

#[cfg(test)]
mod tests;
