//! The object table: every operation on Python objects that compiled code may ask CPython for, by name.
//!
//! In: nothing. Out: for each entry its signature, how it reports an error, and its effect; from these the front end
//! decides what a fact survives, the code generator declares the symbol, and the bridge fills in an address.
//! Must not know: any address or any CPython call. The bridge has an exhaustive match over `Entry`.
//!
//! Ownership: arguments are borrowed, but where an entry says that it takes them over; an `Obj` result is a new reference.

use crate::flavour::Ty;

/// What an operation may do to facts that compiled code holds (engine rule 14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Only reads, and its result is no new reference: two equal calls in a row may become one, an unused one none.
    Pure,
    /// Allocates an object that the cycle collector does not track (int, float, str).
    AllocUntracked,
    /// Writes into its argument only, in a way the caller knows; runs no Python code.
    Local,
    /// May run any Python code: every fact about mutable objects is gone.
    Opaque,
}

/// How an operation says that it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It cannot fail.
    Never,
    /// Null result, a Python exception is set.
    Null,
    /// Negative `i64` result, a Python exception is set.
    Negative,
    /// The function takes one more argument, a pointer to the result, and returns `u8`: 0 means "not decided here,
    /// nothing happened": leave for CPython at this instruction. No exception is set.
    Declines,
}

impl Entry {
    /// Whether the entry takes over the reference of a fixed argument: all of `CallEx`, the item of `ListAppend`.
    pub const fn takes_over(self, argument: usize) -> bool {
        match self {
            Entry::CallEx => true,
            Entry::ListAppend => argument == 1,
            _ => false,
        }
    }

    /// Whether it takes over the references of its variable arguments.
    pub const fn takes_over_variable(self) -> bool {
        matches!(self, Entry::CallGiving)
    }
}

/// Signature and behaviour of an entry.
#[derive(Clone, Copy, Debug)]
pub struct Signature {
    /// Types of the fixed arguments.
    pub args: &'static [Ty],
    /// When true, any number of `Obj` arguments follow; they are passed as `(pointer to array, count)`, the array
    /// having one free slot before its first element (vectorcall's PY_VECTORCALL_ARGUMENTS_OFFSET).
    pub variadic: bool,
    /// Result type, if any. `Negative` entries return `I64`.
    pub result: Option<Ty>,
    pub failure: Failure,
    pub effect: Effect,
}

