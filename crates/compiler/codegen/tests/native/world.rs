//! The interpreter's mock heap, mirrored in real memory that machine code can work on.
//!
//! Every object of the heap has a block laid out by a test `ObjectLayout`. Before an entry of the object table runs, what
//! machine code did to the blocks is read back into the heap; the interpreter's own mock table does the operation; then
//! the blocks are brought up to date. So both ways of running share one meaning of every entry, and references, lists
//! and array data can be compared exactly afterwards.

#![expect(unsafe_code, reason = "reads and writes memory that machine code shares")]

use std::collections::{BTreeMap, HashMap};

use overdrive_base::flavour::{DType, Flavour, KnownType};
use overdrive_base::layout::{InstanceLayout, IntLayout, ObjectLayout};
use overdrive_ir::interpret::heap::{Heap, Object, Ref};
use overdrive_ir::interpret::scalar::Scalar;

/// Which CPython's layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Python {
    /// Signed digit count, no immortal objects, a 32-bit eval breaker.
    V311,
    /// Tagged digit count, immortal singletons, a 64-bit eval breaker.
    V312,
}

/// Words of an instance: what tells where its attributes are, and its type, which is nothing but a version.
const HOME: usize = 9;
const CLASS: usize = 11;
/// Words behind it: where the number of names is, and that.
const NAMES: usize = 12;

const N_TYPES: usize = KnownType::ALL.len();
const POISON: u64 = 0xdddd_dddd_dddd_dddd;
const FLAGS_READ: i32 = 0x100;
const FLAGS_WRITE: i32 = 0x400;
/// Count that no test brings down to zero, negative in 32 bits.
const IMMORTAL: u64 = 0xffff_ffff;

/// Words of native memory. Never reused within a world, so a dead object stays recognisable.
#[derive(Clone, Copy, Default)]
struct Span {
    start: usize,
    len: usize,
}

/// Memory of one object. It keeps its address: items and data only move when they grow, as the real object's would.
#[derive(Clone, Copy)]
struct Block {
    words: Span,
    /// List items, or element data.
    data: Span,
    /// Shape and strides.
    axes: Span,
}

/// Native memory of this thread's worlds, one at a time. Each begins at the same address, so that worlds that are built
/// in the same way look the same to machine code, which is then compiled once.
struct Arena {
    memory: *mut u64,
    used: usize,
}

const ARENA_LEN: usize = 1 << 17;

thread_local! {
    static MEMORY: *mut u64 = Box::leak(vec![0u64; ARENA_LEN].into_boxed_slice()).as_mut_ptr();
}

impl Arena {
    fn new() -> Arena {
        Arena { memory: MEMORY.with(|m| *m), used: 0 }
    }

    fn take(&mut self, len: usize) -> Span {
        let span = Span { start: self.used, len };
        self.used += len;
        assert!(self.used <= ARENA_LEN, "a test that needs more memory");
        (0..len).for_each(|i| self.poke(span, i, 0));
        span
    }

    fn address(&self, span: Span) -> usize {
        self.memory as usize + 8 * span.start
    }

    /// Volatile: machine code writes here without the compiler's knowledge.
    fn peek(&self, span: Span, i: usize) -> u64 {
        assert!(i < span.len, "outside of an object");
        // SAFETY: inside of the span, which is inside of the memory.
        unsafe { self.memory.add(span.start + i).read_volatile() }
    }

    fn poke(&self, span: Span, i: usize, word: u64) {
        assert!(i < span.len, "outside of an object");
        // SAFETY: inside of the span, which is inside of the memory.
        unsafe { self.memory.add(span.start + i).write_volatile(word) }
    }

    fn peek_bytes(&self, span: Span, bytes: &mut [u8]) {
        for (i, chunk) in bytes.chunks_mut(8).enumerate() {
            let len = chunk.len();
            chunk.copy_from_slice(&self.peek(span, i).to_le_bytes()[..len]);
        }
    }
}

