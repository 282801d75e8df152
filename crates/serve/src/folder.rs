//! Serves the files of a folder, and never one outside it.

use std::fs::{self, File};
use std::io;
use std::path::{Component, Path, PathBuf};

use crate::{Request, Response, Site, content_type};

/// A folder whose regular files can be served.
#[derive(Debug)]
pub struct ServedFolder {
    top: PathBuf,
}

impl ServedFolder {
    /// Opens the folder at a path.
    ///
    /// # Errors
    /// If the folder does not exist.
    pub fn new(path: &Path) -> io::Result<Self> {
        Ok(Self { top: path.canonicalize()? })
    }

    /// Returns its canonical path.
    pub fn path(&self) -> &Path {
        &self.top
    }

    /// Returns the regular file at a decoded path, with symbolic links resolved; `None` if it does
    /// not exist or is outside the folder.
    pub fn locate(&self, path: &str) -> Option<PathBuf> {
        let path = Path::new(path);
        if path.as_os_str().is_empty() || !path.components().all(is_name) {
            return None;
        }
        let file = fs::canonicalize(self.top.join(path)).ok()?;
        // Checked before opening: opening a pipe would block until there is a writer.
        (file.starts_with(&self.top) && file.is_file()).then_some(file)
    }

    /// Returns a response with the file, or status 404.
    pub fn answer(&self, path: &str) -> Response {
        let opened = self.locate(path).and_then(|file| Some((File::open(&file).ok()?, file)));
        match opened {
            Some((opened, path)) => Response::file(opened, content_type(&path))
                .unwrap_or_else(|_| Response::text(404, "this file can't be read")),
            None => Response::text(404, "not found"),
        }
    }
}

/// Serves the folder as a static site, with `index.html` for the path of a folder.
impl Site for ServedFolder {
    fn answer(&self, request: &Request) -> Response {
        let Some(path) = request.path() else { return Response::text(400, "malformed address") };
        let path = path.trim_start_matches('/');
        match path.is_empty() || path.ends_with('/') {
            true => self.answer(&format!("{path}index.html")),
            false => self.answer(path),
        }
    }
}

/// Returns true for a plain name: not `..`, a root or a drive.
fn is_name(component: Component<'_>) -> bool {
    matches!(component, Component::Normal(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder `site` next to a file that must stay out of reach.
    fn site(name: &str) -> ServedFolder {
        let top = std::env::temp_dir().join(format!("statelens-{name}-{}", std::process::id()));
        let site = top.join("site");
        fs::create_dir_all(site.join("examples")).unwrap();
        fs::create_dir_all(top.join("site-2")).unwrap();
        fs::write(top.join("secret.txt"), "secret").unwrap();
        fs::write(top.join("site-2/secret.txt"), "secret").unwrap();
        fs::write(site.join("index.html"), "<p>page").unwrap();
        fs::write(site.join("examples/a b.wasm"), "wasm").unwrap();
        ServedFolder::new(&site).unwrap()
    }

    #[test]
    fn finds_files_inside_the_folder() {
        let folder = site("inside");
        assert!(folder.locate("index.html").is_some());
        assert!(folder.locate("examples/a b.wasm").is_some());
        assert!(folder.locate("examples").is_none(), "a folder is not a file");
        #[cfg(unix)]
        {
            let link = folder.path().join("same");
            std::os::unix::fs::symlink(folder.path().join("index.html"), link).unwrap();
            assert!(folder.locate("same").is_some(), "a link that stays inside");
        }
        fs::remove_dir_all(folder.path().parent().unwrap()).unwrap();
    }

    #[test]
    fn never_leaves_the_folder() {
        let folder = site("outside");
        #[cfg(unix)]
        {
            use std::os::unix::fs::symlink;
            symlink(folder.path().join("../secret.txt"), folder.path().join("link")).unwrap();
            symlink("..", folder.path().join("up")).unwrap();
        }
        for path in [
            "",
            ".",
            "..",
            "../secret.txt",
            "../site-2/secret.txt",
            "../site/index.html",
            "examples/../../secret.txt",
            "examples/../index.html",
            "/etc/passwd",
            "link",
            "up/secret.txt",
            "up/site/index.html/..",
        ] {
            assert_eq!(folder.locate(path), None, "{path}");
        }
        fs::remove_dir_all(folder.path().parent().unwrap()).unwrap();
    }
}
