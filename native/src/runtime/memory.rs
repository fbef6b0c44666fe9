//! Allocation of memory that grows with the text, and of large tables with random access.
//!
//! If memory runs out in one of these functions, the work stops with `Stopped::OutOfMemory`, an ordinary error. A
//! failed small allocation elsewhere ends the process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hash::{BuildHasher, Hash};

use hashbrown::{HashMap, HashTable};

use super::interrupt::{poll, Stopped};

/// Values between two calls of `poll`.
const BLOCK: usize = 1 << 16;

thread_local! {
    /// Whether this thread handles a failed allocation.
    static FALLIBLE: Cell<bool> = const { Cell::new(false) };
}

/// The system allocator. If memory runs out, it ends the process unless the caller handles that. Rust's default would
/// allocate again to print a backtrace (`RUST_BACKTRACE`) and could deadlock.
struct Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

// SAFETY: all calls are forwarded to the system allocator.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those of the system allocator.
        checked(unsafe { System.alloc(layout) })
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those of the system allocator.
        checked(unsafe { System.alloc_zeroed(layout) })
    }

    #[inline]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promises are those of the system allocator.
        checked(unsafe { System.realloc(memory, layout, size) })
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are those of the system allocator.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[inline(always)]
fn checked(memory: *mut u8) -> *mut u8 {
    if memory.is_null() {
        out_of_memory();
    }
    memory
}

#[cold]
#[inline(never)]
fn out_of_memory() {
    if !FALLIBLE.get() {
        const MESSAGE: &[u8] = b"out of memory\n";
        // SAFETY: writes valid bytes; nothing is allocated.
        unsafe { libc::write(2, MESSAGE.as_ptr().cast(), MESSAGE.len()) };
        std::process::abort();
    }
}

/// Runs code that handles failed allocations itself.
pub fn fallible<R>(work: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            FALLIBLE.set(self.0);
        }
    }
    let _restore = Restore(FALLIBLE.replace(true));
    work()
}

/// Reserves capacity for `more` values.
#[inline(always)]
pub fn reserve<T>(vec: &mut Vec<T>, more: usize) {
    if vec.capacity() - vec.len() < more {
        grow(vec, more);
    }
}

#[cold]
#[inline(never)]
fn grow<T>(vec: &mut Vec<T>, more: usize) {
    fallible(|| vec.try_reserve(more)).unwrap_or_else(|_| Stopped::OutOfMemory.unwind());
}

/// Reserves capacity for `more` entries of a map.
pub fn reserve_map<K: Eq + Hash, V, S: BuildHasher>(map: &mut HashMap<K, V, S>, more: usize) {
    fallible(|| map.try_reserve(more)).unwrap_or_else(|_| Stopped::OutOfMemory.unwind());
}

/// Reserves capacity for another entry of a table.
#[inline(always)]
pub fn reserve_table<T>(table: &mut HashTable<T>, hash: impl Fn(&T) -> u64) {
    if table.len() == table.capacity() {
        fallible(|| table.try_reserve(1, hash)).unwrap_or_else(|_| Stopped::OutOfMemory.unwind());
    }
}

/// Appends values to a vector.
#[inline]
pub fn extend<T>(vec: &mut Vec<T>, values: impl ExactSizeIterator<Item = T>) {
    reserve(vec, values.len());
    let mut values = values;
    while values.len() > BLOCK {
        poll(BLOCK * size_of::<T>());
        vec.extend(values.by_ref().take(BLOCK));
    }
    vec.extend(values);
}

/// Extends a vector to `n` values, within its capacity.
fn fill<T: Clone>(vec: &mut Vec<T>, n: usize, value: T) {
    while n - vec.len() > BLOCK {
        poll(BLOCK * size_of::<T>());
        vec.resize(vec.len() + BLOCK, value.clone());
    }
    vec.resize(n, value);
}

/// Appends a value to a vector.
#[inline(always)]
pub fn push<T>(vec: &mut Vec<T>, value: T) {
    reserve(vec, 1);
    vec.push(value);
}

/// An empty vector with capacity for `n` values.
pub fn with_capacity<T>(n: usize) -> Vec<T> {
    let mut vec = Vec::new();
    fallible(|| vec.try_reserve_exact(n)).unwrap_or_else(|_| Stopped::OutOfMemory.unwind());
    vec
}

/// `n` copies of `value`.
pub fn filled<T: Clone>(n: usize, value: T) -> Vec<T> {
    let mut vec = with_capacity(n);
    fill(&mut vec, n, value);
    vec
}

/// A copy of the values.
pub fn copied<T: Copy>(values: &[T]) -> Vec<T> {
    let mut vec = with_capacity(values.len());
    for block in values.chunks(BLOCK) {
        poll(size_of_val(block));
        vec.extend_from_slice(block);
    }
    vec
}

/// `n` copies of `value`, on huge pages if the system has them. With small pages, most random accesses to some
/// megabytes also miss the TLB (measured: a fifth to a quarter of the encoding time).
pub fn huge_filled<T: Clone>(n: usize, value: T) -> Vec<T> {
    let mut vec = huge_with_capacity(n);
    fill(&mut vec, n, value); // first touched here, after the advice
    vec
}

/// An empty vector with capacity for `n` values, on huge pages if the system has them.
pub fn huge_with_capacity<T>(n: usize) -> Vec<T> {
    let vec = with_capacity(n);
    advise(&vec);
    vec
}

#[cfg(target_os = "linux")]
fn advise<T>(vec: &Vec<T>) {
    const PAGE: usize = 1 << 12;
    let start = vec.as_ptr() as usize;
    let (first, end) = (start.next_multiple_of(PAGE), (start + vec.capacity() * size_of::<T>()) & !(PAGE - 1));
    if first < end {
        // SAFETY: whole pages inside an allocation; the advice changes how they are backed, not their contents. If it
        // is rejected, small pages are used.
        unsafe { libc::madvise(first as *mut libc::c_void, end - first, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(not(target_os = "linux"))]
fn advise<T>(_: &Vec<T>) {}

/// Prefetches a value that will be read soon.
#[inline(always)]
pub fn prefetch<T>(slice: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults, whatever the address.
    unsafe {
        use std::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
        _mm_prefetch(slice.as_ptr().wrapping_add(index).cast(), _MM_HINT_T0);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slice, index);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::interrupt::catch;

    #[test]
    fn memory_that_is_not_there_is_an_error() {
        let most = isize::MAX as usize;
        for work in [|n| drop(with_capacity::<u8>(n)), |n| drop(filled(n, 1u8)), |n| reserve(&mut vec![1u8], n)] {
            assert!(matches!(catch(|| work(most)), Err(Stopped::OutOfMemory)));
            assert!(matches!(catch(|| work(usize::MAX)), Err(Stopped::OutOfMemory)));
        }
        assert_eq!(filled(3, 'a'), ['a'; 3]);
    }
}
