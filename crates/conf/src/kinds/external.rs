//! `external_acl_type`.

use std::time::Duration;

use super::Kind;
use super::helpers::{self, number};
use super::options::{self, OptionRow, rows};
use crate::diagnostics::Problem;
use crate::external_format::{ExternalCode, ExternalPart, ExternalQuoting};
use crate::line::{Line, Token};
use crate::table::Status;
use crate::types::{ExternalAclType, HelperChildren};

/// Processes, unless the line says otherwise.
const CHILDREN: u32 = 5;

/// Seconds that an answer holds, unless the line says otherwise.
const TTL_S: u32 = 3600;

/// Most answers that are kept, unless the line says otherwise, and most that it can ask for.
const CACHE_ENTRIES: u32 = 256 * 1024;
const KEPT_ANSWERS_MAX: u32 = 16 * 1024 * 1024;

/// Options of `external_acl_type`.
pub(super) const OPTIONS: &[OptionRow] = rows! {
    Status::Works => {
        "ttl" "=SECONDS", "How long an answer `OK` is kept: an hour by default, 0 for not at all.";
        "negative_ttl" "=SECONDS", "How long an answer `ERR` is kept: by default as long as `OK`.";
        "grace" "=PERCENT", "Last part of that time in which the helper is asked again while the kept answer serves; 1 by default.";
        "cache" "=NUMBER", "Most answers that are kept: 262144 by default. Equal questions are asked once at a time, unless it is 0.";
        "children-max" "=NUMBER", "Most processes: 5 by default.";
        "children-startup" "=NUMBER", "Processes that run from the start on.";
        "children-idle" "=NUMBER", "Processes that are started when all others are busy.";
        "children" "=NUMBER", "The old name of `children-max`.";
        "concurrency" "=NUMBER", "Questions that a process may have at a time, each with the number of its channel in front; 0: one, without a number.";
        "queue-size" "=NUMBER", "Questions that may wait for a process, by default twice the number of processes. Beyond that, the rule has no answer.";
        "protocol" "=2.5|3.0", "`2.5`: values in quotes instead of `%XX`.";
        "quote" "=url|shell", "The old form of `protocol`.";
    }
    Status::Ignored("helpers are connected by pipes") => {
        "ipv4" "", "Talk to the helper over IPv4.";
        "ipv6" "", "Talk to the helper over IPv6.";
    }
};

/// Definitions of helpers for ACLs; each line is one.
pub(crate) struct ExternalAclTypes;

impl Kind for ExternalAclTypes {
    type Out = Vec<ExternalAclType>;
    const NAME: &'static str = "helper for ACLs";
    const EXTENDS_DEFAULT: bool = true;

    fn apply(out: &mut Vec<ExternalAclType>, line: &mut Line<'_>) -> Result<(), Problem> {
        let name = line.expect("a name")?;
        if line.state.external_types.iter().any(|(known, _)| *known == name.text) {
            let why = format!("there is an external_acl_type `{}` already", name.text);
            return Err(name.error(why));
        }
        let mut one = ExternalAclType {
            name: name.text.clone(),
            ttl: Duration::from_secs(TTL_S.into()),
            negative_ttl: Duration::ZERO,
            grace_percent: 1,
            cache_entries: CACHE_ENTRIES,
            children: HelperChildren::new(CHILDREN),
            quoting: ExternalQuoting::Url,
            words: Vec::new(),
            adds_data: false,
            command: Vec::new(),
        };
        let word = read_options(&mut one, line)?;
        let program = read_format(&mut one.words, word, line)?;
        one.adds_data = !one.words.iter().any(|part| part.code == ExternalCode::Data);
        one.command.push(program.text);
        while let Some(token) = line.next_quoted()? {
            one.command.push(token.text);
        }
        let needs_user = one.words.iter().any(|part| part.code == ExternalCode::Login);
        line.state.external_types.push((name.text, needs_user));
        out.push(one);
        Ok(())
    }
}

/// Reads the options; returns the word behind them.
fn read_options(one: &mut ExternalAclType, line: &mut Line<'_>) -> Result<Token, Problem> {
    let (mut negative_ttl, mut queue_size) = (None, None);
    let word = loop {
        let token = line.expect("a format such as `%SRC`")?;
        if token.text.starts_with(['%', '/']) || !is_option(&token) {
            break token;
        }
        if !options::is_wanted(OPTIONS, &token, line)? {
            continue;
        }
        let (name, value) = options::split(&token);
        let value = value.unwrap_or("");
        let seconds = || number(&token, value, 0, i32::MAX as u32);
        match name {
            "ttl" => one.ttl = Duration::from_secs(seconds()?.into()),
            "negative_ttl" if value == "-1" => negative_ttl = None,
            "negative_ttl" => negative_ttl = Some(Duration::from_secs(seconds()?.into())),
            "grace" => one.grace_percent = number(&token, value, 0, 100)?,
            "cache" => one.cache_entries = number(&token, value, 0, KEPT_ANSWERS_MAX)?,
            "children" => {
                one.children.max = number(&token, value, 1, HelperChildren::PROCESSES_MAX)?;
            }
            "protocol" | "quote" => one.quoting = quoting(&token, value)?,
            _ => {
                helpers::set_option(&mut one.children, &mut queue_size, &token, "children-")?;
                helpers::crop_channels(&mut one.children, &token, line);
            }
        }
    };
    one.negative_ttl = negative_ttl.unwrap_or(one.ttl);
    helpers::settle(&mut one.children, queue_size, line);
    Ok(word)
}

