//! First things first.

use overdrive_ir::interpret::heap::Object;

use crate::check::check_args;

#[test]
fn adds_two_ints() {
    let text = r#"function "add" args 2 {
exit0 = entry 0 [borrow v0, borrow v1] [] "not ints"
exit1 = resume 4 [borrow v0, borrow v1] [] "too large"
exit2 = raise 4 [borrow v0, borrow v1] [] "no memory"
b0(v0: obj, v1: obj):
    v2 = type_is v0, int
    v3 = type_is v1, int
    v4 = band v2, v3
    guard v4, exit0
    v5 = table unbox_int(v0) else exit1
    v6 = table unbox_int(v1) else exit1
    v7 = checked_add v5, v6, exit1
    v8 = table box_int(v7) else exit2
    return v8
}
"#;
    for (a, b) in [(1, 2), (-5, 0), (1 << 40, -(1 << 62)), (i128::from(i64::MAX), 1), (1 << 70, 0)] {
        check_args(text, |_| vec![Object::Int(a), Object::Int(b)]);
    }
    check_args(text, |_| vec![Object::Float(1.0), Object::Int(3)]);
}
