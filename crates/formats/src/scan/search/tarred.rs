//! Examines the members of a tar archive.

use std::sync::Arc;

use statelens_checkpoint::Result;

use super::super::tar::{Sparse, TarMember, Walk};
use super::{Blob, Container, DEEPEST, Search, torch};

/// The cost of reading a header, in bytes of pickles.
const HEADER: u64 = 64;

impl Search<'_> {
    /// Examines the tar archive whose first header is at `at`. `led` means that a loader would
    /// start there; otherwise the walk ends at a header that was already read.
    pub(super) fn tar(&mut self, blob: &Blob, at: u64, led: bool) -> Result<()> {
        let mut walk = Walk::new(&blob.source, at);
        let mut found = Ok(());
        while found.is_ok()
            && let Some(member) = walk.member(&mut |header| {
                let new = self.is_new(Container::Tar, blob, header, 0);
                (new || led) && self.may_read_header(blob)
            })
        {
            self.found = true;
            found = self.tar_member(blob, member);
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
        may && self.may_enter(blob)
    }

    fn tar_member(&mut self, blob: &Blob, member: TarMember) -> Result<()> {
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
            .filter(|_| len <= self.unpack && blob.unpacked < DEEPEST);
        let Some(source) = source else {
            let why = "It is a sparse member whose map is out of order, or that is far longer than the file.";
            self.unseen(blob, &format!("{name:?}"), why);
            return None;
        };
        self.unpack -= len;
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
