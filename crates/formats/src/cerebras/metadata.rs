//! `__METADATA__`, the object that describes a checkpoint in S3, and what it says about the others.
//!
//! The Cerebras library writes one pickled dict of texts and loads it with `dill.loads`. Its pickler
//! (`dill.dumps`, protocol 4) uses eleven opcodes for it, none of which can name or call anything.
//! Only these are accepted: any other byte is refused before an entry is used. The library also loads
//! metadata in protocol 2 and 3, which set the memo with other opcodes; reading it is always refused.

use std::collections::{HashMap, HashSet};

use statelens_checkpoint::json::{Document, Id, JsonNode};
use statelens_checkpoint::{ByteOrder, DType, Error, Result, Text, numel, try_alloc};

use super::rtfx;

/// The name of the object.
pub const NAME: &str = "__METADATA__";
/// The end of the names of entries about values and objects.
pub(super) const SUFFIX: &str = ".__metadata__";
/// The maximum number of entries: a key takes at least two dozen bytes.
const MAX_ENTRIES: usize = 8 << 20;
/// Entries that the pickler writes between a mark and `SETITEMS`.
const BATCH: usize = 1_000;

mod opcode {
    pub(super) const PROTO: u8 = 0x80;
    pub(super) const FRAME: u8 = 0x95;
    pub(super) const EMPTY_DICT: u8 = b'}';
    pub(super) const MEMOIZE: u8 = 0x94;
    pub(super) const MARK: u8 = b'(';
    pub(super) const SHORT_BINUNICODE: u8 = 0x8c;
    pub(super) const BINUNICODE: u8 = b'X';
    pub(super) const BINFLOAT: u8 = b'G';
    pub(super) const NEWTRUE: u8 = 0x88;
    pub(super) const SETITEMS: u8 = b'u';
    pub(super) const STOP: u8 = b'.';
    /// `MEMOIZE` in the protocols before 4.
    pub(super) const BINPUT: u8 = b'q';
    pub(super) const LONG_BINPUT: u8 = b'r';
    /// Stands for `MARK` and `SETITEMS` around a last batch of one entry.
    pub(super) const SETITEM: u8 = b's';
}

/// The entries of `__METADATA__`.
#[derive(Debug, Default)]
pub(crate) struct Entries(HashMap<Box<[u8]>, Entry>);

#[derive(Debug, Clone, PartialEq)]
enum Entry {
    Text(Text),
    Float(f64),
    True,
}

/// An object of a checkpoint: a tensor, an array, or a pickled value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StoredObject {
    /// The name after the prefix of the checkpoint.
    pub(crate) name: String,
    pub(crate) facts: ObjectFacts,
    /// Whether a link leads to it, as in checkpoints of runs on Cerebras systems. The metadata then
    /// lacks the size and the compression, which only the header of the object has.
    pub(crate) linked: bool,
}

/// The facts about an object in the metadata or in the header of the object.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ObjectFacts {
    /// The serializer that restores the value (`__TYPE__`).
    pub(crate) class: Option<String>,
    /// The dtype that torch has.
    pub(crate) dtype: Option<DType>,
    /// The shape that torch has.
    pub(crate) shape: Option<Vec<u64>>,
    /// Shape, and name of the elements' dtype in NumPy.
    pub(crate) numpy: Option<(Vec<u64>, String)>,
    /// Whether the body is a Zstandard frame.
    pub(crate) compressed: Option<bool>,
    /// Bytes before compression.
    pub(crate) plain_len: Option<u64>,
    /// Bytes of the body.
    pub(crate) stored_len: Option<u64>,
    /// Whether a Cerebras system wrote it: booleans then take two bytes.
    pub(crate) rtfx: bool,
}

/// The classes of values that have an object.
pub(super) const CLASSES: [&str; 3] =
    ["TorchTensorSerializer", "NumpyArraySerializer", "ObjectSerializer"];

