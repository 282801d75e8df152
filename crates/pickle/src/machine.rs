//! The machine: runs the opcodes, builds objects, calls nothing.

mod input;
mod memo;

use std::collections::HashMap;
use std::sync::Arc;

use statelens_checkpoint::{Error, Form, Global, Int, Limits, Result, Text, room};

use self::input::Input;
use self::memo::Memo;
use crate::graph::damaged;
use crate::opcode as op;
use crate::{Broken, Call, GlobalUse, Items, Node, NodeId, Pickle, escapes, python2};

/// The longest integer in bytes. Printing one takes time that grows faster than its length.
const INT_BYTES: usize = 16 << 10;
/// How long all names together may be that are put together from strings on the stack.
const NAME_BYTES: u64 = 32 << 20;
/// The longest integer in digits, as CPython limits it.
const INT_DIGITS: usize = 4300;

/// Reads the pickle that `bytes` begin with; what follows its `STOP` is left alone.
///
/// `base` is where `bytes` begin in the file: it is added to the places in errors. Memory and
/// time are bounded by the bytes that are there and by `limits`. The error carries what was
/// described until then.
pub fn read(bytes: &[u8], base: u64, limits: &Limits) -> Result<Pickle, Broken> {
    let mut machine = Machine {
        input: Input { bytes, at: 0, starved: false },
        limits,
        pickle: Pickle { base, limits: limits.clone(), ..Pickle::default() },
        stack: Vec::new(),
        marks: Vec::new(),
        memo: Memo::default(),
        edges: 0,
        names: 0,
        extra: 0,
        buffers: 0,
        protocol: 0,
        small: Small::default(),
    };
    let mut start = 0;
    // `None` is the first of all.
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
    /// Heights of the stack where a `MARK` was.
    marks: Vec<usize>,
    memo: Memo,
    /// How many times an object was put into another, all containers together.
    edges: u64,
    /// Bytes of the names that were put together from strings.
    names: u64,
    /// What objects cost beyond other nodes, in nodes.
    extra: u64,
    buffers: u32,
    /// What the last `PROTO` said: below 3, Python takes names for those of Python 2.
    protocol: u8,
    small: Small,
}

/// Nodes of immutable values that occur all the time; one of each is enough.
#[derive(Default)]
struct Small {
    yes: Option<NodeId>,
    no: Option<NodeId>,
    empty_tuple: Option<NodeId>,
    bytes: HashMap<u8, NodeId>,
}

