//! Extended headers: records of the form `LENGTH KEY=VALUE\n` that modify the next member, or all
//! further ones.

use statelens_checkpoint::ReadAt;

use super::numbers::{Number, python};
use super::sparse;

/// The records of one or more extended headers.
#[derive(Default, Clone)]
pub(super) struct Pax {
    /// In the order in which the keys first occur. If two modify the same property, the last one
    /// counts.
    values: Vec<(&'static str, Vec<u8>)>,
    /// Offsets and lengths of a sparse member of version 0.0, which repeats its keys.
    pieces: [Vec<Vec<u8>>; 2],
    /// Whether it applies to a single member.
    pub(super) local: bool,
    pub(super) doubt: Option<&'static str>,
}

/// Keys that modify the location or the name of a member.
const KEYS: &str = "
    size path linkpath GNU.sparse.major GNU.sparse.map GNU.sparse.minor GNU.sparse.name
    GNU.sparse.numblocks GNU.sparse.numbytes GNU.sparse.offset GNU.sparse.realsize GNU.sparse.size
";

impl Pax {
    /// Parses the records of a header, up to the first invalid one, which sets `doubt`: Python before
    /// 3.13 accepts some that later versions refuse.
    pub(super) fn parse(bytes: &[u8]) -> Self {
        let mut pax = Self::default();
        let mut at = 0;
        while let Some((len, key, value)) = record(&bytes[at..]) {
            pax.add(key, value);
            at += len;
        }
        if bytes.get(at).is_some_and(|byte| *byte != 0) {
            pax.doubt = Some("an extended header that does not consist of records");
        }
        pax
    }

    fn add(&mut self, key: &[u8], value: &[u8]) {
        match key {
            b"GNU.sparse.offset" => self.pieces[0].push(value.to_vec()),
            b"GNU.sparse.numbytes" => self.pieces[1].push(value.to_vec()),
            _ => {}
        }
        if let Some(key) = KEYS.split_ascii_whitespace().find(|known| known.as_bytes() == key) {
            self.set(key, value.to_vec());
        }
    }

    fn set(&mut self, key: &'static str, value: Vec<u8>) {
        match self.values.iter_mut().find(|(known, _)| *known == key) {
            Some((_, old)) => *old = value,
            None => self.values.push((key, value)),
        }
    }

    /// Adds the records of another header, which take precedence.
    pub(super) fn extend(&mut self, other: Self) {
        for (key, value) in other.values {
            self.set(key, value);
        }
        self.pieces = other.pieces;
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.values.iter().map(|(key, value)| (*key, &**value))
    }

    fn get(&self, key: &str) -> Option<&[u8]> {
        self.values().find_map(|(known, value)| (known == key).then_some(value))
    }
}

/// Returns the length, key and value of the first record, if it is valid.
fn record(bytes: &[u8]) -> Option<(usize, &[u8], &[u8])> {
    let digits = bytes.iter().position(|byte| !byte.is_ascii_digit())?;
    let len: usize = std::str::from_utf8(&bytes[..digits]).ok()?.parse().ok()?;
    if bytes[digits] != b' ' {
        return None;
    }
    let (last, record) = bytes.get(..len)?.get(digits + 1..)?.split_last()?;
    let equals = record.iter().position(|byte| *byte == b'=').filter(|at| *at > 0)?;
    (*last == b'\n').then_some((len, &record[..equals], &record[equals + 1..]))
}

/// Returns the map of a sparse member from a pax header, or `None` if the member is not sparse. In
/// version 1.0 the map precedes the data, and `start` is advanced past it.
pub(super) fn sparse(
    pax: &Pax,
    source: &dyn ReadAt,
    start: &mut u64,
) -> Result<Option<sparse::Map>, ()> {
    let plain = |number: &[u8]| match python(number, 10) {
        Number::Plain(number) => Ok(number),
        _ => Err(()),
    };
    if let Some(map) = pax.get("GNU.sparse.map") {
        let numbers: Vec<u64> =
            map.split(|byte| *byte == b',').map(plain).collect::<Result<_, _>>()?;
        return Ok(Some(numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect()));
    }
    if pax.has("GNU.sparse.size") {
        let [offsets, lengths] = &pax.pieces;
        let pairs = offsets.iter().zip(lengths);
        return pairs
            .map(|(at, len)| Ok((plain(at)?, plain(len)?)))
            .collect::<Result<_, _>>()
            .map(Some);
    }
    if pax.get("GNU.sparse.major") == Some(b"1") && pax.get("GNU.sparse.minor") == Some(b"0") {
        return sparse::new(source, start).map(Some).ok_or(());
    }
    Ok(None)
}
