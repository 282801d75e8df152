//! Opens a container and visits everything in it.

pub(crate) mod attribute;
pub(crate) mod browse;
pub(crate) mod chunks;
pub(crate) mod dataset;
pub(crate) mod dense;
pub(crate) mod end;
pub(crate) mod group;
pub(crate) mod link;
pub(crate) mod render;
mod selection;
mod superblock;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, OnceLock};

use hdf5_reader::Storage;
use hdf5_reader::messages::attribute_info;
use hdf5_reader::messages::{
    MSG_ATTRIBUTE, MSG_ATTRIBUTE_INFO, MSG_DATA_LAYOUT, MSG_DATASPACE, MSG_DATATYPE,
    MSG_EXTERNAL_FILES, MSG_LINK, MSG_LINK_INFO, MSG_SYMBOL_TABLE, link_info, symbol_table_msg,
};
use hdf5_reader::superblock::Superblock;
use statelens_checkpoint::{
    Error, ErrorKind, FileId, FileSet, Interner, Limits, Progress, Recent, Result, Text, order,
    try_alloc,
};

use crate::datatype::Datatype;
use crate::error::from_reader;
use crate::file::attribute::{Attribute, Parsed};
use crate::file::dataset::Dataset;
use crate::file::dense::DenseAttributes;
use crate::file::group::{Dense, DensePlace, Links, Listed};
use crate::file::link::{Followed, Link, LinkValue, follow};
use crate::header::{self, Message, Messages};
use crate::heap::GlobalHeap;
use crate::source::{Source, Widths};

#[derive(Debug)]
pub struct Hdf5File {
    pub(crate) source: Source,
    pub(crate) id: FileId,
    pub(crate) limits: Limits,
    pub(crate) heap: GlobalHeap,
    pub(crate) types: Mutex<Recent<Parsed>>,
    pub(crate) texts: Mutex<Interner>,
    /// Capacity of the nodes of version 1 trees: entries for chunks, for groups, for names.
    pub(crate) chunk_tree_width: u64,
    pub(crate) group_tree_width: u64,
    pub(crate) group_leaf_width: u64,
    /// The base address recorded in the superblock; addresses count from the actual start.
    pub(crate) recorded_base: u64,
    superblock: Superblock,
}

#[derive(Debug, Clone)]
pub enum ObjectKind {
    /// A group: see [`Hdf5File::links`].
    Group,
    Dataset(Box<Dataset>),
    /// A dataset whose header can't be parsed.
    Unreadable(Error),
    Datatype(Arc<Datatype>),
}

/// An object, as described by its header.
#[derive(Debug, Clone)]
pub struct Object {
    /// Address of its header, from the start of the container. Names with the same address are hard
    /// links to one object.
    pub address: u64,
    pub kind: ObjectKind,
    pub attributes: Vec<Attribute>,
    /// Errors of attributes that could not be read.
    pub troubles: Vec<Error>,
    /// Location of a group's links. Boxed because most objects are not groups.
    links: Option<Box<Links>>,
}

impl Object {
    pub fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.attributes.iter().find(|attribute| attribute.name == name)
    }

    fn add(&mut self, attribute: Result<Attribute>) {
        match attribute {
            Ok(attribute) => self.attributes.push(attribute),
            Err(error) => self.troubles.push(error),
        }
    }

    pub fn dataset(&self) -> Option<&Dataset> {
        match &self.kind {
            ObjectKind::Dataset(dataset) => Some(dataset),
            _ => None,
        }
    }
}

/// Everything in a container, each object once.
#[derive(Debug)]
pub struct ObjectTree {
    /// The objects by address, including the root; an error if the header can't be read.
    pub objects: BTreeMap<u64, Result<Object>>,
    pub groups: Groups,
    /// A path to each object, computed on demand.
    paths: OnceLock<HashMap<u64, Text>>,
}

