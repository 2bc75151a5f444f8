//! Names for the addresses that machine code refers to.
//!
//! In: a `Target`, which has addresses. Out: for each address the symbol that stands for it in LLVM's IR and in the
//! object file, and back: the address that a symbol has in the process which loads the object. So the object itself holds
//! no address, and another process with other addresses can load it.
//!
//! An address has one symbol, even where the target gives it several times (a constant that is a type, `None` among the
//! constants): LLVM takes two symbols for two objects, which are never equal and share no memory. `Symbols::roles` says
//! which of them are one; it is a part of what an object was made for.

use std::collections::HashMap;
use std::fmt::{self, Display, Formatter};

use overdrive_base::flavour::{DType, KnownType};
use overdrive_base::layout::ObjectLayout;
use overdrive_base::table::Entry;

use crate::abi::{Services, Target, VectorForm};

/// What an address is in its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Symbol {
    Singleton(Singleton),
    Type(KnownType),
    /// A dtype object of NumPy.
    Descr(DType),
    /// What a tensor has in its place.
    Tag(DType),
    Service(Service),
    Entry(Entry),
    /// A vector form of an entry, with so many lanes.
    Vector(Entry, u32),
    /// A constant of the function.
    Const(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Singleton {
    None,
    True,
    False,
    NpTrue,
    NpFalse,
    /// The first of the small ints, the table of the ASCII characters.
    SmallInts,
    Characters,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Service {
    Exit,
    Poll,
    ShouldFail,
    Parallel,
}

/// Begins the name of every symbol. Functions of the object itself begin with `od_`.
const PREFIX: &str = "od.";

impl Display for Symbol {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Symbol::Singleton(which) => write!(f, "{PREFIX}{}", which.name()),
            Symbol::Type(ty) => write!(f, "{PREFIX}type.{}", ty.name()),
            Symbol::Descr(dtype) => write!(f, "{PREFIX}dtype.{}", dtype.name()),
            Symbol::Tag(dtype) => write!(f, "{PREFIX}tag.{}", dtype.name()),
            Symbol::Service(service) => write!(f, "{PREFIX}service.{}", service.name()),
            Symbol::Entry(entry) => write!(f, "{PREFIX}entry.{}", entry.name()),
            Symbol::Vector(entry, lanes) => write!(f, "{PREFIX}vector.{lanes}.{}", entry.name()),
            Symbol::Const(n) => write!(f, "{PREFIX}const.{n}"),
        }
    }
}

impl Singleton {
    const ALL: [Singleton; 7] = [
        Singleton::None,
        Singleton::True,
        Singleton::False,
        Singleton::NpTrue,
        Singleton::NpFalse,
        Singleton::SmallInts,
        Singleton::Characters,
    ];

    const fn name(self) -> &'static str {
        match self {
            Singleton::None => "none",
            Singleton::True => "true",
            Singleton::False => "false",
            Singleton::NpTrue => "np_true",
            Singleton::NpFalse => "np_false",
            Singleton::SmallInts => "small_ints",
            Singleton::Characters => "characters",
        }
    }

    fn address(self, layout: &ObjectLayout) -> usize {
        match self {
            Singleton::None => layout.none,
            Singleton::True => layout.true_,
            Singleton::False => layout.false_,
            Singleton::NpTrue => layout.np_true,
            Singleton::NpFalse => layout.np_false,
            Singleton::SmallInts => layout.small_ints,
            Singleton::Characters => layout.characters,
        }
    }
}

impl Service {
    const ALL: [Service; 4] = [Service::Exit, Service::Poll, Service::ShouldFail, Service::Parallel];

    const fn name(self) -> &'static str {
        match self {
            Service::Exit => "exit",
            Service::Poll => "poll",
            Service::ShouldFail => "should_fail",
            Service::Parallel => "parallel",
        }
    }

    fn address(self, services: &Services) -> usize {
        let Services { exit, poll, should_fail, parallel } = *services;
        match self {
            Service::Exit => exit,
            Service::Poll => poll,
            Service::ShouldFail => should_fail,
            Service::Parallel => parallel,
        }
    }
}

