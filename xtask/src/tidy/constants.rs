//! Constants of the source by name, and their values where they are whole numbers or durations.

use crate::source::{self, Token};
use crate::workspace::File;
use std::fmt;

/// How deep constants may refer to others.
const DEPTH_MAX: u32 = 16;

/// A constant outside of tests.
pub(super) struct Constant<'a> {
    pub(super) name: &'a str,
    pub(super) path: &'a str,
    pub(super) line: usize,
    /// The words of its value.
    words: Vec<String>,
}

/// A whole number, or a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Value {
    Number(i128),
    Millis(i128),
}

impl Value {
    /// As a time, if the name says that the number is one.
    pub(super) fn in_unit_of(self, name: &str) -> Self {
        let unit = name.split('_').find_map(|word| match word {
            "S" => Some(1000),
            "MS" => Some(1),
            "MINUTES" => Some(60_000),
            _ => None,
        });
        match (self, unit) {
            (Self::Number(number), Some(unit)) => Self::Millis(number * unit),
            _ => self,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Millis(millis) => write!(f, "{millis} ms"),
        }
    }
}

/// The constants of all crates.
pub(super) struct Constants<'a>(Vec<Constant<'a>>);

impl<'a> Constants<'a> {
    pub(super) fn read(files: &'a [File]) -> Self {
        let is_code = |file: &&File| {
            (file.path.starts_with("crates/") || file.path.starts_with("lab/"))
                && !file.path.contains("/tests")
                && !file.path.contains("/examples/")
        };
        Self(files.iter().filter(is_code).flat_map(constants_of).collect())
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Constant<'a>> {
        self.0.iter()
    }

    /// The value, or `None` where it is no number that can be computed from literals.
    pub(super) fn value(&self, constant: &Constant<'_>) -> Option<Value> {
        self.value_at(constant, DEPTH_MAX)
    }

    fn value_at(&self, constant: &Constant<'_>, depth: u32) -> Option<Value> {
        let depth = depth.checked_sub(1)?;
        let mut reader = Reader { constants: self, of: constant, at: 0, depth };
        let value = reader.shifts()?;
        (reader.at == constant.words.len()).then_some(value)
    }

    /// A constant that another one names: of the same file, or else the only one of that name.
    fn named(&self, name: &str, from: &Constant<'_>) -> Option<&Constant<'a>> {
        let of_file = self.0.iter().find(|other| other.name == name && other.path == from.path);
        let mut others = self.0.iter().filter(|other| other.name == name);
        of_file.or_else(|| others.next().filter(|_| others.next().is_none()))
    }
}

fn constants_of(file: &File) -> Vec<Constant<'_>> {
    let text = source::without_tests(&source::mask(&file.text));
    let tokens = source::tokens(&text);
    let mut found = Vec::new();
    for at in 0..tokens.len().saturating_sub(2) {
        let (word, name) = (tokens[at].text, tokens[at + 1]);
        if word != "const" || tokens[at + 2].text != ":" {
            continue;
        }
        found.push(Constant {
            // Comments and literals are masked; a name stands where it stood.
            name: &file.text[name.at..name.at + name.text.len()],
            path: &file.path,
            line: source::line_of(&text, name.at),
            words: value_words(&tokens[at + 3..]),
        });
    }
    found
}

/// The words between `=` and `;`.
fn value_words(tokens: &[Token<'_>]) -> Vec<String> {
    let mut depth = 0;
    let mut words: Option<Vec<String>> = None;
    for token in tokens {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            ";" if depth == 0 => break,
            "=" if depth == 0 && words.is_none() => {
                words = Some(Vec::new());
                continue;
            }
            _ => {}
        }
        if let Some(words) = &mut words {
            words.push(token.text.to_owned());
        }
    }
    words.unwrap_or_default()
}

/// Reads an expression: numbers, constants, `+ - * / << ( )`, `as`, durations.
struct Reader<'c, 'a> {
    constants: &'c Constants<'a>,
    of: &'c Constant<'c>,
    at: usize,
    depth: u32,
}

impl Reader<'_, '_> {
    fn word(&self, ahead: usize) -> &str {
        self.of.words.get(self.at + ahead).map_or("", String::as_str)
    }

    fn take(&mut self, words: &[&str]) -> bool {
        let is_next = words.iter().enumerate().all(|(ahead, word)| self.word(ahead) == *word);
        if is_next {
            self.at += words.len();
        }
        is_next
    }

    fn shifts(&mut self) -> Option<Value> {
        let mut left = self.sum()?;
        while self.take(&["<", "<"]) {
            let right = self.sum()?;
            left = apply(left, right, |a, b| a.checked_shl(u32::try_from(b).ok()?))?;
        }
        Some(left)
    }

