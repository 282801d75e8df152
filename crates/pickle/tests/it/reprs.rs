//! Compares pickles of every protocol with CPython's own `repr` (`reprs.tsv`, written by `reprs.py`
//! with CPython 3.11).

use std::collections::BTreeSet;

use statelens_checkpoint::{Grade, Limits, Text};
use statelens_pickle::{Pickle, ScanOptions, read};

fn unhex(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().as_chunks::<2>().0.iter();
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn rows() -> Vec<(u8, Vec<u8>, Vec<u8>)> {
    include_str!("reprs.tsv")
        .lines()
        .map(|line| {
            let mut columns = line.split('\t');
            let mut next = || columns.next().unwrap();
            (next().parse().unwrap(), unhex(next()), unhex(next()))
        })
        .collect()
}

fn parse(bytes: &[u8]) -> Pickle {
    read(bytes, 0, &Limits::default()).unwrap_or_else(|broken| panic!("{}", broken.error))
}

#[test]
fn prints_values_as_python_does() {
    let rows = rows();
    assert!(rows.len() > 500);
    let mut failures = Vec::new();
    for (protocol, bytes, expected) in &rows {
        let expected = Text::from_surrogatepass(expected).unwrap().to_lossy().into_owned();
        let pickle = parse(bytes);
        assert_eq!(pickle.end(), bytes.len() as u64);
        match pickle.repr(pickle.root()) {
            Some(repr) if repr == expected => {}
            // Too long to be displayed.
            None if expected.len() > 4096 => {}
            found => failures.push(format!("protocol {protocol}: {found:?}, not {expected}")),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn truncated_pickles_are_reported_as_truncated() {
    for (_, bytes, _) in rows().iter().filter(|(_, bytes, _)| bytes.len() < 500) {
        for end in 0..bytes.len() {
            let broken = read(&bytes[..end], 0, &Limits::default()).unwrap_err();
            assert!(broken.starved, "{}", broken.error);
            assert!(broken.error.offset().is_some_and(|offset| offset <= end as u64));
        }
    }
}

#[test]
fn plain_values_of_python_are_not_dangerous() {
    let mut unknown = BTreeSet::new();
    for (protocol, bytes, expected) in rows() {
        for finding in parse(&bytes).scan(&ScanOptions::default()) {
            let described =
                format!("{protocol} {}: {finding:?}", String::from_utf8_lossy(&expected));
            assert_eq!(finding.grade, Grade::UnknownCode, "{described}");
            unknown.extend(finding.call.map(|call| format!("{}.{}", call.module, call.name)));
        }
    }
    // A function that is called later.
    assert_eq!(unknown, ["functools.partial".to_owned()].into());
}
