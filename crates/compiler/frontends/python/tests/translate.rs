//! The translator on real code: whatever types it is told about, what it emits is well-formed IR, on all versions.
//!
//! Facts are drawn by a hash of the place asked about, so a run can be repeated; the verifier of the IR judges. What the
//! IR *means* is tested against CPython from Python, and in the IR interpreter.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod dumps;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use overdrive_base::flavour::{DType, Holder, KnownType};
use overdrive_frontend_python::code::{CodeObject, LocalKind, PyVersion};
use overdrive_frontend_python::facts::{
    Access, Builtin, Entry, Fact, FactId, MathFn, Meaning, Member, Observed, Oracle, Seen,
};
use overdrive_frontend_python::function::Function;
use overdrive_frontend_python::locals::SlotState;
use overdrive_frontend_python::op::LocalIdx;
use overdrive_frontend_python::stack::SlotKind;
use overdrive_frontend_python::translate::translate;
use overdrive_ir::inst::Attr;

/// Answers every question by a hash of it.
struct Guesses {
    seed: u64,
    names: Vec<String>,
}

impl Guesses {
    fn hash(&self, of: impl Hash) -> u64 {
        let mut h = DefaultHasher::new();
        (self.seed, of).hash(&mut h);
        h.finish()
    }

    fn seen(&self, of: impl Hash) -> Seen {
        let h = self.hash(of);
        match h % 16 {
            0..=2 => Seen::Exact(KnownType::Int),
            3..=5 => Seen::Exact(KnownType::Float),
            6 => Seen::Exact(KnownType::Bool),
            7 => Seen::Exact(KnownType::NoneType),
            8 => Seen::Exact(KnownType::List),
            9 => Seen::Exact(KnownType::Tuple),
            10 => Seen::Array {
                holder: if (h / 4096).is_multiple_of(4) { Holder::Tensor } else { Holder::NdArray },
                dtype: DType::ALL[(h / 16) as usize % 6],
                ndim: 1 + (h / 128 % 2) as u8,
            },
            11 => Seen::Exact(KnownType::NpF64),
            12 => Seen::Exact(KnownType::ALL[(h / 16) as usize % 18]),
            13 => Seen::Exact(KnownType::ByteArray),
            14 => Seen::Exact(KnownType::NpI64),
            _ => Seen::Other("Thing".into()),
        }
    }

    fn member_of(&self, h: u64) -> Member {
        let n = (h / 64 % 3) as u32;
        let at = if h.is_multiple_of(7) { Attr::Offset(16 + 8 * n as i32) } else { Attr::Value(n) };
        Member { version: 1 + (h / 512 % 2) as u32, at, class: "Thing".into() }
    }

    fn fact(&self, of: impl Hash) -> Fact {
        let h = self.hash(&of);
        Fact { id: FactId(h as u32), seen: self.seen((1, of)), meaning: Meaning::Nothing }
    }
}

impl Oracle for Guesses {
    fn global(&mut self, name: u32) -> Option<Fact> {
        let text = self.names[name as usize].as_str();
        let builtin = match text {
            "len" => Some(Builtin::Len),
            "range" => Some(Builtin::Range),
            "prange" => Some(Builtin::Prange),
            "enumerate" => Some(Builtin::Enumerate),
            "zip" => Some(Builtin::Zip),
            "min" => Some(Builtin::Min),
            "max" => Some(Builtin::Max),
            "abs" => Some(Builtin::Abs),
            "int" => Some(Builtin::Int),
            "float" => Some(Builtin::Float),
            "bool" => Some(Builtin::Bool),
            "round" => Some(Builtin::Round),
            _ => None,
        };
        let mut fact = self.fact(("global", name));
        if let Some(b) = builtin {
            fact.seen = Seen::Other("builtin".into());
            fact.meaning = Meaning::Builtin(b);
        } else if text == "math" || self.hash(name).is_multiple_of(5) {
            fact.seen = Seen::Other("module".into());
            fact.meaning = Meaning::MathModule;
        } else if self.hash(name).is_multiple_of(3) {
            return None;
        }
        Some(fact)
    }

    fn attr(&mut self, base: FactId, name: u32) -> Option<Fact> {
        let h = self.hash((base, name));
        let meaning =
            if h.is_multiple_of(2) { Meaning::Math(MathFn::Exp) } else { Meaning::Math(MathFn::Sqrt) };
        (!h.is_multiple_of(5)).then(|| Fact {
            id: FactId(h as u32),
            seen: Seen::Other("function".into()),
            meaning,
        })
    }

