//! The state of a request that takes long, the same for every feature.

use std::rc::Rc;

use crate::protocol::error::ErrorText;
use crate::protocol::task::{JobProgress, TaskUpdate};

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
            (Self::Running(a), Self::Running(b)) => Rc::ptr_eq(&a.past, &b.past),
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

    /// Stops; a result so far is kept.
    pub fn stop(&mut self) {
        if let Self::Running(running) = self {
            *self = running.partial.take().map_or(Self::Idle, Self::Done);
        }
    }

    /// Applies an update. Updates that arrive after the task was stopped are ignored.
    pub fn update(&mut self, update: TaskUpdate<T>) {
        let Self::Running(running) = self else { return };
        match update {
            TaskUpdate::Progress(now, partial) => {
                // A new history marks each update, so that a component sees that it changed.
                let mut past = (*running.past).clone();
                past.push((now.done, now.millis));
                (running.now, running.past) = (now, Rc::new(past));
                running.partial = partial.map(Rc::from).or(running.partial.take());
            }
            TaskUpdate::Done(result) => *self = Self::Done(Rc::from(result)),
            TaskUpdate::Failed(error) => *self = Self::Failed(Rc::new(error)),
            TaskUpdate::Stopped => self.stop(),
        }
    }

    /// Returns whether it is running.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(done: u64, partial: Option<u8>) -> TaskUpdate<u8> {
        let now = JobProgress { done, total: 4, ..JobProgress::default() };
        TaskUpdate::Progress(now, partial.map(Box::new))
    }

    #[test]
    fn keeps_the_result_so_far_until_a_new_one() {
        let mut task = Task::default();
        task.update(progress(1, Some(1)));
        assert_eq!(task, Task::Idle, "not started");
        task.start();
        let started = task.clone();
        task.update(progress(1, Some(7)));
        assert_ne!(task, started);
        task.update(progress(2, None));
        assert_eq!(task.now().map(JobProgress::percent), Some(50.0));
        assert_eq!(task.result().map(|result| **result), Some(7));
        task.update(TaskUpdate::Done(Box::new(9)));
        task.start();
        assert_eq!(task.result().map(|result| **result), Some(9), "of the previous run");
        task.update(TaskUpdate::Failed(ErrorText::misfit()));
        assert_eq!(task.error().map(|error| (**error).clone()), Some(ErrorText::misfit()));
    }

    #[test]
    fn stopping_keeps_a_partial_result_only() {
        for (partial, update) in [(None, true), (Some(3), true), (Some(3), false)] {
            let mut task = Task::default();
            task.start();
            task.update(progress(1, partial));
            if update {
                task.update(TaskUpdate::Stopped)
            } else {
                task.stop()
            }
            assert!(!task.is_running());
            assert_eq!(task.result().map(|result| **result), partial);
            task.update(progress(2, Some(4)));
            assert_eq!(task.result().map(|result| **result), partial, "late");
        }
    }
}