macro_rules! entries {
    ($( $(#[$doc:meta])* $name:ident = $text:literal, [$($arg:ident),*] $(, $var:ident)? => $result:expr, $failure:ident, $effect:ident; )*) => {
        /// An operation on objects.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u16)]
        pub enum Entry { $( $(#[$doc])* $name, )* }

        impl Entry {
            /// Every entry, in the order of its number.
            pub const ALL: &'static [Entry] = &[$(Entry::$name),*];

            /// The name in the text form of the IR and of the symbol (`od_` + name).
            pub const fn name(self) -> &'static str {
                match self { $(Entry::$name => $text,)* }
            }

            /// Signature and behaviour.
            pub const fn signature(self) -> Signature {
                match self { $(Entry::$name => Signature {
                    args: &[$(Ty::$arg),*],
                    variadic: entries!(@var $($var)?),
                    result: $result,
                    failure: Failure::$failure,
                    effect: Effect::$effect,
                },)* }
            }
        }
    };
    (@var variadic) => { true };
    (@var) => { false };
}

const O: Option<Ty> = Some(Ty::Obj);
const I: Option<Ty> = Some(Ty::I64);
const F: Option<Ty> = Some(Ty::F64);
const B: Option<Ty> = Some(Ty::I1);

entries! {
    // --- arithmetic and comparison of objects; the leading I64 is the operation's number (`BinaryOp`, `CompareOp` of the IR)
    /// `a op b`
    Binary = "binary", [I64, Obj, Obj] => O, Null, Opaque;
    /// `a op= b`
    Inplace = "inplace", [I64, Obj, Obj] => O, Null, Opaque;
    /// `op a` (0 `-`, 1 `+`, 2 `~`)
    Unary = "unary", [I64, Obj] => O, Null, Opaque;
    /// rich comparison, result as an object
    Compare = "compare", [I64, Obj, Obj] => O, Null, Opaque;
    /// truth value: 1, 0, or negative
    IsTrue = "is_true", [Obj] => I, Negative, Opaque;
    /// `item in container` (arguments: container, item)
    Contains = "contains", [Obj, Obj] => I, Negative, Opaque;

    // --- attributes, subscripts, names
    GetAttr = "getattr", [Obj, Obj] => O, Null, Opaque;
    /// object, name, value
    SetAttr = "setattr", [Obj, Obj, Obj] => I, Negative, Opaque;
    DelAttr = "delattr", [Obj, Obj] => I, Negative, Opaque;
    GetItem = "getitem", [Obj, Obj] => O, Null, Opaque;
    /// container, key, value
    SetItem = "setitem", [Obj, Obj, Obj] => I, Negative, Opaque;
    /// exact dict, key, default: `dict.get`
    DictGet = "dict_get", [Obj, Obj, Obj] => O, Null, Opaque;
    /// exact dict, key, value
    DictSetItem = "dict_setitem", [Obj, Obj, Obj] => I, Negative, Opaque;
    DelItem = "delitem", [Obj, Obj] => I, Negative, Opaque;
    /// globals, builtins, name: as LOAD_GLOBAL does
    LoadGlobal = "load_global", [Obj, Obj, Obj] => O, Null, Opaque;
    /// globals, builtins, name: value of an exact int (float) that the name means; declines for anything else
    GlobalInt = "global_int", [Obj, Obj, Obj] => I, Declines, Pure;
    GlobalFloat = "global_float", [Obj, Obj, Obj] => F, Declines, Pure;
    StoreGlobal = "store_global", [Obj, Obj, Obj] => I, Negative, Opaque;
    /// globals, builtins, name, expected value: true when the name still means that very object
    GlobalIs = "global_is", [Obj, Obj, Obj, Obj] => B, Never, Pure;
    /// module, name, expected value: true when the module's dictionary still holds that very object
    ModuleAttrIs = "module_attr_is", [Obj, Obj, Obj] => B, Never, Pure;
    /// object, name, function: true when the object's class, whose look-up is the usual one, has a property of that name
    /// that calls that very function to be read
    PropertyIs = "property_is", [Obj, Obj, Obj] => B, Never, Pure;
    /// function or jitted callable, code, default values or null (which are not looked at), levels of calls: true when a
    /// call would run that code with those default values, nobody watches it, and so many more levels of calls are allowed
    CalleeIs = "callee_is", [Obj, Obj, Obj, I64] => B, Never, Pure;
    DelGlobal = "del_global", [Obj, Obj] => I, Negative, Opaque;
    /// a fresh cell with the value (null: empty)
    MakeCell = "make_cell", [Obj] => O, Null, Opaque;
    /// contents of a cell; null with NameError/UnboundLocalError is left to CPython: declines when empty
    LoadCell = "load_cell", [Obj] => O, Declines, Local;
    StoreCell = "store_cell", [Obj, Obj] => I, Never, Opaque;

    // --- calls
    /// callable, keyword names (a tuple, or null), arguments
    Call = "call", [Obj, Obj], variadic => O, Null, Opaque;
    /// keyword names or null, callable, arguments: takes over the references of callable and arguments, also when it fails
    CallGiving = "call_giving", [Obj], variadic => O, Null, Opaque;
    /// callable, argument tuple or iterable, keyword mapping (or null): takes over the references, also when it fails
    CallEx = "call_ex", [Obj, Obj, Obj] => O, Null, Opaque;

    /// levels of calls that the recursion limit and the C stack allow at present, as far as routines may use them
    CallLevels = "call_levels", [] => I, Never, Pure;

    // --- iteration
    GetIter = "iter", [Obj] => O, Null, Opaque;
    /// next item; null without exception at the end (test with `is_null`), null with exception: see `NextFailed`
    Next = "next", [Obj] => O, Never, Opaque;
    /// after a null from `Next`: negative when an exception (other than StopIteration, which is cleared) is set, else 0
    NextFailed = "next_failed", [] => I, Negative, Local;

    // --- iterators found in a running frame (exact type guarded)
    /// true when nobody else can hold the object (reference count 1)
    IsUnique = "is_unique", [Obj] => B, Never, Pure;
    /// next value, stop and step of a range iterator; an exhausted one has next = stop
    RangeIterNext = "range_iter_next", [Obj] => I, Never, Pure;
    RangeIterStop = "range_iter_stop", [Obj] => I, Never, Pure;
    RangeIterStep = "range_iter_step", [Obj] => I, Never, Pure;
    /// sequence of a list or tuple iterator (declines when exhausted), and the position of its next item
    SeqIterSeq = "seq_iter_seq", [Obj] => O, Declines, Local;
    SeqIterPos = "seq_iter_pos", [Obj] => I, Never, Pure;

    // --- building
    BuildTuple = "build_tuple", [], variadic => O, Null, Opaque;
    BuildList = "build_list", [], variadic => O, Null, Opaque;
    BuildSet = "build_set", [], variadic => O, Null, Opaque;
    /// key, value, key, value …
    BuildMap = "build_map", [], variadic => O, Null, Opaque;
    /// keys (a tuple), values …
    BuildConstKeyMap = "build_const_key_map", [Obj], variadic => O, Null, Opaque;
    /// character of an exact str at a position that it has
    StrItem = "str_item", [Obj, I64] => O, Null, AllocUntracked;
    /// comparison of exact strs (a op b): op number
    StrCompare = "str_compare", [I64, Obj, Obj] => B, Never, Pure;
    BuildString = "build_string", [], variadic => O, Null, AllocUntracked;
    /// start, stop, step or null
    BuildSlice = "build_slice", [Obj, Obj, Obj] => O, Null, Opaque;
    /// value, conversion (0 none, 1 str, 2 repr, 3 ascii), format spec or null
    Format = "format", [Obj, I64, Obj] => O, Null, Opaque;
    /// exact list, item: takes over the item, also when it fails
    ListAppend = "list_append", [Obj, Obj] => I, Negative, Local;
    /// list, index in range, value; the item there is an exact float. Reuses that object when nobody else holds it.
    ListSetFloat = "list_set_float", [Obj, I64, F64] => I, Negative, Local;
    /// As `list_set_float`, for exact ints.
    ListSetInt = "list_set_int", [Obj, I64, I64] => I, Negative, Local;
    ListExtend = "list_extend", [Obj, Obj] => I, Negative, Opaque;
    SetAdd = "set_add", [Obj, Obj] => I, Negative, Opaque;
    SetUpdate = "set_update", [Obj, Obj] => I, Negative, Opaque;
    /// dict, key, value
    MapAdd = "map_add", [Obj, Obj, Obj] => I, Negative, Opaque;
    DictUpdate = "dict_update", [Obj, Obj] => I, Negative, Opaque;
    /// callable (for the error message), dict, mapping
    DictMerge = "dict_merge", [Obj, Obj, Obj] => I, Negative, Opaque;
    ListToTuple = "list_to_tuple", [Obj] => O, Null, Opaque;
    /// sequence, count → an exact tuple of that many items, or ValueError/TypeError as UNPACK_SEQUENCE raises
    Unpack = "unpack", [Obj, I64] => O, Null, Opaque;
    /// sequence, items before, items after the star → tuple of before items, one list, after items (UNPACK_EX)
    UnpackEx = "unpack_ex", [Obj, I64, I64] => O, Null, Opaque;
    /// context manager → tuple (bound `__exit__`, result of `__enter__`), as BEFORE_WITH
    BeforeWith = "before_with", [Obj] => O, Null, Opaque;
    /// global `super`, class, self, name: LOAD_SUPER_ATTR's attribute value
    SuperAttr = "super_attr", [Obj, Obj, Obj, Obj] => O, Null, Opaque;
    /// code, globals, qualified name or null, defaults or null, kwdefaults or null, annotations or null, closure or null
    MakeFunction = "make_function", [Obj, Obj, Obj, Obj, Obj, Obj, Obj] => O, Null, Opaque;
    /// globals, name, from-list, level
    ImportName = "import_name", [Obj, Obj, Obj, Obj] => O, Null, Opaque;
    ImportFrom = "import_from", [Obj, Obj] => O, Null, Opaque;

    // --- boxing (allocation only)
    BoxInt = "box_int", [I64] => O, Null, AllocUntracked;
    BoxFloat = "box_float", [F64] => O, Null, AllocUntracked;
    BoxNpF64 = "box_np_f64", [F64] => O, Null, AllocUntracked;
    BoxNpF32 = "box_np_f32", [F32] => O, Null, AllocUntracked;
    BoxNpI64 = "box_np_i64", [I64] => O, Null, AllocUntracked;
    BoxNpI32 = "box_np_i32", [I64] => O, Null, AllocUntracked;
    BoxNpU8 = "box_np_u8", [I64] => O, Null, AllocUntracked;
    /// start, stop, step of the remaining part → a range iterator
    BoxRangeIter = "box_range_iter", [I64, I64, I64] => O, Null, AllocUntracked;
    /// value of an exact int; declines outside 64 bits
    UnboxInt = "unbox_int", [Obj] => I, Declines, Pure;
    /// releases a reference that was the last one (refcount already 0)
    Dealloc = "dealloc", [Obj] => None, Never, Opaque;

    // --- numbers whose rules are longer than an instruction; all decline where CPython would raise or leave the flavour
    /// correctly rounded a / b of ints; declines for b = 0
    IntTrueDiv = "int_true_div", [I64, I64] => F, Declines, Pure;
    /// a ** b of ints, b ≥ 0 and the result in 64 bits
    IntPow = "int_pow", [I64, I64] => I, Declines, Pure;
    /// float_floor_div of CPython; declines for b = 0
    FloatFloorDiv = "float_floor_div", [F64, F64] => F, Declines, Pure;
    FloatMod = "float_mod", [F64, F64] => F, Declines, Pure;
    FloatPow = "float_pow", [F64, F64] => F, Declines, Pure;
    /// round(x): half to even, as int; declines for NaN, infinities and beyond 64 bits
    FloatRound = "float_round", [F64] => I, Declines, Pure;
    /// comparison of an int with a float, exact (a op b with a int): op number, int, float
    IntFloatCompare = "int_float_compare", [I64, I64, F64] => B, Never, Pure;
    MathExp = "math_exp", [F64] => F, Declines, Pure;
    MathExpm1 = "math_expm1", [F64] => F, Declines, Pure;
    MathLog = "math_log", [F64] => F, Declines, Pure;
    MathLog2 = "math_log2", [F64] => F, Declines, Pure;
    MathLog10 = "math_log10", [F64] => F, Declines, Pure;
    MathLog1p = "math_log1p", [F64] => F, Declines, Pure;
    MathSin = "math_sin", [F64] => F, Declines, Pure;
    MathCos = "math_cos", [F64] => F, Declines, Pure;
    MathTan = "math_tan", [F64] => F, Declines, Pure;
    MathAsin = "math_asin", [F64] => F, Declines, Pure;
    MathAcos = "math_acos", [F64] => F, Declines, Pure;
    MathAtan = "math_atan", [F64] => F, Declines, Pure;
    MathAtan2 = "math_atan2", [F64, F64] => F, Declines, Pure;
    MathSinh = "math_sinh", [F64] => F, Declines, Pure;
    MathCosh = "math_cosh", [F64] => F, Declines, Pure;
    MathTanh = "math_tanh", [F64] => F, Declines, Pure;
    MathErf = "math_erf", [F64] => F, Declines, Pure;
    MathErfc = "math_erfc", [F64] => F, Declines, Pure;
    MathFmod = "math_fmod", [F64, F64] => F, Declines, Pure;
    MathPow = "math_pow", [F64, F64] => F, Declines, Pure;
    MathHypot = "math_hypot", [F64, F64] => F, Declines, Pure;

    // --- the same by the C library's functions as they are, or by vector forms of them within their stated error; only in
    // --- functions with `fastmath`, where CPython would raise nothing
    FastExp = "fast_exp", [F64] => F, Never, Pure;
    FastExpm1 = "fast_expm1", [F64] => F, Never, Pure;
    FastLog = "fast_log", [F64] => F, Never, Pure;
    FastLog2 = "fast_log2", [F64] => F, Never, Pure;
    FastLog10 = "fast_log10", [F64] => F, Never, Pure;
    FastLog1p = "fast_log1p", [F64] => F, Never, Pure;
    FastSin = "fast_sin", [F64] => F, Never, Pure;
    FastCos = "fast_cos", [F64] => F, Never, Pure;
    FastTan = "fast_tan", [F64] => F, Never, Pure;
    FastAsin = "fast_asin", [F64] => F, Never, Pure;
    FastAcos = "fast_acos", [F64] => F, Never, Pure;
    FastAtan = "fast_atan", [F64] => F, Never, Pure;
    FastSinh = "fast_sinh", [F64] => F, Never, Pure;
    FastCosh = "fast_cosh", [F64] => F, Never, Pure;
    FastTanh = "fast_tanh", [F64] => F, Never, Pure;
    FastErf = "fast_erf", [F64] => F, Never, Pure;
    FastErfc = "fast_erfc", [F64] => F, Never, Pure;
    FastAtan2 = "fast_atan2", [F64, F64] => F, Never, Pure;
    FastHypot = "fast_hypot", [F64, F64] => F, Never, Pure;
    FastPow = "fast_pow", [F64, F64] => F, Never, Pure;

    /// whether two arrays share no memory (false when it cannot be told at once)
    ArraysApart = "arrays_apart", [Obj, Obj] => B, Never, Pure;
    /// whether elements of an array of floats or 64-bit integers are below 2^k in magnitude: array, number of its element
    /// type, k, first and last index on the first axis and on the second, and the number of steps that looking may be worth
    ArrayWithin = "array_within", [Obj, I64, I64, I64, I64, I64, I64, I64] => B, Never, Pure;
    /// as `array_within`, and at least 2^-k
    ArrayAbove = "array_above", [Obj, I64, I64, I64, I64, I64, I64, I64] => B, Never, Pure;
    /// as `array_within`, by several threads
    ArrayWithinShared = "array_within_shared", [Obj, I64, I64, I64, I64, I64, I64, I64] => B, Never, Pure;
    /// whether NumPy's error state ignores underflow at present
    NpUnderIgnored = "np_under_ignored", [] => B, Never, Local;

    // --- run time services
    /// whether CPython asks for attention (as `poll` tests it)
    PollPending = "poll_pending", [] => B, Never, Local;
    /// lets other threads have the GIL, and takes it back; between the two nothing else of CPython is touched
    GilGive = "gil_give", [] => None, Never, Local;
    GilTake = "gil_take", [] => None, Never, Local;
    /// profile slot, object: remembers the object's type for a later version
    Observe = "observe", [I64, Obj] => None, Never, Local;
    /// profile slot, object, name, 1 when it is written: remembers where objects of this class keep the attribute
    ObserveAttr = "observe_attr", [I64, Obj, Obj, I64] => None, Never, Local;
}
