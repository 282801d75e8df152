//! Decides whether dropped files belong to the open checkpoint.

use statelens_formats::cerebras::dataloader::is_state_file;
use statelens_recipes::adapter;

use crate::page::drop::DroppedFile;
use crate::page::model::{PageModel, Screen};

impl PageModel {
    /// Returns whether all files of a drop are an adapter for the open checkpoint, files that it
    /// misses, or the state of its dataloader. The checkpoint is then opened again together with
    /// them.
    pub fn joins(&self, dropped: &[DroppedFile]) -> bool {
        self.screen == Screen::Work
            && self.work.is_some()
            && !dropped.is_empty()
            && !self.files.is_empty()
            && (self.is_adapter(dropped)
                || dropped.iter().all(|file| {
                    let name = &file.name.path;
                    is_state_file(base(name)) || self.missing(name).is_some()
                }))
    }

    /// Returns whether a drop is an adapter for the open model.
    fn is_adapter(&self, dropped: &[DroppedFile]) -> bool {
        let is_one = |path: &str| adapter::FILES.contains(&base(path));
        let mut adapters = dropped.iter().filter(|file| is_one(&file.name.path));
        let others = dropped.iter().filter(|file| !is_one(&file.name.path));
        let opened = self.work.as_ref().map_or("", |work| &work.opened.name);
        adapters.next().is_some()
            && !is_one(opened)
            && others.map(|file| &file.name.path).all(|path| !path.ends_with(".safetensors"))
    }

    /// Returns the path of the missing file of the open checkpoint that has the same base name.
    pub fn missing(&self, path: &str) -> Option<&str> {
        let missing = &self.work.as_ref()?.opened.missing;
        missing.iter().map(String::as_str).find(|missing| base(missing) == base(path))
    }
}

/// Returns the last component of a path.
fn base(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or_default()
}
