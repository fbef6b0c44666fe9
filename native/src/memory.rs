//! Memory for large tables that are read at random places.

/// `n` copies of `value`, on huge pages where the system has them: with small ones, most reads at random places of some
/// megabytes also miss the table of pages (measured: a fifth to a quarter of the time of encoding).
pub fn on_huge_pages<T: Clone>(n: usize, value: T) -> Vec<T> {
    let mut vec = room_on_huge_pages(n);
    vec.resize(n, value); // the first touch, so that it finds the advice
    vec
}

/// Room for `n` values.
pub fn room_on_huge_pages<T>(n: usize) -> Vec<T> {
    let vec = Vec::with_capacity(n);
    advise(&vec);
    vec
}

#[cfg(target_os = "linux")]
fn advise<T>(vec: &Vec<T>) {
    const PAGE: usize = 1 << 12;
    let start = vec.as_ptr() as usize;
    let (first, end) = (start.next_multiple_of(PAGE), (start + vec.capacity() * size_of::<T>()) & !(PAGE - 1));
    if first < end {
        // SAFETY: whole pages inside an allocation; the advice changes how they are backed, not what they hold. Where
        // it is refused, small pages serve as well.
        unsafe { libc::madvise(first as *mut libc::c_void, end - first, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(not(target_os = "linux"))]
fn advise<T>(_: &Vec<T>) {}
