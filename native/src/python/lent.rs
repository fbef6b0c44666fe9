//! Arrays whose memory is used again after them.

use numpy::ndarray::ArrayView1;
use numpy::{Element, PyArray1};
use pyo3::prelude::*;

use crate::shards::{self, Width};

/// Gives something back when the array that views it is gone.
#[pyclass(frozen, module = "tokenizer._native")]
struct Lent(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(give_back) = self.0.take() {
            give_back();
        }
    }
}

/// The ids as an array whose memory is used again after it.
pub fn lent<T: Width + Element + Send + Sync>(py: Python<'_>, mut ids: Vec<T>) -> PyResult<Bound<'_, PyArray1<T>>> {
    let (start, length) = (ids.as_mut_ptr(), ids.len());
    let owner = Bound::new(py, Lent(Some(Box::new(move || shards::recycle(ids)))))?;
    // SAFETY: the values stay where they are for as long as the owner lives, which the array holds, and so does every view
    // of it; until then nobody here reads or writes them.
    Ok(unsafe { PyArray1::borrow_from_array(&ArrayView1::from_shape_ptr(length, start), owner.into_any()) })
}
