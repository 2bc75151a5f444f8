//! References that are not the last: of an object that came out of a list, a tuple or an attribute.
//!
//! In: a local that is rebound, or an iterator that ends. Out: its reference, released behind a guard that the object has
//! another one. So no finaliser runs, and everything that was known before is known after it: a loop over objects keeps its
//! facts from round to round. Where it often is the last one, the guard goes, and the release may run what it likes.

use overdrive_base::table::Entry as TableEntry;
use overdrive_ir::entities::{ExitId, Value};
use overdrive_ir::inst::{Inst, Terminator};

use crate::translate::emit::Tx;
use crate::translate::shape::is_owned;
use crate::translate::value::{Obj, Own, Val};

const IS_LAST: &str = "it is the last reference to the object";

impl Tx<'_> {
    /// In front of STORE_FAST, before anything of it is done: releases what the local holds, if it can go that way. The
    /// local no longer owns it then.
    pub(crate) fn release_local(&mut self, i: usize) {
        let Val::Obj(o) = self.st.locals[i].clone() else { return };
        // What leans on the local takes a reference first, what is built runs the collector: both come before the release.
        let leans = |own: Own| own == Own::Local(i);
        let mut is_leant_on = false;
        for val in self.st.stack.iter_mut() {
            val.each_ref(&mut |_, own, _| is_leant_on |= leans(*own));
        }
        let is_built = matches!(self.peek(0), Val::Tuple(_) | Val::RangeIter { .. } | Val::Range { .. });
        if !is_leant_on && !is_built && self.release_kept(&o) {
            self.st.locals[i] = Val::Unset;
        }
    }

    /// Releases an object that something else holds too; leaves at this instruction when nothing does. False: nothing was
    /// emitted.
    pub(crate) fn release_kept(&mut self, o: &Obj) -> bool {
        let fits = o.is_kept && o.own == Own::Owned && !o.is_plain();
        if !fits || self.ins().sub != 0 || self.inlined.is_some() || self.blocked() {
            return false;
        }
        let exit = self.exit_here(IS_LAST);
        self.guard_kept(o.v, o.maybe_null, exit);
        self.emit0(Inst::DecRef { obj: o.v, pos: None });
        true
    }

    /// Leaves when an object has one reference. Null has none.
    fn guard_kept(&mut self, v: Value, maybe_null: bool, exit: ExitId) {
        let on = maybe_null.then(|| {
            let (there, on) = (self.ir.add_block(), self.ir.add_block());
            let null = self.emit(Inst::IsNull(v));
            self.terminate(Terminator::Branch { cond: null, then: (on, vec![]), els: (there, vec![]) });
            self.cur = Some(there);
            on
        });
        let is_last = self.call(TableEntry::IsUnique, vec![v]);
        let others = self.emit(Inst::Not(is_last));
        self.emit0(Inst::Guard(others, exit));
        if let Some(on) = on {
            self.terminate(Terminator::Jump(on, vec![]));
            self.cur = Some(on);
        }
    }

    /// The references of the state that stay with their containers around a loop: entry, and which of its references.
    pub(crate) fn fragile_at(&mut self, target: usize) -> Vec<(usize, usize)> {
        let Some(header) = self.entered.get(&target) else { return vec![] };
        let mut found = vec![];
        if self.headers.clobbered.contains(&target) {
            return found;
        }
        for (i, _) in header.shape.iter().enumerate().filter(|(_, shape)| !is_owned(shape)) {
            if let Some(val) = self.st.entry_mut(i) {
                let mut n = 0;
                val.each_kept(&mut |_, own, _| {
                    if *own == Own::Fragile {
                        found.push((i, n));
                    }
                    n += 1;
                });
            }
        }
        found
    }

    /// Behind a poll in a loop, for which these references were taken: gives them back, if something holds the objects still.
    /// One after the other: two of them may be to one object, and then the first is not the last, but the second may be.
    pub(crate) fn give_back(&mut self, header: usize, fragile: &[(usize, usize)]) {
        for (i, n) in fragile {
            let Some((v, maybe_null)) = self.kept_ref(*i, *n, |own| own) else { continue };
            let exit = self.exit_block(header, IS_LAST);
            self.guard_kept(v, maybe_null, exit);
            self.emit0(Inst::DecRef { obj: v, pos: None });
            self.kept_ref(*i, *n, |_| Own::Fragile);
        }
    }

    /// A reference of an entry, whose holder is changed.
    fn kept_ref(&mut self, entry: usize, n: usize, holder: impl Fn(Own) -> Own) -> Option<(Value, bool)> {
        let mut found = None;
        let mut nth = 0;
        self.st.entry_mut(entry)?.each_kept(&mut |v, own, maybe_null| {
            if nth == n {
                *own = holder(*own);
                found = Some((v, maybe_null));
            }
            nth += 1;
        });
        found
    }
}
