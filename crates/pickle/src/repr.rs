//! Python's `repr` of known harmless objects.

use std::fmt::Write;
use std::sync::Arc;

use statelens_checkpoint::{Form, Global, Int, Text, float_repr, has_word};

use crate::graph::is_dill;
use crate::pathlib::path_text;
use crate::python2::Spelled;
use crate::{Node, NodeId, Pickle};

/// Maximum nesting of a printed value; deeper ones have no text.
const DEPTH: usize = 12;
/// Maximum length of the text.
pub(crate) const LENGTH: usize = 4096;

impl Pickle {
    /// Returns Python's `repr` of the object, if all of it is harmless and known.
    pub fn repr(&self, id: NodeId) -> Option<String> {
        let mut out = String::new();
        self.print(id, DEPTH, &mut out)?;
        Some(out)
    }

    /// Appends the `repr`, descending at most `depth` levels and stopping at `LENGTH`.
    fn print(&self, id: NodeId, depth: usize, out: &mut String) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match self.node(id) {
            Node::None => out.push_str("None"),
            Node::Bool(value) => out.push_str(if *value { "True" } else { "False" }),
            // Checked in advance, since printing a long integer costs more than its length.
            Node::Int(value) if value.to_i64().is_none() && value.to_le_bytes().len() > 500 => {
                return None;
            }
            Node::Int(value) => out.push_str(&value.to_string()),
            Node::Float(value) => out.push_str(&float_repr(*value)),
            Node::Str(text) if text.as_bytes().len() > LENGTH => return None,
            Node::Str(text) => text_repr(text, out),
            Node::Bytes(bytes) | Node::ByteArray(bytes) if bytes.len() > LENGTH => return None,
            Node::Bytes(bytes) => bytes_repr(bytes, out),
            Node::ByteArray(bytes) => {
                out.push_str("bytearray(");
                bytes_repr(bytes, out);
                out.push(')');
            }
            Node::List(items) => self.print_items("[", items, "]", depth, out)?,
            Node::Tuple(items) => {
                let items = self.items(*items);
                let end = if items.len() == 1 { ",)" } else { ")" };
                self.print_items("(", items, end, depth, out)?;
            }
            Node::Set(items) if items.is_empty() => out.push_str("set()"),
            Node::Set(items) => self.print_items("{", items, "}", depth, out)?,
            Node::FrozenSet(items) if items.is_empty() => out.push_str("frozenset()"),
            Node::FrozenSet(items) => self.print_items("frozenset({", items, "})", depth, out)?,
            Node::Dict(entries) => {
                out.push('{');
                for (index, (key, value)) in entries.iter().enumerate() {
                    out.push_str(if index > 0 { ", " } else { "" });
                    self.print(*key, depth, out)?;
                    out.push_str(": ");
                    self.print(*value, depth, out)?;
                }
                out.push('}');
            }
            Node::Global(known) => out.push_str(&global(known)?),
            Node::Object(_) => self.object_repr(id, depth, out)?,
            Node::Persistent(_) | Node::Buffer(_) | Node::Extension(_) => return None,
        }
        (out.len() <= LENGTH).then_some(())
    }

    fn print_items(
        &self,
        start: &str,
        items: &[NodeId],
        end: &str,
        depth: usize,
        out: &mut String,
    ) -> Option<()> {
        join(start, items, end, out, |item, out| self.print(item, depth, out))
    }

    fn object_repr(&self, id: NodeId, depth: usize, out: &mut String) -> Option<()> {
        let object = self.object(id)?;
        if let Some(known) = self.global(id) {
            out.push_str(&global(&known)?);
            return Some(());
        }
        let (mut class, mut args) = self.call(id)?;
        if class.is("copyreg", "_reconstructor")
            && let [own, base, _] = args
            && self.global(*base)?.is("builtins", "object")
        {
            (class, args) = (self.global(*own)?, &[]);
        }
        if !object.items.is_empty() || !object.entries.is_empty() || object.kwargs.is_some() {
            return None;
        }
        match (&*class.module, &*class.name, args) {
            ("argparse", "Namespace", []) => self.namespace("Namespace", id, depth, out),
            ("types", "SimpleNamespace", []) => self.namespace("namespace", id, depth, out),
            ("pathlib" | "pathlib._local", name, parts) => self.path(name, parts, out),
            ("datetime", name, args) => self.date(name, args, depth, out),
            ("zoneinfo", "ZoneInfo._unpickle", [key, _]) => {
                out.push_str("zoneinfo.ZoneInfo(key=");
                self.print(*key, depth, out)?;
                out.push(')');
                Some(())
            }
            ("decimal", "Decimal", [_]) => self.print_items("Decimal(", args, ")", depth, out),
            ("fractions", "Fraction", [_, _]) => {
                self.print_items("Fraction(", args, ")", depth, out)
            }
            ("fractions", "Fraction", [text]) => {
                let text = self.str(*text).filter(|text| text.len() < 500)?;
                let (top, bottom) = text.split_once('/').unwrap_or((text, "1"));
                let both = (Int::parse(top)?, Int::parse(bottom)?);
                write!(out, "Fraction({}, {})", both.0, both.1).ok()
            }
            ("uuid", "UUID", []) => {
                let state = self.state(id)?;
                if self.dict(state)?.len() > 4 {
                    return None;
                }
                let Node::Int(value) = self.node(self.field(state, "int")?) else {
                    return None;
                };
                let mut bytes = [0; 17];
                let digits = value.to_le_bytes();
                bytes.get_mut(..digits.len())?.copy_from_slice(&digits);
                let hex: String = bytes[..16].iter().rev().map(|b| format!("{b:02x}")).collect();
                let (a, b, c, d, e) =
                    (&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]);
                write!(out, "UUID('{a}-{b}-{c}-{d}-{e}')").ok()
            }
            ("functools", "partial", _) => self.partial(id, depth, out),
            ("builtins", "complex", [real, imaginary]) => {
                out.push_str(&complex_repr(self.float(*real)?, self.float(*imaginary)?));
                Some(())
            }
            ("_codecs", "encode", _) | ("builtins", "bytes", _)
                if self.spelled_len(self.spelled(id)?) <= LENGTH =>
            {
                bytes_repr(&self.spelled_bytes(self.spelled(id)?)?, out);
                Some(())
            }
            ("builtins", "range", [start, stop, step]) => {
                let (start, stop, step) = (self.int(*start)?, self.int(*stop)?, self.int(*step)?);
                match step {
                    1 => write!(out, "range({start}, {stop})"),
                    _ => write!(out, "range({start}, {stop}, {step})"),
                }
                .ok()
            }
            ("builtins", "range", [_, _]) => self.print_items("range(", args, ")", depth, out),
            ("builtins", "range", [stop]) => write!(out, "range(0, {})", self.int(*stop)?).ok(),
            ("builtins", "bytearray", _) if self.spelled_len(self.spelled(id)?) <= LENGTH => {
                out.push_str("bytearray(");
                bytes_repr(&self.spelled_bytes(self.spelled(id)?)?, out);
                out.push(')');
                Some(())
            }
            ("builtins", "set", [items]) => match self.sequence(*items)? {
                [] => {
                    out.push_str("set()");
                    Some(())
                }
                items => self.print_items("{", items, "}", depth, out),
            },
            ("builtins", "slice", [_, _, _]) => self.print_items("slice(", args, ")", depth, out),
            ("builtins", "frozenset", [items]) => {
                let items = self.sequence(*items)?;
                match items {
                    [] => out.push_str("frozenset()"),
                    _ => self.print_items("frozenset({", items, "})", depth, out)?,
                }
                Some(())
            }
            ("builtins", name, args) if object.states.is_empty() && is_exception(name) => {
                out.push_str(name);
                self.print_items("(", args, ")", depth, out)
            }
            ("builtins", "type", [value]) => {
                let class = match self.node(*value) {
                    Node::None => "NoneType",
                    Node::Global(global) if global.is("builtins", "Ellipsis") => "ellipsis",
                    Node::Global(global) if global.is("builtins", "NotImplemented") => {
                        "NotImplementedType"
                    }
                    _ => return None,
                };
                write!(out, "<class '{class}'>").ok()
            }
            ("torch", "device", [kind]) => {
                write!(out, "device(type='{}')", self.str(*kind).filter(|kind| kind.len() < 100)?)
                    .ok()
            }
            ("torch", "device", [kind, index]) => {
                let kind = self.str(*kind).filter(|kind| kind.len() < 100)?;
                write!(out, "device(type='{kind}', index={})", self.int(*index)?).ok()
            }
            ("torch", "Size", [items]) => {
                let items = self.sequence(*items)?;
                self.print_items("torch.Size([", items, "])", depth, out)
            }
            ("torch.serialization", "_get_layout", [name]) => {
                out.push_str(self.str(*name).filter(|name| name.len() < 100)?);
                Some(())
            }
            (_, "_eval_repr", [text]) if is_dill(&class) => {
                let text = self.str(*text)?;
                matches!(text, "Ellipsis" | "NotImplemented").then(|| out.push_str(text))
            }
            _ => None,
        }
    }

    fn namespace(&self, name: &str, id: NodeId, depth: usize, out: &mut String) -> Option<()> {
        out.push_str(name);
        out.push('(');
        let entries = self.state(id).and_then(|state| self.dict(state)).unwrap_or_default();
        for (index, (key, value)) in entries.iter().enumerate() {
            let key = self.str(*key)?;
            // A name that is not an identifier is printed in another way, which is not implemented.
            if key.len() > LENGTH || !key.chars().all(|c| c == '_' || c.is_alphanumeric()) {
                return None;
            }
            write!(out, "{}{key}=", if index > 0 { ", " } else { "" }).ok()?;
            self.print(*value, depth, out)?;
        }
        out.push(')');
        Some(())
    }

    fn path(&self, name: &str, parts: &[NodeId], out: &mut String) -> Option<()> {
        let windows = matches!(name, "WindowsPath" | "PureWindowsPath");
        if !windows && !matches!(name, "PosixPath" | "PurePosixPath" | "Path" | "PurePath") {
            return None;
        }
        if parts.len() > LENGTH {
            return None;
        }
        let parts: Vec<&str> = parts.iter().map(|part| self.str(*part)).collect::<Option<_>>()?;
        if parts.iter().map(|part| part.len()).sum::<usize>() > LENGTH {
            return None;
        }
        let path = path_text(windows, &parts);
        let path = if windows { path.replace('\\', "/") } else { path };
        out.push_str(name);
        out.push('(');
        text_repr(&path.into(), out);
        out.push(')');
        Some(())
    }

    fn date(&self, name: &str, args: &[NodeId], depth: usize, out: &mut String) -> Option<()> {
        match (name, args) {
            ("timedelta", [days, seconds, micros]) => {
                let parts = [("days", days), ("seconds", seconds), ("microseconds", micros)];
                let mut text = Vec::new();
                for (name, id) in parts {
                    match self.int(*id)? {
                        0 => {}
                        value => text.push(format!("{name}={value}")),
                    }
                }
                let text = if text.is_empty() { "0".to_owned() } else { text.join(", ") };
                write!(out, "datetime.timedelta({text})").ok()
            }
            ("timezone", [offset]) => {
                // `timezone.utc` is pickled as a zero offset.
                let (_, zero) = self.call(*offset)?;
                if zero.iter().all(|part| self.int(*part) == Some(0)) {
                    out.push_str("datetime.timezone.utc");
                    return Some(());
                }
                self.print_items("datetime.timezone(", args, ")", depth, out)
            }
            ("timezone", [_, _]) => self.print_items("datetime.timezone(", args, ")", depth, out),
            ("date" | "time" | "datetime", [packed, zone @ ..]) => {
                let packed = self.packed(*packed)?;
                let fold = match (name, &*packed) {
                    ("time", [hour, ..]) => *hour,
                    ("datetime", [_, _, month, ..]) => *month,
                    _ => 0,
                };
                let numbers = match (name, &*packed) {
                    ("date", [hi, lo, month, day]) => {
                        vec![year(*hi, *lo), *month as u32, *day as u32]
                    }
                    ("time", [hour, minute, second, micros @ ..]) => {
                        trimmed(vec![], &[*hour & 0x7f, *minute, *second], micros)?
                    }
                    ("datetime", [hi, lo, month, day, hour, minute, second, micros @ ..]) => {
                        let date = vec![year(*hi, *lo), u32::from(*month & 0x7f), u32::from(*day)];
                        trimmed(date, &[*hour, *minute, *second], micros)?
                    }
                    _ => return None,
                };
                let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
                write!(out, "datetime.{name}({}", numbers.join(", ")).ok()?;
                if let [zone] = zone {
                    out.push_str(", tzinfo=");
                    self.print(*zone, depth, out)?;
                }
                out.push_str(if fold & 0x80 == 0 { ")" } else { ", fold=1)" });
                Some(())
            }
            _ => None,
        }
    }

    /// Returns the bytes of a packed date, which old protocols write as text.
    fn packed(&self, id: NodeId) -> Option<Arc<[u8]>> {
        let spelled = match (self.spelled(id)?, self.node(id)) {
            (Spelled::Raw(id), Node::Str(_)) => Spelled::Latin1(id),
            (spelled, _) => spelled,
        };
        (self.spelled_len(spelled) <= 20).then(|| self.spelled_bytes(spelled))?
    }

    fn partial(&self, id: NodeId, depth: usize, out: &mut String) -> Option<()> {
        let [function, args, keywords, _] = self.sequence(self.state(id)?)? else { return None };
        out.push_str("functools.partial(");
        self.print(*function, depth, out)?;
        for arg in self.sequence(*args)? {
            out.push_str(", ");
            self.print(*arg, depth, out)?;
        }
        for (key, value) in self.dict(*keywords)? {
            write!(out, ", {}=", self.str(*key).filter(|key| key.len() < 100)?).ok()?;
            self.print(*value, depth, out)?;
        }
        out.push(')');
        Some(())
    }
}

