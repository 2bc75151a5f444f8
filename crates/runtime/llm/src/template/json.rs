//! Values as JSON, spelled as Python's `json.dumps(value, ensure_ascii=False)` spells them: templates were written and
//! models trained with that spelling, and the engine's own escapes characters of HTML.

use std::fmt::Write;

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

/// How deep lists and maps may lie in each other.
const DEPTH: usize = 64;

/// The filter `tojson`, with `indent` as in Python.
pub(super) fn to_json(state: &State<'_, '_>, value: &Value, options: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = options.get("indent")?;
    if indent.is_some_and(|indent| indent > 16) {
        return Err(Error::new(ErrorKind::InvalidOperation, "tojson: indent is at most 16"));
    }
    // Its other options change what ours already is, or what templates do not have.
    let _: Option<bool> = options.get("ensure_ascii")?;
    options.assert_all_used()?;
    let mut text = String::new();
    write(state, &mut text, value, indent, 0)?;
    Ok(text)
}

fn write(
    state: &State<'_, '_>,
    text: &mut String,
    value: &Value,
    indent: Option<usize>,
    depth: usize,
) -> Result<(), Error> {
    if depth > DEPTH {
        return Err(Error::new(ErrorKind::InvalidOperation, "tojson: lists lie too deep in each other"));
    }
    // As the engine counts what it makes: a step, and one more for 64 bytes.
    let n_bytes = value.as_str().map_or(0, str::len) + indent.unwrap_or(0) * depth;
    state.consume_fuel(1 + n_bytes as u64 / 64)?;
    match value.kind() {
        ValueKind::Undefined | ValueKind::None => text.push_str("null"),
        ValueKind::Bool | ValueKind::Number => {
            // The engine's spelling of both is JSON's, but for the case of the truth values.
            text.push_str(&value.to_string().to_lowercase());
        }
        ValueKind::String => quote(text, value.as_str().unwrap_or_default()),
        ValueKind::Seq | ValueKind::Iterable => {
            text.push('[');
            let mut is_empty = true;
            for item in value.try_iter()? {
                separate(text, &mut is_empty, indent, depth + 1);
                write(state, text, &item, indent, depth + 1)?;
            }
            close(text, ']', is_empty, indent, depth);
        }
        ValueKind::Map => {
            text.push('{');
            let mut is_empty = true;
            for key in value.try_iter()? {
                separate(text, &mut is_empty, indent, depth + 1);
                quote(text, &key.to_string());
                text.push_str(": ");
                write(state, text, &value.get_item(&key)?, indent, depth + 1)?;
            }
            close(text, '}', is_empty, indent, depth);
        }
        kind => {
            return Err(Error::new(ErrorKind::InvalidOperation, format!("tojson: {kind} is no JSON")));
        }
    }
    Ok(())
}

fn separate(text: &mut String, is_empty: &mut bool, indent: Option<usize>, depth: usize) {
    match (indent, *is_empty) {
        (None, true) => {}
        (None, false) => text.push_str(", "),
        (Some(_), true) => {}
        (Some(_), false) => text.push(','),
    }
    *is_empty = false;
    new_line(text, indent, depth);
}

fn close(text: &mut String, bracket: char, is_empty: bool, indent: Option<usize>, depth: usize) {
    if !is_empty {
        new_line(text, indent, depth);
    }
    text.push(bracket);
}

fn new_line(text: &mut String, indent: Option<usize>, depth: usize) {
    if let Some(indent) = indent {
        text.push('\n');
        text.extend(std::iter::repeat_n(' ', indent * depth));
    }
}

fn quote(text: &mut String, string: &str) {
    text.push('"');
    for character in string.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            // Writing to a string does not fail.
            control if control < ' ' => drop(write!(text, "\\u{:04x}", u32::from(control))),
            other => text.push(other),
        }
    }
    text.push('"');
}
