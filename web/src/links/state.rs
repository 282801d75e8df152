//! The page's view as the fragment of an address (the part after `#`), which is not sent to
//! servers: `#file=model.safetensors&key=model.layers.3.mlp.weight&slice=[120,576]&view=expanded`.

/// The target of a link.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PageLink {
    /// The name of the file that the user has to open; empty for a file at an address.
    pub file: String,
    /// The second file of a comparison.
    pub with: String,
    /// The selected key.
    pub key: String,
    /// The selected fold.
    pub fold: String,
    /// The index of the selected value, or the slice shown.
    pub slice: String,
    /// The index of the selected value within a slice.
    pub at: String,
    /// The text of the filter box.
    pub filter: String,
    /// The kind of view; empty for the table.
    pub view: String,
}

impl PageLink {
    /// Parses a fragment; `None` if it is not a link to a view.
    pub fn parse(hash: &str) -> Option<Self> {
        let mut link = Self::default();
        for part in hash.strip_prefix('#')?.split('&') {
            let (name, text) = part.split_once('=')?;
            let (_, field) = link.fields().into_iter().find(|(known, _)| *known == name)?;
            *field = decoded(text);
        }
        Some(link)
    }

    /// Returns the fragment with its `#`; empty if there is nothing to link to.
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

    /// Returns whether two links differ in the view, rather than only in the selection within it.
    pub fn is_another_view(&self, other: &Self) -> bool {
        let expanded = |link: &Self| link.view == EXPANDED;
        expanded(self) != expanded(other) || self.key == other.key && self.part() != other.part()
    }

    /// Returns the components of the slice that distinguish views. In a picture the user drags
    /// through the indices of dimensions that are not drawn; these do not count as views of their
    /// own.
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

/// The view of a whole matrix as a picture.
pub const EXPANDED: &str = "expanded";

/// Percent-encodes only the characters that would end the text or that browsers write differently,
/// so that links stay readable.
fn encode(text: &str, out: &mut String) {
    let plain = |byte: u8| byte.is_ascii_graphic() && !b"%&#\"<>`+".contains(&byte);
    out.push_str(&statelens_checkpoint::percent_encode(text.as_bytes(), plain));
}

fn decoded(text: &str) -> String {
    String::from_utf8_lossy(&statelens_checkpoint::percent_decode(text.as_bytes())).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_readable_and_round_trip() {
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
    fn rejects_other_fragments() {
        for text in ["", "key=a", "#", "#s=abc", "#top", "#key=a&what=b"] {
            assert_eq!(PageLink::parse(text), None, "{text}");
        }
        // Non-ASCII characters as browsers return them, and as people type them.
        assert_eq!(PageLink::parse("#key=%C3%A9").unwrap().key, "é");
        assert_eq!(PageLink::parse("#key=é").unwrap().key, "é");
        assert_eq!(PageLink::parse("#key=%zz%4").unwrap().key, "%zz%4");
    }

    #[test]
    fn slices_but_not_values_are_separate_views() {
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
