//! The typed SSA that every front end produces and every back end reads.
//!
//! In: functions made through the builder or parsed from text. Out: the same functions, verified,
//! optimised, printed or interpreted. It must know neither CPython nor LLVM; Python objects are an
//! opaque type here. The interpreter is the truth that native code is compared with.
#![forbid(unsafe_code)]
