//! A part of the abstract state, copied when it is changed and not before.
//!
//! Every instruction begins with a snapshot of the state, to which its exits go back, and every exit and edge keeps one;
//! most of them differ in a stack entry or two.

use std::ops::{Deref, DerefMut};
use std::rc::Rc;

/// A value that clones share until one of them changes it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shared<T>(Rc<T>);

impl<T> From<T> for Shared<T> {
    fn from(value: T) -> Shared<T> {
        Shared(Rc::new(value))
    }
}

impl<T: PartialEq> PartialEq for Shared<T> {
    fn eq(&self, other: &Shared<T>) -> bool {
        Rc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        Rc::make_mut(&mut self.0)
    }
}

impl<T: Clone> Shared<T> {
    /// The value itself.
    pub(crate) fn into_inner(self) -> T {
        Rc::unwrap_or_clone(self.0)
    }
}
