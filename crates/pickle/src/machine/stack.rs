//! The stack, and the nodes that opcodes push onto it.

use statelens_checkpoint::{Limits, Result, try_alloc};

use super::Machine;
use crate::graph::damaged;
use crate::{Node, NodeId};

impl Machine<'_> {
    pub(super) fn push_bool(&mut self, value: bool) -> Result<()> {
        let known = if value { self.small.yes } else { self.small.no };
        let id = match known {
            Some(id) => id,
            None => self.add(Node::Bool(value))?,
        };
        *(if value { &mut self.small.yes } else { &mut self.small.no }) = Some(id);
        self.push(id)
    }

    pub(super) fn add_tuple(&mut self, items: Vec<NodeId>) -> Result<NodeId> {
        self.count_edges(items.len())?;
        let items = self.pickle.keep(&items)?;
        self.add(Node::Tuple(items))
    }

    pub(super) fn add(&mut self, node: Node) -> Result<NodeId> {
        let count = self.pickle.nodes.len() as u64;
        if let Node::Object(_) = node {
            self.extra += 3;
        }
        Limits::check("objects in a pickle", count + self.extra, self.limits.values)?;
        self.pickle.nodes.push(node)?;
        Ok(NodeId(count as u32))
    }

    pub(super) fn push_node(&mut self, node: Node) -> Result<()> {
        let id = self.add(node)?;
        self.push(id)
    }

    pub(super) fn push(&mut self, id: NodeId) -> Result<()> {
        self.bound_stack()?;
        try_alloc::push(&mut self.stack, id)
    }

    pub(super) fn bound_stack(&self) -> Result<()> {
        let height = (self.stack.len() + self.marks.len()) as u64;
        Limits::check("values on a pickle's stack", height, self.limits.values)
    }

    pub(super) fn count_edges(&mut self, count: usize) -> Result<()> {
        self.edges += count as u64;
        let allowed = self.limits.values.saturating_mul(4);
        Limits::check("items in all containers of a pickle", self.edges, allowed)
    }

    pub(super) fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    pub(super) fn top(&self) -> Result<NodeId> {
        let reachable = self.stack.len() > self.floor();
        let top = self.stack.last().copied().filter(|_| reachable);
        top.ok_or_else(|| damaged("an opcode finds the stack empty"))
    }

    pub(super) fn pop(&mut self) -> Result<NodeId> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    pub(super) fn pop_n(&mut self, count: usize) -> Result<Vec<NodeId>> {
        let start = self.stack.len().checked_sub(count).filter(|start| *start >= self.floor());
        let start = start.ok_or_else(|| damaged("an opcode finds too little on the stack"))?;
        self.pop_from(start)
    }

    pub(super) fn pop_mark(&mut self) -> Result<Vec<NodeId>> {
        let mark = self.marks.pop().ok_or_else(|| damaged("an opcode finds no mark"))?;
        self.pop_from(mark)
    }

    pub(super) fn pop_from(&mut self, start: usize) -> Result<Vec<NodeId>> {
        let items = try_alloc::copied(&self.stack[start..])?;
        self.stack.truncate(start);
        Ok(items)
    }
}
