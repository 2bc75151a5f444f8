//! A mock of CPython's object operations: enough Python for the run-cases, with exact references.
//!
//! In: an entry and borrowed arguments. Out: new references, exceptions as `Type: message`, lines in the heap's log for
//! everything that a user could notice (calls, finalisers). An entry that no case needs is an error, not a guess.
//! Callables: `identity` gives its argument, `add` the sum of its two, `fail` raises, `clear` empties a list, `count` puts
//! its argument's reference count into the log, and any other name gives `None`.

use overdrive_base::flavour::{Flavour, KnownType};
use overdrive_base::table::Entry;

use crate::inst::Cmp;
use crate::interpret::exits::boxed_number;
use crate::interpret::heap::{Heap, HeapError, Object, Ref};
use crate::interpret::scalar::Scalar;
use crate::interpret::table::{Reply, Table};
use crate::interpret::{arith, numbers};

type Result<T> = std::result::Result<T, HeapError>;

/// The mock table.
#[derive(Debug, Default)]
pub struct MockTable {
    /// The poll that raises (counted from 0), and its exception.
    pub interrupt: Option<(u32, String)>,
    /// What `observe` saw: slot and object, as text.
    pub observed: Vec<(i64, String)>,
    /// Polls so far.
    pub polls: u32,
    /// The call has no frame.
    pub is_frameless: bool,
}

impl Table for MockTable {
    fn call(&mut self, heap: &mut Heap, entry: Entry, args: &[Scalar]) -> Result<Reply> {
        if let Some(reply) = number_entry(heap, entry, args)? {
            return Ok(reply);
        }
        if matches!(entry, Entry::Observe | Entry::ObserveAttr) {
            let [Scalar::I64(slot), Scalar::Obj(Some(r)), ..] = args else { return Err(bad(entry, args)) };
            let seen = format!("{:?}", heap.get(*r)?);
            self.observed.push((*slot, seen));
            return Ok(Reply::Done(None));
        }
        object_entry(heap, entry, args)
    }

    fn poll(&mut self, heap: &mut Heap) -> Result<bool> {
        let k = self.polls;
        self.polls += 1;
        match &self.interrupt {
            Some((n, exception)) if *n == k => {
                heap.raise(exception.clone());
                Ok(false)
            }
            _ => Ok(true),
        }
    }

    fn has_frame(&self) -> bool {
        !self.is_frameless
    }
}

fn bad(entry: Entry, args: &[Scalar]) -> HeapError {
    format!("the mock table has no {} of {args:?}", entry.name())
}

fn done(value: Scalar) -> Reply {
    Reply::Done(Some(value))
}

fn object(r: Ref) -> Reply {
    done(Scalar::Obj(Some(r)))
}

fn int(n: i64) -> Reply {
    done(Scalar::I64(n))
}

fn float(x: Option<f64>) -> Reply {
    x.map_or(Reply::Declined, |x| done(Scalar::F64(x)))
}

/// A success or failure reply of an entry that gives an object.
fn new(heap: &mut Heap, result: std::result::Result<Object, String>) -> Reply {
    match result {
        Ok(o) => object(heap.add(o)),
        Err(exception) => {
            heap.raise(exception);
            Reply::Raised
        }
    }
}

