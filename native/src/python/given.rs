//! Arrays that Python gives, as the core may use them while other threads run.

use std::borrow::Cow;

use numpy::npyffi::NPY_ARRAY_WRITEABLE;
use numpy::{Element, IntoPyArray, PyArray1, PyReadonlyArray1, PyUntypedArrayMethods};
use pyo3::prelude::*;

use super::{core, detached};
use crate::memory;

/// Bytes that are copied without giving up the GIL: some microseconds.
const SHORT: usize = 1 << 16;

/// The values of an array, for work without the GIL. They are copied unless the array is read-only, as those of Arrow are.
///
/// SAFETY of what is borrowed: Rust takes it that nobody writes to borrowed memory, and Python cannot promise that. Who
/// cannot write through the array could only do so through another one that shares its memory; that is left to the
/// caller, as with any buffer that is given away. Nothing then reads outside of buffers: all indices that come from
/// borrowed values are checked where they are used, and text may be malformed for all scanners.
pub fn values<'a, T: Element + Copy>(array: &'a PyReadonlyArray1<'_, T>) -> PyResult<Cow<'a, [T]>> {
    let values = array.as_slice()?;
    // SAFETY: the array is alive, and its flags are read with the GIL.
    if unsafe { (*array.as_array_ptr()).fields.flags } & NPY_ARRAY_WRITEABLE == 0 {
        return Ok(Cow::Borrowed(values));
    }
    owned(array).map(Cow::Owned)
}

/// A copy of the values.
pub fn owned<T: Element + Copy>(array: &PyReadonlyArray1<'_, T>) -> PyResult<Vec<T>> {
    copied(array.py(), array.as_slice()?)
}

/// An array with a copy of the values.
pub fn array<'py, T: Element + Copy>(py: Python<'py>, values: &[T]) -> PyResult<Bound<'py, PyArray1<T>>> {
    copied(py, values).map(|values| values.into_pyarray(py))
}

fn copied<T: Element + Copy>(py: Python<'_>, values: &[T]) -> PyResult<Vec<T>> {
    let copy = || Ok(memory::copied(values));
    if size_of_val(values) < SHORT {
        core(copy)
    } else {
        detached(py, copy)
    }
}
