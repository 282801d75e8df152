//! The state of a verification.

use std::rc::Rc;

use web_sys::File;

use crate::page::stored::store_rate;
use crate::protocol::conversion::JobProgress;
use crate::protocol::error::ErrorText;
use crate::protocol::verify::{VerifyReply, VerifyReport};

/// A verification of the open checkpoint.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Verification {
    /// The manifest to verify against.
    pub manifest: Option<File>,
    /// Whether non-finite numbers count as errors.
    pub finite: bool,
    /// Whether the user agreed to read far more data than the files hold (they expand when
    /// unpacked).
    pub unpack_confirmed: bool,
    pub stage: VerificationStage,
}

/// The stage of a verification.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum VerificationStage {
    /// Not started.
    #[default]
    Form,
    /// Running: the latest progress, and the history of (bytes, milliseconds).
    Now(JobProgress, Rc<Vec<(u64, f64)>>),
    /// Complete.
    Done(Rc<VerifyReport>),
    /// Failed with an error.
    Failed(Rc<ErrorText>),
}

impl Verification {
    /// Applies a reply of the worker.
    pub(in crate::page) fn handle_reply(&mut self, reply: VerifyReply) {
        // Replies that arrive after the verification was stopped are ignored.
        let VerificationStage::Now(_, past) = &self.stage else { return };
        self.stage = match reply {
            VerifyReply::Progress(now) => {
                let mut past = past.as_ref().clone();
                past.push((now.done, now.millis));
                VerificationStage::Now(now, Rc::new(past))
            }
            VerifyReply::Ended(Ok(verified)) => {
                // A shorter run is not a reliable estimate of the speed.
                if verified.millis > 300.0 {
                    store_rate(verified.bytes as f64 / verified.millis);
                }
                VerificationStage::Done(Rc::new(*verified))
            }
            VerifyReply::Ended(Err(error)) => VerificationStage::Failed(Rc::new(error)),
        };
    }
}
