//! Reads what `scripts/dump_code.py` and `scripts/trace_stacks.py` print.
//!
//! Interpreters are found in the repository's virtual environments or on the path. Where one is missing
//! the checked-in corpus is all that is tested, and the test says so.
#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses its part; a test may panic")]

use overdrive_frontend_python::code::{CodeObject, Const, LocalKind, LocalsPlusName, PyVersion};
use serde_json::Value;
use std::io::{BufRead, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

/// A code object and what its interpreter says about it.
pub(crate) struct Dump {
    pub(crate) code: CodeObject,
    pub(crate) truth: Value,
    /// Of `trace_stacks.py` only.
    pub(crate) trace: Option<Value>,
}

pub(crate) fn crate_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The interpreter of a version, if this machine has it.
pub(crate) fn interpreter(version: PyVersion) -> Option<PathBuf> {
    let (venv, name) = match version {
        PyVersion::V311 => (".venv", "python3.11"),
        PyVersion::V312 => (".venv-3.12", "python3.12"),
        PyVersion::V313 => (".venv-3.13", "python3.13"),
    };
    let root = crate_dir().ancestors().nth(4).unwrap();
    let candidates = [root.join(venv).join("bin/python"), PathBuf::from(name)];
    candidates.into_iter().find(|path| {
        let probe = "import sys; print('%d.%d' % sys.version_info[:2])";
        let output = Command::new(path).args(["-I", "-c", probe]).stderr(Stdio::null()).output();
        output.is_ok_and(|output| output.stdout.trim_ascii() == version.as_str().as_bytes())
    })
}

/// Runs one of this crate's scripts; `None`, with a message, where the interpreter is missing.
pub(crate) fn run_script(version: PyVersion, script: &str, args: &[&str]) -> Option<Child> {
    let Some(python) = interpreter(version) else {
        eprintln!("skipped: no CPython {} found", version.as_str());
        return None;
    };
    let mut command = Command::new(python);
    command.args(["-B", script]).args(args).current_dir(crate_dir()).stdout(Stdio::piped());
    Some(command.spawn().unwrap())
}

/// The dumps that a script prints, one by one.
pub(crate) fn script_dumps(version: PyVersion, script: &str, args: &[&str]) -> Option<Vec<Dump>> {
    let mut child = run_script(version, script, args)?;
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let dumps = read(version, lines).collect();
    assert!(child.wait().unwrap().success(), "{script} failed");
    Some(dumps)
}

/// Calls `each` for every dump of `dump_code.py`, without keeping them all. Returns how many there were.
pub(crate) fn for_each_dump(version: PyVersion, args: &[&str], mut each: impl FnMut(Dump)) -> Option<usize> {
    let mut child = run_script(version, "scripts/dump_code.py", args)?;
    let lines: Lines<BufReader<ChildStdout>> = BufReader::new(child.stdout.take().unwrap()).lines();
    let n = read(version, lines).map(&mut each).count();
    assert!(child.wait().unwrap().success(), "dump_code.py failed");
    Some(n)
}

/// The checked-in traces of `tests/corpus/sample.py`.
pub(crate) fn corpus(version: PyVersion) -> Vec<Dump> {
    let path = crate_dir().join(format!("tests/corpus/sample-{}.ndjson", version.as_str()));
    let text = std::fs::read_to_string(path).unwrap();
    read(version, text.lines().map(|line| Ok(line.to_owned()))).collect()
}

fn read(
    version: PyVersion,
    mut lines: impl Iterator<Item = std::io::Result<String>>,
) -> impl Iterator<Item = Dump> {
    let header: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    let found = PyVersion::from_major_minor(u32_of(&header["version"][0]), u32_of(&header["version"][1]));
    assert_eq!(found, Some(version));
    lines.map(move |line| {
        let mut dump: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let truth = dump["truth"].take();
        let trace = dump.get_mut("trace").map(Value::take);
        Dump { code: code_object(version, &dump), truth, trace }
    })
}

pub(crate) fn u32_of(value: &Value) -> u32 {
    u32::try_from(value.as_i64().unwrap()).unwrap()
}

/// `null` is `None`.
pub(crate) fn optional_u32(value: &Value) -> Option<u32> {
    value.as_i64().map(|n| u32::try_from(n).unwrap())
}

fn string(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn list<T>(value: &Value, each: impl Fn(&Value) -> T) -> Vec<T> {
    value.as_array().unwrap().iter().map(each).collect()
}

fn hex(value: &Value) -> Vec<u8> {
    let digits = value.as_str().unwrap();
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

fn code_object(version: PyVersion, dump: &Value) -> CodeObject {
    CodeObject {
        version,
        name: string(&dump["name"]),
        qualname: string(&dump["qualname"]),
        filename: string(&dump["filename"]),
        first_line: u32_of(&dump["first_line"]),
        arg_count: u32_of(&dump["arg_count"]),
        pos_only: u32_of(&dump["pos_only"]),
        kw_only: u32_of(&dump["kw_only"]),
        flags: u32_of(&dump["flags"]),
        n_locals: u32_of(&dump["n_locals"]),
        stack_size: u32_of(&dump["stack_size"]),
        code: hex(&dump["code"]),
        consts: list(&dump["consts"], constant),
        names: list(&dump["names"], string),
        localsplus: list(&dump["localsplus"], |slot| LocalsPlusName {
            name: string(&slot[0]),
            kind: match slot[1].as_str().unwrap() {
                "Local" => LocalKind::Local,
                "Cell" => LocalKind::Cell,
                "CellArg" => LocalKind::CellArg,
                "Free" => LocalKind::Free,
                other => panic!("unknown kind {other}"),
            },
        }),
        exception_table: hex(&dump["exception_table"]),
        line_table: hex(&dump["line_table"]),
    }
}

fn constant(value: &Value) -> Const {
    let bits = |value: &Value| value.as_str().unwrap().parse().unwrap();
    match value[0].as_str().unwrap() {
        "None" => Const::None,
        "Ellipsis" => Const::Ellipsis,
        "Bool" => Const::Bool(value[1].as_bool().unwrap()),
        "Int" => Const::Int(value[1].as_i64().unwrap()),
        "BigInt" => Const::BigInt(string(&value[1])),
        "Float" => Const::Float(bits(&value[1])),
        "Complex" => Const::Complex(bits(&value[1]), bits(&value[2])),
        "Str" => Const::Str(string(&value[1])),
        "Bytes" => Const::Bytes(hex(&value[1])),
        "Tuple" => Const::Tuple(list(&value[1], constant)),
        "FrozenSet" => Const::FrozenSet(list(&value[1], constant)),
        "Opaque" => Const::Opaque,
        other => panic!("unknown constant {other}"),
    }
}
