//! Values that calls leave for later calls.

use std::sync::Mutex;

/// Up to 64 values for reuse. Nobody waits for a lock: a fork copies the memory of a process but only one of its
/// threads, so a lock that another thread held would stay locked in the child. Such a place is lost, nothing else.
pub struct Pool<T>([Mutex<Option<T>>; 64]);

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self([const { Mutex::new(None) }; 64])
    }
}

impl<T> Pool<T> {
    pub fn take(&self) -> Option<T> {
        self.0.iter().find_map(|place| place.try_lock().ok()?.take())
    }

    /// Returns a value to the pool, or drops it if the pool is full.
    pub fn put(&self, value: T) {
        for place in &self.0 {
            match place.try_lock() {
                Ok(mut place) if place.is_none() => {
                    *place = Some(value);
                    return;
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_stays_locked_is_lost() {
        let pool = Pool::default();
        let _held_by_a_thread_that_a_fork_did_not_copy = pool.0[0].lock().unwrap();
        pool.put(1);
        assert_eq!((pool.take(), pool.take()), (Some(1), None));
    }
}