/// Every symbol of a target with its address, always in the same order; 0: does not exist here.
fn all<'a>(target: &'a Target<'a>) -> impl Iterator<Item = (Symbol, usize)> + 'a {
    let Target { layout, entries, services, vectors, consts } = target;
    let singletons = Singleton::ALL.iter().map(|s| (Symbol::Singleton(*s), s.address(layout)));
    let types = KnownType::ALL.iter().map(|ty| (Symbol::Type(*ty), layout.types[*ty as usize]));
    let descrs = DType::ALL.iter().map(|d| (Symbol::Descr(*d), layout.descrs[*d as usize]));
    let tags = DType::ALL.iter().map(|d| (Symbol::Tag(*d), layout.tensor_tags[*d as usize]));
    let services = Service::ALL.iter().map(|s| (Symbol::Service(*s), s.address(services)));
    let entries =
        Entry::ALL.iter().map(|e| (Symbol::Entry(*e), entries.get(*e as usize).copied().unwrap_or_default()));
    let vectors = vectors.iter().map(|form| (Symbol::Vector(form.entry, form.lanes), form.address));
    let consts = consts.iter().enumerate().map(|(n, address)| (Symbol::Const(n), *address));
    singletons
        .chain(types)
        .chain(descrs)
        .chain(tags)
        .chain(services)
        .chain(entries)
        .chain(vectors)
        .chain(consts)
}

/// The symbol of each address of a target.
pub(crate) struct Symbols {
    /// The first symbol that has the address, and its place in the order of all.
    by_address: HashMap<usize, (Symbol, u32)>,
    roles: Vec<(Symbol, u32)>,
}

impl Symbols {
    pub(crate) fn of(target: &Target<'_>) -> Symbols {
        let mut symbols = Symbols { by_address: HashMap::with_capacity(256), roles: Vec::with_capacity(256) };
        for (place, (symbol, address)) in (1..).zip(all(target)) {
            let first = match address {
                0 => 0,
                address => symbols.by_address.entry(address).or_insert((symbol, place)).1,
            };
            symbols.roles.push((symbol, first));
        }
        symbols
    }

    /// The symbol that stands for an address of the target.
    pub(crate) fn at(&self, address: usize) -> Option<Symbol> {
        self.by_address.get(&address).map(|(symbol, _)| *symbol)
    }

    /// For every symbol: 0 when it does not exist here, else the number of the symbol that stands for its address.
    pub(crate) fn roles(&self) -> &[(Symbol, u32)] {
        &self.roles
    }
}

/// The address that a symbol has in `target`, if it is one of ours and exists there.
pub(crate) fn address(name: &str, target: &Target<'_>) -> Option<usize> {
    let name = name.strip_prefix(PREFIX)?;
    let (kind, rest) = name.split_once('.').unwrap_or((name, ""));
    let dtype = || DType::ALL.into_iter().find(|d| d.name() == rest);
    let entry = |name: &str| Entry::ALL.iter().find(|e| e.name() == name).copied();
    let address = match kind {
        "type" => target.layout.types[KnownType::ALL.into_iter().find(|ty| ty.name() == rest)? as usize],
        "dtype" => target.layout.descrs[dtype()? as usize],
        "tag" => target.layout.tensor_tags[dtype()? as usize],
        "service" => Service::ALL.iter().find(|s| s.name() == rest)?.address(&target.services),
        "entry" => *target.entries.get(entry(rest)? as usize)?,
        "vector" => {
            let (lanes, name) = rest.split_once('.')?;
            let (lanes, entry) = (lanes.parse::<u32>().ok()?, entry(name)?);
            let is_it = |form: &&VectorForm| form.entry == entry && form.lanes == lanes;
            target.vectors.iter().find(is_it)?.address
        }
        "const" => *target.consts.get(rest.parse::<usize>().ok()?)?,
        name if rest.is_empty() => Singleton::ALL.iter().find(|s| s.name() == name)?.address(target.layout),
        _ => return None,
    };
    Some(address).filter(|address| *address != 0)
}

#[cfg(test)]
pub(crate) mod tests {
    use overdrive_base::layout::{InstanceLayout, IntLayout};

    use super::*;

