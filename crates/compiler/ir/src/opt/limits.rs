//! Makes a select of a choice between two cheap computations whose overflow one comparison excludes.
//!
//! `m // 2 if m % 2 == 0 else 3 * m + 1` goes now one way, now the other, and no processor guesses which; computing both
//! and selecting takes less time than guessing wrong. What stands against it are the overflow checks, which may leave.
//! Their operands are multiples of one integer plus a constant, though, so there are limits between which none of them
//! fails. Within these both ways are computed without checks; outside, the choice stays as it was.
//!
//! ```text
//!            ┌ yes ── both ways, selects ──────────────┐
//! … within? ─┤                                         ├─ …
//!            └ no (cold) ── choice ─┬─ one way ────────┤
//!                                   └─ the other way ──┘
//! ```

use std::collections::BTreeMap;

use crate::entities::{Block, Value};
use crate::function::Function;
use crate::inst::{BoolOp, CheckedOp, Cmp, FloatOp, Inst, IntOp, Terminator};
use crate::opt::copies::{Copies, push};

/// What both ways together may cost, in simple instructions.
const MAX_COST: u32 = 8;
/// So many values may be selected.
const MAX_SELECTS: usize = 3;
/// Integers that checks depend on.
const MAX_ROOTS: usize = 2;

/// The pass.
pub fn run(f: &mut Function) {
    let mut n_ways = vec![0u32; f.blocks.len()];
    for block in &f.blocks {
        for to in block.terminator.iter().flat_map(crate::dominators::successors) {
            n_ways[to.index()] += 1;
        }
    }
    for at in (0..f.blocks.len() as u32).map(Block) {
        if let Some(choice) = choice(f, at, &n_ways) {
            convert(f, at, choice);
        }
    }
}

/// A choice that can be converted.
struct Choice {
    cond: Value,
    /// The blocks of the two ways, if they have any.
    arms: [Option<Block>; 2],
    to: Block,
    /// What the two ways pass.
    args: [Vec<Value>; 2],
    /// Integers with the least and the greatest value for which no check fails.
    limits: BTreeMap<Value, (i64, i64)>,
}

/// A multiple of a root (if any) plus a constant.
#[derive(Clone, Copy)]
struct Affine {
    root: Option<Value>,
    factor: i128,
    constant: i128,
}

fn choice(f: &Function, at: Block, n_ways: &[u32]) -> Option<Choice> {
    let Some(Terminator::Branch { cond, then, els }) = &f.blocks[at.index()].terminator else { return None };
    let end = |block: Block| match &f.blocks[block.index()] {
        data if n_ways[block.index()] != 1 || data.cold || !data.params.is_empty() => None,
        data => match &data.terminator {
            Some(Terminator::Jump(to, args)) => Some((*to, args.clone())),
            _ => None,
        },
    };
    let (arms, to, args) = match (end(then.0), end(els.0)) {
        (Some((to, a)), Some((other, b))) if to == other => ([Some(then.0), Some(els.0)], to, [a, b]),
        (Some((to, a)), _) if to == els.0 => ([Some(then.0), None], to, [a, els.1.clone()]),
        (_, Some((to, b))) if to == then.0 => ([None, Some(els.0)], to, [then.1.clone(), b]),
        _ => return None,
    };
    if f.blocks[to.index()].cold || args[0].iter().zip(&args[1]).filter(|(a, b)| a != b).count() > MAX_SELECTS
    {
        return None;
    }
    let mut limits = BTreeMap::new();
    let mut cost = 0;
    for arm in arms.iter().flatten() {
        cost += way(f, *arm, &mut limits)?;
    }
    (cost <= MAX_COST && (1..=MAX_ROOTS).contains(&limits.len())).then_some(Choice {
        cond: *cond,
        arms,
        to,
        args,
        limits,
    })
}

/// What a way costs; narrows the limits to those that its checks have.
fn way(f: &Function, arm: Block, limits: &mut BTreeMap<Value, (i64, i64)>) -> Option<u32> {
    let mut known: BTreeMap<Value, Affine> = BTreeMap::new();
    let mut made_here: Vec<Value> = vec![];
    let mut cost = 0;
    for (inst, result) in &f.blocks[arm.index()].insts {
        let v = (*result)?;
        let constant = |v: &Value| known.get(v).filter(|x| x.root.is_none()).map(|x| x.constant);
        match inst {
            Inst::IConst(n) => {
                known.insert(v, Affine { root: None, factor: 0, constant: (*n).into() });
            }
            Inst::Checked(op, a, b, _) => {
                let operand = |v: &Value| match known.get(v) {
                    Some(x) => Some(*x),
                    None if made_here.contains(v) => None,
                    None => Some(constant_before(f, *v).unwrap_or(Affine {
                        root: Some(*v),
                        factor: 1,
                        constant: 0,
                    })),
                };
                let x = combine(*op, operand(a)?, operand(b)?)?;
                narrow(x, limits)?;
                known.insert(v, x);
                cost += 1;
            }
            inst => cost += price(inst, &|v| constant(v).or_else(|| Some(constant_before(f, *v)?.constant)))?,
        }
        made_here.push(v);
    }
    Some(cost)
}

