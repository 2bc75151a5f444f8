//! The mock heap: objects with exact reference counts.
//!
//! In: objects that tests and the mock table make. Out: every use after free, double release and leak as an error.
//! References are never used twice, so a dead one stays recognisable. `None`, `True` and `False` are counted like all
//! others; the heap itself holds one reference to each.

use overdrive_base::flavour::{DType, Flavour, Holder, KnownType};

use crate::inst::Attr;
use crate::interpret::scalar::{Pointer, Scalar};

/// A reference to a mock object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ref(u32);

/// A broken rule of memory, in words.
pub type HeapError = String;

type Result<T> = std::result::Result<T, HeapError>;

/// A mock object. References inside are owned.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    None,
    Bool(bool),
    /// Wide enough for the interesting side of 64 bits.
    Int(i128),
    Float(f64),
    Str(String),
    Bytes(Vec<u8>),
    ByteArray {
        data: Vec<u8>,
        /// Counts resizes: a pointer from before one is dead.
        generation: u32,
    },
    List(Vec<Ref>),
    Tuple(Vec<Ref>),
    Dict(Vec<(Ref, Ref)>),
    NdArray(Array),
    /// A NumPy scalar.
    Np(Flavour, Scalar),
    RangeIter {
        next: i64,
        stop: i64,
        step: i64,
    },
    /// Over a list or tuple; `seq` is gone when it is exhausted.
    SeqIter {
        seq: Option<Ref>,
        position: i64,
    },
    Enumerate {
        count: i64,
        iter: Ref,
    },
    Zip(Vec<Ref>),
    Cell(Option<Ref>),
    Slice([Option<Ref>; 3]),
    /// A function known to the mock table by name.
    Callable(String),
    /// An instance of an ordinary class, by the class's version. Attributes by number, `None` where one is not set; those
    /// at offset 16, 24 … of the object are the same here. Without `has_values` they are in a dictionary.
    Instance {
        version: u32,
        attrs: Vec<Option<Ref>>,
        has_values: bool,
    },
    /// An object with attributes whose finaliser leaves a line in the log.
    Tracked {
        name: String,
        attrs: Vec<(String, Ref)>,
    },
}

/// An n-dimensional array that owns its memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    pub holder: Holder,
    pub dtype: DType,
    pub shape: Vec<i64>,
    /// In bytes.
    pub strides: Vec<i64>,
    /// Byte of `data` that holds element (0, …).
    pub offset: i64,
    pub data: Vec<u8>,
    pub writable: bool,
}

impl Array {
    /// The table's `array_within`, for any number of steps.
    pub fn is_within(&self, k: i64, spans: [(i64, i64); 2]) -> bool {
        if self.dtype == DType::I64 {
            return self.all_elements(spans, |bytes| {
                let x = bytes.try_into().ok().map(i64::from_ne_bytes);
                x.is_some_and(|x| (-(1i128 << k)..1 << k).contains(&x.into()))
            });
        }
        self.all_floats(spans, |x| x.abs() < 2f64.powi(k as i32))
    }

    /// The table's `array_above`, for any number of steps.
    pub fn is_above(&self, k: i64, spans: [(i64, i64); 2]) -> bool {
        self.all_floats(spans, |x| (2f64.powi(-k as i32)..2f64.powi(k as i32)).contains(&x))
    }

    fn all_floats(&self, spans: [(i64, i64); 2], test: impl Fn(f64) -> bool) -> bool {
        self.all_elements(spans, |bytes| {
            let x = match self.dtype {
                DType::F32 => bytes.try_into().ok().map(|b| f64::from(f32::from_ne_bytes(b))),
                _ => bytes.try_into().ok().map(f64::from_ne_bytes),
            };
            x.is_some_and(&test)
        })
    }

    fn all_elements(&self, spans: [(i64, i64); 2], test: impl Fn(&[u8]) -> bool) -> bool {
        let spans: Vec<(i64, i64)> = self
            .shape
            .iter()
            .enumerate()
            .map(|(axis, dim)| spans.get(axis).copied().unwrap_or((0, *dim - 1)))
            .collect();
        if spans.iter().any(|(lo, hi)| hi < lo) {
            return true;
        }
        if spans.iter().zip(&self.shape).any(|((lo, hi), dim)| *lo < 0 || hi >= dim) {
            return false;
        }
        let mut offsets = vec![self.offset];
        for ((lo, hi), stride) in spans.iter().zip(&self.strides) {
            offsets = offsets.iter().flat_map(|at| (*lo..=*hi).map(move |i| at + i * stride)).collect();
        }
        offsets.iter().all(|at| {
            let at = *at as usize;
            self.data.get(at..at + self.dtype.size() as usize).is_some_and(&test)
        })
    }
}

/// Objects, the pending exception, and what Python code would have noticed.
#[derive(Debug)]
pub struct Heap {
    cells: Vec<(Option<Object>, u32)>,
    /// The exception that is set, as `Type: message`.
    pub pending: Option<String>,
    /// Bytecode position last stored in the frame.
    pub position: Option<u32>,
    /// Calls and finalisers, in order, with the position that a traceback would show.
    pub log: Vec<String>,
}

