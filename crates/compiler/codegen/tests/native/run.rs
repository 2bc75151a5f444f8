//! Runs a function as machine code on a mirrored heap, with the interpreter's mock table behind every entry.

#![expect(unsafe_code, reason = "calls machine code and is called by it")]

use std::cell::Cell;
use std::ptr;

use overdrive_base::flavour::{Flavour, Ty};
use overdrive_base::table::{Entry, Failure};
use overdrive_codegen::{Body, Compiled, Rt, Services, Target};
use overdrive_ir::entities::{ExitId, Value};
use overdrive_ir::exit::{ExitKind, Own, Slot};
use overdrive_ir::function::Function;
use overdrive_ir::interpret::heap::{Object, Ref};
use overdrive_ir::interpret::mock::MockTable;
use overdrive_ir::interpret::scalar::Scalar;
use overdrive_ir::interpret::table::{Reply, Table};
use overdrive_ir::interpret::{Forced, Outcome, State};

use crate::world::World;

/// One run.
pub(crate) struct Run<'a> {
    pub(crate) world: World,
    pub(crate) table: MockTable,
    f: &'a Function,
    consts: Vec<Ref>,
    forced: Forced,
    /// Checks that were asked about, in order.
    pub(crate) checks: Vec<ExitId>,
    random: u64,
    left: Option<Outcome>,
    fault: Option<String>,
}

thread_local! {
    static CURRENT: Cell<*mut Run<'static>> = const { Cell::new(ptr::null_mut()) };
}

type Result<T> = std::result::Result<T, String>;

