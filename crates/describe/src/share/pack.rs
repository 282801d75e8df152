//! Serialises an outline. Links and HTML pages contain the result, deflated.
//!
//! In order: name, format id, format, version, producer; size of the files; number of parameters of
//! the model plus 1, or 0 if the leaves determine it; leaves (`columns.rs`); findings; statistics;
//! [`SLASHES`] if the format separates keys with slashes.
//! Numbers and texts are encoded as in `bytes.rs`.

use statelens_checkpoint::varint::{write_bytes, write_number};
use statelens_checkpoint::{Finding, Grade, LoaderCall, Result};
use statelens_values::SummaryStatistics;

use super::bytes::{Unpacker, cut, put_signed};
use super::{Outline, columns};
use crate::info::FormatName;

/// The last byte if slashes separate the segments of keys.
const SLASHES: u8 = b'/';

/// Number of bytes of a 32-bit float that are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Precision {
    /// All bytes.
    Whole = 4,
    /// The two bytes of bfloat16: two to three digits.
    Rounded = 2,
}

/// Serialises the outline.
pub(super) fn pack(outline: &Outline, precision: Precision) -> Vec<u8> {
    let mut out = Vec::new();
    for text in head(outline) {
        write_bytes(&mut out, text.as_bytes());
    }
    write_number(&mut out, outline.size);
    write_number(&mut out, explicit_parameters(outline));
    columns::write(&outline.entries, &mut out);
    write_number(&mut out, outline.findings.len() as u64);
    outline.findings.iter().for_each(|finding| put_finding(&mut out, finding));
    put_statistics(&mut out, outline, precision);
    if outline.slash_keys {
        out.push(SLASHES);
    }
    out
}

/// Parses the result of [`pack`].
pub(super) fn unpack(bytes: &[u8]) -> Result<Outline> {
    let mut from = Unpacker::new(bytes);
    let mut outline = Outline {
        name: from.text()?,
        format: FormatName {
            name: from.text()?,
            title: from.text()?,
            version: from.text()?,
            producer: from.text()?,
        },
        size: from.number()?,
        parameters: from.number()?.checked_sub(1),
        entries: columns::read(&mut from)?,
        ..Outline::default()
    };
    for _ in 0..from.count()? {
        outline.findings.push(finding(&mut from)?);
    }
    read_statistics(&mut from, &mut outline)?;
    outline.slash_keys = from.rest == [SLASHES];
    if from.rest.is_empty() || outline.slash_keys { Ok(outline) } else { Err(cut()) }
}

/// Returns the number of parameters plus 1, or 0 if the leaves determine it.
fn explicit_parameters(outline: &Outline) -> u64 {
    match outline.parameters {
        Some(count) if count != outline.parameters_of_leaves() => count.saturating_add(1),
        _ => 0,
    }
}

fn head(outline: &Outline) -> [&str; 5] {
    let FormatName { name, title, version, producer } = &outline.format;
    [&outline.name, name, title, version, producer]
}

fn put_finding(out: &mut Vec<u8>, finding: &Finding) {
    out.push(match finding.grade {
        Grade::Note => 0,
        Grade::Warning => 1,
        Grade::Danger => 2,
        Grade::Damage => 3,
        Grade::UnknownCode => 4,
    });
    let advice = finding.advice.to_string();
    for text in [&finding.title, &finding.detail, &finding.place, &advice] {
        write_bytes(out, text.as_bytes());
    }
    let call = finding.call.iter().flat_map(|call| [&call.module, &call.name, &call.arguments]);
    write_number(out, call.clone().count() as u64);
    call.for_each(|text| write_bytes(out, text.as_bytes()));
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
    (finding.detail, finding.place) = (from.text()?, from.text()?);
    finding.advice = from.text()?.into();
    if from.number()? == 3 {
        let (module, name, arguments) = (from.text()?, from.text()?, from.text()?);
        finding.call = Some(LoaderCall { module, name, arguments });
    }
    Ok(finding)
}

/// Writes the statistics in columns, with floats split into byte planes, which deflate better.
fn put_statistics(out: &mut Vec<u8>, outline: &Outline, precision: Precision) {
    let known: Vec<_> = outline
        .entries
        .iter()
        .enumerate()
        .filter_map(|(at, entry)| Some((at, entry.params, entry.statistics?)))
        .collect();
    write_number(out, known.len() as u64);
    let mut before = 0;
    for (at, ..) in &known {
        write_number(out, (at - before) as u64);
        before = *at;
    }
    for (_, params, of) in &known {
        put_signed(out, of.count.wrapping_sub(*params) as i64);
    }
    for column in 0..3 {
        known
            .iter()
            .for_each(|(.., of)| write_number(out, [of.nan, of.infinite, of.zeros][column]));
    }
    out.push(precision as u8);
    for plane in 0..precision as usize {
        for column in 0..4 {
            let numbers = known.iter().map(|(.., of)| [of.min, of.max, of.mean, of.std][column]);
            let numbers = numbers.map(|number| float(number.unwrap_or(f64::NAN), precision));
            out.extend(numbers.map(|bits| bits.to_be_bytes()[plane]));
        }
    }
}

fn read_statistics(from: &mut Unpacker<'_>, outline: &mut Outline) -> Result<()> {
    let count = from.count()?;
    let (mut known, mut at) = (Vec::new(), 0usize);
    for _ in 0..count {
        at = at.saturating_add(usize::try_from(from.number()?).unwrap_or(usize::MAX));
        known.push((at, outline.entries.get(at).ok_or_else(cut)?.params));
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
    let planes = usize::from(from.byte()?);
    if ![Precision::Whole as usize, Precision::Rounded as usize].contains(&planes) {
        return Err(cut());
    }
    let floats = count.checked_mul(4).ok_or_else(cut)?;
    let size = floats.checked_mul(planes).ok_or_else(cut)?;
    let (bytes, rest) = from.rest.split_at_checked(size).ok_or_else(cut)?;
    from.rest = rest;
    let number = |column: usize, row: usize| {
        let mut float = [0; 4];
        for (plane, byte) in float[..planes].iter_mut().enumerate() {
            *byte = bytes[plane * floats + column * count + row];
        }
        f64::from(f32::from_be_bytes(float))
    };
    for (row, (at, _)) in known.into_iter().enumerate() {
        let count = |column: usize| counts[column][row];
        let mut of = SummaryStatistics {
            count: count(0),
            nan: count(1),
            infinite: count(2),
            zeros: count(3),
            ..SummaryStatistics::default()
        };
        if of.finite() > 0 {
            let figures = [&mut of.min, &mut of.max, &mut of.mean, &mut of.std];
            (0..).zip(figures).for_each(|(column, of)| *of = Some(number(column, row)));
        }
        outline.entries[at].statistics = Some(of);
    }
    Ok(())
}

/// Returns the bits of the number as a 32-bit float. When rounded, the lower half is 0, and finite
/// numbers stay finite.
fn float(number: f64, precision: Precision) -> u32 {
    /// The largest finite number of bfloat16.
    const LARGEST: f32 = f32::from_bits(0x7f7f_0000);
    let number = number as f32;
    match precision {
        Precision::Whole => number.to_bits(),
        Precision::Rounded if number.is_nan() => 0x7fc0_0000,
        Precision::Rounded => {
            let bits = number.clamp(-LARGEST, LARGEST).to_bits();
            (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000
        }
    }
}
