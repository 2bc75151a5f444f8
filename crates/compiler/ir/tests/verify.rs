//! Each rule of the verifier: the smallest function that breaks it, and the error it gets.

use overdrive_ir::parse::parse;
use overdrive_ir::verify::verify;

/// A function with one object argument, some exits and the given blocks.
fn function(head: &str, blocks: &str) -> String {
    let exits = r#"
const0 = none
exit0 = entry 0 [borrow v0] [] "entry"
exit1 = resume 2 [borrow v0] [] "resume"
exit2 = raise 4 [borrow v0] [] "raise"
"#;
    format!("function \"f\" args 1 {head} {{{exits}{blocks}}}")
}

/// Verifies blocks in a function with a frame.
#[track_caller]
fn check(blocks: &str, errors: &[&str]) {
    check_with("frame", blocks, errors);
}

#[track_caller]
fn check_with(head: &str, blocks: &str, errors: &[&str]) {
    let f = parse(&function(head, blocks)).unwrap_or_else(|e| panic!("{e}\n{blocks}"));
    let found: Vec<String> = verify(&f).iter().map(ToString::to_string).collect();
    assert_eq!(found, errors, "\n{f}");
}

/// Verifies whole text.
#[track_caller]
fn check_text(text: &str, errors: &[&str]) {
    let found: Vec<String> = verify(&parse(text).expect("parses")).iter().map(ToString::to_string).collect();
    assert_eq!(found, errors);
}

#[test]
fn good_functions_have_no_errors() {
    check("b0(v0: obj): return v0", &[]);
    check(
        "b0(v0: obj): v1 = type_is v0, int guard v1, exit0 v2 = own_arg 0 v3 = table getattr(v0, v0) at 2 else exit2
         jump b1(v3)
         b1(v4: obj): poll at 3 else exit2 v5 = bconst true branch v5, b1(v4), b2
         b2: return v4",
        &[],
    );
}

#[test]
fn shape() {
    check_text("function \"f\" args 0 {}", &["no entry block"]);
    check("b0: leave exit1", &["b0: 0 parameters for 1 arguments", "b0, instruction 0: v0 is not defined"]);
    check("b0(v0: i64): v1 = null return v1", &["b0: the argument v0 is not an object"]);
    check("b0(v0: obj): jump b1 b1: jump b0(v0)", &["b1, instruction 0: jumps to the entry block"]);
    check("b0(v0: obj): jump b7", &["b0, instruction 0: b7 does not exist"]);
    check("b0(v0: obj):", &["b0, instruction 0: no terminator"]);
    check_text(
        "function \"f\" args 1 { exit0 = resume 0 [empty] [] \"\" exit1 = resume 0 [empty, empty] [] \"\"
         b0(v0: obj): return v0 }",
        &["exit1 has another number of locals than the exits before it"],
    );
}

#[test]
fn values() {
    check("b0(v0: obj): return v1", &["b0, instruction 0: v1 is not defined"]);
    check(
        "b0(v0: obj): v1 = not v2 v2 = bconst true return v0",
        &["b0, instruction 0: v2 is not defined on every way here"],
    );
    check(
        "b0(v0: obj): v1 = bconst true branch v1, b1, b2 b1: v2 = null jump b2 b2: return v2",
        &["b2, instruction 0: v2 is not defined on every way here"],
    );
    check(
        "b0(v0: obj): v1 = incref v0 return v0",
        &["b0, instruction 0: v1 is the result of an instruction that has none"],
    );
    check("b0(v0: obj): null return v0", &["b0, instruction 0: the result has no value"]);
    // Unreachable code is checked for types, not for dominance.
    check("b0(v0: obj): return v0 b1: v1 = null jump b2 b2: return v1", &[]);
}