/// Boxing, unboxing and arithmetic.
fn number_entry(heap: &mut Heap, entry: Entry, args: &[Scalar]) -> Result<Option<Reply>> {
    let flavour = match entry {
        Entry::BoxInt => Some(Flavour::Int),
        Entry::BoxFloat => Some(Flavour::Float),
        Entry::BoxNpF64 => Some(Flavour::NpF64),
        Entry::BoxNpF32 => Some(Flavour::NpF32),
        Entry::BoxNpI64 => Some(Flavour::NpI64),
        Entry::BoxNpI32 => Some(Flavour::NpI32),
        Entry::BoxNpU8 => Some(Flavour::NpU8),
        _ => None,
    };
    Ok(Some(match (entry, args) {
        (_, [value]) if let Some(flavour) = flavour => object(heap.add(boxed_number(flavour, *value)?)),
        (Entry::UnboxInt, [Scalar::Obj(Some(r))]) => match heap.get(*r)? {
            Object::Int(n) => i64::try_from(*n).map_or(Reply::Declined, int),
            other => return Err(format!("unbox_int of {other:?}")),
        },
        (Entry::BoxRangeIter, [Scalar::I64(next), Scalar::I64(stop), Scalar::I64(step)]) => {
            object(heap.add(Object::RangeIter { next: *next, stop: *stop, step: *step }))
        }
        (Entry::IntTrueDiv, [Scalar::I64(a), Scalar::I64(b)]) => float(numbers::int_true_div(*a, *b)),
        (Entry::IntPow, [Scalar::I64(a), Scalar::I64(b)]) => {
            numbers::int_pow(*a, *b).map_or(Reply::Declined, int)
        }
        (Entry::FloatFloorDiv, [Scalar::F64(a), Scalar::F64(b)]) => {
            float(numbers::float_divmod(*a, *b).map(|x| x.0))
        }
        (Entry::FloatMod, [Scalar::F64(a), Scalar::F64(b)]) => {
            float(numbers::float_divmod(*a, *b).map(|x| x.1))
        }
        (Entry::FloatRound, [Scalar::F64(x)]) => numbers::float_round(*x).map_or(Reply::Declined, int),
        (Entry::IntFloatCompare, [Scalar::I64(op), Scalar::I64(a), Scalar::F64(b)]) => {
            done(Scalar::I1(arith::compare_int_float(comparison(*op)?, *a, *b)))
        }
        (_, [Scalar::F64(x)]) => float(numbers::math1(entry, *x)),
        (_, [Scalar::F64(x), Scalar::F64(y)]) => float(numbers::math2(entry, *x, *y)),
        _ => return Ok(None),
    }))
}

fn comparison(number: i64) -> Result<Cmp> {
    let all = [Cmp::Lt, Cmp::Le, Cmp::Eq, Cmp::Ne, Cmp::Gt, Cmp::Ge];
    all.into_iter()
        .find(|c| c.number() == number)
        .ok_or_else(|| format!("no comparison has the number {number}"))
}

