//! Preparation of text before encoding.

use numpy::IntoPyArray;
use pyo3::prelude::*;

use super::calls::{detached, user_error};
use super::{arrays::Array, text::Batch, texts::Texts};
use crate::encode::preparation;
use crate::text::{documents, normalize::Form, specials::Specials};

type Tokens = Option<(Vec<String>, Vec<Option<u32>>)>;

/// Preparation of text before encoding (see the core's `preparation`).
#[pyclass(frozen, module = "tokenizer._native")]
pub struct Preparation(pub preparation::Preparation);

#[pymethods]
impl Preparation {
    /// `early` and `late`: strings and their ids; None for strings that stay text and hide others. `forms`: names of
    /// normalisation forms.
    #[new]
    #[pyo3(signature = (early, forms=Vec::new(), late=None))]
    fn new(early: Tokens, forms: Vec<String>, late: Tokens) -> PyResult<Self> {
        let specials = |tokens: Tokens| tokens.map(|(strings, ids)| Specials::new(&strings, ids)).transpose();
        let make = || {
            Ok(preparation::Preparation {
                early: specials(early)?,
                forms: forms.iter().map(|name| Form::named(name)).collect::<Result<_, String>>()?,
                late: specials(late)?,
            })
        };
        make().map(Self).map_err(user_error)
    }

    /// Length of each text as it is encoded, in bytes, and whether it differs from the original.
    fn lengths<'py>(
        &self,
        py: Python<'py>,
        texts: Texts<'py>,
        threads: usize,
    ) -> PyResult<(Array<'py, i64>, Array<'py, bool>)> {
        let measure = |documents: &[&[u8]]| {
            documents::map(documents, &mut vec![(); threads.max(1)], documents.len(), |(), _, text, out| {
                out.push(self.0.length(text));
                Ok(())
            })
        };
        let found = texts.with(py, measure)?.0;
        let changed: Vec<bool> = found.iter().map(|one| one.1).collect();
        let lengths: Vec<i64> = found.iter().map(|one| one.0 as i64).collect();
        Ok((lengths.into_pyarray(py), changed.into_pyarray(py)))
    }

    /// The texts as they are encoded; the same batch if nothing changes.
    fn normalize(&self, py: Python<'_>, batch: &Batch) -> PyResult<Batch> {
        detached(py, || Ok(self.0.normalize(&batch.0))).map(Batch)
    }
}

/// Strings to search for in text.
#[pyclass(frozen, module = "tokenizer._native")]
pub struct SpecialStrings(Specials);

#[pymethods]
impl SpecialStrings {
    #[new]
    fn new(strings: Vec<String>) -> PyResult<Self> {
        Specials::without_ids(&strings).map(Self).map_err(user_error)
    }

    /// Index of the string that occurs first in the text; the longest if several start there.
    fn find(&self, py: Python<'_>, text: &str) -> PyResult<Option<usize>> {
        detached(py, || Ok(self.0.find(text.as_bytes())))
    }

    /// The first document that contains one of the strings, and the index of the string.
    fn find_in_batch(&self, py: Python<'_>, texts: Texts<'_>, threads: usize) -> PyResult<Option<(usize, usize)>> {
        let find = |documents: &[&[u8]]| {
            documents::map(documents, &mut vec![(); threads.max(1)], 0, |(), i, text, out| {
                out.extend(self.0.find(text).map(|string| (i, string)));
                Ok(())
            })
        };
        Ok(texts.with(py, find)?.0.first().copied())
    }
}

/// The preparation of the core, or none.
pub fn core_of(preparation: Option<&Preparation>) -> &preparation::Preparation {
    preparation.map_or(&preparation::NONE, |preparation| &preparation.0)
}
