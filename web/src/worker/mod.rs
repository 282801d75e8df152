//! What the features share in the worker: the session, its jobs and tasks, and reading of files.

pub mod blob;
pub mod command_line;
pub mod compared;
pub mod embedder;
pub(crate) mod hub;
pub mod job;
pub mod measurements;
pub mod native_hashes;
pub mod next_task;
pub mod opened;
pub mod outputs;
pub(crate) mod places;
pub(crate) mod pool;
pub mod port;
pub mod private;
pub mod reading;
pub mod remote;
pub(crate) mod requests;
pub mod selection;
pub mod session;
pub(crate) mod shared_work;
pub mod sources;
pub mod task;
pub(crate) mod weights;
