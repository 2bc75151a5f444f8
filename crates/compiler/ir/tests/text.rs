//! The text form: a function with everything in it survives print and parse; errors say where and what.

use overdrive_ir::parse::parse;
use overdrive_ir::verify::verify;

const EVERYTHING: &str = r#"function "mod.<locals>.\"f\"" args 2 frame profile 2 {
const0 = none
const1 = true
const2 = false
const3 = code_const 4
const4 = name 0
const5 = globals
const6 = builtins
const7 = fact 9
const8 = np_true
const9 = np_false
exit0 = entry 0 [borrow v0, borrow v1] [] "not an int"
exit1 = resume 12 [own v2, number float v8 boxed borrow v1] [empty, none, const3, either(v4, borrow v0, empty)] "line\nbreak"
exit2 = resume 14 from 10 [tuple(borrow v0, number int v3), range(v3, v3, v3)] [seq_iter(borrow v0, v3), enumerate(v3, seq_iter(borrow v1, v3)), zip(empty, borrow v1)] ""
exit3 = raise 16 [own v2, borrow v1] [] "raised"
b0(v0: obj, v1: obj) at 4:
    v4 = type_is v0, np.float64
    guard v4, exit0
    v2 = own_arg 0
    v3 = iconst -9223372036854775808
    v8 = fconst -0.0
    v9 = fconst nan_0x7ff8000000000001
    v10 = f32const 1.5e-10
    v11 = f32const nan_0x7fc00000
    v12 = fconst inf
    v13 = bconst true
    v14 = oconst const7
    v15 = null
    v16 = checked_mul v3, v3, exit1
    v17 = icmp le, v3, v16
    v18 = fcmp ne, v8, v12
    v19 = array_is v1, uint8, 2, writable
    v20 = array_is v1, float32, 1
    v21 = unbox np.float32, v1
    v22 = array_stride v1, 1
    v23 = array_data v1
    v24 = load float32, v23
    store int64, v23, v3
    v25 = list_swap v0, v3, v15
    decref v25 at 20
    decref v15
    incref v15
    v26 = table call(v0, v15, v1, v1) at 22 else exit3
    table observe(v3, v1)
    v27 = table unbox_int(v1) else exit2
    poll at 24 else exit3
    branch v13, b1(v26, v10), b2
b1(v5: obj, v6: f32) cold:
    v28 = fadd v6, v6
    v29 = select v13, v28, v6
    return v5
b2:
    leave exit1
}
"#;

#[test]
fn everything_survives() {
    let f = parse(EVERYTHING).expect("parses");
    assert_eq!(f.to_string(), EVERYTHING);
    assert_eq!(parse(&f.to_string()).expect("parses again"), f);
}

#[test]
fn a_block_without_terminator_can_be_printed() {
    let text = "function \"f\" args 0 {\nb0:\n    ; no terminator\nb1:\n    ; no terminator\n}\n";
    let f = parse(text).expect("parses");
    assert_eq!(f.to_string(), text);
    let errors: Vec<String> = verify(&f).iter().map(ToString::to_string).collect();
    assert_eq!(errors, ["b0, instruction 0: no terminator", "b1, instruction 0: no terminator"]);
}

/// Text of a body and the error it gives.
#[track_caller]
fn check(body: &str, error: &str) {
    let text = format!("function \"f\" args 1 {{\n{body}\n}}");
    assert_eq!(parse(&text).expect_err("must not parse").to_string(), error);
}

#[test]
fn errors_have_places() {
    check("b0(v0: obj):\n  v1 = iconst x", "3:15: expected a 64-bit integer, found `x`");
    check("b0(v0: obj):\n  v1 = jump", "3:8: expected an instruction, found `jump`");
    check("b0(v0: object):", "2:8: expected a type, found `object`");
    check("b1:", "2:3: blocks must come in order: the next one is number 0");
    check("const1 = none", "2:8: constants must come in order: the next one is number 0");
    check("exit0 = leave", "2:9: expected `resume`, `raise`, `entry` or `yield`, found `leave`");
    check(
        "exit0 = resume 0 [what] [] \"\"",
        "2:19: expected a slot (`empty`, `none`, `own`, `borrow`, `number`, a constant, `either`, `tuple`, `range`, `seq_iter`, `enumerate`, `zip`), found `what`",
    );
    check("exit0 = resume 0 [] [] \"a", "2:24: string without an end");
    check("b0(v0: obj):\n  v0 = null", "3:3: `v0` is defined twice");
    check("b0(v9999999: obj):", "2:4: value numbers must be below 1048576");
    check(
        "b0(v0: obj):\n  v1 = table frobnicate(v0)",
        "3:14: expected an entry of the object table, found `frobnicate`",
    );
    check(
        "b0(v0: obj):\n  return v0\n  return v0",
        "4:3: expected a constant, an exit, a block, a routine or `}`, found `return`",
    );
    assert_eq!(parse("").expect_err("nothing").to_string(), "1:1: expected one function, found 0");
}
