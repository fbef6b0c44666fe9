//! Large tables with random access.

/// `n` copies of `value`, on huge pages if the system has them. With small pages, most random accesses to some
/// megabytes also miss the TLB (measured: a fifth to a quarter of the encoding time).
pub fn huge_filled<T: Clone>(n: usize, value: T) -> Vec<T> {
    let mut vec = huge(n);
    vec.resize(n, value); // first touched here, after the advice
    vec
}

/// An empty vector, on huge pages if the system has them and it is large.
pub fn huge<T>(capacity: usize) -> Vec<T> {
    let vec = Vec::with_capacity(capacity);
    advise(&vec);
    vec
}

#[cfg(target_os = "linux")]
fn advise<T>(vec: &Vec<T>) {
    const PAGE: usize = 1 << 12;
    const HUGE: usize = 1 << 21;
    let start = vec.as_ptr() as usize;
    // Pages at both ends too: a mapping that the advice splits cannot grow in place (`mremap`).
    let (first, end) = (start & !(PAGE - 1), (start + vec.capacity() * size_of::<T>()).next_multiple_of(PAGE));
    if end - first >= HUGE {
        // SAFETY: the advice changes how pages are backed, not their contents. If it is rejected, small pages are used.
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
