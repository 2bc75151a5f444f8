//! Words that all stages share: spans, dtypes, flavours, ids and the layout of what machine code reads.
//!
//! It must not know Python, the IR or LLVM: everything here is plain data that any stage may name.
#![forbid(unsafe_code)]