impl Entries {
    /// Parses the whole object. Fails at the first opcode that a genuine one does not have.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self> {
        let mut parser = Parser { bytes, at: 0 };
        parser.entries().map(Self)
    }

    /// Returns the text of an entry. Fails if it is not a text.
    pub(super) fn text(&self, name: &[u8]) -> Result<Option<&Text>> {
        match self.0.get(name) {
            None => Ok(None),
            Some(Entry::Text(text)) => Ok(Some(text)),
            Some(_) => Err(Error::damaged(format!(
                "the entry {} of `{NAME}` is not a text",
                Text::decode(name)
            ))),
        }
    }

    /// Passes the name and the text of each entry that has one.
    pub(super) fn each_text(&self, mut each: impl FnMut(&[u8], &Text) -> Result<()>) -> Result<()> {
        self.0.iter().try_for_each(|(name, entry)| match entry {
            Entry::Text(text) => each(name, text),
            _ => Ok(()),
        })
    }

    /// Returns the version of the format.
    pub(super) fn version(&self) -> Option<f64> {
        match self.0.get(&b"__version__"[..])? {
            Entry::Float(version) => Some(*version),
            _ => None,
        }
    }

    /// Returns whether the checkpoint was written to its end.
    pub(super) fn is_complete(&self) -> bool {
        self.0.get(&b"__SUCCESS__"[..]) == Some(&Entry::True)
    }

    /// Returns the objects of the checkpoint, sorted by name. Those of other checkpoints, to which
    /// links lead, are not among them. `address` is that of this checkpoint, if it is known.
    ///
    /// Entries that can't be understood are skipped: reading their values reports them.
    pub(crate) fn objects(&self, address: Option<&str>) -> Vec<StoredObject> {
        let mut found = Vec::new();
        let mut names = HashSet::new();
        for (name, entry) in &self.0 {
            let Entry::Text(text) = entry else { continue };
            let Some(flat) = name.strip_suffix(SUFFIX.as_bytes()) else { continue };
            let Ok(document) = Document::parse(text.as_bytes()) else { continue };
            let root = document.root();
            let Some(listed) = document.get(root, "__objects__") else { continue };
            for id in document.items(listed) {
                let Some(sub) = document.node(*id).text() else { continue };
                let about = [sub.as_bytes(), SUFFIX.as_bytes()].concat();
                let Some(id) = document.get(root, &about) else { continue };
                let object = match self_link(&document, id, flat, address) {
                    Some((key, id)) => {
                        // The metadata of the tensor around the link has its shape.
                        let outer = [
                            sub.as_bytes().strip_suffix(b"0").unwrap_or_default(),
                            b"1",
                            SUFFIX.as_bytes(),
                        ];
                        let outer = document.get(root, outer.concat());
                        let outer = outer.map(|id| ObjectFacts::of(&document, id));
                        let facts = ObjectFacts::of(&document, id).or(outer.unwrap_or_default());
                        named(&key, facts, true)
                    }
                    None if document.get(id, "path").is_some() => None,
                    None => {
                        let facts = ObjectFacts::of(&document, id);
                        let class = facts.class.as_deref().unwrap_or_default();
                        CLASSES.contains(&class).then(|| named(sub, facts, false)).flatten()
                    }
                };
                found.extend(object.filter(|object| names.insert(object.name.clone())));
            }
        }
        found.sort_by(|one, other| one.name.cmp(&other.name));
        found
    }
}

fn named(name: &Text, facts: ObjectFacts, linked: bool) -> Option<StoredObject> {
    Some(StoredObject { name: name.as_str()?.to_owned(), facts, linked })
}

/// Returns the key of an object of the same checkpoint that a link leads to, and what the link says
/// about it.
///
/// A run on Cerebras systems links each weight to itself, by the address at which it was written.
/// After a copy to another address these links still mean the object with the key of the value.
/// They differ from other links in that they don't describe their targets.
pub(super) fn self_link(
    document: &Document,
    link: Id,
    flat: &[u8],
    address: Option<&str>,
) -> Option<(Text, Id)> {
    let path = document.field(link, "path")?.text()?;
    let key = document.field(link, "key")?.text()?;
    let target = document.get(link, "metadata")?;
    let is_here = address.is_some_and(|here| is_same(&path.to_lossy(), here));
    let is_moved = key.as_bytes() == flat
        && path.to_lossy().to_ascii_lowercase().starts_with("s3://")
        && document.get(target, "__NUMPY__").is_none()
        && document.field(target, "__TYPE__").and_then(JsonNode::text)
            == Some(&"TorchTensorSerializer".into());
    (is_here || is_moved).then(|| (key.clone(), target))
}

