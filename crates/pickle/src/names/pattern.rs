//! The notation for allowed usages in the table of harmless names.
//!
//! A row has one or more usages, separated by `;`. `docs/scan.md` explains the notation to users:
//!
//! ```text
//! usage  = "bare" | "inner"
//!        | ("call" | "new" | "gives" | "inside") "(" kinds ")" [" state " kind] [" items " kind] [" entries " kind]
//! kinds  = [kind {"," kind}]             a kind with "?" and those after it may be missing
//! kind   = one {"|" one} ["*"]           "*": the last kind, any number of times
//! one    = word                          a kind of value, or an alias
//!        | "'text'" | "<module.name>" | "module.name()"
//!        | "(" kinds ")" | "[" kind "]" | "{" key ":" kind {"," key ":" kind} "}"
//! ```

/// One way in which a name may be used.
#[derive(Debug, Clone)]
pub(crate) enum Usage {
    /// The name itself may be a value: an item of a list, an attribute.
    Bare,
    /// The name may only be used where another pattern names it.
    Inner,
    /// The name may be called.
    Call(CallPattern),
}

/// The harmless calls, and the harmless changes to their result.
#[derive(Debug, Clone)]
pub(crate) struct CallPattern {
    pub(crate) how: How,
    pub(crate) args: Kinds,
    /// The state that `BUILD` may set, once.
    pub(crate) state: Option<Kind>,
    /// The items that `APPEND`, `APPENDS` and `ADDITEMS` may add.
    pub(crate) items: Option<Kind>,
    /// The values that `SETITEM` and `SETITEMS` may set under any key.
    pub(crate) entries: Option<Kind>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// By a call (`REDUCE`, `OBJ`, `INST`).
    Call,
    /// Without the constructor (`NEWOBJ`, `NEWOBJ_EX`, `copyreg.__newobj__`).
    New,
    /// By a call that returns an object which exists already.
    Existing,
    /// By a call whose result may only be used where another pattern names it.
    Inside,
}

/// The items of a tuple, or the arguments of a call.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kinds {
    pub(crate) kinds: Vec<Kind>,
    /// How many of them are required.
    pub(crate) required: usize,
    /// Whether the last one may be repeated.
    pub(crate) repeats: bool,
}