/// The groups of a container, and findings about all objects that were read.
#[derive(Debug)]
pub struct Groups {
    pub root: u64,
    /// Links of each group, by its address.
    pub links: HashMap<u64, Result<Vec<Link>>>,
    /// Damage that libhdf5 would find when listing a group, by the group's address.
    pub troubles: BTreeMap<u64, Vec<Error>>,
    /// Names that occur more than once in a group, by its address.
    pub twice: BTreeMap<u64, Vec<Text>>,
    /// Errors of attributes that can't be read: the first ones.
    pub attributes: Vec<Error>,
    /// Errors of objects that can't be read and were not requested: the first ones.
    pub unread: Vec<Error>,
    /// Positions in `links`, sorted by name, of groups with more than [`MAX_LINEAR`] links.
    names: HashMap<u64, Vec<u32>>,
    /// The largest address up to which a dataset's data extends within the file.
    data_end: u64,
}

impl Hdf5File {
    /// Opens a container; reads only its superblock.
    pub fn open(files: &FileSet, id: FileId, limits: &Limits) -> Result<Self> {
        Self::open_at(files, id, 0, limits)
    }

    /// Like [`Hdf5File::open`], for a container that begins at byte `start` of a file: a stored
    /// member of an archive.
    pub fn open_at(files: &FileSet, id: FileId, start: u64, limits: &Limits) -> Result<Self> {
        let inner = files.structure(id)?;
        let name = |error: Error| error.in_file(files.name(id));
        // The superblock says how wide addresses are.
        let whole = Source::new(inner.clone(), start, Widths::default());
        let superblock =
            Superblock::parse_from_storage(&whole).map_err(from_reader).map_err(name)?;
        let Superblock { offset_size, length_size, base_address, .. } = superblock;
        for width in [offset_size, length_size] {
            if ![2, 4, 8].contains(&width) {
                return Err(name(Error::unsupported(format!("addresses of {width} bytes"))));
            }
        }
        superblock::check(&whole, &superblock).map_err(name)?;
        let recorded_base =
            end::recorded_base(&whole, base_address, superblock.version, offset_size)
                .map_err(name)?;
        let base = start.checked_add(base_address);
        let base = base.ok_or_else(|| name(Error::damaged("a container without a start")))?;
        let widths = Widths { offset: offset_size, length: length_size };
        let source = Source::new(inner, base, widths);
        let extension = extension(&source, &superblock, limits).map_err(name)?;
        // Twice K. If the file has no values, the defaults of libhdf5 apply.
        let [chunks, groups, leaves] = extension.unwrap_or(match superblock.version {
            0 => [32, superblock.group_internal_node_k, superblock.group_leaf_node_k],
            1 => [
                superblock.indexed_storage_k,
                superblock.group_internal_node_k,
                superblock.group_leaf_node_k,
            ],
            _ => [32, 16, 4],
        });
        Ok(Self {
            source,
            id,
            chunk_tree_width: 2 * u64::from(chunks),
            group_tree_width: 2 * u64::from(groups),
            group_leaf_width: 2 * u64::from(leaves),
            limits: limits.clone(),
            heap: GlobalHeap::default(),
            types: Mutex::default(),
            texts: Mutex::default(),
            recorded_base,
            superblock,
        })
    }

    /// Returns whether a file that starts like this may be a container: its signature may be at
    /// byte 0, 512, 1024, 2048 and so on.
    pub fn is_likely(head: &[u8]) -> bool {
        Self::likely_version(head).is_some()
    }

    /// Returns the version of the superblock if [`Hdf5File::is_likely`].
    pub fn likely_version(head: &[u8]) -> Option<u8> {
        let starts = [0].into_iter().chain((9..).map(|power| 1usize << power));
        starts
            .take_while(|start| *start < head.len())
            .find_map(|start| head[start..].strip_prefix(b"\x89HDF\r\n\x1a\n"))
            .map(|rest| rest.first().copied().unwrap_or(0))
    }

    /// Lets the container be read many times its size in all, since values may refer to the same
    /// bytes of a heap in any order.
    #[must_use]
    pub fn for_values(mut self) -> Self {
        self.source.allow_repeats();
        self
    }

    /// Returns the offset in its file that [`Hdf5File::open_at`] was given.
    pub fn start(&self) -> u64 {
        self.source.base().saturating_sub(self.superblock.base_address)
    }

    /// Returns the file of the set that contains it.
    pub fn id(&self) -> FileId {
        self.id
    }

