//! Examines the members of a tar archive.

use std::collections::HashMap;
use std::sync::Arc;

use statelens_checkpoint::Result;

use super::super::section::some;
use super::super::tar::{Sparse, TarMember, Walk};
use super::{Blob, Container, DEEPEST, HEAD, Search, texts, torch};

/// The cost of reading a header, in units of the budget.
const HEADER: u64 = 1_000;
/// The maximum number of links that lead to each other.
const MAX_LINKS: usize = 16;

/// The members of an archive by their normalised names: their data, or the targets of links.
#[derive(Default)]
struct Members {
    data: HashMap<String, Vec<Blob>>,
    /// The name as it was written, and the target relative to the link and to the archive.
    links: Vec<(String, [String; 2])>,
}

impl Search<'_> {
    /// Examines the tar archive whose first header is at `at`. `led` means that a loader would
    /// start there; otherwise the walk ends at a header that was already read.
    pub(super) fn tar(&mut self, blob: &Blob, at: u64, led: bool) -> Result<()> {
        let mut walk = Walk::new(&blob.source, at);
        let mut members = Members::default();
        let mut found = Ok(());
        while found.is_ok()
            && let Some(member) = walk.member(&mut |header| {
                let new = self.is_new(Container::Tar, blob, header, 0);
                (new || led) && self.may_read_header(blob)
            })
        {
            self.found = true;
            found = self.tar_member(blob, member, &mut members);
        }
        if found.is_ok() {
            found = self.links(blob, &members);
        }
        if let Some(doubt) = walk.doubt {
            let why = format!("It has {doubt}, which programs read differently.");
            self.unseen(blob, "a tar archive", &why);
        }
        found
    }

    fn may_read_header(&mut self, blob: &Blob) -> bool {
        let may = self.spend(HEADER);
        if !may {
            self.unseen(blob, "the rest of a tar archive", "It has too many members.");
        }
        may && self.may_enter(blob, 0)
    }

    /// Examines the targets of links under the names of the links.
    fn links(&mut self, blob: &Blob, members: &Members) -> Result<()> {
        let targets: HashMap<String, &[String; 2]> =
            members.links.iter().map(|(name, link)| (normalised(name), link)).collect();
        for (name, link) in &members.links {
            let mut open: Vec<&str> = link.iter().map(String::as_str).collect();
            let (mut steps, mut is_found) = (0, false);
            while let Some(target) = open.pop()
                && steps < MAX_LINKS
            {
                steps += 1;
                open.extend(targets.get(target).into_iter().copied().flatten().map(|to| &**to));
                for member in members.data.get(target).into_iter().flatten() {
                    is_found = self.spend(member.source.len() + HEADER);
                    if !is_found {
                        break;
                    }
                    let named = Blob { name: blob.within(name), ..member.clone() };
                    let head = some(&*named.source, 0, HEAD)?;
                    texts::examine(self, &named, &head)?;
                }
            }
            if !is_found && texts::is_text(name) {
                let why = "It is a link to something that is not in the archive.";
                self.unseen(blob, &format!("{name:?}"), why);
            }
        }
        Ok(())
    }

    fn tar_member(&mut self, blob: &Blob, member: TarMember, members: &mut Members) -> Result<()> {
        let TarMember { name, link, start, len, sparse } = member;
        if torch::NAMES.contains(&&*name) && !link.is_empty() {
            let why = "Its name is one that torch unpickles, and it is a link to another member.";
            self.unseen(blob, &format!("{name:?}"), why);
        }
        let inner = match sparse {
            Some(map) => {
                let Some(inner) = self.sparse(blob, &name, start, &map, len) else { return Ok(()) };
                self.whole(inner.clone());
                inner
            }
            None => {
                self.part(blob, &name, start, len);
                blob.part(&name, start, len)
            }
        };
        if link.is_empty() {
            members.data.entry(normalised(&name)).or_default().push(inner.clone());
        } else {
            let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
            let relative = normalised(&format!("{folder}/{link}"));
            members.links.push((name.clone(), [relative, normalised(&link)]));
        }
        torch::member(self, &inner, &name)
    }

    /// Examines the file that a sparse member represents.
    fn sparse(
        &mut self,
        blob: &Blob,
        name: &str,
        start: u64,
        map: &[(u64, u64)],
        len: u64,
    ) -> Option<Blob> {
        let source = Sparse::new(&blob.source, start, map, len)
            .filter(|_| blob.unpacked < DEEPEST && len < self.budget.left() && self.spend(len));
        let Some(source) = source else {
            let why = "It is a sparse member whose map is out of order, or that is far longer than the file.";
            self.unseen(blob, &format!("{name:?}"), why);
            return None;
        };
        Some(Blob {
            name: blob.within(name),
            source: Arc::new(source),
            space: self.space(),
            base: 0,
            root: true,
            unpacked: blob.unpacked + 1,
            cut: false,
        })
    }
}

/// Returns a path without `.` and `..`.
fn normalised(path: &str) -> String {
    let mut steps = Vec::new();
    for step in path.split('/') {
        match step {
            "" | "." => {}
            ".." => drop(steps.pop()),
            step => steps.push(step),
        }
    }
    steps.join("/")
}
