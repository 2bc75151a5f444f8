//! Literals on the interpreter's mock heap: built, and read back.

use overdrive_base::flavour::{DType, Flavour};

use crate::cases::literal::{ArrayLiteral, Literal};
use crate::interpret::heap::{Array, Heap, HeapError, Object, Ref};
use crate::interpret::scalar::Scalar;

type Result<T> = std::result::Result<T, HeapError>;

/// Builds one object with one reference; `arg0` takes from `args`. `Unset` gives `None`.
pub fn build(heap: &mut Heap, literal: &Literal, args: &[Option<Ref>]) -> Result<Option<Ref>> {
    let mut all =
        |items: &[Literal]| items.iter().map(|x| build_object(heap, x, args)).collect::<Result<Vec<Ref>>>();
    let object = match literal {
        Literal::Unset => return Ok(None),
        Literal::Arg(n) => {
            let r = args.get(*n).copied().flatten().ok_or_else(|| format!("there is no argument {n} yet"))?;
            return heap.retain(r).map(Some);
        }
        Literal::None => Object::None,
        Literal::Bool(b) => Object::Bool(*b),
        Literal::Int(n) => Object::Int(*n),
        Literal::Float(x) => Object::Float(*x),
        Literal::Str(s) => Object::Str(s.clone()),
        Literal::Bytes(b) => Object::Bytes(b.clone()),
        Literal::ByteArray(b) => Object::ByteArray { data: b.clone(), generation: 0 },
        Literal::List(items) => Object::List(all(items)?),
        Literal::Tuple(items) => Object::Tuple(all(items)?),
        Literal::Zip(items) => Object::Zip(all(items)?),
        Literal::Dict(items) => {
            let (keys, values): (Vec<Literal>, Vec<Literal>) = items.iter().cloned().unzip();
            let keys = all(&keys)?;
            Object::Dict(keys.into_iter().zip(all(&values)?).collect())
        }
        Literal::Array(a) => Object::NdArray(Array {
            holder: a.holder,
            dtype: a.dtype,
            shape: a.shape.clone(),
            strides: a.strides.clone(),
            offset: a.offset,
            data: a.data.iter().map(|x| element_bytes(a.dtype, x)).collect::<Result<Vec<_>>>()?.concat(),
            writable: a.writable,
        }),
        Literal::Np(flavour, value) => Object::Np(*flavour, scalar(*flavour, value)?),
        Literal::RangeIter { next, stop, step } => {
            Object::RangeIter { next: *next, stop: *stop, step: *step }
        }
        Literal::SeqIter(Some((seq, position))) => {
            Object::SeqIter { seq: Some(build_object(heap, seq, args)?), position: *position }
        }
        Literal::SeqIter(None) => Object::SeqIter { seq: None, position: 0 },
        Literal::Enumerate(count, iter) => {
            Object::Enumerate { count: *count, iter: build_object(heap, iter, args)? }
        }
        Literal::Cell(content) => {
            Object::Cell(content.as_ref().map(|x| build_object(heap, x, args)).transpose()?)
        }
        Literal::Slice(parts) => {
            let parts: Result<Vec<Option<Ref>>> = parts.iter().map(|x| build(heap, x, args)).collect();
            Object::Slice(parts?.try_into().map_err(|_| "a slice has three parts".to_owned())?)
        }
        Literal::Callable(name) => Object::Callable(name.clone()),
        Literal::Instance(version, attrs, has_values) => {
            let attrs = attrs.iter().map(|x| build(heap, x, args)).collect::<Result<_>>()?;
            Object::Instance { version: *version, attrs, has_values: *has_values }
        }
        Literal::Tracked(name, attrs) => {
            let build = |(name, v): &(String, Literal)| Ok((name.clone(), build_object(heap, v, args)?));
            let attrs = attrs.iter().map(build).collect::<Result<Vec<_>>>()?;
            Object::Tracked { name: name.clone(), attrs }
        }
    };
    Ok(Some(heap.add(object)))
}

fn build_object(heap: &mut Heap, literal: &Literal, args: &[Option<Ref>]) -> Result<Ref> {
    build(heap, literal, args)?.ok_or_else(|| "`unset` inside another object".to_owned())
}