    pub fn superblock_version(&self) -> u8 {
        self.superblock.version
    }

    /// Returns whether the superblock is marked as open for writing: libhdf5 does not open such a
    /// file for reading. Only version 3 has these flags (`H5F_open` of HDF5 1.10 to 2.0).
    pub fn is_open_for_writing(&self) -> bool {
        const WRITING: u32 = 1;
        const SWMR: u32 = 4;
        self.superblock.version >= 3 && self.superblock.consistency_flags & (WRITING | SWMR) != 0
    }

    /// Returns the number of bytes before the container in its file.
    pub fn user_block(&self) -> u64 {
        self.source.base()
    }

    pub(crate) fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    pub fn root(&self) -> Result<u64> {
        self.superblock.root_object_header_address().map_err(from_reader)
    }

    pub fn object(&self, address: u64) -> Result<Object> {
        let (mut object, places) = self.object_without_dense(address)?;
        for place in places {
            match self.dense_attributes(place) {
                Ok(found) => {
                    object.attributes.reserve_exact(found.len());
                    found.into_iter().for_each(|attribute| object.add(attribute));
                }
                Err(error) => object.add(Err(error.context(DENSE))),
            }
        }
        object.troubles.extend(names_twice(object.attributes.iter().map(|one| &one.name)));
        Ok(object)
    }

    /// Reads an object without its attributes in dense storage; returns the location of those as
    /// well.
    pub(crate) fn object_without_dense(&self, address: u64) -> Result<(Object, Vec<DensePlace>)> {
        let messages = header::messages(&self.source, address, &self.limits)?;
        let at = |error: Error| self.source.at(address, error);
        let has = |kind: u16| messages.first(kind).is_some();
        let mut links = None;
        let is_group = has(MSG_SYMBOL_TABLE) || has(MSG_LINK_INFO);
        let is_dataset = has(MSG_DATA_LAYOUT)
            || has(MSG_EXTERNAL_FILES)
            || has(MSG_DATATYPE) && has(MSG_DATASPACE);
        // Distinguishes objects as libhdf5 does; a flipped bit can turn a gap in a header into a
        // message.
        let kind = if is_group && (is_dataset || has(MSG_SYMBOL_TABLE) && has(MSG_LINK_INFO)) {
            return Err(at(Error::damaged("an object header of several kinds of object")));
        } else if is_dataset {
            match self.read_dataset(&messages) {
                Ok(dataset) => ObjectKind::Dataset(Box::new(dataset)),
                Err(error) => ObjectKind::Unreadable(at(error)),
            }
        } else if let Some(Message { shared, body, .. }) = messages.first(MSG_DATATYPE) {
            let body = match shared {
                true => &self.resolve(MSG_DATATYPE, body)?,
                false => body,
            };
            match self.datatype(body, messages.unsealed) {
                Ok(datatype) => ObjectKind::Datatype(datatype),
                Err(error) => ObjectKind::Unreadable(at(error)),
            }
        } else if is_group {
            links = Some(Box::new(self.group(&messages).map_err(at)?));
            ObjectKind::Group
        } else {
            return Err(at(Error::damaged(
                "an object header that does not say what the object is",
            )
            .expected("the messages of a group, a dataset or a datatype")));
        };
        let mut object =
            Object { address, kind, attributes: Vec::new(), troubles: Vec::new(), links };
        let dense = self.attributes(&messages, &mut object);
        Ok((object, dense))
    }

    /// Returns whether the root group has an attribute of that name, reading as little as possible.
    pub fn root_has(&self, name: &str) -> Result<bool> {
        if self.root_begins_with(name)? {
            return Ok(true);
        }
        let (root, dense) = self.object_without_dense(self.root()?)?;
        let mut is_there = root.attribute(name).is_some();
        for place in dense {
            let names = std::iter::once(name.as_bytes());
            // The other index is checked when the file is read in full.
            let place = DensePlace { by_order: None, ..place };
            DenseAttributes::open(self, place)?.named(self, names, |found| {
                is_there |= found.name == name;
                Ok(())
            })?;
        }
        Ok(is_there)
    }

