use super::MAX_HEADER;
use crate::{Probe, Score};

/// Scores a file by its header length, which must fit the file, followed by the start of a JSON
/// object; there is no magic number. A file with the extension but an invalid length is still
/// claimed, so that the reader can report the error, unless another format claims it.
pub(crate) fn score(probe: &Probe<'_>) -> Score {
    let named = probe.name().to_ascii_lowercase().ends_with(".safetensors");
    let Some((length, text)) = probe.head().split_first_chunk::<8>() else {
        return if named && !probe.is_empty() { Score::Named } else { Score::No };
    };
    let length = u64::from_le_bytes(*length);
    let fits = length <= MAX_HEADER && length.checked_add(8).is_some_and(|end| end <= probe.len());
    let mut bytes = text.iter().filter(|byte| !matches!(byte, b' ' | b'\n' | b'\r' | b'\t'));
    let opens = bytes.next() == Some(&b'{');
    if fits && opens && matches!(bytes.next(), None | Some(b'"' | b'}')) {
        return Score::Magic;
    }
    // Excludes text files with this extension, and files of zeros.
    let plausible = opens || fits && probe.head().iter().any(|byte| *byte != 0);
    match named && plausible {
        true => Score::Named,
        false => Score::No,
    }
}
