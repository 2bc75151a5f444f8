//! The stage list on small functions: what comes out, what is timed, what is refused. Nothing is run here.

use overdrive_base::flavour::{DType, KnownType};
use overdrive_base::layout::{InstanceLayout, IntLayout, ObjectLayout};
use overdrive_base::table::Entry;
use overdrive_codegen::{CodegenError, Options, Services, Target};
use overdrive_ir::entities::Value;
use overdrive_ir::inst::{Inst, IntOp, Terminator};
use overdrive_ir::parse::parse;
use overdrive_jit::{Cache, CompileRequest, JitError, Version, compile};
use overdrive_store::Store;

const TWICE: &str = r#"function "twice" args 1 {
exit0 = resume 0 [borrow v0] [] "never"
exit1 = resume 2 [borrow v0] [] "not an int"
exit2 = raise 4 [borrow v0] [] "no memory"
b0(v0: obj):
    v1 = bconst true
    guard v1, exit0
    v2 = type_is v0, int
    guard v2, exit1
    v3 = table unbox_int(v0) else exit1
    v4 = iadd v3, v3
    v5 = table box_int(v4) else exit2
    return v5
}
"#;

fn compiled(request: CompileRequest, entries: &[usize]) -> Result<Version, JitError> {
    compiled_with(request, entries, None)
}

fn compiled_with(
    request: CompileRequest,
    entries: &[usize],
    cache: Option<Cache<'_>>,
) -> Result<Version, JitError> {
    let layout = ObjectLayout {
        int: IntLayout::SignedSize,
        immortal: false,
        ob_type: 8,
        type_version: 64,
        instance: InstanceLayout::Pointed { values: -32 },
        class_names: 128,
        class_names_used: 24,
        var_size: 16,
        list_items: 24,
        list_allocated: 32,
        tuple_items: 24,
        float_value: 16,
        small_ints: 0,
        small_int_size: 32,
        str_state: 32,
        str_state_mask: 0x7c,
        str_state_ascii: 0x64,
        str_ascii_data: 48,
        characters: 0,
        bytes_data: 32,
        bytearray_start: 40,
        array_data: 16,
        array_ndim: 24,
        array_dims: 32,
        array_strides: 40,
        array_descr: 56,
        array_flags: 64,
        array_flags_read: 0x100,
        array_flags_write: 0x400,
        np_scalar_value: 16,
        types: [0x1000; KnownType::ALL.len()],
        descrs: [0x2000; DType::ALL.len()],
        tensor_tags: [1; DType::ALL.len()],
        none: 0x3000,
        true_: 0x3100,
        false_: 0x3200,
        np_true: 0x3300,
        np_false: 0x3400,
        frame_instr: 56,
        breaker_bits: 32,
        breaker_mask: 1,
    };
    let services = Services { exit: 0x4000, poll: 0x4100, should_fail: 0x4200, parallel: 0x4300 };
    compile(request, &Target { layout: &layout, entries, services, vectors: &[], consts: &[] }, cache)
}

fn request(text: &str) -> CompileRequest {
    let function = parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    CompileRequest { function, options: Options::default() }
}

#[test]
fn the_function_that_comes_with_the_code_is_the_optimised_one() {
    let version = compiled(request(TWICE), &[0x5000; Entry::ALL.len()]).expect("compiles");
    let reasons: Vec<&str> = version.function.exits.iter().map(|e| e.reason.as_str()).collect();
    assert_eq!(reasons, ["not an int", "no memory"]);
    assert!(version.code.code_size() > 0);
}

#[test]
fn every_stage_is_timed() {
    let version = compiled(request(TWICE), &[0x5000; Entry::ALL.len()]).expect("compiles");
    let names: Vec<&str> = version.timings.iter().map(|(name, _)| name.as_str()).collect();
    let outer: Vec<&str> = names.iter().copied().filter(|n| !n.contains('.')).collect();
    assert_eq!(outer, ["verify", "optimise", "codegen"]);
    for stage in ["codegen.lower", "codegen.optimise", "codegen.emit", "codegen.load"] {
        assert!(names.contains(&stage), "{stage} is not in {names:?}");
    }
}

#[test]
fn a_front_end_bug_is_named() {
    let mut broken = request(TWICE);
    let block = overdrive_ir::entities::Block(0);
    broken.function.push(block, Inst::Int(IntOp::Add, Value(0), Value(0)));
    broken.function.terminate(block, Terminator::Return(Value(0)));
    match compiled(broken, &[0x5000; Entry::ALL.len()]) {
        Err(JitError::Invalid { after: "the front end", errors }) => assert_eq!(errors.len(), 2),
        // Release builds do not verify; code generation finds it.
        Err(JitError::Codegen(CodegenError::Malformed { .. })) if !cfg!(debug_assertions) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_table_without_the_entry_is_an_error() {
    match compiled(request(TWICE), &[0; Entry::ALL.len()]) {
        Err(JitError::Codegen(CodegenError::MissingEntry(Entry::UnboxInt))) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn code_that_was_generated_before_comes_from_the_cache() {
    let root = std::env::temp_dir().join(format!("overdrive-stages-{}", std::process::id()));
    let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").expect("this process"));
    let store = Store::new(root.join("code"), owner, 1 << 20);
    let cache = |build| Some(Cache { store: &store, build });
    let here = &[0x5000; Entry::ALL.len()];
    let version = |build| compiled_with(request(TWICE), here, cache(build)).expect("compiles");

    let mut first = version(b"one");
    assert!(!first.is_cached);
    assert!(!version(b"one").is_cached, "it is kept when its owner says so");
    let news = first.take_news().expect("it was not there");
    assert!(first.take_news().is_none());
    news.keep(&store);

    let mut second = version(b"one");
    assert!(second.is_cached);
    assert!(second.take_news().is_none());
    assert_eq!(second.function, first.function);
    assert_eq!(second.code.code_size(), first.code.code_size());
    let names: Vec<&str> = second.timings.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["verify", "optimise", "cache"], "no code was generated");

    assert!(!version(b"two").is_cached, "another build");
    let other = request(&TWICE.replace("iadd", "isub"));
    assert!(!compiled_with(other, here, cache(b"one")).expect("compiles").is_cached);
    let mut uncached = compiled(request(TWICE), here).expect("compiles");
    assert!(!uncached.is_cached && uncached.take_news().is_none());
    std::fs::remove_dir_all(root).expect("ours");
}