    /// Returns whether an attribute of that name is in the first few blocks of the root group's
    /// header.
    fn root_begins_with(&self, name: &str) -> Result<bool> {
        let root = self.root()?;
        let messages = header::first_messages(&self.source, root, &self.limits)?;
        let found =
            messages.iter().filter(|message| message.kind == MSG_ATTRIBUTE && !message.shared);
        let found = found.map(|message| Attribute::parse(self, message.body, false));
        Ok(found.flatten().any(|attribute| attribute.name == name))
    }

    /// Returns the links of a group, in the order of their creation if the file records it, else
    /// sorted.
    pub fn links(&self, group: &Object) -> Result<Vec<Link>> {
        Ok(self.listed(group)?.links)
    }

    fn listed(&self, group: &Object) -> Result<Listed> {
        group.links.as_ref().map_or_else(|| Ok(Listed::default()), |links| self.read_links(links))
    }

    /// Reads everything that can be reached from the root by hard links, in file order.
    pub fn tree(&self, progress: &mut dyn Progress) -> Result<ObjectTree> {
        let root = self.root()?;
        let mut tree = ObjectTree {
            objects: BTreeMap::new(),
            groups: Groups::new(root),
            paths: OnceLock::new(),
        };
        let mut level = vec![root];
        while !level.is_empty() {
            // In file order the next header is most often in a cached block.
            order::natural(&mut level);
            level.dedup();
            let mut next = Vec::new();
            for address in level {
                if tree.objects.contains_key(&address) {
                    continue;
                }
                self.check_number(tree.objects.len())?;
                let object = self.object(address);
                tree.groups.note(self, &object)?;
                next.extend(tree.groups.members(address));
                tree.objects.insert(address, object);
                if tree.objects.len().is_multiple_of(1000) {
                    progress.check(tree.objects.len() as u64, 0)?;
                }
            }
            level = next;
        }
        Ok(tree)
    }

    /// Fails if there must not be one more object.
    fn check_number(&self, objects: usize) -> Result<()> {
        Limits::check("objects in the file", objects as u64 + 1, self.limits.members)
    }

    fn group(&self, messages: &Messages) -> Result<Links> {
        let source = &self.source;
        let mut links = Links::default();
        for Message { kind, body, .. } in messages.iter().filter(|message| !message.shared) {
            match kind {
                MSG_SYMBOL_TABLE => {
                    links.symbol_table = Some(source.parse(body, symbol_table_msg::parse)?);
                }
                MSG_LINK_INFO => links.info = Some(source.parse(body, link_info::parse)?),
                MSG_LINK => links.messages.push(link::parse(body, source.widths.offset)?),
                _ => {}
            }
        }
        Ok(links)
    }

    /// Reads an object's attributes except those in dense storage; returns the location of those.
    fn attributes(&self, messages: &Messages, object: &mut Object) -> Vec<DensePlace> {
        let mut dense = Vec::new();
        let unsealed = messages.unsealed;
        object.attributes.reserve_exact(messages.count(MSG_ATTRIBUTE));
        for Message { kind, shared, body } in messages.iter() {
            match (kind, shared) {
                (MSG_ATTRIBUTE, false) => object.add(Attribute::parse(self, body, unsealed)),
                (MSG_ATTRIBUTE, true) => {
                    let body = self.resolve(MSG_ATTRIBUTE, body);
                    object.add(body.and_then(|body| Attribute::parse(self, &body, false)));
                }
                (MSG_ATTRIBUTE_INFO, _) => match self.dense_place(body) {
                    Ok(place) => dense.extend(place),
                    Err(error) => object.add(Err(error.context(DENSE))),
                },
                _ => {}
            }
        }
        dense
    }

    fn dense_place(&self, body: &[u8]) -> Result<Option<DensePlace>> {
        let info = self.source.parse(body, attribute_info::parse)?;
        if self.source.is_undefined(info.fractal_heap_address) {
            return Ok(None);
        }
        Ok(Some(DensePlace {
            holds: Dense::Attributes,
            heap: info.fractal_heap_address,
            by_name: info.btree_name_index_address,
            by_order: info.btree_creation_order_address,
        }))
    }

