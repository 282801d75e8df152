//! Messages about verifying the open checkpoint.

use serde::{Deserialize, Serialize};
use statelens_compare::verify::VerificationReport;

/// Verifies: reads everything once, checks it also against the manifest that may be sent with this
/// message, and keeps the statistics and hashes of all tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifyRequest {
    /// Whether any number that is not finite is an error.
    pub finite: bool,
}

/// The result of a verification.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VerifyReport {
    pub report: VerificationReport,
    /// Whether numbers that are not finite count as problems.
    pub finite: bool,
    /// The equivalent command.
    pub command: String,
    /// Bytes checked.
    pub bytes: u64,
    /// Milliseconds spent.
    pub millis: f64,
}
