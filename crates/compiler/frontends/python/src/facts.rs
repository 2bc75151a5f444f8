//! What the front end may ask about the running program, and how it is answered: as plain data.
//!
//! The bridge implements `Oracle` on live objects; tests implement it on tables. A fact is an assumption: the translator
//! emits the guard that holds compiled code to it.

use std::sync::Arc;

use overdrive_base::flavour::{DType, Holder, KnownType};
use overdrive_ir::inst::Attr;

use crate::code::{CodeObject, Const};

/// Number of an object that the oracle knows; the bridge keeps it alive as long as the version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FactId(pub u32);

/// Whose code a question or an answer is about: the function that is translated, or another that is inlined into it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Body(pub u32);

impl Body {
    /// The function that is translated.
    pub const OWN: Body = Body(0);
}

/// Set in the origin of an exit of an inlined body, beside the offset of the CALL: what failed was not the call. No
/// instruction begins at an odd offset.
pub const IN_PLACE: u32 = 1;

/// What a call of a known object runs.
#[derive(Clone, Debug)]
pub struct Callee {
    /// The number under which the oracle answers about it.
    pub body: Body,
    pub code: Arc<CodeObject>,
    /// Default values, of the last arguments; `None` when one of them is no number and not `None`.
    pub defaults: Option<Vec<Const>>,
}

/// Something that an inlined body refers to by its own tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// `co_consts[n]`.
    Const(u32),
    /// `co_names[n]`.
    Name(u32),
    Globals,
    Builtins,
    /// The code object itself.
    Code,
    /// The tuple of default values.
    Defaults,
}

/// An object seen at compile time.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    pub id: FactId,
    pub seen: Seen,
    /// What it means as something that is called or looked into.
    pub meaning: Meaning,
}

/// The type of an object, as far as native code can use it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Seen {
    Exact(KnownType),
    /// Exact `ndarray` of a built-in native-order dtype, aligned. Others are `Other`.
    Array {
        holder: Holder,
        dtype: DType,
        ndim: u8,
    },
    /// Any other type, by name.
    Other(String),
}

/// Where the objects of one class keep an attribute, for as long as the class is what it is now.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    /// The class's version (see `ObjectLayout::type_version`): it tells which class this is, too.
    pub version: u32,
    pub at: Attr,
    /// Name of the class, for people.
    pub class: String,
}

/// What makes a name mean a function of an object's class, for as long as the class is what it is now.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Method {
    pub version: u32,
    /// When objects of the class can have attributes of any name: how many names they number, none of which is this one. An
    /// object that keeps its attributes so does not have the attribute as long as the names are no more.
    pub n_names: Option<u32>,
    pub class: String,
}

/// What an attribute is looked up for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    /// Of an attribute that is set.
    Write,
}

/// Objects whose meaning the translator knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Meaning {
    Nothing,
    /// The module `math`.
    MathModule,
    /// The module `numpy`.
    NumpyModule,
    /// Another module: its attributes may be facts.
    Module,
    Builtin(Builtin),
    Math(MathFn),
    /// The method descriptor `list.append`.
    ListAppend,
    /// The method descriptor `dict.get`.
    DictGet,
    /// A Python function or a jitted callable that could be compiled and called directly.
    PythonFunction,
}

/// Built-in callables with a native form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Builtin {
    Abs,
    Min,
    Max,
    Len,
    Int,
    Float,
    Bool,
    Round,
    Range,
    /// `overdrive.prange`: a range whose loop promises that its iterations are independent.
    Prange,
    Enumerate,
    Zip,
    /// Reads or rebinds the caller's locals, or counts what refers to them: the function stays interpreted.
    FrameReader,
}

/// Functions of `math` with a native form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MathFn {
    Sqrt,
    Exp,
    Expm1,
    Log,
    Log2,
    Log10,
    Log1p,
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Atan2,
    Sinh,
    Cosh,
    Tanh,
    Erf,
    Erfc,
    Fmod,
    Pow,
    Hypot,
    Fabs,
    Floor,
    Ceil,
    Trunc,
    Copysign,
    IsNan,
    IsInf,
    IsFinite,
}

/// What an earlier version recorded about the results of an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed {
    /// Never ran, or was not watched.
    Nothing,
    /// One type only.
    Always(Seen),
    /// Several types.
    Mixed,
    /// Of the object whose attribute was used (see `receiver`): one class only, which keeps it there.
    Member(Member),
    /// Of the object whose method was looked up, likewise: objects of one class only, and the first of them.
    Instance(Picture),
}

