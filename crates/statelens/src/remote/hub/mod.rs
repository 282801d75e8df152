//! Repositories on the Hugging Face Hub, as the official client sees them: with its token, its
//! variables, and the files in its cache, which is never written to.

mod cache;
mod client;
mod hashed;
mod repository;
mod settings;

use statelens_remote::hub::{HubLocation, is_commit};

pub(crate) use cache::blob_hash;
pub(crate) use hashed::{Hashing, HubSources};
pub(crate) use repository::{HubCheckpoint, HubRepository};
use settings::HubSettings;

/// Returns whether an address names a commit, so that it always means the same.
pub(super) fn is_pinned(url: &str) -> bool {
    let location = HubLocation::parse(url, &HubSettings::endpoint());
    location.is_some_and(|it| it.is_ok_and(|it| is_commit(it.revision())))
}

/// Returns whether a text is an address or a page of the Hub.
pub(super) fn is_hub(text: &str) -> bool {
    HubLocation::is_hub(text, &HubSettings::endpoint())
}
