//! A container whose objects are read on demand.
//!
//! A file of a hundred thousand datasets has as many headers and seven times as many attributes. A
//! caller that converts one object after another doesn't need to hold all of them.

use std::collections::{HashMap, HashSet};
use std::fmt;

use statelens_checkpoint::{ErrorKind, Progress, Result, Text, order, try_alloc};

use crate::file::dense::DenseAttributes;
use crate::file::link::{Followed, follow};
use crate::file::{DENSE, Groups, MAX_TROUBLES, Object};
use crate::{Attribute, Hdf5File, ObjectKind};

/// A container that keeps only the lists of the groups in memory.
pub struct Browse {
    file: Hdf5File,
    groups: Groups,
    /// Whether the root group has been listed.
    is_listed: bool,
    root: Result<Object>,
    /// Positions of the root group's attributes in its header, sorted by name.
    order: Vec<u32>,
    /// The other attributes of the root group.
    dense: Vec<DenseAttributes>,
    /// Attributes of `dense` that were read ahead.
    named: HashMap<Text, Attribute>,
    /// Addresses of objects that have been read.
    seen: HashSet<u64>,
    /// Objects that were read ahead.
    ahead: HashMap<u64, Result<Object>>,
}

impl Browse {
    /// Reads the root group; [`Browse::list`] lists it.
    pub fn new(file: Hdf5File) -> Result<Self> {
        let address = file.root()?;
        let (root, places) = match file.object_without_dense(address) {
            Ok((root, places)) => (Ok(root), places),
            Err(error) => (Err(error), Vec::new()),
        };
        let mut groups = Groups::new(address);
        let mut dense = Vec::new();
        for place in places {
            match DenseAttributes::open(&file, place) {
                Ok(attributes) => dense.push(attributes),
                Err(error) => groups.attributes.push(error.context(DENSE)),
            }
        }
        let attributes = root.as_ref().map_or(&[][..], |root| &root.attributes);
        let mut order = try_alloc::collect(0..attributes.len() as u32)?;
        order.sort_unstable_by_key(|at| (attributes[*at as usize].name.as_bytes(), *at));
        let (seen, ahead, named) = ([address].into(), HashMap::new(), HashMap::new());
        let is_listed = false;
        Ok(Self { file, groups, is_listed, root, order, dense, named, seen, ahead })
    }

