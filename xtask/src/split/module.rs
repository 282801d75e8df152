//! What has to be known of a module to divide it.

use std::ops::Range;

use anyhow::{Context as _, Result, bail, ensure};
use wasmparser::{
    ConstExpr, ElementItems, ElementKind, ExternalKind, FunctionBody, GlobalType, MemoryType,
    Operator, Parser, Payload, RefType, TableType, TypeRef,
};

/// A module as it was read. Functions are numbered from the imported ones on.
pub(super) struct Module<'a> {
    bytes: &'a [u8],
    /// The sections, in their order: their numbers, and where their contents are.
    pub(super) sections: Vec<(u8, Range<usize>)>,
    /// How many parameters each type has; nothing for what is not a function's.
    parameters: Vec<Option<usize>>,
    /// The types of all functions.
    pub(super) functions: Vec<u32>,
    /// So many of them are imported.
    pub(super) imported: u32,
    pub(super) tables: Vec<TableType>,
    pub(super) memories: Vec<MemoryType>,
    pub(super) globals: Vec<GlobalType>,
    pub(super) exports: Vec<(&'a str, ExternalKind, u32)>,
    start: Option<u32>,
    /// Which function is at which place of the table.
    pub(super) slots: Vec<(u32, u32)>,
    /// Which table that is.
    pub(super) table: u32,
    bodies: Vec<FunctionBody<'a>>,
}

impl<'a> Module<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self> {
        let mut module = Self {
            bytes,
            sections: Vec::new(),
            parameters: Vec::new(),
            functions: Vec::new(),
            imported: 0,
            tables: Vec::new(),
            memories: Vec::new(),
            globals: Vec::new(),
            exports: Vec::new(),
            start: None,
            slots: Vec::new(),
            table: 0,
            bodies: Vec::new(),
        };
        for payload in Parser::new(0).parse_all(bytes) {
            module.take(payload?)?;
        }
        ensure!(
            module.functions.len() == module.imported as usize + module.bodies.len(),
            "there are functions without code"
        );
        Ok(module)
    }

    fn take(&mut self, payload: Payload<'a>) -> Result<()> {
        if let Some(section) = payload.as_section() {
            self.sections.push(section);
        }
        match payload {
            Payload::TypeSection(types) => {
                for group in types {
                    for of in group?.into_types() {
                        let function = match of.composite_type.inner {
                            wasmparser::CompositeInnerType::Func(function) => Some(function),
                            _ => None,
                        };
                        self.parameters.push(function.map(|of| of.params().len()));
                    }
                }
            }
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    match import?.ty {
                        TypeRef::Func(of) => {
                            self.functions.push(of);
                            self.imported += 1;
                        }
                        other => bail!("it imports something that is not a function: {other:?}"),
                    }
                }
            }
            Payload::FunctionSection(types) => {
                for of in types {
                    self.functions.push(of?);
                }
            }
            Payload::TableSection(tables) => {
                for table in tables {
                    self.tables.push(table?.ty);
                }
            }
            Payload::MemorySection(memories) => {
                for memory in memories {
                    self.memories.push(memory?);
                }
            }
            Payload::GlobalSection(globals) => {
                for global in globals {
                    self.globals.push(global?.ty);
                }
            }
            Payload::ExportSection(exports) => {
                for export in exports {
                    let export = export?;
                    self.exports.push((export.name, export.kind, export.index));
                }
            }
            Payload::StartSection { func, .. } => self.start = Some(func),
            Payload::ElementSection(elements) => {
                for element in elements {
                    let element = element?;
                    self.elements(&element.kind, element.items)?;
                }
            }
            Payload::CodeSectionEntry(body) => self.bodies.push(body),
            Payload::TagSection(_) => bail!("it has tags"),
            _ => {}
        }
        Ok(())
    }

    /// Notes which functions a segment puts where.
    fn elements(&mut self, kind: &ElementKind<'_>, items: ElementItems<'_>) -> Result<()> {
        let ElementKind::Active { table_index, offset_expr } = kind else {
            bail!("a table is filled as the program runs");
        };
        let ElementItems::Functions(functions) = items else {
            bail!("a table holds something that is not a function");
        };
        self.table = table_index.unwrap_or(0);
        for (at, function) in (constant(offset_expr)?..).zip(functions) {
            self.slots.push((at, function?));
        }
        let of = self.tables.get(self.table as usize).context("a table that is not there")?;
        ensure!(of.element_type == RefType::FUNCREF, "a table of something else than functions");
        Ok(())
    }

    pub(super) fn is_import(&self, function: u32) -> bool {
        function < self.imported
    }

    /// What is called from outside.
    pub(super) fn roots(&self) -> Vec<u32> {
        let exported = self.exports.iter().filter(|export| export.1 == ExternalKind::Func);
        exported.map(|export| export.2).chain(self.start).collect()
    }

    /// The code of a function that is not imported.
    pub(super) fn body(&self, function: u32) -> &'a [u8] {
        self.bodies[(function - self.imported) as usize].as_bytes()
    }

    /// How many parameters a function has.
    pub(super) fn parameters(&self, function: u32) -> Result<u32> {
        let of = self.functions[function as usize] as usize;
        let count = self.parameters.get(of).copied().flatten();
        Ok(u32::try_from(count.context("a function of a type that is none")?)?)
    }

    /// A type without parameters and results, or any other: what is only there to be numbered has it.
    pub(super) fn simplest(&self) -> u32 {
        let at = self.parameters.iter().position(|count| *count == Some(0));
        at.map_or(0, |at| at as u32)
    }

    /// The functions that a function calls by their numbers.
    pub(super) fn calls(&self, function: u32) -> Result<Vec<u32>> {
        let mut out = Vec::new();
        if !self.is_import(function) {
            self.code(function, |called, _| {
                out.extend(called);
                Ok(())
            })?;
        }
        Ok(out)
    }

    /// Goes through the code of a function: what is before the first instruction, then each instruction, with
    /// the function that it calls.
    pub(super) fn code(
        &self,
        function: u32,
        mut take: impl FnMut(Option<u32>, &'a [u8]) -> Result<()>,
    ) -> Result<()> {
        let body = &self.bodies[(function - self.imported) as usize];
        let mut operators = body.get_operators_reader()?;
        let mut from = operators.original_position();
        take(None, &self.bytes[body.range().start..from])?;
        while !operators.eof() {
            let called = match operators.read()? {
                Operator::Call { function_index } => Some(function_index),
                Operator::ReturnCall { .. }
                | Operator::RefFunc { .. }
                | Operator::MemoryInit { .. }
                | Operator::DataDrop { .. }
                | Operator::TableInit { .. }
                | Operator::ElemDrop { .. } => bail!("an instruction that can't be divided"),
                _ => None,
            };
            let to = operators.original_position();
            take(called, &self.bytes[from..to])?;
            from = to;
        }
        Ok(())
    }

    /// The contents of a section.
    pub(super) fn section(&self, range: &Range<usize>) -> &'a [u8] {
        &self.bytes[range.clone()]
    }
}

/// A number that is written into the module.
fn constant(expression: &ConstExpr<'_>) -> Result<u32> {
    match expression.get_operators_reader().read()? {
        Operator::I32Const { value } => Ok(u32::try_from(value)?),
        other => bail!("a place that is not written into the module: {other:?}"),
    }
}
