//! Code for another process: what is in it, where it finds its addresses, and when two compiles are the same.

use std::collections::BTreeMap;

use overdrive_base::flavour::KnownType;
use overdrive_base::layout::ObjectLayout;
use overdrive_base::table::Entry;
use overdrive_codegen::{Compiled, Forced, Key, Level, Options, Target, VectorForm, compile, key, load};
use overdrive_ir::function::Function;
use overdrive_ir::interpret;
use overdrive_ir::interpret::heap::{Heap, Object};
use overdrive_ir::interpret::mock::MockTable;
use overdrive_ir::parse::parse;

use crate::run::{Run, entries, services, target};
use crate::world::{Python, World};

/// Uses a constant, types, entries that fail, raise and decline, and the services.
const MIXED: &str = r#"function "mixed" args 1 frame {
const0 = code_const 1
exit0 = resume 0 [borrow v0] [] "not a float"
exit1 = raise 4 [borrow v0] [] "raised"
b0(v0: obj):
    v1 = type_is v0, float
    guard v1, exit0
    v2 = unbox float, v0
    v3 = table math_exp(v2) else exit0
    poll at 2 else exit1
    v4 = table box_float(v3) else exit1
    v5 = table list_append(v0, v4) at 4 else exit1
    decref v4 at 4
    v6 = oconst const0
    incref v6
    return v6
}
"#;

fn function(text: &str) -> Function {
    parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn packed(f: &Function, target: &Target<'_>, options: &Options) -> Vec<u8> {
    let options = Options { pack: true, ..options.clone() };
    compile(f, target, &options).expect("compiles").take_packed().expect("asked for")
}

/// Everything that is an address in a target.
fn addresses(target: &Target<'_>) -> Vec<usize> {
    let layout = target.layout;
    let services = target.services;
    let mut all = vec![layout.none, layout.true_, layout.false_, layout.np_true, layout.np_false];
    all.extend(layout.types.iter().chain(&layout.descrs).chain(target.entries).chain(target.consts));
    all.extend([services.exit, services.poll, services.should_fail, services.parallel]);
    all
}

#[test]
fn no_address_is_in_it() {
    let world = World::new(Heap::new(), Python::V311);
    let (entries, consts) = (entries(), [0x1234_5678_9ab0]);
    let target = target(&world, &entries, &consts);
    for (level, forced) in [(Level::Full, Forced::No), (Level::Quick, Forced::Ask)] {
        let options = Options { level, forced, ..Options::default() };
        let packed = packed(&function(MIXED), &target, &options);
        let words: Vec<u64> =
            packed.windows(8).map(|w| u64::from_le_bytes(w.try_into().expect("8 bytes"))).collect();
        for address in addresses(&target) {
            assert!(!words.contains(&(address as u64)), "{address:#x}");
        }
    }
}

#[test]
fn it_finds_its_addresses_where_it_is_loaded() {
    let f = function(
        "function \"f\" args 0 {\nconst0 = code_const 1\nb0:\n    v0 = oconst const0\n    incref v0\n    return v0\n}\n",
    );
    let mut heap = Heap::new();
    let [one, other] = [1, 2].map(|n| heap.add(Object::Int(n)));
    let mut world = World::new(heap, Python::V311);
    let [here, there] = [one, other].map(|r| {
        world.adopt(r);
        [world.address(r)]
    });
    let entries = entries();
    let packed = packed(&f, &target(&world, &entries, &here), &Options::default());
    let code: Compiled = load(&packed, &target(&world, &entries, &there)).expect("loads");
    let mut run = Run::new(world, MockTable::default(), &f, vec![other]);
    let outcome = run.call(&code, &[], interpret::Forced::No).expect("runs");
    assert_eq!(outcome, interpret::Outcome::Returned(other));
}

/// LLVM takes two symbols for two objects; an object that has two numbers among the constants is still one.
#[test]
fn one_object_is_one_symbol() {
    let f = function(
        r#"function "f" args 0 {
const0 = code_const 1
const1 = name 0
b0:
    v0 = oconst const0
    v1 = oconst const1
    incref v0
    v2 = same v0, v1
    branch v2, b1, b2
b1:
    return v1
b2:
    v3 = null
    return v3
}
"#,
    );
    let mut heap = Heap::new();
    let one = heap.add(Object::Int(1));
    let mut world = World::new(heap, Python::V311);
    world.adopt(one);
    let (entries, consts) = (entries(), [world.address(one); 2]);
    let packed = packed(&f, &target(&world, &entries, &consts), &Options::default());
    let code = load(&packed, &target(&world, &entries, &consts)).expect("loads");
    let mut run = Run::new(world, MockTable::default(), &f, vec![one, one]);
    let outcome = run.call(&code, &[], interpret::Forced::No).expect("runs");
    assert_eq!(outcome, interpret::Outcome::Returned(one));
}

