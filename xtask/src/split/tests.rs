use std::collections::{BTreeMap, BTreeSet};

use wasmparser::{ExternalKind, Operator, Parser, Payload, TypeRef};

use super::*;

/// Types: nothing to nothing, and number to number.
const TYPES: &[u8] = &[2, 0x60, 0, 0, 0x60, 1, 0x7f, 1, 0x7f];
/// One function, `host.call`.
const IMPORTS: &[u8] = b"\x01\x04host\x04call\x00\x00";
/// A table of three.
const TABLE: &[u8] = &[1, 0x70, 1, 3, 3];
const MEMORY: &[u8] = &[1, 0, 1];
/// A number that changes, 7 to begin with.
const GLOBALS: &[u8] = &[1, 0x7f, 1, 0x41, 7, 0x0b];
const EXPORTS: &[u8] = b"\x02\x06memory\x02\x00\x03run\x00\x01";
/// From place 1 on: functions 5 and 6.
const ELEMENTS: &[u8] = &[1, 0, 0x41, 1, 0x0b, 2, 5, 6];
const DATA: &[u8] = &[1, 0, 0x41, 0, 0x0b, 1, 42];

/// What the functions of [`module`] are called; `door` is one, and `late` is in the table and large.
const NAMES: &str = "0:call\n1:run\n2:statelens_web::worker::later::answer\n3:helper\n4:shared\n\
                     5:<statelens_convert::Run as statelens_tensor::Machine>::step\n6:other\n";

/// `run` calls the door and `shared`; the door calls `helper`, `shared` and the host; `late` calls `helper`.
fn module() -> Vec<u8> {
    let mut late = vec![0x01; 260];
    late.extend([0x20, 0, 0x10, 3, 0x23, 0, 0x6a]);
    let bodies: [&[u8]; 6] = [
        &[0x20, 0, 0x10, 2, 0x10, 4],
        &[0x10, 0, 0x20, 0, 0x10, 3, 0x10, 4],
        &[0x20, 0],
        &[0x20, 0],
        &late,
        &[0x20, 0],
    ];
    let mut out = b"\0asm\x01\0\0\0".to_vec();
    let mut section = |id: u8, contents: &[u8]| {
        out.extend([id, u8::try_from(contents.len() & 0x7f).unwrap() | 0x80]);
        out.push(u8::try_from(contents.len() >> 7).unwrap());
        out.extend(contents);
    };
    section(1, TYPES);
    section(2, IMPORTS);
    section(3, &[6, 1, 1, 1, 1, 1, 1]);
    section(4, TABLE);
    section(5, MEMORY);
    section(6, GLOBALS);
    section(7, EXPORTS);
    section(9, ELEMENTS);
    let mut code = vec![6];
    for body in bodies {
        let length = body.len() + 2;
        code.extend([u8::try_from(length & 0x7f).unwrap() | 0x80, (length >> 7) as u8, 0]);
        code.extend(body);
        code.push(0x0b);
    }
    section(10, &code);
    section(11, DATA);
    out
}

fn parts() -> SplitModule {
    split(&module(), &FunctionNames::parse(NAMES).unwrap()).unwrap()
}

/// The functions of a module: what each calls, and whether it is empty.
fn calls(bytes: &[u8]) -> Vec<Vec<String>> {
    let mut out = Vec::new();
    for payload in Parser::new(0).parse_all(bytes) {
        if let Payload::CodeSectionEntry(body) = payload.unwrap() {
            let operators = body.get_operators_reader().unwrap().into_iter();
            let told = operators.filter_map(|operator| match operator.unwrap() {
                Operator::Call { function_index } => Some(function_index.to_string()),
                Operator::CallIndirect { type_index, table_index } => {
                    Some(format!("type {type_index} of table {table_index}"))
                }
                Operator::I32Const { value } => Some(format!("place {value}")),
                Operator::Unreachable => Some("never".into()),
                _ => None,
            });
            out.push(told.collect());
        }
    }
    out
}

/// What a module exports: kinds and numbers by their names.
fn exports(bytes: &[u8]) -> BTreeMap<String, (ExternalKind, u32)> {
    let mut out = BTreeMap::new();
    for payload in Parser::new(0).parse_all(bytes) {
        if let Payload::ExportSection(exports) = payload.unwrap() {
            for export in exports {
                let export = export.unwrap();
                assert!(out.insert(export.name.into(), (export.kind, export.index)).is_none());
            }
        }
    }
    out
}

/// What a module imports, in its order.
fn imports(bytes: &[u8]) -> Vec<(String, TypeRef)> {
    let mut out = Vec::new();
    for payload in Parser::new(0).parse_all(bytes) {
        if let Payload::ImportSection(imports) = payload.unwrap() {
            for import in imports.into_imports() {
                let import = import.unwrap();
                assert_eq!(import.module, "first");
                out.push((import.name.to_owned(), import.ty));
            }
        }
    }
    out
}

