//! What is shown, as the part of an address behind its `#`, which no server is sent:
//! `#file=model.safetensors&key=model.layers.3.mlp.weight&slice=[120,576]&view=expanded`.

use std::fmt::Write as _;

/// What a link leads to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PageLink {
    /// The name of the file, if it is one that has to be given; nothing of one at an address.
    pub file: String,
    /// The second file of a comparison.
    pub with: String,
    /// The key that is looked at.
    pub key: String,
    /// Or the fold.
    pub fold: String,
    /// The index of the value that is looked at.
    pub slice: String,
    /// What stands in the filter box.
    pub filter: String,
    /// How it is looked at: a word, nothing for the table.
    pub view: String,
}

impl PageLink {
    /// What stands behind the `#`; `None` if that is nothing of this kind.
    #[must_use]
    pub fn parse(hash: &str) -> Option<Self> {
        let mut link = Self::default();
        for part in hash.strip_prefix('#')?.split('&') {
            let (name, text) = part.split_once('=')?;
            let (_, field) = link.fields().into_iter().find(|(known, _)| *known == name)?;
            *field = decoded(text);
        }
        Some(link)
    }

    /// What is to stand behind the address, with its `#`; nothing if it leads nowhere.
    #[must_use]
    pub fn hash(&self) -> String {
        let mut out = String::new();
        for (name, text) in self.clone().fields() {
            if !text.is_empty() {
                out.push(if out.is_empty() { '#' } else { '&' });
                out.push_str(name);
                out.push('=');
                encode(text, &mut out);
            }
        }
        out
    }

    /// Whether it is another view, rather than another selection in the same one.
    #[must_use]
    pub fn is_another_view(&self, other: &Self) -> bool {
        let expanded = |link: &Self| link.view == EXPANDED;
        expanded(self) != expanded(other)
    }

    fn fields(&mut self) -> [(&'static str, &mut String); 7] {
        [
            ("file", &mut self.file),
            ("with", &mut self.with),
            ("key", &mut self.key),
            ("fold", &mut self.fold),
            ("slice", &mut self.slice),
            ("filter", &mut self.filter),
            ("view", &mut self.view),
        ]
    }
}

/// The word of the whole matrix as a picture.
pub const EXPANDED: &str = "expanded";

/// The first value of a slice as an index: `[0:2, :]` begins at `[0, 0]`.
#[must_use]
pub fn first(slice: &str) -> String {
    let dims = slice.trim().trim_start_matches('[').trim_end_matches(']').split(',');
    let starts = dims.map(|dim| match dim.split(':').next().unwrap_or_default().trim() {
        "" => "0",
        start => start,
    });
    starts.collect::<Vec<_>>().join(",")
}

/// Texts stay readable: only what would end them, or what browsers write otherwise, is coded.
fn encode(text: &str, out: &mut String) {
    for c in text.chars() {
        if c.is_ascii_graphic() && !matches!(c, '%' | '&' | '#' | '"' | '<' | '>' | '`' | '+') {
            out.push(c);
        } else {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                // Writing to a string does not fail.
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
}

fn decoded(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let digit = |at: usize| after.get(at).and_then(|it| (*it as char).to_digit(16));
        match (byte, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                rest = &after[2..];
            }
            _ => {
                out.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_readable_and_come_back() {
        let link = PageLink {
            file: "my model.safetensors".into(),
            key: "model.layers.3.mlp/weight:0".into(),
            slice: "[120,576]".into(),
            view: EXPANDED.into(),
            ..PageLink::default()
        };
        let hash = "#file=my%20model.safetensors&key=model.layers.3.mlp/weight:0&slice=[120,576]&view=expanded";
        assert_eq!(link.hash(), hash);
        assert_eq!(PageLink::parse(hash), Some(link));
        assert_eq!(PageLink::default().hash(), "");
        for odd in ["a&b=c", "50%", "%41", "שלום\u{202e}.w", "a b+c", "nan>0 -x", "#"] {
            let link = PageLink { key: odd.into(), filter: odd.into(), ..PageLink::default() };
            assert_eq!(PageLink::parse(&link.hash()), Some(link), "{odd}");
        }
    }

    #[test]
    fn what_is_no_link_is_none() {
        for text in ["", "key=a", "#", "#s=abc", "#top", "#key=a&what=b"] {
            assert_eq!(PageLink::parse(text), None, "{text}");
        }
        // As browsers give back what is not ASCII, and as people write it.
        assert_eq!(PageLink::parse("#key=%C3%A9").unwrap().key, "é");
        assert_eq!(PageLink::parse("#key=é").unwrap().key, "é");
        assert_eq!(PageLink::parse("#key=%zz%4").unwrap().key, "%zz%4");
    }

    #[test]
    fn slices_begin_somewhere() {
        assert_eq!(first("[0:2, :]"), "0,0");
        assert_eq!(first("[3, 5:, -1]"), "3,5,-1");
    }
}
