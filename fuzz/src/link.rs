//! Links with a summary: the input is a packed outline, after inflating. If it opens, packing it
//! again and opening the result gives the same outline.

use statelens_describe::share::{
    KeysAs, LinkOptions, Outline, link, open_link, write_html, write_json, write_markdown,
    write_text,
};

pub(crate) fn run(bytes: &[u8]) {
    // As text, which is mostly rejected at once.
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = open_link(text);
    }
    if let Ok(outline) = open_link(&stored("#s=1.", bytes)) {
        again(&outline);
    }
}

/// Writes the contents of a link in every way.
fn again(outline: &Outline) {
    for text in
        [write_html(outline), write_json(outline), write_markdown(outline), write_text(outline)]
    {
        assert!(!text.is_empty());
    }
    for keys in [KeysAs::Plain, KeysAs::Coded, KeysAs::Hidden] {
        // An outline that unfolds to a lot of data that does not fold again may be too long for a
        // link.
        let options = LinkOptions { keys, values: true, findings: true, statistics: true };
        let Ok(made) = link(outline, &options) else { continue };
        let again = open_link(&made).expect("a link that was just made opens");
        assert_eq!(again.entries.len(), outline.entries.len());
        if keys == KeysAs::Plain {
            assert_eq!(link(&again, &options).ok(), Some(made));
        }
    }
}

/// Makes a link whose data is a stored deflate block, so that the fuzzer's changes reach the
/// outline unchanged.
fn stored(mark: &str, bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let bytes = &bytes[..bytes.len().min(11_000)];
    let length = bytes.len() as u16;
    let mut data = vec![1];
    data.extend(length.to_le_bytes());
    data.extend((!length).to_le_bytes());
    data.extend(bytes);
    let mut out = String::from(mark);
    for three in data.chunks(3) {
        let at = |index: usize| u32::from(three.get(index).copied().unwrap_or(0));
        let word = at(0) << 16 | at(1) << 8 | at(2);
        for index in 0..=three.len() {
            out.push(char::from(LETTERS[(word >> (18 - 6 * index)) as usize & 63]));
        }
    }
    out
}
