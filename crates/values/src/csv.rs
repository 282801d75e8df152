//! Writes the numbers of a tensor as CSV.

use statelens_checkpoint::{DType, float_repr};

use crate::element::{element_text, field_text};

/// Writes a line per row of the last dimension, from bytes that arrive in pieces of any size.
/// Records are written one per line, with a cell per field, after a header with the names of the
/// fields.
#[derive(Debug)]
pub struct Csv {
    dtype: DType,
    item: usize,
    row: u64,
    /// The bytes of an element that has not fully arrived.
    begun: Vec<u8>,
    number: u64,
}

impl Csv {
    /// Creates a writer for a tensor of this dtype and shape.
    pub fn new(dtype: &DType, shape: &[u64]) -> Self {
        let item = usize::try_from(dtype.itemsize()).unwrap_or(usize::MAX).max(1);
        let row = shape.last().copied().unwrap_or(1).max(1);
        Self { dtype: dtype.clone(), item, row, begun: Vec::new(), number: 0 }
    }

    /// Processes the next bytes and appends their text.
    pub fn feed(&mut self, bytes: &[u8], text: &mut String) {
        self.begun.extend_from_slice(bytes);
        let whole = self.begun.len() - self.begun.len() % self.item;
        for element in self.begun[..whole].chunks_exact(self.item) {
            self.number += 1;
            if let DType::Numpy(numpy) = &self.dtype
                && !numpy.fields.is_empty()
            {
                let line = |cells: Vec<String>| cells.join(",") + "\n";
                if self.number == 1 {
                    *text += &line(numpy.fields.iter().map(|field| quoted(&field.name)).collect());
                }
                let value = |field| field_text(field, element, 0).unwrap_or_default();
                *text += &line(numpy.fields.iter().map(|field| quoted(&value(field))).collect());
                continue;
            }
            text.push_str(&cell(&self.dtype, element));
            text.push(if self.number.is_multiple_of(self.row) { '\n' } else { ',' });
        }
        self.begun.drain(..whole);
    }
}

/// Formats an element as a cell: floats with the shortest digits that identify them; quoted if an
/// element holds two values.
fn cell(dtype: &DType, element: &[u8]) -> String {
    let text = match (dtype, element.first_chunk()) {
        (DType::F64, Some(bytes)) => float_repr(f64::from_le_bytes(*bytes)),
        _ => element_text(dtype, element),
    };
    quoted(&text)
}

/// Formats a text as a cell, in quotes if necessary.
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use statelens_checkpoint::{ByteOrder, Field};

    use super::*;

    #[test]
    fn writes_one_line_per_row_for_any_piece_size() {
        let bytes: Vec<u8> = (0..6).flat_map(|at| (at as f32 / 4.0).to_le_bytes()).collect();
        for piece in [1, 3, 24] {
            let (mut csv, mut text) = (Csv::new(&DType::F32, &[2, 3]), String::new());
            bytes.chunks(piece).for_each(|piece| csv.feed(piece, &mut text));
            assert_eq!(text, "0.0,0.25,0.5\n0.75,1.0,1.25\n");
        }
        let field = |name: &str, offset, code| Field {
            name: name.into(),
            title: String::new(),
            offset,
            dtype: DType::from_numpy_code(code).unwrap(),
            shape: Vec::new(),
        };
        let fields = vec![
            (field("id", 0, "i2"), ByteOrder::Little),
            (field("a,b", 2, "f4"), ByteOrder::Little),
        ];
        let record = DType::record(6, fields).unwrap();
        let (mut csv, mut text) = (Csv::new(&record, &[2]), String::new());
        csv.feed(&[1, 0, 0, 0, 0, 0x3f, 2, 0, 0, 0, 0x80, 0x3f], &mut text);
        assert_eq!(text, "id,\"a,b\"\n1,0.5\n2,1.0\n");
        let (mut csv, mut text) = (Csv::new(&DType::C64, &[]), String::new());
        csv.feed(&[1f32, 2.0].map(f32::to_le_bytes).concat(), &mut text);
        assert_eq!(text, "(1+2j)\n");
    }
}
