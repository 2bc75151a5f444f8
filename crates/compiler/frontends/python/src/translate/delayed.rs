//! Stores into attributes by a body that is translated in place: they wait until it has returned.
//!
//! In: a store whose guards were passed. Out: after the outermost body, all of them in order. Until then code may still leave
//! for the CALL, and finds nothing done; what the body reads in between is what it has stored.

use overdrive_base::flavour::KnownType;
use overdrive_ir::entities::Value;
use overdrive_ir::inst::Attr;

use crate::facts::Member;
use crate::translate::emit::{Edge, Tx};
use crate::translate::shared::Shared;
use crate::translate::value::{Obj, Val};

/// A store into an attribute that was tested, and is made when the body it stands in has returned.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Delayed {
    obj: Value,
    version: u32,
    at: Attr,
    /// What is replaced, and what type it has: one whose release shows nothing.
    old: Value,
    replaced: KnownType,
    value: Val,
}

impl Tx<'_> {
    /// In a body, where code may still leave for the CALL: the store waits. `[value, object]` are popped.
    pub(crate) fn delay(&mut self, o: &Obj, member: &Member, old: Value, replaced: KnownType) {
        let value = self.peek(1).clone();
        if !matches!(value, Val::Num(_) | Val::None | Val::Obj(_)) {
            self.only_outside("it makes an object");
        }
        let may_be_same = |d: &Delayed| d.obj != o.v && d.at == member.at && d.version == member.version;
        if self.st.delayed.iter().any(may_be_same) {
            self.only_outside("it may change an object twice");
        }
        let delayed = &mut self.st.delayed;
        let is_same = |d: &Delayed| d.obj == o.v && d.at == member.at;
        match delayed.iter_mut().find(|d| is_same(d)) {
            Some(before) => before.value = value,
            None => {
                let (obj, version, at) = (o.v, member.version, member.at);
                delayed.push(Delayed { obj, version, at, old, replaced, value });
            }
        }
        self.drop_top(2);
    }

    /// The stores that wait behind a merge.
    pub(crate) fn joined_delayed(&mut self, edges: &[Edge]) -> Shared<Vec<Delayed>> {
        if edges.windows(2).any(|w| w[0].state.delayed != w[1].state.delayed) {
            self.only_outside("it changes an object on one of its ways");
        }
        edges.first().map(|e| e.state.delayed.clone()).unwrap_or_default()
    }

    /// What a body has stored into an attribute, if it has.
    pub(crate) fn delayed_value(&mut self, o: &Obj, member: &Member) -> Option<Val> {
        let mut found = None;
        let mut is_unclear = false;
        for d in self.st.delayed.iter() {
            match (d.obj == o.v, d.at == member.at) {
                (true, true) => found = Some(d.value.clone()),
                // Another value may be the same object, if it is of the same class.
                (false, true) => is_unclear |= d.version == member.version,
                _ => {}
            }
        }
        if is_unclear {
            self.only_outside("it reads what it may have changed");
        }
        found
    }

    /// Makes the stores of a body that has returned. Its result is on the stack.
    pub(crate) fn make_delayed(&mut self, delayed: Vec<Delayed>) {
        // All objects first, so that little can fail when the first is stored: only memory for a float that is shared.
        let base = self.st.stack.len();
        self.st.stack.extend(delayed.iter().map(|d| d.value.clone()));
        let n = delayed.len();
        for (i, d) in delayed.iter().enumerate() {
            if self.in_place(n - 1 - i, Some(d.replaced)).is_some() {
                continue;
            }
            let value = std::mem::replace(&mut self.st.stack[base + i], Val::Unset);
            let o = self.as_obj(value);
            self.st.stack[base + i] = Val::Obj(o);
        }
        for (i, d) in delayed.iter().enumerate() {
            let depth = n - 1 - i;
            // One that was stored twice is an object by now.
            if let Some(num) = self.in_place(depth, Some(d.replaced)) {
                self.overwrite(depth, d.obj, d.at, d.old, num);
            } else {
                self.replace_attr(depth, d.obj, d.at, true);
            }
        }
        for d in &delayed {
            self.forget_attr(d.at);
        }
        for d in &delayed {
            self.know_attr(d.obj, d.at, &d.value);
        }
        self.drop_top(n);
    }
}
