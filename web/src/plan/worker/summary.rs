//! Describes a plan for the page: its size, how it is written, and its losses.

use std::collections::{BTreeMap, HashMap};

use statelens_checkpoint::{Layout, LossCode, Plan, Result, Size, listed, place_text};
use statelens_convert::{Share, composable, narrows, shares};

use crate::convert::message::{ConvertOptions, Loss, LossId, PlanSummary, Preview};
use crate::state::dtype::short;
use crate::state::fmt::plural;
use crate::text;
use crate::worker::job::Job;
use crate::worker::opened::OpenCheckpoint;

/// Larger numbers lose digits in JS; no file comes near.
const LARGEST: u64 = (1 << 53) - 1;
/// Number of keys named for a loss.
const MAX_NAMED: usize = 4;
/// Describes a plan.
///
/// # Errors
/// If the sizes of its files can't be computed.
pub(crate) fn describe(
    open: &OpenCheckpoint,
    plan: &Plan,
    options: &ConvertOptions,
    job: &Job,
) -> Result<PlanSummary> {
    let size = plan.size()?;
    let mut generated = 0u64;
    let mut copied = 0u64;
    let mut computed = 0u64;
    let mut counts = WriteCounts::default();
    let mut runs: Vec<(String, u64)> = Vec::new();
    let mut run = |name: &str, bytes: u64| match runs.last_mut() {
        _ if bytes == 0 => {}
        Some((last, sum)) if last == name => *sum = sum.saturating_add(bytes).min(LARGEST),
        _ => runs.push((name.to_owned(), bytes.min(LARGEST))),
    };
    for found in shares(plan) {
        let (share, bytes, tensor) = found?;
        let sum = match share {
            Share::Made => &mut generated,
            Share::Copied => &mut copied,
            Share::Gathered | Share::Cast | Share::Compressed => &mut computed,
        };
        *sum = sum.saturating_add(bytes);
        match tensor {
            Some(_) if share == Share::Copied => counts.unchanged += 1,
            Some(tensor) => counts.add(tensor),
            None => {}
        }
        run(tensor.map_or("", |tensor| tensor.dtype.name()), bytes);
    }
    let leaves = plan.source.leaves();
    let tensors = leaves.iter().filter(|leaf| plan.source.tensor_of(leaf.id).is_some()).count();
    let compress =
        options.compress.as_deref().map(|name| format!(", then {name}")).unwrap_or_default();
    let weights = format!("{}{compress}", counts.text());
    Ok(PlanSummary {
        names: plan.files.iter().map(|file| file.name.clone()).collect(),
        size: size.bytes().min(LARGEST),
        exact: matches!(size, Size::Exact(_)),
        generated: generated.min(LARGEST),
        copied: copied.min(LARGEST),
        computed: computed.min(LARGEST),
        weights,
        tensors: tensors as u64,
        keys: leaves.len() as u64,
        runs,
        losses: lost(&plan.losses)
            .into_iter()
            .chain(large_fetch_warning(open, copied.saturating_add(computed), job))
            .chain(large_output_warning(open, size.bytes()))
            .collect(),
        notes: plan.losses.iter().filter(|loss| loss.harmless).map(note).collect(),
        narrows: narrows(&plan.source),
        zero_copy: composable(plan) && open.sources.is_local(),
        preview: Preview::default(),
        changes: Vec::new(),
        command: String::new(),
    })
}

impl PlanSummary {
    /// Adds the description of further files that are written together with these.
    pub(crate) fn add(&mut self, more: Self) {
        self.names.extend(more.names);
        self.size = self.size.saturating_add(more.size).min(LARGEST);
        self.exact &= more.exact;
        self.generated = self.generated.saturating_add(more.generated).min(LARGEST);
        self.copied = self.copied.saturating_add(more.copied).min(LARGEST);
        self.computed = self.computed.saturating_add(more.computed).min(LARGEST);
        self.tensors += more.tensors;
        self.keys += more.keys;
        self.runs.extend(more.runs);
        self.losses.extend(more.losses);
        self.notes.extend(more.notes);
        self.narrows |= more.narrows;
        self.zero_copy &= more.zero_copy;
    }
}