    fn sum(&mut self) -> Option<Value> {
        let mut left = self.product()?;
        loop {
            if self.take(&["+"]) {
                left = apply(left, self.product()?, i128::checked_add)?;
            } else if self.take(&["-"]) {
                left = apply(left, self.product()?, i128::checked_sub)?;
            } else {
                return Some(left);
            }
        }
    }

    fn product(&mut self) -> Option<Value> {
        let mut left = self.single()?;
        loop {
            if self.take(&["*"]) {
                left = apply(left, self.single()?, i128::checked_mul)?;
            } else if self.take(&["/"]) {
                left = apply(left, self.single()?, i128::checked_div)?;
            } else {
                return Some(left);
            }
        }
    }

    fn single(&mut self) -> Option<Value> {
        let value = self.simple()?;
        while self.take(&["as"]) {
            self.at += 1;
        }
        Some(value)
    }

    fn simple(&mut self) -> Option<Value> {
        if self.take(&["("]) {
            let inner = self.shifts()?;
            return self.take(&[")"]).then_some(inner);
        }
        let first = self.word(0).to_owned();
        self.at += 1;
        if first.starts_with(|c: char| c.is_ascii_digit()) {
            return number(&first).map(Value::Number);
        }
        let mut last = first.clone();
        while self.take(&[":", ":"]) {
            last = self.word(0).to_owned();
            self.at += 1;
        }
        let factor = match last.as_str() {
            "from_secs" => 1000,
            "from_millis" => 1,
            "MAX" => return largest(&first).map(Value::Number),
            _ => {
                let constant = self.constants.named(&last, self.of)?;
                return self.constants.value_at(constant, self.depth);
            }
        };
        match (self.take(&["("]), self.shifts()?, self.take(&[")"])) {
            (true, Value::Number(count), true) => Some(Value::Millis(count * factor)),
            _ => None,
        }
    }
}

fn apply(
    left: Value,
    right: Value,
    operation: impl Fn(i128, i128) -> Option<i128>,
) -> Option<Value> {
    match (left, right) {
        (Value::Number(a), Value::Number(b)) => operation(a, b).map(Value::Number),
        _ => None,
    }
}

/// `65_536`, `0x7F`, `300u32`.
fn number(word: &str) -> Option<i128> {
    let digits = word.replace('_', "");
    if let Some(hexadecimal) = digits.strip_prefix("0x") {
        return i128::from_str_radix(hexadecimal, 16).ok();
    }
    digits.split(['u', 'i']).next()?.parse().ok()
}

fn largest(kind: &str) -> Option<i128> {
    Some(match kind {
        "u8" => i128::from(u8::MAX),
        "u16" => i128::from(u16::MAX),
        "u32" => i128::from(u32::MAX),
        "u64" | "usize" => i128::from(u64::MAX),
        "i32" => i128::from(i32::MAX),
        "i64" => i128::from(i64::MAX),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Option<Value> {
        let text = format!("const UNIT_BYTES: u64 = 1 << 9;\nconst X: u64 = {text};");
        let files = [File { path: "crates/a/src/lib.rs".into(), text }];
        let constants = Constants::read(&files);
        let constant = constants.all().find(|constant| constant.name == "X")?;
        constants.value(constant)
    }

    #[test]
    fn expressions_of_numbers_constants_and_durations_are_computed() {
        for (text, expected) in [
            ("65_536", 65_536),
            ("(1 << 20) + (64 << 10)", 1_114_112),
            ("4 * UNIT_BYTES as u64", 2048),
            ("(UNIT_BYTES - 8) / 2", 252),
            ("u32::MAX - 16", 4_294_967_279),
            ("Self::UNIT_BYTES", 512),
            ("0x7F", 127),
        ] {
            assert_eq!(value(text), Some(Value::Number(expected)), "{text}");
        }
        assert_eq!(value("Duration::from_secs(60)"), Some(Value::Millis(60_000)));
        assert_eq!(value("std::time::Duration::from_millis(25)"), Some(Value::Millis(25)));
    }

    #[test]
    fn other_values_are_not_guessed() {
        for text in ["length(4)", "\"text\"", "X", "1.5", "&[1, 2]"] {
            assert_eq!(value(text), None, "{text}");
        }
    }

    #[test]
    fn constants_of_tests_do_not_count() {
        let text = "#[cfg(test)]\nmod tests { const A: u8 = 1; }".to_owned();
        let files = [File { path: "crates/a/src/lib.rs".into(), text }];
        assert_eq!(Constants::read(&files).all().count(), 0);
    }
}
