//! Files at web addresses as sources of bytes, read by HTTP ranges.
//!
//! This crate is shared by the command and the page: addresses ([`Address`]), responses ([`Head`]),
//! limits on fetching ([`Meter`]), and reading with retries ([`RemoteFile`]). The requests
//! themselves are made by an implementation of [`Fetch`].

mod address;
mod answer;
mod meter;
mod remote;
mod streamed;
#[cfg(test)]
mod tests;
mod wanted;

pub use address::Address;
pub use answer::{Begin, Head, Identity, Next, TRIES, Verdict, begin};
pub use meter::{Allowance, Meter, MeteredCall};
pub use remote::{FIRST, Fetch, RemoteFile, length_unknown, open, unreachable};
pub use streamed::{Streamed, Window};
pub use wanted::WantedFiles;
