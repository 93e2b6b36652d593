//! The options of `cache_dir`: one table for the parser, the suggestions and the documentation.

use crate::line::{Line, Problem, Token};
use crate::suggest::suggest;
use crate::types::{CacheDir, DirIo, DirPageCache, Scheme};

/// One option.
struct DirOption {
    name: &'static str,
    /// The schemes that have it.
    schemes: &'static [Scheme],
    value: Value,
    /// Default as it would be written after `=`, or in words.
    default: &'static str,
    /// One sentence.
    doc: &'static str,
    /// Takes over the value: its number, its position among [`Value::Words`], 1 for a flag.
    set: fn(&mut CacheDir, u64),
}

/// The values that may follow `=`.
#[derive(Copy, Clone)]
enum Value {
    /// Nothing, and no `=`.
    Flag,
    /// A number of `unit` from `min` to `max`.
    Number { unit: &'static str, min: u64, max: u64, step: Step },
    /// A number of bytes, or -1 for no limit.
    BytesOrNone,
    /// One of these words.
    Words(&'static [&'static str]),
}

/// Which numbers of a range are taken.
#[derive(Copy, Clone)]
enum Step {
    Any,
    PowerOfTwo,
    MultipleOf(u64),
}

const ALL: &[Scheme] =
    &[Scheme::Ufs, Scheme::Aufs, Scheme::Diskd, Scheme::Coss, Scheme::Rock, Scheme::Ring];
const COSS: &[Scheme] = &[Scheme::Coss];
const DISKD: &[Scheme] = &[Scheme::Diskd];
const ROCK: &[Scheme] = &[Scheme::Rock];

/// The words of `io=`, in the order of [`DIR_IO`].
const IO_WORDS: &[&str] = &["auto", "uring", "threads"];
const DIR_IO: [DirIo; 3] = [DirIo::Auto, DirIo::Uring, DirIo::Threads];

/// The words of `page-cache=`, in the order of [`DIR_PAGE_CACHE`].
const PAGE_CACHE_WORDS: &[&str] = &["auto", "off", "reads", "on"];
const DIR_PAGE_CACHE: [DirPageCache; 4] =
    [DirPageCache::Auto, DirPageCache::Off, DirPageCache::Reads, DirPageCache::On];

/// The default of `membufs`, with which `maxfullbufs` is compared.
const MEMBUFS_DEFAULT: u32 = 10;

const fn number(unit: &'static str, min: u64, max: u64) -> Value {
    Value::Number { unit, min, max, step: Step::Any }
}

/// Options that Squid accepts too, and that have no effect here.
const WITHOUT_EFFECT: &[(&str, &str)] = &[("IOEngine", "the scheme says how I/O is done")];

