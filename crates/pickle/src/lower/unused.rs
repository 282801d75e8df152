//! Bytes of storages that no tensor uses: `torch.save` of a view writes all of the storage behind it.

use std::collections::HashMap;

use statelens_checkpoint::{Finding, Grade, size_text};

/// Fewer unused bytes than this are not worth a word.
const FEW: u64 = 1024;

/// What tensors use of each storage.
#[derive(Default)]
pub(super) struct StorageUses(HashMap<u32, StorageUse>);

#[derive(Default)]
struct StorageUse {
    /// Bytes that there are.
    len: u64,
    /// Bytes that the elements of all views take together.
    elements: u64,
    /// From the first byte to behind the last one, of each view.
    ranges: Vec<(u64, u64)>,
}

impl StorageUses {
    /// Adds a view of a storage of `len` bytes: where it begins and ends in it, and the bytes of its
    /// elements.
    pub(super) fn add(&mut self, number: u32, len: u64, range: (u64, u64), elements: u64) {
        let usage = self.0.entry(number).or_default();
        usage.len = len;
        usage.elements = usage.elements.saturating_add(elements);
        if usage.ranges.last() != Some(&range) {
            usage.ranges.push(range);
        }
    }

    /// Tells how much is not used, if that is a tenth of the storages or more.
    pub(super) fn finding(mut self) -> Option<Finding> {
        let (mut all, mut unused) = (0u64, 0u64);
        for usage in self.0.values_mut() {
            all = all.saturating_add(usage.len);
            unused = unused.saturating_add(usage.unused());
        }
        (unused >= FEW && unused >= all / 10).then(|| {
            let used = size_text(all.saturating_sub(unused));
            let (unused, all) = (size_text(unused), size_text(all));
            let title =
                format!("{unused} of {all} unused: the tensors use {used} of their storages");
            Finding::new(Grade::Note, title).detail(
                "`torch.save` writes the whole storage of a view. A conversion leaves out what no \
                     tensor uses; in torch, save `tensor.clone()`.",
            )
        })
    }
}

impl StorageUse {
    /// Bytes that no view reaches, or that lie between the elements of views.
    fn unused(&mut self) -> u64 {
        self.ranges.sort_unstable();
        let (mut covered, mut end) = (0u64, 0u64);
        for (from, to) in &self.ranges {
            covered = covered.saturating_add(to.saturating_sub((*from).max(end)));
            end = end.max(*to);
        }
        self.len.saturating_sub(covered.min(self.elements))
    }
}
