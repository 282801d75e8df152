//! Text that is pasted outside of input fields: an address, a path, or the name of a repository.

/// What a pasted text names.
#[derive(Debug, PartialEq)]
pub(super) enum PastedText<'a> {
    /// An HTTP or HTTPS address, or one of the Hugging Face Hub.
    Address(&'a str),
    /// A path on the user's machine, which a page can't open.
    Path(&'a str),
    /// A repository of the Hugging Face Hub: `owner/name`.
    Repository(&'a str),
}

impl<'a> PastedText<'a> {
    /// Returns what the text names; `None` for any other text.
    pub(super) fn of(text: &'a str) -> Option<Self> {
        let text = text.trim();
        let text = text.strip_prefix('"').and_then(|it| it.strip_suffix('"')).unwrap_or(text);
        if ["https://", "http://", "hf://"].iter().any(|scheme| text.starts_with(scheme)) {
            return (!text.contains(char::is_whitespace)).then_some(Self::Address(text));
        }
        let is_foreign = text.contains("://") && !text.starts_with("file://");
        if is_foreign || text.is_empty() || text.lines().count() > 1 || text.chars().count() > 1_000
        {
            return None;
        }
        let drive = matches!(text.as_bytes(), [letter, b':', b'\\' | b'/', ..] if letter.is_ascii_alphabetic());
        let starts = ["/", "~/", "./", "../", "\\\\", "file://"];
        if drive || starts.iter().any(|start| text.starts_with(start)) {
            return Some(Self::Path(text));
        }
        let word = |part: &str| {
            let known = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            !part.is_empty() && !part.starts_with('.') && part.chars().all(known)
        };
        match text.split_once('/') {
            Some((_, name)) if statelens_formats::has_known_extension(name) => {
                Some(Self::Path(text))
            }
            Some((owner, name)) if word(owner) && word(name) => Some(Self::Repository(text)),
            _ => None,
        }
    }

    /// Returns the text that the address dialog begins with.
    pub(super) fn prompt(&self) -> String {
        match self {
            Self::Address(text) | Self::Path(text) => (*text).to_owned(),
            Self::Repository(name) => {
                format!("hf://{name}")
            }
        }
    }
}

/// Returns the command that opens a path, quoted for a shell.
pub(super) fn command(path: &str) -> String {
    let path = path.strip_prefix("file://").unwrap_or(path);
    let plain = path.chars().all(|c| c.is_ascii_alphanumeric() || "-_./~\\:".contains(c));
    match plain {
        true => format!("statelens open {path}"),
        false => format!("statelens open '{}'", path.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pasted_text_is_an_address_a_path_or_a_repository() {
        use PastedText::{Address, Path, Repository};
        for (text, expected) in [
            (" https://a.org/b.pt\n", Some(Address("https://a.org/b.pt"))),
            ("https://a.org/b c", None),
            ("/home/me/model.pt", Some(Path("/home/me/model.pt"))),
            ("~/my models/a.pt", Some(Path("~/my models/a.pt"))),
            ("\"C:\\models\\a.pt\"", Some(Path("C:\\models\\a.pt"))),
            ("runs/model.safetensors", Some(Path("runs/model.safetensors"))),
            ("meta-llama/Llama-2-7b", Some(Repository("meta-llama/Llama-2-7b"))),
            ("ftp://a.org/b.pt", None),
            ("hf://a/b@v1", Some(Address("hf://a/b@v1"))),
            ("a/b/c", None),
            ("either/or not", None),
            ("some words", None),
            ("", None),
            ("/a\n/b", None),
        ] {
            assert_eq!(PastedText::of(text), expected, "{text}");
        }
        let prompt = PastedText::of("meta-llama/Llama-2-7b").unwrap().prompt();
        assert_eq!(prompt, "hf://meta-llama/Llama-2-7b");
        assert_eq!(command("/a/b.pt"), "statelens open /a/b.pt");
        assert_eq!(command("/it's/b.pt"), r"statelens open '/it'\''s/b.pt'");
    }
}
