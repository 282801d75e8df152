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
    /// The index of the value that is looked at; or the slice that is shown.
    pub slice: String,
    /// The index of the value that is looked at in a slice.
    pub at: String,
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
        expanded(self) != expanded(other) || self.key == other.key && self.part() != other.part()
    }

    /// What of the tensor is shown. The picture has the indices of dimensions that are not drawn dragged
    /// through, which are no views of their own.
    fn part(&self) -> Vec<&str> {
        let dims = self.slice.split(',').map(|dim| dim.trim_matches(['[', ']', ' ']));
        match (self.slice.contains(':'), self.view == EXPANDED) {
            (false, _) => Vec::new(),
            (true, false) => dims.collect(),
            (true, true) => dims.map(|dim| if dim.contains(':') { dim } else { "" }).collect(),
        }
    }

    fn fields(&mut self) -> [(&'static str, &mut String); 8] {
        [
            ("file", &mut self.file),
            ("with", &mut self.with),
            ("key", &mut self.key),
            ("fold", &mut self.fold),
            ("slice", &mut self.slice),
            ("at", &mut self.at),
            ("filter", &mut self.filter),
            ("view", &mut self.view),
        ]
    }
}

/// The word of the whole matrix as a picture.
pub const EXPANDED: &str = "expanded";

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
    fn another_slice_is_another_view_and_another_value_is_not() {
        let link = |slice: &str, view: &str| PageLink {
            key: "w".into(),
            slice: slice.into(),
            view: view.into(),
            ..PageLink::default()
        };
        for (one, other, wanted) in [
            ("", "[1,2]", false),
            ("[3,4]", "[1,2]", false),
            ("", "[0:2,:]", true),
            ("[1,2]", "[0:2,:]", true),
            ("[0:2,:]", "[0:3,:]", true),
        ] {
            for view in ["", EXPANDED] {
                let (one, other) = (link(one, view), link(other, view));
                assert_eq!(one.is_another_view(&other), wanted, "{one:?} {other:?}");
            }
        }
        let dragged =
            |view: &str| link("[0,:,3,:]", view).is_another_view(&link("[0,:,4,:]", view));
        assert_eq!((dragged(""), dragged(EXPANDED)), (true, false));
        let other = PageLink { key: "v".into(), ..PageLink::default() };
        assert!(!link("[0:2,:]", "").is_another_view(&other), "it is another key");
    }
}
