//! How monospaced texts wrap into lines. A virtual list needs the height of each row, and so its
//! number of lines, before the row is in the document. A style sheet that wraps the text determines
//! it only afterwards. The lines are drawn with these breaks, so that the browser makes no others.

/// Width in pixels of a character of the widest monospaced face, at 12 px.
pub const CHARACTER: f64 = 7.25;
/// Minimum width of a line, in characters.
const MIN_CHARACTERS: f64 = 8.0;

/// Returns the width in pixels of a character of the monospaced face, at 12 px.
pub type CharacterWidth<'a> = &'a dyn Fn(char) -> f64;

/// Splits a monospaced text into the lines that it has in a column of this width in pixels. A line
/// preferably ends after one of `breaks`; it ends within a part only if that is longer than a line.
pub fn text_lines<'a>(
    text: &'a str,
    breaks: &[char],
    width: f64,
    measure: CharacterWidth<'_>,
) -> Vec<&'a str> {
    let room = width.max(MIN_CHARACTERS * measure('0'));
    // All characters of ASCII have one width.
    if text.is_ascii() && text.len() as f64 * measure('0') <= room {
        return vec![text];
    }
    let mut lines = Vec::new();
    // The offsets at which the line and the part begin, and the width of the line so far.
    let (mut line, mut part, mut used) = (0, 0, 0.0);
    for piece in text.split_inclusive(breaks) {
        let wide: f64 = piece.chars().map(measure).sum();
        if used > 0.0 && used + wide > room {
            lines.push(&text[line..part]);
            (line, used) = (part, 0.0);
        }
        if wide > room {
            for (at, character) in piece.char_indices() {
                let wide = measure(character);
                if used > 0.0 && used + wide > room {
                    lines.push(&text[line..part + at]);
                    (line, used) = (part + at, 0.0);
                }
                used += wide;
            }
        } else {
            used += wide;
        }
        part += piece.len();
    }
    lines.push(&text[line..]);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_wrap_after_separators() {
        let of = |text| text_lines(text, &['_'], 10.0 * CHARACTER, &|_| CHARACTER);
        assert_eq!(["", "ten_chars_"].map(of), [[""], ["ten_chars_"]]);
        assert_eq!(of("ten_chars_x"), ["ten_chars_", "x"]);
        // "post_" and "attention_" don't fit into one line.
        assert_eq!(of("post_attention_norm"), ["post_", "attention_", "norm"]);
        assert_eq!(of("xxxxxxxxxxxxxxxxxxxxxxxxx"), ["xxxxxxxxxx", "xxxxxxxxxx", "xxxxx"]);
        assert_eq!(of("a_xxxxxxxxxxx_b"), ["a_", "xxxxxxxxxx", "x_b"]);
    }

    #[test]
    fn wide_characters_take_their_width() {
        let measure = |character: char| if character.is_ascii() { 7.0 } else { 12.0 };
        assert_eq!(text_lines("layer_\u{5c42}\u{5c42}", &['_'], 66.0, &measure).len(), 1);
        assert_eq!(text_lines("layer_\u{5c42}\u{5c42}", &['_'], 65.0, &measure).len(), 2);
    }
}