    fn type_attr(&mut self, ty: KnownType, name: u32) -> Option<Fact> {
        let append = ty == KnownType::List && self.names[name as usize] == "append";
        let meaning = if append { Meaning::ListAppend } else { Meaning::Nothing };
        Some(Fact { id: FactId(name), seen: Seen::Other("method".into()), meaning })
    }

    fn item(&mut self, container: FactId) -> Option<Fact> {
        (!self.hash(container).is_multiple_of(4)).then(|| self.fact(("item", container)))
    }

    fn member(&mut self, object: FactId, name: u32, access: Access) -> Option<(Member, Fact)> {
        let h = self.hash((object, name));
        if h.is_multiple_of(3) || access == Access::Write && h.is_multiple_of(4) {
            return None;
        }
        Some((self.member_of(h), self.fact(("member", object, name))))
    }

    fn observed(&self, offset: u32) -> Observed {
        match self.hash(("observed", offset)) % 4 {
            0 => Observed::Nothing,
            1 => Observed::Mixed,
            2 if offset % 2 == 1 => Observed::Member(self.member_of(self.hash(("place", offset)))),
            _ => Observed::Always(self.seen(("seen", offset))),
        }
    }

    fn blocked(&self, offset: u32) -> bool {
        self.hash(("blocked", offset)).is_multiple_of(11)
    }
}

/// Translates by a call, and by an entry into each loop; says how often it succeeded.
fn check(code: &Arc<CodeObject>, seed: u64) -> usize {
    let mut oracle = Guesses { seed, names: code.names.clone() };
    let args = (0..code.n_args()).map(|i| oracle.fact(("arg", i))).collect();
    let mut n = usize::from(one(code, &Entry::Call(args), &mut oracle));
    let Ok(f) = Function::analyse(Arc::clone(code)) else { return n };
    for l in &f.loops.loops {
        let at = f.cfg.blocks[l.header].first;
        let locals = (0..code.localsplus.len()).map(|i| {
            let set = f.locals.state(at, LocalIdx(i as u32)) != Some(SlotState::Unset);
            let cell = code.localsplus[i].kind != LocalKind::Local;
            (set || cell).then(|| oracle.fact(("local", i)))
        });
        let locals = locals.collect();
        let Some(shape) = f.stacks.before[at].clone() else { continue };
        let n_stack = shape.len();
        let stack = shape.iter().enumerate().map(|(i, kind)| {
            let null = matches!(kind, SlotKind::Null | SlotKind::SelfOrNull);
            let mut fact = oracle.fact(("stack", i));
            // The entry on top of a loop's stack is its iterator.
            if i + 1 == n_stack {
                let kinds = [KnownType::RangeIter, KnownType::ListIter, KnownType::TupleIter];
                fact.seen = Seen::Exact(kinds[seed as usize % 3]);
            }
            (!null).then_some(fact)
        });
        let stack = stack.collect();
        let entry = Entry::Loop { offset: f.instrs[at].offset, locals, stack };
        n += usize::from(one(code, &entry, &mut oracle));
    }
    n
}

fn one(code: &Arc<CodeObject>, entry: &Entry, oracle: &mut Guesses) -> bool {
    let Ok(t) = translate(code, entry, oracle) else { return false };
    let errors = overdrive_ir::verify::verify(&t.function);
    assert!(
        errors.is_empty(),
        "{} of {}:{} by {entry:?} (seed {}): {errors:?}\n{}",
        code.qualname,
        code.filename,
        code.first_line,
        oracle.seed,
        t.function
    );
    true
}

fn library(version: PyVersion) {
    let mut n_translated = 0;
    let n = dumps::for_each_dump(version, &["--stdlib", "60"], |dump| {
        let code = Arc::new(dump.code);
        if code.code.len() < 4000 {
            for seed in 0..3 {
                n_translated += check(&code, seed);
            }
        }
    });
    if n.is_some() {
        assert!(n_translated > 500, "only {n_translated} translations");
    }
}

#[test]
fn library_311() {
    library(PyVersion::V311);
}

#[test]
fn library_312() {
    library(PyVersion::V312);
}

#[test]
fn library_313() {
    library(PyVersion::V313);
}

#[test]
fn corpus() {
    for version in PyVersion::ALL {
        for dump in dumps::corpus(version) {
            let code = Arc::new(dump.code);
            (0..5).for_each(|seed| {
                check(&code, seed);
            });
        }
    }
}
