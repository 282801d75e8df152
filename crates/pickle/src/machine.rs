//! The pickle machine: runs opcodes and builds objects, but calls nothing.

mod calls;
mod input;
mod memo;
pub(crate) mod numbers;
mod stack;

use std::collections::HashMap;

use statelens_checkpoint::{Error, ErrorKind, Form, Global, Int, Limits, Result, Text, try_alloc};

use self::input::Input;
use self::memo::Memo;
use crate::graph::damaged;
use crate::opcode as op;
use crate::{Broken, Call, Items, Node, NodeId, Oddity, Pickle, escapes, python2};

/// Maximum number of bytes of all names that `STACK_GLOBAL` takes from the stack.
const NAME_BYTES: u64 = 32 << 20;

/// Reads the pickle at the start of `bytes` up to its `STOP`.
///
/// `base` is the offset of `bytes` in the file and is added to the offsets in errors. Memory and
/// time are bounded by the length of `bytes` and by `limits`. The error contains the objects before
/// it.
///
/// Every opcode is read as in CPython's unpicklers, the one in C and the one in Python. If they
/// differ, the interpretation that reads further is used. An error of kind
/// [`Limit`](statelens_checkpoint::ErrorKind::Limit) means that CPython may continue; any other
/// kind means that every CPython stops there, too, or earlier.
pub fn read(bytes: &[u8], base: u64, limits: &Limits) -> Result<Pickle, Broken> {
    run(bytes, base, limits, false)
}

/// Reads all consecutive pickles in `bytes` as one `Unpickler` would that keeps its memo. Returns
/// the objects of all as one pickle without a root, and whether more bytes could continue it.
pub fn read_joined(bytes: &[u8], base: u64, limits: &Limits) -> (Pickle, bool) {
    match run(bytes, base, limits, true) {
        Ok(pickle) => (pickle, false),
        Err(broken) => (*broken.pickle, broken.starved || broken.error.kind() == ErrorKind::Limit),
    }
}

fn run(bytes: &[u8], base: u64, limits: &Limits, joined: bool) -> Result<Pickle, Broken> {
    let mut machine = Machine {
        input: Input { bytes, at: 0, starved: false, needed: 0 },
        limits,
        pickle: Pickle { base, limits: limits.clone(), ..Pickle::default() },
        stack: Vec::new(),
        marks: Vec::new(),
        memo: Memo::default(),
        edges: 0,
        names: 0,
        extra: 0,
        buffers: 0,
        frame_end: 0,
        cut_name: None,
        unset_memo: false,
        joined,
        protocol: 0,
        small: Small::default(),
    };
    let mut start = 0;
    // Node 0 is always `None`.
    let first = machine.pickle.nodes.push(Node::None);
    let done = first.and_then(|()| machine.run(&mut start));
    let open = machine.open();
    let mut pickle = std::mem::take(&mut machine.pickle);
    match done {
        Ok(root) => {
            pickle.root = Some(root);
            Ok(pickle)
        }
        Err(error) => {
            let error = error.at(base + start as u64);
            Err(Broken {
                error,
                starved: machine.input.starved,
                needed: machine.input.needed,
                cut_name: machine.cut_name,
                unset_memo: machine.unset_memo,
                pickle: Box::new(pickle),
                open,
                before: Vec::new(),
            })
        }
    }
}

struct Machine<'a> {
    input: Input<'a>,
    limits: &'a Limits,
    pickle: Pickle,
    stack: Vec<NodeId>,
    /// Stack heights at each `MARK`.
    marks: Vec<usize>,
    memo: Memo,
    /// Total number of references from containers to objects.
    edges: u64,
    /// Total bytes of the names that were built from strings.
    names: u64,
    /// Extra cost of objects compared to other nodes, in nodes.
    extra: u64,
    buffers: u32,
    /// The end of the last frame that is within the bytes.
    frame_end: usize,
    cut_name: Option<Global>,
    unset_memo: bool,
    /// Whether to continue after `STOP`.
    joined: bool,
    /// The version in the last `PROTO`: below 3, Python translates names from those of Python 2.
    protocol: u8,
    small: Small,
}

