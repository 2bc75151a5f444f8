//! The interpreter finds what a wrong front end or pass would do: each fault once.

use overdrive_ir::cases::{self, interpret};
use overdrive_ir::dominators::{Dominators, successors};
use overdrive_ir::entities::Block;
use overdrive_ir::function::Function;
use overdrive_ir::inst::Terminator;
use overdrive_ir::interpret::Forced;

/// Runs the body of a function that is called with one argument, and gives the fault.
#[track_caller]
fn fault(body: &str, arg: &str) -> String {
    let text = format!(
        "function \"f\" args 1 frame {{
         const0 = none
         const1 = fact 0
         exit0 = resume 2 [borrow v0] [] \"\"
         exit1 = raise 4 [own v0] [] \"\"
         b0(v0: obj):
         {body} }}
         ; consts f [None, callable(fail)]
         ; call f({arg}) -> None"
    );
    let cases = cases::read(&text.replace("         ;", ";")).unwrap_or_else(|e| panic!("{e}\n{text}"));
    interpret(&cases[0], &cases[0].calls[0], Forced::No).expect_err("must be found")
}

#[test]
fn leaks_and_double_frees() {
    assert_eq!(
        fault("incref v0 v1 = oconst const0 incref v1 return v1", "\"s\""),
        "object 4 is alive with 1 references: Str(\"s\")"
    );
    assert_eq!(
        fault("v1 = oconst const0 incref v1 incref v1 return v1", "1"),
        "None has 1 references too many"
    );
    assert_eq!(
        fault("decref v0 v1 = oconst const0 incref v1 return v1", "\"s\""),
        "b0, instruction 3: object 4 is released after it was freed"
    );
    assert_eq!(
        fault("v1 = own_arg 0 decref v1 v2 = list_len v0 return v0", "[]"),
        "b0, instruction 2: object 4 is used after it was freed"
    );
    // The exit takes over a reference that the frame still holds.
    assert_eq!(
        fault("v1 = oconst const1 v2 = null v3 = table call(v1, v2) at 2 else exit1 return v3", "\"s\""),
        "object 4 is used after it was freed"
    );
    // The item died with the list.
    assert_eq!(
        fault("v1 = iconst 0 v2 = list_get v0, v1 v3 = own_arg 0 decref v3 incref v2 return v2", "[1.5]"),
        "b0, instruction 4: object 4 is used after it was freed"
    );
    assert_eq!(
        fault("v1 = own_arg 0 v2 = own_arg 0 return v1", "1"),
        "b0, instruction 1: argument 0 is taken twice"
    );
}

#[test]
fn preconditions() {
    let cases = [
        ("v1 = iconst 1 v2 = list_get v0, v1 return v0", "[1]", "item 1 of 1"),
        ("v1 = iconst -1 v2 = tuple_get v0, v1 return v0", "(1,)", "item -1 of 1"),
        ("v1 = iconst 0 v2 = list_get v0, v1 return v0", "(1,)", "not a list: Tuple([Ref(4)])"),
        ("v1 = list_len v0 return v0", "(1,)", "ListLen of an object that is no list"),
        ("v1 = unbox float, v0 return v0", "1", "unbox float of Int(1)"),
        ("v1 = array_dim v0, 2 return v0", "array(uint8, [1], [1])", "no such axis"),
        (
            "v1 = array_data v0 v2 = iconst 1 v3 = ptr_add v1, v2 v4 = load uint8, v3 return v0",
            "array(uint8, [1], [1])",
            "access of 1 bytes at 1 of 1",
        ),
        (
            "v1 = array_data v0 v2 = iconst 4 v3 = ptr_add v1, v2 v4 = load float64, v3 return v0",
            "array(float64, [2], [1.0, 1.0])",
            "unaligned access of 8 bytes at 4",
        ),
        (
            "v1 = array_data v0 v2 = fconst 1.0 store float64, v1, v2 return v0",
            "array(float64, [1], [1.0] readonly)",
            "no writable memory inside",
        ),
        ("v1 = iconst 1 v2 = iconst 0 v3 = ifloor_div v1, v2 return v0", "1", "FloorDiv of 1 and 0"),
        (
            "v1 = iconst -9223372036854775808 v2 = iconst -1 v3 = ifloor_mod v1, v2 return v0",
            "1",
            "FloorMod of -9223372036854775808 and -1",
        ),
        ("v1 = iconst 1 v2 = iconst 64 v3 = ishl v1, v2 return v0", "1", "Shl of 1 and 64"),
        (
            "v1 = fconst 9223372036854775808.0 v2 = float_to_int v1 return v0",
            "1",
            "9.223372036854776e18 does not fit 64 bits",
        ),
        ("v1 = type_is v0, int return v0", "unset", "v0 is the null reference"),
        ("v1 = null return v1", "1", "returns the null reference"),
        ("leave exit1", "1", "leaves through a raise exit and no exception is set"),
        (
            "v1 = table next(v0) at 2 leave exit0",
            "zip()",
            "leaves with an exception set: RuntimeError: generator failed",
        ),
        ("jump b1 b1: jump b1", "1", "does not come to an end"),
        (
            "v1 = table del_global(v0, v0) at 2 else exit1 return v0",
            "1",
            "the mock table has no del_global of",
        ),
    ];
    for (body, arg, message) in cases {
        let found = fault(body, arg);
        assert!(found.contains(message), "{body}\n  wanted {message}\n  found  {found}");
    }
}

/// Dominance by its definition: without `a`, `b` can't be reached.
fn dominates_by_definition(f: &Function, a: Block, b: Block) -> bool {
    let reach = |avoid: Option<Block>| {
        let mut seen = vec![false; f.blocks.len()];
        let mut work = vec![Block(0)];
        while let Some(x) = work.pop() {
            if Some(x) != avoid && !std::mem::replace(&mut seen[x.index()], true) {
                work.extend(f.blocks[x.index()].terminator.iter().flat_map(successors));
            }
        }
        seen
    };
    let reachable = reach(None);
    reachable[a.index()] && reachable[b.index()] && !reach(Some(a))[b.index()]
}

#[test]
fn dominators_are_what_they_are_by_definition() {
    let mut state = 7u32;
    let mut next = |n: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) % n
    };
    for _ in 0..300 {
        let mut f = Function::new("graph", 1);
        let n = 2 + next(9);
        for _ in 1..n {
            f.add_block();
        }
        for b in 0..n {
            let mut to = || (Block(1 + next(n - 1)), vec![]);
            let (then, els) = (to(), to());
            let value = f.blocks[0].params[0];
            let t = match next(4) {
                0 => Terminator::Return(value),
                1 => Terminator::Jump(then.0, then.1),
                _ => Terminator::Branch { cond: value, then, els },
            };
            f.terminate(Block(b), t);
        }
        let dominators = Dominators::new(&f);
        for (a, b) in (0..n).flat_map(|a| (0..n).map(move |b| (Block(a), Block(b)))) {
            assert_eq!(dominators.dominates(a, b), dominates_by_definition(&f, a, b), "{a} {b}\n{f}");
        }
    }
}
