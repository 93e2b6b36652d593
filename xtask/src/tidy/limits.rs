//! The bounds in `docs/limits.md` are those of the code.
//!
//! A row of its tables begins with the name of a constant, or several, and their values follow in
//! the next cell: `` `TARGET_BYTES_MAX` | 32 KiB | 414 ``. The constant is looked up by its name.
//! Where constants of one name have different values, the row names the file as well:
//! `` `WAITING_MAX` in `questions.rs` | … ``. Rows without a constant are about directives.
//!
//! The other way round, every constant of [`LISTED`] crates whose name ends in `_MAX` has a row.

use super::Finding;
use super::constants::{Constants, Value};
use crate::workspace::File;
use std::collections::HashSet;

const PAGE: &str = "docs/limits.md";

/// Crates whose bounds are all on the page. The other crates have constants of this name too that
/// no client, server or file can reach, such as the largest value of a field on disk.
const LISTED: [&str; 11] = [
    "acl",
    "base",
    "conf",
    "exchange",
    "freshness",
    "http",
    "logs",
    "net",
    "proxy",
    "runtime",
    "store",
];

/// Names that end in `_MAX` and are no bounds: the largest value of a type.
const NO_BOUNDS: [&str; 1] = ["TIME_MAX"];

pub(super) fn check(rust: &[File], texts: &[File]) -> Vec<Finding> {
    let Some(page) = texts.iter().find(|file| file.path == PAGE) else {
        return vec![Finding::new(PAGE, 1, "there is no such page")];
    };
    let constants = Constants::read(rust);
    let mut findings = Vec::new();
    let mut listed = HashSet::new();
    for (index, line) in page.text.lines().enumerate() {
        let Some(row) = Row::read(line) else { continue };
        for message in row.check(&constants) {
            findings.push(Finding::new(PAGE, index + 1, message));
        }
        listed.extend(row.names.iter().map(|name| (*name).to_owned()));
    }
    for constant in constants.all() {
        let is_of_listed =
            LISTED.iter().any(|name| constant.path.starts_with(&format!("crates/{name}/src/")));
        let is_bound = constant.name.ends_with("_MAX") && !NO_BOUNDS.contains(&constant.name);
        if is_of_listed && is_bound && !listed.contains(constant.name) {
            let message = format!("the bound `{}` is not in {PAGE}", constant.name);
            findings.push(Finding::new(constant.path, constant.line, message));
        }
    }
    findings
}

/// A row of the page that names constants.
struct Row<'a> {
    names: Vec<&'a str>,
    /// The end of the path of the file that is meant.
    file: Option<&'a str>,
    /// The second cell.
    values: &'a str,
}

impl<'a> Row<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let mut cells = line.split(" | ");
        let (first, values) = (cells.next()?, cells.next()?);
        let quoted = || first.split('`').skip(1).step_by(2);
        let names: Vec<&str> = quoted().filter(|word| is_constant(word)).collect();
        let file = quoted().find(|word| word.ends_with(".rs"));
        (!names.is_empty()).then_some(Self { names, file, values })
    }

    fn check(&self, constants: &Constants<'_>) -> Vec<String> {
        let values: Vec<&str> = match self.names.len() {
            1 => vec![self.values],
            _ => self.values.split(", ").collect(),
        };
        if values.len() != self.names.len() {
            return vec![format!("{} names and {} values", self.names.len(), values.len())];
        }
        let pairs = self.names.iter().zip(values);
        pairs.filter_map(|(name, text)| self.difference(constants, name, text).err()).collect()
    }

    fn difference(&self, constants: &Constants<'_>, name: &str, text: &str) -> Result<(), String> {
        let said = value_in(text).ok_or_else(|| format!("`{text}` is no value"))?;
        let mut found = constants
            .all()
            .filter(|constant| constant.name == name)
            .filter(|constant| self.file.is_none_or(|file| is_file(constant.path, file)))
            .peekable();
        if found.peek().is_none() {
            let file = self.file.map(|file| format!(" in `{file}`")).unwrap_or_default();
            return Err(format!("there is no constant `{name}`{file}"));
        }
        for constant in found {
            let path = constant.path;
            let value = constants
                .value(constant)
                .ok_or_else(|| format!("the value of `{name}` in {path} cannot be read"))?;
            if value.in_unit_of(name) != said.in_unit_of(name) {
                return Err(format!("`{name}` is {value} in {path}, not {text}"));
            }
        }
        Ok(())
    }
}