#[test]
fn what_a_target_does_not_have_is_an_error() {
    let world = World::new(Heap::new(), Python::V311);
    let (entries, consts) = (entries(), [0x1000]);
    let full = target(&world, &entries, &consts);
    let packed = packed(&function(MIXED), &full, &Options::default());
    assert!(load(&packed, &full).is_ok());
    let mut without = entries.clone();
    without[Entry::ListAppend as usize] = 0;
    let error = load(&packed, &target(&world, &without, &consts)).expect_err("an entry is missing");
    assert!(error.to_string().contains("od.entry.list_append"), "{error}");
    let error = load(&packed, &target(&world, &entries, &[])).expect_err("a constant is missing");
    assert!(error.to_string().contains("od.const.0"), "{error}");
}

/// The store hands out nothing that is damaged; if it did, loading would still end. Nothing is run.
#[test]
fn damaged_code_is_loaded_or_refused() {
    let world = World::new(Heap::new(), Python::V311);
    let (entries, consts) = (entries(), [0x1000]);
    let target = target(&world, &entries, &consts);
    let packed = packed(&function(MIXED), &target, &Options::default());
    // The last thing in the file is a section's header, the end of which nobody reads.
    for len in (0..packed.len() - 64).step_by(7) {
        assert!(load(&packed[..len], &target).is_err(), "cut at {len}");
    }
    let mut random = 0x9E37_79B9_7F4A_7C15u64;
    for _ in 0..4000 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let mut damaged = packed.clone();
        let at = random as usize % damaged.len();
        damaged[at] ^= (random >> 40) as u8 | 1;
        let _ = load(&damaged, &target);
    }
}

