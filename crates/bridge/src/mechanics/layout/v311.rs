//! Byte offsets inside CPython 3.11's objects and run-time structs, as its headers lay them out on 64-bit
//! Linux. `tests/mechanics/test_layout.py` compiles the headers and compares; `selftest` checks behaviour.

pub mod frame {
    pub const GLOBALS: usize = 8;
    pub const BUILTINS: usize = 16;
    pub const LOCALS: usize = 24;
    pub const FRAME_OBJ: usize = 40;
    pub const PREVIOUS: usize = 48;
    pub const STACKTOP: usize = 64;
    pub const OWNER: usize = 69;
    pub const LOCALSPLUS: usize = 72;
    pub const FUNC: usize = 0;
    pub const CODE: usize = 32;
    pub const INSTR: usize = 56;
    pub const IS_ENTRY: usize = 68;
    pub const SIZE: usize = 72;
}
pub mod code {
    pub const CONSTS: usize = 24;
    pub const NAMES: usize = 32;
    pub const EXCEPTIONTABLE: usize = 40;
    pub const FLAGS: usize = 48;
    pub const ARGCOUNT: usize = 56;
    pub const POSONLYARGCOUNT: usize = 60;
    pub const KWONLYARGCOUNT: usize = 64;
    pub const STACKSIZE: usize = 68;
    pub const FIRSTLINENO: usize = 72;
    pub const NLOCALSPLUS: usize = 76;
    pub const NLOCALS: usize = 80;
    pub const NFREEVARS: usize = 92;
    pub const LOCALSPLUSKINDS: usize = 104;
    pub const FIRSTTRACEABLE: usize = 168;
    pub const BYTECODE: usize = 184;
}
pub mod thread {
    pub const INTERP: usize = 16;
    pub const TRACING: usize = 44;
    pub const PROFILEFUNC: usize = 64;
    pub const TRACEFUNC: usize = 72;
    pub const TRACEOBJ: usize = 88;
    pub const THREAD_ID: usize = 152;
    pub const NEXT: usize = 8;
    pub const CFRAME: usize = 56;
    pub const PY_RECURSION: usize = 32;
    pub const CURRENT_EXCEPTION: usize = 96;
}
pub mod runtime {
    pub const TSTATE_CURRENT: usize = 576;
}
pub mod interp {
    pub const EVAL_BREAKER: usize = 100;
}
pub mod function {
    pub const GLOBALS: usize = 16;
    pub const BUILTINS: usize = 24;
    pub const NAME: usize = 32;
    pub const QUALNAME: usize = 40;
    pub const CODE: usize = 48;
    pub const DEFAULTS: usize = 56;
    pub const KWDEFAULTS: usize = 64;
    pub const CLOSURE: usize = 72;
    pub const VECTORCALL: usize = 120;
    pub const VERSION: usize = 128;
}
pub mod list {
    pub const ITEMS: usize = 24;
    pub const ALLOCATED: usize = 32;
}
pub mod tuple {
    pub const ITEMS: usize = 24;
}
pub mod float {
    pub const VALUE: usize = 16;
}
pub mod bytes {
    pub const DATA: usize = 32;
}
pub mod bytearray {
    pub const START: usize = 40;
    pub const EXPORTS: usize = 48;
}
pub mod cell {
    pub const REF: usize = 16;
}
pub mod dict {
    pub const USED: usize = 16;
    pub const VERSION_TAG: usize = 24;
    pub const KEYS: usize = 32;
    pub const VALUES: usize = 40;
}
pub mod dict_keys {
    pub const LOG2_SIZE: usize = 8;
    pub const LOG2_INDEX_BYTES: usize = 9;
    pub const KIND: usize = 10;
    pub const VERSION: usize = 12;
    pub const NENTRIES: usize = 24;
    pub const INDICES: usize = 32;
    pub const ENTRY_SIZE: usize = 24;
    pub const UNICODE_ENTRY_SIZE: usize = 16;
}
pub mod frame_object {
    pub const FRAME: usize = 24;
    pub const LINENO: usize = 40;
}
pub mod type_object {
    pub const VERSION_TAG: usize = 384;
}
pub mod cframe {
    pub const USE_TRACING: usize = 0;
    pub const CURRENT_FRAME: usize = 8;
}
pub mod long {
    pub const DIGITS: usize = 24;
}
// Objects/rangeobject.c, listobject.c, tupleobject.c: not in a header of this version.
pub mod range_iter {
    pub const INDEX: usize = 16;
    pub const START: usize = 24;
    pub const STEP: usize = 32;
    pub const LEN: usize = 40;
}
pub mod list_iter {
    pub const INDEX: usize = 16;
    pub const SEQ: usize = 24;
}
pub mod tuple_iter {
    pub const INDEX: usize = 16;
    pub const SEQ: usize = 24;
}
// Objects/iterobject.c, enumobject.c, Python/bltinmodule.c: not in any header.
pub mod seq_iter {
    pub const INDEX: usize = 16;
    pub const SEQ: usize = 24;
}
pub mod enumerate {
    pub const INDEX: usize = 16;
    pub const ITERATOR: usize = 24;
    pub const RESULT: usize = 32;
    pub const LONG_INDEX: usize = 40;
}
pub mod zip {
    pub const SIZE: usize = 16;
    pub const ITERATORS: usize = 24;
    pub const RESULT: usize = 32;
    pub const STRICT: usize = 40;
}
