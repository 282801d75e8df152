//! Zip archives, of which loaders read different directories and headers.

use super::*;

/// Returns the offsets of the directory and of the end record.
fn places(zip: &[u8]) -> (usize, usize) {
    let of = |magic: &[u8]| zip.windows(4).position(|bytes| bytes == magic).unwrap();
    (of(b"PK\x01\x02"), of(b"PK\x05\x06"))
}

/// Python finds a directory by its size, before the end record; torch by its offset.
#[test]
fn reads_every_central_directory() {
    let plain = zip(&[member("a", b"N.")]);
    let hidden = zip(&[member("a", HIDDEN)]);
    let (start, end_of_hidden) = places(&hidden);
    // Python adds the length of the prefix to all offsets.
    assert!(is_hidden_found(join(&[&[b'x'; 40], &hidden])));
    let before = (Grade::Warning, "There are bytes before the archive".to_owned());
    assert!(titles("x.bin", join(&[&[b'x'; 40], &plain])).contains(&before));
    assert_eq!(worst("x.bin", join(&[&[b'x'; 40], &plain])), Some(Grade::Warning));
    // There are other bytes between the directory and the end record.
    assert!(is_hidden_found(join(&[
        &hidden[..end_of_hidden],
        &[b'x'; 40],
        &hidden[end_of_hidden..]
    ])));

    // With Zip64 records: of the two directories, one has the hidden pickle.
    let mut two = zip(&[member("a", HIDDEN), member("b", b"N.")]);
    let (directory, end) = places(&two);
    let len = (end - directory) / 2;
    let record = |size: usize, offset: usize| {
        let mut record = join(&[b"PK\x06\x06\x2c", &[0; 35]]);
        record.extend((size as u64).to_le_bytes());
        record.extend((offset as u64).to_le_bytes());
        record
    };
    let locator =
        |at: usize| join(&[b"PK\x06\x07\0\0\0\0", &(at as u64).to_le_bytes(), b"\x01\0\0\0"]);
    let mut tail = two.split_off(end);
    // The size and the offset of the end record lead nowhere.
    tail[12..20].fill(0xff);
    let (first, second) = (record(len, directory), record(len, directory + len));
    for (records, what) in [
        ([&first, &second], "by the offset in the locator"),
        ([&second, &first], "before the locator"),
    ] {
        let bytes = join(&[&two, records[0], records[1], &locator(end), &tail]);
        assert!(is_hidden_found(bytes), "{what}");
    }
    // The record is where the locator says, and the directory before where Python looks for it.
    let moved = record(end_of_hidden - start, start);
    let bytes = join(&[&moved, &hidden[..end_of_hidden], &[b'x'; 56], &locator(0), &tail]);
    assert!(is_hidden_found(bytes));

    // Lengths and offsets in the extra field.
    let enlarged = |bytes: &[u8]| {
        let mut zip = zip(&[member("a", bytes)]);
        let (start, end) = places(&zip);
        zip[start + 20..start + 28].fill(0xff);
        zip[start + 42..start + 46].fill(0xff);
        zip[start + 30] = 28;
        let len = (bytes.len() as u64).to_le_bytes();
        let extra = join(&[b"\x01\0\x18\0", &len, &len, &[0; 8]]);
        zip.splice(end..end, extra);
        zip[end + 28 + 12] += 28;
        zip
    };
    assert!(is_hidden_found(enlarged(HIDDEN)));
    assert_eq!(worst("x.bin", enlarged(b"N.")), None);
}

/// Readers choose between the directory and the header of a member.
#[test]
fn reads_members_by_both_headers() {
    let whole = zip(&[ZipMember { deflated: true, ..member("a", HIDDEN) }]);
    let (directory, _) = places(&whole);
    for (method, what) in [(8, "the header is stored"), (directory + 10, "the directory is stored")]
    {
        let mut zip = whole.clone();
        zip[method] = 0;
        assert!(is_hidden_found(zip), "{what}");
    }
}

#[test]
fn reports_irregular_archives() {
    let zip_of =
        |names: &[&str]| zip(&names.iter().map(|name| member(name, b"N.")).collect::<Vec<_>>());
    let changed = |name: &str, offset: usize, value: u8| {
        let mut zip = zip_of(&[name]);
        let (directory, _) = places(&zip);
        zip[directory + offset] = value;
        zip
    };
    let package = zip_of(&["p/.data/extern_modules", "p/x.py"]);
    for (grade, title, bytes) in [
        (Grade::Damage, "A member of the archive is not where it should be", changed("a", 43, 9)),
        (Grade::Damage, "A member of the archive runs past the end", changed("a", 21, 9)),
        (Grade::Damage, "The checksum of a.pkl is wrong", changed("a.pkl", 16, 9)),
        (Grade::UnknownCode, "The archive contains Python code that loading would run", package),
        (Grade::Warning, "The archive holds more than one checkpoint", {
            zip_of(&["a/data.pkl", "b/data.pkl"])
        }),
        (
            Grade::Warning,
            "The archive's directory and the header of a member disagree",
            changed("a", 46, b'b'),
        ),
        // What a loader decompresses, but can't.
        (
            Grade::Damage,
            "\"archive/data.pkl\" can't be unpacked to its end",
            zip_by(12, b"no bzip2"),
        ),
        (
            Grade::Damage,
            "\"archive/data.pkl\" can't be unpacked to its end",
            zip_by(93, b"no zstd"),
        ),
        (
            Grade::Damage,
            "\"archive/data.pkl\" can't be unpacked to its end",
            zip_by(95, b"no xz in it"),
        ),
        (Grade::UnknownCode, "Statelens could not examine \"archive/data.pkl\"", zip_by(99, b"N.")),
    ] {
        let found = titles("x.bin", bytes);
        assert!(found.contains(&(grade, title.to_owned())), "{title}: {found:?}");
    }
}

/// torch reads a storage from either of two members of one name.
#[test]
fn checks_the_shorter_of_duplicate_records() {
    let pickle =
        b"\x80\x02(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x03tQ.";
    let longer = (Grade::Damage, "A storage is longer than its bytes in the file".to_owned());
    for (lens, expected) in [([12, 12], false), ([12, 8], true), ([8, 12], true)] {
        let [first, second] = lens.map(|len| vec![0; len]);
        let zip = zip(&[
            member("a/data.pkl", pickle),
            member("a/data/0", &first),
            member("a/data/0", &second),
        ]);
        assert_eq!(titles("x.pt", zip).contains(&longer), expected, "{lens:?}");
    }
    // `torch.jit.save` keeps the shapes of example inputs, and no values.
    for (len, expected) in [(0, false), (4, true), (12, false)] {
        let values = vec![0; len];
        let zip =
            zip(&[member("a/traced_inputs.pkl", pickle), member("a/traced_inputs/0", &values)]);
        assert_eq!(titles("x.pt", zip).contains(&longer), expected, "traced inputs: {len}");
    }
}

/// A member whose header is found by the search ends where the header says.
#[test]
fn members_without_a_directory_end_at_their_length() {
    // `lzma.compress(b"N." * 20, check=lzma.CHECK_CRC32)`.
    let packed = "fd377a585a0000016922de360200210116000000742fe5a3e0002700085d00270ba8501000000000b8514b7e0001\
                  20287339b7809042990d010000000001595a";
    let mut archive = zip_by(95, &hex(packed));
    let (directory, _) = places(&archive);
    archive.truncate(directory);
    assert!(worst("x.bin", join(&[&noise(99), &archive, &noise(99)])) <= Some(Grade::Warning));
}