#[test]
fn the_first_part_has_all_but_what_comes_later_and_a_door_to_it() {
    let first = parts().first;
    let found = calls(&first);
    let none: [String; 0] = [];
    assert_eq!(found[0], ["2", "4"], "run, as it was");
    assert_eq!(found[1], ["place 3", "type 1 of table 0"], "the door leads behind the table");
    assert_eq!(found[2], ["never"], "only the second part calls it");
    assert_eq!(found[3], none, "shared stays");
    assert_eq!(found[4], ["never"], "in the table, and of no use before");
    assert_eq!(found[5], none, "in the table: who knows when it is called");
}

#[test]
fn the_second_part_finds_in_the_first_what_it_imports_and_fills_the_table() {
    let parts = parts();
    let there = exports(&parts.first);
    let taken = imports(&parts.later);
    let functions: Vec<u32> = taken
        .iter()
        .filter(|(_, of)| matches!(of, TypeRef::Func(_)))
        .map(|(name, _)| there[name].1)
        .collect();
    assert_eq!(functions.iter().copied().collect::<BTreeSet<_>>(), [0, 4].into(), "the host, too");
    assert!(taken.iter().all(|(name, _)| there.contains_key(name)), "{taken:?} of {there:?}");
    assert_eq!(taken.len(), 5, "with table, memory and global");
    let [door, helper, late] = calls(&parts.later).try_into().unwrap();
    let number = |of: u32| functions.iter().position(|at| *at == of).unwrap().to_string();
    assert_eq!(
        door,
        [number(0), "3".into(), number(4)],
        "functions follow the two that it imports"
    );
    assert_eq!((helper, late), (vec![], vec!["3".to_owned()]));
    let filled: Vec<(i32, Vec<u32>)> = Parser::new(0)
        .parse_all(&parts.later)
        .filter_map(|payload| match payload.unwrap() {
            Payload::ElementSection(elements) => Some(elements),
            _ => None,
        })
        .flatten()
        .map(|element| {
            let element = element.unwrap();
            let wasmparser::ElementKind::Active { offset_expr, .. } = element.kind else {
                panic!("passive")
            };
            let Operator::I32Const { value } = offset_expr.get_operators_reader().read().unwrap()
            else {
                panic!("not a number")
            };
            let wasmparser::ElementItems::Functions(functions) = element.items else {
                panic!("expressions")
            };
            (value, functions.into_iter().map(Result::unwrap).collect())
        })
        .collect();
    assert_eq!(filled, [(1, vec![4]), (3, vec![2])]);
}

#[test]
fn parts_of_different_builds_do_not_fit() {
    let stamp = |parts: &SplitModule| {
        let (name, _) = imports(&parts.later)
            .into_iter()
            .find(|(_, of)| matches!(of, TypeRef::Memory(_)))
            .unwrap();
        name
    };
    let other =
        module().iter().map(|byte| if *byte == 42 { 43 } else { *byte }).collect::<Vec<_>>();
    let other = split(&other, &FunctionNames::parse(NAMES).unwrap()).unwrap();
    let one = parts();
    assert!(exports(&one.first).contains_key(&stamp(&one)));
    assert!(!exports(&other.first).contains_key(&stamp(&one)));
}

#[test]
fn names_that_lead_nowhere_are_an_error() {
    let names = FunctionNames::parse("0:a\n1:b\n").unwrap();
    assert!(split(&module(), &names).is_err());
}

#[test]
fn sums_of_vectors_are_counted_and_nothing_else() {
    // Two constants, one of them with the bytes of a sum in it; their sum, and their product with a third; a load.
    let constant = |bytes: [u8; 16]| [&[0xfd, 0x0c][..], &bytes].concat();
    let mut sum = [0; 16];
    sum[..3].copy_from_slice(&[0xfd, 0xf0, 0x01]);
    let body = [
        constant(sum),
        constant([0; 16]),
        vec![0xfd, 0xf0, 0x01],
        constant([0; 16]),
        vec![0xfd, 0xf2, 0x01, 0x1a],
        vec![0x41, 0, 0xfd, 0x00, 4, 0, 0x1a],
    ]
    .concat();
    let mut out = b"\0asm\x01\0\0\0".to_vec();
    let mut section = |id: u8, contents: &[u8]| {
        out.extend([id, u8::try_from(contents.len()).unwrap()]);
        out.extend(contents);
    };
    section(1, &[1, 0x60, 0, 0]);
    section(3, &[1, 0]);
    section(5, MEMORY);
    let length = u8::try_from(body.len() + 2).unwrap();
    section(10, &[&[1, length, 0][..], &body, &[0x0b]].concat());
    assert_eq!(vector_sums(&out).unwrap(), 2);
    assert_eq!(vector_sums(&module()).unwrap(), 0);
}
