//! The files or ranks that hold a checkpoint.

use std::collections::{HashMap, HashSet};

use statelens_checkpoint::{Checkpoint, FileId, Layout, order, rank_in};

use crate::pieces::message::MISSING;

/// The places of a checkpoint, by file.
#[derive(Debug, Default)]
pub(crate) struct PlaceIndex {
    /// `rank 3`, or names of files.
    pub(crate) names: Vec<String>,
    of_file: HashMap<String, u32>,
    /// Whether they are ranks.
    pub(crate) are_ranks: bool,
}

impl PlaceIndex {
    /// Returns the places of the files that hold the tensors: ranks, if all names have one.
    pub(crate) fn of(checkpoint: &Checkpoint) -> Self {
        let mut used: HashSet<FileId> = HashSet::new();
        let mut open: Vec<&Layout> =
            checkpoint.tensors().iter().map(|tensor| &tensor.layout).collect();
        open.extend(checkpoint.partial.values());
        while let Some(layout) = open.pop() {
            match layout {
                Layout::Span(span) => _ = used.insert(span.file),
                Layout::Packed(packed) => _ = used.insert(packed.span.file),
                Layout::Deferred(deferred) => _ = used.insert(deferred.span().file),
                Layout::Strided(strided) => open.push(&strided.storage),
                Layout::Concat(concat) => open.extend(concat.parts.iter().map(|it| &it.layout)),
                _ => {}
            }
        }
        let copies = checkpoint.replicas.iter().map(|replica| &replica.copies[1].layout);
        used.extend(copies.filter_map(|layout| match layout {
            Layout::Span(span) => Some(span.file),
            _ => None,
        }));
        let mut files: Vec<&str> = used.iter().map(|file| checkpoint.files.name(*file)).collect();
        order::natural(&mut files);
        let rank = |name: &str| rank_in(base(name));
        let mut ranks: Vec<u64> = files.iter().filter_map(|name| rank(name)).collect();
        let are_ranks = ranks.len() == files.len();
        order::by_key(&mut ranks, |rank| *rank);
        ranks.dedup();
        let place = |(at, name): (usize, &&str)| {
            let at = rank(name)
                .filter(|_| are_ranks)
                .map_or(Some(at), |rank| ranks.iter().position(|known| *known == rank));
            ((*name).to_owned(), at.unwrap_or(0) as u32)
        };
        let of_file = files.iter().enumerate().map(place).collect();
        let names: Vec<String> = match are_ranks {
            true => ranks.iter().map(|rank| format!("rank {rank}")).collect(),
            false => files.iter().map(|name| base(name).to_owned()).collect(),
        };
        Self { names, of_file, are_ranks }
    }

    /// Returns the index of the place of a file; [`MISSING`] for none.
    pub(crate) fn place(&self, file: &str) -> u32 {
        self.of_file.get(file).copied().unwrap_or(MISSING)
    }
}

fn base(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}
