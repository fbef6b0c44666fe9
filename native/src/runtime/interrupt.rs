//! Work that stops early, because its caller interrupts it.
//!
//! Long loops call `poll`. If the caller stops the call that they belong to, `poll` unwinds the stack up to `run`, like a
//! panic without a message. This also exits loops in closures that return nothing, and stops all threads of the call.
//! State that the unwinding passes through must be dropped or rebuilt, not reused: the encoder's caches, for example.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Units of work (see `poll`) between two readings of the clock: usually less than a millisecond.
const WORK: usize = 1 << 16;

/// Time between two calls of `Ask`. Each may wait for the GIL, some milliseconds if other threads run Python.
const PAUSE: Duration = Duration::from_millis(200);

/// Why work stopped early.
pub enum Stopped {
    /// The caller interrupted it, with the reason of `Ask`.
    Interrupted(Option<Reason>),
    /// A bug, with the message of the panic.
    Panicked(String),
}

pub type Reason = Box<dyn Any + Send>;

/// Asks the caller whether to continue; the error is the reason to stop.
pub type Ask = fn() -> Result<(), Reason>;

impl Stopped {
    fn of(payload: Reason) -> Self {
        match payload.downcast::<Self>() {
            Ok(stopped) => *stopped,
            Err(payload) => {
                let message = payload.downcast_ref::<&str>().copied();
                let message = message.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
                Self::Panicked(message.unwrap_or("a panic without a message").to_string())
            }
        }
    }

    /// Unwinds the stack up to the next `catch` or `run`.
    pub fn unwind(self) -> ! {
        resume_unwind(Box::new(self))
    }
}

impl fmt::Display for Stopped {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Interrupted(_) => formatter.write_str("interrupted"),
            Self::Panicked(message) => write!(formatter, "internal error: {message}; please report it"),
        }
    }
}

/// A call into the core, on all its threads.
#[derive(Default)]
pub struct Call(AtomicBool);

impl Call {
    /// Makes `poll` stop the work of this call.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Assigns this thread to the call while `work` runs.
    pub fn on_this_thread<R>(self: &Arc<Self>, ask: Option<Ask>, work: impl FnOnce() -> R) -> R {
        struct Restore(Option<Current>);
        impl Drop for Restore {
            fn drop(&mut self) {
                CURRENT.set(self.0.take());
            }
        }
        let current = Current { call: Arc::clone(self), ask, asked: Instant::now() };
        let _restore = Restore(CURRENT.replace(Some(current)));
        work()
    }
}

struct Current {
    call: Arc<Call>,
    ask: Option<Ask>,
    asked: Instant,
}

thread_local! {
    static LEFT: Cell<usize> = const { Cell::new(WORK) };
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

/// Runs work that `ask` may stop. It is called on this thread a few times a second.
pub fn run<R>(ask: Option<Ask>, work: impl FnOnce() -> R) -> Result<R, Stopped> {
    catch(|| Arc::<Call>::default().on_this_thread(ask, work))
}

/// Runs work and returns why it stopped, if it stopped early.
pub fn catch<R>(work: impl FnOnce() -> R) -> Result<R, Stopped> {
    catch_unwind(AssertUnwindSafe(work)).map_err(Stopped::of)
}

/// The call of this thread, for other threads to join.
pub fn current() -> Arc<Call> {
    CURRENT.with_borrow(|current| current.as_ref().map(|current| Arc::clone(&current.call)).unwrap_or_default())
}

/// Stops here if the caller interrupted the work. `work`: number of bytes, tokens or cells processed since the last
/// call, roughly.
#[inline(always)]
pub fn poll(work: usize) {
    let left = LEFT.get();
    if work < left {
        LEFT.set(left - work);
    } else {
        check();
    }
}

/// `poll` that always checks.
#[cold]
#[inline(never)]
pub fn check() {
    LEFT.set(WORK);
    let asked = CURRENT.with_borrow_mut(|current| {
        let current = current.as_mut()?;
        let due = current.ask.is_some() && current.asked.elapsed() >= PAUSE;
        if due {
            current.asked = Instant::now();
        }
        Some((Arc::clone(&current.call), current.ask.filter(|_| due)))
    });
    let Some((call, ask)) = asked else { return };
    // Not while `CURRENT` is borrowed: the caller may run work of its own.
    if let Some(Err(reason)) = ask.map(|ask| ask()) {
        call.stop();
        Stopped::Interrupted(Some(reason)).unwind();
    }
    if call.0.load(Ordering::Relaxed) {
        Stopped::Interrupted(None).unwind();
    }
}

/// Time to wait for another thread between two calls of `check`.
pub const WAIT: Duration = PAUSE;

#[cfg(test)]
mod tests {
    use super::*;

    fn forever() {
        loop {
            poll(1);
        }
    }

    #[test]
    fn the_caller_stops_the_work() {
        let Err(Stopped::Interrupted(Some(reason))) = run(Some(|| Err(Box::new(7))), forever) else {
            panic!("not interrupted")
        };
        assert_eq!(reason.downcast_ref(), Some(&7));
        poll(WORK); // belongs to no call any more
        assert_eq!(run(Some(|| Ok(())), || 3).ok(), Some(3));
    }

    #[test]
    fn calls_nest() {
        let outer = run(Some(|| Err(Box::new("outer"))), || {
            let inner = run(Some(|| Err(Box::new("inner"))), forever);
            let Err(Stopped::Interrupted(Some(reason))) = inner else { panic!("not interrupted") };
            assert_eq!(reason.downcast_ref(), Some(&"inner"));
            forever();
        });
        let Err(Stopped::Interrupted(Some(reason))) = outer else { panic!("not interrupted") };
        assert_eq!(reason.downcast_ref(), Some(&"outer"));
    }

    #[test]
    fn a_panic_tells_its_message() {
        let Err(stopped) = run(None, || -> () { panic!("number {}", 5) }) else { panic!("did not panic") };
        assert_eq!(stopped.to_string(), "internal error: number 5; please report it");
    }
}
