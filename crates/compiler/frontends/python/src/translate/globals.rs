//! Globals in registers: the variables that a loop of module code rebinds.
//!
//! In: a loop that is entered while it runs. Out: extra entries of the abstract state behind the fast locals, one for each
//! int or float global that the loop stores. They go back to the dictionary before anything that could look (an opaque
//! operation, a poll that finds work) and at every exit; afterwards they are read again. Other threads run only while we
//! poll, so nobody sees an old value.

use overdrive_base::flavour::{Flavour, KnownType};
use overdrive_base::table::Entry as TableEntry;
use overdrive_ir::entities::{ExitId, Value};
use overdrive_ir::inst::Inst;

use crate::facts::{Named, Seen};
use crate::op::{NameIdx, Op};
use crate::translate::emit::{Edge, Tx};
use crate::translate::shape::Shape;
use crate::translate::shared::Shared;
use crate::translate::value::{Num, Val};

/// A global that the loop keeps in a register.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cached {
    pub(crate) name: NameIdx,
    /// `Int` or `Float`.
    pub(crate) flavour: Flavour,
}

impl Tx<'_> {
    /// Whether some loop around a block rebinds a global.
    pub(crate) fn stored_in_loop(&self, block: usize, name: NameIdx) -> bool {
        let mut at = self.f.loops.innermost[block];
        while let Some(l) = at {
            let l = &self.f.loops.loops[l];
            let mut instrs = l.blocks.iter().flat_map(|b| self.f.cfg.blocks[*b].instrs());
            if instrs.any(|i| stores(&self.f.instrs[i].op) == Some(name)) {
                return true;
            }
            at = l.parent;
        }
        false
    }

    /// Finds the loop nest at the entry and decides which globals to keep: ints and floats that the loop nest at the entry stores.
    pub(crate) fn choose_globals(&mut self, block: usize) {
        let mut outer = self.f.loops.innermost[block];
        while let Some(parent) = outer.and_then(|l| self.f.loops.loops[l].parent) {
            outer = Some(parent);
        }
        let Some(outer) = outer else { return };
        let blocks = self.f.loops.loops[outer].blocks.clone();
        if !self.f.code.is_function() {
            self.nest = Some(blocks.iter().copied().collect());
        }
        for i in blocks.into_iter().flat_map(|b| self.f.cfg.blocks[b].instrs()) {
            let Some(name) = stores(&self.f.instrs[i].op) else { continue };
            if self.cached.iter().any(|c| c.name == name) || self.oracle.blocked(self.f.instrs[i].op_offset) {
                continue;
            }
            let flavour = match self.oracle.global(name.0).map(|f| f.seen) {
                Some(Seen::Exact(KnownType::Int)) => Flavour::Int,
                Some(Seen::Exact(KnownType::Float)) => Flavour::Float,
                _ => continue,
            };
            self.cached.push(Cached { name, flavour });
        }
    }

    /// Reads them at the entry; another type means another version.
    pub(crate) fn preload_globals(&mut self, exit: ExitId) -> Vec<Val> {
        let cached = self.cached.clone();
        cached.into_iter().map(|c| Val::num(c.flavour, self.read_global(c, exit))).collect()
    }

    /// The value of an int or float global; leaves when it is something else.
    fn read_global(&mut self, c: Cached, exit: ExitId) -> Value {
        let (globals, builtins) = self.scopes();
        let name = self.name(c.name);
        let entry = if c.flavour == Flavour::Int { TableEntry::GlobalInt } else { TableEntry::GlobalFloat };
        self.table_with(entry, vec![globals, builtins, name], None, Some(exit)).unwrap_or(globals)
    }

    fn slot_of(&self, name: NameIdx) -> Option<(usize, usize)> {
        let k = self.cached.iter().position(|c| c.name == name)?;
        let i = self.f.code.localsplus.len() + k;
        (i < self.st.locals.len()).then_some((k, i))
    }

    /// The value of a cached global, read again if it was given back.
    pub(crate) fn cached_global(&mut self, name: NameIdx) -> Option<Val> {
        let (k, i) = self.slot_of(name)?;
        if matches!(self.st.locals[i], Val::Unset) {
            if self.blocked() {
                return None;
            }
            let exit = self.exit_here("a global changed its type");
            let v = self.read_global(self.cached[k], exit);
            self.st.locals[i] = Val::num(self.cached[k].flavour, v);
            self.st.dirty[k] = false;
        }
        let val = self.st.locals[i].clone();
        self.tell_type(Named::Global(name.0), &val);
        Some(val)
    }

    /// Rebinds a cached global to the number on top, in its register. False: store it in the dictionary.
    pub(crate) fn store_cached(&mut self, name: NameIdx) -> bool {
        let Some((k, i)) = self.slot_of(name) else { return false };
        // The old value must be known to be a number: releasing it must show nothing.
        let in_register = matches!(self.st.locals[i], Val::Num(_));
        match self.peek(0).clone() {
            Val::Num(n @ Num { boxed: None, .. }) if in_register && n.flavour == self.cached[k].flavour => {
                self.pop();
                self.st.locals[i] = Val::Num(n);
                self.st.dirty[k] = true;
                self.tell_type(Named::Global(name.0), &Val::Num(n));
                true
            }
            _ => false,
        }
    }

    /// Stores what is newer than the dictionary, and forgets all registers: what follows may rebind anything.
    pub(crate) fn flush_globals(&mut self) {
        let n = self.f.code.localsplus.len();
        for k in 0..self.st.locals.len().saturating_sub(n) {
            self.flush_one(k);
            self.st.locals[n + k] = Val::Unset;
        }
    }

    fn flush_one(&mut self, k: usize) {
        let n = self.f.code.localsplus.len();
        let dirty = self.st.dirty.get(k).copied().unwrap_or(false);
        let Val::Num(num) = self.st.locals[n + k].clone() else { return };
        if !dirty {
            return;
        }
        let o = self.forgetting(|tx| tx.box_num(num));
        let (globals, _) = self.scopes();
        let name = self.name(self.cached[k].name);
        self.needs_frame = true;
        let fail = self.exit_raise();
        let pos = self.ins().op_offset;
        // An exact dictionary, a key that is there, a number that goes: no Python code runs.
        self.table_with(TableEntry::StoreGlobal, vec![globals, name, o.v], Some(pos), Some(fail));
        self.emit0(Inst::DecRef { obj: o.v, pos: None });
        self.st.dirty[k] = false;
    }

    /// On an edge into a block that does not keep a register, its value goes to the dictionary.
    pub(crate) fn flush_dropped(&mut self, shape: &[Shape]) {
        let n = self.f.code.localsplus.len();
        for k in 0..self.cached.len().min(self.st.locals.len().saturating_sub(n)) {
            if shape.get(n + k) == Some(&Shape::Unset) {
                self.flush_one(k);
                self.st.locals[n + k] = Val::Unset;
            }
        }
    }

    /// On a back edge to a header that keeps registers, those given back meanwhile are read again.
    pub(crate) fn with_globals(&mut self, mut edge: Edge, shape: &[Shape]) -> Edge {
        let n = self.f.code.localsplus.len();
        let missing = |k: &usize| {
            matches!(shape.get(n + k), Some(Shape::Num { .. }))
                && matches!(edge.state.locals.get(n + k), Some(Val::Unset))
        };
        let missing: Vec<usize> = (0..self.cached.len()).filter(missing).collect();
        if missing.is_empty() {
            return edge;
        }
        let saved = (self.cur.take(), std::mem::take(&mut self.st));
        self.cur = Some(edge.block);
        self.st = edge.state;
        for k in missing {
            // CPython goes on at the loop's head, with everything already in its dictionary.
            let exit = self.exit_jump("a global changed its type");
            let v = self.read_global(self.cached[k], exit);
            self.st.locals[n + k] = Val::num(self.cached[k].flavour, v);
            if let Some(d) = self.st.dirty.get_mut(k) {
                *d = false;
            }
        }
        edge = Edge { block: self.cur.unwrap_or(edge.block), state: std::mem::take(&mut self.st) };
        (self.cur, self.st) = saved;
        edge
    }

    /// Dirty flags behind a merge.
    pub(crate) fn joined_dirty(&self, edges: &[Edge], is_header: bool) -> Shared<Vec<bool>> {
        let dirty: Vec<bool> = (0..self.cached.len())
            .map(|k| is_header || edges.iter().any(|e| e.state.dirty.get(k).copied().unwrap_or(false)))
            .collect();
        dirty.into()
    }
}

fn stores(op: &Op) -> Option<NameIdx> {
    match op {
        Op::StoreName(n) | Op::StoreGlobal(n) | Op::DeleteName(n) | Op::DeleteGlobal(n) => Some(*n),
        _ => None,
    }
}
