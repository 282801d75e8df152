//! Tar archives as `tarfile` reads them.

use super::*;

/// Returns a header of a tar archive without a magic number, so that only a walk finds it.
fn header(name: &[u8], kind: u8, size: usize) -> [u8; 512] {
    let mut header = [0; 512];
    header[..name.len()].copy_from_slice(name);
    header[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
    header[156] = kind;
    header
}

/// Sets the checksum of a header.
fn summed(mut header: [u8; 512]) -> [u8; 512] {
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    header
}

/// Returns a header and data, padded.
fn entry(name: &str, kind: u8, data: &[u8]) -> Vec<u8> {
    let mut entry = join(&[&summed(header(name.as_bytes(), kind, data.len())), data]);
    entry.resize(entry.len().next_multiple_of(512), 0);
    entry
}

/// Returns records of an extended header.
fn records(records: &[(&str, &str)]) -> Vec<u8> {
    let record = |(key, value): &(&str, &str)| {
        let rest = format!(" {key}={value}\n");
        // The length counts its own digits.
        let lens = (1..).map(|digits| rest.len() + digits);
        let len = lens.into_iter().find(|len| len.to_string().len() + rest.len() == *len).unwrap();
        format!("{len}{rest}").into_bytes()
    };
    records.iter().flat_map(record).collect()
}

/// Returns an archive member of `size` bytes, of which two are in the archive.
pub(in crate::scan) fn sparse_member(size: u64) -> Vec<u8> {
    let pairs = [("GNU.sparse.size", &*size.to_string()), ("GNU.sparse.map", "0,2")];
    join(&[&entry("", b'x', &records(&pairs)), &entry("a", b'0', b"N.")])
}

/// torch 0.1 unpickles members by name, which several headers may give.
#[test]
fn tar_member_names_match_tarfile() {
    let cut = entry("x", b'0', CUT);
    let path = records(&[("path", "pickle")]);
    let damage = |parts: &[&[u8]]| worst("x.bin", parts.concat()) == Some(Grade::Damage);
    assert!(!damage(&[&cut]));
    assert!(damage(&[&entry("pickle", b'0', CUT)]));
    assert!(damage(&[&entry("./pickle", b'0', CUT)]));
    assert!(damage(&[&entry("tensors", b'0', CUT)]) && damage(&[&entry("storages", b'0', CUT)]));
    assert!(damage(&[&entry("", b'L', b"pickle\0"), &cut]), "long name");
    assert!(damage(&[&entry("", b'g', &path), &cut]), "for all members");
    for kind in [b'x', b'X'] {
        assert!(damage(&[&entry("", kind, &path), &cut]), "{kind}");
    }
    let twice = records(&[("path", "x"), ("path", "pickle")]);
    assert!(damage(&[&entry("", b'x', &twice), &cut]), "the last record counts");
    let mut prefixed = header(b"pickle", b'0', CUT.len());
    prefixed[345] = b'x';
    assert!(!damage(&[&summed(prefixed), CUT, &[0; 511]]), "a prefix is a part of the name");
    // A link has the content of another member.
    let linked = |parts: &[&[u8]]| is_unseen(&scan("x.bin", parts.concat()), "pickle", "link");
    let mut link = header(b"pickle", b'2', 0);
    assert!(!linked(&[&summed(link)]));
    link[157] = b'y';
    assert!(linked(&[&summed(link)]));
    let link = entry("pickle", b'2', b"");
    assert!(linked(&[&entry("", b'K', b"y\0"), &link]));
    assert!(linked(&[&entry("", b'x', &records(&[("linkpath", "y")])), &link]));
}

/// Where the data of a member ends, and the next header begins.
#[test]
fn tar_member_offsets_match_tarfile() {
    let hidden = entry("b", b'0', HIDDEN);
    let next = |parts: &[&[u8]]| is_hidden_found(join(&[&parts.concat(), &hidden, &[0; 1024]]));
    // As data of 512 bytes, the next header would be an archive without the data after it.
    for kind in *b"123456" {
        assert!(next(&[&summed(header(b"a", kind, 512))]), "no data: {kind}");
    }
    assert!(next(&[&summed(header(b"a/", 0, 512))]), "an old folder");
    assert!(next(&[
        &entry("", b'x', &records(&[("size", "0")])),
        &summed(header(b"a", b'0', 512))
    ]));
    // tarfile reads a size without digits as 0.
    assert!(next(&[
        &entry("", b'x', &records(&[("size", "no")])),
        &summed(header(b"a", b'0', 512))
    ]));
    let size = records(&[("size", "700")]);
    assert!(next(&[&entry("", b'x', &size), &summed(header(b"a", b'0', 0)), &[0; 1024]]));
    let mut binary = header(b"a", b'0', 0);
    binary[124..136].copy_from_slice(b"\x80\0\0\0\0\0\0\0\0\0\x02\xbc");
    assert!(next(&[&summed(binary), &[0; 1024]]));
    // Checksums may be of signed bytes.
    let mut signed = summed(header(b"\xff", b'0', 0));
    let sum: i32 = signed
        .iter()
        .enumerate()
        .map(|(at, byte)| if (148..156).contains(&at) { 32 } else { i32::from(byte.cast_signed()) })
        .sum();
    signed[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    assert!(next(&[&signed]));
    let mut after = hidden.clone();
    after[148..156].copy_from_slice(b"00000000");
    assert!(!is_hidden_found(after), "the checksum of the header is wrong");
}

/// Programs read these in different ways.
#[test]
fn reports_ambiguous_tar_archives() {
    let member = entry("a", b'0', b"N.");
    let pax = |pairs: &[(&str, &str)]| join(&[&entry("", b'x', &records(pairs)), &member]);
    let sparse = |pairs: &[(&str, &str)], data: &[u8]| {
        join(&[&entry("", b'x', &records(pairs)), &entry("a", b'0', data)])
    };
    let one = [("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0"), ("GNU.sparse.realsize", "9")];
    let many = join(&[b"65537\n", &b"0\n".repeat(2 * 65_537)]);
    let long = join(&[b"40000\n", &b"00000000000000\n".repeat(80_000)]);
    let mut negative = header(b"a", b'0', 0);
    negative[124..136].fill(0xff);
    let mut old = header(b"a", b'S', 0);
    old[386] = 0xff;
    let mut endless = header(b"a", b'S', 0);
    endless[482] = 1;
    let mut blocks = vec![0; 512 * 3_200];
    blocks.iter_mut().skip(504).step_by(512).take(3_199).for_each(|byte| *byte = 1);
    for (what, why, bytes) in [
        ("two names", "several extended headers", {
            join(&[&entry("", b'L', b"x\0"), &entry("", b'L', b"y\0"), &member])
        }),
        ("a name and records", "several extended headers", {
            join(&[&entry("", b'L', b"x\0"), &pax(&[("path", "y")])])
        }),
        ("no records", "consist of records", join(&[&entry("", b'x', b"no"), &member])),
        ("a record without a line feed", "consist of records", {
            join(&[&entry("", b'x', b"9 path=ab"), &member])
        }),
        ("records that overlap", "consist of records", {
            join(&[&entry("", b'x', b"9 path=abcd\n"), &member])
        }),
        ("a negative size", "not written in digits", pax(&[("size", "-5")])),
        ("digits of another script", "not written in digits", pax(&[("size", "\u{661}")])),
        ("a real size", "not written in digits", pax(&[("GNU.sparse.realsize", "no")])),
        ("a negative binary size", "negative or too large", summed(negative).to_vec()),
        ("a long name", "too long", summed(header(b"a", b'L', 2 << 20)).to_vec()),
        ("a map of 0.1", "can't be read", pax(&[("GNU.sparse.map", "0,no")])),
        ("a map of 1.0", "can't be read", sparse(&one, b"no\n")),
        ("a map of 1.0 with many parts", "can't be read", sparse(&one, &many)),
        ("a long map of 1.0", "can't be read", sparse(&one, &long)),
        ("an old map", "can't be read", summed(old).to_vec()),
        ("an old map of many blocks", "can't be read", join(&[&summed(endless), &blocks])),
    ] {
        let findings = scan("x.bin", bytes);
        assert!(is_unseen(&findings, "tar archive", why), "{what}: {findings:?}");
    }
    assert!(worst("x.bin", pax(&[("path", "b"), ("mtime", "no")])) <= Some(Grade::Warning));
}

/// A string of 64 zeros, which are a hole in the file, before [`HIDDEN`].
#[test]
fn reads_sparse_members_with_holes() {
    let data = join(&[b"C\x40", b"0", HIDDEN]);
    assert!(!is_hidden_found(data.clone()));
    let len = 2 + 64 + 1 + HIDDEN.len();
    let number = |header: &mut [u8; 512], at: usize, number: usize| {
        header[at..at + 11].copy_from_slice(format!("{number:011o}").as_bytes());
    };
    // The kind of GNU tar, with the map in the header and in a block after it.
    for behind in [false, true] {
        let (mut first, mut block) = (header(b"a", b'S', data.len()), [0; 512]);
        let rest = [66, 1 + HIDDEN.len()];
        // Unused entries have the length 0.
        let second = if behind { [2, 0] } else { rest };
        let unused = [if behind { 2 } else { len }, 0];
        for (place, value) in [[0, 2], second, unused, unused].concat().into_iter().enumerate() {
            number(&mut first, 386 + 12 * place, value);
        }
        number(&mut first, 483, len);
        first[482] = u8::from(behind);
        number(&mut block, 0, rest[0]);
        number(&mut block, 12, rest[1]);
        let block = if behind { &block[..] } else { &[] };
        assert!(is_hidden_found(join(&[&summed(first), block, &data, &[0; 512]])), "{behind}");
    }
    // Versions 0.0, 0.1 and 1.0 of the extended headers.
    let (real, end) = (len.to_string(), (1 + HIDDEN.len()).to_string());
    let map = format!("0,2,66,{end}");
    let lines = format!("2\n0\n2\n66\n{end}\n");
    let mut padded = lines.into_bytes();
    padded.resize(512, 0);
    padded.extend(&data);
    let zero = [
        ("GNU.sparse.size", &*real),
        ("GNU.sparse.numblocks", "2"),
        ("GNU.sparse.offset", "0"),
        ("GNU.sparse.numbytes", "2"),
        ("GNU.sparse.offset", "66"),
        ("GNU.sparse.numbytes", &end),
    ];
    let one = [("GNU.sparse.size", &*real), ("GNU.sparse.map", &*map)];
    let last =
        [("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0"), ("GNU.sparse.realsize", &*real)];
    for (version, pairs, data) in
        [("0.0", &zero[..], &data), ("0.1", &one, &data), ("1.0", &last, &padded)]
    {
        let bytes = join(&[&entry("", b'x', &records(pairs)), &entry("a", b'0', data), &[0; 1024]]);
        assert!(is_hidden_found(bytes), "{version}");
    }
    // Maps that readers follow in different ways, and files that are far too long.
    for (what, size, map) in [
        ("out of order", "9", "4,2,0,2"),
        ("overlapping", "9", "0,4,2,4"),
        ("past the end of the file", "3", "0,4"),
        ("past the end of the archive", "9000", "0,9000"),
        ("a terabyte", "1000000000000", "0,2"),
    ] {
        let pairs = [("GNU.sparse.size", size), ("GNU.sparse.map", map)];
        let bytes = join(&[&entry("", b'x', &records(&pairs)), &entry("a", b'0', b"N.N.")]);
        let findings = scan("x.bin", bytes);
        assert!(is_unseen(&findings, "\"a\"", "sparse member"), "{what}: {findings:?}");
    }
    // Sparse members in each other.
    let nested = (0..6).fold(b"N.".to_vec(), |data, _| {
        let mut sparse = header(b"a", b'S', data.len());
        for (place, value) in
            [0, data.len(), data.len(), 0, data.len(), 0, data.len(), 0].into_iter().enumerate()
        {
            number(&mut sparse, 386 + 12 * place, value);
        }
        number(&mut sparse, 483, data.len());
        let mut sparse = join(&[&summed(sparse), &data]);
        sparse.resize(sparse.len().next_multiple_of(512), 0);
        sparse
    });
    assert!(is_unseen(&scan("x.bin", nested), "\"a\"", "sparse member"));
}

/// The budgets for archives and for pickles.
#[test]
fn reports_archives_with_too_many_members() {
    let limits = Limits::default();
    let scan = |bytes, units| scan_within("x.bin", bytes, &limits, units);
    let names = ["a", "b", "c", "d", "e", "f"];
    let members = names.map(|name| member(name, b"1"));
    let findings = scan(zip(&members), 6_000);
    assert!(is_unseen(&findings, "the rest of the archives", "too many members"), "{findings:?}");
    let findings = scan(tar(&names.map(|name| (name, &b"1"[..])), true), 12_000);
    assert!(is_unseen(&findings, "the rest of the archives", "too many members"), "{findings:?}");
    // Small pickles use up the budget, and headers count.
    let pickles = b"N.".repeat(3_000);
    let findings = scan(tar(&[("pickle", &pickles), ("a", b""), ("b", HIDDEN)], true), 100_000);
    assert!(is_unseen(&findings, "all that looks like a pickle", "too much"), "{findings:?}");
    assert!(is_unseen(&findings, "the rest of a tar archive", "too many"), "{findings:?}");
}

/// A loader chooses how to read the target of a link by the name of the link.
#[test]
fn examines_targets_of_links_under_their_names() {
    let link = |name: &str, kind: u8, target: &str| {
        let mut header = header(name.as_bytes(), kind, 0);
        header[157..157 + target.len()].copy_from_slice(target.as_bytes());
        summed(header).to_vec()
    };
    let notes = |text: &[u8]| entry("./d/notes.txt", b'0', text);
    let (evil, plain) = (notes(b"_target_: os.system\n"), notes(b"a: 1\n"));
    let symbolic = link("model_config.yaml", b'2', "d/notes.txt");
    for (what, parts, is_finding) in [
        ("no link", vec![&evil], false),
        ("a symbolic link", vec![&evil, &symbolic], true),
        ("before its target", vec![&symbolic, &evil], true),
        ("a hard link", vec![&evil, &link("d/x.yaml", b'1', "d/notes.txt")], true),
        ("relative to the link", vec![&evil, &link("d/e/x.yaml", b'2', "../notes.txt")], true),
        (
            "a link to a link",
            vec![&evil, &link("x.yml", b'2', "model_config.yaml"), &symbolic],
            true,
        ),
        ("to a harmless text", vec![&plain, &symbolic], false),
        ("to nothing", vec![&plain, &link("x.json", b'2', "/etc/x")], true),
        ("to itself", vec![&plain, &link("x.jinja", b'2', "x.jinja")], true),
        ("another name", vec![&plain, &link("x.bin", b'2', "/etc/x")], false),
    ] {
        let parts: Vec<&[u8]> = parts.into_iter().map(Vec::as_slice).collect();
        let worst = worst("x.nemo", parts.concat());
        assert_eq!(worst > Some(Grade::Warning), is_finding, "{what}: {worst:?}");
    }
}
