//! The stages from one IR function to code in memory, in order, each named and timed.

use std::time::{Duration, Instant};

use inkwell::context::Context;
use inkwell::targets::FileType;
use overdrive_ir::function::Function;

use crate::abi::{NativeFn, Target};
use crate::error::CodegenError;
use crate::load::{self, CodeMemory};
use crate::{lower, machine, pack, passes};

/// Whether checks may be made to fail from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Forced {
    /// Checks fail when they fail.
    No,
    /// Every guard, checked or declining operation first asks `Services::should_fail` (the exit fuzzer's mode). Exits
    /// that need an exception to be set are never forced.
    Ask,
}

/// How much time to spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// Scalar clean-up only; for code that may soon be replaced.
    Quick,
    /// Everything that pays, vectoriser included.
    Full,
}

/// How to compile.
#[derive(Clone, Debug)]
pub struct Options {
    pub forced: Forced,
    /// LLVM's name of the CPU to generate for; `None`: the host with all its features.
    pub cpu: Option<String>,
    /// Keep LLVM IR and assembly as text, for `explain`. Doubles the time of a compile.
    pub keep: bool,
    /// Keep the object, for another process to load.
    pub pack: bool,
    pub level: Level,
}

impl Default for Options {
    fn default() -> Options {
        Options { forced: Forced::No, cpu: None, keep: false, pack: false, level: Level::Full }
    }
}

/// Machine code of one function. Unmapped on drop: nobody may be inside it or hold `entry` then.
#[derive(Debug)]
pub struct Compiled {
    memory: CodeMemory,
    entry: NativeFn,
    llvm_ir: Option<String>,
    asm: Option<String>,
    packed: Option<Vec<u8>>,
    vector_functions: Vec<&'static str>,
    timings: Vec<(&'static str, Duration)>,
}

impl Compiled {
    /// The function. Valid while `self` lives.
    pub fn entry(&self) -> NativeFn {
        self.entry
    }

    /// Bytes of code and constants, without padding to pages.
    pub fn code_size(&self) -> usize {
        self.memory.used()
    }

    /// Optimised LLVM IR, with `Options::keep`.
    pub fn llvm_ir(&self) -> Option<&str> {
        self.llvm_ir.as_deref()
    }

    /// Assembly, with `Options::keep`.
    pub fn asm(&self) -> Option<&str> {
        self.asm.as_deref()
    }

    /// What `load` takes, with `Options::pack`; once.
    pub fn take_packed(&mut self) -> Option<Vec<u8>> {
        self.packed.take()
    }

    /// Functions of `math` that are called in a vector form.
    pub fn vector_functions(&self) -> &[&'static str] {
        &self.vector_functions
    }

    /// Time of each stage, in order.
    pub fn timings(&self) -> &[(&'static str, Duration)] {
        &self.timings
    }
}

/// Compiles `f` for this process. Costs milliseconds; needs no lock of Python's.
///
/// # Errors
/// `Malformed`, `MissingEntry`, `MissingConst` for input that breaks the contract; `Llvm`, `Object` for bugs of ours;
/// `Memory`, `UnsupportedMachine` for limits of the machine.
pub fn compile(f: &Function, target: &Target<'_>, options: &Options) -> Result<Compiled, CodegenError> {
    let mut clock = Clock::start();
    let machine = machine::for_thread(options)?;
    clock.stage("machine");

    let context = Context::create();
    let module = lower::module(&context, f, target, options, false)?;
    machine.describe(&module);
    clock.stage("lower");

    if cfg!(debug_assertions) {
        module.verify().map_err(|e| CodegenError::Llvm { stage: "verify", message: e.to_string() })?;
        clock.stage("verify");
    }

    passes::run(&module, &machine, options.level, f.has_neighbours)?;
    let mut vector_functions = vec![];
    if f.fastmath {
        vector_functions = lower::vector_forms_called(&module);
        passes::inline_forwards(&module, &machine)?;
    }
    clock.stage("optimise");

    let llvm_ir = options.keep.then(|| module.print_to_string().to_string());
    let asm = match options.keep {
        // Emission rewrites the module, so the text comes from a copy.
        true => Some(machine.emit(&module.clone(), FileType::Assembly)?),
        false => None,
    };
    if options.keep {
        clock.stage("texts");
    }

    let object = machine.emit(&module, FileType::Object)?;
    clock.stage("emit");

    let (memory, entry) = load::object(object.as_slice(), lower::SYMBOL, target)?;
    clock.stage("load");

    let packed = options.pack.then(|| pack::pack(object.as_slice(), &vector_functions));
    let asm = asm.map(|text| String::from_utf8_lossy(text.as_slice()).trim_end_matches('\0').to_owned());
    Ok(Compiled { memory, entry, llvm_ir, asm, packed, vector_functions, timings: clock.stages })
}

/// Code that was compiled before, in this process or another: `packed` is what [`Compiled::take_packed`] gave there, and
/// [`crate::key()`] of that compile was the same as of this one. Needs nothing of LLVM.
///
/// # Errors
/// `Object` when the bytes are not such, or refer to something that `target` does not have; `Memory`.
pub fn load(packed: &[u8], target: &Target<'_>) -> Result<Compiled, CodegenError> {
    let mut clock = Clock::start();
    let (object, vector_functions) = pack::unpack(packed)?;
    let (memory, entry) = load::object(object, lower::SYMBOL, target)?;
    clock.stage("load");
    let timings = clock.stages;
    Ok(Compiled { memory, entry, llvm_ir: None, asm: None, packed: None, vector_functions, timings })
}

struct Clock {
    last: Instant,
    stages: Vec<(&'static str, Duration)>,
}

impl Clock {
    fn start() -> Clock {
        Clock { last: Instant::now(), stages: Vec::with_capacity(8) }
    }

    fn stage(&mut self, name: &'static str) {
        let now = Instant::now();
        self.stages.push((name, now - self.last));
        self.last = now;
    }
}