    /// Lists the root group, unless that has been done.
    pub fn list(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.is_listed, true) {
            return Ok(());
        }
        // Done now, while nothing else takes memory.
        self.dense.iter_mut().for_each(|dense| dense.check_order(&self.file));
        self.groups.note(&self.file, &self.root)
    }

    pub fn file(&self) -> &Hdf5File {
        &self.file
    }

    /// Returns the root group, without its attributes in dense storage.
    pub fn root(&self) -> Result<&Object> {
        self.root.as_ref().map_err(Clone::clone)
    }

    /// Returns an attribute of the root group, the last one of that name; `None` if it does not
    /// exist.
    pub fn root_attribute(&mut self, name: &[u8]) -> Result<Option<Attribute>> {
        let attributes = &self.root.as_ref().map_err(Clone::clone)?.attributes;
        let named = |at: &u32| attributes[*at as usize].name.as_bytes();
        let after = self.order.partition_point(|at| named(at) <= name);
        let last = after.checked_sub(1).map(|at| self.order[at]).filter(|at| named(at) == name);
        if let Some(at) = last {
            return Ok(attributes.get(at as usize).cloned());
        }
        if let Some(attribute) = self.named.remove(name) {
            return Ok(Some(attribute));
        }
        let mut last = None;
        for dense in &mut self.dense {
            dense.named(&self.file, std::iter::once(name), |attribute| {
                if attribute.name.as_bytes() == name {
                    last = Some(attribute);
                }
                Ok(())
            })?;
        }
        Ok(last)
    }

    /// Reads attributes of the root group ahead, in file order; replaces those that were read ahead
    /// before.
    pub fn attributes_ahead<'n>(
        &mut self,
        names: impl Iterator<Item = &'n [u8]> + Clone,
    ) -> Result<()> {
        self.named.clear();
        for dense in &mut self.dense {
            dense.named(&self.file, names.clone(), |attribute| {
                try_alloc::insert(&mut self.named, attribute.name.clone(), attribute).map(drop)
            })?;
        }
        Ok(())
    }

    /// Returns the groups that have been listed, and the findings so far.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// Returns the address of the object at a path, following soft links; `None` if it does not
    /// exist.
    pub fn find(&mut self, path: &str) -> Result<Option<u64>> {
        self.list()?;
        let mut failed = None;
        let root = self.groups.root;
        let found = follow(root, root, &path.into(), |group, name| {
            if !self.groups.links.contains_key(&group)
                && let Err(error) = self.read(group)
            {
                failed = Some(error);
                return None;
            }
            Some(self.groups.link(group, name)?.target.clone())
        });
        let found = match found {
            Followed::Object(address) => Some(address),
            _ => None,
        };
        failed.map_or(Ok(found), Err)
    }

    /// Reads the object whose header is at `address`; returns it without reading if
    /// [`Browse::ahead`] did.
    pub fn object(&mut self, address: u64) -> Result<Object> {
        match self.ahead.remove(&address) {
            Some(object) => object,
            None => self.read(address),
        }
    }

    /// Reads objects ahead, in file order; replaces those that were read ahead before.
    pub fn ahead(&mut self, mut addresses: Vec<u64>) -> Result<()> {
        self.ahead.clear();
        order::natural(&mut addresses);
        addresses.dedup();
        for address in addresses {
            let object = self.read(address);
            try_alloc::insert(&mut self.ahead, address, object)?;
        }
        Ok(())
    }

    /// Reads all remaining objects that can be reached from the root by hard links, for their
    /// findings.
    pub fn rest(&mut self, progress: &mut dyn Progress) -> Result<()> {
        self.list()?;
        (self.ahead, self.named) = (HashMap::new(), HashMap::new());
        let mut troubles = Vec::new();
        for dense in &mut self.dense {
            troubles.extend(dense.rest(&self.file, progress)?);
        }
        troubles.retain(|error| error.kind() == ErrorKind::Damaged);
        // Errors of the root group come before those of its members.
        self.groups.attributes.splice(0..0, troubles);
        self.groups.attributes.truncate(MAX_TROUBLES);
        let mut gone_through = HashSet::from([self.groups.root]);
        let mut level: Vec<u64> = try_alloc::collect(self.groups.members(self.groups.root))?;
        while !level.is_empty() {
            order::natural(&mut level);
            level.dedup();
            let mut next = Vec::new();
            for address in level {
                if !self.seen.contains(&address) {
                    // Errors of requested objects are reported where they are requested.
                    let unread = match self.read(address) {
                        Ok(Object { kind: ObjectKind::Unreadable(error), .. }) | Err(error) => {
                            Some(error)
                        }
                        Ok(_) => None,
                    };
                    let unread = unread.filter(|error| error.kind() == ErrorKind::Damaged);
                    if self.groups.unread.len() < MAX_TROUBLES {
                        self.groups.unread.extend(unread);
                    }
                    if self.seen.len().is_multiple_of(1000) {
                        progress.check(self.seen.len() as u64, 0)?;
                    }
                    self.file.check_number(self.seen.len())?;
                }
                if self.groups.links.contains_key(&address) && gone_through.insert(address) {
                    next.extend(self.groups.members(address));
                }
            }
            level = next;
        }
        Ok(())
    }

    fn read(&mut self, address: u64) -> Result<Object> {
        let object = self.file.object(address);
        try_alloc::add(&mut self.seen, address)?;
        let listed = self.groups.links.contains_key(&address);
        match &object {
            Ok(Object { kind: ObjectKind::Group, .. }) if listed => {}
            _ => self.groups.note(&self.file, &object)?,
        }
        object
    }
}

impl fmt::Debug for Browse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Browse({} objects read)", self.seen.len())
    }
}
