//! What Python 2 called things, and what Python 3 still writes in protocols 0 to 2
//! (CPython's `_compat_pickle` and `bytes.__reduce_ex__`).

use statelens_checkpoint::{Global, Text};

use crate::{Node, NodeId, Pickle};

/// A `str` of Python 2: text if it can be, else bytes. Torch decodes it as UTF-8, too.
pub(crate) fn string(bytes: &[u8]) -> Node {
    match Text::from_surrogatepass(bytes) {
        Ok(text) => Node::Str(text),
        Err(_) => Node::Bytes(bytes.into()),
    }
}

impl Pickle {
    /// How long the text is that spells bytes.
    pub(crate) fn spelled_len(&self, id: NodeId) -> Option<usize> {
        let (_, args) = self.call(id)?;
        match args {
            [] => Some(0),
            [data, ..] => match self.node(*data) {
                Node::Str(text) => Some(text.as_bytes().len()),
                Node::Bytes(data) => Some(data.len()),
                Node::Object(_) => match self.call(*data)? {
                    (_, [text, _]) => Some(self.text(*text)?.as_bytes().len()),
                    _ => None,
                },
                _ => None,
            },
        }
    }

    /// Bytes that protocols 0 to 2 spell as calls: `_codecs.encode('…', 'latin1')`, each
    /// character a byte, `builtins.bytearray(…)` of such, or nothing at all.
    pub(crate) fn spelled_bytes(&self, id: NodeId) -> Option<Vec<u8>> {
        let (global, args) = self.call(id)?;
        match (&*global.module, &*global.name, args) {
            ("_codecs", "encode", [text, encoding])
            | ("builtins", "bytes" | "bytearray", [text, encoding]) => {
                let Node::Str(text) = self.node(*text) else { return None };
                let latin = matches!(self.str(*encoding)?, "latin1" | "latin-1");
                let text = text.as_str().filter(|_| latin)?;
                text.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect()
            }
            ("builtins", "bytes" | "bytearray", []) => Some(Vec::new()),
            ("builtins", "bytes" | "bytearray", [data]) => match self.node(*data) {
                Node::Bytes(data) => Some(data.to_vec()),
                // One level: `bytearray(_codecs.encode(…))`.
                Node::Object(_) => {
                    let (inner, _) = self.call(*data)?;
                    inner.is("_codecs", "encode").then(|| self.spelled_bytes(*data))?
                }
                _ => None,
            },
            _ => None,
        }
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
