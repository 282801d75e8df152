//! Files that are named after their content: other links rely on what they hold, so they are not
//! replaced.

use std::fs;
use std::path::Path;

use crate::files::PathText as _;
use statelens_checkpoint::{Error, Result};

/// Fails if replacing `target` would change a file of a store in which names are checksums of
/// contents, such as the cache of the Hugging Face Hub.
pub fn check_not_addressed(target: &Path) -> Result<()> {
    let Ok(file) = fs::canonicalize(target) else { return Ok(()) };
    let is_link = fs::symlink_metadata(target).is_ok_and(|about| about.is_symlink());
    let Some(store) = store_of(&file, is_link) else { return Ok(()) };
    let (why, advice) = match is_link {
        true => (
            format!("this link leads to a file of {store}, which is named after its content"),
            "Write to another name, or replace the link with a copy of the file first.",
        ),
        false => (
            format!("this is a file of {store}, which is named after its content"),
            "Write to another name.",
        ),
    };
    Err(Error::refused(why).in_file(target.to_text()).coded("content-addressed").advice(advice))
}

/// Returns the store that a file belongs to. A file without a known store around it counts only if
/// a link leads to it: its name alone may look like a checksum.
fn store_of(file: &Path, is_link: bool) -> Option<&'static str> {
    let name = file.file_name()?.to_str()?;
    let folders: Vec<&str> =
        file.parent()?.components().rev().filter_map(|part| part.as_os_str().to_str()).collect();
    let folder = |at: usize| folders.get(at).copied().unwrap_or_default();
    let below = |outer: &str, inner: &str| folders.windows(2).any(|pair| pair == [inner, outer]);
    if folder(0) == "blobs" {
        let repository = file.ancestors().nth(2)?;
        let kinds = ["models--", "datasets--", "spaces--"];
        if kinds.iter().any(|kind| folder(1).starts_with(kind))
            || repository.join("snapshots").is_dir()
        {
            return Some("the Hugging Face cache");
        }
    }
    if below("annex", "objects") || is_annex_key(name) && is_link {
        return Some("git-annex");
    }
    if below("lfs", "objects") {
        return Some("Git LFS");
    }
    if below(".dvc", "cache") {
        return Some("the cache of DVC");
    }
    if name
        .strip_prefix("sha256")
        .and_then(|rest| rest.strip_prefix(['-', ':']))
        .is_some_and(is_sum)
    {
        return Some("a store of models, such as that of Ollama");
    }
    // Many stores divide their files into folders named after the first digits.
    let stem = name.strip_suffix(".dir").unwrap_or(name);
    let split = folder(0).len() == 2 && is_sum(&format!("{}{stem}", folder(0)));
    (is_link && (is_sum(stem) || split)).then_some("a store")
}

/// Returns whether a text is an MD5, SHA-1, SHA-2 or BLAKE checksum as hexadecimal digits.
fn is_sum(text: &str) -> bool {
    [32, 40, 56, 64, 96, 128].contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns whether a name is a key of git-annex: `SHA256E-s1024--DIGITS.safetensors`.
fn is_annex_key(name: &str) -> bool {
    let Some((backend, rest)) = name.split_once("-s") else { return false };
    let size = rest.split_once("--").map_or("", |(fields, _)| fields);
    let upper = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    !backend.is_empty()
        && backend.bytes().all(upper)
        && size.bytes().next().is_some_and(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUM: &str = "4d345b17c30c74af2ea603bc07102fd4bd7e0c614fa0536e9a91e05c2c99dbcf";

    #[cfg(unix)]
    #[test]
    fn refuses_files_named_after_their_content() {
        let top = tempfile::tempdir().unwrap();
        let top = fs::canonicalize(top.path()).unwrap();
        let linked = |path: &str| {
            let file = top.join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, b"weights").unwrap();
            let link = top.join("link.safetensors");
            let _ = fs::remove_file(&link);
            std::os::unix::fs::symlink(&file, &link).unwrap();
            (check_not_addressed(&link).is_err(), check_not_addressed(&file).is_err())
        };
        let annex = format!(".git/annex/objects/Xk/5p/SHA256E-s9--{SUM}.pt/SHA256E-s9--{SUM}.pt");
        // Refused through a link, and under their own names.
        for path in [
            format!("models--a--b/blobs/{SUM}"),
            "models--a--b/blobs/an-etag".to_owned(),
            annex,
            format!(".dvc/cache/files/md5/4d/{}", &SUM[2..32]),
            format!(".git/lfs/objects/4d/34/{SUM}"),
            format!("ollama/blobs/sha256-{SUM}"),
        ] {
            assert_eq!(linked(&path), (true, true), "{path}");
        }
        // A cache that has another name.
        fs::create_dir_all(top.join("mine/snapshots")).unwrap();
        assert_eq!(linked("mine/blobs/abc"), (true, true));
        // Refused through a link.
        for path in [
            format!("somewhere/{SUM}"),
            format!("shared/4d/{}", &SUM[2..32]),
            format!("shared/4d/{}.dir", &SUM[2..32]),
            format!("MD5-s9--{}", &SUM[..32]),
        ] {
            assert_eq!(linked(&path), (true, false), "{path}");
        }
        for path in ["plain.safetensors", "blobs/model.pt", "md/SHA-small--1.pt", "12/34.pt"] {
            assert_eq!(linked(path), (false, false), "{path}");
        }
        assert!(check_not_addressed(&top.join("absent")).is_ok());
    }
}
