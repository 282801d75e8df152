use crate::{Probe, Score};

/// No header is longer, in bytes. A length has zeros in its upper bytes, unlike a text.
const MAX_LENGTH: u64 = 1 << 40;

/// Scores a file by its header length, followed by the start of a JSON object; there is no magic
/// number. The length must fit the file, or the file must have the extension: then the reader
/// reports that the file is cut short. A file with the extension but without that start is still
/// claimed, so that the reader can report the error, unless another format claims it.
pub(crate) fn score(probe: &Probe<'_>) -> Score {
    let named = probe.name().to_ascii_lowercase().ends_with(".safetensors");
    let Some((length, text)) = probe.head().split_first_chunk::<8>() else {
        return if named && !probe.is_empty() { Score::Named } else { Score::No };
    };
    let length = u64::from_le_bytes(*length);
    let fits = length.checked_add(8).is_some_and(|end| end <= probe.len());
    let mut bytes = text.iter().filter(|byte| !matches!(byte, b' ' | b'\n' | b'\r' | b'\t'));
    let opens = bytes.next() == Some(&b'{');
    let is_object = opens && matches!(bytes.next(), None | Some(b'"' | b'}'));
    if is_object && length < MAX_LENGTH {
        return if fits || named { Score::Magic } else { Score::Maybe };
    }
    // Excludes text files with this extension, and files of zeros.
    let plausible = opens || fits && probe.head().iter().any(|byte| *byte != 0);
    match named && plausible {
        true => Score::Named,
        false => Score::No,
    }
}
