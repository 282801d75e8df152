//! The results of tasks as they are stored: each names its job and its task, and has a checksum, so
//! that no other result can pass for it.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};
use statelens_checkpoint::{Error, Result};

use super::recipe::Recipe;
use statelens_checkpoint::hex;

/// The result of a task with what it belongs to.
#[derive(Serialize, Deserialize)]
struct StoredResult<'a> {
    /// Version of this structure: 1.
    statelens: u64,
    task: u64,
    /// The checksum of the recipe.
    job: String,
    #[serde(borrow)]
    result: &'a RawValue,
    /// SHA-256 of the fields above.
    checksum: String,
}

/// Returns the result of a task as it is stored.
pub(super) fn encoded(recipe: &Recipe, task: u64, result: &impl Serialize) -> Result<Vec<u8>> {
    let failed = |error| Error::unsupported(format!("it can't be written as JSON: {error}"));
    let result = serde_json::value::to_raw_value(result).map_err(failed)?;
    let checksum = checksum(&recipe.checksum, task, result.get());
    let job = recipe.checksum.clone();
    let stored = StoredResult { statelens: 1, task, job, result: &result, checksum };
    serde_json::to_vec(&stored).map_err(failed)
}

/// Returns the result of a task from its stored form. Fails unless that is complete and of this
/// task of this job.
pub(super) fn decoded<T: DeserializeOwned>(recipe: &Recipe, task: u64, bytes: &[u8]) -> Result<T> {
    let not = |why: &str| {
        Error::damaged(format!("this is not the result of task {task} of this job: {why}"))
            .advice("Remove it, and run the task again.")
    };
    let stored: StoredResult<'_> =
        serde_json::from_slice(bytes).map_err(|error| not(&error.to_string()))?;
    if stored.job != recipe.checksum {
        return Err(not("it is of another job"));
    }
    if stored.task != task {
        return Err(not(&format!("it is of task {}", stored.task)));
    }
    if stored.checksum != checksum(&stored.job, task, stored.result.get()) {
        return Err(not("it has changed since it was written"));
    }
    serde_json::from_str(stored.result.get()).map_err(|error| not(&error.to_string()))
}

fn checksum(job: &str, task: u64, result: &str) -> String {
    hex(&Sha256::digest(format!("{job} {task} {result}").as_bytes()))
}