const NONE: Ref = Ref(0);
const TRUE: Ref = Ref(1);
const FALSE: Ref = Ref(2);

impl Default for Heap {
    fn default() -> Heap {
        Heap::new()
    }
}

impl Heap {
    pub fn new() -> Heap {
        let cells = [Object::None, Object::Bool(true), Object::Bool(false)];
        Heap { cells: cells.map(|o| (Some(o), 1)).into(), pending: None, position: None, log: vec![] }
    }

    /// A new object with one reference; `None` and bools give the one that exists.
    pub fn add(&mut self, object: Object) -> Ref {
        let shared = match object {
            Object::None => Some(NONE),
            Object::Bool(true) => Some(TRUE),
            Object::Bool(false) => Some(FALSE),
            _ => None,
        };
        match shared {
            Some(r) => {
                self.cells[r.0 as usize].1 += 1;
                r
            }
            None => {
                self.cells.push((Some(object), 1));
                Ref(self.cells.len() as u32 - 1)
            }
        }
    }

    pub fn get(&self, r: Ref) -> Result<&Object> {
        self.cells[r.0 as usize]
            .0
            .as_ref()
            .ok_or_else(|| format!("object {} is used after it was freed", r.0))
    }

    pub fn get_mut(&mut self, r: Ref) -> Result<&mut Object> {
        self.cells[r.0 as usize]
            .0
            .as_mut()
            .ok_or_else(|| format!("object {} is used after it was freed", r.0))
    }

    pub fn ref_count(&self, r: Ref) -> u32 {
        self.cells[r.0 as usize].1
    }

    /// One more reference.
    pub fn retain(&mut self, r: Ref) -> Result<Ref> {
        self.get(r)?;
        self.cells[r.0 as usize].1 += 1;
        Ok(r)
    }

    /// One reference less; the last one finalises and frees, children last to first as CPython does.
    pub fn release(&mut self, r: Ref) -> Result<()> {
        let mut work = vec![r];
        while let Some(r) = work.pop() {
            self.get(r).map_err(|_| format!("object {} is released after it was freed", r.0))?;
            let cell = &mut self.cells[r.0 as usize];
            cell.1 -= 1;
            if cell.1 > 0 {
                continue;
            }
            if r.0 < 3 {
                return Err("a singleton's own reference was released".to_owned());
            }
            let object = cell.0.take();
            if let Some(Object::Tracked { name, .. }) = &object {
                let event = format!("del {name}");
                self.note(&event);
            }
            // The work list is a stack: what is pushed last is released first.
            work.extend(object.iter().flat_map(children));
        }
        Ok(())
    }

    pub fn release_all(&mut self, refs: impl IntoIterator<Item = Ref>) -> Result<()> {
        refs.into_iter().try_for_each(|r| self.release(r))
    }

    /// Writes into the log, with the frame's position.
    pub fn note(&mut self, event: &str) {
        self.log.push(match self.position {
            Some(pos) => format!("{event} at {pos}"),
            None => event.to_owned(),
        });
    }

    /// Sets the pending exception.
    pub fn raise(&mut self, exception: impl Into<String>) {
        self.pending = Some(exception.into());
    }

    /// What is still alive beside the singletons, and references to those beyond the heap's own: empty when
    /// everything was balanced.
    pub fn leaks(&self) -> Vec<String> {
        let mut out = Vec::new();
        for (i, (object, count)) in self.cells.iter().enumerate() {
            match object {
                Some(o) if i < 3 && *count != 1 => {
                    out.push(format!("{o:?} has {} references too many", count - 1))
                }
                Some(o) if i >= 3 => out.push(format!("object {i} is alive with {count} references: {o:?}")),
                _ => {}
            }
        }
        out
    }

    pub fn type_is(&self, r: Ref, known: KnownType) -> Result<bool> {
        Ok(match self.get(r)? {
            Object::None => known == KnownType::NoneType,
            Object::Bool(_) => known == KnownType::Bool,
            Object::Int(_) => known == KnownType::Int,
            Object::Float(_) => known == KnownType::Float,
            Object::Str(_) => known == KnownType::Str,
            Object::Bytes(_) => known == KnownType::Bytes,
            Object::ByteArray { .. } => known == KnownType::ByteArray,
            Object::List(_) => known == KnownType::List,
            Object::Tuple(_) => known == KnownType::Tuple,
            Object::Dict(_) => known == KnownType::Dict,
            Object::NdArray(array) => known == array.holder.known_type(),
            Object::Np(flavour, _) => known == flavour.known_type(),
            Object::RangeIter { .. } => known == KnownType::RangeIter,
            Object::SeqIter { seq: Some(seq), .. } => match self.get(*seq)? {
                Object::List(_) => known == KnownType::ListIter,
                _ => known == KnownType::TupleIter,
            },
            Object::SeqIter { seq: None, .. } => known == KnownType::ListIter,
            Object::Slice(_) => known == KnownType::Slice,
            Object::Callable(_) => known == KnownType::Function,
            Object::Enumerate { .. }
            | Object::Zip(_)
            | Object::Cell(_)
            | Object::Instance { .. }
            | Object::Tracked { .. } => false,
        })
    }

