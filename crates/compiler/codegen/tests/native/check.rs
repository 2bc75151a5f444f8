//! One function, run by the interpreter and as machine code: for both object layouts and levels, undisturbed and with
//! each of its checks made to fail. Both must end the same way and leave the same objects behind.

use std::collections::BTreeSet;

use overdrive_base::table::Entry;
use overdrive_codegen::{Compiled, Level, Options, compile, load};
use overdrive_ir::function::Function;
use overdrive_ir::interpret::heap::{Heap, Object, Ref};
use overdrive_ir::interpret::mock::MockTable;
use overdrive_ir::interpret::{self, Forced, Outcome};
use overdrive_ir::opt::optimise;
use overdrive_ir::parse::parse;
use overdrive_ir::verify::assert_valid;

use crate::run::{Run, entries, target};
use crate::world::{Python, World};

/// What a function is run with. Called anew for each run, and must do the same each time.
pub(crate) type Setup<'a> = &'a dyn Fn(&mut Heap) -> Input;

/// Constants (one per constant of the function), arguments, and the poll that raises.
#[derive(Default)]
pub(crate) struct Input {
    pub(crate) consts: Vec<Ref>,
    pub(crate) args: Vec<Option<Ref>>,
    pub(crate) interrupt: Option<(u32, String)>,
    pub(crate) is_frameless: bool,
}

/// Mnemonics of everything that ran.
pub(crate) type Covered = BTreeSet<&'static str>;

/// Runs a function in text form; see the module.
#[track_caller]
pub(crate) fn check(text: &str, setup: Setup<'_>) -> Covered {
    let f = parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    check_function(&f, setup)
}

/// As `check`, with a maker of arguments only.
#[track_caller]
pub(crate) fn check_args(text: &str, args: impl Fn(&mut Heap) -> Vec<Object>) -> Covered {
    check(text, &|heap| {
        let objects = args(heap);
        Input { args: objects.into_iter().map(|o| Some(heap.add(o))).collect(), ..Input::default() }
    })
}

/// As `check`, for one call.
#[track_caller]
pub(crate) fn check_function(f: &Function, setup: Setup<'_>) -> Covered {
    check_calls(f, &[("", setup)])
}

/// See the module. All calls share the constants, and so the code; each has a name for people. At the full level the
/// function goes through the IR's own optimiser first, as it does in the engine.
#[track_caller]
pub(crate) fn check_calls(f: &Function, calls: &[(&str, Setup<'_>)]) -> Covered {
    assert_valid(f, "reading the case");
    let mut optimised = f.clone();
    optimise(&mut optimised);
    let mut covered = Covered::new();
    for python in [Python::V311, Python::V312] {
        for (level, f) in [(Level::Quick, f), (Level::Full, f), (Level::Full, &optimised)] {
            let Some((_, first)) = calls.first() else { continue };
            let asks = compiled(f, first, python, level, overdrive_codegen::Forced::Ask);
            let plain = compiled(f, first, python, level, overdrive_codegen::Forced::No);
            for (name, setup) in calls {
                let run = |code, forced, asks| compare(f, (name, setup), python, code, forced, asks);
                let trace = run(&plain, Forced::No, false);
                run(&asks, Forced::No, true);
                for k in 0..trace.checks.len().min(60) {
                    run(&asks, Forced::Guard(k as u32), true);
                }
                run(&asks, Forced::Seeded(trace.checks.len() as u64), true);
                covered.extend(trace.mnemonics);
            }
        }
    }
    covered
}

#[track_caller]
fn compiled(
    f: &Function,
    setup: Setup<'_>,
    python: Python,
    level: Level,
    forced: overdrive_codegen::Forced,
) -> Compiled {
    let (world, consts, _) = build(setup, python);
    let consts: Vec<usize> = consts.consts.iter().map(|r| world.address(*r)).collect();
    let entries: Vec<usize> = entries();
    debug_assert_eq!(entries.len(), Entry::ALL.len());
    let options = Options { forced, level, pack: true, ..Options::default() };
    let target = target(&world, &entries, &consts);
    // What runs is what another process would load.
    let packed = compile(f, &target, &options).map(|mut code| code.take_packed().expect("asked for"));
    match packed.and_then(|packed| load(&packed, &target)) {
        Ok(code) => code,
        Err(e) => panic!("{e}\n{f}"),
    }
}

/// A world, built in the same way whenever it is built.
fn build(setup: Setup<'_>, python: Python) -> (World, Input, Vec<Ref>) {
    let mut heap = Heap::new();
    let input = setup(&mut heap);
    let mut world = World::new(heap, python);
    let consts: Vec<Ref> = input.consts.clone();
    for r in &consts {
        world.adopt(*r);
    }
    (world, input, consts)
}

#[track_caller]
fn compare(
    f: &Function,
    (name, setup): (&str, Setup<'_>),
    python: Python,
    code: &Compiled,
    forced: Forced,
    asks: bool,
) -> interpret::Trace {
    let context = format!("{name} {python:?}, {forced:?}\n{f}");

    // The interpreter, on a heap that holds the same objects.
    let (mut shadow, input, _) = build(setup, python);
    let mut table = mock(&input);
    let options = interpret::Options { forced, ..interpret::Options::default() };
    let heap = &mut shadow.heap;
    let (expected, trace) = interpret::run(f, &input.consts, input.args, heap, &mut table, options)
        .unwrap_or_else(|e| panic!("the interpreter finds: {e}\n{context}"));
    let expected_heap = std::mem::take(&mut shadow.heap);

    let (world, input, consts) = build(setup, python);
    let table = mock(&input);
    let mut run = Run::new(world, table, f, consts);
    let got = run.call(code, &input.args, forced).unwrap_or_else(|e| panic!("native code: {e}\n{context}"));

    if asks {
        let checks: Vec<_> = trace.checks.iter().map(|c| c.exit).collect();
        assert_eq!(
            run.checks, checks,
            "other checks ran natively (left) than interpreted (right)\n{context}"
        );
    }
    assert_eq!(got, expected, "native (left), interpreted (right)\n{context}");
    if let (Outcome::Returned(a), Outcome::Returned(b)) = (&got, &expected) {
        assert_eq!(describe(&run.world.heap, *a), describe(&expected_heap, *b), "{context}");
    }
    assert_eq!(run.world.heap.log, expected_heap.log, "{context}");
    for r in run.world.live() {
        let object = format!("{:?}", run.world.heap.get(r));
        assert_eq!(object, format!("{:?}", expected_heap.get(r)), "{context}");
        let counted = !matches!(run.world.heap.get(r), Ok(Object::None | Object::Bool(_)));
        if counted || python == Python::V311 {
            let counts = (run.world.heap.ref_count(r), expected_heap.ref_count(r));
            assert_eq!(counts.0, counts.1, "references of {object}\n{context}");
        }
    }
    assert_eq!(alive(&run.world.heap, python), alive(&expected_heap, python), "{context}");
    trace
}

fn mock(input: &Input) -> MockTable {
    MockTable { interrupt: input.interrupt.clone(), is_frameless: input.is_frameless, ..MockTable::default() }
}

fn describe(heap: &Heap, r: Ref) -> String {
    format!("{:?}", heap.get(r))
}

/// Everything that lives, as text; without singletons where they are not counted.
fn alive(heap: &Heap, python: Python) -> Vec<String> {
    let counted = |line: &String| python == Python::V311 || line.starts_with("object");
    heap.leaks().into_iter().filter(counted).collect()
}
