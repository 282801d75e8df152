//! The functions of the page's Wasm, those that are alike beside each other.
//!
//! What packs it finds what was there before, and the closer it was, the fewer bits say so: the order in
//! which functions stand is worth one hundredth of the page. wasm-opt sorts them by name, which brings
//! the copies of generic functions together; here, what stands next is what shares most with the last
//! few thousand bytes.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::ops::Range;

use anyhow::{Context, Result, ensure};
use wasm_encoder::reencode::{Error, Reencode};
use wasm_encoder::{CodeSection, FunctionSection, Module};
use wasmparser::{CodeSectionReader, FunctionSectionReader, Parser, Payload, TypeRef, Validator};

/// Bytes that two functions share, or do not.
const SHINGLE: usize = 6;
/// One in so many shingles is looked at.
const SAMPLED: u64 = 4;
/// A shingle that more functions hold than this is in every second one: it tells nothing.
const COMMON: usize = 60;
/// Bytes of the last functions, with which the next one is compared.
const WINDOW: usize = 8_000;
/// How much length counts against what is shared: 1 would put the shortest first.
const LENGTH: f64 = 0.8;

/// The same module with its functions in another order.
pub(crate) fn ordered(wasm: &[u8]) -> Result<Vec<u8>> {
    let (imported, bodies) = functions(wasm)?;
    let order = by_likeness(&bodies.iter().map(|body| &wasm[body.clone()]).collect::<Vec<_>>());
    let mut renumbered = vec![0; order.len()];
    for (new, old) in (0..).zip(&order) {
        renumbered[*old] = new;
    }
    let mut module = Module::new();
    Renumber { imported, order, renumbered }
        .parse_core_module(&mut module, Parser::new(0), wasm)
        .context("writing the functions in another order")?;
    let wasm = module.finish();
    Validator::new().validate_all(&wasm).context("checking the functions in another order")?;
    Ok(wasm)
}

/// How many functions are imported, and where the bodies of the others are.
fn functions(wasm: &[u8]) -> Result<(u32, Vec<Range<usize>>)> {
    let (mut imported, mut bodies) = (0, Vec::new());
    for payload in Parser::new(0).parse_all(wasm) {
        match payload.context("reading the page's Wasm")? {
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    imported += u32::from(matches!(import?.ty, TypeRef::Func(_)));
                }
            }
            Payload::CodeSectionEntry(body) => {
                let Range { start, end } = body.range();
                bodies.push(usize::try_from(start)?..usize::try_from(end)?);
            }
            _ => {}
        }
    }
    ensure!(!bodies.is_empty(), "the page's Wasm has no functions");
    Ok((imported, bodies))
}

/// Writes a module anew with the functions in `order`; `renumbered` is where each comes to stand.
struct Renumber {
    imported: u32,
    order: Vec<usize>,
    renumbered: Vec<u32>,
}

impl Reencode for Renumber {
    type Error = Infallible;

    fn function_index(&mut self, index: u32) -> Result<u32, Error<Infallible>> {
        let Some(own) = index.checked_sub(self.imported) else { return Ok(index) };
        // One that is not there is found when the module is checked.
        Ok(self.renumbered.get(own as usize).map_or(index, |new| self.imported + new))
    }

    fn parse_function_section(
        &mut self,
        functions: &mut FunctionSection,
        section: FunctionSectionReader<'_>,
    ) -> Result<(), Error<Infallible>> {
        let types = section.into_iter().collect::<Result<Vec<u32>, _>>()?;
        for old in &self.order {
            functions.function(types[*old]);
        }
        Ok(())
    }

    fn parse_code_section(
        &mut self,
        code: &mut CodeSection,
        section: CodeSectionReader<'_>,
    ) -> Result<(), Error<Infallible>> {
        let bodies = section.into_iter().collect::<Result<Vec<_>, _>>()?;
        for old in self.order.clone() {
            self.parse_function_body(code, bodies[old].clone())?;
        }
        Ok(())
    }
}

