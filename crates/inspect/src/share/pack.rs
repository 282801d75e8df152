//! An outline as bytes: what links and HTML pages hold.
//!
//! Numbers and texts are as in `bytes.rs`. In order: name,
//! format id, format, version, producer; the size of the files; patterns, nodes and numbers as
//! `fold.rs` has them; findings; statistics.

use statelens_checkpoint::{Finding, Grade, LoaderCall, Result};

use crate::statistics::SummaryStatistics;

use super::Outline;
use super::bytes::{Unpacker, cut, put, put_bytes, put_signed};
use super::fold::FoldedLeaves;

/// The outline as bytes.
pub(super) fn pack(outline: &Outline) -> Vec<u8> {
    let mut out = Vec::new();
    for text in head(outline) {
        put_bytes(&mut out, text.as_bytes());
    }
    put(&mut out, outline.size);
    FoldedLeaves::new(&outline.entries).write(&mut out);
    put(&mut out, outline.findings.len() as u64);
    outline.findings.iter().for_each(|finding| put_finding(&mut out, finding));
    let known = outline.entries.iter().filter(|entry| entry.statistics.is_some());
    put(&mut out, known.count() as u64);
    let mut before = 0;
    for (at, entry) in outline.entries.iter().enumerate() {
        if let Some(statistics) = &entry.statistics {
            put(&mut out, (at - before) as u64);
            before = at;
            put_statistics(&mut out, statistics);
        }
    }
    out
}

/// The outline again.
pub(super) fn unpack(bytes: &[u8]) -> Result<Outline> {
    let mut from = Unpacker::new(bytes);
    let outline = outline(&mut from)?;
    if from.rest.is_empty() { Ok(outline) } else { Err(cut()) }
}

/// What [`pack`] wrote, from the beginning of bytes.
fn outline(from: &mut Unpacker<'_>) -> Result<Outline> {
    let mut outline = Outline {
        name: from.text()?,
        format_id: from.text()?,
        format: from.text()?,
        version: from.text()?,
        producer: from.text()?,
        size: from.number()?,
        ..Outline::default()
    };
    outline.entries = FoldedLeaves::read(from)?.entries()?;
    for _ in 0..from.count()? {
        outline.findings.push(finding(from)?);
    }
    let mut at = 0usize;
    for _ in 0..from.count()? {
        at = at.saturating_add(usize::try_from(from.number()?).unwrap_or(usize::MAX));
        let statistics = statistics(from)?;
        outline.entries.get_mut(at).ok_or_else(cut)?.statistics = Some(statistics);
    }
    Ok(outline)
}

/// The outline as bytes, with statistics as they go into a link: behind what [`pack`] writes of the
/// rest, in columns, which deflate better than rows. Counts are exact; the others have the 16 bits
/// of bfloat16, two to three digits.
pub(super) fn pack_rounded(outline: &Outline) -> Vec<u8> {
    let mut rest = outline.clone();
    rest.entries.iter_mut().for_each(|entry| entry.statistics = None);
    let mut out = pack(&rest);
    let known: Vec<_> = outline
        .entries
        .iter()
        .enumerate()
        .filter_map(|(at, entry)| Some((at, entry.params, entry.statistics?)))
        .collect();
    put(&mut out, known.len() as u64);
    let mut before = 0;
    for (at, ..) in &known {
        put(&mut out, (at - before) as u64);
        before = *at;
    }
    for (_, params, of) in &known {
        put_signed(&mut out, of.count.wrapping_sub(*params) as i64);
    }
    for column in 0..3 {
        known.iter().for_each(|(.., of)| put(&mut out, [of.nan, of.infinite, of.zeros][column]));
    }
    for half in 0..2 {
        for column in 0..4 {
            let numbers = known.iter().map(|(.., of)| [of.min, of.max, of.mean, of.std][column]);
            out.extend(numbers.map(|number| rounded(number).to_be_bytes()[half]));
        }
    }
    out
}

