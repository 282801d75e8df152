//! The page in one file, `statelens.html`, which opens from disk by a double click.
//!
//! A page from disk can't fetch files, so everything is embedded: styles and scripts as they are,
//! and the Wasm, the examples and the model families compressed and encoded as text. Its content
//! security policy is the site's, except that scripts and styles are allowed by their hashes, and
//! that the worker, which is created from the page's own script, has the page's policy rather than
//! its own.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::built::{base64, built, files_under, gzip, integrity};
use crate::project;
use crate::site::{Asset, Description, REST_END};

/// Makes the file from a built site, and returns its path.
pub(crate) fn build(site: &Path) -> Result<PathBuf> {
    let page = single(site, project::root())?;
    let path = project::target().join("dist").join("statelens.html");
    fs::create_dir_all(path.parent().unwrap_or(&path))?;
    fs::write(&path, page).with_context(|| format!("writing {}", path.display()))?;
    Ok(path)
}

/// Makes a folder that holds nothing but the file, as its index, and returns its path.
pub(crate) fn folder(site: &Path) -> Result<PathBuf> {
    let folder = project::target().join("dist").join("single");
    fs::create_dir_all(&folder)?;
    fs::copy(build(site)?, folder.join("index.html"))?;
    Ok(folder)
}

/// Returns the text of the file. Files that are not built come from the repository, `root`.
fn single(site: &Path, root: &Path) -> Result<String> {
    let index = text(&root.join("index.html"))?;
    let mut styles = String::new();
    let mut icon = String::new();
    for asset in Description::read(root)?.assets() {
        let Asset::Linked { rel, file, .. } = asset else { continue };
        match *rel {
            "icon" => icon = base64(&fs::read(root.join(file))?),
            _ => styles.push_str(&text(&root.join(file))?),
        }
    }
    let files = text(&root.join("web/files.js"))?;
    let simd = text(&root.join("web/simd.js"))?;
    let embed = text(&root.join("web/embed.js"))?;
    let glue = text(&built(site, "statelens-app", ".js")?)?;
    let wasm = built(site, "statelens-app", "_bg.wasm")?;
    let wasm = fs::read(&wasm).with_context(|| format!("reading {}", wasm.display()))?;
    let start = text(&root.join("web/single.js"))?;
    let (glue, init) = plain(&glue)?;
    let program = format!("{glue}\n(async (init) => {{\n{start}}})({init});\n");
    for script in [&files, &simd, &embed, &program] {
        ensure!(
            !script.contains("</script") && !script.contains("<!--"),
            "a script can't be put into a page: it holds a tag"
        );
    }
    let mut packed = format!("{}\n", data("wasm", &wasm)?);
    if let Ok(rest) = built(site, "statelens-app", REST_END) {
        let rest = fs::read(&rest).with_context(|| format!("reading {}", rest.display()))?;
        packed.push_str(&format!("{}\n", data("rest", &rest)?));
    }
    for folder in ["examples", "families", "configs"] {
        for file in files_under(&site.join(folder))? {
            let bytes = fs::read(site.join(folder).join(&file))?;
            packed.push_str(&data(&format!("{folder}/{}", file.display()), &bytes)?);
            packed.push('\n');
        }
    }
    let policy = policy(
        one(&index, "Content-Security-Policy\" content=\"")?,
        &styles,
        &[&files, &simd, &embed, &program],
    )?;
    let description = one(&index, "<meta name=\"description\" content=\"")?;
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>Statelens</title>\n\
         <meta name=\"description\" content=\"{description}\">\n\
         <link rel=\"icon\" href=\"data:image/svg+xml;base64,{icon}\">\n\
         <style>{styles}</style>\n{packed}\
         <script type=\"module\">{files}</script>\n\
         <script type=\"module\">{simd}</script>\n\
         <script type=\"module\">{embed}</script>\n\
         <script type=\"module\" id=\"program\">{program}</script>\n</head>\n<body></body>\n</html>\n"
    ))
}

