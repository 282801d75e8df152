//! Groups: names of objects.

use std::collections::HashSet;

use hdf5_reader::btree_v1::BTreeV1Node;
use hdf5_reader::btree_v2::{BTreeV2Header, BTreeV2Record, collect_btree_v2_records_storage};
use hdf5_reader::io::Cursor;
use hdf5_reader::messages::link::{self, LinkMessage, LinkTarget};
use hdf5_reader::messages::link_info::LinkInfoMessage;
use hdf5_reader::messages::symbol_table_msg::SymbolTableMessage;
use hdf5_reader::symbol_table::SymbolTableNode;
use statelens_checkpoint::{Error, Limits, Result, Text, order};

use crate::Hdf5File;
use crate::error::from_reader;
use crate::header::Widths;
use crate::heap::{DenseHeap, Names};

/// A name in a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The name.
    pub name: Text,
    /// What it stands for.
    pub target: Target,
}

/// What a name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The object whose header is at that address. Two names of one address are one object.
    Hard(u64),
    /// A path in this file.
    Soft(Text),
    /// A path in another file.
    External {
        /// The file, as it was written: absolute or relative to this one.
        file: Text,
        /// The path in it.
        path: Text,
    },
}

/// Where a group keeps its links.
#[derive(Debug, Clone, Default)]
pub(crate) struct Links {
    pub(crate) symbol_table: Option<SymbolTableMessage>,
    pub(crate) info: Option<LinkInfoMessage>,
    pub(crate) messages: Vec<LinkMessage>,
}

/// As hdf5-reader bounds its own walks: past any real tree.
const DEEPEST: u8 = 64;

impl Hdf5File {
    pub(crate) fn read_links(&self, links: &Links) -> Result<Vec<Link>> {
        let mut found: Vec<(u64, Link)> = Vec::new();
        if let Some(table) = &links.symbol_table {
            self.old_links(table, &mut found)?;
        }
        let ordered = links.info.as_ref().is_some_and(|info| info.creation_order_tracked);
        for message in &links.messages {
            found.push((message.creation_order.unwrap_or(0), Link::from(message.clone())));
        }
        if let Some(info) = &links.info
            && !Cursor::is_undefined_offset(info.fractal_heap_address, self.widths.offset)
        {
            self.dense_links(info, &mut found)?;
        }
        if links.symbol_table.is_none() {
            match ordered {
                true => order::by_key(&mut found, |(order, _)| *order),
                false => order::by(&mut found, |(_, a), (_, b)| a.name.cmp(&b.name)),
            }
        }
        Ok(found.into_iter().map(|(_, link)| link).collect())
    }

    fn old_links(&self, table: &SymbolTableMessage, found: &mut Vec<(u64, Link)>) -> Result<()> {
        let Widths { offset, length } = self.widths;
        let names = Names::read(&self.source, self.widths, table.heap_address, &self.limits)?;
        // Nodes still to be read, the next one last, with their level.
        let mut nodes = vec![(table.btree_address, None)];
        let mut seen = HashSet::new();
        while let Some((address, level)) = nodes.pop() {
            let at = |error: Error| error.at(self.source.base().saturating_add(address));
            if !seen.insert(address) {
                return Err(at(Error::damaged("the tree of a group's names leads in a circle")));
            }
            Limits::check("nodes of a group", seen.len() as u64, self.limits.members)?;
            if level == Some(0) {
                self.symbols(address, &names, found).map_err(at)?;
                continue;
            }
            let head = self.source.bytes(address, 8)?;
            let used = u64::from(u16::from_le_bytes([head[6], head[7]]));
            let len = 8
                + 2 * u64::from(offset)
                + used * u64::from(offset)
                + (used + 1) * u64::from(length);
            let bytes = self.source.bytes(address, len)?;
            let node = BTreeV1Node::parse(&mut Cursor::new(&bytes), offset, length, None);
            let node = node.map_err(from_reader).map_err(at)?;
            let sound = match level {
                None => node.level < DEEPEST,
                Some(level) => node.level + 1 == level,
            };
            if node.node_type != 0 || !sound {
                return Err(at(Error::damaged("the tree of a group's names is none")));
            }
            nodes.extend(node.children.iter().rev().map(|child| (*child, Some(node.level))));
        }
        Ok(())
    }

