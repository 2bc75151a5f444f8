//! Runs a case on the interpreter.

use crate::cases::heap::{build, read, read_object};
use crate::cases::{Call, Case, Ending, Literal};
use crate::interpret::heap::{Heap, Ref};
use crate::interpret::mock::MockTable;
use crate::interpret::{Forced, Options, Outcome, State, Trace, run};

/// What came of a call.
#[derive(Clone, Debug)]
pub struct Observed {
    pub ending: Ending,
    /// Arguments afterwards; only when the call says that it looks at them.
    pub args_after: Option<Vec<Literal>>,
    pub log: Vec<String>,
    pub trace: Trace,
}

/// Interprets one call. The heap is balanced afterwards, or it is an error.
///
/// # Errors
/// The fault of the function, or objects that are still alive.
pub fn interpret(case: &Case, call: &Call, forced: Forced) -> Result<Observed, String> {
    let mut heap = Heap::new();
    let mut table =
        MockTable { interrupt: call.poll.clone(), is_frameless: call.is_frameless, ..MockTable::default() };
    let mut built: Vec<Option<Ref>> = Vec::new();
    for c in &case.consts {
        let r = build(&mut heap, c, &built)?;
        built.push(Some(r.ok_or("a constant is not set")?));
    }
    let consts: Vec<Ref> = built.into_iter().flatten().collect();
    let mut args: Vec<Option<Ref>> = Vec::new();
    for arg in &call.args {
        let r = build(&mut heap, arg, &args)?;
        args.push(r);
    }
    let keep: Vec<Ref> = match call.args_after {
        Some(_) => args.iter().flatten().map(|r| heap.retain(*r)).collect::<Result<_, _>>()?,
        None => vec![],
    };
    let options = Options { forced, ..Options::default() };
    let (outcome, trace) = run(&case.function, &consts, args.clone(), &mut heap, &mut table, options)
        .map_err(|fault| fault.to_string())?;

    // What happens to the objects from here on is the harness's doing.
    let log = std::mem::take(&mut heap.log);
    let args_after = match call.args_after {
        Some(_) => Some(args.iter().map(|r| read_arg(&heap, *r, &args)).collect::<Result<_, _>>()?),
        None => None,
    };
    let (ending, owned) = ending(&heap, outcome, &args)?;
    heap.release_all(owned)?;
    heap.release_all(keep)?;
    heap.release_all(consts)?;
    match heap.leaks() {
        leaks if leaks.is_empty() => Ok(Observed { ending, args_after, log, trace }),
        leaks => Err(leaks.join("\n")),
    }
}

fn read_arg(heap: &Heap, r: Option<Ref>, args: &[Option<Ref>]) -> Result<Literal, String> {
    r.map_or(Ok(Literal::Unset), |r| read_object(heap, r, args))
}

/// The ending as text, and the references that came with it.
fn ending(heap: &Heap, outcome: Outcome, args: &[Option<Ref>]) -> Result<(Ending, Vec<Ref>), String> {
    let slots = |slots: &[Option<Ref>]| {
        slots.iter().map(|r| read(heap, *r, args)).collect::<Result<Vec<Literal>, String>>()
    };
    let owned = |state: &State| state.locals.iter().chain(&state.stack).flatten().copied().collect();
    Ok(match outcome {
        Outcome::Returned(r) => (Ending::Returns(read(heap, Some(r), args)?), vec![r]),
        Outcome::Left(state) => {
            let (locals, stack) = (slots(&state.locals)?, slots(&state.stack)?);
            (Ending::Leaves { exit: state.exit, locals, stack }, owned(&state))
        }
        Outcome::Raised { state, exception } => {
            let (locals, stack) = (slots(&state.locals)?, slots(&state.stack)?);
            (Ending::Raises { exit: state.exit, exception, locals, stack }, owned(&state))
        }
    })
}
