//! Writes pickles, opcode by opcode.
//!
//! Nothing here decides what to write: the caller invokes the opcodes in the order in which a
//! pickle machine runs them (a container's opcode, its contents, then `appends` or `setitems`).
//! Everything except the methods marked *protocol 4* is within protocol 2 and accepted by
//! `torch.load(weights_only=True)`.

use statelens_checkpoint::{Error, Global, Int, Result, Text, try_alloc};

use crate::opcode as op;

#[derive(Debug, Clone, Default)]
pub struct Encoder {
    out: Vec<u8>,
    memo: u32,
}

/// The start of a frame, see [`Encoder::begin_frame`].
#[derive(Debug)]
#[must_use = "a frame that is not ended claims no bytes"]
pub struct Frame(usize);

impl Encoder {
    /// Maximum number of items that Python puts between `MARK` and `APPENDS`, `SETITEMS` or
    /// `ADDITEMS`.
    pub const BATCH: usize = 1000;

    pub fn new() -> Self {
        Self::default()
    }

    pub fn bytes(&self) -> &[u8] {
        &self.out
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.out
    }

    /// Writes `PROTO`: must be first.
    pub fn proto(&mut self, version: u8) {
        self.out.extend([op::PROTO, version]);
    }

    pub fn bool(&mut self, value: bool) {
        self.out.push(if value { op::NEWTRUE } else { op::NEWFALSE });
    }

    /// Writes an integer, with the opcode that Python would choose.
    ///
    /// Fails if it needs more than 255 bytes: not all loaders accept `LONG4`.
    pub fn int(&mut self, value: &Int) -> Result<()> {
        match value.to_i64() {
            Some(small) => self.small_int(small),
            None => self.long(&value.to_le_bytes())?,
        }
        Ok(())
    }

    pub fn small_int(&mut self, value: i64) {
        if let Ok(byte) = u8::try_from(value) {
            self.out.extend([op::BININT1, byte]);
        } else if let Ok(short) = u16::try_from(value) {
            self.out.push(op::BININT2);
            self.out.extend(short.to_le_bytes());
        } else if let Ok(int) = i32::try_from(value) {
            self.out.push(op::BININT);
            self.out.extend(int.to_le_bytes());
        } else {
            let bytes = Int::from(value).to_le_bytes();
            self.out.extend([op::LONG1, bytes.len() as u8]);
            self.out.extend(bytes);
        }
    }

    pub fn float(&mut self, value: f64) {
        self.out.push(op::BINFLOAT);
        self.out.extend(value.to_be_bytes());
    }

    /// Writes a string; lone surrogates are kept. Fails from 4 GiB on.
    pub fn text(&mut self, text: &Text) -> Result<()> {
        self.utf8(text.as_bytes())
    }

    pub fn str(&mut self, text: &str) -> Result<()> {
        self.utf8(text.as_bytes())
    }

    /// Writes `GLOBAL`: a class or function by name. Fails for names with a line break, which would
    /// be read as something else.
    pub fn global(&mut self, global: &Global) -> Result<()> {
        self.named(&global.module, &global.name)
    }

    /// Like [`Encoder::global`], from two strings.
    pub fn named(&mut self, module: &str, name: &str) -> Result<()> {
        if module.contains('\n') || name.contains('\n') {
            return Err(Error::refused("a class whose name holds a line break can't be pickled"));
        }
        self.out.push(op::GLOBAL);
        for part in [module, name] {
            self.out.extend(part.as_bytes());
            self.out.push(b'\n');
        }
        Ok(())
    }

    /// Makes a tuple of the last one, two or three values.
    ///
    /// A tuple of any other length is written as [`Encoder::mark`], the items,
    /// [`Encoder::marked_tuple`].
    pub fn tuple(&mut self, len: TupleLen) {
        self.out.push(match len {
            TupleLen::One => op::TUPLE1,
            TupleLen::Two => op::TUPLE2,
            TupleLen::Three => op::TUPLE3,
        });
    }

    /// Writes a tuple with the shortest opcodes for its length; `item` writes each item.
    pub fn tuple_of<T>(
        &mut self,
        items: &[T],
        mut item: impl FnMut(&mut Self, &T) -> Result<()>,
    ) -> Result<()> {
        let short = match items.len() {
            0 => {
                self.empty_tuple();
                return Ok(());
            }
            1 => Some(TupleLen::One),
            2 => Some(TupleLen::Two),
            3 => Some(TupleLen::Three),
            _ => None,
        };
        if short.is_none() {
            self.mark();
        }
        for value in items {
            item(self, value)?;
        }
        match short {
            Some(len) => self.tuple(len),
            None => self.marked_tuple(),
        }
        Ok(())
    }