    fn dense_attributes(&self, place: DensePlace) -> Result<Vec<Result<Attribute>>> {
        let objects = self.dense_objects(place)?.into_iter();
        let read = |(hash, body): (u32, Vec<u8>)| self.hashed_attribute(hash, &body);
        Ok(objects.map(|object| object.and_then(read)).collect())
    }
}

/// Context of errors of attributes in dense storage.
const DENSE: &str = "dense attributes";

/// Returns an error for each duplicate name of an object's attributes: libhdf5 finds only one of
/// them.
fn names_twice<'a>(names: impl Iterator<Item = &'a Text>) -> Vec<Error> {
    let names: Vec<&Text> = names.collect();
    let again = duplicates(&names, |name| *name);
    again.iter().map(|name| Error::damaged(format!("two attributes are named {name}"))).collect()
}

/// Returns the duplicate names. Nearly all lists are short and need no table.
fn duplicates<'a, T>(all: &'a [T], name: impl Fn(&'a T) -> &'a Text) -> Vec<Text> {
    if all.len() <= MAX_LINEAR {
        let before = |at: usize| all.iter().take(at).any(|one| name(one) == name(&all[at]));
        return (1..all.len()).filter(|at| before(*at)).map(|at| name(&all[at]).clone()).collect();
    }
    let mut seen = HashSet::with_capacity(all.len());
    all.iter().map(&name).filter(|name| !seen.insert(*name)).cloned().collect()
}

/// Returns the widths of trees (of chunks, of groups, of lists of names) from the superblock's
/// extension. The extension must be valid even if not needed, since libhdf5 reads it first.
fn extension(
    source: &Source,
    superblock: &Superblock,
    limits: &Limits,
) -> Result<Option<[u16; 3]>> {
    if superblock.version < 2 && !source.is_undefined(superblock.free_space_address) {
        // libhdf5 reads the field as the address of an extension, which version 2 introduced.
        return Err(Error::damaged(
            "the superblock has an extension, which its version can't have",
        ));
    }
    let address = superblock.extension_address;
    let Some(address) = address.filter(|at| !source.is_undefined(*at)) else { return Ok(None) };
    let messages = header::messages(source, address, limits)
        .map_err(|error| error.context("the extension of the superblock"))?;
    Ok(match messages.first(MSG_BTREE_K).map(|message| message.body) {
        Some([0, c0, c1, g0, g1, l0, l1, ..]) => {
            Some([[*c0, *c1], [*g0, *g1], [*l0, *l1]].map(u16::from_le_bytes))
        }
        _ => None,
    })
}

/// The message with the widths of version 1 trees.
const MSG_BTREE_K: u16 = 0x13;

impl ObjectTree {
    /// Returns the address of the object at a path from the root, following soft links; `None` if
    /// the path leads to no object of this file.
    pub fn find(&self, path: &str) -> Option<u64> {
        match self.follow(self.groups.root, &path.into()) {
            Followed::Object(address) => Some(address),
            _ => None,
        }
    }

    /// Follows a path from the group at an address, or from the root if it starts with a slash.
    pub fn follow(&self, group: u64, path: &Text) -> Followed {
        follow(self.groups.root, group, path, |group, name| {
            Some(self.groups.link(group, name)?.target.clone())
        })
    }

    /// Returns a path to the object at an address, through hard links; `None` if there is no path.
    pub fn path(&self, address: u64) -> Option<&Text> {
        self.paths.get_or_init(|| self.all_paths()).get(&address)
    }

    /// Finds a shortest path to each object.
    fn all_paths(&self) -> HashMap<u64, Text> {
        let mut paths = HashMap::from([(self.groups.root, Text::from("/"))]);
        let mut open = VecDeque::from([self.groups.root]);
        while let Some(group) = open.pop_front() {
            let path = paths.get(&group).cloned().unwrap_or_else(|| "".into());
            let path = path.as_bytes().strip_suffix(b"/").unwrap_or(path.as_bytes()).to_vec();
            // By name, so that the choice does not depend on the order in the file.
            let mut links: Vec<&Link> =
                self.groups.links.get(&group).into_iter().flatten().flatten().collect();
            links.sort_unstable_by_key(|link| link.name.as_bytes());
            for link in links {
                let LinkValue::Hard(address) = link.target else { continue };
                if let Entry::Vacant(place) = paths.entry(address) {
                    place.insert(Text::decode(
                        &[path.as_slice(), b"/", link.name.as_bytes()].concat(),
                    ));
                    open.push_back(address);
                }
            }
        }
        paths
    }

