//! The Python binding: conversions, errors and the GIL; no algorithm.

mod arrays;
mod calls;
mod counting;
mod encode_stream;
mod encoder;
mod merges;
mod patterns;
mod phase1;
mod phase2;
mod preparation;
mod text;
mod texts;
mod vocabulary;

use std::sync::LazyLock;

use pyo3::prelude::*;

use crate::pretokenize::classes;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    // Now, because no other thread of Python can fork meanwhile; and because a pending Ctrl-C could keep NumPy's interface
    // from loading after a long call.
    LazyLock::force(&classes::CLASSES);
    drop(numpy::PyArray1::<u32>::from_slice(module.py(), &[]));
    module.add_class::<text::Batch>()?;
    module.add_class::<vocabulary::Decoder>()?;
    module.add_class::<text::DocumentFilter>()?;
    module.add_class::<encode_stream::EncodeStream>()?;
    module.add_class::<encoder::Encoder>()?;
    module.add_class::<preparation::SpecialStrings>()?;
    module.add_class::<preparation::Preparation>()?;
    module.add_class::<counting::PretokenCounter>()?;
    module.add_class::<text::Feed>()?;
    module.add_class::<text::Stream>()?;
    module.add_class::<text::Reader>()?;
    module.add_class::<phase2::SuperwordTrainer>()?;
    module.add_class::<text::TextOverlap>()?;
    module.add_function(wrap_pyfunction!(encoder::eligible, module)?)?;
    module.add("DIGITS", crate::pretokenize::patterns::DIGITS)?;
    module.add_function(wrap_pyfunction!(patterns::equivalent_patterns, module)?)?;
    module.add_function(wrap_pyfunction!(patterns::named_patterns, module)?)?;
    module.add_function(wrap_pyfunction!(patterns::count_pieces, module)?)?;
    module.add_function(wrap_pyfunction!(patterns::split, module)?)?;
    module.add_function(wrap_pyfunction!(counting::sum_counts, module)?)?;
    module.add_function(wrap_pyfunction!(merges::are_forbidden, module)?)?;
    module.add_function(wrap_pyfunction!(phase1::train_balanced, module)?)?;
    module.add_function(wrap_pyfunction!(phase1::train_bpe, module)?)?;
    Ok(())
}
