//! `-k explain --against-log`: the decisions of a configuration about the requests of a log, beside
//! those that the log has.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::path::Path;

use humboldt_acl::{RuleList, Verdict};
use humboldt_conf::AccessRule;
use humboldt_proxy::snapshot::Snapshot;

use super::asked::Asked;
use super::end::{End, ExplainError};
use super::unknown::{Missing, unknown_in};
use super::{NO_PURGE, is_void_purge, may_be_reported_only};

/// Longest line that is read, in bytes; the rest of a longer one counts as unreadable.
const LINE_BYTES_MAX: usize = 128 << 10;

/// Most groups of changes that are shown.
const GROUPS_SHOWN_MAX: usize = 100;

/// A line of the log.
struct Line<'a> {
    time_s: i64,
    client: IpAddr,
    was_denied: bool,
    method: &'a str,
    url: &'a str,
    user: Option<&'a str>,
}

/// Requests whose decision changes for the same reason.
struct Group {
    count: u64,
    example: String,
}

#[derive(Default)]
struct Replay {
    lines: u64,
    unreadable: u64,
    undecided: u64,
    same: u64,
    /// By what changes, and the rule that does it.
    changes: BTreeMap<(&'static str, String), Group>,
}

/// Replays a log in Squid's own format.
pub(super) fn replay(snapshot: &Snapshot, path: &Path) -> Result<(String, End), ExplainError> {
    let failed = |source| ExplainError::Log { path: path.display().to_string(), source };
    let mut input = BufReader::new(File::open(path).map_err(failed)?);
    let config = &snapshot.config;
    let list = |rules: &[AccessRule], otherwise| -> Result<List, ExplainError> {
        let compiled = RuleList::compile(&snapshot.acls, rules, otherwise)?;
        Ok(List { rules: rules.to_vec(), compiled })
    };
    let lists = Lists {
        refusing: [list(&config.http_access, false)?, list(&config.adapted_http_access, true)?],
        report_only: list(&config.report_only, false)?,
    };
    let mut replay = Replay::default();
    let mut line = Vec::new();
    while read_line(&mut input, &mut line).map_err(failed)? {
        replay.take(&line, &lists, snapshot);
    }
    let end = if replay.changes.is_empty() { End::Allowed } else { End::Refused };
    Ok((replay.report(), end))
}

/// Reads a line, and of a longer one [`LINE_BYTES_MAX`] bytes. `false` at the end.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> std::io::Result<bool> {
    line.clear();
    let mut is_any = false;
    loop {
        let part = input.fill_buf()?;
        if part.is_empty() {
            return Ok(is_any);
        }
        is_any = true;
        let end = part.iter().position(|&byte| byte == b'\n');
        let text = part.get(..end.unwrap_or(part.len())).unwrap_or_default();
        let room = LINE_BYTES_MAX.saturating_sub(line.len()).min(text.len());
        line.extend_from_slice(text.get(..room).unwrap_or_default());
        let used = text.len() + usize::from(end.is_some());
        input.consume(used);
        if end.is_some() {
            return Ok(true);
        }
    }
}

impl<'a> Line<'a> {
    /// `TIME ELAPSED CLIENT CODE/STATUS BYTES METHOD URL USER …`
    fn parse(text: &'a str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let time = words.next()?.split('.').next()?;
        let client = words.nth(1)?;
        let code = words.next()?;
        // Questions of other caches (ICP): `http_access` is not asked about them.
        if code.starts_with("UDP_") {
            return None;
        }
        let method = words.nth(1)?;
        let (url, user) = (words.next()?, words.next()?);
        let way = words.next().unwrap_or_default();
        Some(Self {
            time_s: time.parse().ok()?,
            client: client.parse().ok()?,
            was_denied: is_denied(code) && !AFTER_A_WAY.iter().any(|one| way.starts_with(one)),
            method,
            url,
            user: Some(user).filter(|user| *user != "-"),
        })
    }
}

/// The way of a request that was refused when its server was to be connected to
/// (`private_destinations`).
const AFTER_A_WAY: [&str; 2] = ["HIER_DIRECT/", "ORIGINAL_DST/"];

/// Whether `http_access` has refused. `TCP_DENIED_REPLY` is about the answer, 429 about a budget.
fn is_denied(code: &str) -> bool {
    code.contains("_DENIED") && !code.contains("_REPLY") && !code.ends_with("/429")
}

/// The lists that decide.
struct Lists {
    refusing: [List; 2],
    /// Refusals of the requests that it allows are not made.
    report_only: List,
}

/// A list with the rules that it is made of.
struct List {
    rules: Vec<AccessRule>,
    compiled: RuleList,
}

