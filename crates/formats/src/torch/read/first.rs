//! Reports the first tensors of a large archive before its directory is read. Torch writes the
//! pickle first, and the beginning of a pickle does not depend on what follows.

use std::collections::HashSet;

use statelens_checkpoint::{Builder, DType, FileSet, Limits, Progress, Result, Value};
use statelens_pickle::{Broken, NoStorages, Node, NodeId};

use crate::archive::{LOCAL_HEADER, ZIP};

/// The number of bytes read of the pickle. Usually more than the thousand entries that Python sets
/// at a time.
const HEAD: u64 = 512 << 10;
/// The minimum number of tensors to report: a smaller file is opened in a moment anyway.
const MIN_TENSORS: usize = 128;

/// Reports the first tensors, if the file begins with a long pickle.
///
/// Fails only if the user cancelled: errors in the file are reported by the full read.
pub(super) fn report_first(
    files: &FileSet,
    limits: &Limits,
    progress: &mut dyn Progress,
) -> Result<()> {
    let main = files.main()?;
    if !progress.hears() || files.len(main) < 4 * HEAD {
        return Ok(());
    }
    let Ok(head) = files.read_vec(main, 0, HEAD) else { return Ok(()) };
    let Some(bytes) = pickle(&head) else { return Ok(()) };
    let Err(broken) = statelens_pickle::read(bytes, 0, limits) else { return Ok(()) };
    for (key, dtype, shape) in tensors(&broken, limits).into_iter().flatten() {
        progress.found(&key, &dtype, &shape);
    }
    progress.check(0, 0)
}

/// Returns the bytes of the first member, if that is a pickle and uncompressed.
fn pickle(head: &[u8]) -> Option<&[u8]> {
    let [n0, n1, e0, e1] = *head.get(26..30)?.as_array()?;
    let [method @ .., _, _] = head.get(8..12)?.as_array::<4>()?;
    let name = usize::from(u16::from_le_bytes([n0, n1]));
    let extra = usize::from(u16::from_le_bytes([e0, e1]));
    let (name, rest) = head.get(LOCAL_HEADER as usize..)?.split_at_checked(name)?;
    let is_data = name.strip_suffix(b"data.pkl").is_some_and(|folder| {
        folder.strip_suffix(b"/").is_none_or(|folder| !folder.contains(&b'/'))
    });
    (head.starts_with(ZIP) && *method == [0, 0] && is_data).then(|| rest.get(extra..))?
}

/// Returns the first tensors of the state dict that was being filled when the pickle ended.
fn tensors(broken: &Broken, limits: &Limits) -> Option<Vec<(String, DType, Vec<u64>)>> {
    let pickle = &broken.pickle;
    let (_, dict) = *broken.open.last()?;
    let mut path = String::new();
    for (at, (key, around)) in broken.open.iter().enumerate() {
        if let Some(key) = key {
            path += &format!("{}.", pickle.str(*key)?);
        }
        // Entries that were set before may hold tensors that precede these.
        let is_last = at + 1 == broken.open.len();
        if !is_last && !entries(broken, *around)?.is_empty() {
            return None;
        }
    }
    // Limits the number of values: the tensors need no more, and anything else would only delay the
    // report.
    let mut few = limits.clone();
    few.values = few.values.min(16 * MIN_TENSORS as u64);
    let mut builder = Builder::new(&few);
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    for (key, value) in entries(broken, dict)? {
        // A repeated value is reported under its first key only.
        if !seen.insert(*value) {
            continue;
        }
        let lowered = pickle.lower_node(*value, &mut builder, &mut NoStorages::default()).ok()?;
        match builder.value(lowered.root)? {
            Value::Tensor(id) => {
                let tensor = builder.tensor(*id)?;
                let key = format!("{path}{}", pickle.str(*key)?);
                found.push((key, tensor.dtype.clone(), tensor.shape.clone()));
            }
            value if value.is_container() => return None,
            _ => {}
        }
        if found.len() == MIN_TENSORS {
            return Some(found);
        }
    }
    None
}

