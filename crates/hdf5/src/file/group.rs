//! Groups: named links to objects.

use std::collections::HashSet;

use hdf5_reader::btree_v1::{BTreeV1Key, BTreeV1Node};
use hdf5_reader::btree_v2::{BTreeV2Header, BTreeV2Record, collect_btree_v2_records_storage};
use hdf5_reader::checksum::jenkins_lookup3;
use hdf5_reader::io::Cursor;
use hdf5_reader::messages::link_info::LinkInfoMessage;
use hdf5_reader::messages::symbol_table_msg::SymbolTableMessage;
use hdf5_reader::symbol_table::SymbolTableNode;
use statelens_checkpoint::{Error, Limits, Result, Text, order, try_alloc};

use crate::Hdf5File;
use crate::error::from_reader;
use crate::file::link::{self, Link, LinkValue};
use crate::heap::{DenseHeap, HeapNames};
use crate::source::Widths;

/// The location of a group's links.
#[derive(Debug, Clone, Default)]
pub(crate) struct Links {
    pub(crate) symbol_table: Option<SymbolTableMessage>,
    pub(crate) info: Option<LinkInfoMessage>,
    /// Links in its header, with their creation order.
    pub(crate) messages: Vec<(u64, Link)>,
}

#[derive(Debug, Default)]
pub(crate) struct Listed {
    pub(crate) links: Vec<Link>,
    /// Damage that libhdf5 would find.
    pub(crate) troubles: Vec<Error>,
}

/// The kind of objects in a heap with an index of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dense {
    Links,
    Attributes,
}

/// The location of such a heap and its indexes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DensePlace {
    pub(crate) holds: Dense,
    pub(crate) heap: u64,
    pub(crate) by_name: u64,
    pub(crate) by_order: Option<u64>,
}

/// The hash of a name in the index, and the bytes of an object or of its ID in the heap.
pub(crate) type Hashed = (u32, Vec<u8>);

/// A node of a group's tree that is still to be read: its address, its level if known, and the
/// names that bound it.
struct PendingNode {
    address: u64,
    level: Option<u8>,
    low: Option<Text>,
    high: Option<Text>,
}

/// The same limit as in hdf5-reader: deeper than any real tree.
const DEEPEST: u8 = 64;

impl Hdf5File {
    pub(crate) fn read_links(&self, links: &Links) -> Result<Listed> {
        let mut found: Vec<(u64, Link)> = Vec::new();
        let mut troubles = Vec::new();
        if let Some(table) = &links.symbol_table {
            self.old_links(table, &mut found, &mut troubles)?;
        }
        let ordered = links.info.as_ref().is_some_and(|info| info.creation_order_tracked);
        found.extend(links.messages.iter().cloned());
        if let Some(info) = &links.info
            && !self.source.is_undefined(info.fractal_heap_address)
        {
            self.dense_links(info, &mut found, &mut troubles)?;
        }
        if links.symbol_table.is_none() {
            match ordered {
                true => order::by_key(&mut found, |(order, _)| *order),
                false => order::by(&mut found, |(_, a), (_, b)| a.name.cmp(&b.name)),
            }
        }
        let unfound = |(_, link): &&(u64, Link)| {
            let name = link.name.as_bytes();
            name.is_empty() || name.contains(&b'/')
        };
        if let Some((_, link)) = found.iter().find(unfound) {
            let what =
                format!("no path can lead to a link with the name {:?}", link.name.to_lossy());
            troubles.push(Error::damaged(what).expected("a name without a slash"));
        }
        // A vector of exact size, since the original has spare capacity.
        let mut links = try_alloc::vec(found.len() as u64)?;
        links.extend(found.into_iter().map(|(_, link)| link));
        Ok(Listed { links, troubles })
    }