/// The order: the longest first, then always the one that shares most with what stands before it.
fn by_likeness(bodies: &[&[u8]]) -> Vec<usize> {
    let shingles = shingles(bodies);
    let mut holders: HashMap<u64, Vec<usize>> = HashMap::new();
    for (index, shingles) in shingles.iter().enumerate() {
        shingles.iter().for_each(|shingle| holders.entry(*shingle).or_default().push(index));
    }
    holders.retain(|_, holders| (2..=COMMON).contains(&holders.len()));
    let weights: Vec<f64> =
        bodies.iter().map(|body| (body.len() as f64 + 20.0).powf(LENGTH)).collect();

    let mut shared = vec![0_u32; bodies.len()];
    // Shingles of the functions in the window, and in how many of them.
    let mut near: HashMap<u64, u32> = HashMap::new();
    let mut window = VecDeque::new();
    let mut width = 0;
    let mut rest: Vec<usize> = (0..bodies.len()).collect();
    let mut order = Vec::with_capacity(bodies.len());
    let longest = |one: &usize| bodies[*one].len();
    let mut next = rest.iter().position(|one| Some(longest(one)) == rest.iter().map(longest).max());
    while let Some(place) = next {
        let taken = rest.remove(place);
        order.push(taken);
        for shingle in &shingles[taken] {
            let Some(holders) = holders.get(shingle) else { continue };
            let count = near.entry(*shingle).or_default();
            *count += 1;
            if *count == 1 {
                holders.iter().for_each(|holder| shared[*holder] += 1);
            }
        }
        window.push_back(taken);
        width += bodies[taken].len();
        while width > WINDOW && window.len() > 1 {
            let Some(left) = window.pop_front() else { break };
            width -= bodies[left].len();
            for shingle in &shingles[left] {
                let Some(holders) = holders.get(shingle) else { continue };
                let count = near.entry(*shingle).or_default();
                *count = count.saturating_sub(1);
                if *count == 0 {
                    near.remove(shingle);
                    holders.iter().for_each(|holder| shared[*holder] -= 1);
                }
            }
        }
        let mut best = None;
        for (place, index) in rest.iter().enumerate() {
            let score = f64::from(shared[*index]) / weights[*index];
            if best.is_none_or(|(_, most)| score > most) {
                best = Some((place, score));
            }
        }
        next = best.map(|(place, _)| place);
    }
    order
}

/// A sample of the runs of bytes in each function, every one once.
fn shingles(bodies: &[&[u8]]) -> Vec<Vec<u64>> {
    let of = |body: &&[u8]| {
        let runs = body.windows(SHINGLE).map(|run| {
            let word = run.iter().fold(0_u64, |word, byte| word << 8 | u64::from(*byte));
            word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31)
        });
        let mut found: Vec<u64> = runs.filter(|hash| hash % SAMPLED == 0).collect();
        found.sort_unstable();
        found.dedup();
        found
    };
    bodies.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use wasm_encoder::{ExportKind, ExportSection, Function, Instruction, TypeSection, ValType};

    use super::*;

    /// A module whose function `i` gives `i`, or what the function before it gives plus one; each
    /// is exported by its number.
    fn module(count: u32) -> Vec<u8> {
        let (mut types, mut functions) = (TypeSection::new(), FunctionSection::new());
        let (mut exports, mut code) = (ExportSection::new(), CodeSection::new());
        types.ty().function([], [ValType::I32]);
        for index in 0..count {
            functions.function(0);
            exports.export(&index.to_string(), ExportKind::Func, index);
            let mut body = Function::new([]);
            for filler in 0..index * 7 % 40 {
                body.instruction(&Instruction::I32Const(filler as i32 % 5));
                body.instruction(&Instruction::Drop);
            }
            match index % 3 {
                0 => body.instruction(&Instruction::I32Const(index as i32)),
                _ => body
                    .instruction(&Instruction::Call(index - 1))
                    .instruction(&Instruction::I32Const(1))
                    .instruction(&Instruction::I32Add),
            };
            body.instruction(&Instruction::End);
            code.function(&body);
        }
        let mut module = Module::new();
        module.section(&types).section(&functions).section(&exports).section(&code);
        module.finish()
    }

    /// What each exported function is made of, calls by the names of what they call.
    fn meaning(wasm: &[u8]) -> BTreeMap<String, String> {
        let (mut names, mut bodies) = (BTreeMap::new(), Vec::new());
        for payload in Parser::new(0).parse_all(wasm) {
            match payload.unwrap() {
                Payload::ExportSection(exports) => {
                    for export in exports {
                        let export = export.unwrap();
                        names.insert(export.index, export.name.to_owned());
                    }
                }
                Payload::CodeSectionEntry(body) => bodies.push(body),
                _ => {}
            }
        }
        let text = |body: &wasmparser::FunctionBody<'_>| {
            let operators = body.get_operators_reader().unwrap().into_iter();
            let operators = operators.map(|operator| match operator.unwrap() {
                wasmparser::Operator::Call { function_index } => names[&function_index].clone(),
                other => format!("{other:?}"),
            });
            operators.collect::<Vec<_>>().join(" ")
        };
        (0..).zip(&bodies).map(|(index, body)| (names[&index].clone(), text(body))).collect()
    }

    #[test]
    fn every_function_keeps_its_name_and_what_it_calls() {
        let wasm = module(90);
        let other = ordered(&wasm).unwrap();
        assert_ne!(wasm, other);
        assert_eq!(meaning(&wasm), meaning(&other));
        assert!(ordered(b"no module").is_err());
    }

    #[test]
    fn what_is_alike_stands_together() {
        let noise = |seed: u64| -> Vec<u8> {
            let mut state = seed;
            let mut next = || {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 56) as u8
            };
            (0..400).map(|_| next()).collect()
        };
        let families: Vec<Vec<u8>> = (1..=5).map(noise).collect();
        let bodies: Vec<&[u8]> = (0..30).map(|at| &families[at % 5][at..]).collect();
        let order = by_likeness(&bodies);
        let mut all = order.clone();
        all.sort_unstable();
        assert_eq!(all, (0..30).collect::<Vec<_>>());
        let changes = order.windows(2).filter(|two| two[0] % 5 != two[1] % 5).count();
        assert_eq!(changes, 4, "{order:?}");
    }
}
