//! LLVM's description of the machine: one `TargetMachine` per thread and setting, since making one costs more than a
//! small compile and sharing one between threads is not allowed.
//!
//! Objects are always ELF: the loader reads one format on every system.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Once, OnceLock};

use inkwell::OptimizationLevel;
use inkwell::memory_buffer::MemoryBuffer;
use inkwell::module::Module;
use inkwell::targets::{CodeModel, FileType, InitializationConfig, RelocMode, TargetMachine, TargetTriple};

use crate::compile::{Level, Options};
use crate::error::CodegenError;
use crate::settings;

/// A target machine of this thread.
pub(crate) struct Machine {
    pub(crate) llvm: TargetMachine,
    triple: TargetTriple,
    cpu: Option<String>,
    level: Level,
}

/// The triple of the processor we run on, with ELF objects.
#[cfg(target_arch = "x86_64")]
const TRIPLE: Option<&str> = Some("x86_64-unknown-linux-gnu");
/// The triple of the processor we run on, with ELF objects.
#[cfg(target_arch = "aarch64")]
const TRIPLE: Option<&str> = Some("aarch64-unknown-linux-gnu");
/// No code generator for this processor.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const TRIPLE: Option<&str> = None;

thread_local! {
    static MACHINES: RefCell<Vec<Rc<Machine>>> = const { RefCell::new(Vec::new()) };
}

/// The machine for these options; made at the thread's first use.
pub(crate) fn for_thread(options: &Options) -> Result<Rc<Machine>, CodegenError> {
    MACHINES.with_borrow_mut(|machines| {
        let known = machines.iter().find(|m| m.level == options.level && m.cpu == options.cpu);
        if let Some(machine) = known {
            return Ok(Rc::clone(machine));
        }
        let machine = Rc::new(Machine::new(options)?);
        machines.push(Rc::clone(&machine));
        Ok(machine)
    })
}

/// Name of this processor and its features as LLVM writes them: `+avx2,-sse4a,…`.
fn host() -> (&'static str, &'static str) {
    static HOST: OnceLock<(String, String)> = OnceLock::new();
    let (cpu, features) = HOST.get_or_init(|| {
        let cpu = TargetMachine::get_host_cpu_name().to_string();
        (cpu, TargetMachine::get_host_cpu_features().to_string())
    });
    (cpu, features)
}

/// Name and features of the processor that code is generated for.
pub(crate) fn processor_of(options: &Options) -> (&str, &'static str) {
    match &options.cpu {
        Some(cpu) => (cpu, ""),
        None => host(),
    }
}

/// What code is made for on this machine: the processor's name and the features that it has, in LLVM's words.
pub fn processor() -> (&'static str, Vec<&'static str>) {
    let (cpu, features) = host();
    (cpu, features.split(',').filter_map(|feature| feature.strip_prefix('+')).collect())
}

/// Version of the LLVM that is linked in.
pub fn llvm_version() -> String {
    let (major, minor, patch) = inkwell::support::get_llvm_version();
    format!("{major}.{minor}.{patch}")
}

impl Machine {
    fn new(options: &Options) -> Result<Machine, CodegenError> {
        static INITIALISED: Once = Once::new();
        let unsupported = || CodegenError::UnsupportedMachine {
            triple: TargetMachine::get_default_triple().as_str().to_string_lossy().into_owned(),
        };
        let triple = TargetTriple::create(TRIPLE.ok_or_else(unsupported)?);
        INITIALISED.call_once(|| {
            let config = InitializationConfig { asm_parser: false, ..InitializationConfig::default() };
            settings::apply();
            // A failure shows at `from_triple`, which then finds no target.
            let _ = inkwell::targets::Target::initialize_native(&config);
        });
        let (cpu, features) = processor_of(options);
        let level = match options.level {
            Level::Quick => OptimizationLevel::Less,
            Level::Full => OptimizationLevel::Default,
        };
        // PIC and the small code model: everything a function refers to by symbol lies in its own mapping.
        let llvm = inkwell::targets::Target::from_triple(&triple)
            .map_err(|_| unsupported())?
            .create_target_machine(&triple, cpu, features, level, RelocMode::PIC, CodeModel::Small)
            .ok_or_else(unsupported)?;
        Ok(Machine { llvm, triple, cpu: options.cpu.clone(), level: options.level })
    }

    /// Tells the module which machine it is for; passes need it.
    pub(crate) fn describe(&self, module: &Module<'_>) {
        module.set_triple(&self.triple);
        module.set_data_layout(&self.llvm.get_target_data().get_data_layout());
    }

    /// Machine code or assembly of the module.
    pub(crate) fn emit(
        &self,
        module: &Module<'_>,
        kind: FileType,
    ) -> Result<MemoryBuffer<'static>, CodegenError> {
        self.llvm
            .write_to_memory_buffer(module, kind)
            .map_err(|e| CodegenError::Llvm { stage: "emit", message: e.to_string() })
    }
}
