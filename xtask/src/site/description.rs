//! Reads the description of the page from `index.html` and `Trunk.toml`, the files that Trunk
//! itself reads.
//!
//! It supports only the part of Trunk's language that these files use. Anything else is an error,
//! so that a site built by the tasks and one built by Trunk have the same contents.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

/// A page as Trunk describes it.
pub(crate) struct Description {
    /// The text of `index.html`, split before and after each tag that Trunk replaces.
    parts: Vec<Part>,
    /// The address of the site's folder, from `public_url` in `Trunk.toml`.
    pub(crate) public_url: String,
    /// The tag that starts the program, from `pattern_script` in `Trunk.toml`.
    pub(crate) script: String,
}

enum Part {
    Text(String),
    Asset(Asset),
}

/// The asset of a tag with `data-trunk`. Paths are relative to the repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asset {
    /// `<base>`: the address of the site's folder.
    Base,
    /// A file that gets a hash in its name and a link in the page.
    Linked { rel: &'static str, kind: Option<String>, file: String },
    /// A file that is copied into a folder of the site.
    File { file: String, folder: String },
    /// A folder that is copied into the site under its own name.
    Folder(String),
    /// The compiled program.
    Program(Program),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) manifest: String,
    /// The cargo profile that optimises it for speed.
    pub(crate) fast: String,
    /// The cargo profile that optimises it for size.
    pub(crate) small: String,
    /// Arguments of wasm-opt for the small one.
    pub(crate) wasm_opt: Vec<String>,
}

impl Description {
    /// Reads the two files in the folder `root`.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let text = |name: &str| {
            fs::read_to_string(root.join(name)).with_context(|| format!("reading {name}"))
        };
        Self::parse(&text("index.html")?, &text("Trunk.toml")?)
    }

    fn parse(index: &str, trunk: &str) -> Result<Self> {
        let mut parts = Vec::new();
        let mut rest = index;
        while let Some(at) = rest.find(" data-trunk") {
            let (before, after) = rest.split_at(at);
            let start = before.rfind('<').context("index.html: `data-trunk` is not in a tag")?;
            let end = at + after.find('>').context("index.html: a tag does not end")?;
            parts.push(Part::Text(rest[..start].to_owned()));
            let tag = &rest[start + 1..end];
            let asset = asset(tag).with_context(|| format!("index.html: <{tag}>"))?;
            parts.push(Part::Asset(asset));
            rest = &rest[end + 1..];
        }
        parts.push(Part::Text(rest.to_owned()));
        let setting = |name| setting(trunk, name);
        Ok(Self { parts, public_url: setting("public_url")?, script: setting("pattern_script")? })
    }

    /// Returns the assets in the order of the page.
    pub(crate) fn assets(&self) -> impl Iterator<Item = &Asset> {
        self.parts.iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Asset(asset) => Some(asset),
        })
    }

    pub(crate) fn program(&self) -> Result<&Program> {
        let program = self.assets().find_map(|asset| match asset {
            Asset::Program(program) => Some(program),
            _ => None,
        });
        program.context("index.html has no tag with rel=\"rust\"")
    }

    /// Returns the page with each asset replaced by the text that `tag` returns for it.
    pub(crate) fn page(&self, mut tag: impl FnMut(&Asset) -> Result<String>) -> Result<String> {
        let mut page = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => page.push_str(text),
                Part::Asset(asset) => page.push_str(&tag(asset)?),
            }
        }
        Ok(page)
    }
}

