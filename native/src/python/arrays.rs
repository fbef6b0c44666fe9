//! Arrays that Python gives, as the core may use them while other threads run.

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

/// Bytes that are copied without giving up the GIL: some microseconds.
const SHORT: usize = 1 << 16;

/// The values of an array, for work without the GIL. They are copied unless the array is read-only, as those of Arrow are.
///
/// SAFETY of what is borrowed: Rust takes it that nobody writes to borrowed memory, and Python cannot promise that. Who
/// cannot write through the array could only do so through another one that shares its memory; that is left to the
/// caller, as with any buffer that is given away. Nothing then reads outside of buffers: all indices that come from
/// borrowed values are checked where they are used, and text may be malformed for all scanners.
pub fn slice<'a, T: Element + Copy>(array: &'a PyReadonlyArray1<'_, T>) -> PyResult<Cow<'a, [T]>> {
    let values = array.as_slice()?;
    // SAFETY: the array is alive, and its flags are read with the GIL.
    if unsafe { (*array.as_array_ptr()).fields.flags } & NPY_ARRAY_WRITEABLE == 0 {
        return Ok(Cow::Borrowed(values));
    }
    to_vec(array).map(Cow::Owned)
}

/// A copy of the values.
pub fn to_vec<T: Element + Copy>(array: &PyReadonlyArray1<'_, T>) -> PyResult<Vec<T>> {
    copied(array.py(), array.as_slice()?)
}

/// An array with a copy of the values.
pub fn from_slice<'py, T: Element + Copy>(py: Python<'py>, values: &[T]) -> PyResult<Bound<'py, PyArray1<T>>> {
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

/// Ids as a list. Unlike `PyList::new`, it does not panic where there is no memory for an id.
pub fn list<'py>(py: Python<'py>, ids: &[u32]) -> PyResult<Bound<'py, PyList>> {
    // SAFETY: a new list has `n` places, each of which is given a new reference once; both calls return null with an
    // exception set where they fail, and a list with empty places can be dropped.
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

/// Gives something back when the array that views it is gone.
#[pyclass(frozen, module = "tokenizer._native")]
struct Pooled(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Drop for Pooled {
    fn drop(&mut self) {
        if let Some(give_back) = self.0.take() {
            give_back();
        }
    }
}

/// The ids as an array whose memory is used again after it.
pub fn pooled<T: Width + Element + Send + Sync>(py: Python<'_>, mut ids: Vec<T>) -> PyResult<Bound<'_, PyArray1<T>>> {
    let (start, length) = (ids.as_mut_ptr(), ids.len());
    let owner = Bound::new(py, Pooled(Some(Box::new(move || shards::recycle(ids)))))?;
    // SAFETY: the values stay where they are for as long as the owner lives, which the array holds, and so does every view
    // of it; until then nobody here reads or writes them.
    Ok(unsafe { PyArray1::borrow_from_array(&ArrayView1::from_shape_ptr(length, start), owner.into_any()) })
}