fn object_entry(heap: &mut Heap, entry: Entry, args: &[Scalar]) -> Result<Reply> {
    use Scalar::{I64, Obj};
    Ok(match (entry, args) {
        (Entry::Binary | Entry::Inplace, [I64(op), Obj(Some(a)), Obj(Some(b))]) => {
            let result = binary(heap, *op, *a, *b)?;
            new(heap, result)
        }
        (Entry::Compare, [I64(op), Obj(Some(a)), Obj(Some(b))]) => {
            let result = compare(heap, comparison(*op)?, *a, *b)?;
            new(heap, result)
        }
        (Entry::IsTrue, [Obj(Some(r))]) => int(i64::from(is_true(heap, *r)?)),
        (Entry::Contains, [Obj(Some(list)), Obj(Some(item))]) => {
            let items = heap.list(*list)?.clone();
            let mut found = false;
            for x in items {
                found |= x == *item || equal(heap, x, *item)?;
            }
            int(found.into())
        }
        (Entry::GetItem, [Obj(Some(c)), Obj(Some(key))]) => match get_item(heap, *c, *key)? {
            Ok(r) => object(heap.retain(r)?),
            Err(exception) => new(heap, Err(exception)),
        },
        (Entry::SetItem, [Obj(Some(c)), Obj(Some(key)), Obj(Some(value))]) => {
            let len = heap.list(*c)?.len();
            let Some(i) = index(heap, *key, len)? else {
                return Ok(new(heap, Err("IndexError: list assignment index out of range".to_owned())));
            };
            heap.retain(*value)?;
            let old = std::mem::replace(&mut heap.list_mut(*c)?[i], *value);
            heap.release(old)?;
            int(0)
        }
        (Entry::GetAttr, [Obj(Some(r)), Obj(Some(name))]) => {
            let name = text(heap, *name)?;
            let found = attrs(heap, *r)?.iter().find(|(n, _)| *n == name).map(|(_, v)| *v);
            match found {
                Some(v) => object(heap.retain(v)?),
                None => new(heap, Err(format!("AttributeError: {name}"))),
            }
        }
        (Entry::SetAttr, [Obj(Some(r)), Obj(Some(name)), Obj(Some(value))]) => {
            let name = text(heap, *name)?;
            heap.retain(*value)?;
            let attrs = attrs(heap, *r)?;
            match attrs.iter_mut().find(|(n, _)| *n == name) {
                Some((_, v)) => {
                    let old = std::mem::replace(v, *value);
                    heap.release(old)?;
                }
                None => attrs.push((name, *value)),
            }
            int(0)
        }
        (Entry::LoadGlobal, [Obj(Some(globals)), Obj(Some(builtins)), Obj(Some(name))]) => {
            match global(heap, *globals, *builtins, *name)? {
                Some(r) => object(heap.retain(r)?),
                None => {
                    let name = text(heap, *name)?;
                    new(heap, Err(format!("NameError: name '{name}' is not defined")))
                }
            }
        }
        (
            Entry::GlobalIs,
            [Obj(Some(globals)), Obj(Some(builtins)), Obj(Some(name)), Obj(Some(expected))],
        ) => done(Scalar::I1(global(heap, *globals, *builtins, *name)? == Some(*expected))),
        (Entry::CallLevels, []) => done(I64(50)),
        // The mock's callables always run what they ran at first, and nobody watches.
        (Entry::CalleeIs, [Obj(Some(_)), Obj(_), Obj(_), I64(_)]) => done(Scalar::I1(true)),
        (Entry::PropertyIs, [Obj(Some(_)), Obj(Some(_)), Obj(Some(_))]) => done(Scalar::I1(true)),
        (Entry::MakeCell, [Obj(content)]) => {
            let content = content.map(|r| heap.retain(r)).transpose()?;
            object(heap.add(Object::Cell(content)))
        }
        (Entry::LoadCell, [Obj(Some(cell))]) => match heap.get(*cell)? {
            Object::Cell(Some(r)) => object(heap.retain(*r)?),
            Object::Cell(None) => Reply::Declined,
            other => return Err(format!("not a cell: {other:?}")),
        },
        (Entry::StoreCell, [Obj(Some(cell)), Obj(value)]) => {
            let value = value.map(|r| heap.retain(r)).transpose()?;
            let Object::Cell(content) = heap.get_mut(*cell)? else { return Err("not a cell".to_owned()) };
            if let Some(old) = std::mem::replace(content, value) {
                heap.release(old)?;
            }
            int(0)
        }
        (Entry::Call, [Obj(Some(callable)), Obj(None), args @ ..]) => {
            let Object::Callable(name) = heap.get(*callable)? else {
                return Ok(new(heap, Err("TypeError: object is not callable".to_owned())));
            };
            let name = name.clone();
            call(heap, &name, &refs(entry, args)?)?
        }
        (Entry::CallGiving, [keywords, values @ ..]) => {
            let given = refs(entry, values)?;
            let [callable, args @ ..] = values else { return Err(bad(entry, values)) };
            let call = [&[*callable, *keywords], args].concat();
            let reply = object_entry(heap, Entry::Call, &call)?;
            given.into_iter().try_for_each(|r| heap.release(r))?;
            reply
        }
        (Entry::GetIter, [Obj(Some(seq))]) => match heap.get(*seq)? {
            Object::List(_) | Object::Tuple(_) => {
                let seq = Some(heap.retain(*seq)?);
                object(heap.add(Object::SeqIter { seq, position: 0 }))
            }
            Object::RangeIter { .. } | Object::SeqIter { .. } => object(heap.retain(*seq)?),
            _ => new(heap, Err("TypeError: object is not iterable".to_owned())),
        },
        (Entry::ArraysApart, [Obj(Some(a)), Obj(Some(b))]) => {
            heap.array(*a)?;
            heap.array(*b)?;
            // The mock's arrays own their memory.
            done(Scalar::I1(a != b))
        }
        (
            Entry::ArrayWithin | Entry::ArrayWithinShared,
            [Obj(Some(a)), I64(_), I64(k), I64(lo0), I64(hi0), I64(lo1), I64(hi1), I64(_)],
        ) => done(Scalar::I1(heap.array(*a)?.is_within(*k, [(*lo0, *hi0), (*lo1, *hi1)]))),
        (
            Entry::ArrayAbove,
            [Obj(Some(a)), I64(_), I64(k), I64(lo0), I64(hi0), I64(lo1), I64(hi1), I64(_)],
        ) => done(Scalar::I1(heap.array(*a)?.is_above(*k, [(*lo0, *hi0), (*lo1, *hi1)]))),
        // As in the native tests: somebody always asks.
        (Entry::PollPending, []) => done(Scalar::I1(true)),
        (Entry::GilGive | Entry::GilTake, []) => Reply::Done(None),
        (Entry::NpUnderIgnored, []) => done(Scalar::I1(true)),
        (Entry::Next, [Obj(Some(iter))]) => done(Obj(next(heap, *iter)?)),
        (Entry::NextFailed, []) => {
            if heap.pending.is_some() {
                Reply::Raised
            } else {
                int(0)
            }
        }
        (Entry::IsUnique, [Obj(Some(r))]) => done(Scalar::I1(heap.ref_count(*r) == 1)),
        (Entry::RangeIterNext | Entry::RangeIterStop | Entry::RangeIterStep, [Obj(Some(r))]) => {
            match heap.get(*r)? {
                Object::RangeIter { next, .. } if entry == Entry::RangeIterNext => int(*next),
                Object::RangeIter { stop, .. } if entry == Entry::RangeIterStop => int(*stop),
                Object::RangeIter { step, .. } => int(*step),
                other => return Err(format!("not a range iterator: {other:?}")),
            }
        }
        (Entry::SeqIterSeq, [Obj(Some(r))]) => match heap.get(*r)? {
            Object::SeqIter { seq: Some(seq), .. } => object(heap.retain(*seq)?),
            Object::SeqIter { seq: None, .. } => Reply::Declined,
            other => return Err(format!("not an iterator: {other:?}")),
        },
        (Entry::SeqIterPos, [Obj(Some(r))]) => match heap.get(*r)? {
            Object::SeqIter { position, .. } => int(*position),
            other => return Err(format!("not an iterator: {other:?}")),
        },
        (Entry::BuildTuple | Entry::BuildList, items) => {
            let items = refs(entry, items)?;
            items.iter().try_for_each(|r| heap.retain(*r).map(|_| ()))?;
            object(heap.add(match entry {
                Entry::BuildTuple => Object::Tuple(items),
                _ => Object::List(items),
            }))
        }
        (Entry::BuildMap, items) => {
            let items = refs(entry, items)?;
            items.iter().try_for_each(|r| heap.retain(*r).map(|_| ()))?;
            object(heap.add(Object::Dict(items.chunks_exact(2).map(|kv| (kv[0], kv[1])).collect())))
        }
        (Entry::StrItem, [Obj(Some(s)), I64(position)]) => {
            let at = usize::try_from(*position).unwrap_or(usize::MAX);
            let found = text(heap, *s)?.chars().nth(at);
            let c = found.ok_or_else(|| format!("position {position} is outside the text"))?;
            object(heap.add(Object::Str(c.to_string())))
        }
        (Entry::StrCompare, [I64(op), Obj(Some(a)), Obj(Some(b))]) => {
            let (a, b) = (text(heap, *a)?, text(heap, *b)?);
            // By code points, and so is UTF-8 ordered.
            done(Scalar::I1(arith::compare(comparison(*op)?, a, b)))
        }
        (Entry::BuildString, parts) => {
            let parts: Result<Vec<String>> = refs(entry, parts)?.iter().map(|r| text(heap, *r)).collect();
            object(heap.add(Object::Str(parts?.concat())))
        }
        (Entry::BuildSlice, [Obj(start), Obj(stop), Obj(step)]) => {
            let parts = [*start, *stop, *step];
            parts.iter().flatten().try_for_each(|r| heap.retain(*r).map(|_| ()))?;
            object(heap.add(Object::Slice(parts)))
        }
        (Entry::ListAppend, [Obj(Some(list)), Obj(Some(item))]) => {
            heap.list_mut(*list)?.push(*item);
            int(0)
        }
        (Entry::ListSetFloat | Entry::ListSetInt, [Obj(Some(list)), I64(index), value]) => {
            let (known, new) = match (entry, value) {
                (Entry::ListSetFloat, Scalar::F64(x)) => (KnownType::Float, Object::Float(*x)),
                (Entry::ListSetInt, I64(n)) => (KnownType::Int, Object::Int((*n).into())),
                _ => return Err(bad(entry, args)),
            };
            let slot = usize::try_from(*index).unwrap_or(usize::MAX);
            let Some(old) = heap.list(*list)?.get(slot).copied() else {
                return Err(format!("index {index} is outside the list"));
            };
            if !heap.type_is(old, known)? {
                return Err(format!("the item at {index} is no {}", known.name()));
            }
            if heap.ref_count(old) == 1 {
                *heap.get_mut(old)? = new;
            } else {
                heap.list_mut(*list)?[slot] = heap.add(new);
                heap.release(old)?;
            }
            int(0)
        }
        (Entry::ListToTuple, [Obj(Some(list))]) => {
            let items = heap.list(*list)?.clone();
            items.iter().try_for_each(|r| heap.retain(*r).map(|_| ()))?;
            object(heap.add(Object::Tuple(items)))
        }
        (Entry::Unpack, [Obj(Some(seq)), I64(count)]) => {
            let items = match heap.get(*seq)? {
                Object::List(items) | Object::Tuple(items) => items.clone(),
                _ => return Ok(new(heap, Err("TypeError: cannot unpack non-iterable object".to_owned()))),
            };
            if items.len() as i64 != *count {
                let message = format!("ValueError: expected {count} values to unpack, got {}", items.len());
                return Ok(new(heap, Err(message)));
            }
            items.iter().try_for_each(|r| heap.retain(*r).map(|_| ()))?;
            object(heap.add(Object::Tuple(items)))
        }
        _ => return Err(bad(entry, args)),
    })
}

