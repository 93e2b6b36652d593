//! Mistakes in the options of an experiment file, each with its line and column.

use super::cells::command_line;
use super::file::Kind;
use crate::cli::Cli;
use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ops::Range;
use toml::{Spanned, Table, Value};

/// A subject for options that are checked alone.
const ANY_SUBJECT: &str = "squid";

/// Options of a table, with their places.
type Options = BTreeMap<Spanned<String>, Spanned<Value>>;

/// The tables of a file that hold options, with their places. Everything else is checked elsewhere.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Spots {
    command: Kind,
    common: Options,
    full: Options,
    axes: Options,
    cross: Options,
    exclude: Vec<Options>,
    run: Vec<Options>,
    claim: Vec<Sides>,
    step: Vec<Sides>,
}

/// The options of a claim or of a step.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Sides {
    before: Options,
    after: Options,
    options: Options,
}

/// Checks every option of a file by itself: whether there is one of that name, and whether it
/// takes the value.
pub(super) fn check(text: &str) -> Result<(), String> {
    let spots: Spots = toml::from_str(text).map_err(|error| error.message().to_owned())?;
    let (command, lists) = (spots.command, [spots.axes, spots.cross]);
    let tables = [spots.common, spots.full].into_iter().chain(spots.exclude).chain(spots.run);
    let sides = spots.claim.into_iter().chain(spots.step);
    let tables = tables.chain(sides.flat_map(|side| [side.before, side.after, side.options]));
    let single = tables.flatten().map(|(name, value)| (name, value, false));
    let listed = lists.into_iter().flatten().map(|(name, value)| (name, value, true));
    for (name, value, is_list) in single.chain(listed) {
        let values = match value.get_ref() {
            Value::Array(values) if is_list => values.clone(),
            value => vec![value.clone()],
        };
        for one in values {
            check_one(command, name.get_ref(), one).map_err(|mistake| match mistake {
                Mistake::Name(what) => format!("{}: {what}", place(text, name.span())),
                Mistake::Value(what) => format!("{}: {what}", place(text, value.span())),
            })?;
        }
    }
    Ok(())
}

/// A mistake in an option.
enum Mistake {
    /// There is no such option.
    Name(String),
    /// It does not take the value.
    Value(String),
}

fn check_one(command: Kind, name: &str, value: Value) -> Result<(), Mistake> {
    let mut options = Table::new();
    options.insert("subject".to_owned(), Value::String(ANY_SUBJECT.to_owned()));
    options.insert(name.to_owned(), value);
    let Err(error) = Cli::try_parse_from(command_line(command, &options)) else { return Ok(()) };
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let similar = match error.get(ContextKind::SuggestedArg) {
                Some(ContextValue::String(similar)) => similar.trim_start_matches('-'),
                _ => "",
            };
            let remedy = match similar.split([' ', '=']).next().unwrap_or_default() {
                "" => format!("`humboldt-lab {} --help` lists the options", command.name()),
                similar => format!("did you mean `{similar}`?"),
            };
            Err(Mistake::Name(format!("there is no option `{name}`; {remedy}")))
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            Err(Mistake::Value(first.trim_start_matches("error: ").to_owned()))
        }
        // Options may need others, which are not here. The runs are checked as a whole later.
        _ => Ok(()),
    }
}

/// Line and column of a part of the text, for people.
pub(super) fn place(text: &str, part: Range<usize>) -> String {
    let before = text.get(..part.start).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("line {line}, column {column}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_options_are_found_wherever_they_stand() {
        let said = |text: &str| check(text).unwrap_err();
        let common = said("title = 'T'\n[common]\n cache-sise = '1GB'\n");
        assert_eq!(
            common,
            "line 3, column 2: there is no option `cache-sise`; did you mean `cache-size`?"
        );
        assert!(said("[[run]]\nsubject = 'squid'\nfillt = 3\n").starts_with("line 3, column 1"));
        assert!(said("[axes]\nfss = ['xfs']\n").contains("`fs`"));
        assert!(said("[[exclude]]\nxyzzy = 1\n").contains("humboldt-lab peak --help"));
        assert!(said("[[claim]]\nafter = { memmory = '8MB' }\n").starts_with("line 2, column 11"));
        assert!(said("[[step]]\noptions = { sed = 1 }\n").contains("`seed`"));
        assert!(said("command = 'bang'\n[common]\nquick = true\n").contains("`quick`"));
    }

    #[test]
    fn values_that_an_option_does_not_take_are_found() {
        let said =
            check("[axes]\nsubject = ['squid']\ncache-size = ['1GB', 'much']\n").unwrap_err();
        assert!(said.starts_with("line 3, column 14: ") && said.contains("`much`"), "{said}");
        assert_eq!(
            check("[common]\nread-iops = 400\nquick = true\nset = ['a=1', 'b=2']\n"),
            Ok(())
        );
    }
}