const OPTIONS: &[DirOption] = &[
    DirOption {
        name: "min-size",
        schemes: ALL,
        value: number("bytes", 0, u64::MAX),
        default: "0",
        doc: "Smaller objects are not stored here.",
        set: |dir, bytes| dir.min_size_bytes = bytes,
    },
    DirOption {
        name: "max-size",
        schemes: ALL,
        value: Value::BytesOrNone,
        default: "-1",
        doc: "Larger objects are not stored here; -1 is no limit but `maximum_object_size` and the scheme's own.",
        set: |dir, bytes| dir.max_size_bytes = (bytes != u64::MAX).then_some(bytes),
    },
    DirOption {
        name: "no-store",
        schemes: ALL,
        value: Value::Flag,
        default: "off",
        doc: "Nothing new is stored here; stored objects are served.",
        set: |dir, _| dir.read_only = true,
    },
    DirOption {
        name: "read-only",
        schemes: ALL,
        value: Value::Flag,
        default: "off",
        doc: "The same; its old name.",
        set: |dir, _| dir.read_only = true,
    },
    DirOption {
        name: "threads",
        schemes: &[Scheme::Aufs, Scheme::Coss, Scheme::Rock, Scheme::Ring],
        value: number("threads", 1, 256),
        default: "16",
        doc: "Threads that do the I/O; `rock`, `ring` and `coss` need them where io_uring is not used.",
        set: |dir, count| dir.tuning.threads = small(count),
    },
    DirOption {
        name: "io",
        schemes: &[Scheme::Coss, Scheme::Rock, Scheme::Ring],
        value: Value::Words(IO_WORDS),
        default: "auto",
        doc: "How the device is used: by io_uring or by threads; `auto` takes io_uring where the system allows it.",
        set: |dir, word| {
            dir.tuning.io = usize::try_from(word).ok().and_then(|at| DIR_IO.get(at).copied())
        },
    },
    DirOption {
        name: "page-cache",
        schemes: &[Scheme::Ring],
        value: Value::Words(PAGE_CACHE_WORDS),
        default: "auto",
        doc: "The use of the system's page cache, which takes unused memory only: nothing, reads, or writes too; `auto` is `reads` \
              while all stored objects fit into that memory, `off` otherwise.",
        set: |dir, word| {
            dir.tuning.page_cache =
                usize::try_from(word).ok().and_then(|at| DIR_PAGE_CACHE.get(at).copied());
        },
    },
    DirOption {
        name: "Q1",
        schemes: DISKD,
        value: number("messages", 1, 3000),
        default: "64",
        doc: "With more messages under way to the helper, nothing is opened or created.",
        set: |dir, count| dir.tuning.q1 = small(count),
    },
    DirOption {
        name: "Q2",
        schemes: DISKD,
        value: number("messages", 1, 3000),
        default: "72",
        doc: "With more messages under way to the helper, requests wait.",
        set: |dir, count| dir.tuning.q2 = small(count),
    },
    DirOption {
        name: "block-size",
        schemes: COSS,
        value: Value::Number { unit: "bytes", min: 512, max: 8192, step: Step::PowerOfTwo },
        default: "by the capacity",
        doc: "Unit of location; the capacity is at most 2^24 of it.",
        set: |dir, bytes| dir.tuning.block_bytes = small(bytes),
    },
    DirOption {
        name: "membufs",
        schemes: COSS,
        value: number("stripes", 2, 1024),
        default: "10",
        doc: "Stripes in memory.",
        set: |dir, count| dir.tuning.membufs = small(count),
    },
    DirOption {
        name: "maxfullbufs",
        schemes: COSS,
        value: number("stripes", 1, 1023),
        default: "4",
        doc: "Full stripes that may wait to be written, fewer than `membufs`; beyond it nothing is stored.",
        set: |dir, count| dir.tuning.maxfullbufs = small(count),
    },
    DirOption {
        name: "overwrite-percent",
        schemes: COSS,
        value: number("percent", 0, 100),
        default: "50",
        doc: "A hit in the part of the file that is overwritten next, so large, is written again to the current stripe.",
        set: |dir, percent| dir.tuning.overwrite_percent = small(percent),
    },
    DirOption {
        name: "max-stripe-waste",
        schemes: COSS,
        value: number("bytes", 0, 1 << 20),
        default: "any",
        doc: "Room at the end of a stripe that may be given up for an object that does not fit.",
        set: |dir, bytes| dir.tuning.max_stripe_waste_bytes = small(bytes),
    },
    DirOption {
        name: "slot-size",
        schemes: ROCK,
        value: Value::Number {
            unit: "bytes",
            min: 4096,
            max: 1 << 20,
            step: Step::MultipleOf(512),
        },
        default: "16384",
        doc: "Size of a slot; an object takes as many as it needs.",
        set: |dir, bytes| dir.tuning.slot_bytes = small(bytes),
    },
    DirOption {
        name: "max-swap-rate",
        schemes: ROCK,
        value: number("writes a second", 0, u32::MAX as u64),
        default: "0",
        doc: "Writes wait so that there are not more of them; 0 is no limit.",
        set: |dir, rate| dir.tuning.max_swap_rate = small(rate),
    },
    DirOption {
        name: "swap-timeout",
        schemes: ROCK,
        value: number("milliseconds", 0, 3_600_000),
        default: "0",
        doc: "An operation that would probably wait longer is not begun; 0 is no limit.",
        set: |dir, time_ms| dir.tuning.swap_timeout_ms = small(time_ms),
    },
];

