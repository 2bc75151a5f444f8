//! Gives values and exits new numbers in the order of the text and drops those that are no longer used, so that what a
//! person reads has no gaps and nobody keeps tables for what is gone.

use crate::entities::{ExitId, Value};
use crate::function::Function;
use crate::inst::Terminator;
use crate::opt::rewrite::replace_uses;

/// The pass.
pub fn run(f: &mut Function) {
    exits(f);
    values(f);
}

fn exits(f: &mut Function) {
    let mut used = vec![false; f.exits.len()];
    each_exit(f, &mut |e| used[e.index()] = true);
    let mut number = vec![ExitId(0); used.len()];
    let mut kept = 0;
    for (number, used) in number.iter_mut().zip(&used) {
        *number = ExitId(kept);
        kept += u32::from(*used);
    }
    each_exit(f, &mut |e| *e = number[e.index()]);
    let mut flags = used.iter();
    f.exits.retain(|_| flags.next().is_some_and(|u| *u));
}

fn each_exit(f: &mut Function, visit: &mut dyn FnMut(&mut ExitId)) {
    for block in &mut f.blocks {
        for (inst, _) in &mut block.insts {
            inst.exit_mut().into_iter().for_each(&mut *visit);
        }
        if let Some(Terminator::Exit(e)) = &mut block.terminator {
            visit(e);
        }
    }
}

fn values(f: &mut Function) {
    let mut number: Vec<Option<Value>> = vec![None; f.n_values()];
    let mut types = Vec::with_capacity(f.n_values());
    let mut old = Vec::with_capacity(f.n_values());
    let mut define = |v: &mut Value| {
        let new = Value(types.len() as u32);
        types.push(f.types[v.index()]);
        old.push(*v);
        number[v.index()] = Some(new);
        *v = new;
    };
    for block in &mut f.blocks {
        block.params.iter_mut().for_each(&mut define);
        block.insts.iter_mut().filter_map(|(_, result)| result.as_mut()).for_each(&mut define);
    }
    // Only a function that is not valid uses a value that has no definition.
    replace_uses(f, |v| number[v.index()].unwrap_or(v));
    f.types = types;
    f.places = f.places.renumbered(&old);
}

#[cfg(test)]
mod tests {
    use super::run;

    #[test]
    fn numbers_have_no_gaps_and_unused_exits_go() {
        let mut f = crate::parse::parse(
            "function \"f\" args 1 { exit0 = resume 2 [own v9] [] \"unused\" exit1 = resume 4 [borrow v0, number int v7] [] \"used\"
             b0(v0: obj): v7 = iconst 1 v3 = iadd v7, v7 v5 = checked_add v3, v7, exit1 jump b1(v5) b1(v2: i64): return v0 }",
        )
        .expect("parses");
        run(&mut f);
        let after = crate::parse::parse(
            "function \"f\" args 1 { exit0 = resume 4 [borrow v0, number int v1] [] \"used\"
             b0(v0: obj): v1 = iconst 1 v2 = iadd v1, v1 v3 = checked_add v2, v1, exit0 jump b1(v3) b1(v4: i64): return v0 }",
        );
        assert_eq!(Ok(f), after);
    }
}
