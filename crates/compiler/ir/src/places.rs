//! Which instruction of the program each value was made for, for people.
//!
//! In: the bytecode offset that the front end stands at. Out: an offset for each value, as far as somebody said. No part of
//! the text form and of no meaning to any pass: copies take their original's along, what passes add has none.

use crate::entities::Value;

const NOWHERE: u32 = u32::MAX;

/// See the module's contract.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Places {
    /// By value; short where the last ones have none.
    of: Vec<u32>,
    here: Option<u32>,
}

impl Places {
    /// Values are made for the instruction at this offset from now on; `None`: for none.
    pub fn stand_at(&mut self, offset: Option<u32>) {
        self.here = offset;
    }

    /// The offset that a value was made for.
    pub fn of(&self, v: Value) -> Option<u32> {
        self.of.get(v.index()).copied().filter(|offset| *offset != NOWHERE)
    }

    /// A value with this number is new. One that had it before is gone.
    pub(crate) fn made(&mut self, v: Value) {
        if let Some(here) = self.here {
            self.of.resize(v.index(), NOWHERE);
            self.of.push(here);
        }
    }

    /// A value stands for another.
    pub(crate) fn copied(&mut self, from: Value, to: Value) {
        if let Some(offset) = self.of(from) {
            if self.of.len() <= to.index() {
                self.of.resize(to.index() + 1, NOWHERE);
            }
            self.of[to.index()] = offset;
        }
    }

    /// Values in the order of their new numbers.
    pub(crate) fn renumbered(&self, old: &[Value]) -> Places {
        if self.of.is_empty() {
            return Places::default();
        }
        Places { of: old.iter().map(|v| self.of(*v).unwrap_or(NOWHERE)).collect(), here: None }
    }
}
