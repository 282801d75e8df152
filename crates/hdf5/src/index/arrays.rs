//! Verifies the checksums of fixed and extensible arrays.
//!
//! hdf5-reader 0.12 verifies only those of the headers. The blocks are visited here as in libhdf5
//! (`H5FAcache.c`, `H5EAcache.c` of 1.14), so that a damaged index is an error instead of yielding
//! other data than in h5py. Pages that were never written have no checksum.

use statelens_checkpoint::{Error, Result};

use crate::block::{BlockContext, little};
use crate::source::{Source, Widths};

/// Verifies all blocks of a fixed array.
pub(crate) fn fixed(source: &Source, address: u64, filtered: bool) -> Result<()> {
    let block = BlockContext { source, what: "a chunk index (a fixed array)", owner: address };
    let Widths { offset, length } = source.widths;
    let (wide, long) = (u64::from(offset), u64::from(length));
    let header = block.summed(address, 8 + long + wide + 4)?;
    let mut fields = Fields::new(&header);
    fields.begin(b"FAHD", u8::from(filtered), address)?;
    let (size, page_bits) = (fields.number(1)?, fields.number(1)?);
    let (count, data) = (fields.number(long)?, fields.number(wide)?);
    if source.is_undefined(data) {
        return Ok(());
    }
    let kind = Some(u8::from(filtered));
    let head = 6 + wide;
    let page = page_size(page_bits);
    if page == 0 || count <= page {
        block.read(data, total(&[head, product(count, size)?, 4])?, b"FADB", kind)?;
        return Ok(());
    }
    let pages = count.div_ceil(page);
    let bitmap = pages.div_ceil(8);
    let prefix = block.read(data, total(&[head, bitmap, 4])?, b"FADB", kind)?;
    let written = prefix.get(head as usize..).unwrap_or_default();
    let (mut at, stride) = (total(&[data, head, bitmap, 4])?, total(&[product(page, size)?, 4])?);
    for index in 0..pages {
        if is_set(written, index) {
            let here = page.min(count - index * page);
            block.summed(at, total(&[product(here, size)?, 4])?)?;
        }
        at = total(&[at, stride])?;
    }
    Ok(())
}

/// Verifies all blocks of an extensible array.
pub(crate) fn extensible(source: &Source, address: u64, filtered: bool) -> Result<()> {
    let block =
        BlockContext { source, what: "a chunk index (an extensible array)", owner: address };
    let Widths { offset, length } = source.widths;
    let (wide, long) = (u64::from(offset), u64::from(length));
    let header = block.summed(address, 12 + 6 * long + wide + 4)?;
    let mut fields = Fields::new(&header);
    fields.begin(b"EAHD", u8::from(filtered), address)?;
    let size = fields.number(1)?;
    let bits = fields.number(1)?;
    let within = fields.number(1)?;
    let (least, pointers, page_bits) = (fields.number(1)?, fields.number(1)?, fields.number(1)?);
    for _ in 0..6 {
        fields.number(long)?;
    }
    let index = fields.number(wide)?;
    if !least.is_power_of_two()
        || !pointers.is_power_of_two()
        || bits > 64
        || bits < u64::from(least.trailing_zeros())
    {
        return Err(Error::damaged("an extensible array with an invalid layout").at(address));
    }
    if source.is_undefined(index) {
        return Ok(());
    }
    let array = Extensible {
        block,
        kind: u8::from(filtered),
        wide,
        size,
        place: bits.div_ceil(8),
        page: page_size(page_bits),
    };
    // Super block `level` has 2^(level/2) data blocks of 2^((level+1)/2) * least elements.
    let levels = bits - u64::from(least.trailing_zeros()) + 1;
    let direct_levels = (2 * u64::from(pointers.trailing_zeros())).min(levels);
    let direct = 2 * (pointers - 1);
    let inner = product(within, size)?;
    let addresses = product(direct + levels - direct_levels, wide)?;
    let len = total(&[6 + wide, inner, addresses, 4])?;
    let bytes = array.block.read(index, len, b"EAIB", Some(array.kind))?;
    let mut fields = Fields::new(&bytes);
    fields.skip(6 + wide + inner)?;
    for level in 0..direct_levels {
        for _ in 0..1u64 << (level / 2) {
            let data = fields.number(wide)?;
            array.data(data, elements(least, level)?, None)?;
        }
    }
    for level in direct_levels..levels {
        let further = fields.number(wide)?;
        array.further(further, elements(least, level)?, 1u64 << (level / 2))?;
    }
    Ok(())
}

