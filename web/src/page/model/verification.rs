//! The state of a verification.

use std::rc::Rc;

use web_sys::File;

use crate::page::stored::keep_rate;
use crate::protocol::conversion::Running;
use crate::protocol::error::ErrorText;
use crate::protocol::verify::{Verified, VerifyReply};

/// A verification of the open checkpoint.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Verification {
    /// What it is held against.
    pub manifest: Option<File>,
    /// Whether numbers that are not finite are wrong.
    pub finite: bool,
    /// Whether far more may be gone through than the files hold.
    pub sure: bool,
    /// Where it is.
    pub stage: VerificationStage,
}

/// Where a verification is.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum VerificationStage {
    /// Not begun.
    #[default]
    Form,
    /// The last that the worker said; bytes and milliseconds at each repaint.
    Now(Running, Rc<Vec<(u64, f64)>>),
    /// It is complete.
    Done(Rc<Verified>),
    /// It could not go on.
    Failed(Rc<ErrorText>),
}

impl Verification {
    /// Takes in what the worker said.
    pub(in crate::page) fn hear(&mut self, reply: VerifyReply) {
        // Nothing is heard of what was stopped.
        let VerificationStage::Now(_, past) = &self.stage else { return };
        self.stage = match reply {
            VerifyReply::Progress(now) => {
                let mut past = past.as_ref().clone();
                past.push((now.done, now.millis));
                VerificationStage::Now(now, Rc::new(past))
            }
            VerifyReply::Ended(Ok(verified)) => {
                // A shorter time says little about a long one.
                if verified.millis > 300.0 {
                    keep_rate(verified.bytes as f64 / verified.millis);
                }
                VerificationStage::Done(Rc::new(*verified))
            }
            VerifyReply::Ended(Err(error)) => VerificationStage::Failed(Rc::new(error)),
        };
    }
}
