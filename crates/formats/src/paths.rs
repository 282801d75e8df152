//! Names of files in a set, which may hold folders.

/// The name without its folders.
pub(crate) fn base(name: &str) -> &str {
    name.rsplit_once('/').map_or(name, |(_, base)| base)
}

/// The folder of a name with its `/`; empty at the top.
pub(crate) fn folder(name: &str) -> &str {
    &name[..name.len() - base(name).len()]
}
