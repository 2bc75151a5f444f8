//! Computes what is known: integer and truth operations on constants, selects and branches on them.
//!
//! Floats are left alone: LLVM folds them, and which NaN comes out is not ours to say. A checked operation on constants
//! becomes its result when that fits; when it does not, the exit stays as it is.

use crate::dominators::reverse_postorder;
use crate::entities::Value;
use crate::function::Function;
use crate::inst::{BoolOp, FloatUnary, Inst, Terminator};
use crate::interpret::arith;
use crate::opt::rewrite::{replace_uses, resolve};
use crate::opt::unreachable;

/// What an instruction comes to.
enum Folded {
    To(Inst),
    /// An operand.
    Same(Value),
}

/// The pass.
pub fn run(f: &mut Function) {
    let order = reverse_postorder(f);
    // Constant that defines a value, and value that stands for it.
    let mut known: Vec<Option<Inst>> = vec![None; f.n_values()];
    let mut same: Vec<Option<Value>> = vec![None; f.n_values()];
    for b in order {
        for (inst, result) in &mut f.blocks[b.index()].insts {
            let Some(v) = result else { continue };
            let get = |v: Value| known[resolve(&same, v).index()].as_ref();
            match fold(inst, &get, &|v| resolve(&same, v)) {
                Some(Folded::To(constant)) => *inst = constant,
                Some(Folded::Same(other)) => same[v.index()] = Some(resolve(&same, other)),
                None => {}
            }
            if matches!(
                inst,
                Inst::IConst(_)
                    | Inst::BConst(_)
                    | Inst::OConst(_)
                    | Inst::Null
                    | Inst::FloatUnary(FloatUnary::Trunc, _)
            ) {
                known[v.index()] = Some(inst.clone());
            }
        }
        let terminator = &mut f.blocks[b.index()].terminator;
        if let Some(Terminator::Branch { cond, then, els }) = terminator {
            let cond = match known[resolve(&same, *cond).index()] {
                Some(Inst::BConst(b)) => Some(b),
                // Where both ways are one it does not matter which is taken.
                _ => (then == els).then_some(true),
            };
            if let Some(cond) = cond {
                let (to, args) = if cond { then.clone() } else { els.clone() };
                *terminator = Some(Terminator::Jump(to, args));
            }
        }
    }
    replace_uses(f, |v| resolve(&same, v));
    unreachable::run(f);
}

fn fold<'a>(
    inst: &Inst,
    get: &dyn Fn(Value) -> Option<&'a Inst>,
    resolve: &dyn Fn(Value) -> Value,
) -> Option<Folded> {
    // Converting to an integer cuts off the same.
    if let Inst::FloatToInt(a) = inst
        && let Some(Inst::FloatUnary(FloatUnary::Trunc, x)) = get(*a)
    {
        return Some(Folded::To(Inst::FloatToInt(*x)));
    }
    let int = |v: &Value| match get(*v) {
        Some(Inst::IConst(n)) => Some(*n),
        _ => None,
    };
    let truth = |v: &Value| match get(*v) {
        Some(Inst::BConst(b)) => Some(*b),
        _ => None,
    };
    let folded = match inst {
        Inst::Int(op, a, b) => Inst::IConst(arith::int(*op, int(a)?, int(b)?)?),
        Inst::Checked(op, a, b, _) => Inst::IConst(arith::checked(*op, int(a)?, int(b)?)?),
        Inst::ICmp(cmp, a, b) => Inst::BConst(arith::compare(*cmp, int(a)?, int(b)?)),
        Inst::ULt(a, b) => Inst::BConst((int(a)? as u64) < int(b)? as u64),
        Inst::IntToFloat(a) => Inst::FConst((int(a)? as f64).to_bits()),
        Inst::Not(a) => Inst::BConst(!truth(a)?),
        Inst::BoolToInt(a) => Inst::IConst(truth(a)?.into()),
        Inst::Bool(op, a, b) => match (truth(a), truth(b)) {
            (Some(a), Some(b)) => Inst::BConst(arith::bool(*op, a, b)),
            (Some(k), None) => return half_known(*op, k, *b),
            (None, Some(k)) => return half_known(*op, k, *a),
            (None, None) => return None,
        },
        Inst::Select(cond, a, b) => match truth(cond) {
            Some(cond) => return Some(Folded::Same(if cond { *a } else { *b })),
            None => return (resolve(*a) == resolve(*b)).then_some(Folded::Same(*a)),
        },
        Inst::Same(a, b) => match (get(*a), get(*b)) {
            (Some(Inst::Null), Some(Inst::Null)) => Inst::BConst(true),
            (Some(Inst::Null), Some(Inst::OConst(_))) | (Some(Inst::OConst(_)), Some(Inst::Null)) => {
                Inst::BConst(false)
            }
            // Two constants may still be one object.
            (Some(Inst::OConst(a)), Some(Inst::OConst(b))) if a == b => Inst::BConst(true),
            _ if resolve(*a) == resolve(*b) => Inst::BConst(true),
            _ => return None,
        },
        Inst::IsNull(a) => match get(*a)? {
            Inst::Null => Inst::BConst(true),
            Inst::OConst(_) => Inst::BConst(false),
            _ => return None,
        },
        _ => return None,
    };
    Some(Folded::To(folded))
}