/// The outline again that [`pack_rounded`] wrote.
pub(super) fn unpack_rounded(bytes: &[u8]) -> Result<Outline> {
    let mut from = Unpacker::new(bytes);
    let mut outline = outline(&mut from)?;
    let count = from.count()?;
    let mut known = Vec::new();
    let mut at = 0usize;
    for _ in 0..count {
        at = at.saturating_add(usize::try_from(from.number()?).unwrap_or(usize::MAX));
        let params = outline.entries.get(at).ok_or_else(cut)?.params;
        known.push((at, params));
    }
    let mut counts = [const { Vec::new() }; 4];
    for (_, params) in &known {
        counts[0].push(params.wrapping_add(from.signed()? as u64));
    }
    for column in &mut counts[1..] {
        for _ in 0..count {
            column.push(from.number()?);
        }
    }
    let halves = count.checked_mul(4).ok_or_else(cut)?;
    let (upper, rest) = from.rest.split_at_checked(halves).ok_or_else(cut)?;
    let (lower, rest) = rest.split_at_checked(halves).ok_or_else(cut)?;
    let number = |column: usize, at: usize| {
        let at = column * count + at;
        f64::from(f32::from_bits(u32::from_be_bytes([upper[at], lower[at], 0, 0])))
    };
    for (row, (at, _)) in known.into_iter().enumerate() {
        let count = |column: usize| counts[column][row];
        outline.entries[at].statistics = Some(SummaryStatistics {
            count: count(0),
            nan: count(1),
            infinite: count(2),
            zeros: count(3),
            min: number(0, row),
            max: number(1, row),
            mean: number(2, row),
            std: number(3, row),
        });
    }
    if rest.is_empty() { Ok(outline) } else { Err(cut()) }
}

/// The upper 16 bits of the nearest 32-bit float of which the rest is 0; what is finite stays so.
fn rounded(number: f64) -> u16 {
    let number = (number as f32).clamp(-LARGEST, LARGEST);
    if number.is_nan() {
        return 0x7fc0;
    }
    let bits = number.to_bits();
    let even = bits >> 16 & 1;
    ((bits + 0x7fff + even) >> 16) as u16
}

/// The largest finite number of bfloat16.
const LARGEST: f32 = f32::from_bits(0x7f7f_0000);

fn head(outline: &Outline) -> [&str; 5] {
    [&outline.name, &outline.format_id, &outline.format, &outline.version, &outline.producer]
}

fn put_finding(out: &mut Vec<u8>, finding: &Finding) {
    // The numbers of the first three are older than the others.
    out.push(match finding.grade {
        Grade::Note => 0,
        Grade::Warning => 1,
        Grade::Danger => 2,
        Grade::Damage => 3,
        Grade::UnknownCode => 4,
    });
    for text in [&finding.title, &finding.detail, &finding.place, &finding.advice] {
        put_bytes(out, text.as_bytes());
    }
    let call = finding.call.iter().flat_map(|call| [&call.module, &call.name, &call.arguments]);
    put(out, call.clone().count() as u64);
    call.for_each(|text| put_bytes(out, text.as_bytes()));
}

fn finding(from: &mut Unpacker<'_>) -> Result<Finding> {
    let grade = match from.byte()? {
        0 => Grade::Note,
        1 => Grade::Warning,
        3 => Grade::Damage,
        4 => Grade::UnknownCode,
        _ => Grade::Danger,
    };
    let mut finding = Finding::new(grade, from.text()?);
    (finding.detail, finding.place, finding.advice) = (from.text()?, from.text()?, from.text()?);
    if from.number()? == 3 {
        let (module, name, arguments) = (from.text()?, from.text()?, from.text()?);
        finding.call = Some(LoaderCall { module, name, arguments });
    }
    Ok(finding)
}

fn put_statistics(out: &mut Vec<u8>, of: &SummaryStatistics) {
    for number in [of.count, of.nan, of.infinite, of.zeros] {
        put(out, number);
    }
    // Enough digits for people; JSON has all of them.
    for number in [of.min, of.max, of.mean, of.std] {
        out.extend_from_slice(&(number as f32).to_le_bytes());
    }
}

fn statistics(from: &mut Unpacker<'_>) -> Result<SummaryStatistics> {
    let (count, nan, infinite, zeros) =
        (from.number()?, from.number()?, from.number()?, from.number()?);
    let (min, max, mean, std) = (from.single()?, from.single()?, from.single()?, from.single()?);
    Ok(SummaryStatistics { count, nan, infinite, zeros, min, max, mean, std })
}
