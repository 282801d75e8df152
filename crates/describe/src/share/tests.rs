//! Packing and links, with lists like those of real models, and with damaged and hostile fragments.

use statelens_values::SummaryStatistics;

use super::link::{KeysAs, LinkOptions, LinkParts, MAX_CHARACTERS, link, open_link};
use super::pack::{Precision, pack, unpack};
use super::{LeafSummary, Outline, lines, structure_fingerprint};
use crate::LeafKind;
use crate::info::FormatName;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use statelens_checkpoint::varint::write_number;
use statelens_checkpoint::{ErrorKind, Finding, Grade};

fn tensor(key: &str, dtype: &str, shape: &[u64]) -> LeafSummary {
    let params = shape.iter().product::<u64>();
    let width = if dtype == "float32" { 4 } else { 2 };
    LeafSummary {
        key: key.into(),
        kind: LeafKind::Tensor,
        dtype: dtype.into(),
        shape: shape.to_vec(),
        params,
        bytes: params * width,
        ..LeafSummary::default()
    }
}

fn value(key: &str, kind: LeafKind, text: &str) -> LeafSummary {
    LeafSummary { key: key.into(), kind, value: text.into(), ..LeafSummary::default() }
}

/// The training state of a Llama-like model: names as in Hugging Face, Adam state by number.
fn llama(layers: u64) -> Outline {
    let mut entries = vec![tensor("model.embed_tokens.weight", "bfloat16", &[32_000, 8_192])];
    for layer in 0..layers {
        for (name, shape) in [
            ("self_attn.q_proj", &[8_192, 8_192][..]),
            ("self_attn.k_proj", &[1_024, 8_192]),
            ("self_attn.v_proj", &[1_024, 8_192]),
            ("self_attn.o_proj", &[8_192, 8_192]),
            ("mlp.gate_proj", &[28_672, 8_192]),
            ("mlp.up_proj", &[28_672, 8_192]),
            ("mlp.down_proj", &[8_192, 28_672]),
            ("input_layernorm", &[8_192]),
            ("post_attention_layernorm", &[8_192]),
        ] {
            entries.push(tensor(&format!("model.layers.{layer}.{name}.weight"), "bfloat16", shape));
        }
    }
    entries.push(tensor("model.norm.weight", "bfloat16", &[8_192]));
    let weights = entries.clone();
    for (at, weight) in weights.iter().enumerate() {
        let state = format!("optimizer.state.{at}");
        entries.push(value(&format!("{state}.step"), LeafKind::Int, "1000"));
        for name in ["exp_avg", "exp_avg_sq"] {
            entries.push(tensor(&format!("{state}.{name}"), "float32", &weight.shape));
        }
    }
    for at in 0..weights.len() {
        let key = format!("optimizer.param_groups.0.params.{at}");
        entries.push(value(&key, LeafKind::Int, &at.to_string()));
    }
    entries.push(LeafSummary {
        link: Some("model.embed_tokens.weight".into()),
        ..tensor("lm_head.weight", "bfloat16", &[32_000, 8_192])
    });
    Outline {
        name: "checkpoint_1000.mdl".into(),
        format: FormatName {
            name: "cerebras-h5".into(),
            title: "Cerebras HDF5".into(),
            version: "0.5".into(),
            producer: "cerebras-pytorch 2.10.0".into(),
        },
        slash_keys: false,
        size: 1 << 40,
        entries,
        findings: vec![Finding::new(Grade::Warning, "odd").place("model.norm.weight")],
        content: None,
        parameters: None,
    }
}

const ALL: LinkOptions =
    LinkOptions { keys: KeysAs::Plain, values: true, findings: true, statistics: true };

#[test]
fn links_of_large_models_are_short_and_lossless() {
    for (layers, most) in [(12, 2_000), (80, 8_000)] {
        let outline = llama(layers);
        let made = link(&outline, &ALL).unwrap();
        assert!(made.len() < most, "{layers} layers take {} characters", made.len());
        assert_eq!(made, link(&outline, &ALL).unwrap());
        assert_eq!(open_link(&made).unwrap(), outline);
        let parts = LinkParts::measure(&outline, &ALL);
        let all = parts.head + parts.keys + parts.findings + parts.values;
        assert_eq!((all + 1, parts.statistics), (made.len(), 0));
        assert!(made.starts_with("#s=1."));
    }
}