/// Returns the entries set in a dict so far.
fn entries(broken: &Broken, dict: NodeId) -> Option<&[(NodeId, NodeId)]> {
    match broken.pickle.node(dict) {
        Node::Dict(entries) => Some(entries),
        Node::Object(_) => Some(broken.pickle.object(dict)?.more().entries.as_slice()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Display;

    use statelens_checkpoint::Memory;

    use super::*;

    #[derive(Default)]
    struct FoundTensors(Vec<String>);

    impl Progress for FoundTensors {
        fn report(&mut self, _done: u64, _total: u64) -> bool {
            true
        }

        fn hears(&self) -> bool {
            true
        }

        fn found(&mut self, key: &dyn Display, dtype: &DType, shape: &[u64]) {
            self.0.push(format!("{key} {dtype} {shape:?}"));
        }
    }

    fn text(text: &str) -> Vec<u8> {
        [b"X", &(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()
    }

    /// Returns the opcodes for a key and a tensor of four float32.
    fn tensor(at: u32) -> Vec<u8> {
        let mut bytes = text(&format!("layer.{at}.weight"));
        bytes.extend(b"ctorch._utils\n_rebuild_tensor_v2\n((");
        bytes.extend(text("storage"));
        bytes.extend(b"ctorch\nFloatStorage\n");
        bytes.extend([text(&at.to_string()), text("cpu")].concat());
        bytes.extend(b"K\x04tQK\x00K\x04\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtR");
        bytes
    }

    /// Returns the keys reported for a file with a pickle that begins with `start` and continues
    /// with a dict of thousands of tensors that is still being filled.
    fn reported(start: &[u8]) -> Vec<String> {
        reported_after(start, b"")
    }

    /// Like [`reported`], with `entry` set in that dict before the tensors.
    fn reported_after(start: &[u8], entry: &[u8]) -> Vec<String> {
        let dict = b"ccollections\nOrderedDict\n)R(";
        let mut pickle = [b"\x80\x02", start, dict, entry].concat();
        for at in 0..30_000 {
            pickle.extend(tensor(at));
            if at % 1000 == 999 {
                pickle.extend(b"u(");
            }
        }
        let name = b"x/data.pkl";
        let mut head = [ZIP, &[0; 22]].concat();
        head.extend([name.len() as u8, 0, 0, 0]);
        let file = [&head[..], name, &pickle].concat();
        let mut found_tensors = FoundTensors::default();
        let files = FileSet::single("x.pt", Memory::from(file));
        report_first(&files, &Limits::default(), &mut found_tensors).unwrap();
        found_tensors.0
    }

    #[test]
    fn first_tensors_are_reported_with_full_keys() {
        let flat = reported(b"");
        assert_eq!(flat.len(), MIN_TENSORS);
        assert_eq!(flat[2], "layer.2.weight float32 [4]");
        let nested = reported(&[b"}(", &text("epoch")[..], b"K\x03", &text("model")].concat());
        assert_eq!(nested[127], "model.layer.127.weight float32 [4]");
    }

    #[test]
    fn reports_no_first_tensors_if_keys_are_uncertain() {
        // After a tensor that is not in its dict yet.
        let before = [b"}(", &tensor(7)[..], &text("model")].concat();
        assert_eq!(reported(&before), [""; 0]);
        // After a dict that is already set.
        let set = [b"}", &text("ema")[..], b"}", &tensor(7), b"ss(", &text("model")].concat();
        assert_eq!(reported(&set), [""; 0]);
        // In a list.
        assert_eq!(reported(b"]("), [""; 0]);
        // After a value with far more nodes than tensors have, which would have to be converted
        // first.
        let large = [&text("own")[..], b"cmy\nOwn\n(", &b"K\x01".repeat(5_000), b"tR"].concat();
        assert_eq!(reported_after(b"", &large), [""; 0]);
        let small = [&text("own")[..], b"cmy\nOwn\n(K\x01tR"].concat();
        assert_eq!(reported_after(b"", &small).len(), MIN_TENSORS);
        // Under a number, and without a key.
        assert_eq!(reported(b"}(K\x03"), [""; 0]);
        assert_eq!(reported(b"("), [""; 0]);
    }
}
