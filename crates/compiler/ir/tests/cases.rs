//! The run-cases, interpreted: each call as it is, with every check forced to fail in turn, with checks failing at random,
//! and after the optimiser. Every instruction of the IR runs in some case.
//!
//! `cargo test -p overdrive-ir --test cases -- --ignored bless` writes the `force` lines anew; look at what changed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use overdrive_ir::cases::{self, Call, Case, Ending, interpret};
use overdrive_ir::interpret::{Check, Forced};
use overdrive_ir::verify::assert_valid;

/// Dynamic checks that are forced one by one; loops beyond that are covered by seeds.
const MAX_FORCED: u32 = 200;

fn files() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut files: Vec<PathBuf> = fs::read_dir(dir)
        .expect("tests/cases is there")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|e| e == "ir"))
        .collect();
    files.sort();
    files
}

fn load(path: &Path) -> Vec<Case> {
    let text = fs::read_to_string(path).expect("readable");
    cases::read(&text).unwrap_or_else(|e| panic!("{}:{e}", path.display()))
}

/// Calls `f` on every call of every case.
fn each_call(mut f: impl FnMut(&str, &Case, &Call)) {
    for path in files() {
        for case in load(&path) {
            for call in &case.calls {
                let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
                f(&format!("{name}:{} ({})", call.line, case.function.name), &case, call);
            }
        }
    }
}

#[test]
fn functions_are_valid_and_called() {
    for path in files() {
        for case in load(&path) {
            assert_valid(&case.function, &path.display().to_string());
            assert!(!case.calls.is_empty(), "{}: {} is never called", path.display(), case.function.name);
        }
    }
}

#[test]
fn calls_end_as_written() {
    let mut wrong = Vec::new();
    each_call(|at, case, call| match interpret(case, call, Forced::No) {
        Err(fault) => wrong.push(format!("{at}: {fault}")),
        Ok(seen) => {
            if seen.ending != call.ending {
                wrong.push(format!("{at}:\n  written {}\n  found   {}", call.ending, seen.ending));
            }
            if seen.log != call.log {
                wrong.push(format!("{at}:\n  log written {:?}\n  log found   {:?}", call.log, seen.log));
            }
            if seen.args_after != call.args_after {
                wrong.push(format!("{at}: args found {:?}", seen.args_after));
            }
        }
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The checks whose forced failure must be written down: each place in a function, the first time it runs in a call.
/// `seen` holds the places that earlier calls of the function cover.
fn first_checks(checks: &[Check], seen: &mut BTreeSet<Check>) -> Vec<u32> {
    let first = |(k, check): (usize, &Check)| seen.insert(*check).then_some(k as u32);
    checks.iter().enumerate().filter_map(first).collect()
}

#[test]
fn forced_checks_leave_with_the_state_that_is_written() {
    let mut wrong = Vec::new();
    let (mut seen, mut function) = (BTreeSet::new(), String::new());
    each_call(|at, case, call| {
        if std::mem::replace(&mut function, case.function.name.clone()) != case.function.name {
            seen.clear();
        }
        let Ok(free) = interpret(case, call, Forced::No) else { return };
        let written: Vec<u32> = call.forced.iter().map(|(k, _)| *k).collect();
        for k in first_checks(&free.trace.checks, &mut seen).iter().filter(|k| !written.contains(k)) {
            wrong.push(format!("{at}: no `force {k}`: bless"));
        }
        for (k, ending) in &call.forced {
            match interpret(case, call, Forced::Guard(*k)) {
                Ok(seen) if seen.ending == *ending => {}
                Ok(seen) => {
                    wrong.push(format!("{at}, force {k}:\n  written {ending}\n  found   {}", seen.ending));
                }
                Err(fault) => wrong.push(format!("{at}, force {k}: {fault}")),
            }
        }
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_check_can_fail_at_any_time() {
    each_call(|at, case, call| {
        let free = interpret(case, call, Forced::No).unwrap_or_else(|e| panic!("{at}: {e}"));
        for (k, check) in (0..MAX_FORCED).zip(&free.trace.checks) {
            let seen =
                interpret(case, call, Forced::Guard(k)).unwrap_or_else(|e| panic!("{at}, force {k}: {e}"));
            assert_eq!(seen.trace.taken, Some(check.exit), "{at}, force {k}");
            assert_eq!(seen.trace.checks, free.trace.checks[..=k as usize], "{at}, force {k}");
            // What Python code noticed until then is what it notices without the failure.
            assert!(free.log.starts_with(&seen.log[..seen.log.len().min(free.log.len())]), "{at}, force {k}");
        }
        for seed in 1..20 {
            interpret(case, call, Forced::Seeded(seed)).unwrap_or_else(|e| panic!("{at}, seed {seed}: {e}"));
        }
    });
}

#[test]
fn every_instruction_runs_in_some_case() {
    let all = [
        "iconst",
        "fconst",
        "f32const",
        "bconst",
        "oconst",
        "null",
        "iadd",
        "isub",
        "imul",
        "iand",
        "ior",
        "ixor",
        "ishl",
        "ishr",
        "ifloor_div",
        "ifloor_mod",
        "checked_add",
        "checked_sub",
        "checked_mul",
        "icmp",
        "ult",
        "fadd",
        "fsub",
        "fmul",
        "fdiv",
        "fcopysign",
        "fneg",
        "fabs",
        "fsqrt",
        "ffloor",
        "fceil",
        "ftrunc",
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
        "list_len",
        "tuple_len",
        "bytes_len",
        "bytearray_len",
        "bytes_data",
        "bytearray_data",
        "array_dim",
        "array_stride",
        "array_data",
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
    let mut ran = BTreeSet::new();
    each_call(|at, case, call| {
        ran.extend(interpret(case, call, Forced::No).unwrap_or_else(|e| panic!("{at}: {e}")).trace.mnemonics);
    });
    let missing: Vec<&str> = all.into_iter().filter(|m| !ran.contains(m)).collect();
    assert!(missing.is_empty(), "no case runs {missing:?}");
}

#[test]
#[ignore = "rewrites the case files"]
fn bless() {
    for path in files() {
        let text = fs::read_to_string(&path).expect("readable");
        let cases = load(&path);
        let mut out = String::new();
        let mut forced: Vec<(u32, Ending)> = Vec::new();
        let mut seen = vec![BTreeSet::new(); cases.len()];
        for (i, line) in text.lines().enumerate() {
            let directive = line.trim_start().strip_prefix(';').map(str::trim_start).unwrap_or_default();
            if directive.starts_with("force ") {
                continue;
            }
            if !["args ", "log ", "poll ", "frameless"].iter().any(|d| directive.starts_with(d)) {
                write_forced(&mut out, &mut forced);
            }
            out.push_str(line);
            out.push('\n');
            for (case, seen) in cases.iter().zip(&mut seen) {
                let Some(call) = case.calls.iter().find(|call| call.line == i as u32 + 1) else { continue };
                let free =
                    interpret(case, call, Forced::No).unwrap_or_else(|e| panic!("line {}: {e}", i + 1));
                for k in first_checks(&free.trace.checks, seen) {
                    forced.push((k, interpret(case, call, Forced::Guard(k)).expect("no fault").ending));
                }
            }
        }
        write_forced(&mut out, &mut forced);
        fs::write(&path, out).expect("writable");
    }
}

fn write_forced(out: &mut String, forced: &mut Vec<(u32, Ending)>) {
    for (k, ending) in forced.drain(..) {
        out.push_str(&format!(";   force {k} -> {ending}\n"));
    }
}
