//! Shared data without locks. A fork copies the memory of a process but only one of its threads: a lock that another
//! thread held would stay locked in the child forever.

use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The process in which a value was created. A fork inherits its memory but not its threads.
pub struct Process(u32);

impl Process {
    pub fn current() -> Self {
        Self(std::process::id())
    }

    pub fn is_current(&self) -> bool {
        self.0 == std::process::id()
    }
}

/// A pool of up to `N` values for reuse.
pub struct Pool<T, const N: usize>([AtomicPtr<T>; N], PhantomData<T>);

// SAFETY: each value belongs to the pool or to the thread that took it, never to both: pointers are swapped atomically.
unsafe impl<T: Send, const N: usize> Sync for Pool<T, N> {}

impl<T, const N: usize> Pool<T, N> {
    pub const fn new() -> Self {
        Self([const { AtomicPtr::new(null_mut()) }; N], PhantomData)
    }

    pub fn take(&self) -> Option<Box<T>> {
        let full = self.0.iter().filter(|place| !place.load(Ordering::Relaxed).is_null());
        let taken = full.map(|place| place.swap(null_mut(), Ordering::Acquire)).find(|thing| !thing.is_null())?;
        // SAFETY: it came from a box, and left the pool with the swap.
        Some(unsafe { Box::from_raw(taken) })
    }

    /// Returns a value to the pool, or drops it if the pool is full.
    pub fn put(&self, thing: Box<T>) {
        let thing = Box::into_raw(thing);
        let kept = self.0.iter().any(|place| {
            place.load(Ordering::Relaxed).is_null()
                && place.compare_exchange(null_mut(), thing, Ordering::Release, Ordering::Relaxed).is_ok()
        });
        if !kept {
            // SAFETY: it came from a box, and was not stored.
            drop(unsafe { Box::from_raw(thing) });
        }
    }
}

impl<T, const N: usize> Default for Pool<T, N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T, const N: usize> Drop for Pool<T, N> {
    fn drop(&mut self) {
        while self.take().is_some() {}
    }
}

/// A value that is created on first use. Threads that race create several values, one of which is kept.
pub struct Once<T>(AtomicPtr<T>, PhantomData<T>);

// SAFETY: all threads share the value, and any of them may create it.
unsafe impl<T: Send + Sync> Sync for Once<T> {}

impl<T> Once<T> {
    pub const fn new() -> Self {
        Self(AtomicPtr::new(null_mut()), PhantomData)
    }

    #[inline(always)]
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        // SAFETY: a non-null pointer came from a box, and is valid until `self` is dropped.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }.unwrap_or_else(|| self.make(make))
    }

    #[cold]
    #[inline(never)]
    fn make(&self, make: impl FnOnce() -> T) -> &T {
        let made = Box::into_raw(Box::new(make()));
        let kept = match self.0.compare_exchange(null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => made,
            Err(other) => {
                // SAFETY: it came from a box, and no other thread has seen it.
                drop(unsafe { Box::from_raw(made) });
                other
            }
        };
        // SAFETY: as in `get_or_init`.
        unsafe { &*kept }
    }
}

/// A static value that is created on first use.
pub struct Lazy<T> {
    once: Once<T>,
    make: fn() -> T,
}

impl<T> Lazy<T> {
    pub const fn new(make: fn() -> T) -> Self {
        Self { once: Once::new(), make }
    }
}

impl<T> std::ops::Deref for Lazy<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        self.once.get_or_init(self.make)
    }
}

impl<T> Default for Once<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for Once<T> {
    fn drop(&mut self) {
        let thing = *self.0.get_mut();
        if !thing.is_null() {
            // SAFETY: it came from a box, and nobody borrows it any more.
            drop(unsafe { Box::from_raw(thing) });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    struct Counted<'a>(&'a AtomicUsize);

    impl<'a> Counted<'a> {
        fn new(alive: &'a AtomicUsize) -> Self {
            alive.fetch_add(1, Ordering::SeqCst);
            Self(alive)
        }
    }

    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_pool_keeps_as_many_as_it_has_places() {
        let alive = AtomicUsize::new(0);
        let pool = Pool::<_, 3>::new();
        assert!(pool.take().is_none());
        (0..5).for_each(|_| pool.put(Box::new(Counted::new(&alive))));
        assert_eq!(alive.load(Ordering::SeqCst), 3);
        let taken = pool.take();
        assert!(taken.is_some());
        drop(pool);
        assert_eq!(alive.load(Ordering::SeqCst), 1);
        drop(taken);
        assert_eq!(alive.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn threads_never_share_what_a_pool_holds() {
        let (alive, made) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let pool = Pool::<(AtomicUsize, Counted), 4>::new();
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let thing = pool.take().unwrap_or_else(|| {
                            made.fetch_add(1, Ordering::SeqCst);
                            Box::new((AtomicUsize::new(0), Counted::new(&alive)))
                        });
                        assert_eq!(thing.0.fetch_add(1, Ordering::Relaxed), 0);
                        thing.0.fetch_sub(1, Ordering::Relaxed);
                        pool.put(thing);
                    }
                });
            }
        });
        drop(pool);
        assert_eq!(alive.load(Ordering::SeqCst), 0);
        assert!(made.load(Ordering::SeqCst) > 0);
    }

    #[test]
    fn all_threads_see_the_same_thing() {
        let alive = AtomicUsize::new(0);
        let once = Once::new();
        let places: Vec<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| std::ptr::from_ref(once.get_or_init(|| Counted::new(&alive))) as usize))
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(places.iter().all(|place| *place == places[0]));
        assert_eq!(alive.load(Ordering::SeqCst), 1);
        drop(once);
        assert_eq!(alive.load(Ordering::SeqCst), 0);
    }
}
