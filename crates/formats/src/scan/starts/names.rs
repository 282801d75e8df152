//! Names of classes and functions in a pickle: two lines after `GLOBAL` or `INST`, or two texts
//! before `STACK_GLOBAL`.

use statelens_pickle::opcode as op;

/// The maximum length of a line with a name.
pub(super) const MAX_LINE: usize = 199;
/// The maximum number of places at which the texts before one `STACK_GLOBAL` may begin.
const MAX_PLACES: usize = 4;

/// Returns the length of a line that is a dotted name, if there is one.
pub(super) fn line(bytes: &[u8]) -> Option<usize> {
    let len = bytes.iter().take(MAX_LINE + 1).position(|byte| !is_name(*byte))?;
    (len > 0 && bytes[len] == b'\n').then_some(len)
}

pub(super) const fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.'
}

fn is_name_or_escape(byte: u8) -> bool {
    is_name(byte) || byte == b'\\'
}

/// Finds the operands of `STACK_GLOBAL` at the end of `bytes`: two strings that are names, each
/// followed by nothing but an opcode that stores it in the memo. Any string opcode counts. Returns
/// the offsets of the first; if some bytes can be read in several ways, there are several. `steps`
/// counts the work.
pub(super) fn stacked(bytes: &[u8], steps: &mut u64) -> Vec<usize> {
    if !may_end_name(bytes) {
        return Vec::new();
    }
    let (mut seconds, mut firsts) = (Vec::new(), Vec::new());
    texts_before(bytes, bytes.len(), &mut seconds, steps);
    for second in seconds {
        texts_before(bytes, second, &mut firsts, steps);
    }
    firsts.sort_unstable();
    firsts.dedup();
    firsts.truncate(MAX_PLACES);
    firsts
}

/// Returns whether bytes end with a name or with an opcode that stores it in the memo. This
/// excludes most places quickly.
fn may_end_name(bytes: &[u8]) -> bool {
    match bytes {
        [.., op::BINPUT, _] | [.., op::LONG_BINPUT, _, _, _, _] => true,
        [.., b'\n' | op::MEMOIZE] => true,
        [.., last] => is_name_or_escape(*last),
        [] => false,
    }
}

/// Adds the offsets of the strings that are names and end at `end`, with or without an opcode that
/// stores them in the memo.
fn texts_before(bytes: &[u8], end: usize, starts: &mut Vec<usize>, steps: &mut u64) {
    let bytes = &bytes[..end];
    texts_at_the_end(bytes, starts, steps);
    match bytes {
        [text @ .., op::MEMOIZE] => texts_at_the_end(text, starts, steps),
        [line @ .., b'\n'] => {
            // `PUT`, and a line with the index.
            let from = line.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            *steps += (line.len() - from) as u64;
            for at in (from..line.len()).filter(|at| line[*at] == op::PUT) {
                texts_at_the_end(&line[..at], starts, steps);
            }
        }
        _ => {}
    }
    if let [text @ .., op::BINPUT, _] = bytes {
        texts_at_the_end(text, starts, steps);
    }
    if let [text @ .., op::LONG_BINPUT, _, _, _, _] = bytes {
        texts_at_the_end(text, starts, steps);
    }
}

/// Adds the offsets of the strings that are names and reach to the end of `bytes`.
fn texts_at_the_end(bytes: &[u8], starts: &mut Vec<usize>, steps: &mut u64) {
    let run =
        |bytes: &[u8]| bytes.iter().rev().take_while(|byte| is_name_or_escape(**byte)).count();
    if let [line @ .., b'\n'] = bytes {
        let name = run(line);
        // At least one letter follows the opcode, which is a letter itself.
        let opcodes = line.len() - name..line.len().saturating_sub(1);
        starts.extend(opcodes.filter(|at| line[*at] == op::UNICODE));
        *steps += name as u64;
        // Any sign may stand for the quotes.
        if let [quoted @ .., _] = line {
            let name = run(quoted);
            let opcodes = (quoted.len() - name).saturating_sub(2)..quoted.len().saturating_sub(2);
            starts.extend(opcodes.filter(|at| quoted[*at] == op::STRING));
            *steps += name as u64;
        }
        return;
    }
    let name = run(bytes);
    *steps += name as u64;
    for len in 1..=name {
        let before = &bytes[..bytes.len() - len];
        let opcode = match before {
            [.., op::SHORT_BINUNICODE | op::SHORT_BINSTRING, stated]
                if usize::from(*stated) == len =>
            {
                2
            }
            [.., op::BINUNICODE | op::BINSTRING, a, b, c, d]
                if u32::from_le_bytes([*a, *b, *c, *d]) as usize == len =>
            {
                5
            }
            [.., op::BINUNICODE8, low, high, 0, 0, 0, 0, 0, 0]
                if usize::from(u16::from_le_bytes([*low, *high])) == len =>
            {
                9
            }
            _ => continue,
        };
        starts.push(before.len() - opcode);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(bytes: &[u8]) -> Vec<usize> {
        stacked(bytes, &mut 0)
    }

    #[test]
    fn finds_stacked_names_in_every_spelling() {
        let spellings: [&[u8]; 7] = [
            b"\x8c\x02os",
            b"X\x02\0\0\0os",
            b"\x8d\x02\0\0\0\0\0\0\0os",
            b"Vos\n",
            b"S'os'\n",
            b"T\x02\0\0\0os",
            b"U\x02os",
        ];
        let memos: [&[u8]; 5] = [b"", b"\x94", b"q\x07", b"r\x07\0\0\0", b"p7\n"];
        for module in spellings {
            for memo in memos {
                for name in spellings {
                    let names = [module, memo, name, memo].concat();
                    let bytes = [b"\xff\xff", &names[..]].concat();
                    assert!(found(&bytes).contains(&2), "{}", names.escape_ascii());
                }
            }
        }
        for not_names in
            [&b"\x8c\x02os\x8c\x03o s"[..], b"\x8c\x02os", b"\x8c\x02osN\x8c\x02os", b"S'os\n"]
        {
            assert!(found(not_names).is_empty(), "{}", not_names.escape_ascii());
        }
    }

    /// Bytes that could be read in many ways take few steps per byte.
    #[test]
    fn ambiguous_texts_take_few_steps() {
        for text in ["V", "pV", "U\x01", "Vp\n", "S'"] {
            let bytes = [text.repeat(300).as_bytes(), b"\n"].concat();
            let mut steps = 0;
            assert!(stacked(&bytes, &mut steps).len() <= MAX_PLACES);
            assert!(steps < 700 * bytes.len() as u64, "{text}: {steps}");
        }
    }
}
