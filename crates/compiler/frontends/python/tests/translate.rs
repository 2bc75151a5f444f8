//! The translator on real code: whatever types it is told about, what it emits is well-formed IR, on all versions.
//!
//! Facts are drawn by a hash of the place asked about, so a run can be repeated; the verifier of the IR judges. What the
//! IR *means* is tested against CPython from Python, and in the IR interpreter.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod dumps;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use overdrive_base::flavour::{DType, Holder, KnownType};
use overdrive_frontend_python::code::{CodeObject, Const, LocalKind, PyVersion};
use overdrive_frontend_python::facts::{
    Access, Body, Builtin, Callee, Entry, Fact, FactId, MathFn, Meaning, Member, Method, Observed, Oracle,
    Part, Seen,
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
    /// By `Body`: the code itself, then functions that globals may mean.
    bodies: Vec<Arc<CodeObject>>,
    body: Body,
}

/// Ids of those functions begin here.
const FUNCTIONS: u32 = 1 << 31;

impl Guesses {
    fn name(&self, name: u32) -> &str {
        &self.bodies[self.body.0 as usize].names[name as usize]
    }

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
    fn callee(&mut self, callable: FactId) -> Option<Callee> {
        let body = callable.0.checked_sub(FUNCTIONS)?;
        let code = Arc::clone(self.bodies.get(body as usize)?);
        Some(Callee { body: Body(body), code, defaults: Some(vec![Const::Int(3), Const::None]) })
    }

    fn enter(&mut self, body: Body) -> Body {
        std::mem::replace(&mut self.body, body)
    }

    fn part(&mut self, body: Body, part: Part) -> FactId {
        FactId(self.hash((body, part)) as u32)
    }

    fn global(&mut self, name: u32) -> Option<Fact> {
        let text = self.name(name);
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
        let function = self.hash(("function", name)) as usize % (2 * self.bodies.len());
        if builtin.is_none() && (1..self.bodies.len()).contains(&function) {
            let id = FactId(FUNCTIONS + function as u32);
            let seen = Seen::Other("function".into());
            return Some(Fact { id, seen, meaning: Meaning::PythonFunction });
        }
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
        let append = ty == KnownType::List && self.name(name) == "append";
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

    fn method(&mut self, object: FactId, name: u32) -> Option<(Method, Fact)> {
        let h = self.hash(("method", object, name));
        if h.is_multiple_of(3) {
            return None;
        }
        let n_names = h.is_multiple_of(2).then_some((h / 8 % 4) as u32);
        let method = Method { version: 1 + (h / 512 % 2) as u32, n_names, class: "Thing".into() };
        let mut fact = self.fact(("function", object, name));
        fact.seen = Seen::Exact(KnownType::Function);
        fact.meaning = Meaning::PythonFunction;
        Some((method, fact))
    }

    fn getter(&mut self, object: FactId, name: u32) -> Option<Fact> {
        if !self.hash(("getter", object, name)).is_multiple_of(4) {
            return None;
        }
        let function = self.hash(("read by", name)) as usize % self.bodies.len();
        let id = FactId(FUNCTIONS + function as u32);
        Some(Fact { id, seen: Seen::Exact(KnownType::Function), meaning: Meaning::PythonFunction })
    }

    fn pictured(&mut self, offset: u32) -> Option<FactId> {
        let h = self.hash(("picture", offset));
        (!h.is_multiple_of(3)).then_some(FactId(h as u32))
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

/// Translations that succeeded, and calls that were inlined in them.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    translated: usize,
    inlined: usize,
}

/// Translates by a call, and by an entry into each loop; globals may mean the functions.
fn check(code: &Arc<CodeObject>, functions: &[Arc<CodeObject>], seed: u64) -> Counts {
    let bodies = std::iter::once(code).chain(functions).cloned().collect();
    let mut oracle = Guesses { seed, bodies, body: Body::OWN };
    let args = (0..code.n_args()).map(|i| oracle.fact(("arg", i))).collect();
    let mut n = one(code, &Entry::Call(args), &mut oracle);
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
        let counts = one(code, &entry, &mut oracle);
        n = Counts { translated: n.translated + counts.translated, inlined: n.inlined + counts.inlined };
    }
    n
}

fn one(code: &Arc<CodeObject>, entry: &Entry, oracle: &mut Guesses) -> Counts {
    let Ok(t) = translate(code, entry, oracle) else {
        oracle.body = Body::OWN;
        return Counts::default();
    };
    assert_eq!(oracle.body, Body::OWN);
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
    let inlined = t.notes.iter().filter(|note| note.why.contains("inlined, its result is")).count();
    Counts { translated: 1, inlined }
}

fn library(version: PyVersion) {
    let (mut n_translated, mut n_inlined) = (0, 0);
    // Small functions seen lately, whatever they are.
    let mut functions: Vec<Arc<CodeObject>> = vec![];
    let n = dumps::for_each_dump(version, &["--stdlib", "60"], |dump| {
        let code = Arc::new(dump.code);
        if code.code.len() < 4000 {
            for seed in 0..3 {
                let counts = check(&code, &functions, seed);
                n_translated += counts.translated;
                n_inlined += counts.inlined;
            }
        }
        if code.code.len() < 300 && code.is_function() {
            functions.push(code);
            let n_old = functions.len().saturating_sub(8);
            functions.drain(..n_old);
        }
    });
    if n.is_some() {
        assert!(n_translated > 500, "only {n_translated} translations");
        assert!(n_inlined > 20, "only {n_inlined} calls were inlined");
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
                check(&code, std::slice::from_ref(&code), seed);
            });
        }
    }
}