impl Replay {
    fn take(&mut self, line: &[u8], lists: &Lists, snapshot: &Snapshot) {
        self.lines += 1;
        let text = String::from_utf8_lossy(line);
        let parsed = Line::parse(&text).and_then(|line| {
            let asked = Asked::new(line.method, line.url, &[], line.client).ok()?;
            Some((asked.at(line.time_s).by(line.user).of_a_log(snapshot), line))
        });
        let Some((asked, line)) = parsed else {
            self.unreadable += 1;
            return;
        };
        let query = asked.may_lack_query();
        let missing = Missing { fields: true, query, ..Missing::default() };
        let Some(rule) = decide(lists, snapshot, &asked, missing) else {
            self.undecided += 1;
            return;
        };
        let change = match (line.was_denied, rule) {
            (false, Err(rule)) => ("would be refused", rule),
            (true, Ok(rule)) => ("would be let in", rule),
            _ => {
                self.same += 1;
                return;
            }
        };
        let group = self.changes.entry(change);
        group
            .and_modify(|group| group.count += 1)
            .or_insert_with(|| Group { count: 1, example: asked.describe() });
    }

    fn report(&self) -> String {
        let Self { lines, unreadable, undecided, same, changes } = self;
        let changed: u64 = changes.values().map(|group| group.count).sum();
        let mut out = format!(
            "{lines} lines: {same} as before, {changed} would change, {undecided} depend on what \
             only the running proxy knows, {unreadable} are no requests\n"
        );
        for ((change, rule), group) in changes.iter().take(GROUPS_SHOWN_MAX) {
            let Group { count, example } = group;
            let _ = writeln!(out, "\n{count} {change} by {rule}\n  such as {example}");
        }
        let left = changes.len().saturating_sub(GROUPS_SHOWN_MAX);
        if left > 0 {
            let _ = writeln!(out, "\nand {left} more kinds of change");
        }
        out
    }
}

/// The rule that lets a request in (`Ok`) or refuses it; `None` if only the running proxy can tell.
fn decide(
    lists: &Lists,
    snapshot: &Snapshot,
    asked: &Asked,
    missing: Missing,
) -> Option<Result<String, String>> {
    let (acls, subject) = (&snapshot.config.acl, &asked.subject());
    let name = |list: &RuleList, rule| {
        list.source(rule).map_or_else(|| "the default".to_owned(), ToString::to_string)
    };
    let verdict = |List { rules, compiled }: &List| {
        let mut steps = compiled.steps(subject).zip(rules);
        let is_unknown =
            steps.any(|((_, step), rule)| unknown_in(acls, &rule.terms, step, missing).is_some());
        if is_unknown {
            return None;
        }
        Some(match compiled.check(subject) {
            Verdict::Allowed { rule } => Ok(name(compiled, rule)),
            Verdict::Denied { rule, .. } => Err(name(compiled, rule)),
            Verdict::Challenge { rule, .. } => {
                Err(format!("{}, which demands a login", name(compiled, Some(rule))))
            }
            Verdict::Needs(_) => return None,
        })
    };
    let mut allowed = String::new();
    for list in &lists.refusing {
        match verdict(list)? {
            Ok(rule) if allowed.is_empty() => allowed = rule,
            Ok(_) => {}
            Err(rule) if !may_be_reported_only(asked) => return Some(Err(rule)),
            Err(rule) => {
                // Here only a line that allows counts, see `reports_only` of the proxy.
                let only = &lists.report_only;
                let verdict = verdict(only)?;
                match (verdict, only.compiled.check(subject)) {
                    (Ok(_), Verdict::Allowed { rule: Some(_) }) => {
                        allowed = format!("report_only, although refused by {rule}");
                    }
                    _ => return Some(Err(rule)),
                }
            }
        }
    }
    if is_void_purge(snapshot, asked) {
        return Some(Err(format!("none: {NO_PURGE}")));
    }
    Some(Ok(allowed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_squids_format() {
        let line = Line::parse(
            "1066036250.129    525 10.0.0.7 TCP_DENIED/403 3884 GET http://a.test/ anna NONE/- -",
        )
        .expect("a line");
        assert_eq!((line.time_s, line.was_denied, line.user), (1_066_036_250, true, Some("anna")));
        assert_eq!((line.method, line.url), ("GET", "http://a.test/"));
        for bad in ["", "x", "1.0 2 not-an-ip TCP_MISS/200 1 GET http://a/ - - -"] {
            assert!(Line::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn long_lines_are_cut_and_the_next_one_is_read() {
        let text = [vec![b'x'; LINE_BYTES_MAX + 5], b"\nsecond".to_vec()].concat();
        let (mut input, mut line) = (&text[..], Vec::new());
        assert!(read_line(&mut input, &mut line).expect("read"));
        assert_eq!(line.len(), LINE_BYTES_MAX);
        assert!(read_line(&mut input, &mut line).expect("read") && line == b"second");
        assert!(!read_line(&mut input, &mut line).expect("the end"));
    }
}
