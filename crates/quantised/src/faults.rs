//! Faults in the scales and codes of quantised weights, which make their numbers wrong.

use serde::{Deserialize, Serialize};
use statelens_checkpoint::{
    Checkpoint, CodeValues, DType, Dequantised, ErrorKind, FileSet, Groups, Layout, Offset,
    Progress, Result, Tensor,
};
use statelens_tensor::{BUFFER, drain, elements};

use crate::apply::packed_weights;

/// The faults of a quantised weight.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ScaleFault {
    /// The flat key of the weight.
    pub key: String,
    /// The scheme for display: `GPTQ, 4 bits`, `Q4_K`.
    pub scheme: String,
    /// Number of scales.
    pub scales: u64,
    /// Number of scales that are NaN.
    pub nan: u64,
    /// Number of scales that are infinite.
    pub inf: u64,
    /// Number of scales that are zero, if the codes of such a group are not.
    pub zero: u64,
    /// Other faults: parts that are missing or contradict each other, codes out of range.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<String>,
}

impl ScaleFault {
    /// Describes the faults: `of 128 scales, 1 is NaN and 3 are zero, though their codes are not`.
    pub fn text(&self) -> String {
        let counts = [
            (self.nan, "NaN"),
            (self.inf, "infinite"),
            (self.zero, "zero, though their codes are not"),
        ];
        let counts: Vec<String> = counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| {
                format!("{count} {} {what}", if *count == 1 { "is" } else { "are" })
            })
            .collect();
        let mut texts = self.others.clone();
        if !counts.is_empty() {
            texts.insert(0, format!("of {} scales, {}", self.scales, counts.join(", ")));
        }
        texts.join("; ")
    }

    fn is_empty(&self) -> bool {
        self.nan == 0 && self.inf == 0 && self.zero == 0 && self.others.is_empty()
    }
}

/// The most groups with a zero scale whose codes are read.
const MAX_GROUPS: usize = 64;

/// The most rows, and codes of a row, that are read of a group.
const MAX_ROWS: u64 = 32;
const MAX_CODES: u64 = 4_096;

/// Reads the scales, zero points and lists of groups of all weights that are stored as several
/// tensors and whose key is `wanted`, and returns those with faults. Codes are read only where a
/// scale is zero, or if their table of values is too short. `progress` can cancel.
pub fn scale_faults(
    source: &Checkpoint,
    wanted: &dyn Fn(&str) -> bool,
    progress: &mut dyn Progress,
) -> Result<Vec<ScaleFault>> {
    let mut faults = Vec::new();
    for packed in packed_weights(source)? {
        let weight = packed.weight;
        if !wanted(&weight.key) && !weight.parts.iter().any(|part| wanted(part)) {
            continue;
        }
        let mut fault = ScaleFault { key: weight.key, scheme: weight.scheme, ..Default::default() };
        let broken = weight.refused.filter(|why| why.kind() == ErrorKind::Damaged);
        fault.others.extend(broken.map(|why| why.to_string()));
        if let Some(tensor) = packed.tensor
            && let Layout::Dequantised(of) = &tensor.layout
        {
            match check(&source.files, of, &tensor, &mut fault, progress) {
                Err(error) if error.kind() == ErrorKind::Damaged => {
                    fault.others.push(error.to_string());
                }
                // Other passes report what can't be read.
                Err(error) if error.kind() != ErrorKind::Unsupported => return Err(error),
                Err(_) | Ok(()) => {}
            }
        }
        faults.extend(Some(fault).filter(|fault| !fault.is_empty()));
    }
    Ok(faults)
}

fn check(
    files: &FileSet,
    of: &Dequantised,
    tensor: &Tensor,
    fault: &mut ScaleFault,
    progress: &mut dyn Progress,
) -> Result<()> {
    let scales = &of.scales.tensor;
    fault.scales = scales.numel().unwrap_or(0);
    let found = match of.scales.exponents {
        true => exponents(files, scales, progress)?,
        false => floats(files, scales, progress)?,
    };
    (fault.nan, fault.inf) = (found.nan, found.inf);
    // With a bias, a group of equal numbers has a scale of zero.
    if !matches!(of.offset, Offset::Biases(_) | Offset::Constant(_)) {
        for group in &found.zeros {
            if has_codes(files, of, tensor, *group)? {
                fault.zero = found.zero;
                break;
            }
        }
    }
    let mut more = |part: &Tensor, what: &str, is_divisor: bool| -> Result<()> {
        let found = floats(files, part, progress)?;
        let count = found.nan + found.inf;
        if count > 0 {
            fault.others.push(format!("{count} of the {what} are NaN or infinite"));
        }
        if is_divisor && found.zero > 0 {
            fault.others.push(format!("the {what} are divided by zero"));
        }
        Ok(())
    };
    if let Some(divisor) = &of.scales.divisor {
        more(divisor, "scales of all scales", true)?;
    }
    if let Offset::Biases(biases) = &of.offset {
        more(biases, "biases", false)?;
    }
    if let CodeValues::Stored(table) = &of.values {
        more(table, "values of codes", false)?;
    }
    for groups in &of.groups {
        let Groups::Listed(list, count) = groups else { continue };
        fault.others.extend(out_of_range(files, list, *count, progress)?);
    }
    if let CodeValues::Stored(table) = &of.values
        && table.numel().is_some_and(|len| len < of.codes.packing.codes())
    {
        drain(files, tensor, BUFFER, progress, &mut |_| Ok(()))?;
    }
    Ok(())
}

