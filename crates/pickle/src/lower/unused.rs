//! Bytes of storages that no tensor uses: `torch.save` of a view writes the whole storage behind
//! it.

use std::collections::{HashMap, HashSet};

use statelens_checkpoint::{Finding, Grade, size_text};

/// Fewer unused bytes than this are not reported.
const MIN_REPORTED: u64 = 1024;

/// The parts of each storage that tensors use.
#[derive(Default)]
pub(super) struct StorageUses {
    /// Storages that are used whole by one view, as most are.
    whole: HashSet<u32>,
    whole_bytes: u64,
    /// Storages of which views use parts.
    partial: HashMap<u32, StorageUse>,
}

#[derive(Default)]
struct StorageUse {
    /// Size of the storage in bytes.
    len: u64,
    /// Total bytes of the elements of all views.
    elements: u64,
    /// Start and end (exclusive) of each view, in bytes.
    ranges: Vec<(u64, u64)>,
}

impl StorageUses {
    /// Adds a view of a storage of `len` bytes: its range, and the bytes of its elements.
    pub(super) fn add(&mut self, number: u32, len: u64, range: (u64, u64), elements: u64) {
        if range == (0, len) && elements >= len {
            if self.whole.insert(number) {
                self.whole_bytes = self.whole_bytes.saturating_add(len);
            }
            return;
        }
        let usage = self.partial.entry(number).or_default();
        usage.len = len;
        usage.elements = usage.elements.saturating_add(elements);
        if usage.ranges.last() != Some(&range) {
            usage.ranges.push(range);
        }
    }

    /// Returns a finding with the unused bytes, if they are a tenth of the storages or more.
    pub(super) fn finding(mut self) -> Option<Finding> {
        let (mut all, mut unused) = (self.whole_bytes, 0u64);
        self.partial.retain(|number, _| !self.whole.contains(number));
        for usage in self.partial.values_mut() {
            all = all.saturating_add(usage.len);
            unused = unused.saturating_add(usage.unused());
        }
        (unused >= MIN_REPORTED && unused >= all / 10).then(|| {
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
    /// Returns the number of bytes that no view covers, or that lie between the elements of views.
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
