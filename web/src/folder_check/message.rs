//! The message about checking a folder or a repository.

use serde::{Deserialize, Serialize};

use crate::open::message::{FetchConsent, FileName};

/// Checks the files sent with this message, or a repository of the Hub, by the rules of
/// `statelens check`. Reads structure only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FolderCheckRequest {
    pub files: Vec<FileName>,
    /// The address of the repository; empty for files.
    pub address: String,
    /// The token for it; may be empty.
    pub token: String,
    pub agreed: FetchConsent,
}