/// Returns whether two addresses are the same to the library: bucket and key, whose leading slashes
/// don't count.
pub(super) fn is_same(one: &str, other: &str) -> bool {
    split(one).is_some_and(|one| Some(one) == split(other))
}

/// Splits the address of a checkpoint, `s3://bucket/key`, into the bucket and the key, as the
/// library does: a query and a fragment are dropped, and so are slashes before the key.
pub fn split(address: &str) -> Option<(&str, &str)> {
    let scheme = address.get(..5).filter(|scheme| scheme.eq_ignore_ascii_case("s3://"))?;
    let rest = &address[scheme.len()..];
    let rest = &rest[..rest.find(['?', '#']).unwrap_or(rest.len())];
    let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
    Some((bucket, key.trim_start_matches('/')))
}

impl ObjectFacts {
    /// Takes the facts from an object of JSON. Those of an unexpected type are skipped.
    pub(crate) fn of(document: &Document, id: Id) -> Self {
        let first = |name: &str| document.items(document.get(id, name)?).first().copied();
        let text = |id: Id| document.node(id).text().map(|text| text.to_lossy().into_owned());
        let number = |id: Id| match document.node(id) {
            JsonNode::Int(int) => int.to_u64(),
            _ => None,
        };
        let shape = |id: Id| -> Option<Vec<u64>> {
            let JsonNode::Array(dims) = document.node(id) else { return None };
            dims.iter().map(|dim| number(*dim)).collect()
        };
        let dtype = first("dtypes").and_then(|id| {
            let name = text(id)?;
            DType::from_torch_name(name.strip_prefix("torch.").unwrap_or(&name))
        });
        let code = || match document.node(first("rtfx_dtypes")?) {
            JsonNode::Int(code) => rtfx::dtype(code.to_i64()?),
            _ => None,
        };
        let numpy = document.get(id, "__NUMPY__").and_then(|about| {
            let dtype = text(document.get(about, "dtype")?)?;
            Some((shape(document.get(about, "shape")?)?, dtype))
        });
        Self {
            class: document.get(id, "__TYPE__").and_then(text),
            dtype: dtype.or_else(code),
            shape: first("shapes").and_then(shape),
            numpy,
            compressed: document.field(id, "compressed").and_then(|node| match node {
                JsonNode::Bool(flag) => Some(*flag),
                _ => None,
            }),
            plain_len: first("data_sizes").and_then(number),
            stored_len: first("boundaries").and_then(number),
            rtfx: document.field(id, "__RTFX__").is_some_and(JsonNode::is_true),
        }
    }

    /// Parses the header of an object: its user metadata in S3.
    pub(crate) fn parse(header: &str) -> Result<Self> {
        let document = Document::parse(header.as_bytes())
            .map_err(|error| error.context("the header `metadata` of the object"))?;
        let JsonNode::Object(_) = document.node(document.root()) else {
            return Err(Error::damaged("the header `metadata` of the object is not a JSON object"));
        };
        Ok(Self::of(&document, document.root()))
    }

