//! Conversions between numpy arrays and slices, for use without the GIL.

use std::borrow::Cow;

use numpy::npyffi::NPY_ARRAY_WRITEABLE;
use numpy::{Element, PyArray1, PyReadonlyArray1, PyUntypedArrayMethods};
use pyo3::prelude::*;

pub type Array<'py, T> = Bound<'py, PyArray1<T>>;

/// The values of an array, for use without the GIL. They are copied unless the array is read-only, like those of Arrow.
///
/// SAFETY of borrowed values: Rust assumes that nobody writes to borrowed memory, which Python cannot guarantee. A
/// read-only array can only change through another array that shares its memory; avoiding that is left to the caller,
/// as with any exported buffer. Even then nothing is read out of bounds: indices from borrowed values are checked where
/// they are used, and scanners accept malformed text.
pub fn slice<'a, T: Element + Copy>(array: &'a PyReadonlyArray1<'_, T>) -> PyResult<Cow<'a, [T]>> {
    let values = array.as_slice()?;
    // SAFETY: the array is alive, and its flags are read with the GIL.
    if unsafe { (*array.as_array_ptr()).fields.flags } & NPY_ARRAY_WRITEABLE == 0 {
        return Ok(Cow::Borrowed(values));
    }
    to_vec(array).map(Cow::Owned)
}

/// Copies the values of an array.
pub fn to_vec<T: Element + Copy>(array: &PyReadonlyArray1<'_, T>) -> PyResult<Vec<T>> {
    Ok(array.as_slice()?.to_vec())
}