/// Returns Python's `repr` of a known class or constant.
pub(crate) fn global(global: &Global) -> Option<String> {
    let name = &*global.name;
    if name.len() > 100 {
        return None;
    }
    match &*global.module {
        "builtins" if matches!(name, "Ellipsis" | "NotImplemented") => Some(name.to_owned()),
        "builtins" if is_class(name) || is_exception(name) => Some(format!("<class '{name}'>")),
        "collections" | "decimal" | "fractions" | "uuid" | "datetime" | "pathlib"
            if name.starts_with(char::is_uppercase) || matches!(name, "defaultdict" | "deque") =>
        {
            Some(format!("<class '{global}'>"))
        }
        "numpy" if is_numpy_scalar(name) => Some(format!("<class '{global}'>")),
        "torch" if name.starts_with("per_") || name.starts_with("sparse_") || name == "strided" => {
            Some(global.to_string())
        }
        _ => None,
    }
}

/// Returns whether it is one of Python's own classes that only hold data.
pub(crate) fn is_class(name: &str) -> bool {
    const CLASSES: &str = "
        int float complex bool str bytes bytearray list tuple dict set frozenset object type range
        slice
    ";
    has_word(CLASSES, name)
}

fn is_exception(name: &str) -> bool {
    const OTHERS: &str = "Exception BaseException KeyboardInterrupt StopIteration";
    name.starts_with(char::is_uppercase)
        && (name.ends_with("Error") || name.ends_with("Warning") || has_word(OTHERS, name))
}