impl Machine<'_> {
    /// Runs to `STOP`; `start` is kept at the opcode that runs.
    fn run(&mut self, start: &mut usize) -> Result<NodeId> {
        loop {
            *start = self.input.at;
            let opcode = self.input.byte()?;
            if opcode == op::STOP {
                let root = self.pop()?;
                self.pickle.end = self.input.at as u64;
                return Ok(root);
            }
            self.step(opcode, *start as u64)?;
        }
    }

    fn step(&mut self, opcode: u8, offset: u64) -> Result<()> {
        match opcode {
            op::PROTO => self.proto(),
            op::FRAME => self.frame(offset),
            op::MARK => {
                self.bound_stack()?;
                room::push(&mut self.marks, self.stack.len())
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
                let line = self.input.line()?;
                let value = std::str::from_utf8(line).ok().and_then(|text| text.parse().ok());
                self.push_node(Node::Float(value.ok_or_else(|| damaged("a float that is none"))?))
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
                self.append(vec![item], Adding::Append)
            }
            op::APPENDS => {
                let items = self.pop_mark()?;
                self.append(items, Adding::Append)
            }
            op::ADDITEMS => {
                let items = self.pop_mark()?;
                self.append(items, Adding::Add)
            }
            op::SETITEM => {
                let value = self.pop()?;
                let key = self.pop()?;
                self.set_items(&[key, value])
            }
            op::SETITEMS => {
                let items = self.pop_mark()?;
                self.set_items(&items)
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

    /// See [`Broken::open`].
    fn open(&self) -> Vec<(Option<NodeId>, NodeId)> {
        let mut open = Vec::new();
        let mut floor = 0;
        for mark in &self.marks {
            // Below a mark is the dict that is being filled. In the one around it, it is the value
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

    /// A frame only helps a reader to read ahead; one that claims more than there is is noted.
    fn frame(&mut self, offset: u64) -> Result<()> {
        let len = u64::from_le_bytes(self.input.array()?);
        if len > self.input.rest() as u64 {
            self.pickle.frame_lies.get_or_insert(offset);
        }
        Ok(())
    }

    fn pop_opcode(&mut self) -> Result<()> {
        // CPython pops the mark if that is what is on top.
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
                let bytes = self.input.take(len)?;
                Limits::check("bytes of one integer", len, INT_BYTES as u64)?;
                Int::from_le_bytes(bytes)
            }
            _ => {
                let line = self.input.line()?;
                if opcode == op::INT && matches!(line, b"00" | b"01") {
                    return self.push_bool(line == b"01");
                }
                let digits = line.strip_suffix(b"L").unwrap_or(line);
                Limits::check("digits of one integer", digits.len() as u64, INT_DIGITS as u64)?;
                let text = std::str::from_utf8(digits).map(str::trim).unwrap_or_default();
                Int::parse(text).ok_or_else(|| damaged("an integer that is none"))?
            }
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
        Limits::check("bytes of one string", len, self.limits.string)?;
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
            op::DICT => Node::Dict(Box::new(pairs(&items)?)),
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

    fn append(&mut self, items: Vec<NodeId>, adding: Adding) -> Result<()> {
        self.count_edges(items.len())?;
        let target = self.mutable_top()?;
        if let Some(more) = self.pickle.more_mut(target)? {
            return add_all(&mut more.items, &items);
        }
        match (&mut self.pickle.nodes[target.0 as usize], adding) {
            (Node::List(list), Adding::Append) => add_all(list, &items)?,
            (Node::Set(set), Adding::Add) => add_all(set, &items)?,
            (node, _) => return Err(damaged(format!("nothing can be added to {}", kind(node)))),
        }
        Ok(())
    }

    fn set_items(&mut self, items: &[NodeId]) -> Result<()> {
        self.count_edges(items.len())?;
        let entries = pairs(items)?;
        let target = self.mutable_top()?;
        if let Some(more) = self.pickle.more_mut(target)? {
            return add_all(&mut more.entries, &entries);
        }
        match &mut self.pickle.nodes[target.0 as usize] {
            Node::Dict(dict) => add_all(dict, &entries)?,
            node => return Err(damaged(format!("{} takes no items by key", kind(node)))),
        }
        Ok(())
    }

    /// The top of the stack, which is about to be changed. A global becomes an object that *is*
    /// that global, so that what is done to it has a place.
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
            op::BINGET => u32::from(self.input.byte()?),
            op::LONG_BINGET => u32::from_le_bytes(self.input.array()?),
            _ => self.text_index()?,
        };
        let id = self.memo.get(index);
        self.push(id.ok_or_else(|| damaged(format!("memo {index} was never set")))?)
    }

    fn put(&mut self, opcode: u8) -> Result<()> {
        let index = match opcode {
            op::BINPUT => u32::from(self.input.byte()?),
            op::LONG_BINPUT => u32::from_le_bytes(self.input.array()?),
            op::MEMOIZE => self.memo.len() as u32,
            _ => self.text_index()?,
        };
        let top = self.top()?;
        self.memo.set(index, top)?;
        Limits::check("memo entries of a pickle", self.memo.len() as u64, self.limits.values)
    }

    fn text_index(&mut self) -> Result<u32> {
        let line = self.input.line()?;
        let index = std::str::from_utf8(line).ok().and_then(|text| text.trim().parse().ok());
        index.ok_or_else(|| damaged("a memo index that is not a number from 0 to 4294967295"))
    }

    fn read_global(&mut self, opcode: u8, offset: u64) -> Result<NodeId> {
        let mut computed = false;
        let (module, name) = match opcode {
            op::STACK_GLOBAL => {
                let name = self.pop()?;
                let module = self.pop()?;
                let texts = (self.pickle.text(module), self.pickle.text(name));
                computed = texts.0.is_none() || texts.1.is_none();
                let unclear = |id| self.pickle.computed_text(id).unwrap_or_else(|| "?".into());
                let texts = (
                    texts.0.unwrap_or_else(|| unclear(module)),
                    texts.1.unwrap_or_else(|| unclear(name)),
                );
                // The two strings may be used again and again, and are copied each time.
                self.names += (texts.0.as_bytes().len() + texts.1.as_bytes().len()) as u64;
                Limits::check("bytes of all names in a pickle", self.names, NAME_BYTES)?;
                (texts.0.to_lossy().into_owned(), texts.1.to_lossy().into_owned())
            }
            _ => {
                let module = self.input.line()?;
                let name = self.input.line()?;
                let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                (text(module), text(name))
            }
        };
        let global = match self.protocol {
            ..3 => python2::rename(module, name),
            _ => Global::new(module, name),
        };
        let global = Arc::new(global);
        self.pickle.globals.push(GlobalUse { global: global.clone(), offset, computed });
        self.add(Node::Global(global))
    }

    fn object(&mut self, opcode: u8, offset: u64) -> Result<()> {
        let (form, callable, args, kwargs) = match opcode {
            op::INST => {
                let callable = self.read_global(opcode, offset)?;
                let items = self.pop_mark()?;
                let args = self.add_tuple(items)?;
                (Form::Call, callable, args, None)
            }
            op::OBJ => {
                let mut items = self.pop_mark()?;
                if items.is_empty() {
                    return Err(damaged("OBJ without a class"));
                }
                let callable = items.remove(0);
                let args = self.add_tuple(items)?;
                (Form::Call, callable, args, None)
            }
            op::NEWOBJ_EX => {
                let kwargs = self.pop()?;
                let args = self.pop()?;
                (Form::Instance, self.pop()?, args, Some(kwargs))
            }
            _ => {
                let args = self.pop()?;
                let form = if opcode == op::REDUCE { Form::Call } else { Form::Instance };
                (form, self.pop()?, args, None)
            }
        };
        self.count_edges(2)?;
        let id = self.add(Node::Object(Call::new(form, callable, args)))?;
        if kwargs.is_some()
            && let Some(more) = self.pickle.more_mut(id)?
        {
            more.kwargs = kwargs;
        }
        self.push(id)
    }

    fn build(&mut self) -> Result<()> {
        let state = self.pop()?;
        self.count_edges(1)?;
        let target = self.mutable_top()?;
        if let Some(more) = self.pickle.more_mut(target)? {
            more.states.push(state);
        } else {
            self.pickle.states.entry(target).or_default().push(state);
        }
        Ok(())
    }

    fn persistent(&mut self, opcode: u8) -> Result<()> {
        let id = match opcode {
            op::PERSID => {
                let line = self.input.line()?;
                let text = Text::from_surrogatepass(line)
                    .map_err(|_| damaged("a persistent id that is not text"))?;
                self.add(Node::Str(text))?
            }
            _ => self.pop()?,
        };
        self.push_node(Node::Persistent(id))
    }

    fn extension(&mut self, opcode: u8, offset: u64) -> Result<()> {
        let code = match opcode {
            op::EXT1 => u32::from(self.input.byte()?),
            op::EXT2 => u32::from(u16::from_le_bytes(self.input.array()?)),
            _ => u32::from_le_bytes(self.input.array()?),
        };
        self.pickle.extensions.push((code, offset));
        self.push_node(Node::Extension(code))
    }

    fn push_bool(&mut self, value: bool) -> Result<()> {
        let known = if value { self.small.yes } else { self.small.no };
        let id = match known {
            Some(id) => id,
            None => self.add(Node::Bool(value))?,
        };
        *(if value { &mut self.small.yes } else { &mut self.small.no }) = Some(id);
        self.push(id)
    }

    fn add_tuple(&mut self, items: Vec<NodeId>) -> Result<NodeId> {
        self.count_edges(items.len())?;
        let items = self.pickle.keep(&items)?;
        self.add(Node::Tuple(items))
    }

    fn add(&mut self, node: Node) -> Result<NodeId> {
        let count = self.pickle.nodes.len() as u64;
        if let Node::Object(_) = node {
            self.extra += 3;
        }
        Limits::check("objects in a pickle", count + self.extra, self.limits.values)?;
        self.pickle.nodes.push(node)?;
        Ok(NodeId(count as u32))
    }

    fn push_node(&mut self, node: Node) -> Result<()> {
        let id = self.add(node)?;
        self.push(id)
    }

    fn push(&mut self, id: NodeId) -> Result<()> {
        self.bound_stack()?;
        room::push(&mut self.stack, id)
    }

    fn bound_stack(&self) -> Result<()> {
        let height = (self.stack.len() + self.marks.len()) as u64;
        Limits::check("values on a pickle's stack", height, self.limits.values)
    }

    fn count_edges(&mut self, count: usize) -> Result<()> {
        self.edges += count as u64;
        let allowed = self.limits.values.saturating_mul(4);
        Limits::check("items in all containers of a pickle", self.edges, allowed)
    }

    /// Where the values since the last mark begin.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn top(&self) -> Result<NodeId> {
        let reachable = self.stack.len() > self.floor();
        let top = self.stack.last().copied().filter(|_| reachable);
        top.ok_or_else(|| damaged("an opcode finds the stack empty"))
    }

    fn pop(&mut self) -> Result<NodeId> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    fn pop_n(&mut self, count: usize) -> Result<Vec<NodeId>> {
        let start = self.stack.len().checked_sub(count).filter(|start| *start >= self.floor());
        let start = start.ok_or_else(|| damaged("an opcode finds too little on the stack"))?;
        self.pop_from(start)
    }

    fn pop_mark(&mut self) -> Result<Vec<NodeId>> {
        let mark = self.marks.pop().ok_or_else(|| damaged("an opcode finds no mark"))?;
        self.pop_from(mark)
    }

    fn pop_from(&mut self, start: usize) -> Result<Vec<NodeId>> {
        let items = room::copied(&self.stack[start..])?;
        self.stack.truncate(start);
        Ok(items)
    }
}

#[derive(Clone, Copy)]
enum Adding {
    Append,
    Add,
}

fn add_all<T: Clone>(to: &mut Vec<T>, items: &[T]) -> Result<()> {
    room::make_room(to, items.len() as u64)?;
    to.extend_from_slice(items);
    Ok(())
}

fn pairs(items: &[NodeId]) -> Result<Vec<(NodeId, NodeId)>> {
    let (pairs, rest) = items.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(damaged("a key without a value"));
    }
    room::collect(pairs.iter().map(|[key, value]| (*key, *value)))
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