/// A heap and its mirror.
pub(crate) struct World {
    pub(crate) heap: Heap,
    pub(crate) layout: ObjectLayout,
    blocks: BTreeMap<Ref, Block>,
    by_address: HashMap<usize, Ref>,
    arena: Arena,
    types: usize,
    frame: Span,
    pub(crate) code_base: usize,
}

impl World {
    pub(crate) fn new(heap: Heap, python: Python) -> World {
        let mut arena = Arena::new();
        let types = arena.take(N_TYPES + DType::ALL.len() + 1);
        let base = arena.address(types);
        let frame = arena.take(8);
        let mut layout = ObjectLayout {
            int: match python {
                Python::V311 => IntLayout::SignedSize,
                Python::V312 => IntLayout::Tagged,
            },
            immortal: python == Python::V312,
            ob_type: 8,
            type_version: 0,
            instance: match python {
                Python::V311 => InstanceLayout::Pointed { values: 8 * HOME as i32 },
                Python::V312 => InstanceLayout::Inline {
                    valid: 8 * HOME as i32 + 3,
                    values: 16,
                    dict: 8 * HOME as i32 + 8,
                },
            },
            class_names: 8 * (NAMES - CLASS) as i32,
            class_names_used: 0,
            var_size: 16,
            list_items: 24,
            list_allocated: 32,
            tuple_items: 24,
            float_value: 16,
            small_ints: 0,
            small_int_size: 32,
            str_state: 32,
            str_state_mask: 0x7c,
            str_state_ascii: 0x64,
            str_ascii_data: 48,
            characters: 0,
            bytes_data: 32,
            bytearray_start: 40,
            array_data: 16,
            array_ndim: 24,
            array_dims: 32,
            array_strides: 40,
            array_descr: 56,
            array_flags: 64,
            array_flags_read: FLAGS_READ,
            array_flags_write: FLAGS_WRITE,
            np_scalar_value: 16,
            types: std::array::from_fn(|i| base + 8 * i),
            descrs: std::array::from_fn(|i| base + 8 * (N_TYPES + i)),
            tensor_tags: std::array::from_fn(|i| i + 1),
            none: 0,
            true_: 0,
            false_: 0,
            np_true: 0,
            np_false: 0,
            frame_instr: 24,
            breaker_bits: if python == Python::V311 { 32 } else { 64 },
            breaker_mask: if python == Python::V311 { 1 } else { 0xf0 },
        };
        let mut heap = heap;
        // Singletons are in every world; the heap's own reference keeps them.
        let singletons = [Object::None, Object::Bool(true), Object::Bool(false)].map(|o| heap.add(o));
        let np_bools = [true, false].map(|b| heap.add(Object::Np(Flavour::NpBool, Scalar::I1(b))));
        let mut world = World {
            heap,
            layout: layout.clone(),
            blocks: BTreeMap::new(),
            by_address: HashMap::new(),
            arena,
            types: base,
            frame,
            code_base: 0x7000_0000,
        };
        for r in singletons.into_iter().chain(np_bools) {
            world.adopt(r);
        }
        [layout.none, layout.true_, layout.false_] = singletons.map(|r| world.address(r));
        [layout.np_true, layout.np_false] = np_bools.map(|r| world.address(r));
        world.layout = layout;
        for r in singletons {
            world.heap.release(r).expect("the heap holds one more");
        }
        world.push();
        world
    }

    pub(crate) fn frame(&self) -> *mut u8 {
        self.arena.address(self.frame) as *mut u8
    }

    /// What the poll service does first.
    pub(crate) fn store_position(&self, pos: u32) {
        self.arena.poke(self.frame, 3, (self.code_base + pos as usize) as u64);
    }

    pub(crate) fn breaker(&self) -> u64 {
        self.layout.breaker_mask
    }