fn is_numpy_scalar(name: &str) -> bool {
    let kinds = "float int uint complex bool bool_ str_ bytes_ datetime timedelta void";
    has_word(kinds, name.trim_end_matches(|c: char| c.is_ascii_digit()))
}

fn year(high: u8, low: u8) -> u32 {
    u32::from(high) << 8 | u32::from(low)
}

/// Returns date and time without the parts that Python omits: microseconds if 0, then seconds if 0.
fn trimmed(date: Vec<u32>, time: &[u8; 3], micros: &[u8]) -> Option<Vec<u32>> {
    let [a, b, c] = micros else { return None };
    let micros = u32::from(*a) << 16 | u32::from(*b) << 8 | u32::from(*c);
    let mut numbers = date;
    numbers.extend(time.iter().map(|part| u32::from(*part)));
    if micros > 0 {
        numbers.push(micros);
    } else if time[2] == 0 {
        numbers.pop();
    }
    Some(numbers)
}

/// Returns Python's `repr` of a complex number: without `.0`, and without a real part of 0.
pub fn complex_repr(real: f64, imaginary: f64) -> String {
    let part = |value: f64| {
        let text = float_repr(value);
        text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
    };
    if real == 0.0 && real.is_sign_positive() {
        return format!("{}j", part(imaginary));
    }
    let sign = if imaginary.is_sign_negative() && !imaginary.is_nan() { "" } else { "+" };
    format!("({}{sign}{}j)", part(real), part(imaginary))
}

