//! The options of `cache_dir` lines, which the tables of `humboldt_options` declare: messages about
//! bad ones, and their table in the reference.

use humboldt_options::{DirLimits, OptionDoc, Scheme, Taken, Value};

use crate::diagnostics::Problem;
use crate::line::{Line, Token};
use crate::suggest::suggest;
use crate::types::CacheDir;

/// Options that Squid accepts too, and that have no effect here.
const WITHOUT_EFFECT: &[(&str, &str)] = &[("IOEngine", "the scheme says how I/O is done")];

/// An option, and the schemes that have it.
struct Known {
    option: OptionDoc,
    schemes: Vec<Scheme>,
}

/// All options, each once.
fn all() -> Vec<Known> {
    let disks: Vec<Scheme> = Scheme::ALL.into_iter().filter(|one| *one != Scheme::Null).collect();
    let of_all = |option| Known { option, schemes: disks.clone() };
    let mut all: Vec<Known> = DirLimits::docs().into_iter().map(of_all).collect();
    for scheme in disks {
        for option in scheme.docs() {
            match all.iter_mut().find(|known| known.option.name == option.name) {
                Some(known) => known.schemes.push(scheme),
                None => all.push(Known { option, schemes: vec![scheme] }),
            }
        }
    }
    all
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
    let taken = match dir.limits.set(name, value) {
        Taken::Unknown => dir.options.set(name, value),
        taken => taken,
    };
    match taken {
        Taken::Yes => Ok(()),
        Taken::BadValue(values) => Err(bad_value(name, values, token)),
        Taken::Unknown => {
            let known = all();
            let Some(other) = known.iter().find(|known| known.option.name == name) else {
                return Err(unknown(dir.scheme(), name, token, &known));
            };
            let message = format!("`{name}` has no effect on `{}`", dir.scheme().name());
            line.warn(token, message, Some(&format!("it is an option of {}", other.schemes())));
            Ok(())
        }
    }
}

fn bad_value(name: &str, values: Value, token: &Token) -> Problem {
    let (syntax, range) = values.syntax();
    let range = if range.is_empty() { range } else { format!(": {range}") };
    let problem = token.error(format!("`{}` is not a value of `{name}`", token.text));
    problem.with_help(format!("write `{name}{syntax}`{range}"))
}

fn unknown(scheme: Scheme, name: &str, token: &Token, known: &[Known]) -> Problem {
    let problem = token.error(format!("`{}` is not an option of `cache_dir`", token.text));
    let named = |is_own: bool| {
        let is_meant = move |known: &&Known| known.schemes.contains(&scheme) == is_own;
        known.iter().filter(is_meant).map(|known| known.option.name)
    };
    match suggest(name, named(true)).or_else(|| suggest(name, named(false))) {
        Some(option) => problem.with_help(format!("did you mean `{option}`?")),
        None => problem,
    }
}

/// Refuses options that are valid one by one, and contradict each other. `last` is the last option
/// of the line.
pub(super) fn check(dir: &CacheDir, last: &Token) -> Result<(), Problem> {
    let DirLimits { min_bytes, max_bytes, .. } = dir.limits;
    if max_bytes.is_some_and(|max| max < min_bytes) {
        return Err(last.error("`min-size` is above `max-size`: nothing could be stored"));
    }
    match dir.options.contradiction() {
        Some(why) => Err(last.error(why)),
        None => Ok(()),
    }
}

impl Known {
    /// The schemes that have it, for people.
    fn schemes(&self) -> String {
        if self.schemes.len() == Scheme::ALL.len() - 1 {
            return "all but `null`".to_owned();
        }
        let names: Vec<_> =
            self.schemes.iter().map(|scheme| format!("`{}`", scheme.name())).collect();
        names.join(", ")
    }
}

/// The options as a table for the reference.
pub(super) fn docs_table() -> String {
    let mut out =
        "option | schemes | values | default | meaning\n--- | --- | --- | --- | ---\n".to_owned();
    for known in all() {
        let OptionDoc { name, value, default, doc } = &known.option;
        let (syntax, range) = value.syntax();
        // A bar would end the cell.
        let syntax = syntax.replace('|', "\\|");
        let row = [&*format!("`{name}{syntax}`"), &known.schemes(), &range, default, doc];
        out.push_str(&row.join(" | "));
        out.push('\n');
    }
    out
}