    /// Address of an object's block, which is made when needed.
    pub(crate) fn adopt(&mut self, r: Ref) -> usize {
        if !self.blocks.contains_key(&r) {
            let size = match self.heap.get(r) {
                Ok(Object::Tuple(items)) => 4 + items.len(),
                Ok(Object::Bytes(data)) => 5 + data.len().div_ceil(8),
                Ok(Object::Instance { .. }) => NAMES + 2,
                _ => 12,
            };
            let block = Block { words: self.arena.take(size), data: Span::default(), axes: Span::default() };
            self.by_address.insert(self.arena.address(block.words), r);
            self.blocks.insert(r, block);
            self.write(r, true);
        }
        self.address(r)
    }

    pub(crate) fn address(&self, r: Ref) -> usize {
        self.arena.address(self.blocks[&r].words)
    }

    /// The object at an address that machine code gave.
    pub(crate) fn object_at(&self, address: u64) -> Result<Option<Ref>, String> {
        match address {
            0 => Ok(None),
            a => match self.by_address.get(&(a as usize)) {
                Some(r) => Ok(Some(*r)),
                None => Err(format!("{a:#x} is no live object")),
            },
        }
    }

    /// Every object that was ever mirrored and lives.
    pub(crate) fn live(&self) -> Vec<Ref> {
        self.blocks.keys().copied().collect()
    }

    fn is_immortal(&self, r: Ref) -> bool {
        self.layout.immortal && matches!(self.heap.get(r), Ok(Object::None | Object::Bool(_)))
    }

    /// Blocks → heap. A count of zero stays at one: the release that follows is the heap's business.
    pub(crate) fn pull(&mut self) -> Result<(), String> {
        for r in self.live() {
            let block = self.blocks[&r];
            if !self.is_immortal(r) {
                let native = self.arena.peek(block.words, 0);
                let native = if self.layout.immortal { native & 0xffff_ffff } else { native };
                if native > 1 << 20 {
                    return Err(format!("reference count {native:#x} of {:?}", self.heap.get(r)));
                }
                let native = native.max(1) as u32;
                while self.heap.ref_count(r) < native {
                    self.heap.retain(r)?;
                }
                while self.heap.ref_count(r) > native {
                    self.heap.release(r)?;
                }
            }
            match self.heap.get_mut(r)? {
                Object::List(items) => {
                    let len = self.arena.peek(block.words, 2) as usize;
                    if len > block.data.len {
                        return Err("machine code made a list longer than its memory".to_owned());
                    }
                    let item = |i| self.by_address.get(&(self.arena.peek(block.data, i) as usize)).copied();
                    *items =
                        (0..len).map(item).collect::<Option<_>>().ok_or("a list item is no live object")?;
                }
                Object::Int(n) => *n = int_of(|i| self.arena.peek(block.words, i), self.layout.int),
                Object::Float(x) => *x = f64::from_bits(self.arena.peek(block.words, 2)),
                Object::Instance { attrs, .. } => {
                    for (i, attr) in attrs.iter_mut().enumerate() {
                        let address = self.arena.peek(block.words, 2 + i) as usize;
                        let found = || self.by_address.get(&address).copied();
                        *attr = match address {
                            0 => None,
                            _ => Some(found().ok_or("an attribute is no live object")?),
                        };
                    }
                }
                Object::NdArray(array) => self.arena.peek_bytes(block.data, &mut array.data),
                Object::ByteArray { data, .. } => self.arena.peek_bytes(block.data, data),
                _ => {}
            }
        }
        let position = self.arena.peek(self.frame, 3);
        self.heap.position = (position != 0).then(|| (position as usize - self.code_base) as u32);
        Ok(())
    }

    /// Heap → blocks, new objects included, dead ones poisoned.
    pub(crate) fn push(&mut self) {
        let mut work = self.live();
        while let Some(r) = work.pop() {
            match self.heap.get(r).map(children) {
                Ok(inner) => {
                    for child in inner {
                        if !self.blocks.contains_key(&child) {
                            self.adopt(child);
                            work.push(child);
                        }
                    }
                }
                Err(_) => self.bury(r),
            }
        }
        for r in self.live() {
            self.write(r, false);
        }
    }

