//! Paths of Python's `pathlib` as text: `PurePath.__str__` for the parts that a pickle holds.

/// Returns the path that `pathlib` makes of these parts, with the separator of its system. An empty
/// path is `.`.
pub fn path_text(windows: bool, parts: &[&str]) -> String {
    let separator = if windows { '\\' } else { '/' };
    let (start, rest) = if windows { windows_path(parts) } else { posix_path(parts) };
    let steps = rest.split(separator).filter(|step| !step.is_empty() && *step != ".");
    let steps: Vec<&str> = steps.collect();
    let text = start + &steps.join(&separator.to_string());
    if text.is_empty() { ".".to_owned() } else { text }
}

/// Joins parts as `posixpath.join` does. Returns the root, and the rest.
fn posix_path(parts: &[&str]) -> (String, String) {
    let mut path = String::new();
    for part in parts {
        if part.starts_with('/') {
            path.clear();
        } else if !path.is_empty() && !path.ends_with('/') {
            path.push('/');
        }
        path.push_str(part);
    }
    // Two slashes at the start have a meaning of their own, three are one.
    let root = match path.bytes().take_while(|byte| *byte == b'/').count() {
        0 => "",
        2 => "//",
        _ => "/",
    };
    (root.to_owned(), path)
}

/// Joins parts as `ntpath.join` does. Returns the drive with the root, and the rest.
fn windows_path(parts: &[&str]) -> (String, String) {
    let (mut drive, mut root, mut path) = (String::new(), false, String::new());
    for part in parts {
        let part = part.replace('/', "\\");
        let (own_drive, own_root, rest) = split_root(&part);
        if own_root {
            if !own_drive.is_empty() || drive.is_empty() {
                own_drive.clone_into(&mut drive);
            }
            (root, path) = (true, rest.to_owned());
            continue;
        }
        if !own_drive.is_empty() && own_drive != drive {
            if !own_drive.eq_ignore_ascii_case(&drive) {
                (drive, root, path) = (own_drive.to_owned(), false, rest.to_owned());
                continue;
            }
            own_drive.clone_into(&mut drive);
        }
        if !path.is_empty() && !path.ends_with('\\') {
            path.push('\\');
        }
        path.push_str(rest);
    }
    // A share is followed by a separator, a drive is not.
    let is_share = drive.starts_with('\\');
    if root || is_share {
        drive.push('\\');
    }
    (drive, path)
}

/// Splits a path into drive or share, whether a root follows, and the rest.
fn split_root(path: &str) -> (&str, bool, &str) {
    let end = if let Some(share) = path.strip_prefix("\\\\") {
        let server = share.find('\\').map(|at| at + 3);
        let share = server.and_then(|at| path[at..].find('\\').map(|end| at + end));
        share.unwrap_or(path.len())
    } else if path.as_bytes().get(1) == Some(&b':') && path.is_char_boundary(2) {
        2
    } else {
        0
    };
    let (drive, rest) = path.split_at(end);
    match rest.strip_prefix('\\') {
        Some(rest) => (drive, true, rest),
        None => (drive, false, rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values by `str(PurePosixPath(*parts))` and `str(PureWindowsPath(*parts))` of Python
    /// 3.11.
    #[test]
    fn joins_parts_as_python_does() {
        let posix: [(&[&str], &str); 10] = [
            (&[], "."),
            (&[""], "."),
            (&["."], "."),
            (&["a", "b"], "a/b"),
            (&["/", "data", "coco"], "/data/coco"),
            (&["a", "/b"], "/b"),
            (&["a//b/./c/"], "a/b/c"),
            (&["//host", "x"], "//host/x"),
            (&["///x"], "/x"),
            (&["a", "..", "b"], "a/../b"),
        ];
        for (parts, text) in posix {
            assert_eq!(path_text(false, parts), text, "{parts:?}");
        }
        let windows: [(&[&str], &str); 11] = [
            (&[], "."),
            (&["C:\\", "data", "coco"], "C:\\data\\coco"),
            (&["C:", "x"], "C:x"),
            (&["C:"], "C:"),
            (&["C:/a", "b/c"], "C:\\a\\b\\c"),
            (&["C:\\a", "\\b"], "C:\\b"),
            (&["C:\\a", "D:b"], "D:b"),
            (&["a", "b"], "a\\b"),
            (&["\\\\host\\share", "x"], "\\\\host\\share\\x"),
            (&["\\\\host\\share\\", "x"], "\\\\host\\share\\x"),
            (&["é", "."], "é"),
        ];
        for (parts, text) in windows {
            assert_eq!(path_text(true, parts), text, "{parts:?}");
        }
    }
}
