//! Compares conversions of tiny models with the original converters, tensor by tensor.
//!
//! The cases are in `tests/fixtures/recipes`, or in the folder that `STATELENS_RECIPE_CASES` names;
//! `STATELENS_RECIPE_CASE` selects those whose path contains it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::original::{Case, Verdict};

#[test]
fn tensors_match_the_original() {
    let mut families: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let mut report = String::new();
    let mut total = 0;
    for case in Case::all() {
        let verdict = case.run();
        let counts = families.entry(case.family.clone()).or_default();
        match verdict {
            Verdict::Same => counts.0 += 1,
            Verdict::Nothing => continue,
            Verdict::Differs(why) => {
                counts.1 += 1;
                writeln!(report, "{}: {why}", case.name()).unwrap();
            }
        }
        total += 1;
    }
    let failed: usize = families.values().map(|(_, failed)| failed).sum();
    for (family, (same, differ)) in &families {
        println!("{family}: {same} the same, {differ} not");
    }
    println!("{} of {total} the same", total - failed);
    assert!(total > 0, "no cases were found");
    assert!(report.is_empty(), "{report}");
}

/// Models that the original converts, but which would not load: a missing key, and a feed-forward
/// whose size differs from the config.
const REALLY_WOULD_NOT: [&str; 2] =
    ["llama/missing_k.cs2.9-to-hf", "starcoder/mqa_bf16_n_inner_null.hf-to-cs2.9"];

#[test]
fn converted_cases_would_load() {
    let mut report = String::new();
    for case in Case::all() {
        let why = case.speaks_against_loading();
        if REALLY_WOULD_NOT.contains(&&*case.name()) {
            assert!(why.is_some(), "{}", case.name());
        } else if let Some(why) = why {
            writeln!(report, "{}: {why}", case.name()).unwrap();
        }
    }
    assert!(report.is_empty(), "{report}");
}