    fn bury(&mut self, r: Ref) {
        if let Some(block) = self.blocks.remove(&r) {
            self.by_address.remove(&self.arena.address(block.words));
            for span in [block.words, block.data, block.axes] {
                (0..span.len).for_each(|i| self.arena.poke(span, i, POISON));
            }
        }
    }

    /// Writes an object into its block. `new`: children have no blocks yet, `push` writes them.
    fn write(&mut self, r: Ref, new: bool) {
        let count = if self.is_immortal(r) { IMMORTAL } else { self.heap.ref_count(r).into() };
        let object = self.heap.get(r).expect("alive").clone();
        let ty = KnownType::ALL.into_iter().find(|ty| self.heap.type_is(r, *ty).expect("alive"));
        let ty = ty.map_or(N_TYPES + DType::ALL.len(), |ty| ty as usize);
        let ty = match &object {
            Object::Instance { .. } => self.arena.address(self.blocks[&r].words) + 8 * CLASS,
            _ => self.types + 8 * ty,
        };
        let item = |world: &World, child: &Ref| if new { 0 } else { world.address(*child) as u64 };
        let mut payload: Vec<(usize, u64)> = vec![];
        let mut moved: Option<Vec<u64>> = None;
        match &object {
            Object::Int(n) => payload.extend(int_words(*n, self.layout.int)),
            Object::Float(x) => payload.push((2, x.to_bits())),
            Object::Np(_, value) => payload.push((
                2,
                match value {
                    Scalar::F64(x) => x.to_bits(),
                    Scalar::F32(x) => 0xaaaa_aaaa_0000_0000 | u64::from(x.to_bits()),
                    Scalar::I64(n) => *n as u64,
                    _ => 0,
                },
            )),
            Object::List(items) => {
                let items: Vec<u64> = items.iter().map(|c| item(self, c)).collect();
                payload.push((2, items.len() as u64));
                moved = Some(items);
            }
            Object::Tuple(items) => {
                payload.push((2, items.len() as u64));
                payload.extend(items.iter().enumerate().map(|(i, c)| (3 + i, item(self, c))));
            }
            Object::Str(text) => payload.push((2, text.chars().count() as u64)),
            Object::Bytes(data) => {
                payload.push((2, data.len() as u64));
                payload.extend(words_of(data).into_iter().enumerate().map(|(i, w)| (4 + i, w)));
            }
            Object::ByteArray { data, .. } => {
                payload.push((2, data.len() as u64));
                moved = Some(words_of(data));
            }
            Object::NdArray(a) => {
                let flags = FLAGS_READ | if a.writable { FLAGS_WRITE } else { 0 };
                payload.push((3, a.shape.len() as u64));
                payload.push((7, self.layout.element_tag(a.holder, a.dtype).expect("a tag") as u64));
                payload.push((8, flags as u64));
                moved = Some(words_of(&a.data));
            }
            Object::Instance { version, attrs, has_values } => {
                assert!(attrs.len() <= HOME - 2, "an instance with that many attributes");
                let attr = |attr: &Option<Ref>| attr.as_ref().map_or(0, |child| item(self, child));
                payload.extend(attrs.iter().enumerate().map(|(i, a)| (2 + i, attr(a))));
                let values = self.arena.address(self.blocks[&r].words) + 16;
                let home = match self.layout.instance {
                    InstanceLayout::Pointed { .. } => values as u64,
                    _ => 1 << 24,
                };
                payload.push((HOME, if *has_values { home } else { 0 }));
                payload.push((CLASS, (*version).into()));
                let names = self.arena.address(self.blocks[&r].words) + 8 * (NAMES + 1);
                payload.extend([(NAMES, names as u64), (NAMES + 1, attrs.len() as u64)]);
            }
            _ => {}
        }
        let arena = &mut self.arena;
        let block = self.blocks.get_mut(&r).expect("has a block");
        arena.poke(block.words, 0, count);
        arena.poke(block.words, 1, ty as u64);
        payload.into_iter().for_each(|(i, word)| arena.poke(block.words, i, word));
        let Some(words) = moved else { return };
        if words.len() > block.data.len {
            // Lists get room for one more, so that appending now finds some and now does not.
            let spare = usize::from(matches!(object, Object::List(_)));
            block.data = arena.take(words.len() + spare);
        }
        words.iter().enumerate().for_each(|(i, word)| arena.poke(block.data, i, *word));
        let data = arena.address(block.data) as u64;
        match &object {
            Object::List(_) => {
                arena.poke(block.words, 3, data);
                arena.poke(block.words, 4, block.data.len as u64);
            }
            Object::ByteArray { .. } => arena.poke(block.words, 5, data),
            Object::NdArray(a) => {
                if block.axes.len == 0 {
                    block.axes = arena.take(2 * a.shape.len());
                }
                let axes = a.shape.iter().chain(&a.strides);
                axes.enumerate().for_each(|(i, n)| arena.poke(block.axes, i, *n as u64));
                let axes = arena.address(block.axes) as u64;
                arena.poke(block.words, 2, data.wrapping_add_signed(a.offset));
                arena.poke(block.words, 4, axes);
                arena.poke(block.words, 5, axes + 8 * a.shape.len() as u64);
            }
            _ => {}
        }
    }
}