    /// Returns these facts, completed with those of `other`.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            class: self.class.or(other.class),
            dtype: self.dtype.or(other.dtype),
            shape: self.shape.or(other.shape),
            numpy: self.numpy.or(other.numpy),
            compressed: self.compressed.or(other.compressed),
            plain_len: self.plain_len.or(other.plain_len),
            stored_len: self.stored_len.or(other.stored_len),
            rtfx: self.rtfx || other.rtfx,
        }
    }

    /// Returns the dtype of the elements in the body and their byte order; an error for a dtype that
    /// the library can't load.
    pub(super) fn elements(&self) -> Result<Option<(DType, ByteOrder)>> {
        if let Some((_, name)) = &self.numpy {
            return numpy_dtype(name).map(Some).ok_or_else(|| {
                Error::unsupported(format!("an array of {name}, which can't be loaded"))
            });
        }
        let stored = self.dtype.clone().map(|dtype| match dtype {
            DType::Bool if self.rtfx => DType::I16,
            dtype => dtype,
        });
        Ok(stored.map(|dtype| (dtype, ByteOrder::Little)))
    }

    /// Returns the number of bytes of the elements; `None` if it is not known or does not fit.
    pub(crate) fn elements_len(&self) -> Option<u64> {
        let shape = self.numpy.as_ref().map(|(shape, _)| shape).or(self.shape.as_ref())?;
        let (dtype, _) = self.elements().ok()??;
        dtype.bytes_of(numel(shape)?)
    }

    /// Completes the facts of an object of `len` bytes that has no header, as on disk: the length says
    /// how wide a boolean is.
    pub(crate) fn without_header(self, linked: bool, len: u64) -> Self {
        let elements = self.shape.as_ref().and_then(|shape| numel(shape));
        let wide = elements.and_then(|elements| elements.checked_mul(2)) == Some(len);
        let rtfx = self.rtfx || linked && self.dtype == Some(DType::Bool) && wide;
        Self { rtfx, ..self }
    }

    /// Returns the number of bytes of the body, if the facts suffice to know it. That of a body to
    /// which a link leads is its most likely one: such objects are rarely compressed.
    pub(crate) fn body_len(&self, linked: bool) -> Option<u64> {
        let described = self.numpy.is_some() || self.class.as_deref() == Some("ObjectSerializer");
        match self.compressed {
            None if linked && !described => Self { rtfx: true, ..self.clone() }.elements_len(),
            Some(false) if self.numpy.is_some() => self.elements_len(),
            Some(_) if described => self.stored_len,
            _ => None,
        }
    }
}

/// Parses the text of a dtype of NumPy (`str(dtype)`): `float32`, `>f4`, `|S2`, `<U2`. Returns `None`
/// for records and objects.
fn numpy_dtype(name: &str) -> Option<(DType, ByteOrder)> {
    if let Some(code) = name.strip_prefix(['<', '>', '|', '=']) {
        let order = if name.starts_with('>') { ByteOrder::Big } else { ByteOrder::Little };
        return Some((DType::from_numpy_code(code)?, order));
    }
    // NumPy and torch have the same names for these.
    let is_shared = |dtype: &DType| dtype.numpy_code().is_some();
    let dtype = DType::from_torch_name(name).filter(is_shared);
    Some((dtype.or_else(|| DType::from_numpy_name(name))?, ByteOrder::Little))
}