/// Appends items, separated by commas, between two texts; `print` appends one.
pub(crate) fn join(
    start: &str,
    items: &[NodeId],
    end: &str,
    out: &mut String,
    print: impl Fn(NodeId, &mut String) -> Option<()>,
) -> Option<()> {
    out.push_str(start);
    for (index, item) in items.iter().enumerate() {
        out.push_str(if index > 0 { ", " } else { "" });
        print(*item, out)?;
    }
    out.push_str(end);
    Some(())
}

/// Appends Python's `repr` of a string.
pub fn text_repr(text: &Text, out: &mut String) {
    let has = |quote| text.as_bytes().contains(&quote);
    let quote = if has(b'\'') && !has(b'"') { '"' } else { '\'' };
    out.push(quote);
    for piece in text.pieces() {
        match piece {
            Ok(piece) => piece.chars().for_each(|c| char_repr(c, quote, out)),
            Err(surrogate) => {
                let _ = write!(out, "\\u{surrogate:04x}");
            }
        }
    }
    out.push(quote);
}

fn char_repr(c: char, quote: char, out: &mut String) {
    let code = u32::from(c);
    match c {
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        _ if c == quote => out.extend(['\\', c]),
        ' '..='~' => out.push(c),
        _ if code < 0xa1 || code == 0xad => {
            let _ = write!(out, "\\x{code:02x}");
        }
        _ if is_printable(c) => out.push(c),
        _ if code <= 0xffff => {
            let _ = write!(out, "\\u{code:04x}");
        }
        _ => {
            let _ = write!(out, "\\U{code:08x}");
        }
    }
}

