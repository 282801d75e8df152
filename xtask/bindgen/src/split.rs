//! Splits a program into the part that starts it and the rest, which is loaded when first needed.
//!
//! Functions of the given modules move into the rest, with all functions that only they use. The two parts share memory, tables and globals. Each moved function that the
//! first part calls, or that a table contains, keeps its place there as a stub: it calls
//! `rest.load`, which has to create the second instance before it returns, and then the moved
//! function through a table of its own. Callers and function pointers therefore need no change.

use std::collections::{BTreeSet, HashMap};

use anyhow::{Result, ensure};
use walrus::ir::{UnaryOp, Value, Visitor, dfs_in_order};
use walrus::{
    ConstExpr, ElementItems, ElementKind, ExportItem, FunctionBuilder, FunctionId, FunctionKind,
    GlobalKind, ImportedFunction, Module, RefType, ValType, passes,
};

/// The name of the module that the rest imports: the exports of the first part.
const MAIN: &str = "main";
/// The import of the first part that creates the rest: a function without arguments.
const LOAD: (&str, &str) = ("rest", "load");
/// The export of the first part for the table that the rest fills with its functions.
const TABLE: &str = "rest_functions";

/// The number of instructions below which a function moves only if no other part uses it.
const MIN_SIZE: u64 = 100;

/// The two parts of a program, as Wasm with names.
pub(crate) struct Parts {
    pub(crate) main: Vec<u8>,
    pub(crate) rest: Vec<u8>,
}

/// Splits a program. `modules` are paths that end in `::`. It is an error if one has no function.
pub(crate) fn split(wasm: &[u8], modules: &[String]) -> Result<Parts> {
    let program = Module::from_buffer(wasm)?;
    let moved = Moved::of(&program, modules)?;
    let (rest, shared) = rest(Module::from_buffer(wasm)?, &moved)?;
    Ok(Parts { main: main(program, &moved, &shared)?, rest })
}

/// Functions that move, as positions in the program.
struct Moved {
    all: BTreeSet<usize>,
    /// Those that the first part refers to, in the order of their table.
    entries: Vec<usize>,
}

impl Moved {
    fn of(program: &Module, modules: &[String]) -> Result<Self> {
        let positions = positions(program);
        let mut references = Vec::new();
        let mut gates = BTreeSet::new();
        let mut matched = vec![false; modules.len()];
        for (at, function) in program.funcs.iter().enumerate() {
            let mut found = References::default();
            if let FunctionKind::Local(local) = &function.kind {
                dfs_in_order(&mut found, local, local.entry_block());
                // Methods are called `<path::Type as Trait>::method`. Names with other prefixes, such
                // as those of destructors, and short functions may belong to several that the
                // compiler merged.
                let own = function.name.as_deref().unwrap_or_default().trim_start_matches('<');
                for (module, matched) in modules.iter().zip(&mut matched) {
                    if own.starts_with(module.as_str()) && local.size() >= MIN_SIZE {
                        gates.insert(at);
                        *matched = true;
                    }
                }
            }
            references.push(found.0.iter().map(|id| positions[id]).collect::<Vec<_>>());
        }
        for (module, matched) in modules.iter().zip(matched) {
            ensure!(matched, "the program has no long function of {module}");
        }
        let roots: BTreeSet<usize> = roots(program).iter().map(|id| positions[id]).collect();
        let mut kept = BTreeSet::new();
        let mut stack: Vec<usize> = roots.iter().copied().collect();
        while let Some(at) = stack.pop() {
            if !gates.contains(&at) && kept.insert(at) {
                stack.extend(&references[at]);
            }
        }
        let all: BTreeSet<usize> = program
            .funcs
            .iter()
            .enumerate()
            .filter(|(at, function)| {
                matches!(function.kind, FunctionKind::Local(_)) && !kept.contains(at)
            })
            .map(|(at, _)| at)
            .collect();
        let called = kept.iter().flat_map(|at| &references[*at]).chain(&roots);
        let entries: BTreeSet<usize> = called.copied().filter(|at| all.contains(at)).collect();
        Ok(Self { all, entries: entries.into_iter().collect() })
    }
}

/// Collects the functions that a function calls or takes the address of.
#[derive(Default)]
struct References(Vec<FunctionId>);

impl Visitor<'_> for References {
    fn visit_function_id(&mut self, function: &FunctionId) {
        self.0.push(*function);
    }
}

fn positions(module: &Module) -> HashMap<FunctionId, usize> {
    module.funcs.iter().enumerate().map(|(at, function)| (function.id(), at)).collect()
}

/// Returns the functions that are used without being called by another one.
fn roots(module: &Module) -> Vec<FunctionId> {
    let mut roots: Vec<FunctionId> = module.start.into_iter().collect();
    roots.extend(module.exports.iter().filter_map(|export| match export.item {
        ExportItem::Function(function) => Some(function),
        _ => None,
    }));
    for element in module.elements.iter() {
        match &element.items {
            ElementItems::Functions(functions) => roots.extend(functions),
            ElementItems::Expressions(_, items) => {
                roots.extend(items.iter().filter_map(|item| match item {
                    ConstExpr::RefFunc(function) => Some(*function),
                    _ => None,
                }));
            }
        }
    }
    roots
}

