//! Messages about verifying the open checkpoint.

use serde::{Deserialize, Serialize};
use statelens_compare::verify::VerificationReport;

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
