//! What Python 2 called things, and what Python 3 still writes in protocols 0 to 2
//! (CPython's `_compat_pickle` and `bytes.__reduce_ex__`).

use std::sync::Arc;

use statelens_checkpoint::{Global, Text};

use crate::{Node, NodeId, Pickle};

/// A `str` of Python 2: text if it can be, else bytes. Torch decodes it as UTF-8, too.
pub(crate) fn string(bytes: &[u8]) -> Node {
    match Text::from_surrogatepass(bytes) {
        Ok(text) => Node::Str(text),
        Err(_) => Node::Bytes(bytes.into()),
    }
}

/// Where a byte string's bytes are in the graph, however the protocol spells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Spelled {
    /// As they are: a node of bytes, or of Python 2's text.
    Raw(NodeId),
    /// Each character of a text is a byte.
    Latin1(NodeId),
    /// There are none.
    Empty,
}

impl Pickle {
    /// Bytes as they are, or as protocols 0 to 2 spell them: `_codecs.encode('…', 'latin1')`,
    /// `builtins.bytearray(…)` of such, or nothing at all.
    pub(crate) fn spelled(&self, id: NodeId) -> Option<Spelled> {
        if let Node::Bytes(_) | Node::ByteArray(_) | Node::Str(_) = self.node(id) {
            return Some(Spelled::Raw(id));
        }
        let (global, args) = self.call(id)?;
        match (&*global.module, &*global.name, args) {
            ("_codecs", "encode", [text, encoding])
            | ("builtins", "bytes" | "bytearray", [text, encoding]) => {
                let Node::Str(_) = self.node(*text) else { return None };
                let latin = matches!(self.str(*encoding)?, "latin1" | "latin-1");
                latin.then_some(Spelled::Latin1(*text))
            }
            ("builtins", "bytes" | "bytearray", []) => Some(Spelled::Empty),
            ("builtins", "bytes" | "bytearray", [data]) => match self.node(*data) {
                Node::Bytes(_) => Some(Spelled::Raw(*data)),
                // One level: `bytearray(_codecs.encode(…))`.
                Node::Object(_) => {
                    let (inner, _) = self.call(*data)?;
                    inner.is("_codecs", "encode").then(|| self.spelled(*data))?
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// How many bytes there are, or more.
    pub(crate) fn spelled_len(&self, spelled: Spelled) -> usize {
        match spelled {
            Spelled::Empty => 0,
            Spelled::Raw(id) | Spelled::Latin1(id) => match self.node(id) {
                Node::Bytes(data) | Node::ByteArray(data) => data.len(),
                Node::Str(text) => text.as_bytes().len(),
                _ => 0,
            },
        }
    }

    /// The bytes; `None` if a text is not Latin-1.
    pub(crate) fn spelled_bytes(&self, spelled: Spelled) -> Option<Arc<[u8]>> {
        let id = match spelled {
            Spelled::Empty => return Some(Arc::new([])),
            Spelled::Raw(id) | Spelled::Latin1(id) => id,
        };
        match (self.node(id), spelled) {
            (Node::Bytes(data) | Node::ByteArray(data), _) => Some(data.clone()),
            (Node::Str(text), Spelled::Latin1(_)) => {
                let bytes = text.as_str()?.chars().map(|c| u8::try_from(u32::from(c)).ok());
                Some(bytes.collect::<Option<Vec<u8>>>()?.into())
            }
            (Node::Str(text), _) => Some(text.as_bytes().into()),
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
