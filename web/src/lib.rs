//! The Statelens page: a Yew application, and the worker that runs the core for it.
//!
//! The page never touches a checkpoint's bytes. It sends [`protocol::ToWorker`] messages to a
//! dedicated worker, which opens files with synchronous reads and answers with
//! [`protocol::FromWorker`]. What the page shows is computed from those answers by the pure
//! modules under [`state`]: they know neither the browser nor the core, and are tested natively.
//!
//! It is not a library for others: the binary, which is both page and worker, is its only user.

#![allow(missing_docs, reason = "an application: the names have no other users")]

pub mod messages;
pub mod page;
pub mod protocol;
pub mod rows;
pub mod state;
pub mod text;
pub mod wire;
pub mod worker;
