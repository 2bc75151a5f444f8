//! Global names, builtins, closure cells.
//!
//! In: names and cell slots. Out: the object a name means now, as a known object behind an identity guard while it keeps
//! meaning it; after a few rebindings, the ordinary look-up.

use overdrive_base::table::Entry as TableEntry;
use overdrive_ir::entities::Value;
use overdrive_ir::function::ConstRef;

use crate::facts::Status;
use crate::op::{GlobalNull, NameIdx};
use crate::translate::Step;
use crate::translate::emit::{FactKey, Tx};
use crate::translate::value::{Obj, ObjTy, Own, Val};

impl Tx<'_> {
    pub(crate) fn scopes(&mut self) -> (Value, Value) {
        (self.oconst(ConstRef::Globals), self.oconst(ConstRef::Builtins))
    }

    pub(crate) fn load_global(&mut self, name: NameIdx, null: GlobalNull) -> Step {
        let val = self.global_val(name);
        if null == GlobalNull::Below {
            self.push(Val::Unset);
        }
        self.push(val);
        if null == GlobalNull::Above {
            self.push(Val::Unset);
        } else if matches!(self.peek(0), Val::Obj(Obj { own: Own::Owned, known: None, .. })) {
            self.refine_top();
        }
        Ok(())
    }

    fn global_val(&mut self, name: NameIdx) -> Val {
        if let Some(val) = self.cached_global(name) {
            return val;
        }
        // What the loop itself rebinds is no fact.
        let rebound = self.stored_in_loop(self.f.cfg.block_of[self.idx], name);
        let fact = if rebound || self.blocked() { None } else { self.oracle.global(name.0) };
        match fact {
            Some(fact) => {
                let o = self.known(FactKey::Global(self.body, name.0), fact);
                self.fact_val(o)
            }
            None => {
                let why = format!("global {}", self.code().names[name.index()]);
                self.remark(Status::ThroughCPython, &why);
                let (globals, builtins) = self.scopes();
                let name = self.name(name);
                let v = self.call(TableEntry::LoadGlobal, vec![globals, builtins, name]);
                Val::Obj(Obj::new(v, Own::Owned, ObjTy::Any))
            }
        }
    }

    pub(crate) fn store_global(&mut self, name: NameIdx) {
        if self.store_cached(name) {
            return;
        }
        let why = format!("global {}", self.code().names[name.index()]);
        self.remark(Status::ThroughCPython, &why);
        self.box_top(1);
        let (globals, _) = self.scopes();
        let name = self.name(name);
        if let [v] = self.top_refs(1)[..] {
            self.table(TableEntry::StoreGlobal, vec![globals, name, v]);
        }
        self.drop_top(1);
    }

    pub(crate) fn delete_global(&mut self, name: NameIdx) {
        self.remark(Status::ThroughCPython, "deletion of a global");
        let (globals, _) = self.scopes();
        let name = self.name(name);
        self.table(TableEntry::DelGlobal, vec![globals, name]);
    }

    // --- cells ---

    pub(crate) fn make_cell(&mut self, i: usize) {
        self.remark(Status::ThroughCPython, "variable shared with a closure");
        let initial = match std::mem::replace(&mut self.st.locals[i], Val::Unset) {
            Val::Unset => self.null(),
            val => {
                let o = self.as_obj(val);
                self.push(Val::Obj(o.clone()));
                o.v
            }
        };
        let cell = self.call(TableEntry::MakeCell, vec![initial]);
        let held = matches!(self.peek(0), Val::Obj(o) if o.v == initial);
        // The cell has its own reference to the initial value.
        self.st.locals[i] = Val::Obj(Obj::new(cell, Own::Owned, ObjTy::Any));
        if held {
            self.drop_top(1);
        }
    }

    fn cell(&self, i: usize) -> Option<Value> {
        match &self.st.locals[i] {
            Val::Obj(o) => Some(o.v),
            _ => None,
        }
    }

    pub(crate) fn load_deref(&mut self, i: usize) {
        let Some(cell) = self.cell(i) else {
            self.leave("closure variable without a cell");
            return;
        };
        let v = self.call(TableEntry::LoadCell, vec![cell]);
        self.push(Val::Obj(Obj::new(v, Own::Owned, ObjTy::Any)));
        self.refine_top();
    }

    pub(crate) fn store_deref(&mut self, i: usize) {
        let Some(cell) = self.cell(i) else {
            self.leave("closure variable without a cell");
            return;
        };
        self.box_top(1);
        if let [v] = self.top_refs(1)[..] {
            self.table(TableEntry::StoreCell, vec![cell, v]);
        }
        self.drop_top(1);
    }

    pub(crate) fn import_name(&mut self, name: NameIdx) {
        self.remark(Status::ThroughCPython, "import");
        self.box_top(2);
        if let [level, from] = self.top_refs(2)[..] {
            let (globals, _) = self.scopes();
            let name = self.name(name);
            let v = self.call(TableEntry::ImportName, vec![globals, name, from, level]);
            self.replace_top_typed(2, v, ObjTy::Any);
        }
    }

    pub(crate) fn import_from(&mut self, name: NameIdx) {
        self.remark(Status::ThroughCPython, "import");
        self.box_top(1);
        let mut args = self.top_refs(1);
        args.push(self.name(name));
        let v = self.call(TableEntry::ImportFrom, args);
        self.push(Val::Obj(Obj::new(v, Own::Owned, ObjTy::Any)));
    }
}