/// Variable arguments, none of them null.
fn refs(entry: Entry, args: &[Scalar]) -> Result<Vec<Ref>> {
    let one = |arg: &Scalar| match arg {
        Scalar::Obj(Some(r)) => Ok(*r),
        _ => Err(bad(entry, args)),
    };
    args.iter().map(one).collect()
}

fn text(heap: &Heap, r: Ref) -> Result<String> {
    match heap.get(r)? {
        Object::Str(s) => Ok(s.clone()),
        other => Err(format!("not a string: {other:?}")),
    }
}

fn attrs(heap: &mut Heap, r: Ref) -> Result<&mut Vec<(String, Ref)>> {
    match heap.get_mut(r)? {
        Object::Tracked { attrs, .. } => Ok(attrs),
        other => Err(format!("no attributes in {other:?}")),
    }
}

/// A number as both an exact int, if it is one, and a float.
fn number(heap: &Heap, r: Ref) -> Result<Option<(Option<i128>, f64)>> {
    Ok(match heap.get(r)? {
        Object::Int(n) => Some((Some(*n), *n as f64)),
        Object::Bool(b) => Some((Some((*b).into()), f64::from(*b))),
        Object::Float(x) => Some((None, *x)),
        _ => None,
    })
}

/// `a op b` by CPython's numbers of binary operations; the result or the exception.
fn binary(heap: &mut Heap, op: i64, a: Ref, b: Ref) -> Result<std::result::Result<Object, String>> {
    const ADD: i64 = 0;
    const MULTIPLY: i64 = 5;
    const SUBTRACT: i64 = 10;
    const TRUE_DIVIDE: i64 = 11;
    if let (Some((ia, fa)), Some((ib, fb))) = (number(heap, a)?, number(heap, b)?) {
        return Ok(match (op, ia.zip(ib)) {
            (ADD, Some((a, b))) => Ok(Object::Int(a + b)),
            (SUBTRACT, Some((a, b))) => Ok(Object::Int(a - b)),
            (MULTIPLY, Some((a, b))) => Ok(Object::Int(a * b)),
            (ADD, None) => Ok(Object::Float(fa + fb)),
            (SUBTRACT, None) => Ok(Object::Float(fa - fb)),
            (MULTIPLY, None) => Ok(Object::Float(fa * fb)),
            (TRUE_DIVIDE, _) if fb == 0.0 => Err("ZeroDivisionError: division by zero".to_owned()),
            (TRUE_DIVIDE, _) => Ok(Object::Float(fa / fb)),
            _ => return Err(format!("the mock table has no binary operation {op} on numbers")),
        });
    }
    Ok(match (op, heap.get(a)?, heap.get(b)?) {
        (ADD, Object::Str(a), Object::Str(b)) => Ok(Object::Str(format!("{a}{b}"))),
        (ADD, Object::List(x), Object::List(y)) => {
            let items: Vec<Ref> = x.iter().chain(y).copied().collect();
            items.iter().try_for_each(|r| heap.retain(*r).map(|_| ()))?;
            Ok(Object::List(items))
        }
        _ => Err("TypeError: unsupported operand types".to_owned()),
    })
}