/// Returns the elements in each data block of a level.
fn elements(least: u64, level: u64) -> Result<u64> {
    let times = 1u64.checked_shl(level.div_ceil(2) as u32).unwrap_or(0);
    product(least, times)
}

struct Extensible<'a> {
    block: BlockContext<'a>,
    kind: u8,
    /// Bytes of an address, of an element, of an offset in the array.
    wide: u64,
    size: u64,
    place: u64,
    page: u64,
}

impl Extensible<'_> {
    fn is_none(&self, address: u64) -> bool {
        self.block.source.is_undefined(address)
    }

    fn pages(&self, count: u64) -> u64 {
        if self.page == 0 || count <= self.page { 0 } else { count.div_ceil(self.page) }
    }

    /// Verifies a secondary block: the addresses of `blocks` data blocks of `count` elements each.
    fn further(&self, address: u64, count: u64, blocks: u64) -> Result<()> {
        if self.is_none(address) {
            return Ok(());
        }
        let pages = self.pages(count);
        let bitmap = product(blocks, pages.div_ceil(8))?;
        let head = 6 + self.wide + self.place;
        let len = total(&[head, bitmap, product(blocks, self.wide)?, 4])?;
        let bytes = self.block.read(address, len, b"EASB", Some(self.kind))?;
        let mut fields = Fields::new(&bytes);
        fields.skip(head)?;
        let written = bytes.get(head as usize..(head + bitmap) as usize).unwrap_or_default();
        fields.skip(bitmap)?;
        for index in 0..blocks {
            let data = fields.number(self.wide)?;
            // The bits of all blocks follow each other without gaps.
            self.data(data, count, Some((written, index.saturating_mul(pages))))?;
        }
        Ok(())
    }

    /// Verifies a data block. In `written`, the bits from that index on mark the pages that have
    /// been written.
    fn data(&self, address: u64, count: u64, written: Option<(&[u8], u64)>) -> Result<()> {
        if self.is_none(address) {
            return Ok(());
        }
        let head = 6 + self.wide + self.place;
        let pages = self.pages(count);
        if pages == 0 {
            let len = total(&[head, product(count, self.size)?, 4])?;
            self.block.read(address, len, b"EADB", Some(self.kind))?;
            return Ok(());
        }
        self.block.read(address, total(&[head, 4])?, b"EADB", Some(self.kind))?;
        let stride = total(&[product(self.page, self.size)?, 4])?;
        let mut at = total(&[address, head, 4])?;
        for index in 0..pages {
            if written.is_some_and(|(bits, first)| is_set(bits, first.saturating_add(index))) {
                self.block.summed(at, stride)?;
            }
            at = total(&[at, stride])?;
        }
        Ok(())
    }
}

/// The fields of a block, read one after another.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Checks a header's signature, version and kind of elements.
    fn begin(&mut self, signature: &[u8; 4], kind: u8, address: u64) -> Result<()> {
        let [a, b, c, d] = *signature;
        match self.take(6)? == [a, b, c, d, 0, kind] {
            true => Ok(()),
            false => {
                Err(Error::damaged("the index of a dataset's chunks has another type").at(address))
            }
        }
    }

    fn number(&mut self, width: u64) -> Result<u64> {
        Ok(little(self.take(width)?))
    }

    fn skip(&mut self, len: u64) -> Result<()> {
        self.take(len).map(|_| ())
    }

    fn take(&mut self, len: u64) -> Result<&'a [u8]> {
        let split = usize::try_from(len).ok().and_then(|len| self.0.split_at_checked(len));
        let (taken, rest) = split.ok_or_else(|| Error::damaged("a chunk index ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }
}

/// Returns the elements per page; 0 if there are no pages.
fn page_size(bits: u64) -> u64 {
    match bits {
        0 => 0,
        bits => 1u64.checked_shl(bits as u32).unwrap_or(0),
    }
}

/// Returns whether a bit is set, counted from the highest bit of each byte, as in libhdf5.
fn is_set(bits: &[u8], index: u64) -> bool {
    let byte = usize::try_from(index / 8).ok().and_then(|at| bits.get(at));
    byte.is_some_and(|byte| byte & (0x80 >> (index % 8)) != 0)
}

fn product(left: u64, right: u64) -> Result<u64> {
    left.checked_mul(right).ok_or_else(past)
}

fn total(parts: &[u64]) -> Result<u64> {
    parts.iter().try_fold(0u64, |sum, part| sum.checked_add(*part)).ok_or_else(past)
}

fn past() -> Error {
    Error::damaged("a chunk index is larger than 64 bits can count")
}