/// Nodes of frequent immutable values, which are shared.
#[derive(Default)]
struct Small {
    yes: Option<NodeId>,
    no: Option<NodeId>,
    empty_tuple: Option<NodeId>,
    bytes: HashMap<u8, NodeId>,
}

impl Machine<'_> {
    /// Runs to `STOP`; `start` is updated to the offset of the current opcode.
    fn run(&mut self, start: &mut usize) -> Result<NodeId> {
        loop {
            *start = self.input.at;
            let opcode = self.input.byte()?;
            self.pickle.opcodes.insert(opcode);
            if opcode == op::STOP {
                let root = self.pop()?;
                if self.joined {
                    self.stack.clear();
                    self.marks.clear();
                    self.protocol = 0;
                    continue;
                }
                self.pickle.end = self.input.at as u64;
                if self.frame_end > self.input.at {
                    self.pickle.note(Oddity::FrameBehindStop, *start as u64);
                }
                return Ok(root);
            }
            let frame_end = self.frame_end;
            let done = self.step(opcode, *start as u64);
            if *start < frame_end && frame_end < self.input.at {
                self.pickle.note(Oddity::FrameCrossed, *start as u64);
            }
            done?;
        }
    }

    fn step(&mut self, opcode: u8, offset: u64) -> Result<()> {
        match opcode {
            op::PROTO => self.proto(),
            op::FRAME => self.frame(offset),
            op::MARK => {
                self.bound_stack()?;
                try_alloc::push(&mut self.marks, self.stack.len())
            }
            op::POP => self.pop_opcode(),
            op::POP_MARK => self.pop_mark().map(drop),
            op::DUP => {
                let top = self.top()?;
                self.push(top)
            }
            op::NONE => self.push(NodeId(0)),
            op::NEWTRUE => self.push_bool(true),
            op::NEWFALSE => self.push_bool(false),
            op::INT..=op::BININT2 | op::LONG1 | op::LONG4 => self.integer(opcode),
            op::FLOAT => {
                let value = numbers::float(self.input.line()?)?;
                self.push_node(Node::Float(value))
            }
            op::BINFLOAT => {
                let bytes = self.input.array::<8>()?;
                self.push_node(Node::Float(f64::from_be_bytes(bytes)))
            }
            op::STRING
            | op::BINSTRING
            | op::SHORT_BINSTRING
            | op::UNICODE
            | op::BINUNICODE
            | op::SHORT_BINUNICODE
            | op::BINUNICODE8
            | op::BINBYTES
            | op::SHORT_BINBYTES
            | op::BINBYTES8
            | op::BYTEARRAY8 => self.string(opcode),
            op::EMPTY_LIST => self.push_node(Node::List(Box::default())),
            op::EMPTY_DICT => self.push_node(Node::Dict(Box::default())),
            op::EMPTY_SET => self.push_node(Node::Set(Box::default())),
            op::EMPTY_TUPLE
            | op::TUPLE
            | op::TUPLE1
            | op::TUPLE2
            | op::TUPLE3
            | op::LIST
            | op::DICT
            | op::FROZENSET => self.container(opcode),
            op::APPEND => {
                let item = self.pop()?;
                self.append(vec![item], Adding::Append, offset)
            }
            op::APPENDS => {
                let items = self.pop_mark()?;
                self.append(items, Adding::Append, offset)
            }
            op::ADDITEMS => {
                let items = self.pop_mark()?;
                self.append(items, Adding::Add, offset)
            }
            op::SETITEM => {
                let value = self.pop()?;
                let key = self.pop()?;
                self.set_items(&[key, value], offset)
            }
            op::SETITEMS => {
                let items = self.pop_mark()?;
                self.set_items(&items, offset)
            }
            op::GET | op::BINGET | op::LONG_BINGET => self.get(opcode),
            op::PUT | op::BINPUT | op::LONG_BINPUT | op::MEMOIZE => self.put(opcode),
            op::GLOBAL | op::STACK_GLOBAL => {
                let global = self.read_global(opcode, offset)?;
                self.push(global)
            }
            op::INST | op::OBJ | op::REDUCE | op::NEWOBJ | op::NEWOBJ_EX => {
                self.object(opcode, offset)
            }
            op::BUILD => self.build(),
            op::PERSID | op::BINPERSID => self.persistent(opcode),
            op::EXT1 | op::EXT2 | op::EXT4 => self.extension(opcode, offset),
            op::NEXT_BUFFER => {
                let index = self.buffers;
                self.buffers += 1;
                self.push_node(Node::Buffer(index))
            }
            op::READONLY_BUFFER => self.top().map(drop),
            _ => Err(damaged(format!("0x{opcode:02x} is not a pickle opcode"))),
        }
    }

    fn open(&self) -> Vec<(Option<NodeId>, NodeId)> {
        let mut open = Vec::new();
        let mut floor = 0;
        for mark in &self.marks {
            // The dict that is being filled is below a mark. In the dict around it, it is the value
            // of a key, after keys and values that will be set together with it.
            let Some([before @ .., dict]) = self.stack.get(floor..*mark) else { break };
            floor = *mark;
            let is_dict = match self.pickle.node(*dict) {
                Node::Dict(_) => true,
                Node::Object(call) => match self.pickle.node(call.callable) {
                    Node::Global(global) => global.is("collections", "OrderedDict"),
                    _ => false,
                },
                _ => false,
            };
            let plain = |id: &NodeId| {
                let node = self.pickle.node(*id);
                matches!(
                    node,
                    Node::None | Node::Bool(_) | Node::Int(_) | Node::Float(_) | Node::Str(_)
                )
            };
            let key = match (open.is_empty(), before) {
                (true, []) => None,
                (false, [others @ .., key]) if others.iter().all(plain) => Some(*key),
                _ => break,
            };
            if !is_dict {
                break;
            }
            open.push((key, *dict));
        }
        open
    }

    fn proto(&mut self) -> Result<()> {
        let protocol = self.input.byte()?;
        if protocol > 5 {
            return Err(Error::unsupported(format!("pickle protocol {protocol} is not known"))
                .expected("0 to 5"));
        }
        self.protocol = protocol;
        self.pickle.protocol = self.pickle.protocol.max(protocol);
        Ok(())
    }

    /// Records the end of a frame. A frame lets loaders read ahead, and only matters if
    /// an opcode, another frame or the end of the pickle does not fit in it. A frame that claims
    /// more bytes than there are is also recorded: the unpickler in C refuses it, the one in Python
    /// reads what there is.
    fn frame(&mut self, offset: u64) -> Result<()> {
        let len = u64::from_le_bytes(self.input.array()?);
        if self.input.at < self.frame_end {
            self.pickle.note(Oddity::FrameCrossed, offset);
        }
        match usize::try_from(len).ok().filter(|len| *len <= self.input.rest()) {
            Some(len) => self.frame_end = self.frame_end.max(self.input.at + len),
            None => {
                self.pickle.overlong_frame.get_or_insert(offset);
            }
        }
        Ok(())
    }

    fn pop_opcode(&mut self) -> Result<()> {
        // CPython pops the mark if it is on top.
        if self.marks.last() == Some(&self.stack.len()) {
            self.marks.pop();
            return Ok(());
        }
        self.pop().map(drop)
    }

    fn integer(&mut self, opcode: u8) -> Result<()> {
        let value = match opcode {
            op::BININT1 => {
                let byte = self.input.byte()?;
                if let Some(id) = self.small.bytes.get(&byte) {
                    return self.push(*id);
                }
                let id = self.add(Node::Int(i64::from(byte).into()))?;
                self.small.bytes.insert(byte, id);
                return self.push(id);
            }
            op::BININT2 => i64::from(u16::from_le_bytes(self.input.array()?)).into(),
            op::BININT => i64::from(i32::from_le_bytes(self.input.array()?)).into(),
            op::LONG1 => {
                let len = self.input.byte()?;
                Int::from_le_bytes(self.input.take(u64::from(len))?)
            }
            op::LONG4 => {
                let len = i32::from_le_bytes(self.input.array()?);
                let len = u64::try_from(len).map_err(|_| damaged("a negative length"))?;
                Int::from_le_bytes(self.input.take(len)?)
            }
            op::LONG => numbers::long(self.input.line()?)?,
            _ => match self.input.line()? {
                line @ (b"00" | b"01") => return self.push_bool(line == b"01"),
                line => numbers::int(line)?,
            },
        };
        self.push_node(Node::Int(value))
    }

    fn string(&mut self, opcode: u8) -> Result<()> {
        let len = match opcode {
            op::STRING => {
                let bytes = escapes::string(self.input.line()?)?;
                return self.push_node(python2::string(&bytes));
            }
            op::UNICODE => {
                let text = escapes::unicode(self.input.line()?)?;
                return self.push_node(Node::Str(text));
            }
            op::SHORT_BINSTRING | op::SHORT_BINUNICODE | op::SHORT_BINBYTES => {
                u64::from(self.input.byte()?)
            }
            op::BINSTRING => {
                let len = i32::from_le_bytes(self.input.array()?);
                u64::try_from(len).map_err(|_| damaged("a negative length"))?
            }
            op::BINUNICODE | op::BINBYTES => u64::from(u32::from_le_bytes(self.input.array()?)),
            _ => u64::from_le_bytes(self.input.array()?),
        };
        let bytes = self.input.take(len)?;
        Limits::check("bytes of one string", len, self.limits.string)
            .inspect_err(|_| self.input.needed = self.input.at as u64)?;
        let node = match opcode {
            op::BINSTRING | op::SHORT_BINSTRING => python2::string(bytes),
            op::BINUNICODE | op::SHORT_BINUNICODE | op::BINUNICODE8 => {
                let text = Text::from_surrogatepass(bytes).map_err(|at| {
                    damaged(format!("a string is not UTF-8 from its byte {at} on"))
                })?;
                Node::Str(text)
            }
            op::BYTEARRAY8 => Node::ByteArray(bytes.into()),
            _ => Node::Bytes(bytes.into()),
        };
        self.push_node(node)
    }

    fn container(&mut self, opcode: u8) -> Result<()> {
        let items = match opcode {
            op::EMPTY_TUPLE => Vec::new(),
            op::TUPLE1 => self.pop_n(1)?,
            op::TUPLE2 => self.pop_n(2)?,
            op::TUPLE3 => self.pop_n(3)?,
            _ => self.pop_mark()?,
        };
        self.count_edges(items.len())?;
        let node = match opcode {
            op::LIST => Node::List(Box::new(items)),
            op::FROZENSET => Node::FrozenSet(items.into()),
            op::DICT => {
                let (entries, odd) = pairs(&items)?;
                if odd {
                    return Err(key_alone());
                }
                Node::Dict(Box::new(entries))
            }
            _ if items.is_empty() => {
                let id = match self.small.empty_tuple {
                    Some(id) => id,
                    None => self.add(Node::Tuple(Items::default()))?,
                };
                self.small.empty_tuple = Some(id);
                return self.push(id);
            }
            _ => Node::Tuple(self.pickle.keep(&items)?),
        };
        self.push_node(node)
    }

    fn append(&mut self, items: Vec<NodeId>, adding: Adding, offset: u64) -> Result<()> {
        self.count_edges(items.len())?;
        let target = self.mutable_top()?;
        // Without items, the unpickler in C does not check the target.
        if items.is_empty() {
            return Ok(());
        }
        if let Some(more) = self.pickle.more_mut(target)? {
            return add_all(&mut more.items, &items);
        }
        match (&mut self.pickle.nodes[target.0 as usize], adding) {
            (Node::List(list), Adding::Append) => add_all(list, &items)?,
            (Node::Set(set), Adding::Add) => add_all(set, &items)?,
            (Node::ByteArray(_), Adding::Append) => {
                self.pickle.note(Oddity::ByteArrayChanged, offset);
            }
            (Node::Persistent(_) | Node::Extension(_) | Node::Buffer(_), _) => {
                self.pickle.note(Oddity::UnknownChanged, offset);
            }
            (node, _) => return Err(damaged(format!("nothing can be added to {}", kind(node)))),
        }
        Ok(())
    }

    fn set_items(&mut self, items: &[NodeId], offset: u64) -> Result<()> {
        self.count_edges(items.len())?;
        let (entries, odd) = pairs(items)?;
        let target = self.mutable_top()?;
        if let Some(more) = self.pickle.more_mut(target)? {
            // The unpickler in Python sets the pairs before it notices the missing last value.
            add_all(&mut more.entries, &entries)?;
        } else if !items.is_empty() {
            match &mut self.pickle.nodes[target.0 as usize] {
                Node::Dict(dict) => add_all(dict, &entries)?,
                Node::List(_) => self.pickle.note(Oddity::ListItemSet, offset),
                Node::ByteArray(_) => self.pickle.note(Oddity::ByteArrayChanged, offset),
                Node::Persistent(_) | Node::Extension(_) | Node::Buffer(_) => {
                    self.pickle.note(Oddity::UnknownChanged, offset);
                }
                node => return Err(damaged(format!("{} takes no items by key", kind(node)))),
            }
        }
        if odd { Err(key_alone()) } else { Ok(()) }
    }

    /// Returns the top of the stack, which is about to be changed. A global becomes an object that
    /// *is* that global, so that the changes can be recorded.
    fn mutable_top(&mut self) -> Result<NodeId> {
        let top = self.top()?;
        if let Node::Global(_) = self.pickle.node(top) {
            let global = self.pickle.node(top).clone();
            let callable = self.add(global)?;
            let args = self.add(Node::Tuple(Items::default()))?;
            let call = Call::new(Form::Reference, callable, args);
            self.pickle.nodes[top.0 as usize] = Node::Object(call);
        }
        Ok(top)
    }

    fn get(&mut self, opcode: u8) -> Result<()> {
        let index = match opcode {
            op::BINGET => u64::from(self.input.byte()?),
            op::LONG_BINGET => u64::from(u32::from_le_bytes(self.input.array()?)),
            _ => {
                let index = numbers::memo_index(self.input.line()?)?;
                let id = self.memo.get_int(&index);
                return self.push_memo(id, &index.to_string());
            }
        };
        match self.memo.get(index) {
            Some(id) => self.push(id),
            None => self.push_memo(None, &index.to_string()),
        }
    }

    fn push_memo(&mut self, id: Option<NodeId>, index: &str) -> Result<()> {
        self.unset_memo |= id.is_none();
        self.push(id.ok_or_else(|| damaged(format!("memo {index} was never set")))?)
    }

    fn put(&mut self, opcode: u8) -> Result<()> {
        let index = match opcode {
            op::BINPUT => u64::from(self.input.byte()?),
            op::LONG_BINPUT => u64::from(u32::from_le_bytes(self.input.array()?)),
            op::MEMOIZE => self.memo.len() as u64,
            _ => {
                let index = numbers::memo_index(self.input.line()?)?;
                let top = self.top()?;
                self.memo.set_int(index, top)?;
                return self.bound_memo();
            }
        };
        let top = self.top()?;
        self.memo.set(index, top)?;
        self.bound_memo()
    }

    fn bound_memo(&self) -> Result<()> {
        Limits::check("memo entries of a pickle", self.memo.len() as u64, self.limits.values)
    }
}