fn compare(heap: &Heap, cmp: Cmp, a: Ref, b: Ref) -> Result<std::result::Result<Object, String>> {
    let result = match (number(heap, a)?, number(heap, b)?) {
        (Some((Some(a), _)), Some((Some(b), _))) => arith::compare(cmp, a, b),
        (Some((_, a)), Some((_, b))) => arith::compare(cmp, a, b),
        _ if cmp == Cmp::Eq => equal(heap, a, b)?,
        _ if cmp == Cmp::Ne => !equal(heap, a, b)?,
        _ => return Ok(Err("TypeError: comparison not supported".to_owned())),
    };
    Ok(Ok(Object::Bool(result)))
}

/// `==` of numbers, strings, and anything with itself.
fn equal(heap: &Heap, a: Ref, b: Ref) -> Result<bool> {
    Ok(match (number(heap, a)?, number(heap, b)?) {
        (Some((Some(a), _)), Some((Some(b), _))) => a == b,
        (Some((_, a)), Some((_, b))) => a == b,
        _ => match (heap.get(a)?, heap.get(b)?) {
            (Object::Str(a), Object::Str(b)) => a == b,
            _ => a == b,
        },
    })
}

fn is_true(heap: &Heap, r: Ref) -> Result<bool> {
    Ok(match heap.get(r)? {
        Object::None => false,
        Object::Str(s) => !s.is_empty(),
        Object::List(items) | Object::Tuple(items) => !items.is_empty(),
        _ => number(heap, r)?.is_none_or(|(_, x)| x != 0.0),
    })
}

