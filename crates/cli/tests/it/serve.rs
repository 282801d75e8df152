//! `statelens serve` and `open` before they serve. The site itself is tested in a browser
//! (`tests/page/serve.test.mjs`), for which the command is built with the page in it.

use crate::common::{run, skipped};

#[test]
fn serve_without_the_page_explains_how_to_build_it() {
    if option_env!("STATELENS_SITE").is_some() {
        skipped("this build has the page in it");
        return;
    }
    let text = run(["serve", "--no-browser", "--port", "0"]).failed();
    assert!(
        text.contains("built without the page") && text.contains("cargo xtask build"),
        "{text}"
    );
}

#[test]
fn serve_refuses_missing_paths() {
    let text = run(["serve", "--no-browser", "/no/such/folder"]).failed();
    assert!(text.contains("/no/such/folder") && text.contains("can't be served"), "{text}");
    let text = run(["open", "--no-browser", "/no/such/file.mdl"]).failed();
    assert!(text.contains("the file does not exist"), "{text}");
    let this = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let text = run(["serve", "--no-browser", this]).failed();
    assert!(text.contains("not a folder") && text.contains("statelens open FILE"), "{text}");
}