/// Whether a word is an option or looks like a wrong one; the format begins with `%`.
fn is_option(token: &Token) -> bool {
    token.text.contains('=') || OPTIONS.iter().any(|row| row.name == token.text)
}

fn quoting(token: &Token, value: &str) -> Result<ExternalQuoting, Problem> {
    match value {
        "2.5" | "shell" => Ok(ExternalQuoting::Shell),
        "3.0" | "url" => Ok(ExternalQuoting::Url),
        _ => Err(token.error(format!("`{}` is not known: only 2.5 and 3.0 are", token.text))),
    }
}

/// Reads the format, whose first word is `word`; returns the program.
fn read_format(
    format: &mut Vec<ExternalPart>,
    mut word: Token,
    line: &mut Line<'_>,
) -> Result<Token, Problem> {
    while word.text.starts_with('%') {
        format.push(ExternalPart::parse(&word.text).map_err(|why| word.error(why))?);
        word = line.expect("the helper program")?;
    }
    if format.is_empty() {
        return Err(word
            .error("a format is missing before the helper program")
            .with_help("write for example `%SRC`; a `%` begins each code"));
    }
    Ok(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Severity, parse_str};

    fn read(rest: &str) -> ExternalAclType {
        let text =
            format!("http_port 1\nhttp_access allow localhost\nexternal_acl_type t {rest}\n");
        let (config, found) = parse_str("t", &text);
        assert!(!found.has_errors(), "{}", found.render(false));
        config.external_acl_type[0].clone()
    }

    fn error(rest: &str) -> String {
        let (_, found) = parse_str("t", &format!("http_port 1\nexternal_acl_type t {rest}\n"));
        let errors = found.iter().filter(|one| one.severity == Severity::Error);
        errors.map(|one| one.message.clone()).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn defaults_are_those_of_squid() {
        let one = read("%SRC /bin/helper -x \"a b\"");
        assert_eq!((one.ttl.as_secs(), one.negative_ttl.as_secs()), (3600, 3600));
        assert_eq!(
            (one.children.max, one.children.queue_size, one.cache_entries),
            (5, 10, 262_144)
        );
        assert_eq!(one.command, ["/bin/helper", "-x", "a b"]);
        let codes: Vec<_> = one.words.iter().map(|part| part.code).collect();
        assert!(codes == [ExternalCode::ClientIp] && one.adds_data);
    }

    #[test]
    fn options_old_and_new_are_read() {
        let one = read(
            "ttl=60 negative_ttl=5 grace=20 cache=100 children=8 children-startup=2 \
             children-idle=3 concurrency=4 queue-size=7 protocol=2.5 %DATA %SRC /bin/x",
        );
        assert_eq!((one.ttl.as_secs(), one.negative_ttl.as_secs()), (60, 5));
        assert_eq!((one.grace_percent, one.cache_entries), (20, 100));
        let children = &one.children;
        assert_eq!((children.max, children.startup, children.idle), (8, 2, 3));
        assert_eq!((children.concurrency, children.queue_size), (4, 7));
        assert_eq!((one.quoting, one.words.len()), (ExternalQuoting::Shell, 2));
        assert!(!one.adds_data);
        assert_eq!(read("ttl=9 negative_ttl=-1 %SRC /x").negative_ttl.as_secs(), 9);
        assert_eq!(read("children-max=50 %SRC /x").children.queue_size, 100);
    }

    #[test]
    fn what_is_wrong_is_one_clear_line() {
        assert!(error("%SRC").contains("the helper program is missing"));
        assert!(error("/bin/x").contains("format is missing"));
        assert!(error("tll=5 %SRC /x").contains("not an option"));
        assert!(error("ttl=x %SRC /x").contains("not a whole number"));
        assert!(error("%SRC %Ss /x").contains("`%Ss` cannot be sent"));
        assert!(error("%SRC /x\nexternal_acl_type t %SRC /y").contains("already"));
        assert!(error("%SRC /x\nacl a external other\n").contains("no external_acl_type"));
        assert!(error("%SRC /x\nacl a external t x\nacl a external t y\n").contains("one line"));
    }

    #[test]
    fn every_option_of_the_table_is_read() {
        let example = |name: &str| match name {
            "protocol" => "=2.5",
            "quote" => "=shell",
            _ => "=5",
        };
        let line = |option: &str| format!("http_port 1\nexternal_acl_type t {option} %SRC /x");
        options::tests::check_rows(OPTIONS, line, example);
    }
}