/// A Python index as a position.
fn index(heap: &Heap, key: Ref, len: usize) -> Result<Option<usize>> {
    let Object::Int(n) = heap.get(key)? else { return Err("the index is no int".to_owned()) };
    let n = if *n < 0 { n + len as i128 } else { *n };
    Ok(usize::try_from(n).ok().filter(|n| *n < len))
}

/// Item (borrowed) or exception.
fn get_item(heap: &Heap, c: Ref, key: Ref) -> Result<std::result::Result<Ref, String>> {
    match heap.get(c)? {
        Object::List(items) | Object::Tuple(items) => Ok(match index(heap, key, items.len())? {
            Some(i) => Ok(items[i]),
            None => Err("IndexError: index out of range".to_owned()),
        }),
        Object::Dict(items) => {
            for (k, v) in items {
                if *k == key || equal(heap, *k, key)? {
                    return Ok(Ok(*v));
                }
            }
            Ok(Err("KeyError".to_owned()))
        }
        _ => Ok(Err("TypeError: object is not subscriptable".to_owned())),
    }
}

/// A name in globals, then builtins (borrowed).
fn global(heap: &Heap, globals: Ref, builtins: Ref, name: Ref) -> Result<Option<Ref>> {
    for dict in [globals, builtins] {
        if let Ok(r) = get_item(heap, dict, name)? {
            return Ok(Some(r));
        }
    }
    Ok(None)
}

/// A callable of the mock.
fn call(heap: &mut Heap, name: &str, args: &[Ref]) -> Result<Reply> {
    heap.note(&format!("call {name}"));
    Ok(match (name, args) {
        ("identity", [x]) => object(heap.retain(*x)?),
        ("add", [a, b]) => {
            let result = binary(heap, 0, *a, *b)?;
            new(heap, result)
        }
        ("count", [x]) => {
            let count = heap.ref_count(*x);
            heap.note(&format!("count {count}"));
            object(heap.add(Object::None))
        }
        ("fail", _) => new(heap, Err("ValueError: asked to".to_owned())),
        ("clear", [list]) => {
            let items = std::mem::take(heap.list_mut(*list)?);
            heap.release_all(items)?;
            object(heap.add(Object::None))
        }
        _ => object(heap.add(Object::None)),
    })
}

/// Next item, or null: at the end, or with an exception set.
fn next(heap: &mut Heap, iter: Ref) -> Result<Option<Ref>> {
    match heap.get_mut(iter)? {
        Object::RangeIter { next, stop, step } => {
            if (*step > 0 && *next >= *stop) || (*step < 0 && *next <= *stop) {
                return Ok(None);
            }
            let n = *next;
            *next += *step;
            Ok(Some(heap.add(Object::Int(n.into()))))
        }
        Object::SeqIter { seq, position } => {
            let Some(r) = *seq else { return Ok(None) };
            let i = *position as usize;
            *position += 1;
            let item = match heap.get(r)? {
                Object::List(items) | Object::Tuple(items) => items.get(i).copied(),
                _ => None,
            };
            if item.is_none()
                && let Object::SeqIter { seq, .. } = heap.get_mut(iter)?
            {
                *seq = None;
                heap.release(r)?;
            }
            item.map(|r| heap.retain(r)).transpose()
        }
        // Whatever else is iterated raises: the way to test a failing `next`.
        _ => {
            heap.raise("RuntimeError: generator failed");
            Ok(None)
        }
    }
}
