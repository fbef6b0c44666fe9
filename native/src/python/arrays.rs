//! Conversions between numpy arrays and slices, for use without the GIL.

use std::borrow::Cow;

use numpy::ndarray::ArrayView1;
use numpy::npyffi::NPY_ARRAY_WRITEABLE;
use numpy::{Element, IntoPyArray, PyArray1, PyReadonlyArray1, PyUntypedArrayMethods};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::calls::{core, detached};
use crate::files::shards::{self, Width};
use crate::runtime::memory;

pub type Array<'py, T> = Bound<'py, PyArray1<T>>;

/// Larger copies release the GIL: this many bytes take some microseconds.
const SHORT: usize = 1 << 16;

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
    copied(array.py(), array.as_slice()?)
}

/// Copies values into a new array.
pub fn from_slice<'py, T: Element + Copy>(py: Python<'py>, values: &[T]) -> PyResult<Bound<'py, PyArray1<T>>> {
    if size_of_val(values) < SHORT {
        return Ok(PyArray1::from_slice(py, values)); // one object instead of an array and the owner of its memory
    }
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

/// Ids as a list. Unlike `PyList::new`, it does not panic if memory for an id is missing.
pub fn list<'py>(py: Python<'py>, ids: &[u32]) -> PyResult<Bound<'py, PyList>> {
    // SAFETY: a new list has `n` slots, each of which gets a new reference once. Both calls return null with an
    // exception set if they fail, and a list with empty slots can be dropped.
    unsafe {
        let n = ids.len() as ffi::Py_ssize_t;
        let list = Bound::from_owned_ptr_or_err(py, ffi::PyList_New(n))?.cast_into_unchecked::<PyList>();
        for (place, &id) in (0..n).zip(ids) {
            let number = Bound::from_owned_ptr_or_err(py, ffi::PyLong_FromUnsignedLong(id.into()))?;
            ffi::PyList_SetItem(list.as_ptr(), place, number.into_ptr());
        }
        Ok(list)
    }
}

/// Returns a buffer to its pool when the array that views it is gone.
#[pyclass(frozen, module = "tokenizer._native")]
struct Pooled(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Drop for Pooled {
    fn drop(&mut self) {
        if let Some(give_back) = self.0.take() {
            give_back();
        }
    }
}

/// The ids as an array whose memory returns to the pool afterwards.
pub fn pooled<T: Width + Element + Send + Sync>(py: Python<'_>, mut ids: Vec<T>) -> PyResult<Bound<'_, PyArray1<T>>> {
    let (start, length) = (ids.as_mut_ptr(), ids.len());
    let owner = Bound::new(py, Pooled(Some(Box::new(move || shards::recycle(ids)))))?;
    // SAFETY: the values do not move while the owner lives. The array and all its views hold the owner, and until it is
    // dropped, nothing here reads or writes the values.
    Ok(unsafe { PyArray1::borrow_from_array(&ArrayView1::from_shape_ptr(length, start), owner.into_any()) })
}