    /// Stores the top of the stack in the memo; returns its number for [`Encoder::memoized`].
    pub fn memoize(&mut self) -> MemoId {
        let index = self.memo;
        self.memo += 1;
        match u8::try_from(index) {
            Ok(byte) => self.out.extend([op::BINPUT, byte]),
            Err(_) => {
                self.out.push(op::LONG_BINPUT);
                self.out.extend(index.to_le_bytes());
            }
        }
        MemoId(index)
    }

    /// Pushes a memoized value again: the same object.
    pub fn memoized(&mut self, memo: MemoId) {
        match u8::try_from(memo.0) {
            Ok(byte) => self.out.extend([op::BINGET, byte]),
            Err(_) => {
                self.out.push(op::LONG_BINGET);
                self.out.extend(memo.0.to_le_bytes());
            }
        }
    }

    /// Writes `bytes` within protocol 2: `_codecs.encode(text, 'latin1')`, one character per byte.
    pub fn bytes_as_text(&mut self, bytes: &[u8]) -> Result<()> {
        self.named("_codecs", "encode")?;
        let text: String = bytes.iter().copied().map(char::from).collect();
        self.str(&text)?;
        self.str("latin1")?;
        self.tuple(TupleLen::Two);
        self.reduce();
        Ok(())
    }

    /// Writes `bytes` directly. *Protocol 4.*
    pub fn binbytes(&mut self, bytes: &[u8]) {
        if let Ok(len) = u8::try_from(bytes.len()) {
            self.out.extend([op::SHORT_BINBYTES, len]);
        } else if let Ok(len) = u32::try_from(bytes.len()) {
            self.out.push(op::BINBYTES);
            self.out.extend(len.to_le_bytes());
        } else {
            self.out.push(op::BINBYTES8);
            self.out.extend((bytes.len() as u64).to_le_bytes());
        }
        self.out.extend(bytes);
    }

    /// Writes a string, with a length of one byte if it fits. *Protocol 4.*
    pub fn short_str(&mut self, text: &str) -> Result<()> {
        match u8::try_from(text.len()) {
            Ok(len) => {
                self.out.extend([op::SHORT_BINUNICODE, len]);
                self.out.extend(text.as_bytes());
                Ok(())
            }
            Err(_) => self.str(text),
        }
    }

    /// Like [`Encoder::memoize`], in one byte. *Protocol 4.*
    pub fn memoize_next(&mut self) -> MemoId {
        self.out.push(op::MEMOIZE);
        self.memo += 1;
        MemoId(self.memo - 1)
    }

    /// Starts a frame; [`Encoder::end_frame`] fills in its length. *Protocol 4.*
    pub fn begin_frame(&mut self) -> Frame {
        self.out.push(op::FRAME);
        self.out.extend([0; 8]);
        Frame(self.out.len())
    }

    pub fn end_frame(&mut self, frame: Frame) {
        let len = (self.out.len() - frame.0) as u64;
        self.out[frame.0 - 8..frame.0].copy_from_slice(&len.to_le_bytes());
    }

    fn utf8(&mut self, bytes: &[u8]) -> Result<()> {
        let len = u32::try_from(bytes.len())
            .map_err(|_| Error::refused("a string of 4 GiB or more can't be pickled here"))?;
        // Pickles grow mainly by texts, so the other opcodes only need some extra room.
        try_alloc::make_room(&mut self.out, u64::from(len) + 1_024)?;
        self.out.push(op::BINUNICODE);
        self.out.extend(len.to_le_bytes());
        self.out.extend(bytes);
        Ok(())
    }

    fn long(&mut self, bytes: &[u8]) -> Result<()> {
        let len = u8::try_from(bytes.len()).map_err(|_| {
            Error::refused(format!(
                "an integer of {} bytes is longer than the 255 that safe loaders accept",
                bytes.len()
            ))
        })?;
        self.out.extend([op::LONG1, len]);
        self.out.extend(bytes);
        Ok(())
    }
}