/// The keys of compiles that differ in one thing each.
#[test]
fn everything_that_code_depends_on_is_in_the_key() {
    let world = World::new(Heap::new(), Python::V311);
    let (entries, consts) = (entries(), [0x1234_5678_9ab0]);
    let base = target(&world, &entries, &consts);
    let f = function(MIXED);
    let default = Options::default;
    let mut keys: BTreeMap<Key, String> = BTreeMap::new();
    let mut differs = |what: &str, key: Key| {
        if let Some(other) = keys.insert(key, what.to_owned()) {
            panic!("{what} and {other} have the same key");
        }
    };
    differs("the first", key(&f, &base, &default(), b"build"));
    differs("build", key(&f, &base, &default(), b"builds"));
    differs("level", key(&f, &base, &Options { level: Level::Quick, ..default() }, b"build"));
    differs("forced", key(&f, &base, &Options { forced: Forced::Ask, ..default() }, b"build"));
    for cpu in ["x86-64", "haswell"] {
        differs(cpu, key(&f, &base, &Options { cpu: Some(cpu.to_owned()), ..default() }, b"build"));
    }
    for (from, to) in [
        ("args 1", "args 2"),
        ("args 1 frame", "args 1"),
        ("args 1 frame", "args 1 frame fastmath"),
        ("args 1 frame", "args 1 frame neighbours"),
        ("args 1 frame", "args 1 frame profile 1"),
        ("code_const 1", "code_const 2"),
        ("code_const 1", "name 1"),
        ("resume 0 [borrow v0]", "resume 0 [own v0]"),
        ("resume 0", "resume 2"),
        ("type_is v0, float", "type_is v0, int"),
        ("math_exp", "math_sin"),
        ("decref v4 at 4", "decref v4"),
        ("poll at 2", "poll at 6"),
        ("b0(v0: obj):", "b0(v0: obj) cold:"),
        ("b0(v0: obj):", "b0(v0: obj) free:"),
        ("incref v6\n", "incref v6\n    incref v6\n"),
    ] {
        assert!(MIXED.contains(from), "{from}");
        let changed = function(&MIXED.replacen(from, to, 1));
        assert_ne!(changed, f, "{from} to {to}");
        differs(to, key(&changed, &base, &default(), b"build"));
    }
    let change = |change: fn(&mut Function)| {
        let mut f = f.clone();
        change(&mut f);
        f
    };
    for (what, changed) in [
        ("gives_gil", change(|f| f.gives_gil = true)),
        ("global_slots", change(|f| f.global_slots = vec![1])),
        ("types", change(|f| f.types[5] = overdrive_base::flavour::Ty::Ptr)),
    ] {
        differs(what, key(&changed, &base, &default(), b"build"));
    }
    type Change = fn(&mut ObjectLayout);
    let layouts: [(&str, Change); 6] = [
        ("an offset", |l| l.float_value += 8),
        ("two offsets swapped", |l| std::mem::swap(&mut l.list_items, &mut l.float_value)),
        ("immortal", |l| l.immortal = true),
        ("breaker_bits", |l| l.breaker_bits = 64),
        ("no such type", |l| l.types[KnownType::NpF64 as usize] = 0),
        ("two types are one", |l| l.types[KnownType::NpF64 as usize] = l.types[KnownType::Float as usize]),
    ];
    for (what, change) in layouts {
        let mut layout = world.layout.clone();
        change(&mut layout);
        differs(what, key(&f, &Target { layout: &layout, ..base }, &default(), b"build"));
    }
    let none = [world.layout.none];
    differs("a constant that is None", key(&f, &Target { consts: &none, ..base }, &default(), b"build"));
    let mut fewer = entries.clone();
    fewer[Entry::MathExp as usize] = 0;
    differs("no such entry", key(&f, &Target { entries: &fewer, ..base }, &default(), b"build"));
    for lanes in [2, 4] {
        let vectors = [VectorForm { entry: Entry::FastExp, lanes, address: 0x9000 }];
        differs("vectors", key(&f, &Target { vectors: &vectors, ..base }, &default(), b"build"));
    }
}

#[test]
fn nothing_else_is_in_the_key() {
    let world = World::new(Heap::new(), Python::V311);
    let (entries, consts) = (entries(), [0x1234_5678_9ab0]);
    let base = target(&world, &entries, &consts);
    let f = function(MIXED);
    let expected = key(&f, &base, &Options::default(), b"build");
    assert_eq!(expected, key(&f, &base, &Options::default(), b"build"));

    // Another process: everything is somewhere else.
    let mut layout = world.layout.clone();
    for address in layout.types.iter_mut().chain(&mut layout.descrs) {
        *address += 0x10_0000_0000;
    }
    for address in
        [&mut layout.none, &mut layout.true_, &mut layout.false_, &mut layout.np_true, &mut layout.np_false]
    {
        *address += 0x10_0000_0000;
    }
    let moved: Vec<usize> = entries.iter().map(|e| e + 0x10_0000_0000).collect();
    let mut services = services();
    services.exit += 16;
    let elsewhere =
        Target { layout: &layout, entries: &moved, services, vectors: &[], consts: &[0x4321_5678_9ab0] };
    assert_eq!(expected, key(&f, &elsewhere, &Options::default(), b"build"));

    let mut named = f.clone();
    named.name = "another".to_owned();
    named.remarks.push((0, "a loop runs in order".to_owned()));
    assert_eq!(expected, key(&named, &base, &Options::default(), b"build"));
    for options in
        [Options { keep: true, ..Options::default() }, Options { pack: true, ..Options::default() }]
    {
        assert_eq!(expected, key(&f, &base, &options, b"build"));
    }
}
