//! What Python 2 called things, and what Python 3 still writes in protocols 0 to 2
//! (CPython's `_compat_pickle`).

use statelens_checkpoint::{Global, Text};

use crate::Node;

/// A `str` of Python 2: text if it can be, else bytes. Torch decodes it as UTF-8, too.
pub(crate) fn string(bytes: &[u8]) -> Node {
    match Text::from_surrogatepass(bytes) {
        Ok(text) => Node::Str(text),
        Err(_) => Node::Bytes(bytes.into()),
    }
}

/// The name in Python 3.
pub(crate) fn rename(module: String, name: String) -> Global {
    if let Some(row) = NAMES.iter().find(|row| row.0 == module && row.1 == name) {
        return Global::new(row.2, row.3);
    }
    match MODULES.iter().find(|row| row.0 == module) {
        Some(row) => Global::new(row.1, name),
        None => Global::new(module, name),
    }
}

const NAMES: [(&str, &str, &str, &str); 17] = [
    ("__builtin__", "xrange", "builtins", "range"),
    ("__builtin__", "reduce", "functools", "reduce"),
    ("__builtin__", "intern", "sys", "intern"),
    ("__builtin__", "unichr", "builtins", "chr"),
    ("__builtin__", "unicode", "builtins", "str"),
    ("__builtin__", "long", "builtins", "int"),
    ("itertools", "izip", "builtins", "zip"),
    ("itertools", "imap", "builtins", "map"),
    ("itertools", "ifilter", "builtins", "filter"),
    ("itertools", "ifilterfalse", "itertools", "filterfalse"),
    ("itertools", "izip_longest", "itertools", "zip_longest"),
    ("UserDict", "IterableUserDict", "collections", "UserDict"),
    ("UserDict", "UserDict", "collections", "UserDict"),
    ("UserList", "UserList", "collections", "UserList"),
    ("UserString", "UserString", "collections", "UserString"),
    ("whichdb", "whichdb", "dbm", "whichdb"),
    ("exceptions", "StandardError", "builtins", "Exception"),
];

const MODULES: [(&str, &str); 12] = [
    ("__builtin__", "builtins"),
    ("copy_reg", "copyreg"),
    ("exceptions", "builtins"),
    ("Queue", "queue"),
    ("SocketServer", "socketserver"),
    ("ConfigParser", "configparser"),
    ("repr", "reprlib"),
    ("cPickle", "pickle"),
    ("commands", "subprocess"),
    ("urllib2", "urllib.request"),
    ("httplib", "http.client"),
    ("thread", "_thread"),
];
