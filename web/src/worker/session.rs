//! Sessions: an open checkpoint and everything derived from it.
//!
//! A session holds the files, the checkpoint and its leaves, results, the limit on fetching, and
//! the jobs. Opening something else begins a new session and drops the previous one, which stops
//! its jobs. Jobs that run concurrently with messages hold what they read strongly, but the session
//! only weakly.

use std::any::{Any, TypeId};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use crate::worker::compared::ComparedCheckpoint;
use crate::worker::job::Jobs;
use crate::worker::measurements::SharedMeasurements;
use crate::worker::opened::OpenCheckpoint;

pub(crate) type SharedSession = Rc<RefCell<Session>>;

pub(crate) struct Session {
    id: u32,
    /// The checkpoint, once it is open.
    pub(crate) open: Option<OpenCheckpoint>,
    /// Results of reading its tensors.
    pub(crate) found: SharedMeasurements,
    pub(crate) compared: ComparedCheckpoint,
    pub(crate) jobs: Jobs,
    /// What single features keep, by its type.
    kept: HashMap<TypeId, Box<dyn Any>>,
}

impl Session {
    /// Begins a session without an open checkpoint.
    pub(crate) fn begin(id: u32) -> SharedSession {
        Rc::new(RefCell::new(Self {
            id,
            open: None,
            found: SharedMeasurements::default(),
            compared: ComparedCheckpoint::default(),
            jobs: Jobs::of(id),
            kept: HashMap::new(),
        }))
    }

    /// Returns the number that the page gave it.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Calls `run` with what a feature keeps in this session, which is `T::default()` at first.
    pub(crate) fn kept<T: Default + 'static, R>(&mut self, run: impl FnOnce(&mut T) -> R) -> R {
        let before = self.kept.remove(&TypeId::of::<T>());
        let mut kept = before.and_then(|it| it.downcast::<T>().ok()).unwrap_or_default();
        let result = run(&mut kept);
        self.kept.insert(TypeId::of::<T>(), kept);
        result
    }

    /// Returns the open checkpoint, with the results of reading its values.
    pub(crate) fn measurements(&self) -> Option<(OpenCheckpoint, SharedMeasurements)> {
        Some((self.open.clone()?, self.found.clone()))
    }

    /// Returns both checkpoints of a comparison.
    pub(crate) fn compared_sides(&self) -> Option<(OpenCheckpoint, OpenCheckpoint)> {
        self.compared.sides(self.open.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_keep_state_apart_from_each_other() {
        let session = Session::begin(1);
        let mut session = session.borrow_mut();
        session.kept(|count: &mut u32| *count += 2);
        session.kept(|names: &mut Vec<u8>| names.push(7));
        session.kept(|count: &mut u32| *count += 1);
        assert_eq!(session.kept(|count: &mut u32| *count), 3);
        assert_eq!(session.kept(|names: &mut Vec<u8>| names.clone()), [7]);
    }
}
