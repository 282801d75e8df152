//! Attributes in dense storage, looked up by name. An object may have a hundred thousand of them,
//! and callers that need a few don't have to read the others.

use hdf5_reader::checksum::jenkins_lookup3;
use statelens_checkpoint::{Error, Limits, Progress, Result, Text, order, try_alloc};

use crate::Hdf5File;
use crate::file::attribute::Attribute;
use crate::file::group::{DensePlace, is_hash};
use crate::heap::DenseHeap;

/// The locations of an object's attributes, by the hash of their names.
#[derive(Debug)]
pub(crate) struct DenseAttributes {
    place: DensePlace,
    /// Sorted by hash, as in the file.
    records: Vec<DenseRecord>,
    /// Bytes of attributes read so far.
    spent: u64,
    troubles: Vec<Error>,
}

#[derive(Debug)]
struct DenseRecord {
    hash: u32,
    id: [u8; 8],
    /// Whether it has been read, so that its errors are known.
    is_read: bool,
}

impl DenseAttributes {
    pub(crate) fn open(file: &Hdf5File, place: DensePlace) -> Result<Self> {
        let ids = file.dense_ids(place)?;
        let mut records = try_alloc::vec(ids.len() as u64)?;
        for (hash, id) in ids {
            let id = id.try_into().map_err(|_| {
                Error::damaged("an index of attributes with ids of another length")
                    .at(place.by_name)
            })?;
            records.push(DenseRecord { hash, id, is_read: false });
        }
        Ok(Self { place, records, spent: 0, troubles: Vec::new() })
    }

    /// Checks the index of names against the index of creation order; attributes are read through
    /// the former.
    pub(crate) fn check_order(&mut self, file: &Hdf5File) {
        self.troubles.extend(file.check_order(self.place, self.records.len()).err());
    }

    /// Passes on those of the named attributes that exist and can be read, in the heap's order.
    pub(crate) fn named<'n>(
        &mut self,
        file: &Hdf5File,
        names: impl Iterator<Item = &'n [u8]>,
        found: impl FnMut(Attribute) -> Result<()>,
    ) -> Result<()> {
        let mut positions = Vec::new();
        for name in names {
            let hash = jenkins_lookup3(name);
            let from = self.records.partition_point(|record| record.hash < hash);
            let same = self.records[from..].iter().take_while(|record| record.hash == hash).count();
            for position in from..from + same {
                try_alloc::push(&mut positions, position)?;
            }
        }
        self.read(file, positions, found)
    }

    /// Reads the remaining attributes to find errors; returns all errors, including those for
    /// duplicate names.
    pub(crate) fn rest(
        &mut self,
        file: &Hdf5File,
        progress: &mut dyn Progress,
    ) -> Result<Vec<Error>> {
        let unread = self.records.iter().enumerate().filter(|(_, record)| !record.is_read);
        let unread = try_alloc::collect(unread.map(|(position, _)| position))?;
        let (mut done, total) = (0, unread.len() as u64);
        self.read(file, unread, |_| {
            done += 1;
            match done % 1000 {
                0 => progress.check(done, total),
                _ => Ok(()),
            }
        })?;
        let mut troubles = std::mem::take(&mut self.troubles);
        // Equal names have equal hashes, so few have to be read again.
        let same = |at: usize, by: usize| {
            let other =
                at.checked_add_signed(by as isize).and_then(|other| self.records.get(other));
            other.is_some_and(|other| other.hash == self.records[at].hash)
        };
        let again = (0..self.records.len()).filter(|at| same(*at, 1) || same(*at, usize::MAX));
        let again = try_alloc::collect(again)?;
        let mut names: Vec<Text> = Vec::new();
        self.read(file, again, |attribute| try_alloc::push(&mut names, attribute.name))?;
        self.troubles.clear();
        troubles.extend(super::names_twice(names.iter()));
        Ok(troubles)
    }

    /// Reads the attributes at some positions, forward in the order of the heap.
    fn read(
        &mut self,
        file: &Hdf5File,
        mut positions: Vec<usize>,
        mut found: impl FnMut(Attribute) -> Result<()>,
    ) -> Result<()> {
        if positions.is_empty() {
            return Ok(());
        }
        let mut heap = DenseHeap::open(&file.source, self.place.heap, &file.limits)?;
        let offset = |position: usize| heap.offset(&self.records[position].id);
        let mut order = try_alloc::collect(positions.drain(..).map(|at| (offset(at), at)))?;
        order::natural(&mut order);
        order.dedup();
        for (_, position) in order {
            let DenseRecord { hash, id, is_read } = &mut self.records[position];
            let object = heap.get(id);
            let attribute = object.and_then(|object| {
                self.spent += object.len() as u64;
                if !*is_read {
                    file.source.spend(object.len() as u64)?;
                }
                Limits::check(
                    "bytes of one object's names and attributes",
                    self.spent,
                    file.limits.structure,
                )?;
                file.hashed_attribute(*hash, &object)
            });
            let is_new = !std::mem::replace(is_read, true);
            match attribute {
                Ok(attribute) => found(attribute)?,
                Err(error) if is_new => self.troubles.push(error),
                Err(_) => {}
            }
        }
        Ok(())
    }
}

impl Hdf5File {
    /// Parses an attribute in dense storage; fails unless it is indexed under the hash of its name.
    pub(crate) fn hashed_attribute(&self, hash: u32, body: &[u8]) -> Result<Attribute> {
        let attribute = Attribute::parse(self, body, false)?;
        match is_hash(hash, &attribute.name) {
            true => Ok(attribute),
            false => Err(Error::damaged(format!(
                "the attribute {} is indexed under another name",
                attribute.name
            ))),
        }
    }
}
