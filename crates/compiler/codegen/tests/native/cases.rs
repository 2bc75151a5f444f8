//! The IR's run-cases, as machine code. What must come out is written in the files and tested there; here the interpreter
//! says it, for every check made to fail as well.

use std::fs;
use std::path::Path;

use overdrive_ir::cases::heap::build;
use overdrive_ir::cases::{Call, Case, read};
use overdrive_ir::interpret::heap::{Heap, Ref};

use crate::check::{Input, check_function};

#[test]
fn run_cases_agree_with_the_interpreter() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ir/tests/cases");
    let mut files: Vec<_> =
        fs::read_dir(&folder).expect("the cases").map(|e| e.expect("a file").path()).collect();
    files.sort();
    let mut n_calls = 0;
    for file in files {
        let text = fs::read_to_string(&file).expect("a case");
        let cases = read(&text).unwrap_or_else(|e| panic!("{}: {e:?}", file.display()));
        for case in &cases {
            for call in &case.calls {
                println!("{}:{} {}", file.display(), call.line, case.function.name);
                check_function(&case.function, &|heap| input(heap, case, call));
                n_calls += 1;
            }
        }
    }
    assert!(n_calls > 0, "no cases in {}", folder.display());
}

fn input(heap: &mut Heap, case: &Case, call: &Call) -> Input {
    let consts = case.consts.iter().map(|c| build(heap, c, &[]).expect("a literal").expect("set")).collect();
    let mut args: Vec<Option<Ref>> = Vec::new();
    for arg in &call.args {
        let arg = build(heap, arg, &args).expect("a literal");
        args.push(arg);
    }
    Input { consts, args, interrupt: call.poll.clone() }
}
