//! The Statelens page: a Yew application, and the worker that runs the core for it.
//!
//! The page never touches a checkpoint's bytes. It sends [`protocol::ToWorker`] messages to a
//! dedicated worker, which opens files with synchronous reads and replies with
//! [`protocol::FromWorker`]. The pure modules under [`state`] compute the page's contents from
//! those replies. They do not depend on the browser, and are tested natively.
//!
//! This crate is not a library for others: its only user is the binary, which is both page and
//! worker.

#![allow(missing_docs, reason = "an application: the names have no other users")]

pub mod messages;
pub mod page;
pub mod protocol;
pub mod rows;
pub mod state;
pub mod text;
pub mod worker;
