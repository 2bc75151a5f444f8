//! Why no machine code came out. None of these is the user's fault: each is a bug of ours or a limit of the machine.

use std::fmt;

use inkwell::builder::BuilderError;
use overdrive_base::table::Entry;

/// Failure of a compile.
#[derive(Debug)]
pub enum CodegenError {
    /// The function breaks a rule of the IR (a front-end or optimiser bug).
    Malformed { function: String, what: String },
    /// The object table has no address for an entry that the function uses.
    MissingEntry(Entry),
    /// The function has more constants than addresses were given.
    MissingConst { index: usize, given: usize },
    /// LLVM refused; `stage` says where.
    Llvm { stage: &'static str, message: String },
    /// LLVM's object file holds something that the loader does not know.
    Object { what: String },
    /// The operating system gave no code memory.
    Memory { call: &'static str, source: std::io::Error },
    /// This build has no code generator for the machine it runs on.
    UnsupportedMachine { triple: String },
}

impl fmt::Display for CodegenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CodegenError::Malformed { function, what } => write!(f, "malformed IR in {function}: {what}"),
            CodegenError::MissingEntry(entry) => write!(f, "the object table has no `{}`", entry.name()),
            CodegenError::MissingConst { index, given } => {
                write!(f, "const{index} has no address ({given} given)")
            }
            CodegenError::Llvm { stage, message } => write!(f, "LLVM failed in {stage}: {message}"),
            CodegenError::Object { what } => write!(f, "cannot load LLVM's object: {what}"),
            CodegenError::Memory { call, source } => write!(f, "no code memory: {call}: {source}"),
            CodegenError::UnsupportedMachine { triple } => write!(f, "no code generator for {triple}"),
        }
    }
}

impl std::error::Error for CodegenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CodegenError::Memory { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<BuilderError> for CodegenError {
    fn from(error: BuilderError) -> Self {
        CodegenError::Llvm { stage: "lower", message: error.to_string() }
    }
}