    pub fn object(&self, address: u64) -> Option<&Object> {
        self.objects.get(&address)?.as_ref().ok()
    }
}

impl Groups {
    fn new(root: u64) -> Self {
        Self {
            root,
            links: HashMap::new(),
            troubles: BTreeMap::new(),
            twice: BTreeMap::new(),
            attributes: Vec::new(),
            unread: Vec::new(),
            names: HashMap::new(),
            data_end: 0,
        }
    }

    /// Records the findings about an object that was read, and lists it if it is a group.
    fn note(&mut self, file: &Hdf5File, object: &Result<Object>) -> Result<()> {
        let Ok(object) = object else { return Ok(()) };
        let damaged = object.troubles.iter().filter(|error| error.kind() == ErrorKind::Damaged);
        let room = MAX_TROUBLES.saturating_sub(self.attributes.len());
        self.attributes.extend(damaged.take(room).cloned());
        let end = object.dataset().and_then(end::extent);
        if let Some(end) = end.filter(|end| *end <= Storage::len(&file.source)) {
            self.data_end = self.data_end.max(end);
        }
        match object.kind {
            ObjectKind::Group => self.list(file, object),
            _ => Ok(()),
        }
    }

    fn list(&mut self, file: &Hdf5File, group: &Object) -> Result<()> {
        let address = group.address;
        let links = file.listed(group).map(|Listed { links, troubles }| {
            if !troubles.is_empty() {
                self.troubles.insert(address, troubles);
            }
            links
        });
        let twice = duplicates(links.as_deref().unwrap_or_default(), |link| &link.name);
        if !twice.is_empty() {
            self.twice.insert(address, twice);
        }
        if let Ok(links) = &links
            && links.len() > MAX_LINEAR
        {
            self.names.insert(address, by_name(links)?);
        }
        self.links.insert(address, links);
        Ok(())
    }

    /// Iterates over the addresses of the objects in a group; empty if the group is unknown.
    fn members(&self, group: u64) -> impl Iterator<Item = u64> {
        let links = self.links.get(&group).into_iter().flatten().flatten();
        links.filter_map(|link| match link.target {
            LinkValue::Hard(address) => Some(address),
            _ => None,
        })
    }

    /// Returns the link of that name in a group; the last one if there are several.
    pub fn link(&self, group: u64, name: &[u8]) -> Option<&Link> {
        let links = self.links.get(&group)?.as_ref().ok()?;
        links.get(self.position(group, name)?)
    }

    /// Returns the position of the link of that name in a group; the last one if there are several.
    pub fn position(&self, group: u64, name: &[u8]) -> Option<usize> {
        let links = self.links.get(&group)?.as_ref().ok()?;
        match links.len() {
            ..=MAX_LINEAR => links.iter().rposition(|link| link.name.as_bytes() == name),
            _ => {
                let names = self.names.get(&group)?;
                let named = |index: &u32| links[*index as usize].name.as_bytes();
                let after = names.partition_point(|index| named(index) <= name);
                let last = *names.get(after.checked_sub(1)?)? as usize;
                links.get(last).filter(|link| link.name.as_bytes() == name).map(|_| last)
            }
        }
    }
}

/// Returns the positions of links, sorted by name and then by position.
fn by_name(links: &[Link]) -> Result<Vec<u32>> {
    let mut names = try_alloc::collect(0..links.len() as u32)?;
    names.sort_unstable_by_key(|index| (links[*index as usize].name.as_bytes(), *index));
    Ok(names)
}

/// Maximum number of links that are searched linearly, which costs less than a table per group.
const MAX_LINEAR: usize = 16;
/// Maximum number of errors of unreadable attributes that are kept.
const MAX_TROUBLES: usize = 1000;
