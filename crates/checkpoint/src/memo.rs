//! A cache of results computed from a file's structure. A large array is read in thousands of
//! parts, and without the cache each would sort the table of chunks again.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::Result;

/// Two results are kept, since reads alternate between two arrays where one ends and the next
/// begins.
const KEPT: usize = 2;

type AnyArc = Arc<dyn Any + Send + Sync>;

/// The latest results, each with its key.
#[derive(Default)]
pub(crate) struct Memo(Mutex<VecDeque<(AnyArc, AnyArc)>>);

impl Memo {
    /// Returns the cached result for an equal `key`, or that of `make`.
    pub(crate) fn recent<K, V>(&self, key: K, make: impl FnOnce() -> Result<V>) -> Result<Arc<V>>
    where
        K: PartialEq + Send + Sync + 'static,
        V: Send + Sync + 'static,
    {
        let kept = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |of: &AnyArc| of.downcast_ref::<K>() == Some(&key);
        let found = kept().iter().find(|(of, _)| is_it(of)).map(|(_, made)| made.clone());
        if let Some(made) = found.and_then(|made| made.downcast().ok()) {
            return Ok(made);
        }
        // The lock is released meanwhile: two threads may compute the same, and neither waits.
        let made = Arc::new(make()?);
        let mut kept = kept();
        kept.retain(|(of, _)| !is_it(of));
        kept.truncate(KEPT - 1);
        kept.push_front((Arc::new(key), made.clone()));
        Ok(made)
    }
}

impl fmt::Debug for Memo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Memo")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn caches_the_last_two_values() {
        let memo = Memo::default();
        let made = |key: u32| {
            let mut made = false;
            let value = memo.recent(key, || {
                made = true;
                Ok(key.to_string())
            });
            assert_eq!(*value.unwrap(), key.to_string());
            made
        };
        let requested = [1, 1, 2, 1, 2, 3, 2, 1];
        assert_eq!(requested.map(made), [true, false, true, false, false, true, false, true]);
        // A key of another type, and a call that fails.
        assert_eq!(*memo.recent("1", || Ok(7)).unwrap(), 7);
        assert!(memo.recent::<_, u32>(9, || Err(Error::cancelled())).is_err());
        assert_eq!(*memo.recent(9, || Ok(9)).unwrap(), 9);
    }
}