/// Warns if a small source becomes a large output.
fn large_output_warning(open: &OpenCheckpoint, bytes: u64) -> Option<Loss> {
    let all = open.checkpoint.unfolded().writing(bytes);
    let of = |bytes| crate::state::fmt::bytes(bytes);
    all.is_over(&open.limits).then(|| Loss {
        id: LossId::LargeOutput(bytes.min(LARGEST)),
        title: format!("This writes {} from a source of {}", of(bytes), of(all.stored_bytes)),
        reason: "Nothing is lost. Many keys of the source share the same bytes; the new file stores a copy for each.".into(),
    })
}

/// Warns if a conversion fetches more than an action may without the user's consent.
fn large_fetch_warning(open: &OpenCheckpoint, bytes: u64, job: &Job) -> Option<Loss> {
    let host = open.sources.server()?.host();
    (bytes > job.allowance().cap()).then(|| Loss {
        id: LossId::LargeFetch(bytes.min(LARGEST)),
        title: format!("This fetches about {} from {host}", crate::state::fmt::bytes(bytes)),
        reason: "Nothing is lost. The new file needs the weights, which are not on this computer."
            .into(),
    })
}

/// Counts tensors by how they are written: copied unchanged, rewritten, or cast, by target dtype.
#[derive(Default)]
struct WriteCounts {
    unchanged: u64,
    rewritten: StorageCounts,
    cast: BTreeMap<String, StorageCounts>,
}

/// A number of tensors, and how many of them are stored in which way.
#[derive(Default)]
struct StorageCounts {
    count: u64,
    stored: BTreeMap<String, u64>,
}

impl WriteCounts {
    /// Counts a tensor that is not copied byte for byte.
    fn add(&mut self, tensor: &statelens_checkpoint::Tensor) {
        let way = if tensor.stored == tensor.dtype {
            &mut self.rewritten
        } else {
            self.cast.entry(short(tensor.dtype.name())).or_default()
        };
        way.count += 1;
        if let Some(stored) = stored(tensor) {
            *way.stored.entry(stored).or_default() += 1;
        }
    }

    /// Returns a text such as `114 cast to bf16 (85 of them LZ4), 1 unchanged`.
    fn text(&self) -> String {
        let mut parts: Vec<String> =
            self.cast.iter().map(|(to, way)| way.text(&format!("cast to {to}"))).collect();
        if self.rewritten.count > 0 {
            parts.push(self.rewritten.text("rewritten"));
        }
        match (parts.is_empty(), self.unchanged) {
            (true, 0) => return "none".to_owned(),
            (true, 1) => return "copied unchanged".to_owned(),
            (true, count) => return format!("all {count} copied unchanged"),
            (false, 0) => {}
            (false, count) => parts.push(format!("{count} unchanged")),
        }
        parts.join(", ")
    }
}

impl StorageCounts {
    fn text(&self, what: &str) -> String {
        let stored: Vec<String> = self
            .stored
            .iter()
            .map(|(stored, count)| match *count == self.count {
                true => stored.clone(),
                false => format!("{count} of them {stored}"),
            })
            .collect();
        match stored.is_empty() {
            true => format!("{} {what}", self.count),
            false => format!("{} {what} ({})", self.count, stored.join(", ")),
        }
    }
}

/// Describes the storage of a tensor whose bytes can't be copied; `None` if they can.
fn stored(tensor: &statelens_checkpoint::Tensor) -> Option<String> {
    Some(match &tensor.layout {
        Layout::Chunked(chunked) => match chunked.chunks.describe() {
            filters if filters.is_empty() => "in chunks".to_owned(),
            filters => filters,
        },
        Layout::Packed(packed) => packed.packing.past().into(),
        Layout::Strided(_) => "views".into(),
        Layout::Fill(_) => "of one value".into(),
        Layout::Concat(_) => "in parts".into(),
        Layout::Computed(_) => "computed".into(),
        Layout::Dequantised(_) => "quantised".into(),
        Layout::Span(_) | Layout::Deferred(_) | Layout::Inline(_) | Layout::Missing(_) => {
            return None;
        }
    })
}

