//! Large tables with random access.

/// `n` copies of `value`, on huge pages if the system has them. With small pages, most random accesses to some
/// megabytes also miss the TLB (measured: a fifth to a quarter of the encoding time).
pub fn huge_filled<T: Clone>(n: usize, value: T) -> Vec<T> {
    let mut vec = Vec::with_capacity(n);
    advise(&vec);
    vec.resize(n, value); // first touched here, after the advice
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