#[test]
fn types_of_operands() {
    let cases = [
        ("v1 = iadd v0, v0", "v0 is obj, not i64"),
        ("v1 = iconst 1 v2 = fneg v1", "v1 is not a float"),
        ("v1 = fconst 1.0 v2 = f32const 1.0 v3 = fadd v1, v2", "v2 is f32, not f64"),
        ("v1 = iconst 1 v2 = not v1", "v1 is i64, not i1"),
        ("v1 = iconst 1 v2 = bconst true v3 = select v2, v1, v0", "v0 is obj, not i64"),
        ("v1 = iconst 1 v2 = type_is v1, int", "v1 is i64, not obj"),
        ("v1 = load float64, v0", "v0 is obj, not ptr"),
        ("v1 = array_data v0 v2 = iconst 1 store float64, v1, v2", "v2 is i64, not f64"),
        ("v1 = array_dim v0, 40", "no array has that many axes"),
        ("v1 = oconst const9", "const9 does not exist"),
        ("v1 = own_arg 1", "there are only 1 arguments"),
        ("guard v0, exit1", "v0 is obj, not i1"),
        ("v1 = iconst 1 v2 = f32_to_f64 v1", "v1 is i64, not f32"),
        ("v1 = iconst 1 decref v1", "v1 is i64, not obj"),
    ];
    for (text, error) in cases {
        let n = text.matches(" v").count().max(1);
        let f = parse(&function("", &format!("b0(v0: obj): {text} return v0"))).expect("parses");
        let found = verify(&f);
        assert!(found.iter().any(|e| e.message == error), "{text} ({n}): {found:?}");
    }
    check("b0(v0: obj): v1 = iconst 1 return v1", &["b0, instruction 1: v1 is i64, not obj"]);
    check("b0(v0: obj): jump b1(v0) b1(v1: i64): return v0", &["b0, instruction 0: v0 is obj, not i64"]);
    check(
        "b0(v0: obj): jump b1(v0) b1: return v0",
        &["b0, instruction 0: 1 arguments for 0 parameters of b1"],
    );
}

#[test]
fn recorded_types() {
    let mut f = parse(&function("", "b0(v0: obj): v1 = iconst 1 return v0")).expect("parses");
    f.types[1] = overdrive_base::flavour::Ty::F64;
    assert_eq!(verify(&f)[0].message, "v1 is recorded as f64 and defined as i64");
    f.types.truncate(1);
    assert_eq!(verify(&f)[0].message, "v1 has no type");
}

#[test]
fn the_object_table() {
    check(
        "b0(v0: obj): v1 = table box_int() return v1",
        &[
            "b0, instruction 0: box_int takes 1 arguments, not 0",
            "b0, instruction 0: box_int can fail and has no exit",
        ],
    );
    check(
        "b0(v0: obj): v1 = table call(v0) at 0 else exit2 return v1",
        &["b0, instruction 0: call takes at least 2 arguments, not 1"],
    );
    check(
        "b0(v0: obj): v1 = table getattr(v0, v0) else exit2 return v1",
        &["b0, instruction 0: getattr may run Python code and has no position"],
    );
    check_with(
        "",
        "b0(v0: obj): v1 = table getattr(v0, v0) at 0 else exit2 return v1",
        &["b0, instruction 0: getattr may run Python code and needs a frame"],
    );
    check(
        "b0(v0: obj): v1 = table getattr(v0, v0) at 0 else exit1 return v1",
        &["b0, instruction 0: exit1 is a resume exit, not raise"],
    );
    check(
        "b0(v0: obj): v1 = table unbox_int(v0) else exit2 return v0",
        &["b0, instruction 0: exit2 is a raise exit, not resume or entry"],
    );
    check(
        "b0(v0: obj): v1 = table next(v0) at 0 else exit2 return v1",
        &["b0, instruction 0: next can't fail and has an exit"],
    );
    check(
        "b0(v0: obj): table dealloc(v0) at 0 return v0",
        &["b0, instruction 0: dealloc belongs to the code generator: write decref"],
    );
    check(
        "b0(v0: obj): v1 = fconst 1.0 v2 = table fast_exp(v1) return v0",
        &["b0, instruction 1: fast_exp belongs to functions with fastmath"],
    );
    check_with(
        "profile 2",
        "b0(v0: obj): v1 = iconst 2 table observe(v1, v0) return v0",
        &["b0, instruction 1: there are only 2 profile slots"],
    );
    check_with(
        "",
        "b0(v0: obj): poll at 0 else exit2 return v0",
        &["b0, instruction 0: a poll needs a frame"],
    );
    check_with("", "b0(v0: obj): v1 = has_frame guard v1, exit1 poll at 0 else exit2 return v0", &[]);
    check_with(
        "",
        "b0(v0: obj): v1 = has_frame v2 = not v1 guard v2, exit1 poll at 0 else exit2 return v0",
        &["b0, instruction 3: a poll needs a frame"],
    );
    check(
        "b0(v0: obj): poll at 0 else exit1 return v0",
        &["b0, instruction 0: exit1 is a resume exit, not raise"],
    );
}

