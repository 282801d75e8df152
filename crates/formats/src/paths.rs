//! Names of files in a set, which may include folders.

/// Returns the name without its folders.
pub(crate) fn base(name: &str) -> &str {
    name.rsplit_once('/').map_or(name, |(_, base)| base)
}

/// Returns the folder of a name with its trailing `/`, or an empty string.
pub(crate) fn folder(name: &str) -> &str {
    &name[..name.len() - base(name).len()]
}

/// Returns whether a path that should be relative leads out of its folder, on any system.
pub(crate) fn is_outside(path: &str) -> bool {
    let drive = path.as_bytes().get(1) == Some(&b':') && path.as_bytes()[0].is_ascii_alphabetic();
    path.starts_with(['/', '\\', '~'])
        || drive
        || path.contains("://")
        || path.split(['/', '\\']).any(|part| part == "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_paths_inside_the_folder_from_others() {
        for path in ["w.bin", "data/w.bin", "./w.bin", "a..b/c", "0", "1234", ""] {
            assert!(!is_outside(path), "{path}");
        }
        for path in
            ["/w", "../w", "a/../../w", "C:\\w", "..\\w", "\\\\host\\w", "http://x/w", "~/w"]
        {
            assert!(is_outside(path), "{path}");
        }
    }
}