impl<'a> Run<'a> {
    pub(crate) fn new(world: World, table: MockTable, f: &'a Function, consts: Vec<Ref>) -> Run<'a> {
        Run {
            world,
            table,
            f,
            consts,
            forced: Forced::No,
            checks: vec![],
            random: 1,
            left: None,
            fault: None,
        }
    }

    /// Calls the code. The frame takes the arguments over, as the interpreter's does.
    pub(crate) fn call(&mut self, code: &Compiled, args: &[Option<Ref>], forced: Forced) -> Result<Outcome> {
        self.forced = forced;
        self.random = if let Forced::Seeded(seed) = forced { seed | 1 } else { 1 };
        let mut slots: Vec<*mut u8> = Vec::new();
        for arg in args {
            slots.push(arg.map_or(ptr::null_mut(), |r| self.world.adopt(r) as *mut u8));
        }
        self.world.push();
        let mut profile = vec![0usize; self.f.n_profile as usize];
        let mut rt = Rt {
            code_base: self.world.code_base as *const u8,
            owner: ptr::null_mut(),
            profile: profile.as_mut_ptr(),
        };
        let breaker = self.world.breaker();
        let frame = if self.table.has_frame() { self.world.frame() } else { ptr::null_mut() };
        let entry = code.entry();
        CURRENT.set(ptr::from_mut(self).cast());
        // SAFETY: the code was compiled for this world's layout and consts; slots, frame, rt and breaker outlive the call.
        let result = unsafe { entry(slots.as_mut_ptr(), frame, &mut rt, ptr::from_ref(&breaker).cast()) };
        CURRENT.set(ptr::null_mut());
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        let outcome = match self.left.take() {
            Some(outcome) if result as usize == LEFT => outcome,
            Some(_) => return Err("the exit's result was not returned".to_owned()),
            None => {
                self.world.pull()?;
                let result = self.world.object_at(result as u64)?;
                Outcome::Returned(result.ok_or("returned null")?)
            }
        };
        for slot in slots {
            if let Some(r) = self.world.object_at(slot as u64)? {
                self.world.heap.release(r)?;
            }
        }
        self.world.push();
        match self.world.heap.pending.take() {
            Some(e) => Err(format!("returns with an exception set: {e}")),
            None => Ok(outcome),
        }
    }

    /// An entry of the object table: result word, and the out word of entries that decline.
    fn entry(&mut self, entry: Entry, raw: &Raw) -> Result<u64> {
        self.world.pull()?;
        let signature = entry.signature();
        let mut words = raw.ints.iter().copied();
        let mut floats = raw.floats.iter().copied();
        let mut next = || words.next().ok_or("too few registers");
        let rt = if matches!(entry, Entry::Observe | Entry::ObserveAttr) { next()? } else { 0 };
        let mut args = vec![];
        for ty in signature.args {
            args.push(match ty {
                Ty::I64 => Scalar::I64(next()? as i64),
                Ty::Obj => Scalar::Obj(self.world.object_at(next()?)?),
                Ty::F64 => Scalar::F64(f64::from_bits(floats.next().ok_or("too few registers")?)),
                Ty::F32 => Scalar::F32(f32::from_bits(floats.next().ok_or("too few registers")? as u32)),
                other => return Err(format!("no entry has {other:?} arguments")),
            });
        }
        if signature.variadic {
            let (array, count) = (next()? as *mut u64, next()?);
            for i in 0..count as usize {
                // SAFETY: the contract of variadic entries.
                let word = unsafe { array.add(i).read() };
                args.push(Scalar::Obj(self.world.object_at(word)?));
            }
            // SAFETY: as above; the slot before the first is ours to use.
            unsafe { array.sub(1).write(0xbad) };
        }
        let out = if signature.failure == Failure::Declines { next()? as *mut u64 } else { ptr::null_mut() };

        if entry == Entry::Dealloc {
            let [Scalar::Obj(Some(r))] = args[..] else { return Err("dealloc of null".to_owned()) };
            if self.world.heap.ref_count(r) != 1 {
                return Err("dealloc of an object with references".to_owned());
            }
            self.world.heap.release(r)?;
            self.world.push();
            return Ok(0);
        }
        if let (Entry::Observe, [Scalar::I64(slot), Scalar::Obj(Some(r))]) = (entry, &args[..]) {
            let object = self.world.address(*r) as *const usize;
            // SAFETY: the contract of `Observe`: store the type into the slot.
            unsafe { (*(rt as *const Rt)).profile.add(*slot as usize).write(object.add(1).read()) };
        }
        let reply = self.table.call(&mut self.world.heap, entry, &args)?;
        let word = match &reply {
            Reply::Done(Some(value)) => Some(self.word(*value)?),
            Reply::Done(None) => Some(0),
            Reply::Raised | Reply::Declined => None,
        };
        self.world.push();
        match (signature.failure, word) {
            (Failure::Declines, Some(word)) => {
                match signature.result {
                    // SAFETY: the contract of declining entries; only the result's own bytes are written.
                    Some(Ty::I1) => unsafe { out.cast::<u8>().write(word as u8) },
                    // SAFETY: as above.
                    _ => unsafe { out.write(word) },
                }
                Ok(1)
            }
            (Failure::Declines, None) => Ok(0xffff_ff00),
            (Failure::Null, None) => Ok(0),
            (Failure::Negative, None) => Ok(-7i64 as u64),
            (_, Some(word)) => Ok(word),
            (Failure::Never, None) => Err(format!("{} can't reply {reply:?}", entry.name())),
        }
    }

    fn word(&mut self, value: Scalar) -> Result<u64> {
        Ok(match value {
            // The upper bits of a byte's register mean nothing.
            Scalar::I1(b) => 0x5500 | u64::from(b),
            Scalar::I64(n) => n as u64,
            Scalar::F32(x) => x.to_bits().into(),
            Scalar::F64(x) => x.to_bits(),
            Scalar::Obj(r) => r.map_or(0, |r| self.world.adopt(r) as u64),
            Scalar::Ptr(_) => return Err("an entry gives no pointers".to_owned()),
        })
    }

    fn should_fail(&mut self, exit: ExitId) -> bool {
        let k = self.checks.len();
        self.checks.push(exit);
        match self.forced {
            Forced::No => false,
            Forced::Guard(n) => n as usize == k,
            Forced::Exit(e) => e == exit,
            Forced::Seeded(_) => {
                self.random ^= self.random << 13;
                self.random ^= self.random >> 7;
                self.random ^= self.random << 17;
                self.random >> 60 == 0
            }
        }
    }

    fn poll(&mut self, pos: u32) -> Result<bool> {
        if self.f.needs_frame {
            self.world.store_position(pos);
        }
        self.world.pull()?;
        let fine = self.table.poll(&mut self.world.heap)?;
        self.world.push();
        Ok(fine)
    }

    /// The bridge's part of an exit: state as objects, from spilled words.
    fn exit(&mut self, id: ExitId, words: *const u64) -> Result<Outcome> {
        self.world.pull()?;
        let f = self.f;
        let exit = &f.exits[id.index()];
        let mut values = vec![];
        for (i, v) in exit.values().into_iter().enumerate() {
            // SAFETY: the contract of the exit service: one word per value.
            let word = unsafe { words.add(i).read() };
            values.push((v, self.scalar(f.ty(v), word)?));
        }
        let mut spilled = Spilled { values: values.into_iter() };
        let locals = exit.locals.iter().map(|s| self.rebuild(s, &mut spilled)).collect::<Result<_>>()?;
        let stack = exit.stack.iter().map(|s| self.rebuild(s, &mut spilled)).collect::<Result<_>>()?;
        let state = State { exit: id, locals, stack };
        self.world.push();
        match (exit.kind, self.world.heap.pending.take()) {
            (ExitKind::Raise, Some(exception)) => Ok(Outcome::Raised { state, exception }),
            (ExitKind::Raise, None) => Err("a raise exit without exception".to_owned()),
            (_, None) => Ok(Outcome::Left(state)),
            (_, Some(e)) => Err(format!("leaves with an exception set: {e}")),
        }
    }

    fn scalar(&self, ty: Ty, word: u64) -> Result<Scalar> {
        Ok(match ty {
            Ty::I1 if word > 1 => return Err(format!("an i1 spilled as {word:#x}")),
            Ty::F32 if word > u64::from(u32::MAX) => return Err(format!("an f32 spilled as {word:#x}")),
            Ty::I1 => Scalar::I1(word == 1),
            Ty::I64 => Scalar::I64(word as i64),
            Ty::F32 => Scalar::F32(f32::from_bits(word as u32)),
            Ty::F64 => Scalar::F64(f64::from_bits(word)),
            Ty::Obj => Scalar::Obj(self.world.object_at(word)?),
            Ty::Ptr => return Err("no slot holds a pointer".to_owned()),
        })
    }

    /// Consumes a slot's values in spill order, whichever of them it needs.
    fn rebuild(&mut self, slot: &Slot, spilled: &mut Spilled) -> Result<Option<Ref>> {
        let object = match slot {
            Slot::Empty => return Ok(None),
            Slot::None => Object::None,
            Slot::Const(c) => return self.world.heap.retain(self.consts[c.index()]).map(Some),
            Slot::Obj(v, own) => {
                let r = spilled.obj(*v)?;
                return self.hand_over(r, *own);
            }
            Slot::Number { flavour, value, boxed } => {
                let value = spilled.next(*value)?;
                if let Some((v, own)) = boxed {
                    let r = spilled.obj(*v)?;
                    if let Some(r) = self.hand_over(r, *own)? {
                        return Ok(Some(r));
                    }
                }
                match (flavour, value) {
                    (Flavour::Int, Scalar::I64(n)) => Object::Int(n.into()),
                    (Flavour::Float, Scalar::F64(x)) => Object::Float(x),
                    (Flavour::Bool, Scalar::I1(b)) => Object::Bool(b),
                    (flavour, value) => Object::Np(*flavour, value.in_flavour(*flavour)),
                }
            }
            Slot::Either { cond, then, els } => {
                let (taken, skipped) = match spilled.next(*cond)? {
                    Scalar::I1(true) => (then, els),
                    _ => (els, then),
                };
                // Values of both sides are spilled, `then` first.
                let skip = |slot: &Slot, spilled: &mut Spilled| -> Result<()> {
                    let mut values = vec![];
                    slot.each_value(&mut |v| values.push(v));
                    values.into_iter().try_for_each(|v| spilled.next(v).map(|_| ()))
                };
                if ptr::eq(taken, els) {
                    skip(skipped, spilled)?;
                    return self.rebuild(taken, spilled);
                }
                let object = self.rebuild(taken, spilled)?;
                skip(skipped, spilled)?;
                return Ok(object);
            }
            Slot::Tuple(parts) => Object::Tuple(self.rebuild_all(parts, spilled)?),
            Slot::Zip(parts) => Object::Zip(self.rebuild_all(parts, spilled)?),
            Slot::RangeIter { next, stop, step } => Object::RangeIter {
                next: spilled.int(*next)?,
                stop: spilled.int(*stop)?,
                step: spilled.int(*step)?,
            },
            Slot::SeqIter { seq, position } => {
                let seq = self.rebuild(seq, spilled)?.ok_or("an iterator over nothing")?;
                let position = spilled.int(*position)?;
                let len = match self.world.heap.get(seq)? {
                    Object::List(items) | Object::Tuple(items) => items.len(),
                    Object::Bytes(data) | Object::ByteArray { data, .. } => data.len(),
                    Object::Str(text) => text.chars().count(),
                    Object::NdArray(array) => array.shape.first().map_or(0, |n| *n as usize),
                    other => return Err(format!("no iterator over {other:?}")),
                };
                if position < 0 || position >= len as i64 {
                    self.world.heap.release(seq)?;
                    Object::SeqIter { seq: None, position: 0 }
                } else {
                    Object::SeqIter { seq: Some(seq), position }
                }
            }
            Slot::Enumerate { count, iter } => {
                let count = spilled.int(*count)?;
                Object::Enumerate {
                    count,
                    iter: self.rebuild(iter, spilled)?.ok_or("enumerate over nothing")?,
                }
            }
        };
        Ok(Some(self.world.heap.add(object)))
    }

    fn rebuild_all(&mut self, slots: &[Slot], spilled: &mut Spilled) -> Result<Vec<Ref>> {
        slots.iter().map(|s| self.rebuild(s, spilled)?.ok_or("an empty part".to_owned())).collect()
    }

    fn hand_over(&mut self, r: Option<Ref>, own: Own) -> Result<Option<Ref>> {
        match (r, own) {
            (None, _) => Ok(None),
            (Some(r), Own::Owned) => Ok(Some(r)),
            (Some(r), Own::Borrowed) => self.world.heap.retain(r).map(Some),
        }
    }
}

struct Spilled {
    values: std::vec::IntoIter<(Value, Scalar)>,
}

impl Spilled {
    fn next(&mut self, v: Value) -> Result<Scalar> {
        match self.values.next() {
            Some((spilled, value)) if spilled == v => Ok(value),
            other => Err(format!("{v} is not spilled where it should be: {other:?}")),
        }
    }