struct Parser<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Parser<'_> {
    fn entries(&mut self) -> Result<HashMap<Box<[u8]>, Entry>> {
        if self.bytes.is_empty() {
            return Err(Error::damaged(format!("`{NAME}` is empty"))
                .advice("Saving the checkpoint or copying it did not finish."));
        }
        let mut entries = HashMap::new();
        let (proto, version) = (self.byte()?, self.byte()?);
        if proto != opcode::PROTO || !(2..=5).contains(&version) {
            return Err(self.refused(0, "it does not begin as a pickle of protocol 4"));
        }
        let is_old = version < 4;
        let (mut dict, mut batch) = (false, None);
        let mut pending: Vec<Entry> = Vec::new();
        loop {
            let start = self.at;
            match self.byte()? {
                opcode::FRAME => {
                    let len = u64::from_le_bytes(self.array()?);
                    if len > (self.bytes.len() - self.at) as u64 {
                        return Err(self.cut());
                    }
                }
                opcode::MEMOIZE if dict => {}
                opcode::BINPUT if dict && is_old => drop(self.byte()?),
                opcode::LONG_BINPUT if dict && is_old => drop(self.array::<4>()?),
                opcode::EMPTY_DICT if !dict => dict = true,
                opcode::MARK if dict && batch.is_none() && pending.is_empty() => batch = Some(()),
                opcode::SHORT_BINUNICODE if dict => {
                    let len = self.byte()?;
                    try_alloc::push(&mut pending, self.text(start, len.into())?)?;
                }
                opcode::BINUNICODE if dict => {
                    let len = u32::from_le_bytes(self.array()?);
                    try_alloc::push(&mut pending, self.text(start, len as usize)?)?;
                }
                opcode::BINFLOAT if dict => {
                    pending.push(Entry::Float(f64::from_be_bytes(self.array()?)));
                }
                opcode::NEWTRUE if dict => pending.push(Entry::True),
                opcode::SETITEMS if batch.take().is_some() => {
                    self.insert(start, &mut pending, &mut entries)?;
                }
                opcode::SETITEM
                    if batch.is_none()
                        && pending.len() == 2
                        && !entries.is_empty()
                        && entries.len() % BATCH == 0 =>
                {
                    self.insert(start, &mut pending, &mut entries)?;
                }
                opcode::STOP if dict && batch.is_none() && pending.is_empty() => break,
                other => {
                    return Err(self.refused(
                        start,
                        &format!("the byte {other:#04x} is not one that belongs there"),
                    ));
                }
            }
            if pending.len() > 2 * BATCH {
                return Err(self.refused(start, "more entries at once than the library writes"));
            }
        }
        match self.at == self.bytes.len() {
            true => Ok(entries),
            false => Err(self.refused(self.at, "there are bytes after its end")),
        }
    }

    fn insert(
        &self,
        at: usize,
        pending: &mut Vec<Entry>,
        entries: &mut HashMap<Box<[u8]>, Entry>,
    ) -> Result<()> {
        let mut items = pending.drain(..);
        while let Some(key) = items.next() {
            let (Entry::Text(key), Some(value)) = (key, items.next()) else {
                return Err(self.refused(at, "an entry is not a name with a value"));
            };
            if entries.len() == MAX_ENTRIES {
                return Err(Error::limit(format!("`{NAME}` has more than {MAX_ENTRIES} entries")));
            }
            if entries.insert(key.as_bytes().into(), value).is_some() {
                return Err(self.refused(at, &format!("it has two entries with the name {key}")));
            }
        }
        Ok(())
    }

    fn byte(&mut self) -> Result<u8> {
        let byte = *self.bytes.get(self.at).ok_or_else(|| self.cut())?;
        self.at += 1;
        Ok(byte)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let found = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk::<N>());
        let array = *found.ok_or_else(|| self.cut())?;
        self.at += N;
        Ok(array)
    }

    fn text(&mut self, start: usize, len: usize) -> Result<Entry> {
        let end = self.at.checked_add(len);
        let bytes = end.and_then(|end| self.bytes.get(self.at..end)).ok_or_else(|| self.cut())?;
        let text = Text::from_surrogatepass(bytes)
            .map_err(|at| self.refused(start, &format!("a text is not UTF-8 at its byte {at}")))?;
        self.at += len;
        Ok(Entry::Text(text))
    }

    fn cut(&self) -> Error {
        Error::damaged(format!("`{NAME}` ends in the middle"))
            .at(self.bytes.len() as u64)
            .advice("It is cut short: copy the checkpoint again.")
    }

    /// Returns the error for content that a genuine object does not have.
    fn refused(&self, at: usize, why: &str) -> Error {
        Error::damaged(format!("`{NAME}` is not what the Cerebras library writes: {why}"))
            .at(at as u64)
            .expected("a pickled dict of texts, without names of classes or functions")
            .advice(
                "Do not load it with the Cerebras library, which would run any code in it. Scan it.",
            )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a pickle of entries as `dill.dumps` writes it, without frames and memo.
    fn pickled(entries: &[(&str, &str)]) -> Vec<u8> {
        let mut out = vec![0x80, 4, b'}'];
        for batch in entries.chunks(BATCH) {
            let one = batch.len() == 1 && entries.len() > 1;
            out.extend((!one).then_some(b'('));
            for text in batch.iter().flat_map(|(key, value)| [key, value]) {
                out.push(b'X');
                out.extend((text.len() as u32).to_le_bytes());
                out.extend(text.as_bytes());
            }
            out.push(if one { b's' } else { b'u' });
        }
        out.push(b'.');
        out
    }

    #[test]
    fn refuses_every_opcode_that_a_genuine_one_does_not_have() {
        let allowed = b"\x80\x95}\x94(\x8cXG\x88u.";
        let good = pickled(&[("a", "b")]);
        assert!(Entries::parse(&good).is_ok());
        for byte in (0..=255u8).filter(|byte| !allowed.contains(byte)) {
            // In front of the dict, after it, in a batch, and before the end.
            for at in [2, 3, 4, good.len() - 1] {
                let mut bad = good.clone();
                bad.insert(at, byte);
                let error = Entries::parse(&bad).unwrap_err();
                let words = error.to_string();
                assert!(words.contains("is not what the Cerebras library writes"), "{words}");
                assert_eq!(error.offset(), Some(at as u64), "{byte:#x}");
            }
        }
    }

    #[test]
    fn refuses_what_is_cut_or_not_a_dict() {
        let good = pickled(&[("a", "b"), ("c", "d")]);
        for len in 0..good.len() {
            assert!(Entries::parse(&good[..len]).is_err(), "{len}");
        }
        for bad in [
            &b"{}"[..],
            b"\x80\x04.",
            b"\x80\x01}.",
            b"\x80\x06}.",
            b"\x80\x02}h\0.",
            b"\x80\x04}(u}.",
            b"\x80\x04}X\x01\0\0\0a.",
            b"\x80\x04}(X\x01\0\0\0au.",
            b"\x80\x04}(\x88\x88u.",
            b"\x80\x04}u.",
            b"\x80\x04}((u.",
            b"\x80\x04}X\xff\xff\xff\xffa",
            b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\xff}.",
            b"\x80\x04}(X\x01\0\0\0\xffX\0\0\0\0u.",
            b"\x80\x04}..",
        ] {
            assert!(Entries::parse(bad).is_err(), "{bad:?}");
        }
        let twice = pickled(&[("a", "b"), ("a", "c")]);
        assert!(Entries::parse(&twice).unwrap_err().to_string().contains("two entries"));
    }

    #[test]
    fn accepts_the_memo_of_older_protocols() {
        let old = b"\x80\x02}q\0(X\x01\0\0\0aq\x01X\x01\0\0\0br\x02\0\0\0u.";
        assert!(Entries::parse(old).is_ok());
        assert!(Entries::parse(&[b"\x80\x04", &old[2..]].concat()).is_err());
    }

    /// A last batch of one entry has no mark in Python's pickler, which dill uses.
    #[test]
    fn accepts_a_last_batch_of_one() {
        let names: Vec<String> = (0..=BATCH).map(|at| at.to_string()).collect();
        let entries: Vec<(&str, &str)> = names.iter().map(|name| (&**name, "v")).collect();
        assert_eq!(Entries::parse(&pickled(&entries)).unwrap().0.len(), BATCH + 1);
        assert!(Entries::parse(b"\x80\x04}X\x01\0\0\0aX\x01\0\0\0bs.").is_err());
    }

    #[test]
    fn addresses_are_split_as_the_library_splits_them() {
        for (address, expected) in [
            ("s3://bucket/key", Some(("bucket", "key"))),
            ("S3://bucket//a/b/", Some(("bucket", "a/b/"))),
            ("s3://bucket", Some(("bucket", ""))),
            ("s3://bucket/é key?x#y", Some(("bucket", "é key"))),
            ("gs://bucket/key", None),
            ("key", None),
        ] {
            assert_eq!(split(address), expected, "{address}");
        }
    }

    #[test]
    fn dtypes_are_those_of_numpy() {
        let little = |dtype| Some((dtype, ByteOrder::Little));
        assert_eq!(numpy_dtype("float32"), little(DType::F32));
        assert_eq!(numpy_dtype("int16"), little(DType::I16));
        assert_eq!(numpy_dtype("bool"), little(DType::Bool));
        assert_eq!(numpy_dtype(">f4"), Some((DType::F32, ByteOrder::Big)));
        assert_eq!(numpy_dtype("|S2"), little(DType::from_numpy_code("S2").unwrap()));
        assert_eq!(numpy_dtype("<U2"), little(DType::from_numpy_code("U2").unwrap()));
        for name in ["bfloat16", "object", "[('a', '<i4')]", "", "<"] {
            assert_eq!(numpy_dtype(name), None, "{name}");
        }
    }
}
