//! Faults in scales and codes.

use super::*;

/// Returns the faults of a fixture in which elements of a tensor are other bytes.
fn faults(name: &str, key: &str, changes: &[(usize, &[u8])]) -> Vec<ScaleFault> {
    let mut files = files(name);
    let bytes = &mut files[0].1;
    let len = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + len]).unwrap();
    let start = 8 + len + header[key]["data_offsets"][0].as_u64().unwrap() as usize;
    for (index, new) in changes {
        let at = start + index * new.len();
        bytes[at..at + new.len()].copy_from_slice(new);
    }
    scale_faults(&open(files), &|_| true, &mut Unwatched).unwrap()
}

#[test]
fn sound_weights_have_no_faults() {
    for name in names() {
        let found = scale_faults(&open(files(&name)), &|_| true, &mut Unwatched).unwrap();
        assert_eq!(found, [], "{name}");
    }
}

#[test]
fn finds_scales_that_are_not_numbers() {
    let counts = |faults: Vec<ScaleFault>| {
        let [fault] = &faults[..] else { panic!("{faults:?}") };
        assert!(fault.scales > 0 && fault.others.is_empty(), "{fault:?}");
        (fault.key.clone(), fault.nan, fault.inf, fault.zero)
    };
    // float16: NaN, infinity, negative zero.
    let bad: &[(usize, &[u8])] = &[(0, &[0x00, 0x7e]), (3, &[0x00, 0xfc]), (5, &[0x00, 0x80])];
    assert_eq!(counts(faults("gptq_4bit", "l.scales", bad)), ("l.weight".into(), 1, 1, 1));
    assert_eq!(counts(faults("awq_gemm", "l.scales", bad)), ("l.weight".into(), 1, 1, 1));
    // An exponent of 255 is NaN.
    let found =
        faults("mxfp4_moe", &first_ending("mxfp4_moe", "gate_up_proj_scales"), &[(2, &[255])]);
    assert_eq!((found[0].nan, found[0].inf), (1, 0));
    assert!(found[0].text().starts_with("of ") && found[0].text().ends_with("1 is NaN"));
}

/// Returns the first key of a fixture that ends like this.
fn first_ending(name: &str, end: &str) -> String {
    let stored = open(files(name));
    let leaves = stored.leaves();
    let leaf = leaves.iter().find(|leaf| leaf.flat.to_string().ends_with(end));
    leaf.unwrap_or_else(|| panic!("no {end}")).flat.to_string()
}

#[test]
fn finds_groups_out_of_range_and_missing_parts() {
    let found = faults("gptq_4bit_actorder", "l.g_idx", &[(7, &99i32.to_le_bytes())]);
    let [fault] = &found[..] else { panic!("{found:?}") };
    assert!(
        fault.others[0].contains("1 codes are in a group") && fault.others[0].contains("99 at 7")
    );
    let mut cut = files("awq_gemm");
    cut[0].1 = without(&cut[0].1, |header| header.retain(|key, _| !key.ends_with(".scales")));
    let found = scale_faults(&open(cut), &|_| true, &mut Unwatched).unwrap();
    assert!(found[0].others[0].contains("scales` is missing"), "{found:?}");
}