    /// The entries of a symbol table node.
    fn symbols(&self, address: u64, names: &Names, found: &mut Vec<(u64, Link)>) -> Result<()> {
        let Widths { offset, length } = self.widths;
        let head = self.source.bytes(address, 8)?;
        let used = u64::from(u16::from_le_bytes([head[6], head[7]]));
        let len = 8 + used * (2 * u64::from(offset) + 24);
        self.source.spend(len)?;
        let bytes = self.source.bytes(address, len)?;
        let node = SymbolTableNode::parse(&mut Cursor::new(&bytes), offset, length);
        for entry in node.map_err(from_reader)?.entries {
            let target = match entry.cache_type {
                2 => {
                    let [a, b, c, d, ..] = entry.scratch;
                    Target::Soft(names.get(u64::from(u32::from_le_bytes([a, b, c, d])))?)
                }
                _ => Target::Hard(entry.object_header_address),
            };
            found.push((0, Link { name: names.get(entry.link_name_offset)?, target }));
            Limits::check("names in a group", found.len() as u64, self.limits.members)?;
        }
        Ok(())
    }

    fn dense_links(&self, info: &LinkInfoMessage, found: &mut Vec<(u64, Link)>) -> Result<()> {
        for body in self.dense_objects(info.btree_name_index_address, info.fractal_heap_address)? {
            let body = body?;
            let Widths { offset, length } = self.widths;
            let message = link::parse(&mut Cursor::new(&body), offset, length, body.len());
            let message = message.map_err(from_reader)?;
            found.push((message.creation_order.unwrap_or(0), Link::from(message)));
            Limits::check("names in a group", found.len() as u64, self.limits.members)?;
        }
        Ok(())
    }

    /// The objects that a name index lists, read from the heap in its own order: forward.
    pub(crate) fn dense_objects(&self, index: u64, heap: u64) -> Result<Vec<Result<Vec<u8>>>> {
        let Widths { offset, length } = self.widths;
        let header = BTreeV2Header::parse_at_storage(&self.source, index, offset, length)
            .map_err(from_reader)?;
        Limits::check("names in an index", header.total_records, self.limits.members)?;
        let records = collect_btree_v2_records_storage(
            &self.source,
            &header,
            offset,
            length,
            None,
            &[],
            None,
        );
        let mut ids: Vec<Vec<u8>> = records
            .map_err(from_reader)?
            .into_iter()
            .filter_map(|record| match record {
                BTreeV2Record::LinkNameHash { heap_id, .. }
                | BTreeV2Record::AttributeNameHash { heap_id, .. } => Some(heap_id),
                _ => None,
            })
            .collect();
        let mut heap = DenseHeap::open(&self.source, self.widths, heap, &self.limits)?;
        order::by_key(&mut ids, |id| heap.offset(id));
        let mut spent = 0;
        ids.iter()
            .map(|id| {
                let object = heap.get(id);
                let len = object.as_ref().map_or(0, |object| object.len() as u64);
                self.source.spend(len)?;
                spent += len;
                Limits::check(
                    "bytes of one object's names and attributes",
                    spent,
                    self.limits.structure,
                )?;
                Ok(object)
            })
            .collect()
    }
}

impl From<LinkMessage> for Link {
    fn from(message: LinkMessage) -> Self {
        let target = match message.target {
            LinkTarget::Hard { address } => Target::Hard(address),
            LinkTarget::Soft { path } => Target::Soft(path.into()),
            LinkTarget::External { filename, path } => {
                Target::External { file: filename.into(), path: path.into() }
            }
        };
        Self { name: message.name.into(), target }
    }
}