/// The model alone, as a safetensors file.
fn weights_of(mut outline: Outline) -> Outline {
    outline.entries.retain(|entry| !entry.key.starts_with("optimizer."));
    Outline {
        name: "model.safetensors".into(),
        format: FormatName {
            name: "safetensors".into(),
            title: "safetensors".into(),
            ..FormatName::default()
        },
        slash_keys: false,
        entries: outline.entries,
        size: outline.size,
        ..Outline::default()
    }
}

/// A model of 58 layers with 256 experts each, three tensors per expert, and a few dense ones.
fn experts() -> Outline {
    let mut entries = vec![tensor("model.embed_tokens.weight", "bfloat16", &[129_280, 7_168])];
    for layer in 3..61 {
        for expert in 0..256 {
            for (name, shape) in
                [("gate", &[2_048, 7_168]), ("up", &[2_048, 7_168]), ("down", &[7_168, 2_048])]
            {
                let key = format!("model.layers.{layer}.mlp.experts.{expert}.{name}_proj.weight");
                entries.push(tensor(&key, "float8_e4m3fn", shape));
            }
        }
        let key = format!("model.layers.{layer}.mlp.gate.weight");
        entries.push(tensor(&key, "bfloat16", &[256, 7_168]));
    }
    Outline { entries, findings: Vec::new(), ..llama(0) }
}

#[test]
fn links_stay_within_the_documented_length() {
    for (outline, keys, most) in [
        (weights_of(llama(12)), 111, 320),
        (weights_of(llama(80)), 723, 460),
        (llama(80), 723 * 5 - 4, 730),
        (experts(), 44_603, 2_000),
    ] {
        let made = link(&outline, &LinkOptions::default()).unwrap();
        println!("{keys} keys: {} characters", made.len());
        assert_eq!(outline.entries.len(), keys);
        assert!(made.len() <= most, "{keys} keys: {} characters", made.len());
        assert_eq!(open_link(&made).unwrap().entries.len(), keys);
    }
}

/// Adds statistics like those of weights to all tensors.
fn measured(mut outline: Outline) -> Outline {
    let mut state = 1u64;
    for entry in outline.entries.iter_mut().filter(|entry| entry.is_tensor()) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let std = 0.02 * (1.0 + (state >> 40) as f64 / (1u64 << 24) as f64);
        entry.statistics = Some(SummaryStatistics {
            count: entry.params,
            nan: 0,
            infinite: 0,
            zeros: 0,
            min: Some(-5.1 * std),
            max: Some(5.3 * std),
            mean: Some(std * 1e-3),
            std: Some(std),
        });
    }
    outline
}

#[test]
fn rounded_statistics_fit_into_links() {
    // As many tensors as a model of 80 layers has; the state of Adam would triple that.
    let mut model = measured(llama(80));
    model.entries.retain(|entry| !entry.key.starts_with("optimizer."));
    let made = link(&model, &ALL).unwrap();
    assert!(made.starts_with("#s=1.") && made.len() < 8_000, "{} characters", made.len());
    let opened = open_link(&made).unwrap();
    for (entry, found) in model.entries.iter().zip(&opened.entries) {
        let (of, found) = (entry.statistics.unwrap(), found.statistics.unwrap());
        assert_eq!((of.count, of.nan, of.zeros), (found.count, found.nan, found.zeros));
        for (exact, folded) in
            [(of.min, found.min), (of.max, found.max), (of.mean, found.mean), (of.std, found.std)]
        {
            let (exact, folded) = (exact.unwrap(), folded.unwrap());
            assert!((folded / exact - 1.0).abs() < 0.004, "{exact} is written as {folded}");
        }
    }
    // An opened link can be shared again unchanged; statistics are left out if not requested.
    assert_eq!(link(&opened, &ALL).unwrap(), made);
    let without = link(&model, &LinkOptions { statistics: false, ..ALL }).unwrap();
    assert!(without.starts_with("#s=1.") && without.len() < 1_000);
    let parts = LinkParts::measure(&model, &ALL);
    assert_eq!(
        parts.head + parts.keys + parts.statistics + parts.findings + parts.values + 1,
        made.len()
    );
    let error = link(&measured(llama(160)), &ALL).unwrap_err();
    assert!(error.kind() == ErrorKind::Limit && error.to_string().contains("characters"));
    // Layers have the minimum and maximum.
    let line = lines(&model).into_iter().find(|line| line.entry.key.ends_with("q_proj.weight"));
    let (least, most) = line.unwrap().std.unwrap();
    let all = model.entries.iter().filter(|entry| entry.key.ends_with("q_proj.weight"));
    let all: Vec<f64> = all.map(|entry| entry.statistics.unwrap().std.unwrap()).collect();
    assert_eq!(all.len(), 80);
    assert!(all.iter().all(|std| (least..=most).contains(std)) && all.contains(&least));
}

