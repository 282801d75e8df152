//! Files at web addresses as sources of bytes, read by HTTP ranges.
//!
//! This crate is shared by the command and the page: addresses ([`Address`]), responses ([`Head`]),
//! limits on fetching ([`Meter`]), and reading with retries ([`RemoteFile`]). The requests
//! themselves are made by an implementation of [`Fetch`].
//!
//! `crates/remote` has `Address` (URLs, Hugging Face links), `Head` and `Identity` (what a response
//! means, whether the file is still the same), `Meter` (fetch limits) and `RemoteFile`, a `ReadAt`
//! with retries. `Fetch` makes the requests: `ureq` in the command, `XMLHttpRequest` in the worker.
//! A server's folder can't be listed, so the `FileSet` records names that a reader looked up in
//! vain; those are requested next to the first file, and the set is opened again (`WantedFiles`).
//! The page follows redirects to another server only with the user's consent. Objects are written
//! by multipart upload and appear when every file of the plan is complete.

mod address;
pub mod hub;
mod meter;
mod remote;
mod response;
mod streamed;
#[cfg(test)]
mod tests;
mod wanted;

pub use address::Address;
pub use meter::{Allowance, Meter, MeteredCall};
pub use remote::{FIRST, Fetch, RemoteFile, length_unknown, open, unreachable};
pub use response::{Begin, Head, Identity, Next, TRIES, Verdict, begin, without_ranges};
pub use streamed::{Streamed, Window};
pub use wanted::WantedFiles;
