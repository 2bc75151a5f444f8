//! Byte offsets inside CPython 3.13's objects and run-time structs, as its headers lay them out on 64-bit
//! Linux. `tests/mechanics/test_layout.py` compiles the headers and compares; `selftest` checks behaviour.

pub mod frame {
    pub const GLOBALS: usize = 24;
    pub const BUILTINS: usize = 32;
    pub const LOCALS: usize = 40;
    pub const FRAME_OBJ: usize = 48;
    pub const PREVIOUS: usize = 8;
    pub const STACKTOP: usize = 64;
    pub const OWNER: usize = 70;
    pub const LOCALSPLUS: usize = 72;
    pub const FUNC: usize = 16;
    pub const CODE: usize = 0;
    pub const INSTR: usize = 56;
    pub const RETURN_OFFSET: usize = 68;
    pub const SIZE: usize = 72;
}
pub mod code {
    pub const CONSTS: usize = 24;
    pub const NAMES: usize = 32;
    pub const EXCEPTIONTABLE: usize = 40;
    pub const FLAGS: usize = 48;
    pub const ARGCOUNT: usize = 52;
    pub const POSONLYARGCOUNT: usize = 56;
    pub const KWONLYARGCOUNT: usize = 60;
    pub const STACKSIZE: usize = 64;
    pub const FIRSTLINENO: usize = 68;
    pub const NLOCALSPLUS: usize = 72;
    pub const NLOCALS: usize = 80;
    pub const NFREEVARS: usize = 88;
    pub const LOCALSPLUSKINDS: usize = 104;
    pub const FIRSTTRACEABLE: usize = 184;
    pub const BYTECODE: usize = 200;
    pub const INSTRUMENTATION_VERSION: usize = 168;
    pub const MONITORING: usize = 176;
    pub const N_LOCAL_MONITORS: usize = 10;
    pub const ACTIVE_MONITORS: usize = 10;
}
pub mod thread {
    pub const INTERP: usize = 16;
    pub const TRACING: usize = 60;
    pub const PROFILEFUNC: usize = 80;
    pub const TRACEFUNC: usize = 88;
    pub const TRACEOBJ: usize = 104;
    pub const THREAD_ID: usize = 152;
    pub const NEXT: usize = 8;
    pub const CURRENT_FRAME: usize = 72;
    pub const EVAL_BREAKER: usize = 24;
    pub const PY_RECURSION: usize = 44;
    pub const C_RECURSION: usize = 52;
    pub const CURRENT_EXCEPTION: usize = 112;
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
    pub const VECTORCALL: usize = 128;
    pub const VERSION: usize = 136;
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
pub mod long {
    pub const TAG: usize = 16;
    pub const DIGITS: usize = 24;
}
pub mod range_iter {
    pub const START: usize = 16;
    pub const STEP: usize = 24;
    pub const LEN: usize = 32;
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
