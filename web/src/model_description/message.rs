//! Messages about what the model is.

use serde::{Deserialize, Serialize};
use statelens_describe::model::Model;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelDescription {
    /// Empty if it is not recognised.
    pub model: Model,
    /// The name of the config that may be next to a remote model, if it was not requested yet.
    pub fetch: Option<String>,
}