#[test]
fn exits() {
    let exit = |slots: &str, body: &str| {
        format!("function \"f\" args 1 {{ exit0 = resume 0 [{slots}] [] \"\" b0(v0: obj): {body} }}")
    };
    check("b0(v0: obj): leave exit9", &["b0, instruction 0: exit9 does not exist"]);
    check(
        "b0(v0: obj): v1 = bconst true guard v1, exit2 return v0",
        &["b0, instruction 1: exit2 is a raise exit, not resume or entry or yield"],
    );
    check_text(
        &exit("own v2", "v1 = bconst true guard v1, exit0 v2 = null return v2"),
        &["b0, instruction 1: v2 is not defined on every way here"],
    );
    // The result of the instruction that leaves does not exist yet.
    check_text(
        &exit("number int v1", "v1 = table unbox_int(v0) else exit0 return v0"),
        &["b0, instruction 0: v1 is not defined on every way here"],
    );
    check_text(
        &exit("number float v1", "v1 = iconst 1 leave exit0"),
        &["b0, instruction 1: v1 is i64, not f64"],
    );
    check_text(
        &exit("number int v1 boxed own v1", "v1 = iconst 1 leave exit0"),
        &["b0, instruction 1: v1 is i64, not obj"],
    );
    check_text(
        &exit("either(v0, empty, const0)", "leave exit0"),
        &["b0, instruction 0: v0 is obj, not i1", "b0, instruction 0: const0 does not exist"],
    );
    check_text(
        &exit("enumerate(v0, zip(seq_iter(empty, v0)))", "leave exit0"),
        &["b0, instruction 0: v0 is obj, not i64", "b0, instruction 0: v0 is obj, not i64"],
    );
    // An exit that nobody takes is not read.
    check_text(&exit("own v7", "return v0"), &[]);
}

#[test]
fn entry_exits() {
    check(
        "b0(v0: obj): v1 = own_arg 0 v2 = bconst true guard v2, exit0 return v1",
        &["b0, instruction 2: exit0 is an entry exit, and something may have happened before it"],
    );
    check(
        "b0(v0: obj): v1 = bconst true branch v1, b1, b2 b1: incref v0 jump b2 b2: leave exit0",
        &["b2, instruction 0: exit0 is an entry exit, and something may have happened before it"],
    );
    check_text(
        "function \"f\" args 1 { exit0 = entry 0 [own v0] [] \"\" b0(v0: obj): leave exit0 }",
        &["b0, instruction 0: exit0 is an entry exit and takes a reference over"],
    );
}

#[test]
fn the_gil() {
    check(
        "b0(v0: obj): table gil_give() v1 = iconst 1 v2 = bconst true guard v2, exit1 table gil_take() return v0",
        &[],
    );
    // It may be taken by who has it: a way aside took it already.
    check(
        "b0(v0: obj): v1 = bconst true table gil_give() branch v1, b1, b2
         b1: table gil_take() incref v0 jump b2
         b2: table gil_take() return v0",
        &[],
    );
    check(
        "b0(v0: obj): table gil_give() table gil_give() incref v0 table gil_take() return v0",
        &[
            "b0, instruction 1: gives the GIL, which it may not have",
            "b0, instruction 2: needs the GIL, which may be given",
        ],
    );
    check(
        "b0(v0: obj): v1 = bconst true branch v1, b1, b2
         b1: table gil_give() jump b2
         b2: v2 = table getattr(v0, v0) at 2 else exit2 return v2",
        &[
            "b2, instruction 0: needs the GIL, which may be given",
            "b2, instruction 1: returns without the GIL",
        ],
    );
    check(
        "b0(v0: obj): jump b1 b1: table gil_give() v1 = bconst true branch v1, b1, b2 b2: table gil_take() return v0",
        &["b1, instruction 0: gives the GIL, which it may not have"],
    );
}
