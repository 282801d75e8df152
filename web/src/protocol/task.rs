//! Tasks: requests that take long, their progress and their results.

use serde::{Deserialize, Serialize};

use super::job::JobKind;

macro_rules! messages {
    ($($(#[$doc:meta])* $kind:ident($request:ty) -> $result:ty, starts $start:path $(, sheet $sheet:path)?;)*) => {
        /// A request that takes long.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        pub enum TaskRequest {
            $($(#[$doc])* $kind($request),)*
        }

        impl TaskRequest {
            pub fn kind(&self) -> JobKind {
                match self {
                    $(Self::$kind(_) => JobKind::$kind,)*
                }
            }
        }

        /// The result of a task, or its result so far.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        pub enum TaskResult {
            $($kind(Box<$result>),)*
        }

        $(
            impl From<Box<$result>> for TaskResult {
                fn from(result: Box<$result>) -> Self {
                    Self::$kind(result)
                }
            }
        )*
    };
}

tasks!(messages);

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JobProgress {
    /// Bytes processed, or operations of a computation.
    pub done: u64,
    pub total: u64,
    /// Milliseconds since the start.
    pub millis: f64,
    /// The key being written; empty for other jobs.
    pub key: String,
}
