//! The normalised instruction set: one vocabulary for CPython 3.11, 3.12, 3.13.
//!
//! Each `Instr` says where an exit re-enters (`offset`), where the frame stands
//! while the operation runs (`op_offset`) and what happens (`op`). The stack is
//! CPython's own, entry by entry, with one exception, the *method pair*: what
//! `LoadMethod` and `LoadSuperAttr { method: true }` push is always `[callable,
//! self or NULL]`, as in 3.13; `stack::real_entries` gives the version's order.
//! In the comments stacks are written bottom to top.

/// Index into `CodeObject::localsplus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalIdx(pub u32);
/// Index into `CodeObject::consts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConstIdx(pub u32);
/// Index into `CodeObject::names`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameIdx(pub u32);

impl LocalIdx {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
impl ConstIdx {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
impl NameIdx {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A byte offset into `co_code`. A jump target is the start of an instruction
/// with its `EXTENDED_ARG` prefixes, and equals some `Instr::offset`.
pub type Offset = u32;

/// Source range of an instruction, as `co_positions()` gives it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Position {
    pub line: Option<u32>,
    pub end_line: Option<u32>,
    /// UTF-8 byte columns, from 0.
    pub col: Option<u32>,
    pub end_col: Option<u32>,
}

/// One normalised instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instr {
    /// Where an exit re-enters: first byte of the instruction, its
    /// `EXTENDED_ARG` prefixes and the setup instructions folded into it
    /// (`KW_NAMES`, `PRECALL`, the names tuple of `CALL_KW`).
    pub offset: Offset,
    /// The opcode that does the work. The frame's position while it runs, and
    /// the key into the line and exception tables.
    pub op_offset: Offset,
    /// First byte behind the instruction and its inline caches.
    pub next_offset: Offset,
    /// Number within the instructions that one opcode was split into
    /// (`RETURN_CONST`, `LOAD_FAST_LOAD_FAST`, …). Only `sub == 0` may be
    /// re-entered: an exit at a later one would repeat its predecessors.
    pub sub: u8,
    pub op: Op,
    pub position: Position,
}

impl Instr {
    /// Whether CPython can continue *at* this instruction.
    pub fn is_reentrant(&self) -> bool {
        self.sub == 0
    }
}

/// Arithmetic of `BinaryOp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BinaryKind {
    Add,
    And,
    FloorDivide,
    LeftShift,
    MatrixMultiply,
    Multiply,
    Remainder,
    Or,
    Power,
    RightShift,
    Subtract,
    TrueDivide,
    Xor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnaryKind {
    Negative,
    Positive,
    Invert,
    /// `not x`: always an exact bool.
    Not,
}

/// Rich comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompareKind {
    Lt,
    Le,
    Eq,
    Ne,
    Gt,
    Ge,
}

/// Where `LoadGlobal` pushes a NULL, besides the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GlobalNull {
    /// `[value]`
    Absent,
    /// `[NULL, value]`: 3.11 and 3.12.
    Below,
    /// `[value, NULL]`: 3.13.
    Above,
}

/// What a conditional jump tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JumpIf {
    /// Truth of any object on 3.11 and 3.12; on 3.13 the operand is already an
    /// exact bool.
    True,
    False,
    /// `is None`, `is not None`.
    None,
    NotNone,
}

/// `!s`, `!r`, `!a` of a formatted field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Conversion {
    None,
    Str,
    Repr,
    Ascii,
}

/// Bits of `MakeFunction::flags` and `SetFunctionAttribute`.
pub mod function_flags {
    pub const DEFAULTS: u32 = 0x01;
    pub const KW_DEFAULTS: u32 = 0x02;
    pub const ANNOTATIONS: u32 = 0x04;
    pub const CLOSURE: u32 = 0x08;
}