#[derive(Clone, Copy)]
enum Adding {
    Append,
    Add,
}

fn add_all<T: Clone>(to: &mut Vec<T>, items: &[T]) -> Result<()> {
    try_alloc::make_room(to, items.len() as u64)?;
    to.extend_from_slice(items);
    Ok(())
}

/// Returns pairs of keys and values, and whether the last key has no value.
fn pairs(items: &[NodeId]) -> Result<(Vec<(NodeId, NodeId)>, bool)> {
    let (pairs, rest) = items.as_chunks::<2>();
    let pairs = try_alloc::collect(pairs.iter().map(|[key, value]| (*key, *value)))?;
    Ok((pairs, !rest.is_empty()))
}

fn key_alone() -> Error {
    damaged("a key without a value")
}

fn kind(node: &Node) -> &'static str {
    match node {
        Node::None => "None",
        Node::Bool(_) => "a bool",
        Node::Int(_) => "an integer",
        Node::Float(_) => "a float",
        Node::Str(_) => "a string",
        Node::Bytes(_) => "bytes",
        Node::ByteArray(_) => "a bytearray",
        Node::List(_) => "a list",
        Node::Tuple(_) => "a tuple",
        Node::Set(_) => "a set",
        Node::FrozenSet(_) => "a frozenset",
        Node::Dict(_) => "a dict",
        Node::Global(_) | Node::Object(_) => "an object",
        Node::Persistent(_) => "a persistent id",
        Node::Buffer(_) => "a buffer",
        Node::Extension(_) => "an extension",
    }
}
