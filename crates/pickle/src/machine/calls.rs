//! Opcodes that name, call or fill objects.

use std::sync::Arc;

use statelens_checkpoint::{Error, Form, Global, Limits, Result, Text};

use super::{Machine, NAME_BYTES, kind};
use crate::graph::damaged;
use crate::names::{Verdict, verdict};
use crate::opcode as op;
use crate::{Call, GlobalUse, Node, NodeId, python2};

impl Machine<'_> {
    pub(super) fn read_global(&mut self, opcode: u8, offset: u64) -> Result<NodeId> {
        let mut computed = false;
        let (module, name) = match opcode {
            op::STACK_GLOBAL => {
                let name = self.pop()?;
                let module = self.pop()?;
                for id in [module, name] {
                    self.may_be_text(id)?;
                }
                let texts = (self.pickle.text(module), self.pickle.text(name));
                computed = texts.0.is_none() || texts.1.is_none();
                let unclear = |id| self.pickle.computed_text(id).unwrap_or_else(|| "?".into());
                let texts = (
                    texts.0.unwrap_or_else(|| unclear(module)),
                    texts.1.unwrap_or_else(|| unclear(name)),
                );
                // The two strings may be reused, and are copied each time.
                self.names += (texts.0.as_bytes().len() + texts.1.as_bytes().len()) as u64;
                Limits::check("bytes of all names in a pickle", self.names, NAME_BYTES)?;
                (texts.0.to_lossy().into_owned(), texts.1.to_lossy().into_owned())
            }
            _ => {
                let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                let (module, name) = (self.input.line(), self.input.line());
                match (module, name) {
                    (Ok(module), Ok(name)) => (text(module), text(name)),
                    (module, name) => {
                        let error = module.err().or(name.err());
                        return self.cut_global(opcode, offset, error);
                    }
                }
            }
        };
        self.named(module, name, offset, computed)
    }

    pub(super) fn named(
        &mut self,
        module: String,
        name: String,
        offset: u64,
        computed: bool,
    ) -> Result<NodeId> {
        let global = Arc::new(self.renamed(module, name));
        self.pickle.globals.push(GlobalUse { global: global.clone(), offset, computed });
        self.add(Node::Global(global))
    }

    pub(super) fn renamed(&self, module: String, name: String) -> Global {
        match self.protocol {
            ..3 => python2::rename(module, name),
            _ => Global::new(module, name),
        }
    }

    /// Handles a name without its line feed. The unpickler in Python drops the last byte of the
    /// file's last line, and looks the name up before it notices the missing rest; for `INST` it
    /// also makes the call.
    pub(super) fn cut_global(
        &mut self,
        opcode: u8,
        offset: u64,
        error: Option<Error>,
    ) -> Result<NodeId> {
        let error = error.unwrap_or_else(|| damaged("a line has no end"));
        let start = usize::try_from(offset).unwrap_or_default();
        let lines = self.input.bytes.get(start + 1..).unwrap_or_default();
        let mut lines = lines.splitn(2, |byte| *byte == b'\n');
        let (module, name) = (lines.next().unwrap_or_default(), lines.next());
        let cut = |line: &[u8]| line.split_last().map_or(Vec::new(), |(_, rest)| rest.to_vec());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (module, name) = match name {
            Some(name) => (text(module), text(&cut(name))),
            None => (text(&cut(module)), String::new()),
        };
        if opcode == op::INST {
            let callable = self.named(module, name, offset, false)?;
            let items = self.pop_mark()?;
            let args = self.add_tuple(items)?;
            self.add(Node::Object(Call::new(Form::Call, callable, args)))?;
        } else {
            let global = self.renamed(module, name);
            if let Verdict::Danger(_) = verdict(&global) {
                self.named(global.module.to_string(), global.name.to_string(), offset, false)?;
            }
            self.cut_name = Some(global);
        }
        Err(error)
    }

    /// Fails for nodes that are certainly not a `str`: CPython refuses them as a part of a name.
    pub(super) fn may_be_text(&self, id: NodeId) -> Result<()> {
        match self.pickle.node(id) {
            Node::Str(_) | Node::Bytes(_) | Node::Object(_) => Ok(()),
            Node::Persistent(_) | Node::Extension(_) => Ok(()),
            node => Err(damaged(format!("{} is a part of a name", kind(node)))),
        }
    }

    /// Fails for nodes that CPython certainly can't call.
    pub(super) fn may_be_called(&self, id: NodeId) -> Result<()> {
        match self.pickle.node(id) {
            Node::Global(_) | Node::Object(_) | Node::Persistent(_) | Node::Extension(_) => Ok(()),
            node => Err(damaged(format!("{} is called", kind(node)))),
        }
    }

    pub(super) fn object(&mut self, opcode: u8, offset: u64) -> Result<()> {
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
        self.may_be_called(callable)?;
        self.count_edges(2)?;
        let id = self.add(Node::Object(Call::new(form, callable, args)))?;
        if kwargs.is_some()
            && let Some(more) = self.pickle.more_mut(id)?
        {
            more.kwargs = kwargs;
        }
        self.push(id)
    }

    pub(super) fn build(&mut self) -> Result<()> {
        let state = self.pop()?;
        self.count_edges(1)?;
        let target = self.mutable_top()?;
        let nodes = self.pickle.nodes.len() as u32;
        if let Some(more) = self.pickle.more_mut(target)? {
            more.states.push(state);
            more.built_at = Some(nodes);
        } else {
            self.pickle.states.entry(target).or_default().push(state);
        }
        Ok(())
    }

    pub(super) fn persistent(&mut self, opcode: u8) -> Result<()> {
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

    pub(super) fn extension(&mut self, opcode: u8, offset: u64) -> Result<()> {
        let code = match opcode {
            op::EXT1 => u32::from(self.input.byte()?),
            op::EXT2 => u32::from(u16::from_le_bytes(self.input.array()?)),
            _ => u32::from_le_bytes(self.input.array()?),
        };
        self.pickle.extensions.push((code, offset));
        self.push_node(Node::Extension(code))
    }
}
