//! What the compiler promises beside results: vectors, texts, errors instead of panics, threads, memory given back.

use overdrive_base::table::Entry;
use overdrive_codegen::{CodegenError, Compiled, Level, Options, compile};
use overdrive_ir::interpret::heap::Heap;
use overdrive_ir::parse::parse;

use crate::run::{entries, target};
use crate::world::{Python, World};

fn compiled(
    text: &str,
    entries: &[usize],
    consts: &[usize],
    options: &Options,
) -> Result<Compiled, CodegenError> {
    let f = parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let world = World::new(Heap::new(), Python::V311);
    compile(&f, &target(&world, entries, consts), options)
}

/// `out[i] = a[i] * k + out[i]` over unit strides, bounds known.
const AXPY: &str = r#"function "axpy" args 2 {
const0 = none
b0(v0: obj, v1: obj):
    v2 = array_dim v0, 0
    v3 = array_data v0
    v4 = array_data v1
    v5 = iconst 0
    v6 = fconst 1.5
    jump b1(v5)
b1(v7: i64):
    v8 = icmp lt, v7, v2
    branch v8, b2, b3
b2:
    v9 = iconst 3
    v10 = ishl v7, v9
    v11 = ptr_add v3, v10
    v12 = load float64, v11
    v13 = fmul v12, v6
    v14 = ptr_add v4, v10
    v15 = load float64, v14
    v16 = fadd v13, v15
    store float64, v14, v16
    v17 = iconst 1
    v18 = iadd v7, v17
    jump b1(v18)
b3:
    v19 = oconst const0
    return v19
}
"#;

#[test]
fn loops_over_elements_use_vectors() {
    let options = Options { keep: true, ..Options::default() };
    let code = compiled(AXPY, &entries(), &[0x1000], &options).expect("compiles");
    let ir = code.llvm_ir().expect("kept");
    assert!(ir.contains("x double>"), "{ir}");
    assert!(code.asm().is_some_and(|asm| asm.contains("od_native")), "the assembly was asked for");
    // Two roundings stay two: nothing is fused.
    assert!(!ir.contains("fma") && !code.asm().unwrap_or_default().contains("vfmadd"), "contracted");
}

#[test]
fn texts_are_kept_only_when_asked_for() {
    let code = compiled(AXPY, &entries(), &[0x1000], &Options::default()).expect("compiles");
    assert!(code.llvm_ir().is_none() && code.asm().is_none());
    assert!(code.code_size() > 0);
    let stages: Vec<&str> = code.timings().iter().map(|(name, _)| *name).collect();
    assert!(stages.ends_with(&["optimise", "emit", "load"]), "{stages:?}");
}

#[test]
fn what_is_missing_is_named() {
    let text = "function \"f\" args 1 frame {\nexit0 = raise 2 [borrow v0] [] \"raised\"\n\
                b0(v0: obj):\n    v1 = table iter(v0) at 2 else exit0\n    return v1\n}\n";
    let mut without = entries();
    without[Entry::GetIter as usize] = 0;
    match compiled(text, &without, &[], &Options::default()) {
        Err(CodegenError::MissingEntry(Entry::GetIter)) => {}
        other => panic!("{other:?}"),
    }
    match compiled(AXPY, &entries(), &[], &Options::default()) {
        Err(CodegenError::MissingConst { index: 0, given: 0 }) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn broken_functions_are_errors() {
    for (body, what) in [
        ("b0(v0: obj):\n    v1 = fconst 1.0\n    v2 = iadd v1, v1\n    return v0\n", "v1 is not an integer"),
        ("b0(v0: obj):\n    jump b7\n", "b7 does not exist"),
        ("b0(v0: obj):\n    v1 = own_arg 3\n    return v1\n", "argument 3 of 1"),
        ("b0(v0: obj):\n    v1 = table list_append(v0)\n    return v0\n", "arguments of list_append"),
    ] {
        let text = format!("function \"f\" args 1 {{\n{body}}}\n");
        match compiled(&text, &entries(), &[], &Options::default()) {
            Err(CodegenError::Malformed { what: found, .. }) => assert_eq!(found, what),
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn any_thread_with_a_small_stack_can_compile() {
    let compile_some = || {
        for level in [Level::Quick, Level::Full] {
            let options = Options { level, ..Options::default() };
            compiled(AXPY, &entries(), &[0x1000], &options).expect("compiles");
        }
    };
    let threads: Vec<_> = (0..4)
        .map(|_| std::thread::Builder::new().stack_size(8 << 20).spawn(compile_some).expect("a thread"))
        .collect();
    threads.into_iter().for_each(|t| t.join().expect("no panic"));
}

/// How many of these addresses are code now. Nowhere in the process may code be writable.
#[cfg(target_os = "linux")]
fn n_mapped(addresses: &[usize]) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let code = maps.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (range, mode) = (words.next()?, words.next()?);
        assert!(!(mode.contains('w') && mode.contains('x')), "writable code: {line}");
        let (start, end) = range.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        mode.contains('x').then_some(number(start)?..number(end)?)
    });
    let code: Vec<_> = code.collect();
    addresses.iter().filter(|a| code.iter().any(|range| range.contains(a))).count()
}

#[test]
#[cfg(target_os = "linux")]
fn code_memory_is_given_back() {
    let codes: Vec<Compiled> = (0..40)
        .map(|_| compiled(AXPY, &entries(), &[0x1000], &Options::default()).expect("compiles"))
        .collect();
    let addresses: Vec<usize> = codes.iter().map(|code| code.entry() as usize).collect();
    assert_eq!(n_mapped(&addresses), 40);
    drop(codes);
    // Other tests may have taken a few of the pages for code of theirs.
    assert!(n_mapped(&addresses) < 20, "{} of 40 are still mapped", n_mapped(&addresses));
}

/// Code for it is made, not run.
#[test]
fn another_processor_can_be_named() {
    let cpu = if cfg!(target_arch = "x86_64") { "x86-64" } else { "generic" };
    let options = Options { cpu: Some(cpu.to_owned()), keep: true, ..Options::default() };
    let code = compiled(AXPY, &entries(), &[0x1000], &options).expect("compiles");
    assert!(!code.asm().unwrap_or_default().contains("ymm"), "used what the processor does not have");
}