fn is_constant(word: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    word.len() > 3 && word.bytes().all(is_part)
}

fn is_file(path: &str, end: &str) -> bool {
    path.strip_suffix(end).is_some_and(|before| before.is_empty() || before.ends_with('/'))
}

/// `32 KiB`, `10,000`, `2^48 − 1`, `1/16`, `250 ms`, `4 empty lines`.
fn value_in(text: &str) -> Option<Value> {
    let mut words = text.split(' ');
    let number = number_in(words.next()?.trim_end_matches([',', ':']))?;
    let rest: Vec<&str> = words.map(|word| word.trim_end_matches([',', ':'])).collect();
    Some(match rest[..] {
        ["−", less, ..] => Value::Number(number - number_in(less)?),
        ["KiB", ..] => Value::Number(number << 10),
        ["MiB", ..] => Value::Number(number << 20),
        ["GiB", ..] => Value::Number(number << 30),
        ["TiB", ..] => Value::Number(number << 40),
        ["ms", ..] => Value::Millis(number),
        ["s", ..] => Value::Millis(number * 1000),
        ["min", ..] => Value::Millis(number * 60_000),
        _ => Value::Number(number),
    })
}

fn number_in(word: &str) -> Option<i128> {
    let plain = |text: &str| text.replace(',', "").parse::<i128>().ok();
    if let Some((base, exponent)) = word.split_once('^') {
        return plain(base)?.checked_pow(exponent.parse().ok()?);
    }
    plain(word.strip_prefix("1/").unwrap_or(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(page: &str, code: &[(&str, &str)]) -> Vec<String> {
        let file =
            |(path, text): &(&str, &str)| File { path: (*path).into(), text: (*text).into() };
        let rust: Vec<File> = code.iter().map(file).collect();
        let texts = [File { path: PAGE.into(), text: page.into() }];
        check(&rust, &texts).into_iter().map(|finding| finding.message).collect()
    }

    const CODE: [(&str, &str); 3] = [
        ("crates/net/src/a.rs", "pub const A_MAX: usize = 32 * 1024;\nconst UNIT: u64 = 1 << 9;"),
        ("crates/net/src/b.rs", "const WAIT_B: Duration = Duration::from_secs(2);"),
        ("crates/sys/src/c.rs", "const A_MAX: u32 = 7;"),
    ];

    #[test]
    fn a_difference_and_a_missing_constant_are_found() {
        let page = "`A_MAX` in `a.rs` | 32 KiB | refused\n`WAIT_B` | 2 s | gone\n";
        assert_eq!(findings(page, &CODE), [""; 0]);
        assert_eq!(findings(&page.replace("32 KiB", "33 KiB"), &CODE).len(), 1);
        assert_eq!(findings(&page.replace("2 s", "2 ms"), &CODE).len(), 1);
        assert_eq!(findings(&page.replace("`WAIT_B`", "`WAIT_C`"), &CODE).len(), 1);
        // Without the file both constants of that name must have the value.
        assert_eq!(findings(&page.replace(" in `a.rs`", ""), &CODE).len(), 1);
    }

    #[test]
    fn a_bound_without_a_row_is_found() {
        let messages = findings("`WAIT_B` | 2 s | gone\n", &CODE);
        assert_eq!(messages, ["the bound `A_MAX` is not in docs/limits.md"]);
    }

    #[test]
    fn values_are_read_with_their_units() {
        for (text, value) in [
            ("10,000", 10_000),
            ("2^48 − 1", (1 << 48) - 1),
            ("1/16", 16),
            ("3 MiB", 3 << 20),
            ("4 empty lines", 4),
        ] {
            assert_eq!(value_in(text), Some(Value::Number(value)), "{text}");
        }
        assert_eq!(value_in("250 ms"), Some(Value::Millis(250)));
        assert_eq!(value_in("a few"), None);
    }
}
