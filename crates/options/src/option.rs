//! An option: a name, the values that it takes, and the field that it sets.

use std::fmt;

/// One option of a `cache_dir` line, for the options type `T`.
pub(crate) struct DirOption<T> {
    /// The word before `=`.
    pub(crate) name: &'static str,
    /// The values that it takes.
    pub(crate) value: Value,
    /// The default in words, for a field that has no number then.
    pub(crate) unset: &'static str,
    /// One sentence.
    pub(crate) doc: &'static str,
    /// Sets the field: to a number, the position of a word, or 1 for a flag.
    pub(crate) set: fn(&mut T, u64),
    /// The field as [`DirOption::set`] takes it; `None` where it has no number.
    pub(crate) get: fn(&T) -> Option<u64>,
}

/// The values that may follow `=`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Nothing, and no `=`.
    Flag,
    /// A number.
    Number {
        /// The unit.
        unit: &'static str,
        /// The least.
        min: u64,
        /// The greatest.
        max: u64,
        /// Which of those between.
        step: Step,
    },
    /// A number of bytes, or -1 for no limit.
    BytesOrNone,
    /// One of these.
    Words(&'static [&'static str]),
}

/// Which numbers of a range are taken.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// All.
    Any,
    /// Powers of two.
    PowerOfTwo,
    /// Multiples.
    MultipleOf(u64),
}

/// A choice between words.
pub trait Words: Copy + PartialEq + 'static {
    /// Every word with its meaning.
    const WORDS: &'static [(&'static str, Self)];
}

/// The result of setting an option.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is set.
    Yes,
    /// It exists, and takes other values.
    BadValue(Value),
    /// There is no such option here.
    Unknown,
}

/// An option for the reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionDoc {
    /// The word before `=`.
    pub name: &'static str,
    /// The values that it takes.
    pub value: Value,
    /// The default, as it would be written or in words.
    pub default: String,
    /// One sentence.
    pub doc: &'static str,
}

/// A field has a value that its option does not take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfRange {
    name: &'static str,
    range: String,
}

impl OutOfRange {
    pub(crate) fn new(name: &'static str, range: &str) -> Self {
        Self { name, range: range.to_owned() }
    }
}

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} must be {}", self.name, self.range)
    }
}

impl std::error::Error for OutOfRange {}

/// Sets the option called `name`.
pub(crate) fn set<T>(
    table: &[DirOption<T>],
    options: &mut T,
    name: &str,
    written: Option<&str>,
) -> Taken {
    let Some(option) = table.iter().find(|option| option.name == name) else {
        return Taken::Unknown;
    };
    match option.value.parse(written) {
        Some(number) => {
            (option.set)(options, number);
            Taken::Yes
        }
        None => Taken::BadValue(option.value),
    }
}

/// Whether all fields have values that their options take.
pub(crate) fn check<T>(table: &[DirOption<T>], options: &T) -> Result<(), OutOfRange> {
    let is_bad = |option: &&DirOption<T>| {
        (option.get)(options).is_some_and(|number| !option.value.takes(number))
    };
    match table.iter().find(is_bad) {
        Some(DirOption { name, value, .. }) => Err(OutOfRange { name, range: value.syntax().1 }),
        None => Ok(()),
    }
}

/// All options for the reference.
pub(crate) fn docs<T: Default>(table: &[DirOption<T>]) -> Vec<OptionDoc> {
    let preset = T::default();
    let doc = |option: &DirOption<T>| {
        let default = match ((option.get)(&preset), option.value) {
            (None, _) => option.unset.to_owned(),
            (Some(at), Value::Words(words)) => {
                words.get(at as usize).copied().unwrap_or_default().to_owned()
            }
            (Some(number), _) => number.to_string(),
        };
        OptionDoc { name: option.name, value: option.value, default, doc: option.doc }
    };
    table.iter().map(doc).collect()
}

/// The position of a choice among its words.
pub(crate) fn position<W: Words>(chosen: W) -> Option<u64> {
    W::WORDS.iter().position(|(_, word)| *word == chosen).map(|at| at as u64)
}

/// The choice at a position, which is one of the table.
pub(crate) fn at<W: Words + Default>(position: u64) -> W {
    W::WORDS.get(position as usize).map(|(_, word)| *word).unwrap_or_default()
}

/// A number of a table, whose ranges are below 2^32.
pub(crate) fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// A number of `unit` from `min` to `max`.
pub(crate) const fn number(unit: &'static str, min: u64, max: u64) -> Value {
    Value::Number { unit, min, max, step: Step::Any }
}

impl Value {
    /// The value as a number; `None` for one that is not taken.
    fn parse(self, written: Option<&str>) -> Option<u64> {
        match (self, written) {
            (Self::Flag, None) => Some(1),
            (Self::Flag, Some(_)) | (_, None) => None,
            (Self::BytesOrNone, Some("-1")) => Some(u64::MAX),
            (Self::BytesOrNone, Some(text)) => text.parse().ok(),
            (Self::Words(words), Some(text)) => {
                words.iter().position(|word| *word == text).map(|at| at as u64)
            }
            (Self::Number { .. }, Some(text)) => {
                text.parse().ok().filter(|number| self.takes(*number))
            }
        }
    }

    fn takes(self, number: u64) -> bool {
        match self {
            Self::Flag => number <= 1,
            Self::BytesOrNone => true,
            Self::Words(words) => (number as usize) < words.len(),
            Self::Number { min, max, step, .. } => {
                (min..=max).contains(&number) && step.takes(number)
            }
        }
    }

    /// The form of the value, and its range.
    pub fn syntax(self) -> (String, String) {
        match self {
            Self::Flag => (String::new(), String::new()),
            Self::BytesOrNone => ("=NUMBER".to_owned(), "bytes from 0, or -1".to_owned()),
            Self::Words(words) => (format!("={}", words.join("|")), String::new()),
            Self::Number { unit, min, max, step } => {
                let to = if max == u64::MAX { String::new() } else { format!(" to {max}") };
                let step = match step {
                    Step::Any => String::new(),
                    Step::PowerOfTwo => ", a power of two".to_owned(),
                    Step::MultipleOf(of) => format!(", a multiple of {of}"),
                };
                ("=NUMBER".to_owned(), format!("{unit} from {min}{to}{step}"))
            }
        }
    }
}

impl Step {
    fn takes(self, number: u64) -> bool {
        match self {
            Self::Any => true,
            Self::PowerOfTwo => number.is_power_of_two(),
            Self::MultipleOf(of) => number.is_multiple_of(of),
        }
    }
}