/// References that an object owns.
fn children(object: &Object) -> Vec<Ref> {
    match object {
        Object::List(items) | Object::Tuple(items) | Object::Zip(items) => items.clone(),
        Object::Dict(items) => items.iter().flat_map(|(k, v)| [*k, *v]).collect(),
        Object::SeqIter { seq, .. } => seq.iter().copied().collect(),
        Object::Enumerate { iter, .. } => vec![*iter],
        Object::Cell(content) => content.iter().copied().collect(),
        Object::Slice(parts) => parts.iter().flatten().copied().collect(),
        Object::Tracked { attrs, .. } => attrs.iter().map(|(_, v)| *v).collect(),
        Object::Instance { attrs, .. } => attrs.iter().flatten().copied().collect(),
        _ => vec![],
    }
}

/// Size word and digits of an int, by word of its block.
fn int_words(n: i128, layout: IntLayout) -> Vec<(usize, u64)> {
    let mut digits = vec![];
    let mut rest = n.unsigned_abs();
    while rest > 0 {
        digits.push((rest & 0x3fff_ffff) as u64);
        rest >>= 30;
    }
    let len = digits.len() as i64;
    let size = match (layout, n.signum()) {
        (IntLayout::SignedSize, sign) => len * sign as i64,
        (IntLayout::Tagged, sign) => len << 3 | (1 - sign as i64),
    };
    let pairs = digits.chunks(2).enumerate();
    let digits = pairs.map(|(i, d)| (3 + i, d[0] | d.get(1).copied().unwrap_or(0x5555_5555) << 32));
    std::iter::once((2, size as u64)).chain(digits).collect()
}

/// The int whose words these are: what `int_words` made, or machine code.
fn int_of(word: impl Fn(usize) -> u64, layout: IntLayout) -> i128 {
    let size = word(2) as i64;
    let (len, negative) = match layout {
        IntLayout::SignedSize => (size.unsigned_abs(), size < 0),
        IntLayout::Tagged => (size as u64 >> 3, size & 3 == 2),
    };
    let digit = |i: u64| i128::from(word(3 + i as usize / 2) >> (32 * (i % 2)) & 0x3fff_ffff);
    let magnitude: i128 = (0..len).map(|i| digit(i) << (30 * i)).sum();
    if negative { -magnitude } else { magnitude }
}

fn words_of(bytes: &[u8]) -> Vec<u64> {
    let word = |chunk: &[u8]| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    };
    bytes.chunks(8).map(word).collect()
}