/// What an object was like when it was seen, without the object: a sample that keeps nothing alive.
#[derive(Clone, Debug)]
pub struct Picture {
    /// The class's version.
    pub version: u32,
    /// Attributes that were set, where objects of the class keep them.
    pub values: Vec<(String, Seen)>,
}

/// Pictures of objects of one class differ in nothing that the next version should be made anew for.
impl PartialEq for Picture {
    fn eq(&self, other: &Picture) -> bool {
        self.version == other.version
    }
}

impl Eq for Picture {}

/// Offset under which the profile remembers the object whose attribute the instruction at an offset uses: instructions
/// begin at even ones.
pub fn receiver(op_offset: u32) -> u32 {
    op_offset | 1
}

/// Answers about the running program. Indices and offsets are those of one body at a time, see [`Oracle::enter`].
pub trait Oracle {
    /// What a call of a known object runs, if its code could be inlined here.
    fn callee(&mut self, callable: FactId) -> Option<Callee>;
    /// From now on indices and offsets are those of this body; gives the one before.
    fn enter(&mut self, body: Body) -> Body;
    /// An object that an inlined body refers to. It lives as long as the callable with that code.
    fn part(&mut self, body: Body, part: Part) -> FactId;
    /// The value that a name (index into `co_names`) has now as a global or builtin.
    fn global(&mut self, name: u32) -> Option<Fact>;
    /// Attribute of an object whose attributes do not change by themselves (a module).
    fn attr(&mut self, base: FactId, name: u32) -> Option<Fact>;
    /// Attribute that an exact built-in type has by itself (`list.append`): such types are immutable, so no guard is needed.
    fn type_attr(&mut self, ty: KnownType, name: u32) -> Option<Fact>;
    /// Some element of a container (the first), as a sample of its element type.
    fn item(&mut self, container: FactId) -> Option<Fact>;
    /// Where an object's class keeps an attribute, if it is set there, and its value as a sample.
    fn member(&mut self, object: FactId, name: u32, access: Access) -> Option<(Member, Fact)>;
    /// The function that a method call of an object would call with it.
    fn method(&mut self, object: FactId, name: u32) -> Option<(Method, Fact)>;
    /// The function that reads an object's attribute, when its class has a property of that name.
    fn getter(&mut self, object: FactId, name: u32) -> Option<Fact>;
    /// A sample made of the picture that the profile has at an offset, if the class is still what it was.
    fn pictured(&mut self, offset: u32) -> Option<FactId>;
    /// Profile of the instruction at an offset.
    fn observed(&self, offset: u32) -> Observed;
    /// True when a guard of the instruction at this offset failed so often that it must not be speculated on again.
    fn blocked(&self, offset: u32) -> bool;
}

/// How the compiled code is entered.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// By a call: one sample per argument local (positional, keyword-only, `*args`, `**kwargs`).
    Call(Vec<Fact>),
    /// In a running frame at a loop head: samples of the fast locals (`None`: unset) and of the evaluation stack
    /// (`None`: a null entry). IR parameters are the locals, then the stack; the frame keeps owning them.
    Loop { offset: u32, locals: Vec<Option<Fact>>, stack: Vec<Option<Fact>> },
}

/// How a source line or instruction runs in compiled code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    Native,
    /// As an object operation, inline.
    ThroughCPython,
    /// Leaves for the interpreter.
    Interpreted,
}

/// One remark for `explain`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub offset: u32,
    pub line: Option<u32>,
    pub status: Status,
    /// Why it is not native; when it is, what else there is to say.
    pub why: String,
}

/// A variable, as a code object numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// A slot of the frame: local, cell or free variable.
    Local(u32),
    /// `co_names[n]`, of a module's loop that keeps it in a register.
    Global(u32),
}

/// What is known of a variable behind the instruction that reads or binds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Typed {
    pub offset: u32,
    pub name: Named,
    pub ty: String,
}

/// Result of a translation.
#[derive(Clone, Debug)]
pub struct Translation {
    pub function: overdrive_ir::function::Function,
    pub notes: Vec<Note>,
    /// In the order of translation.
    pub typed: Vec<Typed>,
    /// Bytecode offset of each profile slot.
    pub profile: Vec<u32>,
    /// Types of the locals, for people: name → type.
    pub types: Vec<(String, String)>,
}

/// Why a code object is not compiled at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub line: Option<u32>,
    pub why: String,
}
