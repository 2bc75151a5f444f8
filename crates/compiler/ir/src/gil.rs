//! Where a function may run without the GIL, and that nothing there needs it.
//!
//! In: a function, whose `gil_give` and `gil_take` bracket nests. Out: what breaks the rule: the GIL is given by code that
//! has it on every way; between the two stand computation, array elements, and table entries that only read memory; a
//! function does not return without it. An exit takes it, whatever its kind: the service behind it does, first of all.

use overdrive_base::table::{Effect, Entry};

use crate::dominators::successors;
use crate::entities::Block;
use crate::function::Function;
use crate::inst::{Inst, Terminator};

/// Whether this thread has the GIL at a place: on some way there, on some way there not.
#[derive(Clone, Copy, Default, PartialEq)]
struct Ways {
    held: bool,
    given: bool,
}

/// Block, instruction and what is wrong there; the number of instructions stands for the terminator.
pub(crate) fn broken(f: &Function) -> Vec<(Block, usize, &'static str)> {
    let gives = |(inst, _): &(Inst, _)| matches!(inst, Inst::Table { entry: Entry::GilGive, .. });
    if !f.blocks.iter().any(|block| block.insts.iter().any(gives)) {
        return vec![];
    }
    let mut before = vec![Ways::default(); f.blocks.len()];
    before[0].held = true;
    let mut todo = vec![Block(0)];
    while let Some(block) = todo.pop() {
        let after = through(f, block, before[block.index()], &mut vec![]);
        let ends = f.blocks[block.index()].terminator.iter().flat_map(successors);
        for to in ends.filter(|to| to.index() < f.blocks.len()) {
            let known = &mut before[to.index()];
            let ways = Ways { held: known.held | after.held, given: known.given | after.given };
            if ways != *known {
                *known = ways;
                todo.push(to);
            }
        }
    }
    let mut errors = vec![];
    for (b, ways) in before.into_iter().enumerate() {
        through(f, Block(b as u32), ways, &mut errors);
    }
    errors
}

/// What holds behind a block; adds what is wrong in it.
fn through(
    f: &Function,
    block: Block,
    mut ways: Ways,
    errors: &mut Vec<(Block, usize, &'static str)>,
) -> Ways {
    let data = &f.blocks[block.index()];
    for (at, (inst, _)) in data.insts.iter().enumerate() {
        match inst {
            Inst::Table { entry: Entry::GilGive, .. } => {
                if ways.given {
                    errors.push((block, at, "gives the GIL, which it may not have"));
                }
                ways = Ways { held: false, given: ways.held | ways.given };
            }
            Inst::Table { entry: Entry::GilTake, .. } => {
                ways = Ways { held: ways.held | ways.given, given: false };
            }
            _ if ways.given && needs_gil(inst) => {
                errors.push((block, at, "needs the GIL, which may be given"))
            }
            _ => {}
        }
    }
    if ways.given && matches!(data.terminator, Some(Terminator::Return(_))) {
        errors.push((block, data.insts.len(), "returns without the GIL"));
    }
    ways
}

/// Counts references, changes objects, or may run CPython's code.
fn needs_gil(inst: &Inst) -> bool {
    match inst {
        Inst::Table { entry, .. } => entry.signature().effect != Effect::Pure && *entry != Entry::PollPending,
        Inst::IncRef(_)
        | Inst::DecRef { .. }
        | Inst::OwnArg(_)
        | Inst::CallRoutine { .. }
        | Inst::Poll { .. }
        | Inst::ListSwap { .. }
        | Inst::AttrSwap { .. }
        | Inst::AttrSet { .. } => true,
        _ => false,
    }
}