/// Parses a tag, given without its angle brackets.
fn asset(tag: &str) -> Result<Asset> {
    let (name, rest) = tag.split_once(' ').context("it has no attributes")?;
    let mut attributes = attributes(rest)?;
    let mut take = |name: &str| {
        let at = attributes.iter().position(|(own, _)| *own == name)?;
        Some(attributes.swap_remove(at).1.to_owned())
    };
    let asset = if name == "base" {
        take("data-trunk-public-url").context("`data-trunk-public-url` is missing")?;
        Asset::Base
    } else {
        take("data-trunk").context("`data-trunk` is missing")?;
        let file = take("href").context("`href` is missing")?;
        match take("rel").as_deref() {
            Some("icon") => Asset::Linked { rel: "icon", kind: take("type"), file },
            Some("css") => Asset::Linked { rel: "stylesheet", kind: None, file },
            Some("copy-file") => {
                Asset::File { file, folder: take("data-target-path").unwrap_or_default() }
            }
            Some("copy-dir") => Asset::Folder(file),
            Some("rust") => {
                let mut need = |name| take(name).with_context(|| format!("`{name}` is missing"));
                let (fast, small) =
                    (need("data-cargo-profile-dev")?, need("data-cargo-profile-release")?);
                let level = format!("-O{}", need("data-wasm-opt")?);
                let more = need("data-wasm-opt-params")?;
                let wasm_opt = [level].into_iter().chain(more.split(' ').map(str::to_owned));
                let wasm_opt = wasm_opt.collect();
                Asset::Program(Program { manifest: file, fast, small, wasm_opt })
            }
            other => bail!("`cargo xtask` does not know rel={other:?}; add it to {}", file!()),
        }
    };
    if let Some((name, _)) = attributes.first() {
        bail!("`cargo xtask` does not know the attribute `{name}` here; add it to {}", file!());
    }
    Ok(asset)
}

/// Splits `one two="2"` into names and values; an attribute without a value gets an empty one.
fn attributes(mut text: &str) -> Result<Vec<(&str, &str)>> {
    let mut found = Vec::new();
    loop {
        text = text.trim_start();
        if text.is_empty() {
            return Ok(found);
        }
        let end = text.find([' ', '=']).unwrap_or(text.len());
        let (name, rest) = text.split_at(end);
        if let Some(rest) = rest.strip_prefix("=\"") {
            let (value, rest) = rest.split_once('"').context("a quote is missing")?;
            found.push((name, value));
            text = rest;
        } else if rest.starts_with('=') {
            bail!("the value of `{name}` is not in double quotes");
        } else {
            found.push((name, ""));
            text = rest;
        }
    }
}

/// Returns the value of the line `name = "value"` of a TOML file; the quotes may also be single.
fn setting(toml: &str, name: &str) -> Result<String> {
    let value = toml.lines().find_map(|line| {
        let value = line.strip_prefix(name)?.trim_start().strip_prefix('=')?.trim();
        let quoted = |quote| value.strip_prefix(quote)?.strip_suffix(quote);
        quoted('"').or_else(|| quoted('\'')).map(str::to_owned)
    });
    value.with_context(|| format!("Trunk.toml has no line `{name} = \"…\"`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRUNK: &str = "[build]\npublic_url = \"./\"\npattern_script = '<script src=\"a\">'\n";

    #[test]
    fn parses_the_page_of_the_repository() {
        let page = Description::read(crate::project::root()).unwrap();
        assert_eq!(page.public_url, "./");
        assert!(page.script.contains("data-wasm=\"{base}{wasm}\""), "{}", page.script);
        let program = page.program().unwrap();
        assert_eq!(program.manifest, "web/app/Cargo.toml");
        let built = page.page(|_| Ok(String::new())).unwrap();
        assert!(
            !built.contains("data-trunk")
                && built.contains("<script type=\"module\" src=\"files.js\">")
        );
    }

    #[test]
    fn replaces_asset_tags_only() {
        let index = "<a><base data-trunk-public-url>\n<link data-trunk rel=\"css\" href=\"b.css\">c\
                     <link data-trunk rel=\"copy-file\" href=\"d\" data-target-path=\"e\">";
        let page = Description::parse(index, TRUNK).unwrap();
        let made = page.page(|asset| Ok(format!("{asset:?}"))).unwrap();
        let linked = Asset::Linked { rel: "stylesheet", kind: None, file: "b.css".into() };
        let file = Asset::File { file: "d".into(), folder: "e".into() };
        assert_eq!(made, format!("<a>Base\n{linked:?}c{file:?}"));
    }

    #[test]
    fn unknown_tags_are_errors() {
        for index in [
            "<link data-trunk rel=\"sass\" href=\"a\">",
            "<link data-trunk rel=\"css\" href=\"a\" data-inline>",
            "<link data-trunk rel=\"css\">",
            "<link data-trunk rel=css href=\"a\">",
        ] {
            assert!(Description::parse(index, TRUNK).is_err(), "{index}");
        }
        assert!(Description::parse("", "").is_err());
    }
}
