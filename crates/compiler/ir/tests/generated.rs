//! Generated functions. Any function survives print and parse, so does its text any number of lost bytes without a panic.
//! The optimiser changes nothing that anybody can see: runnable functions and all run-cases end in the same way before and
//! after, with the same log, and every check that is left, forced to fail, leaves with the same state.

mod generate;

use std::fs;
use std::path::Path;

use overdrive_ir::cases::{self, Call, Case, Ending, Observed, interpret, literal::Literal};
use overdrive_ir::function::Function;
use overdrive_ir::interpret::{Check, Forced};
use overdrive_ir::opt::optimise;
use overdrive_ir::parse::parse;
use overdrive_ir::verify::{assert_valid, verify};

/// An ending without ids, which the optimiser gives anew.
fn ending(f: &Function, ending: &Ending) -> String {
    match ending {
        Ending::Returns(x) => x.to_string(),
        Ending::Leaves { exit, .. } | Ending::Raises { exit, .. } => {
            let text = ending.to_string().replace(&exit.to_string(), "");
            let exit = &f.exits[exit.index()];
            format!("{:?} {} {} {text}", exit.kind, exit.offset, exit.reason)
        }
    }
}

fn observed(f: &Function, seen: &Observed) -> (String, Vec<String>, Option<Vec<Literal>>) {
    (ending(f, &seen.ending), seen.log.clone(), seen.args_after.clone())
}

fn reason<'a>(f: &'a Function, check: &Check) -> &'a str {
    &f.exits[check.exit.index()].reason
}

/// The number of the check that runs as the n-th of its reason.
fn nth(f: &Function, checks: &[Check], name: &str, n: usize) -> Option<u32> {
    let mut of_reason = checks.iter().enumerate().filter(|(_, c)| reason(f, c) == name);
    of_reason.nth(n).map(|(k, _)| k as u32)
}

/// Compares a case with its optimised self. `unique`: every check has an exit of its own, so that each can be found again.
fn check(case: &Case, call: &Call, unique: bool) {
    let mut optimised = case.clone();
    optimise(&mut optimised.function);
    let (before, after) = (&case.function, &optimised.function);
    let both = || format!("\n{before}\n{after}");
    let free = interpret(case, call, Forced::No).unwrap_or_else(|e| panic!("before: {e}{}", both()));
    let fast = interpret(&optimised, call, Forced::No).unwrap_or_else(|e| panic!("after: {e}{}", both()));
    assert_eq!(observed(before, &free), observed(after, &fast), "{}", both());
    for (k, check) in (0..60).zip(&fast.trace.checks) {
        let seen =
            interpret(&optimised, call, Forced::Guard(k)).unwrap_or_else(|e| panic!("{k}: {e}{}", both()));
        if !unique {
            continue;
        }
        let name = reason(after, check);
        let earlier = fast.trace.checks[..k as usize].iter().filter(|c| reason(after, c) == name).count();
        let same = nth(before, &free.trace.checks, name, earlier).expect("the check was there before");
        let wanted = interpret(case, call, Forced::Guard(same)).unwrap_or_else(|e| panic!("{e}{}", both()));
        assert_eq!(observed(before, &wanted), observed(after, &seen), "force {k}{}", both());
    }
}

#[test]
fn run_cases_end_as_before() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut n = 0;
    for entry in fs::read_dir(dir).expect("tests/cases is there") {
        let text = fs::read_to_string(entry.expect("readable").path()).expect("readable");
        for case in cases::read(&text).expect("parses") {
            case.calls.iter().for_each(|call| check(&case, call, false));
            n += case.calls.len();
        }
    }
    assert!(n > 200, "only {n} calls were found");
}

/// A call of a generated function.
fn generated(seed: u64, size: usize, int: i128, float: f64) -> (Case, Call) {
    let function = generate::runnable::function(seed, size);
    assert_valid(&function, "generation");
    let tracked = |name: &str| Literal::Tracked(name.to_owned(), vec![]);
    let list = Literal::List(["p", "q", "r", "s"].into_iter().map(tracked).collect());
    let call = Call {
        line: 0,
        args: vec![Literal::Int(int), Literal::Float(float), list, tracked("t")],
        ending: Ending::Returns(Literal::None),
        args_after: None,
        log: vec![],
        poll: None,
        is_frameless: false,
        forced: vec![],
    };
    (Case { function, consts: vec![Literal::Callable("count".to_owned())], calls: vec![] }, call)
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config { cases: 400, ..Default::default() })]

    #[test]
    fn any_function_survives_print_and_parse(seed in proptest::num::u64::ANY, size in 0usize..60) {
        let f = generate::any::function(seed, size);
        let text = f.to_string();
        let back = parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        proptest::prop_assert_eq!(back.to_string(), text);
        proptest::prop_assert_eq!(back, f);
    }

    #[test]
    fn damaged_text_and_invalid_functions_cause_no_panic(
        seed in proptest::num::u64::ANY,
        size in 0usize..30,
        cut in 0usize..2000,
        len in 1usize..20,
    ) {
        let f = generate::any::function(seed, size);
        verify(&f);
        let text: Vec<char> = f.to_string().chars().collect();
        let (cut, end) = (cut.min(text.len()), (cut + len).min(text.len()));
        let damaged: String = text[..cut].iter().chain(&text[end.max(cut)..]).collect();
        if let Ok(f) = parse(&damaged) {
            verify(&f);
        }
    }

    #[test]
    fn generated_functions_end_as_before(
        seed in proptest::num::u64::ANY,
        size in 0usize..30,
        int in -5i128..5,
        float in proptest::num::f64::ANY,
    ) {
        let (case, call) = generated(seed, size, int, float);
        check(&case, &call, true);
    }
}

#[test]
fn the_optimiser_finds_something_in_generated_functions() {
    // Were the generator dull, the test above would say nothing: checks, loops, pairs and constants must be there.
    let size = |f: &Function| f.blocks.iter().map(|b| b.insts.len()).sum::<usize>();
    let (mut before, mut after, mut endings) = (0, 0, std::collections::BTreeSet::new());
    for seed in 0..200 {
        let (mut case, call) = generated(seed, 25, 3, 0.5);
        let seen = interpret(&case, &call, Forced::No).expect("no fault");
        endings.insert(std::mem::discriminant(&seen.ending) == std::mem::discriminant(&call.ending));
        before += size(&case.function);
        optimise(&mut case.function);
        after += size(&case.function);
    }
    assert!(after * 4 < before * 3, "{before} instructions became {after}");
    assert_eq!(endings.len(), 2, "some calls return and some leave");
}