/// An item of the first part that the rest uses, by its position among the items of its kind.
#[derive(Clone, Copy)]
enum Shared {
    Function(usize),
    Memory(usize),
    Table(usize),
    Global(usize),
}

/// The imports of the rest, with their names.
type Imports = Vec<(String, Shared)>;

/// Returns the rest, and its imports from the first part.
fn rest(mut module: Module, moved: &Moved) -> Result<(Vec<u8>, Imports)> {
    module.start = None;
    for export in ids(module.exports.iter().map(|export| export.id())) {
        module.exports.delete(export);
    }
    for data in ids(module.data.iter().map(|data| data.id())) {
        module.data.delete(data);
    }
    for element in ids(module.elements.iter().map(|element| element.id())) {
        module.elements.delete(element);
    }
    let mut shared = HashMap::new();
    for (at, id) in ids(module.memories.iter().map(|memory| memory.id())).into_iter().enumerate() {
        let import = module.imports.add(MAIN, "", id);
        shared.insert(import, Shared::Memory(at));
        let memory = module.memories.get_mut(id);
        memory.import = Some(import);
        memory.data_segments.clear();
    }
    for (at, id) in ids(module.tables.iter().map(|table| table.id())).into_iter().enumerate() {
        let import = module.imports.add(MAIN, "", id);
        shared.insert(import, Shared::Table(at));
        let table = module.tables.get_mut(id);
        table.import = Some(import);
        table.elem_segments.clear();
    }
    for (at, id) in ids(module.globals.iter().map(|global| global.id())).into_iter().enumerate() {
        let import = module.imports.add(MAIN, "", id);
        shared.insert(import, Shared::Global(at));
        module.globals.get_mut(id).kind = GlobalKind::Import(import);
    }
    let functions = ids(module.funcs.iter().map(|function| function.id()));
    for (at, id) in functions.iter().enumerate().filter(|(at, _)| !moved.all.contains(at)) {
        let function = module.funcs.get_mut(*id);
        let import = match &function.kind {
            FunctionKind::Import(imported) => {
                let import = module.imports.get_mut(imported.import);
                import.module = MAIN.into();
                import.id()
            }
            _ => {
                let (ty, import) = (function.ty(), module.imports.add(MAIN, "", *id));
                function.kind = FunctionKind::Import(ImportedFunction { import, ty });
                import
            }
        };
        shared.insert(import, Shared::Function(at));
    }
    let length = moved.entries.len() as u64;
    let kind = RefType::FUNCREF;
    let (table, _) = module.add_import_table(MAIN, TABLE, false, length, Some(length), kind);
    let entries = moved.entries.iter().map(|at| functions[*at]).collect();
    let start = ElementKind::Active { table, offset: ConstExpr::Value(Value::I32(0)) };
    let element = module.elements.add(start, ElementItems::Functions(entries));
    module.tables.get_mut(table).elem_segments.insert(element);
    passes::gc::run(&mut module);
    // Named after the unused imports are gone, so that names are short.
    let mut used = Vec::new();
    for import in module.imports.iter_mut() {
        if let Some(item) = shared.get(&import.id()) {
            import.name = short_name(used.len());
            used.push((import.name.clone(), *item));
        } else {
            ensure!(import.name == TABLE, "the rest imports {}", import.name);
        }
    }
    Ok((module.emit_wasm(), used))
}

