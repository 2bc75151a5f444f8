//! The IR's run-cases, as machine code. What must come out is written in the files and tested there; here the interpreter
//! says it, for every check made to fail as well.

use std::fs;
use std::path::Path;

use overdrive_ir::cases::heap::build;
use overdrive_ir::cases::literal::Literal;
use overdrive_ir::cases::{Call, Case, read};
use overdrive_ir::interpret::heap::{Heap, Ref};

use crate::check::{Covered, Input, Setup, check_calls};

#[test]
fn run_cases_agree_with_the_interpreter() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ir/tests/cases");
    let mut files: Vec<_> =
        fs::read_dir(&folder).expect("the cases").map(|e| e.expect("a file").path()).collect();
    files.sort();
    let mut covered = Covered::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("a case");
        let cases = read(&text).unwrap_or_else(|e| panic!("{}: {e:?}", file.display()));
        for case in &cases {
            let names: Vec<String> =
                case.calls.iter().map(|call| format!("{}:{}", file.display(), call.line)).collect();
            let setups: Vec<_> =
                case.calls.iter().map(|call| |heap: &mut Heap| input(heap, case, call)).collect();
            let calls: Vec<(&str, Setup<'_>)> =
                names.iter().zip(&setups).map(|(name, setup)| (name.as_str(), setup as Setup<'_>)).collect();
            covered.extend(check_calls(&case.function, &calls));
        }
    }
    let missing: Vec<_> = MNEMONICS.iter().filter(|m| !covered.contains(*m)).collect();
    assert!(missing.is_empty(), "no case runs {missing:?}");
}

/// First word of every instruction, but for the numbers of one family, which `numbers` goes through.
const MNEMONICS: &[&str] = &[
    "iconst",
    "fconst",
    "f32const",
    "bconst",
    "oconst",
    "null",
    "checked_add",
    "checked_sub",
    "checked_mul",
    "icmp",
    "ult",
    "fcmp",
    "int_to_float",
    "float_to_int",
    "f32_to_f64",
    "f64_to_f32",
    "band",
    "bor",
    "bxor",
    "not",
    "bool_to_int",
    "select",
    "guard",
    "type_is",
    "same",
    "is_null",
    "array_is",
    "unbox",
    "list_get",
    "tuple_get",
    "list_swap",
    "load",
    "store",
    "ptr_add",
    "incref",
    "decref",
    "own_arg",
    "table",
    "poll",
    "has_frame",
];

fn input(heap: &mut Heap, case: &Case, call: &Call) -> Input {
    let consts = all(heap, &case.consts).into_iter().map(|c| c.expect("a constant is set")).collect();
    Input {
        consts,
        args: all(heap, &call.args),
        interrupt: call.poll.clone(),
        is_frameless: call.is_frameless,
    }
}

/// Objects that may refer to those before them.
fn all(heap: &mut Heap, literals: &[Literal]) -> Vec<Option<Ref>> {
    let mut built: Vec<Option<Ref>> = Vec::new();
    for literal in literals {
        let r = build(heap, literal, &built).expect("a literal");
        built.push(r);
    }
    built
}
