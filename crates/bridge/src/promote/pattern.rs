//! Patterns that name functions: `only=` and `skip=` of a session, `--only` and `--skip` of the command.
//!
//! `*` stands for any text, `?` for one character. A pattern is compared with the qualified name, with the
//! file (whole path, last part, or as many last parts as it has), and with `file::name`; one match is enough.

/// Whether `pattern` names the function `name` of `file`.
pub(super) fn names(pattern: &str, file: &str, name: &str) -> bool {
    if let Some((in_file, in_name)) = pattern.split_once("::") {
        return is_file(in_file, file) && glob(in_name, name);
    }
    glob(pattern, name) || is_file(pattern, file)
}

fn is_file(pattern: &str, file: &str) -> bool {
    let base = file.rsplit('/').next().unwrap_or(file);
    let stem = base.strip_suffix(".py").unwrap_or(base);
    let is_relative = pattern.contains('/') && !pattern.starts_with('/');
    [file, base, stem].iter().any(|part| glob(pattern, part))
        || (is_relative && glob(&format!("*/{pattern}"), file))
}

/// Whether `pattern` names `file` by its path: its part for the file has a `/`.
pub(super) fn names_path(pattern: &str, file: &str) -> bool {
    let in_file = pattern.split_once("::").map_or(pattern, |(in_file, _)| in_file);
    in_file.contains('/') && glob(in_file, file)
}

fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&c) if c == '?' || c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    p = at + 1;
                    t = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == '*')
}

#[cfg(test)]
mod tests {
    use super::{names, names_path};

    #[test]
    fn a_pattern_names_functions_files_or_both() {
        for (pattern, expected) in [
            ("Parser.run", true),
            ("Parser.*", true),
            ("*run", true),
            ("run", false),
            ("tools.py", true),
            ("tools", true),
            ("/home/u/tools.py", true),
            ("tools.py::Parser.run", true),
            ("tools::P*", true),
            ("other::Parser.run", false),
            ("u/tools.py", true),
            ("u/*.py::Parser.run", true),
            ("v/tools.py", false),
            ("/u/tools.py", false),
            ("Parser.ru?", true),
            ("Parser.run?", false),
            ("", false),
        ] {
            assert_eq!(names(pattern, "/home/u/tools.py", "Parser.run"), expected, "{pattern}");
        }
    }

    #[test]
    fn a_path_is_more_than_the_last_part_of_one() {
        for (pattern, expected) in [
            ("*/lib/tools.py", true),
            ("/home/u/lib/*", true),
            ("*/tools.py::Parser.*", true),
            ("tools.py", false),
            ("tools.py::Parser.run", false),
            ("*", false),
            ("lib/tools.py", false),
        ] {
            assert_eq!(names_path(pattern, "/home/u/lib/tools.py"), expected, "{pattern}");
        }
    }
}