/// Turns the program's module into a classic script, and returns it with the name of its default
/// export.
fn plain(module: &str) -> Result<(String, &str)> {
    let (script, exports) = module.rsplit_once("export").context("it exports nothing")?;
    let exports =
        exports.trim().trim_start_matches('{').trim_end_matches(';').trim_end_matches('}');
    let name = exports.split(',').find_map(|export| export.trim().strip_suffix(" as default"));
    let name = name.context("the program's script has no default export")?.trim();
    // The default location of the Wasm, which is not used: here the Wasm is passed in.
    let script = script.replace("import.meta.url", "location.href");
    for word in ["export ", "export{", "import ", "import.", "import("] {
        ensure!(
            !script.contains(word),
            "the program's script is a module in more than its end: {word}"
        );
    }
    Ok((script, name))
}

/// Returns the site's policy, with scripts and styles allowed by their hashes.
fn policy(site: &str, styles: &str, scripts: &[&str]) -> Result<String> {
    let hashes: Vec<String> =
        scripts.iter().map(|script| format!("'{}'", integrity(script.as_bytes()))).collect();
    let mut policy = site.to_owned();
    for (from, to) in [
        ("script-src 'self'", format!("script-src {}", hashes.join(" "))),
        ("worker-src 'self'", "worker-src blob:".into()),
        ("style-src 'self'", format!("style-src '{}'", integrity(styles.as_bytes()))),
        // A worker created from a Blob has the policy of its page, and the worker makes the
        // requests to servers that the user agrees to.
        ("connect-src 'self'", "connect-src https: http:".into()),
        ("img-src 'self'", "img-src".into()),
        ("manifest-src 'self'; ", String::new()),
        ("base-uri 'self'", "base-uri 'none'".into()),
    ] {
        ensure!(policy.contains(from), "the policy in index.html has no {from}");
        policy = policy.replacen(from, &to, 1);
    }
    ensure!(!policy.contains("'self'"), "the policy allows what a page from disk can't have");
    Ok(policy)
}

/// Embeds bytes in a script element that is not executed: compressed and encoded as text.
fn data(id: &str, bytes: &[u8]) -> Result<String> {
    let packed = base64(&gzip(bytes)?);
    Ok(format!("<script type=\"application/octet-stream\" id=\"{id}\">{packed}</script>"))
}

/// Returns the text after `start` up to the next quote; `start` must occur exactly once.
fn one<'a>(page: &'a str, start: &str) -> Result<&'a str> {
    match every(page, start).as_slice() {
        [one] => Ok(one),
        found => bail!("index.html has {} times {start}", found.len()),
    }
}

fn every<'a>(page: &'a str, start: &str) -> Vec<&'a str> {
    page.split(start).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

fn text(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_contains_hashes_and_keeps_the_rest() {
        let site =
            one(include_str!("../../index.html"), "Content-Security-Policy\" content=\"").unwrap();
        let made = policy(site, "a{}", &["1", "2"]).unwrap();
        assert!(made.starts_with("default-src 'none'; script-src 'sha256-"), "{made}");
        assert!(made.contains("'wasm-unsafe-eval'") && made.contains("worker-src blob:"), "{made}");
        assert!(made.contains(&format!("style-src '{}'", integrity(b"a{}"))), "{made}");
        assert!(policy("default-src 'none'", "", &[]).is_err());
    }

    #[test]
    fn a_module_becomes_a_plain_script() {
        let long = "f(import.meta.url);\nexport { initSync, __wbg_init as default };\n";
        assert_eq!(plain(long).unwrap(), ("f(location.href);\n".into(), "__wbg_init"));
        let short = "let $b=1;export{a as initSync,$b as default};";
        assert_eq!(plain(short).unwrap(), ("let $b=1;".into(), "$b"));
        assert!(plain("let a=1;").is_err());
        assert!(plain("export function x(){};export{a as default}").is_err());
        assert!(plain("import a from \"b\";export{a as default}").is_err());
    }

    #[test]
    fn finds_text_that_occurs_exactly_once() {
        assert_eq!(one("<a href=\"x\"><b id=\"y\">", "id=\"").unwrap(), "y");
        assert!(one("id=\"x\" id=\"y\"", "id=\"").is_err());
        assert!(one("", "id=\"").is_err());
    }
}