/// `known op x`
fn half_known(op: BoolOp, known: bool, x: Value) -> Option<Folded> {
    match (op, known) {
        (BoolOp::And, true) | (BoolOp::Or, false) | (BoolOp::Xor, false) => Some(Folded::Same(x)),
        (BoolOp::And, false) => Some(Folded::To(Inst::BConst(false))),
        (BoolOp::Or, true) => Some(Folded::To(Inst::BConst(true))),
        (BoolOp::Xor, true) => Some(Folded::To(Inst::Not(x))),
    }
}

#[cfg(test)]
mod tests {
    use super::run;
    use crate::opt::testing::check;

    #[test]
    fn integers() {
        check(
            run,
            "v1 = iconst 7 v2 = iconst -2 v3 = ifloor_div v1, v2 v4 = imul v3, v2 v5 = checked_add v4, v1, exit0
             v6 = ult v1, v2 v7 = int_to_float v5 return v0",
            "v1 = iconst 7 v2 = iconst -2 v3 = iconst -4 v4 = iconst 8 v5 = iconst 15
             v6 = bconst true v7 = fconst 15.0 return v0",
        );
    }

    #[test]
    fn what_breaks_a_precondition_or_leaves_stays() {
        let text = "v1 = iconst 0 v2 = ifloor_mod v1, v1 v3 = iconst 64 v4 = ishl v3, v3
                    v5 = iconst 9223372036854775807 v6 = checked_add v5, v3, exit0 return v0";
        check(run, text, text);
    }

    #[test]
    fn half_known_truths() {
        check(
            run,
            "v1 = type_is v0, int v2 = bconst true v3 = band v1, v2 v4 = bor v3, v2 v5 = bxor v2, v3 v6 = not v5
             v7 = bool_to_int v4 guard v3, exit0 return v0",
            "v1 = type_is v0, int v2 = bconst true v3 = band v1, v2 v4 = bconst true v5 = not v1 v6 = not v5
             v7 = iconst 1 guard v1, exit0 return v0",
        );
    }

    #[test]
    fn selects_and_branches() {
        check(
            run,
            "v1 = iconst 1 v2 = iconst 2 v3 = icmp lt, v1, v2 v4 = select v3, v1, v2 v5 = iadd v4, v2
             branch v3, b2, b1 b1: leave exit0 b2: return v0",
            "v1 = iconst 1 v2 = iconst 2 v3 = bconst true v4 = select v3, v1, v2 v5 = iconst 3
             jump b1 b1: return v0",
        );
        check(
            run,
            "v1 = type_is v0, int branch v1, b1(v0), b1(v0) b1(v2: obj): return v2",
            "v1 = type_is v0, int jump b1(v0) b1(v2: obj): return v2",
        );
    }

    #[test]
    fn identities() {
        check(
            run,
            "v1 = null v2 = oconst const0 v3 = oconst const1 v4 = is_null v1 v5 = is_null v2 v6 = same v0, v0
             v7 = same v2, v3 v8 = same v1, v3 v9 = is_null v0 return v0",
            "v1 = null v2 = oconst const0 v3 = oconst const1 v4 = bconst true v5 = bconst false v6 = bconst true
             v7 = same v2, v3 v8 = bconst false v9 = is_null v0 return v0",
        );
    }
}
