//! PyO3 to `overdrive._core`: the only crate that knows CPython's run time.
