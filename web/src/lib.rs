//! The Statelens page: a Yew application, and the worker that runs the core for it.
//!
//! The page never touches a checkpoint's bytes. It sends [`protocol::ToWorker`] messages to a
//! dedicated worker, which opens files with synchronous reads and replies with
//! [`protocol::FromWorker`].
//!
//! A feature is a folder with a module per layer: `message` has its part of the protocol, `worker`
//! runs in the worker, `state` computes what the page shows from the replies, without the browser,
//! `model` is its part of the page's state, and `page` has its components. What features share is
//! in [`protocol`], [`worker`], [`state`] and [`page`]. `features` lists the tasks of all features,
//! and [`dispatch`] passes each request of the page to the feature that handles it.
//!
//! This crate is not a library for others: its only user is the binary, which is both page and
//! worker.

#![allow(missing_docs, reason = "an application: the names have no other users")]

// Comes first: the modules below it expand its list.
#[macro_use]
mod features;

pub mod compare;
pub mod convert;
pub mod dispatch;
pub mod export;
pub mod family;
pub mod filter;
pub mod inspector;
pub mod links;
pub mod matrix;
pub mod messages;
pub mod model_description;
pub mod open;
pub mod page;
pub mod palette;
pub mod picked;
pub mod plan;
pub mod protocol;
pub mod rail;
pub mod read_as;
pub mod repair;
pub mod rows;
pub mod run_folder;
pub mod scan;
pub mod share;
pub mod state;
pub mod table;
pub mod tape;
pub mod text;
pub mod tree;
pub mod treemap;
pub mod values;
pub mod verify;
pub mod worker;