    /// Items of an exact list.
    pub fn list(&self, r: Ref) -> Result<&Vec<Ref>> {
        match self.get(r)? {
            Object::List(items) => Ok(items),
            other => Err(format!("not a list: {other:?}")),
        }
    }

    pub fn list_mut(&mut self, r: Ref) -> Result<&mut Vec<Ref>> {
        match self.get_mut(r)? {
            Object::List(items) => Ok(items),
            other => Err(format!("not a list: {other:?}")),
        }
    }

    pub fn tuple(&self, r: Ref) -> Result<&Vec<Ref>> {
        match self.get(r)? {
            Object::Tuple(items) => Ok(items),
            other => Err(format!("not a tuple: {other:?}")),
        }
    }

    /// Whether an instance keeps its attributes as its class numbers them.
    pub fn keeps_values(&self, r: Ref) -> Result<bool> {
        match self.get(r)? {
            Object::Instance { has_values, .. } => Ok(*has_values),
            other => Err(format!("no instance: {other:?}")),
        }
    }

    /// The place of an attribute.
    pub fn attr(&mut self, r: Ref, at: Attr) -> Result<&mut Option<Ref>> {
        let (has_values, attrs) = match self.get_mut(r)? {
            Object::Instance { has_values, attrs, .. } => (*has_values, attrs),
            other => return Err(format!("no instance: {other:?}")),
        };
        let index = match at {
            Attr::Value(_) if !has_values => {
                return Err("the attributes are in a dictionary".to_owned());
            }
            Attr::Value(n) => n as usize,
            Attr::Offset(offset) => (offset as usize).wrapping_sub(16) / 8,
        };
        attrs.get_mut(index).ok_or_else(|| format!("no attribute {at}"))
    }

    pub fn array(&self, r: Ref) -> Result<&Array> {
        match self.get(r)? {
            Object::NdArray(array) => Ok(array),
            other => Err(format!("not an array: {other:?}")),
        }
    }

    /// Pointer to the first byte of an object's memory.
    pub fn pointer(&self, r: Ref) -> Result<Pointer> {
        match self.get(r)? {
            Object::Bytes(_) => Ok(Pointer { owner: r, generation: 0, offset: 0 }),
            Object::ByteArray { generation, .. } => {
                Ok(Pointer { owner: r, generation: *generation, offset: 0 })
            }
            Object::NdArray(array) => Ok(Pointer { owner: r, generation: 0, offset: array.offset }),
            other => Err(format!("no memory inside {other:?}")),
        }
    }

    pub fn load(&self, dtype: DType, p: Pointer) -> Result<Scalar> {
        let (data, generation) = match self.get(p.owner)? {
            Object::Bytes(data) => (data, 0),
            Object::ByteArray { data, generation } => (data, *generation),
            Object::NdArray(array) => (&array.data, 0),
            other => return Err(format!("no memory inside {other:?}")),
        };
        let range = p.range(dtype, data.len(), generation)?;
        Ok(Scalar::from_bytes(dtype, &data[range]))
    }

    pub fn store(&mut self, dtype: DType, p: Pointer, value: Scalar) -> Result<()> {
        let (data, generation) = match self.get_mut(p.owner)? {
            Object::ByteArray { data, generation } => (data, *generation),
            Object::NdArray(array) if array.writable => (&mut array.data, 0),
            other => return Err(format!("no writable memory inside {other:?}")),
        };
        let range = p.range(dtype, data.len(), generation)?;
        data[range].copy_from_slice(&value.to_bytes(dtype)?);
        Ok(())
    }
}

/// References that an object owns.
fn children(object: &Object) -> Vec<Ref> {
    match object {
        Object::List(items) | Object::Tuple(items) | Object::Zip(items) => items.clone(),
        Object::Dict(items) => items.iter().rev().flat_map(|(k, v)| [*v, *k]).collect(),
        Object::SeqIter { seq, .. } => seq.iter().copied().collect(),
        Object::Enumerate { iter, .. } => vec![*iter],
        Object::Cell(content) => content.iter().copied().collect(),
        Object::Slice(parts) => parts.iter().flatten().copied().collect(),
        Object::Tracked { attrs, .. } => attrs.iter().map(|(_, v)| *v).collect(),
        Object::Instance { attrs, .. } => attrs.iter().flatten().copied().collect(),
        Object::None
        | Object::Bool(_)
        | Object::Int(_)
        | Object::Float(_)
        | Object::Str(_)
        | Object::Bytes(_)
        | Object::ByteArray { .. }
        | Object::NdArray(_)
        | Object::Np(..)
        | Object::RangeIter { .. }
        | Object::Callable(_) => vec![],
    }
}