/// Counts of numbers.
#[derive(Default)]
struct Counts {
    nan: u64,
    inf: u64,
    zero: u64,
    /// The first zeros.
    zeros: Vec<u64>,
    at: u64,
}

impl Counts {
    fn count(&mut self, number: f32) {
        match number {
            number if number.is_nan() => self.nan += 1,
            number if number.is_infinite() => self.inf += 1,
            0.0 => {
                self.zero += 1;
                if self.zeros.len() < MAX_GROUPS {
                    self.zeros.push(self.at);
                }
            }
            _ => {}
        }
        self.at += 1;
    }
}

fn floats(files: &FileSet, part: &Tensor, progress: &mut dyn Progress) -> Result<Counts> {
    let numbers = Tensor { dtype: DType::F32, ..part.clone() };
    let mut counts = Counts::default();
    let mut rest = Vec::new();
    drain(files, &numbers, BUFFER, progress, &mut |bytes| {
        rest.extend_from_slice(bytes);
        let (whole, after) = rest.as_chunks();
        whole.iter().for_each(|bytes| counts.count(f32::from_le_bytes(*bytes)));
        rest = after.to_vec();
        Ok(())
    })?;
    Ok(counts)
}

/// Counts the exponents that are NaN, as the byte 255 is (OCP Microscaling Formats, section 5.4.1).
fn exponents(files: &FileSet, part: &Tensor, progress: &mut dyn Progress) -> Result<Counts> {
    let bytes = Tensor { dtype: DType::U8, stored: DType::U8, ..part.clone() };
    let mut counts = Counts::default();
    drain(files, &bytes, BUFFER, progress, &mut |bytes| {
        counts.nan += bytes.iter().filter(|byte| **byte == 255).count() as u64;
        Ok(())
    })?;
    Ok(counts)
}

/// Returns the text if entries of a list of groups are out of range.
fn out_of_range(
    files: &FileSet,
    list: &Tensor,
    count: u64,
    progress: &mut dyn Progress,
) -> Result<Option<String>> {
    let numbers = Tensor { dtype: DType::I64, ..list.clone() };
    let (mut at, mut wrong, mut first) = (0u64, 0u64, None);
    let mut rest = Vec::new();
    drain(files, &numbers, BUFFER, progress, &mut |bytes| {
        rest.extend_from_slice(bytes);
        let (whole, after) = rest.as_chunks();
        for bytes in whole {
            let number = i64::from_le_bytes(*bytes);
            if u64::try_from(number).map_or(true, |number| number >= count) {
                wrong += 1;
                first.get_or_insert((at, number));
            }
            at += 1;
        }
        rest = after.to_vec();
        Ok(())
    })?;
    Ok(first.map(|(at, number)| {
        let last = count.saturating_sub(1);
        format!(
            "{wrong} codes are in a group that is not 0 to {last}, the first is {number} at {at}"
        )
    }))
}

/// Returns whether codes of a group stand for numbers other than zero. Reads the beginning of the
/// group. Codes of groups in a list are taken to be such.
fn has_codes(files: &FileSet, of: &Dequantised, tensor: &Tensor, group: u64) -> Result<bool> {
    let [Groups::Every(down), Groups::Every(across)] = of.groups else { return Ok(true) };
    let [_, rows, columns] = of.shape;
    let [group_rows, group_columns] = [of.groups[0].count(rows), of.groups[1].count(columns)];
    let of_matrix = group_rows.saturating_mul(group_columns).max(1);
    let (matrix, within) = (group / of_matrix, group % of_matrix);
    let (top, left) = (
        (within / group_columns.max(1)).saturating_mul(down),
        (within % group_columns.max(1)).saturating_mul(across),
    );
    let (bottom, right) =
        (rows.min(top.saturating_add(down)), columns.min(left.saturating_add(across)));
    let mut ones = of.clone();
    let shape = ones.scales.tensor.shape.clone();
    ones.scales.tensor = Tensor::new(DType::F32, shape, Layout::Fill(1f32.to_le_bytes().into()));
    (ones.scales.exponents, ones.scales.divisor) = (false, None);
    let [lines, line] = match of.swapped {
        true => [left..right, top..bottom],
        false => [top..bottom, left..right],
    };
    let [height, width] = if of.swapped { [columns, rows] } else { [rows, columns] };
    let layout = Layout::Dequantised(std::sync::Arc::new(ones));
    let tensor = Tensor { layout, ..tensor.clone() };
    for at in lines.take(MAX_ROWS as usize) {
        let start = matrix.saturating_mul(height).saturating_add(at).saturating_mul(width);
        let end = line.end.min(line.start + MAX_CODES);
        let numbers = elements(files, &tensor, start + line.start..start + end)?;
        if numbers.as_chunks().0.iter().any(|bytes| f32::from_le_bytes(*bytes) != 0.0) {
            return Ok(true);
        }
    }
    Ok(false)
}
