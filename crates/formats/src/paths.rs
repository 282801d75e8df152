//! Names of files in a set, which may include folders.

/// Returns the name without its folders.
pub(crate) fn base(name: &str) -> &str {
    name.rsplit_once('/').map_or(name, |(_, base)| base)
}

/// Returns the folder of a name with its trailing `/`, or an empty string.
pub(crate) fn folder(name: &str) -> &str {
    &name[..name.len() - base(name).len()]
}
