//! What values weigh: lists and maps with all that is in them, each thing as often as it would be printed.
//!
//! In: values, on their way through a rendering. Out: the same values, paid for. The engine counts steps, strings, and the
//! outermost list of what is made; thirty lists that each hold the one before twice would keep `join` or `==` busy for
//! ever. The template is rewritten (`rewrite.rs`) so that each operand goes through here.

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Output, State, escape_formatter, filters};

/// Pays for a value.
pub(super) const COUNTED: &str = "_counted";
/// Pays for a factor: the product weighs many times what the list weighs, so lists of lists are refused.
pub(super) const REPEATED: &str = "_repeated";
/// Pays for what is kept by a namespace or a loop, and lets neither be kept: what holds itself would never be freed.
pub(super) const KEPT: &str = "_kept";

/// How deep lists and maps may lie in each other.
const DEPTH: usize = 200;
/// What one step of the engine pays for: so many things in lists.
const PER_STEP: u64 = 4;
/// What a place in a list that is none yet weighs.
const IN_ITERATOR: u64 = 4;
/// Bytes of a text that weigh as much as one thing.
const TEXT: usize = 16;
/// Bytes of the longest text in a list that is repeated.
const LONGEST_REPEATED: usize = 64;

/// Adds the filters, and puts ours in the place of those of the engine that do not count what they do.
pub(super) fn install(environment: &mut Environment<'_>) {
    environment.set_formatter(print);
    environment.add_filter(COUNTED, counted);
    environment.add_filter(REPEATED, repeated);
    environment.add_filter(KEPT, kept);
    environment.add_filter("sum", sum);
    environment.add_test("in", is_in);
    // Joins lists without counting, and is not in Jinja.
    environment.remove_filter("chain");
}

/// Pays for a value.
///
/// # Errors
/// When the rendering cannot pay, and when lists lie too deep in each other.
pub(super) fn pay(state: &State<'_, '_>, value: &Value) -> Result<(), Error> {
    let mut bill = Bill { state, n_open: 0 };
    bill.inside(value, 0)?;
    bill.settle()
}

/// Whether it is a list or a map.
fn holds(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Map | ValueKind::Seq | ValueKind::Iterable)
}

struct Bill<'b, 's, 'e> {
    state: &'b State<'s, 'e>,
    /// What is not paid for yet.
    n_open: u64,
}

impl Bill<'_, '_, '_> {
    fn add(&mut self, weight: u64) -> Result<(), Error> {
        self.n_open += weight;
        if self.n_open > 64 * PER_STEP { self.settle() } else { Ok(()) }
    }

    fn settle(&mut self) -> Result<(), Error> {
        let n_steps = self.n_open / PER_STEP;
        self.n_open %= PER_STEP;
        if n_steps > 0 { self.state.consume_fuel(n_steps) } else { Ok(()) }
    }

    fn inside(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if !holds(value) {
            return Ok(());
        }
        if depth > DEPTH {
            return Err(refused("lists lie too deep in each other"));
        }
        let is_map = value.kind() == ValueKind::Map;
        let of_place = if value.kind() == ValueKind::Iterable { IN_ITERATOR } else { 1 };
        for item in value.try_iter()? {
            self.add(of_place + text_weight(&item))?;
            let item = if is_map {
                self.inside(&item, depth + 1)?;
                let of_key = value.get_item(&item)?;
                self.add(1 + text_weight(&of_key))?;
                of_key
            } else {
                item
            };
            self.inside(&item, depth + 1)?;
        }
        Ok(())
    }
}

fn text_weight(value: &Value) -> u64 {
    (value.as_str().map_or(0, str::len) / TEXT) as u64
}

fn refused(problem: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, problem)
}

fn counted(state: &State<'_, '_>, value: Value) -> Result<Value, Error> {
    pay(state, &value)?;
    listed(value)
}

/// The engine's sums of lists are iterators over iterators, each step through as many as there were sums. As a list it is
/// gone through at once.
fn listed(value: Value) -> Result<Value, Error> {
    if value.kind() != ValueKind::Iterable {
        return Ok(value);
    }
    Ok(value.try_iter()?.collect::<Vec<Value>>().into())
}

fn repeated(state: &State<'_, '_>, value: Value) -> Result<Value, Error> {
    pay(state, &value)?;
    if holds(&value) {
        for item in value.try_iter()? {
            if holds(&item) || item.as_str().is_some_and(|text| text.len() > LONGEST_REPEATED) {
                return Err(refused("lists are repeated only where they hold numbers and short texts"));
            }
        }
    }
    listed(value)
}

fn kept(state: &State<'_, '_>, value: Value) -> Result<Value, Error> {
    pay(state, &value)?;
    if has_namespace(&value) {
        return Err(refused("a namespace or a loop is not kept in one"));
    }
    listed(value)
}

/// Whether a namespace, or a loop, whose items may be namespaces, is in it. Its weight is paid for.
fn has_namespace(value: &Value) -> bool {
    if let Some(object) = value.as_object()
        && ["::Namespace", "::Loop"].iter().any(|name| object.type_name().ends_with(name))
    {
        return true;
    }
    if !holds(value) {
        return false;
    }
    let is_map = value.kind() == ValueKind::Map;
    let Ok(mut items) = value.try_iter() else { return false };
    items.any(|item| {
        has_namespace(&item) || (is_map && value.get_item(&item).is_ok_and(|it| has_namespace(&it)))
    })
}

/// The engine's would join texts, each time from the beginning.
fn sum(
    state: &State<'_, '_>,
    values: Value,
    attribute: Option<&str>,
    start: Option<Value>,
    options: Kwargs,
) -> Result<Value, Error> {
    let named: Option<Value> = if options.has("start") { options.peek("start")? } else { None };
    if [&start, &named].into_iter().flatten().any(|start| start.kind() != ValueKind::Number) {
        return Err(refused("sum: the start is a number"));
    }
    filters::sum(state, values, attribute, start, options)
}

/// For `select('in', …)` and its relatives, which ask for each of many values.
fn is_in(state: &State<'_, '_>, value: &Value, other: &Value) -> Result<bool, Error> {
    pay(state, value)?;
    pay(state, other)?;
    minijinja::tests::is_in(state, value, other)
}

/// What prints values.
fn print(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    pay(state, value)?;
    escape_formatter(out, state, value)
}
