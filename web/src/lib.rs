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
//!
//! - The worker holds one `Session`: files, checkpoint, results, fetch allowance, jobs. Opening
//!   another file starts a new session and drops the old one. Messages carry the numbers of their
//!   session and job; the worker refuses requests for an old session, and `web/src/page/bridge.rs`
//!   discards late replies.
//! - A job ends when its last handle is dropped; its destructor notifies the page. There is no
//!   other record of running work.
//! - A request that takes long is a task (`TaskRequest` in `web/src/protocol/task.rs`). The worker
//!   runs it with `worker/task.rs`, which posts its progress and its result so far; the page keeps
//!   one `state::Task` for it (`page/model/tasks.rs`), and `ToWorker::Stop` stops it.
//! - The page's state is one `PageModel`. Its methods change it, by `Actor::update`.
//! - A worker blocked in a synchronous read can't receive messages. When another file is opened,
//!   the page replaces a worker that is still opening one, or that does not react within 1.5 s.
//! - Statistics, verification and comparison of large files on disk are shared by up to eight
//!   further workers (`worker/pool.rs`, `assist.rs`). Each opens the same files and processes parts
//!   of the pass; the worker combines the results in order, so they do not depend on the number of
//!   workers. If an assistant fails, the worker goes on alone.
//! - Rows cross as one byte string (`web/src/rows.rs`), everything else through
//!   `serde-wasm-bindgen`. Reports of the core cross unchanged: one `Serialize` gives the command's
//!   JSON (`values/src/json.rs`) and the page's message.
//! - In a frame of another page, that page offers the files (`web/embed.js`, `page/embedding.rs`,
//!   docs/embed.md). The worker asks for bytes through a port. It can't wait for them, so a job
//!   that missed some is run again when they have arrived (`worker/embedder.rs`).
//! - Files in the origin's private file system carry the name of a lock that their tab holds. A new
//!   tab removes files whose lock is free. Without such files, as in some private windows, the
//!   browser holds up to 512 MiB of output.
//! - Families are fetched when needed. `web/build.rs` writes a catalog of them into the program;
//!   the worker asks the page for the files (`FromWorker::FilesNeeded`, `ToWorker::Provide`).
//! - The content security policy of `index.html` limits the window to its own site. It does not
//!   bind the worker, which is how `?url=` works; `tests/page` therefore checks every request that
//!   the page makes.
//! - `web/sw.js` keeps the site for offline use; a new version takes over when the user agrees.
//!   `statelens.html` is the whole page in one file (`xtask/src/single.rs`).

#![allow(missing_docs, reason = "an application: the names have no other users")]

// Comes first: the modules below it expand its list.
#[macro_use]
mod features;

mod assist;
pub mod byte_map;
pub mod checkpoint_list;
pub mod compare;
pub mod convert;
pub mod dispatch;
pub mod export;
pub mod family;
pub mod filter;
pub mod folder_check;
pub mod inspector;
pub mod links;
pub mod matrix;
pub mod messages;
pub mod model_description;
pub mod multi_select;
pub mod open;
pub mod page;
pub mod palette;
pub mod pieces;
pub mod plan;
pub mod protocol;
pub mod quantised;
pub mod read_as;
pub mod repair;
pub mod rows;
pub mod run_folder;
pub mod scan;
pub mod share;
pub mod state;
pub mod table;
pub mod text;
pub mod tree;
pub mod treemap;
pub mod values;
pub mod verify;
pub mod worker;
