//! What counts as a pickle where a loader may read one, and after other data.

use super::packed::small_limits;
use super::*;

#[test]
fn grades_pickles_that_a_loader_may_read() {
    for (what, bytes, expected) in [
        ("a name", &b"cfoo\nbar\n."[..], Some(Grade::UnknownCode)),
        ("a name that no module has", b"cfoo\nb r\n.", Some(Grade::Warning)),
        ("an extension", b"\x80\x02\x82\x01.", Some(Grade::UnknownCode)),
        ("a name, broken off", b"cfoo\nbar\n\xff", Some(Grade::Warning)),
        ("half a name", b"cfoo\nba", Some(Grade::Warning)),
        ("a name after PROTO, broken off", b"\x80\x02cfoo\nbar\n\xff", Some(Grade::UnknownCode)),
        ("a call, broken off", b"cfoo\nbar\n(tR\xff", Some(Grade::UnknownCode)),
        ("an item of a list, broken off", b"]K\x01aK\x00K\x02s\xff", Some(Grade::UnknownCode)),
        ("text", b"Nothing to see here.", Some(Grade::Note)),
        ("text like an opcode without a mark", b"integer\nand more\n", Some(Grade::Note)),
        ("one word", b"integer", Some(Grade::Note)),
        ("one word after the letter of a name", b"category", Some(Grade::Note)),
        ("a module that can't exist", b"(i\0\0\0\0\0\0{\"x\": 1}", Some(Grade::Note)),
        ("weights", b"\x80\x02\x01\x5a\xc3\x3f\0\0", Some(Grade::Note)),
        ("a pickle that is cut short", b"\x80\x02]", Some(Grade::Damage)),
    ] {
        assert_eq!(worst("x.bin", bytes.to_vec()), expected, "{what}");
    }
}

/// A pickle that breaks off is reported if its values or calls show that it is one.
#[test]
fn reports_broken_pickles_that_a_loader_may_read() {
    for (what, bytes, expected) in [
        ("values after PROTO", &b"\x80\x02]]]]]]\xff"[..], Some(Grade::Damage)),
        ("few values after PROTO", b"\x80\x02]]\xff", None),
        ("values", b"]]]]]]\xff", None),
    ] {
        assert_eq!(worst("x.bin", zip(&[member("a", bytes)])), expected, "{what}");
    }
    // A call whose name is in the memo, far in front of it.
    let names = b"Vmine\np0\n0Vrun\np1\n0";
    let call = join(&[names, &b"N0".repeat(400), b"h\0h\x01\x93)R\xff"]);
    assert_eq!(worst("x.bin", call), Some(Grade::UnknownCode));
}

#[test]
fn grades_pickles_behind_other_data() {
    let behind = |bytes: &[u8]| join(&[&noise(99), bytes]);
    for (what, bytes, expected) in [
        ("a call, broken off", &b"cos\nsystem\n(S'x'\ntR\xff"[..], Some(Grade::Danger)),
        ("a name", b"cfoo\nbar\n.", None),
        ("a name after PROTO", b"\x80\x02cfoo\nbar\n.", Some(Grade::UnknownCode)),
    ] {
        assert_eq!(worst("x.bin", behind(bytes)), expected, "{what}");
    }
    // Reading continues as long as the part before justifies it.
    let values = |count: usize| b"]0".repeat(count);
    for (what, start, count) in [
        ("a name after PROTO", &b"\x80\x02cfoo\nbar\n0"[..], 4_000),
        ("a call", b"cfoo\nbar\n(tR0", 4_000),
        ("values after PROTO", b"\x80\x02", 500),
    ] {
        let bytes = join(&[start, &values(count), b"cfoo\nbar\n0", HIDDEN]);
        assert!(is_hidden_found(behind(&bytes)), "{what}");
    }
}

#[test]
fn reports_pickles_beyond_the_limits() {
    let mut limits = Limits::default();
    limits.values = 100;
    let many = join(&[b"(", &b"N".repeat(200), b"l."]);
    let findings = scan_with("x.bin", many, &limits);
    let is_limit = |finding: &Finding| {
        finding.grade == Grade::UnknownCode && finding.title.contains("too large")
    };
    assert!(findings.iter().any(is_limit), "{findings:?}");
    // A text that is too long to keep is left out, and what follows is read.
    let len = 100_000u32;
    let text = join(&[b"X", &len.to_le_bytes(), &vec![b'x'; len as usize], b"0", HIDDEN]);
    let findings = scan_with("x.bin", text, &small_limits());
    assert!(
        findings.iter().any(|finding| finding.title.contains("replaces items")),
        "{findings:?}"
    );
}