/// A number of the table: its range is below 2^32.
fn small(number: u64) -> Option<u32> {
    u32::try_from(number).ok()
}

/// Reads one option into `dir`. One of another scheme has no effect, with a warning.
pub(super) fn read(dir: &mut CacheDir, token: &Token, line: &mut Line<'_>) -> Result<(), Problem> {
    let (name, value) = match token.text.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (token.text.as_str(), None),
    };
    if let Some((_, why)) = WITHOUT_EFFECT.iter().find(|(known, _)| *known == name) {
        line.note(token, format!("`{name}` has no effect: {why}"), None);
        return Ok(());
    }
    let Some(option) = OPTIONS.iter().find(|option| option.name == name) else {
        return Err(unknown(dir.scheme, name, token));
    };
    if !option.schemes.contains(&dir.scheme) {
        let message = format!("`{name}` has no effect on `{}`", dir.scheme.name());
        line.warn(token, message, Some(&format!("it is an option of {}", schemes(option))));
        return Ok(());
    }
    match option.value.parse(value) {
        Some(number) => {
            (option.set)(dir, number);
            Ok(())
        }
        None => {
            let (syntax, range) = option.value.syntax();
            let range = if range.is_empty() { range } else { format!(": {range}") };
            let problem = token.error(format!("`{}` is not a value of `{name}`", token.text));
            Err(problem.with_help(format!("write `{name}{syntax}`{range}")))
        }
    }
}

fn unknown(scheme: Scheme, name: &str, token: &Token) -> Problem {
    let problem = token.error(format!("`{}` is not an option of `cache_dir`", token.text));
    let own = OPTIONS.iter().filter(|option| option.schemes.contains(&scheme));
    let others = OPTIONS.iter().filter(|option| !option.schemes.contains(&scheme));
    let near = suggest(name, own.map(|option| option.name));
    match near.or_else(|| suggest(name, others.map(|option| option.name))) {
        Some(option) => problem.with_help(format!("did you mean `{option}`?")),
        None => problem,
    }
}

/// Refuses options that are valid one by one, and contradict each other.
pub(super) fn check(dir: &CacheDir, token: &Token) -> Result<(), Problem> {
    if dir.max_size_bytes.is_some_and(|max| max < dir.min_size_bytes) {
        return Err(token.error("`min-size` is above `max-size`: nothing could be stored"));
    }
    if let (membufs, Some(full)) =
        (dir.tuning.membufs.unwrap_or(MEMBUFS_DEFAULT), dir.tuning.maxfullbufs)
        && full >= membufs
    {
        return Err(token.error(format!("`maxfullbufs={full}` is not below `membufs={membufs}`")));
    }
    Ok(())
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
            (Self::Number { min, max, step, .. }, Some(text)) => text
                .parse()
                .ok()
                .filter(|number| (min..=max).contains(number) && step.takes(*number)),
        }
    }

    /// The form of the value, and its range.
    fn syntax(self) -> (String, String) {
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

/// The schemes that have an option, for people.
fn schemes(option: &DirOption) -> String {
    if option.schemes.len() == ALL.len() {
        return "all but `null`".to_owned();
    }
    let names: Vec<_> =
        option.schemes.iter().map(|scheme| format!("`{}`", scheme.name())).collect();
    names.join(", ")
}

/// The options as a table for the reference.
pub(super) fn docs_table() -> String {
    let mut out =
        "option | schemes | values | default | meaning\n--- | --- | --- | --- | ---\n".to_owned();
    for option in OPTIONS {
        let (syntax, range) = option.value.syntax();
        // A bar would end the cell.
        let syntax = syntax.replace('|', "\\|");
        let row = [
            &format!("`{}{syntax}`", option.name),
            &schemes(option),
            &range,
            option.default,
            option.doc,
        ];
        out.push_str(&row.join(" | "));
        out.push('\n');
    }
    out
}