    /// A layout in which no two addresses are the same.
    pub(crate) fn layout() -> ObjectLayout {
        let address = |i: usize| 0x1000 + 16 * i;
        ObjectLayout {
            int: IntLayout::SignedSize,
            immortal: false,
            ob_type: 8,
            type_version: 64,
            instance: InstanceLayout::Pointed { values: -32 },
            class_names: 128,
            class_names_used: 24,
            small_ints: address(105),
            small_int_size: 32,
            str_state: 32,
            str_state_mask: 0x60,
            str_state_ascii: 0x60,
            str_ascii_data: 48,
            characters: address(106),
            var_size: 16,
            list_items: 24,
            list_allocated: 32,
            tuple_items: 24,
            float_value: 16,
            bytes_data: 32,
            bytearray_start: 40,
            array_data: 16,
            array_ndim: 24,
            array_dims: 32,
            array_strides: 40,
            array_descr: 56,
            array_flags: 64,
            array_flags_read: 0x100,
            array_flags_write: 0x400,
            np_scalar_value: 16,
            types: std::array::from_fn(address),
            descrs: std::array::from_fn(|i| address(64 + i)),
            tensor_tags: std::array::from_fn(|i| i + 1),
            none: address(100),
            true_: address(101),
            false_: address(102),
            np_true: address(103),
            np_false: address(104),
            frame_instr: 56,
            breaker_bits: 32,
            breaker_mask: 1,
        }
    }

    pub(crate) const SERVICES: Services =
        Services { exit: 0x90_0000, poll: 0x90_0010, should_fail: 0x90_0020, parallel: 0x90_0030 };

    pub(crate) fn entries() -> Vec<usize> {
        (0..Entry::ALL.len()).map(|i| 0x10_0000 + 16 * i).collect()
    }

    #[test]
    fn every_symbol_has_a_name_of_its_own_that_leads_back_to_its_address() {
        let (layout, entries) = (layout(), entries());
        let vectors = [2, 4, 8].map(|lanes| VectorForm {
            entry: Entry::FastExp,
            lanes,
            address: 0x80_0000 + lanes as usize,
        });
        let consts = [0x70_0000, 0x70_0010];
        let target = Target {
            layout: &layout,
            entries: &entries,
            services: SERVICES,
            vectors: &vectors,
            consts: &consts,
        };
        let symbols = Symbols::of(&target);
        let mut names = vec![];
        for (symbol, expected) in all(&target) {
            let name = symbol.to_string();
            assert_eq!(address(&name, &target), Some(expected), "{name}");
            assert_eq!(symbols.at(expected), Some(symbol), "{name}");
            assert!(!names.contains(&name), "{name} twice");
            names.push(name);
        }
        assert_eq!(names.len(), 7 + KnownType::ALL.len() + 12 + 4 + Entry::ALL.len() + 3 + 2);
    }

    #[test]
    fn one_address_has_one_symbol_and_the_roles_say_so() {
        let (layout, entries) = (layout(), entries());
        let with = |consts: &[usize]| {
            let target =
                Target { layout: &layout, entries: &entries, services: SERVICES, vectors: &[], consts };
            let symbols = Symbols::of(&target);
            (symbols.at(consts[0]), symbols.roles().to_vec())
        };
        let (symbol, of_none) = with(&[layout.none]);
        assert_eq!(symbol, Some(Symbol::Singleton(Singleton::None)));
        let (symbol, of_another) = with(&[0x70_0000]);
        assert_eq!(symbol, Some(Symbol::Const(0)));
        assert_ne!(of_none, of_another);
        assert_eq!(of_another, with(&[0x70_0990]).1, "addresses themselves are no part of it");
    }

    #[test]
    fn what_does_not_exist_has_no_address() {
        let (mut layout, mut entries) = (layout(), entries());
        layout.types[KnownType::NpF64 as usize] = 0;
        entries[Entry::BoxNpF64 as usize] = 0;
        let target =
            Target { layout: &layout, entries: &entries, services: SERVICES, vectors: &[], consts: &[] };
        for name in [
            "od.type.np.float64",
            "od.entry.box_np_f64",
            "od.const.0",
            "od.const.-1",
            "od.const.",
            "od.vector.4.fast_exp",
            "od.vector.fast_exp",
            "od.nonsense.none",
            "od.none.x",
            "od.",
            "none",
            "od_native",
        ] {
            assert_eq!(address(name, &target), None, "{name}");
        }
    }
}
