//! The Hugging Face Hub: repositories, their files, and refusals.
//!
//! A file has one address, `ENDPOINT/ID/resolve/COMMIT/PATH`, which answers with a redirect. Commit,
//! SHA-256 and size are headers of that redirect, not of the answer that it leads to. `resolve` is
//! requested without a range, because an address that it gives for a range serves that range only.
//! The token goes to the endpoint only.
//!
//! Sources: the client `huggingface_hub` 2.4 (`file_download.py`, `hf_api.py`, `utils/_auth.py`), and
//! the documentation of the Hub (<https://huggingface.co/docs/hub/api>).

mod addresses;
mod endpoint;
mod listing;
mod location;
mod refusal;
mod token;

pub use endpoint::Endpoint;
pub use listing::{HubFile, HubListing};
pub use location::{HubLocation, RepositoryKind};
pub use refusal::{HubRefusal, rate_limit};
pub use token::HubToken;

/// Returns whether a text is the full id of a commit.
pub fn is_commit(text: &str) -> bool {
    text.len() == 40
        && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}
