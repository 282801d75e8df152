//! Names and spellings of Python 2, some of which Python 3 still writes in protocols 0 to 2
//! (CPython's `_compat_pickle` and `bytes.__reduce_ex__`).

use std::sync::Arc;

use statelens_checkpoint::{Global, Text};

use crate::{Node, NodeId, Pickle};

/// Converts a `str` of Python 2: to text if it is valid, else to bytes. Torch decodes it as UTF-8,
/// too.
pub(crate) fn string(bytes: &[u8]) -> Node {
    match Text::from_surrogatepass(bytes) {
        Ok(text) => Node::Str(text),
        Err(_) => Node::Bytes(bytes.into()),
    }
}

/// The location of a byte string's bytes in the graph, however the protocol spells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Spelled {
    /// Directly: a node of bytes, or of Python 2's text.
    Raw(NodeId),
    /// A text with one character per byte.
    Latin1(NodeId),
    /// No bytes.
    Empty,
}

impl Pickle {
    /// Recognises bytes, directly or as spelled in protocols 0 to 2: `_codecs.encode('…',
    /// 'latin1')`, `builtins.bytearray(…)` of that, or a call without arguments.
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
                // Only one level: `bytearray(_codecs.encode(…))`.
                Node::Object(_) => {
                    let (inner, _) = self.call(*data)?;
                    inner.is("_codecs", "encode").then(|| self.spelled(*data))?
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the text that `str(…)` of constant arguments would return, to show a name that is
    /// computed in this way.
    pub(crate) fn computed_text(&self, id: NodeId) -> Option<Text> {
        if let Some(text) = self.text(id) {
            return Some(text);
        }
        let (global, args) = self.call(id)?;
        if !global.is("builtins", "str") {
            return None;
        }
        let [data, ..] = args else { return None };
        match (self.text(*data), self.spelled(*data)) {
            (Some(text), _) => Some(text),
            (None, Some(spelled)) => Text::from_surrogatepass(&self.spelled_bytes(spelled)?).ok(),
            (None, None) => None,
        }
    }

    /// Returns the number of bytes, or an upper bound of it.
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

    /// Returns the bytes; `None` if a text is not Latin-1.
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

/// Returns the name in Python 3, as its unpickler resolves it below protocol 3 (`_compat_pickle`).
pub(crate) fn rename(module: String, name: String) -> Global {
    if let Some(row) = NAMES.iter().find(|row| row.0 == module && row.1 == name) {
        return Global::new(row.2, row.3);
    }
    match MODULES.iter().find(|row| row.0 == module) {
        Some(row) => Global::new(row.1, name),
        None => Global::new(module, name),
    }
}

/// Renamed functions and types. Exceptions keep their names.
#[rustfmt::skip]
const NAMES: &[(&str, &str, &str, &str)] = &[
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
    ("UserList", "UserList", "collections", "UserList"),
    ("UserString", "UserString", "collections", "UserString"),
    ("whichdb", "whichdb", "dbm", "whichdb"),
    ("_socket", "fromfd", "socket", "fromfd"),
    ("_multiprocessing", "Connection", "multiprocessing.connection", "Connection"),
    ("multiprocessing.process", "Process", "multiprocessing.context", "Process"),
    ("multiprocessing.forking", "Popen", "multiprocessing.popen_fork", "Popen"),
    ("urllib", "ContentTooShortError", "urllib.error", "ContentTooShortError"),
    ("urllib", "getproxies", "urllib.request", "getproxies"),
    ("urllib", "pathname2url", "urllib.request", "pathname2url"),
    ("urllib", "quote_plus", "urllib.parse", "quote_plus"),
    ("urllib", "quote", "urllib.parse", "quote"),
    ("urllib", "unquote_plus", "urllib.parse", "unquote_plus"),
    ("urllib", "unquote", "urllib.parse", "unquote"),
    ("urllib", "url2pathname", "urllib.request", "url2pathname"),
    ("urllib", "urlcleanup", "urllib.request", "urlcleanup"),
    ("urllib", "urlencode", "urllib.parse", "urlencode"),
    ("urllib", "urlopen", "urllib.request", "urlopen"),
    ("urllib", "urlretrieve", "urllib.request", "urlretrieve"),
    ("urllib2", "HTTPError", "urllib.error", "HTTPError"),
    ("urllib2", "URLError", "urllib.error", "URLError"),
    ("multiprocessing", "AuthenticationError", "multiprocessing.context", "AuthenticationError"),
    ("multiprocessing", "BufferTooShort", "multiprocessing.context", "BufferTooShort"),
    ("multiprocessing", "ProcessError", "multiprocessing.context", "ProcessError"),
    ("multiprocessing", "TimeoutError", "multiprocessing.context", "TimeoutError"),
    ("__builtin__", "basestring", "builtins", "str"),
    ("exceptions", "StandardError", "builtins", "Exception"),
    ("UserDict", "UserDict", "collections", "UserDict"),
    ("socket", "_socketobject", "socket", "SocketType"),
];

/// Renamed modules. All exceptions are builtins in Python 3.
#[rustfmt::skip]
const MODULES: &[(&str, &str)] = &[
    ("exceptions", "builtins"),
    ("__builtin__", "builtins"),
    ("copy_reg", "copyreg"),
    ("Queue", "queue"),
    ("SocketServer", "socketserver"),
    ("ConfigParser", "configparser"),
    ("repr", "reprlib"),
    ("tkFileDialog", "tkinter.filedialog"),
    ("tkSimpleDialog", "tkinter.simpledialog"),
    ("tkColorChooser", "tkinter.colorchooser"),
    ("tkCommonDialog", "tkinter.commondialog"),
    ("Dialog", "tkinter.dialog"),
    ("Tkdnd", "tkinter.dnd"),
    ("tkFont", "tkinter.font"),
    ("tkMessageBox", "tkinter.messagebox"),
    ("ScrolledText", "tkinter.scrolledtext"),
    ("Tkconstants", "tkinter.constants"),
    ("Tix", "tkinter.tix"),
    ("ttk", "tkinter.ttk"),
    ("Tkinter", "tkinter"),
    ("markupbase", "_markupbase"),
    ("_winreg", "winreg"),
    ("thread", "_thread"),
    ("dummy_thread", "_dummy_thread"),
    ("dbhash", "dbm.bsd"),
    ("dumbdbm", "dbm.dumb"),
    ("dbm", "dbm.ndbm"),
    ("gdbm", "dbm.gnu"),
    ("xmlrpclib", "xmlrpc.client"),
    ("SimpleXMLRPCServer", "xmlrpc.server"),
    ("httplib", "http.client"),
    ("htmlentitydefs", "html.entities"),
    ("HTMLParser", "html.parser"),
    ("Cookie", "http.cookies"),
    ("cookielib", "http.cookiejar"),
    ("BaseHTTPServer", "http.server"),
    ("test.test_support", "test.support"),
    ("commands", "subprocess"),
    ("urlparse", "urllib.parse"),
    ("robotparser", "urllib.robotparser"),
    ("urllib2", "urllib.request"),
    ("anydbm", "dbm"),
    ("_abcoll", "collections.abc"),
    ("cPickle", "pickle"),
    ("_elementtree", "xml.etree.ElementTree"),
    ("FileDialog", "tkinter.filedialog"),
    ("SimpleDialog", "tkinter.simpledialog"),
    ("DocXMLRPCServer", "xmlrpc.server"),
    ("SimpleHTTPServer", "http.server"),
    ("CGIHTTPServer", "http.server"),
    ("UserDict", "collections"),
    ("UserList", "collections"),
    ("UserString", "collections"),
    ("whichdb", "dbm"),
    ("StringIO", "io"),
    ("cStringIO", "io"),
];