#[test]
fn round_trips_unusual_statistics() {
    let mut outline = measured(llama(2));
    for (at, of) in [
        SummaryStatistics { count: 3, nan: 3, ..SummaryStatistics::default() },
        SummaryStatistics {
            count: u64::MAX,
            nan: 1,
            infinite: 2,
            zeros: 3,
            min: Some(-1e300),
            max: Some(1e300),
            mean: Some(-0.0),
            std: Some(1e-300),
        },
    ]
    .into_iter()
    .enumerate()
    {
        outline.entries[at].statistics = Some(of);
    }
    let whole = pack(&outline, Precision::Rounded);
    let opened = unpack(&whole).unwrap();
    assert_eq!(pack(&opened, Precision::Rounded), whole);
    let found = opened.entries[1].statistics.unwrap();
    assert_eq!((found.count, found.infinite, found.zeros), (u64::MAX, 2, 3));
    let min = found.min.unwrap();
    assert!(min.is_finite() && min < -3e38 && found.std == Some(0.0));
    assert_eq!(opened.entries[0].statistics, outline.entries[0].statistics);
    for end in 0..whole.len() {
        assert!(unpack(&whole[..end]).is_err(), "cut at {end}");
    }
    for at in 0..whole.len() {
        for other in [0, 1, 0x7f, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] = other;
            // The result may be different or refused, but must not panic.
            let _ = unpack(&bytes);
        }
    }
}

#[test]
fn folds_layers_into_one_line() {
    let outline = llama(32);
    let lines = lines(&outline);
    let line = lines.iter().find(|line| line.entry.key.ends_with("q_proj.weight")).unwrap();
    assert_eq!(line.entry.key, "model.layers.0\u{2013}31.self_attn.q_proj.weight");
    assert_eq!(line.times, 32);
    assert_eq!(lines.iter().map(|line| line.times).sum::<u64>(), outline.entries.len() as u64);
    assert!(lines.len() < 60, "{}", lines.len());
}

#[test]
fn round_trips_experts_and_unusual_names() {
    let mut entries = Vec::new();
    for layer in 3..9 {
        for expert in 0..16 {
            for name in ["w1", "w2", "w3"] {
                let key = format!("layers.{layer}.experts.{expert}.{name}");
                entries.push(tensor(&key, "bfloat16", &[64, 32]));
            }
        }
        entries.push(tensor(&format!("layers.{layer}.gate"), "float32", &[]));
    }
    // Descending, with leading zeros, with too many digits, non-ASCII, empty.
    entries.extend((0..9).rev().map(|at| value(&format!("down.{at}"), LeafKind::Int, "-5")));
    entries.extend((0..9).map(|at| tensor(&format!("block_{at:03}.ä\u{fffd}"), "float32", &[1])));
    entries.push(value("99999999999999999999.0", LeafKind::Int, "123456789012345678901234567890"));
    entries.push(value("", LeafKind::Str, "'x 12 y'"));
    entries.push(LeafSummary { params: 7, bytes: 9, ..tensor("blocks", "Q4_0", &[2, 32]) });
    entries.push(LeafSummary {
        kind: LeafKind::Sparse,
        params: 3,
        bytes: 20,
        ..tensor("s", "float32", &[9])
    });
    let outline = Outline { entries, ..Outline::default() };
    assert_eq!(unpack(&pack(&outline, Precision::Whole)).unwrap(), outline);
    let folded = lines(&outline);
    assert_eq!(folded[0].entry.key, "layers.3\u{2013}8.experts.0\u{2013}15.w1");
    assert_eq!(folded[0].times, 96);
    for key in ["down.0\u{2013}8", "block_000\u{2013}008.ä\u{fffd}"] {
        assert!(folded.iter().any(|line| line.entry.key == key), "{key}");
    }
}

