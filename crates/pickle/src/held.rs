//! Files in memory that a pickle holds.

use std::collections::HashSet;
use std::sync::Arc;

use crate::{Node, Pickle};

impl Pickle {
    /// Returns the bytes in each `io.BytesIO`: the program that loads the pickle may read them as a
    /// file. Bytes that several of them share are returned once.
    pub fn files_in_memory(&self) -> Vec<Arc<[u8]>> {
        let mut files = Vec::new();
        let mut seen = HashSet::new();
        for (id, node) in self.nodes() {
            let Node::Object(call) = node else { continue };
            let is_file = self.global(call.callable).is_some_and(|global| {
                matches!(&*global.module, "_io" | "io" | "_pyio") && &*global.name == "BytesIO"
            });
            let Some(object) = self.object(id).filter(|_| is_file) else { continue };
            let content = object.states.iter().chain([&object.args]);
            for content in content.filter_map(|content| self.sequence(*content)?.first()) {
                let Some(spelled) = self.spelled(*content) else { continue };
                if seen.insert(spelled)
                    && let Some(bytes) = self.spelled_bytes(spelled)
                    && !bytes.is_empty()
                {
                    files.push(bytes);
                }
            }
        }
        files
    }
}

#[cfg(test)]
mod tests {
    use statelens_checkpoint::Limits;

    #[test]
    fn files_in_memory_are_found_in_every_spelling() {
        for pickle in [
            // Protocols 2, with the bytes as a text, and 4.
            &b"\x80\x02c_io\nBytesIO\n)\x81c_codecs\nencode\nX\x03\0\0\0a\xc3\xa9X\x06\0\0\0latin1\x86RK\0N\x87b."[..],
            b"\x80\x04c_io\nBytesIO\n)\x81C\x02a\xe9K\0N\x87b.",
            b"cio\nBytesIO\nC\x02a\xe9\x85R.",
        ] {
            let read = crate::read(pickle, 0, &Limits::default()).unwrap();
            let files = read.files_in_memory();
            assert_eq!(files.len(), 1, "{}", pickle.escape_ascii());
            assert_eq!(&*files[0], b"a\xe9");
        }
        let shared = b"\x80\x04C\x02ab\x940(c_io\nBytesIO\n\x94h\x01)\x81h\0K\0N\x87bh\x01)\x81h\0K\0N\x87bl.";
        assert_eq!(crate::read(shared, 0, &Limits::default()).unwrap().files_in_memory().len(), 1);
    }
}
