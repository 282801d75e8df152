//! Casts of elements of 8 bits, and between dtypes of at most 16 bits, by table lookup: every pattern
//! is cast once.

use std::sync::{Arc, Mutex, PoisonError};

use statelens_checkpoint::DType;

use super::CastReport;
use super::lanes::Lanes;

/// Number of elements from which a table of 65,536 patterns costs less than casting one by one.
const WORTH_A_TABLE: u64 = 1 << 16;

/// Elements whose counts fit in four bits each.
const GROUP: usize = 8;

/// The result for each source pattern.
///
/// The low 16 bits are the result. The next four groups of four bits are 1 if the element is
/// changed, out of range, not zero, and zero only now; the upper 32 bits are the relative error as
/// `f32`.
#[derive(Debug)]
pub(super) struct Table {
    entries: Vec<u64>,
    /// The results of more than 16 bits; else empty.
    wide: Vec<u64>,
}

impl Table {
    /// Returns the table of two dtypes; `None` if there can't be one, or if casting one by one
    /// costs less for `elements` in total.
    pub(super) fn of(from: &DType, to: &DType, elements: u64) -> Option<Arc<Self>> {
        let sizes = (from.itemsize(), to.itemsize());
        match sizes {
            (1, 1 | 2 | 4 | 8) if elements >= 1024 => Some(Arc::new(Self::new(from, to, 1 << 8))),
            (2, 1 | 2) if elements >= WORTH_A_TABLE => Some(Self::shared(from, to)),
            _ => None,
        }
    }

    /// Returns the process-wide table of two dtypes, which takes 512 KiB.
    fn shared(from: &DType, to: &DType) -> Arc<Self> {
        static TABLES: Mutex<Vec<(DType, DType, Arc<Table>)>> = Mutex::new(Vec::new());
        let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((.., table)) = tables.iter().find(|(a, b, _)| a == from && b == to) {
            return Arc::clone(table);
        }
        let table = Arc::new(Self::new(from, to, 1 << 16));
        tables.push((from.clone(), to.clone(), Arc::clone(&table)));
        table
    }

    fn new(from: &DType, to: &DType, patterns: u32) -> Self {
        let size = from.itemsize() as usize;
        let (mut lanes, mut wide) = (Lanes::default(), Vec::new());
        let entries = (0..patterns)
            .map(|pattern| {
                lanes.read(from, to, &pattern.to_le_bytes()[..size]);
                let mut bytes = [0; 8];
                let report = lanes.write(to, &mut bytes[..to.itemsize() as usize]);
                let result = u64::from_le_bytes(bytes);
                if to.itemsize() > 2 {
                    wide.push(result);
                }
                let counts = [report.changed, report.overflowed, report.nonzero, report.flushed];
                let counts = counts.iter().rev().fold(0, |all, count| all << 4 | count);
                let error = (report.worst as f32).to_bits();
                result & 0xffff | counts << 16 | u64::from(error) << 32
            })
            .collect();
        Self { entries, wide }
    }

    /// Casts whole elements of `size.0` bytes to elements of `size.1` bytes.
    pub(super) fn run(&self, stored: &[u8], out: &mut [u8], sizes: (usize, usize)) -> CastReport {
        match sizes {
            (1, 1) => self.cast(stored, out, |[byte]| byte.into(), |bits| [bits as u8]),
            (1, 2) => self.cast(stored, out, |[byte]| byte.into(), u16::to_le_bytes),
            (1, 4) => self.cast_wide(stored, out, |bits| (bits as u32).to_le_bytes()),
            (1, _) => self.cast_wide(stored, out, u64::to_le_bytes),
            (_, 1) => self.cast(stored, out, u16::from_le_bytes, |bits| [bits as u8]),
            _ => self.cast(stored, out, u16::from_le_bytes, u16::to_le_bytes),
        }
    }

    fn cast<const N: usize, const M: usize>(
        &self,
        stored: &[u8],
        out: &mut [u8],
        read: impl Fn([u8; N]) -> u16,
        store: impl Fn(u16) -> [u8; M],
    ) -> CastReport {
        let mask = self.entries.len() - 1;
        look_up(stored, out, |bytes| {
            let entry = self.entries[usize::from(read(bytes)) & mask];
            (entry, store(entry as u16))
        })
    }

    fn cast_wide<const M: usize>(
        &self,
        stored: &[u8],
        out: &mut [u8],
        store: impl Fn(u64) -> [u8; M],
    ) -> CastReport {
        let tables = (self.entries.first_chunk::<256>(), self.wide.first_chunk::<256>());
        let (Some(entries), Some(wide)) = tables else { return CastReport::default() };
        look_up(stored, out, |[byte]: [u8; 1]| {
            (entries[usize::from(byte)], store(wide[usize::from(byte)]))
        })
    }
}

/// Casts each element and counts the effects; `cast` returns the entry and the bytes of the result.
#[inline(always)]
fn look_up<const N: usize, const M: usize>(
    stored: &[u8],
    out: &mut [u8],
    cast: impl Fn([u8; N]) -> (u64, [u8; M]),
) -> CastReport {
    let (mut counts, mut worst) = ([0u64; 4], 0);
    let stored = stored.as_chunks::<N>().0.chunks(GROUP);
    for (stored, out) in stored.zip(out.as_chunks_mut::<M>().0.chunks_mut(GROUP)) {
        let mut group = 0u64;
        for (stored, out) in stored.iter().zip(out) {
            let (entry, bytes) = cast(*stored);
            *out = bytes;
            group += entry & 0xffff_0000;
            worst = worst.max((entry >> 32) as u32);
        }
        for (at, count) in counts.iter_mut().enumerate() {
            *count += group >> (16 + 4 * at) & 0xf;
        }
    }
    let [changed, overflowed, nonzero, flushed] = counts;
    let worst = f32::from_bits(worst).into();
    CastReport { elements: 0, changed, overflowed, nonzero, flushed, worst }
}