#[test]
fn coded_and_hidden_keys_reveal_no_names() {
    let outline = llama(4);
    for keys in [KeysAs::Coded, KeysAs::Hidden] {
        let opened = open_link(&link(&outline, &LinkOptions { keys, ..ALL }).unwrap()).unwrap();
        assert_eq!(opened.entries.len(), outline.entries.len());
        let packed = String::from_utf8_lossy(&pack(&opened, Precision::Whole)).into_owned();
        for name in ["layers", "weight", "optimizer", "exp_avg", "norm", "step"] {
            assert!(!packed.contains(name), "{keys:?} tells {name}");
        }
        assert!(opened.findings.is_empty());
        assert!(opened.entries.iter().all(|entry| entry.value.is_empty()));
        assert_eq!(opened.entries[1].shape, outline.entries[1].shape);
    }
    let coded = open_link(&link(&outline, &LinkOptions { keys: KeysAs::Coded, ..ALL }).unwrap());
    let coded = coded.unwrap().entries;
    let parts = |at: usize| coded[at].key.split('.').map(str::to_owned).collect::<Vec<_>>();
    // `model.layers.0.….weight` and `model.layers.1.….weight`.
    assert_eq!((&parts(1)[0], &parts(1)[5]), (&parts(10)[0], &parts(10)[5]));
    assert_eq!((parts(1)[2].as_str(), parts(10)[2].as_str()), ("0", "1"));
    assert_eq!(coded.last().unwrap().link.as_deref(), Some(coded[0].key.as_str()));
    let mut all: Vec<String> = coded.iter().map(|entry| entry.key.clone()).collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), outline.entries.len());
}

#[test]
fn groups_names_with_slashes() {
    let names = ["dense/kernel", "dense/bias", "out.1/kernel", "global_step"];
    let entries: Vec<LeafSummary> =
        names.iter().map(|name| tensor(name, "float32", &[2])).collect();
    let outline = Outline { slash_keys: true, entries, ..llama(0) };
    let states = |outline: &Outline| -> Vec<(String, u64)> {
        outline.totals().by_state.into_iter().map(|(name, state)| (name, state.leaves)).collect()
    };
    let row = |name: &str, leaves| (name.to_owned(), leaves);
    assert_eq!(states(&outline), [row("dense", 2), row("out.1", 1), row("global_step", 1)]);
    let options = LinkOptions { keys: KeysAs::Coded, ..ALL };
    let coded = open_link(&link(&outline, &options).unwrap()).unwrap();
    let counts: Vec<u64> = states(&coded).into_iter().map(|(_, leaves)| leaves).collect();
    assert_eq!(counts, [2, 1, 1]);
    assert!(coded.entries[2].key.contains(".1/"), "{}", coded.entries[2].key);
    // In other formats, only dots separate names.
    let torch = Outline { slash_keys: false, ..outline };
    assert_eq!(states(&torch).len(), 4);
}

#[test]
fn link_keeps_the_structure_fingerprint() {
    let outline = llama(3);
    let opened = open_link(&link(&outline, &LinkOptions::default()).unwrap()).unwrap();
    let print = structure_fingerprint(&outline.entries);
    assert_eq!(structure_fingerprint(&opened.entries), print);
}

#[test]
fn refuses_links_beyond_the_limit() {
    let names = (0..9_000u64).map(|at| {
        // Names that neither fold nor repeat.
        let odd = at.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        tensor(&format!("x{odd:x}"), "float32", &[odd >> 40])
    });
    let outline = Outline { entries: names.collect(), ..Outline::default() };
    let error = link(&outline, &ALL).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Limit);
    assert!(error.to_string().contains("characters"), "{error}");
    let long = format!("#s=1.{}", "A".repeat(MAX_CHARACTERS));
    assert_eq!(open_link(&long).unwrap_err().kind(), ErrorKind::Limit);
}

#[test]
fn damaged_links_are_refused() {
    let made = link(&llama(12), &ALL).unwrap();
    for end in 0..made.len() {
        assert!(open_link(&made[..end]).is_err(), "cut at {end}");
    }
    let mut changed = 0;
    for at in 5..made.len() {
        let other = if made.as_bytes()[at] == b'A' { "B" } else { "A" };
        let text = format!("{}{other}{}", &made[..at], &made[at + 1..]);
        // A changed letter may just change a name; nothing panics, and most changes are detected.
        changed += usize::from(open_link(&text).is_err());
    }
    assert!(changed > made.len() / 2, "{changed} of {}", made.len());
    for text in ["", "#", "#x", "#s=1.", "#s=1.!!", "#s=1.AAAA"] {
        assert_eq!(open_link(text).unwrap_err().kind(), ErrorKind::Damaged, "{text}");
    }
    let newer = open_link("#s=2.AAAA").unwrap_err();
    assert_eq!(newer.kind(), ErrorKind::Unsupported);
}

