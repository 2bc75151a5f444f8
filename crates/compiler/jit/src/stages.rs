//! The stages that turn one function into code. `compile` is the whole list.
//!
//! Runs on any thread with 8 MB of stack, without the GIL; several may run at once.

use std::fmt;
use std::time::{Duration, Instant};

use overdrive_codegen::{CodegenError, Compiled, Key, Options, Target};
use overdrive_ir::function::Function;
use overdrive_ir::opt::optimise;
use overdrive_ir::verify::{VerifyError, verify};
use overdrive_store::Store;

/// What to compile, and how.
#[derive(Clone, Debug)]
pub struct CompileRequest {
    pub function: Function,
    pub options: Options,
}

/// Machine code that was made before, by this build or another.
#[derive(Clone, Copy, Debug)]
pub struct Cache<'a> {
    pub store: &'a Store,
    /// The identity of this build: the same bytes mean the same stages, LLVM included.
    pub build: &'a [u8],
}

/// A compiled function. Exits refer to `function`, so it stays with the code.
#[derive(Debug)]
pub struct Version {
    /// The IR that the code was made from, after all stages.
    pub function: Function,
    pub code: Compiled,
    /// The machine code is from the cache.
    pub is_cached: bool,
    /// Machine code that the cache does not have yet: see [`Version::take_news`].
    news: Option<News>,
    /// Time of each stage, in order; those of code generation come one by one, as `codegen.<stage>`.
    pub timings: Vec<(String, Duration)>,
}

/// Something to be put into the cache.
#[derive(Debug)]
pub struct News {
    key: Key,
    packed: Vec<u8>,
}

impl Version {
    /// What the cache does not have; once. Putting it there takes about a millisecond, so the code may be used first.
    pub fn take_news(&mut self) -> Option<News> {
        self.news.take()
    }
}

impl News {
    pub fn keep(&self, store: &Store) {
        store.put(&self.key, &self.packed);
    }
}

/// Why there is no code. Always a bug of ours or a limit of the machine, never the user's fault.
#[derive(Debug)]
pub enum JitError {
    /// A stage handed on IR that breaks its rules.
    Invalid {
        after: &'static str,
        errors: Vec<VerifyError>,
    },
    Codegen(CodegenError),
}

/// All stages, in order.
///
/// # Errors
/// `Invalid` in debug builds, where the front end's function is verified (and the optimiser panics when one of its passes
/// breaks it); `Codegen` for what code generation reports.
///
/// Values and exits of the function get new numbers, constants and profile slots keep theirs. With a cache, code
/// generation is left out where the same was generated before; all stages in front of it run, so what the function
/// assumes is always assumed anew.
pub fn compile(
    request: CompileRequest,
    target: &Target<'_>,
    cache: Option<Cache<'_>>,
) -> Result<Version, JitError> {
    let CompileRequest { mut function, mut options } = request;
    let mut clock = Clock { timings: vec![] };

    clock.run("verify", || check(&function, "the front end"))?;
    clock.run("optimise", || optimise(&mut function));
    let mut key = None;
    if let Some(cache) = cache {
        let (asked, found) = clock.run("cache", || look(&function, target, &options, cache));
        if let Some(code) = found {
            return Ok(Version { function, code, is_cached: true, news: None, timings: clock.timings });
        }
        key = Some(asked);
        options.pack = true;
    }
    let mut code = clock.run("codegen", || overdrive_codegen::compile(&function, target, &options))?;

    let inner = code.timings().iter().map(|(name, time)| (format!("codegen.{name}"), *time));
    clock.timings.extend(inner);
    let news = key.zip(code.take_packed()).map(|(key, packed)| News { key, packed });
    Ok(Version { function, code, is_cached: false, news, timings: clock.timings })
}

/// The key, and the code if the cache has it. What cannot be loaded is made again, and replaced.
fn look(
    function: &Function,
    target: &Target<'_>,
    options: &Options,
    cache: Cache<'_>,
) -> (Key, Option<Compiled>) {
    let key = overdrive_codegen::key(function, target, options, cache.build);
    let packed = cache.store.get(&key);
    (key, packed.and_then(|packed| overdrive_codegen::load(&packed, target).ok()))
}

/// The written rules of the IR. Costs as much as a pass, so only debug builds ask.
fn check(function: &Function, after: &'static str) -> Result<(), JitError> {
    if !cfg!(debug_assertions) {
        return Ok(());
    }
    match verify(function) {
        errors if errors.is_empty() => Ok(()),
        errors => Err(JitError::Invalid { after, errors }),
    }
}

struct Clock {
    timings: Vec<(String, Duration)>,
}

impl Clock {
    fn run<T>(&mut self, name: &str, stage: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = stage();
        self.timings.push((name.to_owned(), start.elapsed()));
        result
    }
}

impl fmt::Display for JitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JitError::Invalid { after, errors } => {
                write!(f, "{after} made IR that breaks its rules")?;
                errors.iter().try_for_each(|e| write!(f, "\n  {e}"))
            }
            JitError::Codegen(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for JitError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            JitError::Invalid { .. } => None,
            JitError::Codegen(error) => Some(error),
        }
    }
}

impl From<CodegenError> for JitError {
    fn from(error: CodegenError) -> JitError {
        JitError::Codegen(error)
    }
}