fn constant_before(f: &Function, v: Value) -> Option<Affine> {
    f.blocks.iter().flat_map(|b| &b.insts).find_map(|(inst, result)| match inst {
        Inst::IConst(n) if *result == Some(v) => {
            Some(Affine { root: None, factor: 0, constant: (*n).into() })
        }
        _ => None,
    })
}

fn combine(op: CheckedOp, a: Affine, b: Affine) -> Option<Affine> {
    let root = match (a.root, b.root) {
        (Some(x), Some(y)) if x != y => return None,
        (x, y) => x.or(y),
    };
    let sum = |sign: i128| {
        Some(Affine {
            root,
            factor: a.factor.checked_add(sign * b.factor)?,
            constant: a.constant.checked_add(sign * b.constant)?,
        })
    };
    match op {
        CheckedOp::Add => sum(1),
        CheckedOp::Sub => sum(-1),
        CheckedOp::Mul => {
            let (x, n) = match (a.root, b.root) {
                (_, None) => (a, b.constant),
                (None, _) => (b, a.constant),
                _ => return None,
            };
            Some(Affine { root, factor: x.factor.checked_mul(n)?, constant: x.constant.checked_mul(n)? })
        }
    }
}

/// Takes into account that a value shall fit 64 bits; `None` if its root has no room left.
fn narrow(x: Affine, limits: &mut BTreeMap<Value, (i64, i64)>) -> Option<()> {
    let (min, max) = (i128::from(i64::MIN), i128::from(i64::MAX));
    let Some(root) = x.root else { return (min..=max).contains(&x.constant).then_some(()) };
    let (mut lo, mut hi) = limits.get(&root).map_or((min, max), |(lo, hi)| ((*lo).into(), (*hi).into()));
    let (below, above) = (min.checked_sub(x.constant)?, max.checked_sub(x.constant)?);
    let (least, greatest) = match x.factor {
        0 => (lo, hi),
        n if n > 0 => (-((-below).div_euclid(n)), above.div_euclid(n)),
        n => (-(above.div_euclid(-n)), (-below).div_euclid(-n)),
    };
    (lo, hi) = (lo.max(least), hi.min(greatest));
    if hi - lo < 1 << 32 {
        return None;
    }
    if (lo, hi) != (min, max) {
        limits.insert(root, (i64::try_from(lo).ok()?, i64::try_from(hi).ok()?));
    }
    Some(())
}

/// What an instruction costs that may be executed without need, if it may.
fn price(inst: &Inst, constant: &dyn Fn(&Value) -> Option<i128>) -> Option<u32> {
    Some(match inst {
        Inst::FConst(_) | Inst::F32Const(_) | Inst::BConst(_) | Inst::OConst(_) | Inst::Null => 0,
        Inst::Int(IntOp::FloorDiv | IntOp::FloorMod, _, b) => {
            let n = constant(b)?;
            (n > 0 && n & (n - 1) == 0).then_some(1)?
        }
        Inst::Int(IntOp::Shl | IntOp::Shr, _, b) => (0..64).contains(&constant(b)?).then_some(1)?,
        Inst::Int(..)
        | Inst::ICmp(..)
        | Inst::ULt(..)
        | Inst::Bool(..)
        | Inst::Not(_)
        | Inst::BoolToInt(_)
        | Inst::Select(..) => 1,
        Inst::Float(FloatOp::Add | FloatOp::Sub | FloatOp::Mul, ..)
        | Inst::FloatUnary(..)
        | Inst::FCmp(..)
        | Inst::IntToFloat(_) => 2,
        _ => return None,
    })
}

/// The operand that decides whether a checked operation with a constant fits, and between what it does.
pub(super) fn of_one(
    op: CheckedOp,
    a: (Value, Option<i64>),
    b: (Value, Option<i64>),
) -> Option<(Value, (i64, i64))> {
    let operand = |(v, constant): (Value, Option<i64>)| match constant {
        Some(n) => Affine { root: None, factor: 0, constant: n.into() },
        None => Affine { root: Some(v), factor: 1, constant: 0 },
    };
    if a.1.is_some() == b.1.is_some() {
        return None;
    }
    let mut limits = BTreeMap::new();
    narrow(combine(op, operand(a), operand(b))?, &mut limits)?;
    limits.into_iter().next()
}

/// The operation without its check.
pub(super) fn unchecked(inst: Inst) -> Inst {
    match inst {
        Inst::Checked(CheckedOp::Add, a, b, _) => Inst::Int(IntOp::Add, a, b),
        Inst::Checked(CheckedOp::Sub, a, b, _) => Inst::Int(IntOp::Sub, a, b),
        Inst::Checked(CheckedOp::Mul, a, b, _) => Inst::Int(IntOp::Mul, a, b),
        inst => inst,
    }
}

