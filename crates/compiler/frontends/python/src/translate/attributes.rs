//! Attributes: of ordinary classes where their instances keep them (`members`), of known modules and arrays natively, of
//! everything else through CPython.
//!
//! In: an object on the abstract stack and a name. Out: the value, or the store done.

use overdrive_base::flavour::Flavour;
use overdrive_base::table::Entry as TableEntry;
use overdrive_ir::entities::Value;
use overdrive_ir::function::ConstRef;
use overdrive_ir::inst::{Field, Inst};

use crate::facts::{Access, Status};
use crate::op::NameIdx;
use crate::translate::Step;
use crate::translate::emit::Tx;
use crate::translate::value::{Obj, ObjTy, Val};

impl Tx<'_> {
    pub(crate) fn load_attr(&mut self, name: NameIdx) -> Step {
        if let Val::Obj(o) = self.peek(0).clone() {
            if let Some(attr) = self.module_attr(&o, name) {
                let val = self.fact_val(attr);
                self.drop_top(1);
                self.push(val);
                return Ok(());
            }
            if let Some(member) = self.member(&o, name, Access::Read) {
                self.read_member(&o, name, &member);
                return Ok(());
            }
            if matches!(o.ty, ObjTy::Array { .. })
                && let Some(val) = self.array_attr(&o, name)
            {
                self.drop_top(1);
                self.push(val);
                return Ok(());
            }
            if self.read_property(&o, name)? {
                return Ok(());
            }
        }
        let why = format!("attribute .{}", self.code().names[name.index()]);
        self.remark(Status::ThroughCPython, &why);
        self.box_top(1);
        self.watch_receiver(0, name, Access::Read);
        let mut args = self.top_refs(1);
        args.push(self.name(name));
        let v = self.call(TableEntry::GetAttr, args);
        self.replace_top(1, v);
        Ok(())
    }

    fn array_attr(&mut self, o: &Obj, name: NameIdx) -> Option<Val> {
        let text = self.code().names[name.index()].as_str();
        if !matches!(text, "shape" | "ndim" | "size") {
            return None;
        }
        let o = self.recheck(o, false)?;
        let ObjTy::Array { ndim, .. } = o.ty else { return None };
        match text {
            "ndim" => {
                let v = self.iconst(i64::from(ndim));
                Some(Val::num(Flavour::Int, v))
            }
            "shape" => {
                let dims = (0..ndim).map(|k| self.emit(Inst::Field(Field::ArrayDim(k), o.v)));
                let dims: Vec<Value> = dims.collect();
                Some(Val::Tuple(dims.into_iter().map(|v| Val::num(Flavour::Int, v)).collect()))
            }
            _ => {
                let mut size = self.iconst(1);
                for k in 0..ndim {
                    let dim = self.emit(Inst::Field(Field::ArrayDim(k), o.v));
                    size = self.int(overdrive_ir::inst::IntOp::Mul, size, dim);
                }
                Some(Val::num(Flavour::Int, size))
            }
        }
    }

    /// Pushes a call pair `[callable, self or null]`.
    pub(crate) fn load_method(&mut self, name: NameIdx) -> Step {
        if let Val::Obj(o) = self.peek(0).clone() {
            if let Some(attr) = self.module_attr(&o, name) {
                self.drop_top(1);
                self.push(Val::Obj(attr));
                self.push(Val::Unset);
                return Ok(());
            }
            let known = match o.ty {
                ObjTy::Exact(k) => Some(k),
                ObjTy::Array { holder, .. } => Some(holder.known_type()),
                ObjTy::Any | ObjTy::Instance { .. } => None,
            };
            // Built-in types are immutable: what they say now, they say always.
            if let Some(k) = known
                && let Some(fact) = self.oracle.type_attr(k, name.0)
            {
                let v = self.oconst(ConstRef::Fact(fact.id.0));
                let method = self.fact_obj(fact, v);
                let receiver = self.pop();
                self.push(Val::Obj(method));
                self.push(receiver);
                return Ok(());
            }
        }
        if let Val::Obj(o) = self.peek(0).clone()
            && let Some(method) = self.class_method(&o, name)
        {
            let receiver = self.pop();
            self.push(Val::Obj(method));
            self.push(receiver);
            return Ok(());
        }
        let why = format!("method .{}", self.code().names[name.index()]);
        self.remark(Status::ThroughCPython, &why);
        self.box_top(1);
        self.watch_method(name);
        let mut args = self.top_refs(1);
        args.push(self.name(name));
        let v = self.call(TableEntry::GetAttr, args);
        self.replace_top_typed(1, v, ObjTy::Any);
        self.push(Val::Unset);
        Ok(())
    }

    pub(crate) fn store_attr(&mut self, name: NameIdx) {
        if let Val::Obj(o) = self.peek(0).clone()
            && let Some(member) = self.member(&o, name, Access::Write)
        {
            self.write_member(name, &member);
            return;
        }
        let why = format!("attribute .{}", self.code().names[name.index()]);
        self.remark(Status::ThroughCPython, &why);
        self.box_top(2);
        self.watch_receiver(0, name, Access::Write);
        if let [value, owner] = self.top_refs(2)[..] {
            let name = self.name(name);
            self.table(TableEntry::SetAttr, vec![owner, name, value]);
        }
        self.drop_top(2);
    }

    pub(crate) fn delete_attr(&mut self, name: NameIdx) {
        self.remark(Status::ThroughCPython, "attribute deletion");
        self.box_top(1);
        let mut args = self.top_refs(1);
        args.push(self.name(name));
        self.table(TableEntry::DelAttr, args);
        self.drop_top(1);
    }

    pub(crate) fn load_super_attr(&mut self, name: NameIdx, method: bool) {
        self.remark(Status::ThroughCPython, "super()");
        self.box_top(3);
        let mut args = self.top_refs(3);
        args.push(self.name(name));
        let v = self.call(TableEntry::SuperAttr, args);
        self.replace_top_typed(3, v, ObjTy::Any);
        if method {
            self.push(Val::Unset);
        }
    }
}