/// The values that are allowed in one place.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Word(Word),
    /// Exactly this text.
    Text(&'static str),
    /// This class or function itself.
    Name(&'static str),
    /// An object made by this class or function.
    Made(&'static str),
    Tuple(Kinds),
    List(Box<Kind>),
    /// A dict with only these keys; each is optional.
    Record(Vec<(&'static str, Kind)>),
    Either(Vec<Kind>),
}

macro_rules! words {
    ($($word:ident $text:literal $meaning:literal;)*) => {
        /// Kinds of values beyond Python's types.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Word {
            $(#[doc = $meaning] $word,)*
        }

        /// Each word, with its meaning for the documentation.
        pub(crate) const WORDS: &[(Word, &str, &str)] = &[$((Word::$word, $text, $meaning)),*];
    };
}

words! {
    Any "any" "any value; its parts are judged separately";
    None "none" "`None`";
    False "false" "`False` or 0";
    True "true" "`True` or 1";
    Bool "bool" "`True`, `False`, or 0 or 1";
    Int "int" "an integer";
    Nat "nat" "an integer from 0 on";
    Zero "zero" "0";
    Float "float" "a float or an integer";
    Str "str" "a text";
    Bytes "bytes" "bytes, also as protocols 0 to 2 write them, or a buffer outside the pickle";
    List "list" "a list of any values";
    Dict "dict" "a dict of any values";
    Attributes "attributes" "a dict whose keys are texts that do not begin with two underscores";
    Factory "factory" "`None`, a plain type of Python, or a name that is not in this table (and is reported)";
    Unlisted "unlisted" "a name that is not in this table (and is reported)";
    Storage "storage" "a storage of the file (a persistent id), or one that comes with its bytes (`torch.storage._load_from_bytes`)";
    Hooks "hooks" "an empty `OrderedDict`, or `None`";
    Element "element" "a type of elements: a text such as `f4`, `numpy.record`, or a class of ml_dtypes";
    DTypeState "dtype-state" "a description as NumPy writes it: the size fits the type, fields are \
                              inside the record, and exactly the declared elements are objects";
    Codec "codec" "`latin1`, `utf-8` or `ascii`, by their usual spellings";
    Constant "constant" "the text `Ellipsis`, `NotImplemented`, `None`, or `range(…)` of numbers";
    BuiltinName "builtin-name" "the text of a name in this table, of the module `builtins`";
    MemberName "member-name" "the text of a name in this table, of the module in front of it";
    ApplyArgs "arguments" "arguments with which the function in front of them may be called";
    Position "position" "0 to 624, the numbers in an MT19937 state";
    Buffered "buffered" "0 to 4, the numbers that Philox keeps";
}

/// Names for longer kinds.
pub(crate) const ALIASES: &[(&str, &str)] = &[
    ("sizes", "(nat*)"),
    ("ints", "(int*)"),
    ("size", "torch.Size()|(nat*)"),
    ("math-bits", "none|{conj: bool, neg: bool}"),
    (
        "rebuilder",
        "<torch._utils._rebuild_tensor>|<torch._utils._rebuild_tensor_v2>\
         |<torch._utils._rebuild_tensor_v3>|<torch._utils._rebuild_qtensor>\
         |<torch._utils._rebuild_sparse_tensor>|<torch._utils._rebuild_nested_tensor>\
         |<torch._utils._rebuild_meta_tensor_no_storage>\
         |<torch._utils._rebuild_device_tensor_from_numpy>\
         |<torch._utils._rebuild_device_tensor_from_cpu_tensor>\
         |<torch._utils._rebuild_wrapper_subclass>|<torch._utils._rebuild_parameter>\
         |<torch._utils._rebuild_parameter_with_state>|unlisted",
    ),
    (
        "tensor",
        "torch._utils._rebuild_tensor()|torch._utils._rebuild_tensor_v2()\
         |torch._utils._rebuild_tensor_v3()|torch._utils._rebuild_qtensor()\
         |torch._utils._rebuild_sparse_tensor()|torch._utils._rebuild_nested_tensor()\
         |torch._utils._rebuild_meta_tensor_no_storage()\
         |torch._utils._rebuild_device_tensor_from_numpy()\
         |torch._utils._rebuild_device_tensor_from_cpu_tensor()\
         |torch._utils._rebuild_parameter()|torch._utils._rebuild_parameter_with_state()\
         |torch._tensor._rebuild_from_type_v2()|torch.tensor._rebuild_from_type_v2()\
         |torch._tensor._rebuild_from_type()|torch.tensor._rebuild_from_type()",
    ),
    (
        "tensor-class",
        "<torch.Tensor>|<torch.nn.parameter.Parameter>|<torch.nn.parameter.Buffer>|wrapper|unlisted",
    ),
    (
        "wrapper",
        "<torch.distributed.tensor.DTensor>|<torch.distributed._tensor.api.DTensor>\
         |<torch.distributed._shard.sharded_tensor.api.ShardedTensor>|unlisted",
    ),
    (
        "tensor-state",
        "none|attributes|(none|attributes, none|attributes)\
         |([any], torch.distributed._shard.sharded_tensor.metadata.ShardedTensorMetadata(), \
         any, any, bool)",
    ),
    ("layout", "torch.serialization._get_layout()"),
    ("device", "str|torch.device()"),
    (
        "array",
        "numpy.core.multiarray._reconstruct()|numpy._core.multiarray._reconstruct()\
         |numpy.core.numeric._frombuffer()|numpy._core.numeric._frombuffer()",
    ),
    (
        "array-class",
        "<numpy.ndarray>|<numpy.matrix>|<numpy.recarray>|<numpy.rec.recarray>\
         |<numpy.core.records.recarray>|unlisted",
    ),
    ("dtype", "numpy.dtype()|numpy._core._internal._convert_to_stringdtype_kwargs()"),
    ("reconstruct", "<numpy.core.multiarray._reconstruct>|<numpy._core.multiarray._reconstruct>"),
    ("scalar", "numpy.core.multiarray.scalar()|numpy._core.multiarray.scalar()"),
    ("generator-name", "'MT19937'|'PCG64'|'PCG64DXSM'|'Philox'|'SFC64'"),
    (
        "generator-class",
        "<numpy.random._mt19937.MT19937>|<numpy.random._pcg64.PCG64>|<numpy.random._pcg64.PCG64DXSM>\
         |<numpy.random._philox.Philox>|<numpy.random._sfc64.SFC64>",
    ),
    (
        "generator-state",
        "{bit_generator: generator-name, state: {key: array|list|(int*), pos: position, state: int|array, \
         inc: int, counter: array|list}, buffer: array|list, buffer_pos: buffered, has_uint32: int, \
         uinteger: int, has_gauss: int, gauss: float}",
    ),
];

impl CallPattern {
    fn new(how: How, args: Kinds) -> Self {
        Self { how, args, state: None, items: None, entries: None }
    }
}

/// Parses the usages of a row; `None` if they violate the notation.
pub(crate) fn parse(text: &'static str) -> Option<Vec<Usage>> {
    text.split(';').map(|usage| Parser { rest: usage.trim() }.usage()).collect()
}

/// A parser of one usage at the start of `rest`. The texts come from the table in this crate, so
/// the recursion is bounded.
struct Parser {
    rest: &'static str,
}

impl Parser {
    fn usage(mut self) -> Option<Usage> {
        match self.rest {
            "bare" => return Some(Usage::Bare),
            "inner" => return Some(Usage::Inner),
            _ => {}
        }
        let how = match self.word()? {
            "call" => How::Call,
            "new" => How::New,
            "gives" => How::Existing,
            "inside" => How::Inside,
            _ => return None,
        };
        self.expect("(")?;
        let mut pattern = CallPattern::new(how, self.kinds()?);
        while !self.rest.is_empty() {
            let change = match self.word()? {
                "state" => &mut pattern.state,
                "items" => &mut pattern.items,
                "entries" => &mut pattern.entries,
                _ => return None,
            };
            *change = Some(self.kind()?);
        }
        Some(Usage::Call(pattern))
    }

    /// Parses the kinds up to the closing parenthesis.
    fn kinds(&mut self) -> Option<Kinds> {
        let mut kinds = Kinds::default();
        let mut optional = false;
        while !self.accept(")") {
            if !kinds.kinds.is_empty() {
                self.expect(",")?;
            }
            if kinds.repeats {
                return None;
            }
            kinds.kinds.push(self.kind()?);
            kinds.repeats = self.accept("*");
            optional |= self.accept("?");
            if !optional && !kinds.repeats {
                kinds.required = kinds.kinds.len();
            }
        }
        Some(kinds)
    }

    fn kind(&mut self) -> Option<Kind> {
        let first = self.one()?;
        if !self.rest.trim_start().starts_with('|') {
            return Some(first);
        }
        let mut either = vec![first];
        while self.accept("|") {
            either.push(self.one()?);
        }
        Some(Kind::Either(either))
    }

    fn one(&mut self) -> Option<Kind> {
        if self.accept("(") {
            return Some(Kind::Tuple(self.kinds()?));
        }
        if self.accept("[") {
            let of = self.kind()?;
            self.expect("]")?;
            return Some(Kind::List(Box::new(of)));
        }
        if self.accept("{") {
            let mut entries = Vec::new();
            while !self.accept("}") {
                if !entries.is_empty() {
                    self.expect(",")?;
                }
                let key = self.word()?;
                self.expect(":")?;
                entries.push((key, self.kind()?));
            }
            return Some(Kind::Record(entries));
        }
        if self.accept("'") {
            let (text, rest) = self.rest.split_once('\'')?;
            self.rest = rest;
            return Some(Kind::Text(text));
        }
        if self.accept("<") {
            let (name, rest) = self.rest.split_once('>')?;
            self.rest = rest;
            return Some(Kind::Name(name));
        }
        let word = self.word()?;
        if word.contains('.') {
            self.expect("(")?;
            self.expect(")")?;
            return Some(Kind::Made(word));
        }
        if let Some((_, text)) = ALIASES.iter().find(|(alias, _)| *alias == word) {
            let mut parser = Parser { rest: text };
            let kind = parser.kind()?;
            return parser.rest.is_empty().then_some(kind);
        }
        WORDS.iter().find(|(_, text, _)| *text == word).map(|(word, ..)| Kind::Word(*word))
    }

    fn word(&mut self) -> Option<&'static str> {
        self.rest = self.rest.trim_start();
        let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        let end = self.rest.find(|c| !letter(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at_checked(end)?;
        self.rest = rest;
        (!word.is_empty()).then_some(word)
    }

    fn accept(&mut self, sign: &str) -> bool {
        match self.rest.trim_start().strip_prefix(sign) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, sign: &str) -> Option<()> {
        self.accept(sign).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_usage_notation() {
        let usages =
            parse("call(int, str?, [any]*) state {a: none|'x'}; new((int*)); bare").unwrap();
        let [Usage::Call(call), Usage::Call(new), Usage::Bare] = &usages[..] else {
            panic!("{usages:?}")
        };
        assert_eq!((call.how, call.args.kinds.len(), call.args.required), (How::Call, 3, 1));
        assert!(call.args.repeats && call.items.is_none());
        assert!(matches!(&call.state, Some(Kind::Record(entries)) if entries[0].0 == "a"));
        assert!(
            matches!(&new.args.kinds[..], [Kind::Tuple(ints)] if ints.repeats && ints.required == 0)
        );
    }

    #[test]
    fn refuses_invalid_notation() {
        for text in [
            "",
            "call",
            "call(",
            "call(what)",
            "call(int) and more",
            "call(int*, int)",
            "call(a.b)",
        ] {
            assert!(parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn aliases_parse_as_kinds() {
        for (alias, text) in ALIASES {
            let mut parser = Parser { rest: text };
            assert!(parser.kind().is_some() && parser.rest.is_empty(), "{alias}: {}", parser.rest);
        }
    }
}
