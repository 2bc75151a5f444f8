//! What values weigh: lists and maps with all that is in them, each thing as often as it would be printed.
//!
//! In: values, on their way through a rendering. Out: the same values, paid for. The engine counts steps, strings, and the
//! outermost list of what is made; thirty lists that each hold the one before twice would keep `join` or `==` busy for
//! ever. The template is rewritten (`rewrite.rs`) so that each operand goes through here.

use std::sync::Arc;

use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Output, State, escape_formatter, filters};

/// Pays for a value.
pub(super) const COUNTED: &str = "_counted";
/// Pays for a factor: the product weighs many times what the list weighs, so lists of lists are refused.
pub(super) const REPEATED: &str = "_repeated";
/// Pays for what is kept by a namespace or a loop, and lets neither be kept: what holds itself would never be freed.
pub(super) const KEPT: &str = "_kept";

/// The engine's own `format`.
const FORMAT: &str = "_format";

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
    environment.add_filter("split", split);
    environment.add_filter("lines", lines);
    environment.add_filter(FORMAT, filters::format);
    environment.add_filter("format", format);
    environment.add_test("in", is_in);
    // Joins lists without counting, and is not in Jinja.
    environment.remove_filter("chain");
}

/// Pays for a value.
///
/// # Errors
/// When the rendering cannot pay, and when lists lie too deep in each other.
pub(super) fn pay(state: &State<'_, '_>, value: &Value) -> Result<(), Error> {
    weigh(state, value).map(drop)
}

/// Pays for a value, and says what it weighs.
fn weigh(state: &State<'_, '_>, value: &Value) -> Result<u64, Error> {
    let mut bill = Bill { state, n_open: 0, n_paid: 0 };
    bill.inside(value, 0)?;
    let weight = bill.n_paid + bill.n_open;
    bill.settle()?;
    Ok(weight)
}

/// Pays for what a method does. The engine counts the texts that filters work on, but not those that methods do.
///
/// # Errors
/// When the rendering cannot pay, and for formats that are wider than any text needs.
pub(super) fn pay_method(
    state: &State<'_, '_>,
    value: &Value,
    name: &str,
    arguments: &[Value],
) -> Result<(), Error> {
    let Some(text) = value.as_str() else {
        // `count` and `index` compare it.
        return pay(state, value);
    };
    state.consume_fuel(text.len() as u64 / 64)?;
    match name {
        "split" => pay_parts(state, text, arguments.first().and_then(Value::as_str)),
        "splitlines" => pay_parts(state, text, Some("\n")),
        "format" => {
            let mut n_digits = 0;
            for character in text.chars() {
                n_digits = if character.is_ascii_digit() { n_digits + 1 } else { 0 };
                if n_digits > 3 {
                    return Err(refused("format: a number in it has more than three digits"));
                }
            }
            pay_fields(state, text.matches('{').count(), arguments)
        }
        _ => Ok(()),
    }
}

/// For a list of parts of a text, before it is made: each takes as much as 48 bytes of text.
fn pay_parts(state: &State<'_, '_>, text: &str, separator: Option<&str>) -> Result<(), Error> {
    let n_parts = match separator {
        Some(separator) => text.matches(separator).count(),
        None => text.len() / 2,
    };
    state.consume_fuel(n_parts as u64 * 3 / 4)
}

/// For a text with so many places, each of which may take any of the arguments.
fn pay_fields(state: &State<'_, '_>, n_fields: usize, arguments: &[Value]) -> Result<(), Error> {
    let mut n_bytes = 1_000;
    for argument in arguments {
        n_bytes += argument.as_str().map_or(0, str::len) as u64 + weigh(state, argument)? * TEXT as u64;
    }
    state.consume_fuel((n_fields as u64).saturating_mul(n_bytes) / 64)
}

/// Whether it is a list or a map.
fn holds(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Map | ValueKind::Seq | ValueKind::Iterable)
}

struct Bill<'b, 's, 'e> {
    state: &'b State<'s, 'e>,
    /// What is not paid for yet, and what is.
    n_open: u64,
    n_paid: u64,
}

impl Bill<'_, '_, '_> {
    fn add(&mut self, weight: u64) -> Result<(), Error> {
        self.n_open += weight;
        if self.n_open > 64 * PER_STEP { self.settle() } else { Ok(()) }
    }

    fn settle(&mut self) -> Result<(), Error> {
        let n_steps = self.n_open / PER_STEP;
        self.n_paid += n_steps * PER_STEP;
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

fn split(
    state: &State<'_, '_>,
    value: &Value,
    separator: Option<Arc<str>>,
    most: Option<i64>,
) -> Result<Value, Error> {
    pay_parts(state, value.as_str().unwrap_or_default(), separator.as_deref())?;
    filters::split(value, separator, most)
}

fn lines(state: &State<'_, '_>, value: &Value) -> Result<Value, Error> {
    pay_parts(state, value.as_str().unwrap_or_default(), Some("\n"))?;
    filters::lines(value)
}

fn format(
    state: &mut State<'_, '_>,
    text: Value,
    arguments: Rest<Value>,
    named: Kwargs,
) -> Result<Value, Error> {
    let names: Vec<Value> = named.args().map(|name| named.peek(name)).collect::<Result<_, _>>()?;
    let n_fields = text.as_str().map_or(0, |text| text.matches('%').count());
    pay_fields(state, n_fields, &arguments)?;
    pay_fields(state, n_fields, &names)?;
    let mut all = vec![text];
    all.extend(arguments.0);
    if !names.is_empty() {
        all.push(Value::from(named));
    }
    state.apply_filter(FORMAT, &all)
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