/// Whether an integer lies between limits, which are not those of 64 bits.
pub(super) fn within(f: &mut Function, at: Block, root: Value, (lo, hi): (i64, i64)) -> Value {
    if lo == i64::MIN || hi == i64::MAX {
        let (cmp, limit) = if lo == i64::MIN { (Cmp::Le, hi) } else { (Cmp::Ge, lo) };
        let limit = push(f, at, Inst::IConst(limit));
        return push(f, at, Inst::ICmp(cmp, root, limit));
    }
    let first = push(f, at, Inst::IConst(lo));
    let above = push(f, at, Inst::Int(IntOp::Sub, root, first));
    // Unsigned, and below 2^64.
    let span = push(f, at, Inst::IConst(hi.wrapping_sub(lo).wrapping_add(1)));
    push(f, at, Inst::ULt(above, span))
}

fn convert(f: &mut Function, at: Block, choice: Choice) {
    let Choice { cond, arms, to, args, limits } = choice;
    let mut all = None;
    for (root, limits) in limits {
        let one = within(f, at, root, limits);
        all = Some(match all {
            Some(known) => push(f, at, Inst::Bool(BoolOp::And, known, one)),
            None => one,
        });
    }
    let Some(within) = all else { return };
    let (both, outside) = (f.add_block(), f.add_block());
    let old = f.blocks[at.index()].terminator.take();
    f.terminate(at, Terminator::Branch { cond: within, then: (both, vec![]), els: (outside, vec![]) });
    f.blocks[outside.index()].terminator = old;
    f.blocks[outside.index()].cold = true;

    let mut copies = Copies::default();
    for arm in arms.into_iter().flatten() {
        f.blocks[arm.index()].cold = true;
        for (inst, result) in f.blocks[arm.index()].insts.clone() {
            copies.inst(f, both, unchecked(inst), result);
        }
    }
    let [a, b] = args;
    let args = a
        .into_iter()
        .zip(b)
        .map(|(a, b)| {
            let (a, b) = (copies.value(a), copies.value(b));
            if a == b { a } else { push(f, both, Inst::Select(cond, a, b)) }
        })
        .collect();
    f.terminate(both, Terminator::Jump(to, args));
}

#[cfg(test)]
mod tests {
    use super::run;
    use crate::opt::testing::check;

    #[test]
    fn one_comparison_for_all_checks_of_both_ways() {
        // 3 * m + 1 fits from -3074457345618258602 (3m is the narrower one) to 3074457345618258602.
        check(
            run,
            "v1 = list_len v0 v2 = iconst 2 v3 = ifloor_mod v1, v2 v4 = iconst 0 v5 = icmp eq, v3, v4 branch v5, b1, b2
             b1: v6 = ifloor_div v1, v2 jump b3(v6)
             b2: v7 = iconst 3 v8 = checked_mul v7, v1, exit0 v9 = iconst 1 v10 = checked_add v8, v9, exit0 jump b3(v10)
             b3(v11: i64): return v0",
            "v1 = list_len v0 v2 = iconst 2 v3 = ifloor_mod v1, v2 v4 = iconst 0 v5 = icmp eq, v3, v4
             v12 = iconst -3074457345618258602 v13 = isub v1, v12 v14 = iconst 6148914691236517205 v15 = ult v13, v14
             branch v15, b4, b5
             b1 cold: v6 = ifloor_div v1, v2 jump b3(v6)
             b2 cold: v7 = iconst 3 v8 = checked_mul v7, v1, exit0 v9 = iconst 1 v10 = checked_add v8, v9, exit0 jump b3(v10)
             b3(v11: i64): return v0
             b4: v16 = ifloor_div v1, v2 v17 = iconst 3 v18 = imul v17, v1 v19 = iconst 1 v20 = iadd v18, v19
             v21 = select v5, v16, v20 jump b3(v21)
             b5 cold: branch v5, b1, b2",
        );
    }

    #[test]
    fn one_way_that_counts() {
        check(
            run,
            "v1 = list_len v0 v2 = type_is v0, list branch v2, b1, b2(v1)
             b1: v3 = iconst 1 v4 = checked_add v1, v3, exit0 jump b2(v4)
             b2(v5: i64): return v0",
            "v1 = list_len v0 v2 = type_is v0, list v6 = iconst 9223372036854775806 v7 = icmp le, v1, v6
             branch v7, b3, b4
             b1 cold: v3 = iconst 1 v4 = checked_add v1, v3, exit0 jump b2(v4)
             b2(v5: i64): return v0
             b3: v8 = iconst 1 v9 = iadd v1, v8 v10 = select v2, v9, v1 jump b2(v10)
             b4 cold: branch v2, b1, b2(v1)",
        );
    }

    #[test]
    fn what_cannot_be_bounded_or_costs_much_stays() {
        for way in [
            "v3 = checked_mul v1, v1, exit0",
            "v6 = ifloor_div v1, v1 v3 = checked_add v6, v1, exit0",
            "v6 = imul v1, v1 v3 = checked_add v6, v1, exit0",
            "v6 = list_len v0 v3 = checked_add v1, v1, exit0",
            "v3 = iadd v1, v1",
        ] {
            let text = format!(
                "v1 = list_len v0 v2 = type_is v0, list branch v2, b1, b2(v1) b1: {way} jump b2(v3) b2(v5: i64): return v0"
            );
            check(run, &text, &text);
        }
    }
}
