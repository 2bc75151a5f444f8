//! From code object to callable: the list of stages, versions and their assumptions, code memory.
//!
//! In: a code object as plain data with observed types. Out: an entry address, and the reasons for
//! what stayed in CPython. It must not know CPython's run time; `bridge` fills in the object table.