/// Like `str.isprintable`, for characters that occur: spaces, format and private characters are not
/// printable.
fn is_printable(c: char) -> bool {
    !c.is_whitespace()
        && !c.is_control()
        && !matches!(
            c,
            '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
                | '\u{e000}'..='\u{f8ff}' | '\u{feff}' | '\u{fff0}'..='\u{fffb}'
                | '\u{f0000}'..='\u{10ffff}'
        )
}

/// Appends Python's `repr` of a byte string.
pub fn bytes_repr(bytes: &[u8], out: &mut String) {
    let quote = if bytes.contains(&b'\'') && !bytes.contains(&b'"') { b'"' } else { b'\'' };
    out.push('b');
    out.push(char::from(quote));
    for byte in bytes {
        match *byte {
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            byte if byte == quote => out.extend(['\\', char::from(byte)]),
            b' '..=b'~' => out.push(char::from(*byte)),
            byte => {
                let _ = write!(out, "\\x{byte:02x}");
            }
        }
    }
    out.push(char::from(quote));
}

/// Formats arguments for a finding: like [`Pickle::repr`], with `…` for unknown objects.
impl Pickle {
    pub(crate) fn arguments(&self, args: NodeId) -> String {
        let mut out = String::new();
        let items = match self.sequence(args) {
            Some(items) => items,
            None => return "…".to_owned(),
        };
        for (index, item) in items.iter().enumerate().take(8) {
            out.push_str(if index > 0 { ", " } else { "" });
            out.push_str(&self.short(*item));
        }
        if items.len() > 8 {
            out.push_str(", …");
        }
        out
    }

    fn short(&self, id: NodeId) -> String {
        let text = self.repr(id).unwrap_or_else(|| match self.node(id) {
            Node::Global(global) => global.to_string(),
            Node::Object(object) => match self.global(object.callable) {
                Some(global) if object.form == Form::Reference => global.to_string(),
                Some(global) => format!("{global}(…)"),
                None => "…".to_owned(),
            },
            Node::Bytes(bytes) => format!("{} bytes", bytes.len()),
            Node::Str(text) => format!("'{text}'"),
            _ => "…".to_owned(),
        });
        match text.char_indices().nth(200) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        }
    }
}
