//! Calls into the core: the GIL, interruption, errors.

use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError};
use pyo3::prelude::*;

use crate::runtime::interrupt::{self, Reason, Stopped};

/// Bytes of text that take some microseconds.
pub const SHORT_TEXT: usize = 1 << 10;

/// Raises `tokenizer.errors.UserError`: an error of the core is a mistake in the user's input.
pub fn user_error(message: String) -> PyErr {
    Python::attach(|py| {
        let make = || py.import("tokenizer.errors")?.getattr("UserError")?.call1((message.as_str(),));
        match make() {
            Ok(error) => PyErr::from_value(error),
            Err(error) => error,
        }
    })
}

/// Runs work of the core without the GIL. The only way into the core for work of any length. Ctrl-C, or an exception of
/// a signal handler, stops the work; a panic, which is a bug, raises RuntimeError.
pub fn detached<R: Send>(py: Python<'_>, work: impl FnOnce() -> Result<R, String> + Send) -> PyResult<R> {
    result(py.detach(|| interrupt::run(Some(check_signals), work)))
}

/// Runs work on `n_bytes` of text. For a short text, lets other threads wait for the GIL rather than release it.
pub fn brief<R: Send>(py: Python<'_>, n_bytes: usize, work: impl FnOnce() -> Result<R, String> + Send) -> PyResult<R> {
    if n_bytes < SHORT_TEXT {
        core(work)
    } else {
        detached(py, work)
    }
}

/// Runs short work of the core with the GIL.
pub fn core<R>(work: impl FnOnce() -> Result<R, String>) -> PyResult<R> {
    result(interrupt::catch(work))
}

fn check_signals() -> Result<(), Reason> {
    // During shutdown, the interpreter handles no signals.
    Python::try_attach(|py| py.check_signals().map_err(|error| Box::new(error) as Reason)).unwrap_or(Ok(()))
}

fn result<R>(ended: Result<Result<R, String>, Stopped>) -> PyResult<R> {
    match ended {
        Ok(result) => result.map_err(user_error),
        Err(Stopped::Interrupted(reason)) => Err(match reason.map(|reason| reason.downcast::<PyErr>()) {
            Some(Ok(error)) => *error,
            _ => PyKeyboardInterrupt::new_err(()),
        }),
        Err(stopped) => Err(PyRuntimeError::new_err(stopped.to_string())),
    }
}