/// Returns the first part.
fn main(mut module: Module, moved: &Moved, shared: &Imports) -> Result<Vec<u8>> {
    let functions = ids(module.funcs.iter().map(|function| function.id()));
    let memories = ids(module.memories.iter().map(|memory| memory.id()));
    let tables = ids(module.tables.iter().map(|table| table.id()));
    let globals = ids(module.globals.iter().map(|global| global.id()));
    let length = moved.entries.len() as u64;
    let table = module.tables.add_local(false, length, Some(length), RefType::FUNCREF);
    let nothing = module.types.add(&[], &[]);
    let (load, _) = module.add_import_func(LOAD.0, LOAD.1, nothing);
    let not_loaded = ConstExpr::Value(Value::I32(0));
    let loaded = module.globals.add_local(ValType::I32, true, false, not_loaded);
    let mut builder = FunctionBuilder::new(&mut module.types, &[], &[]);
    builder.name("load_rest".into());
    builder.func_body().global_get(loaded).unop(UnaryOp::I32Eqz).if_else(
        None,
        |then| {
            then.call(load).i32_const(1).global_set(loaded);
        },
        |_| {},
    );
    let load_rest = builder.finish(Vec::new(), &mut module.funcs);
    for (slot, at) in moved.entries.iter().enumerate() {
        let ty = module.funcs.get(functions[*at]).ty();
        let signature = module.types.get(ty);
        let (params, results) = (signature.params().to_vec(), signature.results().to_vec());
        let arguments: Vec<_> = params.iter().map(|param| module.locals.add(*param)).collect();
        let mut builder = FunctionBuilder::new(&mut module.types, &params, &results);
        let mut body = builder.func_body();
        body.call(load_rest);
        for argument in &arguments {
            body.local_get(*argument);
        }
        body.i32_const(i32::try_from(slot)?).call_indirect(ty, table);
        let stub = builder.local_func(arguments);
        module.funcs.get_mut(functions[*at]).kind = FunctionKind::Local(stub);
    }
    let taken: BTreeSet<String> = module.exports.iter().map(|export| export.name.clone()).collect();
    ensure!(
        shared.iter().all(|(name, _)| !taken.contains(name)),
        "the program exports a short name"
    );
    module.exports.add(TABLE, table);
    for (name, item) in shared {
        match *item {
            Shared::Function(at) => module.exports.add(name, functions[at]),
            Shared::Memory(at) => module.exports.add(name, memories[at]),
            Shared::Table(at) => module.exports.add(name, tables[at]),
            Shared::Global(at) => module.exports.add(name, globals[at]),
        };
    }
    passes::gc::run(&mut module);
    Ok(module.emit_wasm())
}

fn ids<T>(ids: impl Iterator<Item = T>) -> Vec<T> {
    ids.collect()
}

/// Returns a short name for each number: `a` to `z`, `ba`, `bb` and so on.
fn short_name(mut number: usize) -> String {
    let mut name = String::new();
    loop {
        name.insert(0, char::from(b'a' + (number % 26) as u8));
        number /= 26;
        if number == 0 {
            return name;
        }
    }
}

#[cfg(test)]
mod tests {
    use walrus::ir::BinaryOp;

    use super::*;

    /// Returns a program that exports `run(x)`, which returns `feature(x) + shared(x)`. `feature`
    /// uses `only` and `shared`.
    fn program() -> Vec<u8> {
        let mut module = Module::default();
        let mut function = |name: &str, called: &[FunctionId], own: i32| {
            let mut builder =
                FunctionBuilder::new(&mut module.types, &[ValType::I32], &[ValType::I32]);
            builder.name(name.into());
            let argument = module.locals.add(ValType::I32);
            let mut body = builder.func_body();
            body.local_get(argument).i32_const(own).binop(BinaryOp::I32Add);
            for _ in 0..MIN_SIZE {
                body.i32_const(0).drop();
            }
            for called in called {
                body.local_get(argument).call(*called).binop(BinaryOp::I32Add);
            }
            builder.finish(vec![argument], &mut module.funcs)
        };
        let shared = function("app::shared", &[], 1);
        let only = function("app::only", &[], 10);
        let feature = function("<app::feature::Type as Trait>::run", &[only, shared], 100);
        let run = function("app::run", &[feature, shared], 1000);
        module.exports.add("run", run);
        module.emit_wasm()
    }

    fn names(module: &Module) -> Vec<&str> {
        let mut names: Vec<&str> =
            module.funcs.iter().filter_map(|function| function.name.as_deref()).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn moves_a_function_with_what_only_it_uses() {
        let parts = split(&program(), &["app::feature::".into()]).unwrap();
        let (main, rest) =
            (Module::from_buffer(&parts.main).unwrap(), Module::from_buffer(&parts.rest).unwrap());
        assert_eq!(
            names(&main),
            ["<app::feature::Type as Trait>::run", "app::run", "app::shared", "load_rest"]
        );
        let local: Vec<_> = rest.funcs.iter_local().map(|(id, _)| rest.funcs.get(id)).collect();
        assert_eq!(local.len(), 2);
        assert_eq!(
            names(&rest),
            ["<app::feature::Type as Trait>::run", "app::only", "app::shared"]
        );
        let imports: Vec<_> = rest.imports.iter().map(|import| import.name.as_str()).collect();
        assert_eq!(imports, ["a", TABLE]);
        for name in imports {
            assert!(main.exports.iter().any(|export| export.name == name), "{name}");
        }
        assert!(main.imports.find(LOAD.0, LOAD.1).is_some());
        assert!(rest.exports.iter().next().is_none());
    }

    #[test]
    fn a_name_without_a_function_is_an_error() {
        let modules = ["app::feature::".into(), "gone::".into()];
        let error = split(&program(), &modules).map(|_| ()).unwrap_err();
        assert_eq!(error.to_string(), "the program has no long function of gone::");
    }

    #[test]
    fn short_names_differ() {
        let names: BTreeSet<String> = (0..2000).map(short_name).collect();
        assert_eq!(names.len(), 2000);
        assert_eq!((short_name(25), short_name(26)), ("z".into(), "ba".into()));
    }
}