    fn obj(&mut self, v: Value) -> Result<Option<Ref>> {
        match self.next(v)? {
            Scalar::Obj(r) => Ok(r),
            other => Err(format!("{v} is {other:?}")),
        }
    }

    fn int(&mut self, v: Value) -> Result<i64> {
        match self.next(v)? {
            Scalar::I64(n) => Ok(n),
            other => Err(format!("{v} is {other:?}")),
        }
    }
}

/// What the exit service returns.
const LEFT: usize = 0x1ef7;

/// Runs `f` on the current run; a fault is kept and `failed` returned, so that machine code comes to an end.
fn with_run<T>(failed: T, f: impl FnOnce(&mut Run<'static>) -> Result<T>) -> T {
    let run = CURRENT.get();
    // SAFETY: `Run::call` set it, is waiting for machine code, and does not touch the run meanwhile.
    let run = unsafe { &mut *run };
    if run.fault.is_some() {
        return failed;
    }
    match f(run) {
        Ok(value) => value,
        Err(fault) => {
            run.fault = Some(fault);
            failed
        }
    }
}

extern "C" fn exit(_rt: *mut Rt, _frame: *mut u8, _args: *mut *mut u8, id: u32, values: *const u64) -> usize {
    with_run(LEFT, |run| {
        run.left = Some(run.exit(ExitId(id), values)?);
        Ok(LEFT)
    })
}

extern "C" fn poll(_rt: *mut Rt, _frame: *mut u8, pos: u32) -> i32 {
    with_run(-1, |run| Ok(if run.poll(pos)? { 0 } else { -1 }))
}

extern "C" fn should_fail(_rt: *mut Rt, id: u32) -> u8 {
    // A fault makes every check fail: the shortest way out.
    with_run(1, |run| Ok(if run.should_fail(ExitId(id)) { 0x80 } else { 0 }))
}

/// Argument registers, whether they hold arguments or not.
struct Raw {
    ints: Vec<u64>,
    floats: Vec<u64>,
}

/// An entry by number. Both calling conventions number integer and float arguments separately, so one function can take
/// what any entry is given: all registers, and the words on the stack behind them.
#[cfg(target_arch = "x86_64")]
extern "C" fn entry<const E: usize>(
    i0: u64,
    i1: u64,
    i2: u64,
    i3: u64,
    i4: u64,
    i5: u64,
    f0: f64,
    f1: f64,
    f2: f64,
    s0: u64,
    s1: u64,
) -> u64 {
    dispatch(
        E,
        Raw {
            ints: vec![i0, i1, i2, i3, i4, i5, s0, s1],
            floats: vec![f0.to_bits(), f1.to_bits(), f2.to_bits()],
        },
    )
}

/// As above: eight integer registers.
#[cfg(target_arch = "aarch64")]
extern "C" fn entry<const E: usize>(
    i0: u64,
    i1: u64,
    i2: u64,
    i3: u64,
    i4: u64,
    i5: u64,
    i6: u64,
    i7: u64,
    f0: f64,
    f1: f64,
    f2: f64,
) -> u64 {
    dispatch(
        E,
        Raw {
            ints: vec![i0, i1, i2, i3, i4, i5, i6, i7],
            floats: vec![f0.to_bits(), f1.to_bits(), f2.to_bits()],
        },
    )
}

/// An entry with a float result, which comes in another register: functions of `math` without CPython's rules.
extern "C" fn function<const E: usize>(f0: f64, f1: f64) -> f64 {
    f64::from_bits(dispatch(E, Raw { ints: vec![], floats: vec![f0.to_bits(), f1.to_bits()] }))
}

fn dispatch(number: usize, raw: Raw) -> u64 {
    with_run(0, |run| run.entry(Entry::ALL[number], &raw))
}

macro_rules! ten {
    ($($d:literal)*) => { [$( entry::<{ 10 * $d }> as *const () as usize, entry::<{ 10 * $d + 1 }> as *const () as usize,
        entry::<{ 10 * $d + 2 }> as *const () as usize, entry::<{ 10 * $d + 3 }> as *const () as usize,
        entry::<{ 10 * $d + 4 }> as *const () as usize, entry::<{ 10 * $d + 5 }> as *const () as usize,
        entry::<{ 10 * $d + 6 }> as *const () as usize, entry::<{ 10 * $d + 7 }> as *const () as usize,
        entry::<{ 10 * $d + 8 }> as *const () as usize, entry::<{ 10 * $d + 9 }> as *const () as usize ),*] };
}

/// The entry of a number and its function.
macro_rules! functions {
    ($($n:literal)*) => {
        [$( (FIRST_FUNCTION + $n, function::<{ FIRST_FUNCTION + $n }> as *const () as usize) ),*]
    };
}

const FIRST_FUNCTION: usize = Entry::FastExp as usize;

/// Addresses of all entries.
pub(crate) fn entries() -> Vec<usize> {
    let all = ten!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
    assert!(Entry::ALL.len() <= all.len(), "more entries than functions here");
    let mut all = all[..Entry::ALL.len()].to_vec();
    for (number, address) in functions!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19) {
        all[number] = address;
    }
    let with_floats =
        |e: &&Entry| e.signature().failure == Failure::Never && e.signature().result == Some(Ty::F64);
    assert_eq!(Entry::ALL.iter().filter(with_floats).count(), 20, "entries that give floats");
    all
}

/// Iterations one by one and backwards: their order must not show.
unsafe extern "C" fn parallel(body: Body, context: *mut u64, n: i64, n_parts: i64, _gives_gil: u8) {
    thread_local! {
        static PARTS: std::cell::RefCell<Vec<u64>> = const { std::cell::RefCell::new(vec![]) };
    }
    PARTS.with_borrow_mut(|parts| {
        *parts = vec![0x5a5a_5a5a_5a5a_5a5a; (n * n_parts) as usize];
        // SAFETY: machine code's own context, with a first word for this; `body` is of the same loop.
        unsafe {
            context.write(parts.as_mut_ptr().addr() as u64);
            (0..n).rev().for_each(|k| body(context, k, k + 1));
        }
    });
}

pub(crate) fn services() -> Services {
    Services {
        exit: exit as *const () as usize,
        poll: poll as *const () as usize,
        should_fail: should_fail as *const () as usize,
        parallel: parallel as *const () as usize,
    }
}

/// The target that a world is.
pub(crate) fn target<'a>(world: &'a World, entries: &'a [usize], consts: &'a [usize]) -> Target<'a> {
    Target { layout: &world.layout, entries, services: services(), vectors: &[], consts }
}
