//! What was made of a file's structure last, for all that need the same: a large array is read in
//! thousands of parts, and each would put the table of its chunks in order again.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::Result;

/// As many are kept: two arrays are read in turns where one ends and the next begins.
const KEPT: usize = 2;

type AnyArc = Arc<dyn Any + Send + Sync>;

/// The last things that were made, each with what it was made for.
#[derive(Default)]
pub(crate) struct Memo(Mutex<VecDeque<(AnyArc, AnyArc)>>);

impl Memo {
    /// What was made for an equal `key`, or what `make` makes now.
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
        // Not locked meanwhile: two threads may make the same, and none waits.
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
    fn the_last_two_are_not_made_again() {
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
        let asked = [1, 1, 2, 1, 2, 3, 2, 1];
        assert_eq!(asked.map(made), [true, false, true, false, false, true, false, true]);
        // Of another type, and one that can't be made.
        assert_eq!(*memo.recent("1", || Ok(7)).unwrap(), 7);
        assert!(memo.recent::<_, u32>(9, || Err(Error::cancelled())).is_err());
        assert_eq!(*memo.recent(9, || Ok(9)).unwrap(), 9);
    }
}