/// What an instruction does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    // --- nothing, and the frame itself ---
    /// No effect, but a line event for tracers (`NOP`, 3.12's `EXTENDED_ARG 0`).
    Nop,
    /// Start of the function (`0`) or behind a yield/await (1..3, plus flags).
    Resume(u32),
    /// Puts a fresh cell with the slot's value into the slot.
    MakeCell(LocalIdx),
    /// Copies the closure's `n` cells into the last slots of `localsplus`.
    CopyFreeVars(u32),

    // --- variables ---
    /// `[] -> [value]`. `check`: CPython tests here whether it is unset
    /// (always on 3.11; 3.12+ only where its compiler could not prove it set).
    LoadFast {
        local: LocalIdx,
        check: bool,
    },
    /// `[value] -> []`. The value may be NULL behind `LoadFastAndClear`.
    StoreFast(LocalIdx),
    /// Raises UnboundLocalError if unset.
    DeleteFast(LocalIdx),
    /// `[] -> [value or NULL]`, leaves the slot unset. Around inlined
    /// comprehensions (3.12+); on a cell slot it moves the cell.
    LoadFastAndClear(LocalIdx),
    /// `[] -> [cell]`: the slot's cell itself, for a closure tuple.
    LoadClosure(LocalIdx),
    /// `[] -> [content of the cell]`; raises if empty.
    LoadDeref(LocalIdx),
    StoreDeref(LocalIdx),
    DeleteDeref(LocalIdx),
    LoadConst(ConstIdx),
    /// `[] -> [value]`, and a NULL for a call at the place that `null` names.
    /// Below, the value need not be what is called: `LoadAttr` may follow.
    LoadGlobal {
        name: NameIdx,
        null: GlobalNull,
    },
    StoreGlobal(NameIdx),
    DeleteGlobal(NameIdx),
    /// Class body or module: locals, then globals, then builtins.
    LoadName(NameIdx),
    StoreName(NameIdx),
    DeleteName(NameIdx),
    /// `[] -> [locals mapping]`.
    LoadLocals,
    /// `[mapping] -> [value]`: mapping, else the cell. 3.11's
    /// `LOAD_CLASSDEREF` is `LoadLocals` + this.
    LoadFromDictOrDeref(LocalIdx),
    /// `[mapping] -> [value]`: mapping, else globals, builtins.
    LoadFromDictOrGlobals(NameIdx),

    // --- attributes and items ---
    /// `[owner] -> [value]`
    LoadAttr(NameIdx),
    /// `[owner] -> [callable, self or NULL]` (a method pair): the unbound
    /// function and `owner`, or the attribute's value and NULL.
    LoadMethod(NameIdx),
    /// `[value, owner] -> []`
    StoreAttr(NameIdx),
    /// `[owner] -> []`
    DeleteAttr(NameIdx),
    /// `[global super, class, self] -> [value]`, with `method` a method pair.
    /// `two_args`: written `super(class, self)` rather than `super()`.
    LoadSuperAttr {
        name: NameIdx,
        method: bool,
        two_args: bool,
    },
    /// `[container, key] -> [value]`
    BinarySubscr,
    /// `[value, container, key] -> []`
    StoreSubscr,
    /// `[container, key] -> []`
    DeleteSubscr,
    /// `[container, start, stop] -> [value]`
    BinarySlice,
    /// `[value, container, start, stop] -> []`
    StoreSlice,
    /// `[start, stop] -> [slice]`, or with `step`.
    BuildSlice {
        with_step: bool,
    },

    // --- operators ---
    /// `[left, right] -> [value]`
    BinaryOp {
        kind: BinaryKind,
        inplace: bool,
    },
    /// `[operand] -> [value]`
    UnaryOp(UnaryKind),
    /// `[left, right] -> [value]`; `to_bool`: the result's truth (3.13).
    Compare {
        kind: CompareKind,
        to_bool: bool,
    },
    /// `[left, right] -> [bool]`
    IsOp {
        invert: bool,
    },
    /// `[item, container] -> [bool]`
    ContainsOp {
        invert: bool,
    },
    /// `[value] -> [bool]` (3.13; elsewhere part of the jump).
    ToBool,

    // --- the stack ---
    /// `[value] -> []`
    Pop,
    /// Pushes entry `n` again; 1 is the top.
    Copy(u32),
    /// Exchanges the top with entry `n`; 2 is the one below.
    Swap(u32),
    /// `[] -> [NULL]`: *below* its callable on 3.11 and 3.12, *above* it on
    /// 3.13. `Call` states how a pair is read.
    PushNull,

    // --- control ---
    Jump {
        target: Offset,
        /** May be a loop's back edge that polls. */
        polls: bool,
    },
    /// `[value] -> []` on both edges.
    PopJumpIf {
        cond: JumpIf,
        target: Offset,
    },
    /// 3.11: jumps and keeps the value, or pops it and falls through.
    /// `jump_if_true` is `or`, else `and`.
    JumpIfOrPop {
        jump_if_true: bool,
        target: Offset,
    },
    /// `[iterable] -> [iterator]`
    GetIter,
    /// Next item: `[iterator] -> [iterator, item]`, falls through. Exhausted:
    /// `[iterator] -> []`, continues at `end`, on every version (`end` lies
    /// behind 3.12's `END_FOR` and 3.13's `END_FOR`, `POP_TOP`).
    ForIter {
        end: Offset,
    },
    /// Not reached in normal flow: pops `n` (see `ForIter`).
    EndFor(u32),
    /// `[value] -> ` leaves the function.
    ReturnValue,

    // --- calls and functions ---
    /// `[a, b, arg 1 … arg n] -> [result]`. The pair `a, b` reads the same on
    /// all versions: `a` NULL: call `b`; `b` NULL: call `a`; else call `a` with
    /// `b` in front. `kw_names`: a constant tuple that names the last arguments.
    Call {
        n_args: u32,
        kw_names: Option<ConstIdx>,
    },
    /// `[a, b, args (, kwargs)] -> [result]`; one of `a`, `b` is NULL.
    CallFunctionEx {
        has_kwargs: bool,
    },
    /// `[one entry per flag in the order of the bits, code] -> [function]`;
    /// no flags on 3.13.
    MakeFunction {
        flags: u32,
    },
    /// `[value, function] -> [function]`, one flag (3.13).
    SetFunctionAttribute(u32),

    // --- building ---
    BuildTuple(u32),
    BuildList(u32),
    BuildSet(u32),
    /// `[key, value] * n -> [dict]`
    BuildMap(u32),
    /// `[value * n, tuple of keys] -> [dict]`
    BuildConstKeyMap(u32),
    BuildString(u32),
    /// `[.., list, (i - 1 entries), item] -> item gone`; `i` counts from the
    /// entry below the item, 1. Likewise the next ones.
    ListAppend(u32),
    ListExtend(u32),
    SetAdd(u32),
    SetUpdate(u32),
    /// `[.., dict, (i - 1 entries), key, value] -> both gone`
    MapAdd(u32),
    DictUpdate(u32),
    /// As `DictUpdate`, for a call's `**`: repeated keys raise, and the error
    /// names the callable below.
    DictMerge(u32),
    ListToTuple,
    /// `[sequence] -> [item n … item 1]`: the first item on top.
    UnpackSequence(u32),
    /// `[sequence] -> [after … , list, before …]`, the first item on top.
    UnpackEx {
        before: u32,
        after: u32,
    },
    /// `[value] -> [string]`, or `[value, spec]`; converts before formatting.
    FormatValue {
        conversion: Conversion,
        with_spec: bool,
    },
    /// `[value] -> [string]` (3.13).
    ConvertValue(Conversion),

    // --- exceptions and with ---
    /// `raise`: 0, 1 (`exc`) or 2 (`exc, cause`) entries.
    Raise(u32),
    /// `[.., exception] -> ` raises it again. `lasti`: 0, or how far below the
    /// exception the offset lies that the frame pretends to stand at.
    Reraise {
        lasti: u32,
    },
    /// `[exception] -> [previous exception, exception]`
    PushExcInfo,
    /// `[previous exception] -> []`
    PopExcept,
    /// `[exception, type] -> [exception, bool]`
    CheckExcMatch,
    /// `[exception, types] -> [rest, match]` (`except*`)
    CheckEgMatch,
    /// `[manager] -> [bound __exit__, result of __enter__]`
    BeforeWith,
    /// `[exit, lasti, previous, exception] -> [.., exception, result]`
    WithExceptStart,
    LoadAssertionError,
    /// `[original, list of raised] -> [exception or None]`
    PrepReraiseStar,

    // --- modules and classes ---
    /// `[level, from list] -> [module]`
    ImportName(NameIdx),
    /// `[module] -> [module, value]`
    ImportFrom(NameIdx),
    /// `[module] -> []` on 3.11, `[module] -> [None]` later: `pushes_none`.
    ImportStar {
        pushes_none: bool,
    },
    LoadBuildClass,
    SetupAnnotations,

    // --- match ---
    /// `[subject] -> [subject, length]`
    GetLen,
    /// `[subject] -> [subject, bool]`
    MatchMapping,
    MatchSequence,
    /// `[subject, keys] -> [subject, keys, values or None]`
    MatchKeys,
    /// `[subject, class, names] -> [attributes or None]`
    MatchClass(u32),

    // --- generators, coroutines ---
    /// Returns the generator; when resumed the sent value is pushed.
    ReturnGenerator,
    /// `[value] -> [sent value]`
    YieldValue,
    /// `[receiver, value] -> [receiver, yielded]`; finished: `[receiver,
    /// result]` at `target` (3.12+), `[result]` there (3.11: `pops_receiver`).
    Send {
        target: Offset,
        pops_receiver: bool,
    },
    /// `[receiver, value] -> [value]` (3.12+)
    EndSend,
    /// `[sub-iterator, last sent, exception] -> [None, value]` or raises (3.12+).
    CleanupThrow,
    GetYieldFromIter,
    GetAwaitable(u32),
    GetAiter,
    /// `[async iterator] -> [async iterator, awaitable]`
    GetAnext,
    BeforeAsyncWith,
    /// `[async iterator, exception] -> []`, or raises.
    EndAsyncFor,
    AsyncGenWrap,
    /// `[exception] -> [exception]`: StopIteration to RuntimeError.
    StopIterationError,

    // --- rare ---
    /// `[value] -> [value]`: an intrinsic that has no name of its own here.
    Intrinsic1(&'static str),
    /// `[first, second] -> [value]`
    Intrinsic2(&'static str),
    /// `[value] -> []`: interactive display.
    PrintExpr,
    /// An opcode that no compiler emits into `co_code`. The function is left
    /// to the interpreter.
    Other(&'static str),
}