/// The value of a NumPy scalar or of an element.
fn scalar(flavour: Flavour, value: &Literal) -> Result<Scalar> {
    match (flavour, value) {
        (Flavour::NpF64 | Flavour::Float, Literal::Float(x)) => Ok(Scalar::F64(*x)),
        (Flavour::NpF32, Literal::Float(x)) => Ok(Scalar::F32(*x as f32)),
        (Flavour::NpBool | Flavour::Bool, Literal::Bool(b)) => Ok(Scalar::I1(*b)),
        (Flavour::Int | Flavour::NpI64 | Flavour::NpI32 | Flavour::NpU8, Literal::Int(n)) => {
            i64::try_from(*n)
                .map(|n| Scalar::I64(n).in_flavour(flavour))
                .map_err(|_| format!("{n} does not fit 64 bits"))
        }
        (flavour, value) => Err(format!("{value} is not of flavour {}", flavour.name())),
    }
}

fn element_bytes(dtype: DType, value: &Literal) -> Result<Vec<u8>> {
    scalar(dtype.scalar(), value)?.to_bytes(dtype)
}

/// Reads an object; one that is an argument's very object (and no singleton) reads as `arg0`.
pub fn read(heap: &Heap, r: Option<Ref>, args: &[Option<Ref>]) -> Result<Literal> {
    let Some(r) = r else { return Ok(Literal::Unset) };
    let shared = matches!(heap.get(r)?, Object::None | Object::Bool(_));
    match args.iter().position(|a| *a == Some(r)) {
        Some(n) if !shared => Ok(Literal::Arg(n)),
        _ => read_object(heap, r, args),
    }
}

/// Reads an object by its contents, even an argument's.
pub fn read_object(heap: &Heap, r: Ref, args: &[Option<Ref>]) -> Result<Literal> {
    let one = |r: &Ref| read(heap, Some(*r), args);
    let all = |items: &[Ref]| items.iter().map(one).collect::<Result<Vec<Literal>>>();
    Ok(match heap.get(r)? {
        Object::None => Literal::None,
        Object::Bool(b) => Literal::Bool(*b),
        Object::Int(n) => Literal::Int(*n),
        Object::Float(x) => Literal::Float(*x),
        Object::Str(s) => Literal::Str(s.clone()),
        Object::Bytes(b) => Literal::Bytes(b.clone()),
        Object::ByteArray { data, .. } => Literal::ByteArray(data.clone()),
        Object::List(items) => Literal::List(all(items)?),
        Object::Tuple(items) => Literal::Tuple(all(items)?),
        Object::Zip(items) => Literal::Zip(all(items)?),
        Object::Dict(items) => {
            Literal::Dict(items.iter().map(|(k, v)| Ok((one(k)?, one(v)?))).collect::<Result<_>>()?)
        }
        Object::NdArray(a) => Literal::Array(ArrayLiteral {
            holder: a.holder,
            dtype: a.dtype,
            shape: a.shape.clone(),
            strides: a.strides.clone(),
            offset: a.offset,
            data: a
                .data
                .chunks(a.dtype.size() as usize)
                .map(|bytes| number(Scalar::from_bytes(a.dtype, bytes)))
                .collect::<Result<_>>()?,
            writable: a.writable,
        }),
        Object::Np(flavour, value) => Literal::Np(*flavour, Box::new(number(*value)?)),
        Object::RangeIter { next, stop, step } => {
            Literal::RangeIter { next: *next, stop: *stop, step: *step }
        }
        Object::SeqIter { seq: Some(seq), position } => {
            Literal::SeqIter(Some((Box::new(one(seq)?), *position)))
        }
        Object::SeqIter { seq: None, .. } => Literal::SeqIter(None),
        Object::Enumerate { count, iter } => Literal::Enumerate(*count, Box::new(one(iter)?)),
        Object::Cell(content) => Literal::Cell(content.as_ref().map(one).transpose()?.map(Box::new)),
        Object::Slice(parts) => {
            Literal::Slice(parts.iter().map(|r| read(heap, *r, args)).collect::<Result<_>>()?)
        }
        Object::Callable(name) => Literal::Callable(name.clone()),
        Object::Instance { version, attrs, has_values } => Literal::Instance(
            *version,
            attrs.iter().map(|r| read(heap, *r, args)).collect::<Result<_>>()?,
            *has_values,
        ),
        Object::Tracked { name, attrs } => Literal::Tracked(
            name.clone(),
            attrs.iter().map(|(name, r)| Ok((name.clone(), one(r)?))).collect::<Result<_>>()?,
        ),
    })
}

fn number(value: Scalar) -> Result<Literal> {
    match value {
        Scalar::I1(b) => Ok(Literal::Bool(b)),
        Scalar::I64(n) => Ok(Literal::Int(n.into())),
        Scalar::F32(x) => Ok(Literal::Float(x.into())),
        Scalar::F64(x) => Ok(Literal::Float(x)),
        Scalar::Obj(_) | Scalar::Ptr(_) => Err("not a number".to_owned()),
    }
}