/// Returns the losses that the user has to acknowledge.
fn lost(losses: &[statelens_checkpoint::Loss]) -> Vec<Loss> {
    let mut numbers: HashMap<(LossCode, &[String]), u32> = HashMap::new();
    let losses = losses.iter().filter(|loss| !loss.harmless);
    losses
        .map(|loss| {
            let number = numbers.entry((loss.code, &loss.keys)).or_default();
            *number += 1;
            loss_text(loss, LossId::Loss(loss.code.code().to_owned(), loss.keys.clone(), *number))
        })
        .collect()
}

fn loss_text(loss: &statelens_checkpoint::Loss, id: LossId) -> Loss {
    let count = match loss.keys.len() {
        0 => String::new(),
        len => format!("{}: ", plural(len as u64, "key")),
    };
    let why = format!(
        "{} {}",
        listed(&places(loss), MAX_NAMED),
        if loss.why.is_empty() { String::new() } else { text::sentence(&text::advice(&loss.why)) }
    );
    Loss {
        id,
        title: format!(
            "{count}{}",
            if count.is_empty() { text::title(&loss.what) } else { loss.what.clone() }
        ),
        reason: why.trim().to_owned(),
    }
}

/// Returns the keys of a loss as the page shows them.
fn places(loss: &statelens_checkpoint::Loss) -> Vec<&str> {
    loss.keys.iter().map(|key| place_text(key)).collect()
}

fn note(loss: &statelens_checkpoint::Loss) -> String {
    match loss.keys.len() {
        0 => loss.what.clone(),
        1..=2 => format!("{}: {}", places(loss).join(", "), loss.what),
        len => format!("{len} keys: {}", loss.what),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_at_the_root_say_so() {
        let of = |key: &str| LossCode::Attributes.harmless("left out", "").of(vec![key.to_owned()]);
        assert_eq!(note(&of("")), "the root: left out");
        assert_eq!(
            lost(&[LossCode::Sparse.lost("left out", "").of(vec![String::new()])])[0].reason,
            "the root"
        );
        assert_eq!(note(&of("a.b")), "a.b: left out");
    }

    #[test]
    fn losses_of_the_same_title_are_acknowledged_one_by_one() {
        let of = |code: LossCode, what, keys: &[&str]| {
            code.lost(what, "").of(keys.iter().map(ToString::to_string).collect())
        };
        let sparse = |key| of(LossCode::Sparse, "sparse tensors become their parts", &[key]);
        let (first, other) = (lost(&[sparse("a")]), lost(&[sparse("b")]));
        assert_eq!(first[0].title, other[0].title);
        assert_ne!(first[0].id, other[0].id);
        let damage = |what| of(LossCode::Damage, what, &[]);
        let damaged = lost(&[damage("A record is truncated"), damage("A checksum differs")]);
        assert_ne!(damaged[0].id, damaged[1].id);
    }

    #[test]
    fn counts_each_tensor_once() {
        let way = |count, stored: &[(&str, u64)]| StorageCounts {
            count,
            stored: stored.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
        };
        let cast = [("bf16".to_owned(), way(114, &[("LZ4", 85)]))].into();
        let counts = WriteCounts { unchanged: 1, rewritten: StorageCounts::default(), cast };
        assert_eq!(counts.text(), "114 cast to bf16 (85 of them LZ4), 1 unchanged");
        let rewritten = way(3, &[("deflated", 3)]);
        let counts = WriteCounts { rewritten, ..WriteCounts::default() };
        assert_eq!(counts.text(), "3 rewritten (deflated)");
        assert_eq!(
            WriteCounts { unchanged: 2, ..WriteCounts::default() }.text(),
            "all 2 copied unchanged"
        );
        assert_eq!(WriteCounts::default().text(), "none");
    }
}