    fn old_links(
        &self,
        table: &SymbolTableMessage,
        found: &mut Vec<(u64, Link)>,
        troubles: &mut Vec<Error>,
    ) -> Result<()> {
        let Widths { offset, length } = self.source.widths;
        let names = HeapNames::read(&self.source, table.heap_address, &self.limits)?;
        // The remaining nodes, the next one last.
        let mut nodes =
            vec![PendingNode { address: table.btree_address, level: None, low: None, high: None }];
        let mut seen = HashSet::new();
        let mut rising = true;
        while let Some(PendingNode { address, level, low, high }) = nodes.pop() {
            let at = |error: Error| self.source.at(address, error);
            if !seen.insert(address) {
                return Err(at(Error::damaged("the tree of a group's names has a cycle")));
            }
            Limits::check("nodes of a group", seen.len() as u64, self.limits.members)?;
            if level == Some(0) {
                let from = found.len();
                self.symbols(address, &names, found).map_err(at)?;
                // A name is greater than the key before its node, and at most the one after it.
                let of = found.get(from..).unwrap_or_default();
                let behind = |name: &Text| low.as_ref().is_none_or(|low| name > low);
                rising &= of.first().is_none_or(|(_, link)| behind(&link.name))
                    && of
                        .last()
                        .zip(high.as_ref())
                        .is_none_or(|((_, link), high)| link.name <= *high)
                    && of.is_sorted_by(|(_, left), (_, right)| left.name <= right.name);
                continue;
            }
            let head = self.source.bytes(address, 8)?;
            let used = u64::from(u16::from_le_bytes([head[6], head[7]]));
            // Nodes always have the size of full ones, and libhdf5 reads all of each.
            let (wide, key) = (u64::from(offset), u64::from(length));
            let room = self.group_tree_width;
            self.source.room(address, 8 + 2 * wide + room * wide + (room + 1) * key)?;
            if used > self.group_tree_width {
                return Err(at(Error::damaged(format!(
                    "a node with {used} names of a group, and room for {}",
                    self.group_tree_width
                ))));
            }
            let len = 8 + 2 * wide + used * wide + (used + 1) * key;
            let bytes = self.source.bytes(address, len)?;
            let node = BTreeV1Node::parse(&mut Cursor::new(&bytes), offset, length, None);
            let node = node.map_err(from_reader).map_err(at)?;
            let sound = match level {
                None => node.level < DEEPEST,
                Some(level) => node.level + 1 == level,
            };
            if node.node_type != 0 || !sound {
                return Err(at(Error::damaged("a group's B-tree of names has no signature")));
            }
            let key = |key: &BTreeV1Key| match key {
                BTreeV1Key::Group { local_heap_offset } => names.get(*local_heap_offset),
                BTreeV1Key::RawData { .. } => Err(Error::damaged("an index of names lists chunks")),
            };
            if !node.children.is_empty() {
                let keys = node.keys.iter().map(key).collect::<Result<Vec<Text>>>().map_err(at)?;
                rising &= keys.is_sorted()
                    && keys.first().zip(low.as_ref()).is_none_or(|(key, low)| key >= low)
                    && keys.last().zip(high.as_ref()).is_none_or(|(key, high)| key <= high);
                for (child, keys) in node.children.iter().zip(keys.windows(2)).rev() {
                    nodes.push(PendingNode {
                        address: *child,
                        level: Some(node.level),
                        low: keys.first().cloned(),
                        high: keys.last().cloned(),
                    });
                }
            }
        }
        if !rising {
            let what =
                "the names of a group are out of order, so libhdf5 does not find all of them";
            troubles.push(self.source.at(table.btree_address, Error::damaged(what)));
        }
        Ok(())
    }

    /// Reads the entries of a symbol table node.
    fn symbols(&self, address: u64, names: &HeapNames, found: &mut Vec<(u64, Link)>) -> Result<()> {
        let Widths { offset, length } = self.source.widths;
        let head = self.source.bytes(address, 8)?;
        let used = u64::from(u16::from_le_bytes([head[6], head[7]]));
        let entry = 2 * u64::from(offset) + 24;
        self.source.room(address, 8 + self.group_leaf_width * entry)?;
        if used > self.group_leaf_width {
            return Err(Error::damaged(format!(
                "a list with {used} names of a group, and room for {}",
                self.group_leaf_width
            )));
        }
        let len = 8 + used * entry;
        self.source.spend(len)?;
        let bytes = self.source.bytes(address, len)?;
        let node = SymbolTableNode::parse(&mut Cursor::new(&bytes), offset, length);
        for entry in node.map_err(from_reader)?.entries {
            let target = match entry.cache_type {
                2 => {
                    let [a, b, c, d, ..] = entry.scratch;
                    LinkValue::Soft(names.get(u64::from(u32::from_le_bytes([a, b, c, d])))?)
                }
                0 | 1 => LinkValue::Hard(entry.object_header_address),
                kind => {
                    return Err(Error::damaged(format!("a name of the unknown kind {kind}"))
                        .expected("kind 0, 1 or 2"));
                }
            };
            found.push((0, Link { name: names.get(entry.link_name_offset)?, target }));
            Limits::check("names in a group", found.len() as u64, self.limits.members)?;
        }
        Ok(())
    }