/// Methods that write a single opcode without operands.
macro_rules! opcodes {
    ($($(#[$doc:meta])* $name:ident => $opcode:ident;)*) => {
        impl Encoder {
            $($(#[$doc])* pub fn $name(&mut self) {
                self.out.push(op::$opcode);
            })*
        }
    };
}

opcodes! {
    /// Writes `STOP`: must be last; the top of the stack is the result.
    stop => STOP;
    none => NONE;
    /// Writes `MARK`: the start of the items of `appends`, `setitems`, `additems`, `frozenset` or a
    /// long tuple.
    mark => MARK;
    empty_dict => EMPTY_DICT;
    empty_list => EMPTY_LIST;
    empty_tuple => EMPTY_TUPLE;
    /// Makes a tuple of everything since the mark.
    marked_tuple => TUPLE;
    /// Appends everything since the mark to the list below it.
    appends => APPENDS;
    /// Puts everything since the mark (key, value, key, value) into the dict below it.
    setitems => SETITEMS;
    /// Calls a function: callable, tuple of arguments.
    reduce => REDUCE;
    /// Makes an instance without `__init__`: class, tuple of arguments.
    newobj => NEWOBJ;
    /// Sets the state of an object: object, state.
    build => BUILD;
    /// Requests the object identified by the tuple on the stack from the loader.
    binpersid => BINPERSID;
    /// Pushes the class or function whose module and name are the two strings on the stack.
    /// *Protocol 4.*
    stack_global => STACK_GLOBAL;
    /// Writes an empty set. *Protocol 4.*
    empty_set => EMPTY_SET;
    /// Adds everything since the mark to the set below it. *Protocol 4.*
    additems => ADDITEMS;
    /// Makes a frozenset of everything since the mark. *Protocol 4.*
    frozenset => FROZENSET;
}

/// The tuple lengths that have an opcode of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TupleLen {
    One,
    Two,
    Three,
}

/// A memoized value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MemoId(u32);

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(write: impl FnOnce(&mut Encoder)) -> Vec<u8> {
        let mut encoder = Encoder::new();
        write(&mut encoder);
        encoder.into_bytes()
    }

    /// The bytes between `PROTO` and `STOP` in `pickle.dumps(value, 2)` of CPython 3.11.
    #[test]
    fn integers_use_the_opcodes_of_python() {
        for (value, bytes) in [
            (0, &b"K\x00"[..]),
            (255, b"K\xff"),
            (256, b"M\x00\x01"),
            (65536, b"J\x00\x00\x01\x00"),
            (-1, b"J\xff\xff\xff\xff"),
            (1 << 31, b"\x8a\x05\x00\x00\x00\x80\x00"),
            (i64::MIN, b"\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80"),
        ] {
            assert_eq!(encoded(|e| e.small_int(value)), bytes, "{value}");
        }
        let big = Int::parse("18446744073709551616").unwrap();
        assert_eq!(
            encoded(|e| e.int(&big).unwrap()),
            b"\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01"
        );
        let mut longest = vec![0xff; 255];
        longest[254] = 0x7f;
        assert!(Encoder::new().int(&Int::from_le_bytes(&longest)).is_ok());
        longest.push(1);
        assert!(Encoder::new().int(&Int::from_le_bytes(&longest)).is_err());
    }

    #[test]
    fn memo_numbers_grow_past_one_byte() {
        let bytes = encoded(|e| {
            let first = e.memoize();
            for _ in 1..256 {
                e.memoize();
            }
            let last = e.memoize();
            e.memoized(first);
            e.memoized(last);
        });
        assert!(bytes.starts_with(b"q\x00q\x01"));
        assert!(bytes.ends_with(b"q\xffr\x00\x01\x00\x00h\x00j\x00\x01\x00\x00"));
    }

    #[test]
    fn refuses_names_with_line_breaks() {
        assert!(Encoder::new().named("os\nsystem", "x").is_err());
    }

    /// `pickle.dumps(b'\xff', 4)` of CPython 3.11.
    #[test]
    fn frames_have_the_length_of_their_content() {
        let bytes = encoded(|e| {
            e.proto(4);
            let frame = e.begin_frame();
            e.binbytes(b"\xff");
            e.memoize_next();
            e.stop();
            e.end_frame(frame);
        });
        assert_eq!(bytes, b"\x80\x04\x95\x05\0\0\0\0\0\0\0C\x01\xff\x94.");
    }
}