#[test]
fn corrupted_bytes_never_yield_the_same_content() {
    let whole = pack(&llama(12), Precision::Whole);
    let mut state = 1u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % below
    };
    let (mut opened, mut refused) = (0, 0);
    for _ in 0..4_000 {
        let mut bytes = whole.clone();
        for _ in 0..=next(3) {
            let at = next(bytes.len());
            match next(3) {
                0 => bytes[at] = next(256) as u8,
                1 => drop(bytes.drain(at..(at + 1 + next(8)).min(whole.len() / 2).max(at))),
                _ => bytes.insert(at, [0, 1, 0x7f, 0x80, 0xff][next(5)]),
            }
        }
        match unpack(&bytes) {
            // Whatever it is, it must survive another round trip.
            Ok(outline) => {
                assert_eq!(unpack(&pack(&outline, Precision::Whole)).unwrap(), outline);
                opened += 1;
            }
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::Damaged | ErrorKind::Limit), "{error}");
                refused += 1;
            }
        }
    }
    assert!(opened > 100 && refused > 1_000, "{opened} opened, {refused} refused");
}

/// A packed outline of one pattern with the given key, followed by these numbers.
fn crafted(key: &[u8], numbers: &[u64]) -> Vec<u8> {
    let mut out = vec![0; 5];
    write_number(&mut out, 0);
    write_number(&mut out, 0);
    write_number(&mut out, 1);
    // The kind `int`.
    out.push(3);
    out.extend_from_slice(key);
    out.push(0xfe);
    numbers.iter().for_each(|number| write_number(&mut out, *number));
    // No findings; no statistics, with four bytes per float.
    out.extend([0, 0, 4]);
    out
}

#[test]
fn refuses_hostile_columns() {
    let leaves = |key: &[u8], numbers: &[u64]| unpack(&crafted(key, numbers));
    assert_eq!(leaves(b"k", &[3, 0, 0, 0]).unwrap().entries.len(), 3);
    let counted = leaves(b"k\xff", &[3, 0, 0, 0, 2, 2, 1]).unwrap().entries;
    assert_eq!(counted.iter().map(|one| &*one.key).collect::<Vec<_>>(), ["k1", "k2", "k1"]);
    // A pattern that does not exist, too many leaves, a number below 0, and one beyond 64 bits.
    let most = u64::MAX;
    for numbers in
        [&[1, 1][..], &[most], &[3, 0], &[1, 0, 1], &[2, 0, 0, most - 1, most - 1, most - 1]]
    {
        let error = leaves(b"k\xff", numbers).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged, "{numbers:?}");
    }
    // 200,001 leaves, and fewer leaves with a long key.
    let many = [&[200_001][..], &[0; 200_001]].concat();
    assert_eq!(leaves(b"k", &many).unwrap_err().kind(), ErrorKind::Limit);
    let long = [b'k'; 400_000];
    assert_eq!(
        leaves(&long, &[&[100][..], &[0; 100]].concat()).unwrap_err().kind(),
        ErrorKind::Limit
    );
    // As many holes as leaves: the bytes end before the numbers do.
    let holes = [0xff; 100_000];
    let numbers = [&[100_000][..], &[0; 100_000]].concat();
    assert!(leaves(&holes, &numbers).is_err());
}

#[test]
fn refuses_decompression_bombs() {
    let bomb = miniz_oxide::deflate::compress_to_vec(&vec![0; 8 << 20], 9);
    let text = format!("#s=1.{}", URL_SAFE_NO_PAD.encode(&bomb));
    assert!(text.len() < MAX_CHARACTERS);
    assert_eq!(open_link(&text).unwrap_err().kind(), ErrorKind::Damaged);
}

#[test]
fn round_trips_keys_without_a_pattern() {
    let entries: Vec<LeafSummary> = (0..40_000u64)
        .map(|at| tensor(&format!("a.{}.b", at * at % 977), "float32", &[at % 3 + 1]))
        .collect();
    let outline = Outline { entries, ..Outline::default() };
    assert_eq!(unpack(&pack(&outline, Precision::Whole)).unwrap(), outline);
}

#[test]
fn opens_links_that_expand_considerably() {
    let mut outline = llama(1);
    let name =
        |at: u64| format!("a.block.of.many.{:x}", at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48);
    outline.entries = (0..2_000).map(|at| tensor(&name(at), "float32", &[4])).collect();
    assert!(pack(&outline, Precision::Whole).len() > 16 << 10);
    let again = open_link(&link(&outline, &LinkOptions::default()).unwrap()).unwrap();
    assert_eq!(again.entries, outline.entries);
}