    fn dense_links(
        &self,
        info: &LinkInfoMessage,
        found: &mut Vec<(u64, Link)>,
        troubles: &mut Vec<Error>,
    ) -> Result<()> {
        let place = DensePlace {
            holds: Dense::Links,
            heap: info.fractal_heap_address,
            by_name: info.btree_name_index_address,
            by_order: info.btree_creation_order_address,
        };
        let (mut unfound, mut lost) = (0u64, Vec::new());
        for object in self.dense_objects(place)? {
            // One that can't be read must not hide the others.
            let (hash, body) = match object {
                Ok(object) => object,
                Err(error) => {
                    lost.push(error);
                    continue;
                }
            };
            let (order, link) = link::parse(&body, self.source.widths.offset)?;
            unfound += u64::from(!is_hash(hash, &link.name));
            found.push((order, link));
            Limits::check("names in a group", found.len() as u64, self.limits.members)?;
        }
        let count = lost.len();
        troubles.extend(lost.into_iter().next().map(|error| match count {
            1 => error.context("a name of the group is lost"),
            _ => error.context(format_args!("{count} names of the group are lost")),
        }));
        if unfound > 0 {
            let what = "the index of a group's names lists other names, so libhdf5 does not find \
                        all of them";
            troubles.push(Error::damaged(what).at(place.by_name));
        }
        Ok(())
    }

    /// Reads the objects that a name index lists, forward in the order of the heap.
    pub(crate) fn dense_objects(&self, place: DensePlace) -> Result<Vec<Result<Hashed>>> {
        let ids = self.dense_ids(place)?;
        self.check_order(place, ids.len())?;
        let mut heap = DenseHeap::open(&self.source, place.heap, &self.limits)?;
        let offsets = ids.iter().enumerate().map(|(at, (_, id))| (heap.offset(id), at));
        let mut order = try_alloc::collect(offsets)?;
        order::natural(&mut order);
        let mut spent = 0;
        order
            .into_iter()
            .map(|(_, at)| {
                let (hash, id) = &ids[at];
                let object = heap.get(id);
                let len = object.as_ref().map_or(0, |object| object.len() as u64);
                self.source.spend(len)?;
                spent += len;
                Limits::check(
                    "bytes of one object's names and attributes",
                    spent,
                    self.limits.structure,
                )?;
                Ok(object.map(|object| (*hash, object)))
            })
            .collect()
    }

    /// Returns the entries of a name index: the hashes of names, in order, and the objects' IDs in
    /// the heap.
    pub(crate) fn dense_ids(&self, place: DensePlace) -> Result<Vec<Hashed>> {
        let record_type = match place.holds {
            Dense::Links => 5,
            Dense::Attributes => 8,
        };
        let records = self.records(place.by_name, record_type)?;
        let ids: Vec<Hashed> = records
            .into_iter()
            .filter_map(|record| match record {
                BTreeV2Record::LinkNameHash { heap_id, hash }
                | BTreeV2Record::AttributeNameHash { heap_id, hash, .. } => Some((hash, heap_id)),
                _ => None,
            })
            .collect();
        if !ids.is_sorted_by_key(|(hash, _)| *hash) {
            return Err(Error::damaged("an index of names is out of order").at(place.by_name));
        }
        Ok(ids)
    }

    /// Fails unless the second index, if there is one, lists as many objects: h5py uses it for
    /// groups that track creation order.
    pub(crate) fn check_order(&self, place: DensePlace, count: usize) -> Result<()> {
        let record_type = match place.holds {
            Dense::Links => 6,
            Dense::Attributes => 9,
        };
        let index = place.by_order;
        let index = index.filter(|index| !self.source.is_undefined(*index));
        match index {
            Some(index) if self.records(index, record_type)?.len() != count => {
                let what = "two indexes of the same names list different numbers of them";
                Err(Error::damaged(what).at(index))
            }
            _ => Ok(()),
        }
    }

    /// Returns the records of a version 2 tree, which must be of that kind.
    fn records(&self, index: u64, kind: u8) -> Result<Vec<BTreeV2Record>> {
        let Widths { offset, length } = self.source.widths;
        let at = |error: Error| self.source.at(index, error);
        let header = BTreeV2Header::parse_at_storage(&self.source, index, offset, length)
            .map_err(from_reader)
            .map_err(at)?;
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
        let records = records.map_err(from_reader).map_err(at)?;
        match header.btree_type == kind && header.total_records == records.len() as u64 {
            true => Ok(records),
            false => Err(at(Error::damaged("an index of names contradicts its header"))),
        }
    }
}

/// Returns whether an index has a name under its correct hash.
pub(crate) fn is_hash(hash: u32, name: &Text) -> bool {
    jenkins_lookup3(&name.encode()) == hash
}
