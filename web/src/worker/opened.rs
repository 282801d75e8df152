//! An open checkpoint, as the jobs use it.

use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

use statelens_checkpoint::{Checkpoint, Leaf, Limits};
use statelens_describe::{Parameter, Parameters};

use crate::read_as::message::ReadAs;
use crate::worker::job::Job;
use crate::worker::places::PlaceIndex;
use crate::worker::sources::Sources;
use crate::worker::weights::QuantisedWeights;

/// An open checkpoint, its leaves by row, and the files that it is read from.
#[derive(Clone)]
pub struct OpenCheckpoint {
    pub checkpoint: Arc<Checkpoint>,
    /// Its leaves, in the order of the rows sent to the page.
    pub leaves: Arc<[Leaf]>,
    /// The checkpoint as it is stored, with its leaves, if quantised weights are tensors of numbers
    /// in the one above.
    stored: Option<(Arc<Checkpoint>, Arc<[Leaf]>)>,
    /// The quantised weights.
    pub(crate) weights: Rc<QuantisedWeights>,
    /// The files or ranks that hold it.
    pub(crate) places: Rc<PlaceIndex>,
    pub sources: Rc<Sources>,
    /// The limits that it was opened with.
    pub limits: Limits,
    /// The dtypes that arrays stored without one were given.
    pub read_as: ReadAs,
    /// The parameters behind the numbers in optimizer states, computed on first use.
    parameters: Rc<OnceCell<Parameters>>,
}

impl OpenCheckpoint {
    pub fn new(
        checkpoint: Arc<Checkpoint>,
        leaves: Arc<[Leaf]>,
        sources: Rc<Sources>,
        limits: Limits,
    ) -> Self {
        Self {
            checkpoint,
            leaves,
            stored: None,
            weights: Rc::default(),
            places: Rc::default(),
            sources,
            limits,
            read_as: ReadAs::default(),
            parameters: Rc::default(),
        }
    }

    /// Shows quantised weights as tensors of numbers: `shown` has them, and `leaves` are its leaves.
    pub(crate) fn with_weights(
        self,
        (shown, weights): (Checkpoint, QuantisedWeights),
        leaves: Arc<[Leaf]>,
    ) -> Self {
        let (checkpoint, weights) = (Arc::new(shown), Rc::new(weights));
        Self { checkpoint, leaves, weights, stored: Some((self.checkpoint, self.leaves)), ..self }
    }

    /// Returns the checkpoint as it is stored. Values and tensors that both have share their ids.
    pub(crate) fn stored(&self) -> Self {
        let Some((checkpoint, leaves)) = self.stored.clone() else { return self.clone() };
        let (stored, parameters) = (None, Rc::default());
        Self { checkpoint, leaves, stored, parameters, ..self.clone() }
    }

    /// Returns the parameter that an entry of an optimizer's state belongs to.
    pub fn parameter(&self, leaf: &Leaf) -> Option<&Parameter> {
        self.parameter_of(&leaf.flat.to_lossy())
    }

    /// As [`Self::parameter`], by the key of the entry.
    pub(crate) fn parameter_of(&self, flat: &str) -> Option<&Parameter> {
        if !flat.contains("state.") {
            return None;
        }
        let all = self.parameters.get_or_init(|| Parameters::of(&self.checkpoint, &self.leaves));
        all.of_key(flat)
    }

    /// Returns the name or the address of the open file.
    pub(crate) fn source_name(&self) -> String {
        let files = &self.checkpoint.files;
        let main = || files.main().map(|main| files.name(main).to_owned()).ok();
        let url = self.sources.server().map(|server| server.url().to_owned());
        url.or_else(main).unwrap_or_default()
    }

    /// For a remote checkpoint, posts the bytes fetched so far.
    pub(crate) fn report_fetched(&self, job: &Job) {
        if let Some(server) = self.sources.server() {
            server.report_fetched(job);
        }
    }
}
