//! The state of a request that takes long, the same for every feature.

use std::rc::Rc;

use crate::protocol::error::ErrorText;
use crate::protocol::task::JobProgress;

/// The state of a request that takes long.
#[derive(Debug, Clone, Default)]
pub enum Task<T> {
    #[default]
    Idle,
    Running(RunningTask<T>),
    Done(Rc<T>),
    Failed(Rc<ErrorText>),
}

/// The progress of a request.
#[derive(Debug, Clone)]
pub struct RunningTask<T> {
    /// The latest progress.
    pub now: JobProgress,
    /// History of (bytes, milliseconds), for the rate.
    pub past: Rc<Vec<(u64, f64)>>,
    /// The result so far.
    pub partial: Option<Rc<T>>,
}

impl<T> PartialEq for Task<T> {
    /// Compares results by address: they are shared and never changed.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Idle, Self::Idle) => true,
            (Self::Running(a), Self::Running(b)) => {
                let partial = |of: &RunningTask<T>| of.partial.as_ref().map(Rc::as_ptr);
                Rc::ptr_eq(&a.past, &b.past) && partial(a) == partial(b)
            }
            (Self::Done(a), Self::Done(b)) => Rc::ptr_eq(a, b),
            (Self::Failed(a), Self::Failed(b)) => Rc::ptr_eq(a, b),
            _ => false,
        }
    }
}

impl<T> Task<T> {
    /// Returns a task that has just started.
    pub fn started() -> Self {
        let mut task = Self::Idle;
        task.start();
        task
    }

    /// Starts. The previous result remains until the first new one.
    pub fn start(&mut self) {
        let (now, partial) = (JobProgress::default(), self.result().cloned());
        *self = Self::Running(RunningTask { now, past: Rc::default(), partial });
    }

    /// Stores the result, or the result so far. Results that arrive after the task was stopped are
    /// ignored.
    pub fn set(&mut self, result: impl Into<Rc<T>>, done: bool) {
        let Self::Running(running) = self else { return };
        if done {
            *self = Self::Done(result.into());
        } else {
            running.partial = Some(result.into());
        }
    }

    /// Stops it; a result so far is kept.
    pub fn stop(&mut self) {
        if let Self::Running(running) = self {
            *self = running.partial.take().map_or(Self::Idle, Self::Done);
        }
    }

    pub fn is_running(&self) -> bool {
        matches!(self, Self::Running(_))
    }

    /// Returns the progress while it is running.
    pub fn now(&self) -> Option<&JobProgress> {
        if let Self::Running(running) = self { Some(&running.now) } else { None }
    }

    /// Returns the result, or the result so far.
    pub fn result(&self) -> Option<&Rc<T>> {
        match self {
            Self::Running(running) => running.partial.as_ref(),
            Self::Done(result) => Some(result),
            Self::Idle | Self::Failed(_) => None,
        }
    }

    /// Returns the error if it failed.
    pub fn error(&self) -> Option<&Rc<ErrorText>> {
        if let Self::Failed(error) = self { Some(error) } else { None }
    }
}

/// The part of a task that does not depend on its result.
pub trait TaskState {
    /// Notes its progress, if it is running.
    fn progress(&mut self, now: JobProgress);
    /// Ends it with an error, if it is running.
    fn fail(&mut self, error: ErrorText);
    /// Stops it; a result so far is kept.
    fn stop(&mut self);
    fn is_running(&self) -> bool;
    fn error(&self) -> Option<&Rc<ErrorText>>;
}

impl<T> TaskState for Task<T> {
    fn progress(&mut self, now: JobProgress) {
        let Self::Running(running) = self else { return };
        // A new history marks each update, so that a component sees that it changed.
        let mut past = (*running.past).clone();
        past.push((now.done, now.millis));
        (running.now, running.past) = (now, Rc::new(past));
    }

    fn fail(&mut self, error: ErrorText) {
        if self.is_running() {
            *self = Self::Failed(Rc::new(error));
        }
    }

    fn stop(&mut self) {
        Self::stop(self);
    }

    fn is_running(&self) -> bool {
        Self::is_running(self)
    }

    fn error(&self) -> Option<&Rc<ErrorText>> {
        Self::error(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(task: &mut Task<u8>, done: u64) {
        task.progress(JobProgress { done, total: 4, ..JobProgress::default() });
    }

    #[test]
    fn keeps_the_result_so_far_until_a_new_one() {
        let mut task = Task::default();
        task.set(1, false);
        progress(&mut task, 1);
        assert_eq!(task, Task::Idle, "not started");
        task.start();
        let started = task.clone();
        task.set(7, false);
        assert_ne!(task, started);
        let partial = task.clone();
        progress(&mut task, 2);
        assert_ne!(task, partial);
        assert_eq!(task.now().map(|now| (now.done, now.total)), Some((2, 4)));
        assert_eq!(task.result().map(|result| **result), Some(7));
        task.set(9, true);
        task.start();
        assert_eq!(task.result().map(|result| **result), Some(9), "of the previous run");
        task.fail(ErrorText::misfit());
        assert_eq!(task.error().map(|error| (**error).clone()), Some(ErrorText::misfit()));
    }

    #[test]
    fn stopping_keeps_a_partial_result_only() {
        for partial in [None, Some(3)] {
            let mut task = Task::started();
            progress(&mut task, 1);
            partial.into_iter().for_each(|partial| task.set(partial, false));
            task.stop();
            assert!(!task.is_running());
            assert_eq!(task.result().map(|result| **result), partial);
            task.set(4, true);
            task.fail(ErrorText::misfit());
            assert_eq!(task.result().map(|result| **result), partial, "late");
        }
    }
}
