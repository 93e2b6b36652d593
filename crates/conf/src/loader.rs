//! Reads a configuration: files, `include`, `if`, and one directive after the other.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::bumping;
use crate::diagnostics::{Diagnostics, Problem, Severity, Source};
use crate::filters::Filters;
use crate::kinds::{check_logins, check_offered, check_passed_logins, check_pools};
use crate::lexer::{Lines, LogicalLine, Macros, expand};
use crate::line::{Line, Token};
use crate::page_files;
use crate::state::{State, whole};
use crate::suggest::suggest;
use crate::table::{self, Config, Directive, Status};
use crate::types::{AclDef, AclKind, HttpPort};

/// Deepest nesting of `include`, as in Squid.
const INCLUDE_DEPTH_MAX: usize = 16;

/// Deepest nesting of `if`.
const IF_DEPTH_MAX: usize = 64;

/// The former default port of Squid.
const DEFAULT_PORT: u16 = 3128;

/// ACLs that exist without being defined.
const PREDEFINED: &str = "\
acl all src all
acl manager url_regex -i ^cache_object:// +i ^[^:]+://[^/]+/squid-internal-mgr/
acl localhost src 127.0.0.1/32 ::1
acl to_localhost dst 127.0.0.0/8 0.0.0.0/32 ::1/128 ::/128
acl to_linklocal dst 169.254.0.0/16 fe80::/10
acl CONNECT method CONNECT
";

/// Reads the file at `path` and everything it includes.
pub fn load(path: &Path) -> (Config, Diagnostics) {
    let name = path.to_string_lossy();
    let mut loader = Loader::with_defaults();
    match loader.state.read_value_file(&name) {
        Ok(text) => loader.read(Source { name: name.into_owned(), text }, 0),
        Err(why) => loader.state.report_general(Severity::Error, &why, "give another file with -f"),
    }
    loader.finish(true)
}

/// Reads a configuration from text; messages call it `name`. Files that it includes are read.
pub fn parse_str(name: &str, text: &str) -> (Config, Diagnostics) {
    let mut loader = Loader::with_defaults();
    loader.read(Source { name: name.to_owned(), text: text.to_owned() }, 0);
    loader.finish(false)
}

struct Loader {
    config: Config,
    state: State,
    filters: Filters,
    /// Directives whose default has been replaced.
    seen: HashSet<&'static str>,
    /// Files being read, outermost first.
    open_files: Vec<PathBuf>,
}

/// One `if` whose `endif` has not come yet.
struct Condition {
    line: LogicalLine,
    /// The part being read counts.
    active: bool,
    had_else: bool,
}

impl Loader {
    /// A loader whose configuration has every directive's default.
    fn with_defaults() -> Self {
        let mut loader = Self {
            config: Config::default(),
            state: State::default(),
            filters: Filters::default(),
            seen: HashSet::new(),
            open_files: Vec::new(),
        };
        let mut text = PREDEFINED.to_owned() + &crate::tls_errors::predefined();
        for directive in table::WORKING.iter().filter(|d| !d.default.is_empty()) {
            text.push_str(&format!("{} {}\n", directive.name, directive.default));
        }
        loader.state.built_in = true;
        loader.read(Source { name: "built-in defaults".to_owned(), text }, 0);
        loader.state.built_in = false;
        loader.seen.clear();
        loader
    }

    /// Reads and checks what needs the whole configuration. `languages`: error pages are read in
    /// all languages that the machine has.
    fn finish(mut self, languages: bool) -> (Config, Diagnostics) {
        self.state.explain_undefined();
        self.state.check_used_groups(&self.config.acl);
        self.filters.settle(&self.config.run_without, &mut self.state.diagnostics);
        if self.config.ports().next().is_none() {
            self.default_port();
        }
        let Self { mut config, mut state, .. } = self;
        bumping::finish(&mut config, &mut state);
        page_files::read(&mut config, &mut state, languages);
        check_log_paths(&config, &mut state);
        check_covered_values(&config, &mut state);
        check_logins(&config.auth_param, &config.acl, &mut state);
        check_offered(&config.auth_schemes, &config.auth_param, &mut state);
        check_passed_logins(&config.cache_peer, &config.auth_param, &mut state);
        check_pools(&config, &mut state);
        check_upgrades(&config, &mut state);
        check_report_only(&config, &mut state);
        check_addresses(&config, &mut state);
        if config.http_access.is_empty() && !state.diagnostics.has_errors() {
            let message = "there is no `http_access` rule: every request is denied";
            let help = "write `http_access allow localhost` and rules for your networks";
            state.report_general(Severity::Warning, message, help);
        }
        if config.cache_swap_low > config.cache_swap_high {
            let help = "make `cache_swap_low` the smaller one";
            state.report_general(
                Severity::Error,
                "`cache_swap_low` is above `cache_swap_high`",
                help,
            );
        }
        (config, state.diagnostics)
    }

    /// Files of old versions of Squid need not say where to listen; a file whose ports are all of
    /// kinds that cannot be opened means something else.
    fn default_port(&mut self) {
        if self.state.has_other_ports {
            let help = "write `http_port 3128` to serve plain HTTP as well";
            self.state.report_general(Severity::Error, "there is no port that can be opened", help);
            return;
        }
        let port = HttpPort {
            port: DEFAULT_PORT,
            name: DEFAULT_PORT.to_string(),
            protocol: "http",
            ..HttpPort::default()
        };
        self.config.http_port.push(port);
        if !self.state.diagnostics.has_errors() {
            let message = "no `http_port` says where to listen: port 3128 of every address is used";
            self.state.report_general(Severity::Warning, message, "write `http_port 3128`");
        }
    }

    fn read(&mut self, source: Source, depth: usize) {
        let source = Arc::new(source);
        let before = self.state.enter(Arc::clone(&source));
        self.open_files.push(PathBuf::from(&source.name));
        let mut conditions: Vec<Condition> = Vec::new();
        for line in Lines::new(&source.text) {
            let process_number = if self.config.workers > 1 { "1" } else { "0" };
            let macros = Macros { service_name: "squid", process_name: "squid", process_number };
            let line = expand(line, &macros);
            self.check_continuation(&line);
            self.statement(line, &mut conditions, depth);
        }
        for open in &conditions {
            self.state
                .report(&open.line, Problem::error(whole(&open.line), "this `if` has no `endif`"));
        }
        self.open_files.pop();
        self.state.leave(before);
    }

    fn check_continuation(&mut self, line: &LogicalLine) {
        let end = line.text.len();
        if line.false_continuation {
            let problem =
                Problem::error(end.saturating_sub(1)..end, "blanks follow this backslash")
                    .with_help("remove them: only a backslash at the very end continues the line");
            self.state.report(line, problem);
        } else if line.cut_short {
            let mut problem =
                Problem::error(0..end, "the file ends where this line is to be continued");
            problem.severity = Severity::Warning;
            self.state.report(line, problem.with_help("remove the backslash at its end"));
        }
    }

    /// Handles `if`, `else`, `endif` and `include`, and hands everything else to
    /// [`Self::directive`].
    fn statement(&mut self, line: LogicalLine, conditions: &mut Vec<Condition>, depth: usize) {
        let active = conditions.iter().all(|condition| condition.active);
        let (word, rest) = line.text.split_once([' ', '\t']).unwrap_or((&line.text, ""));
        match word {
            "if" => {
                let value = if active { self.condition(&line, rest.trim()) } else { false };
                if conditions.len() < IF_DEPTH_MAX {
                    conditions.push(Condition { line, active: value, had_else: false });
                } else {
                    let why = format!("`if` is nested more than {IF_DEPTH_MAX} deep");
                    self.state.report(&line, Problem::error(whole(&line), why));
                }
            }
            "else" => match conditions.last_mut() {
                Some(condition) if !condition.had_else => {
                    condition.active = !condition.active;
                    condition.had_else = true;
                }
                Some(_) => {
                    self.state.report(
                        &line,
                        Problem::error(whole(&line), "this `if` already has an `else`"),
                    );
                }
                None => {
                    self.state.report(
                        &line,
                        Problem::error(whole(&line), "there is no `if` for this `else`"),
                    );
                }
            },
            "endif" => {
                if conditions.pop().is_none() {
                    self.state.report(
                        &line,
                        Problem::error(whole(&line), "there is no `if` for this `endif`"),
                    );
                }
            }
            _ if !active => {}
            "include" => self.include(&line, depth),
            _ => self.directive(&line),
        }
    }

    /// `true`, `false` or `integer = integer`.
    fn condition(&mut self, line: &LogicalLine, text: &str) -> bool {
        match text {
            "true" => return true,
            "false" => return false,
            _ => {}
        }
        let sides =
            text.split_once('=').map(|(a, b)| (parse_integer(a.trim()), parse_integer(b.trim())));
        if let Some((Some(a), Some(b))) = sides {
            return a == b;
        }
        let problem = Problem::error(whole(line), format!("`{text}` is not a condition"));
        self.state.report(line, problem.with_help("write `true`, `false` or `INTEGER = INTEGER`"));
        false
    }

    fn include(&mut self, line: &LogicalLine, depth: usize) {
        let patterns = match read_patterns(line, &mut self.state) {
            Ok(patterns) => patterns,
            Err(problem) => {
                self.state.report(line, problem);
                return;
            }
        };
        for pattern in patterns {
            if depth >= INCLUDE_DEPTH_MAX {
                let why = format!("files are included more than {INCLUDE_DEPTH_MAX} deep");
                self.state.report(line, pattern.error(why));
                return;
            }
            let (files, is_glob) = crate::glob::expand(&pattern.text);
            if files.is_empty() && is_glob {
                let mut problem = pattern.error("no file matches");
                problem.severity = Severity::Warning;
                self.state.report(line, problem);
            }
            for file in files {
                self.include_file(&file, &pattern, line, depth);
            }
        }
    }

    fn include_file(&mut self, file: &Path, pattern: &Token, line: &LogicalLine, depth: usize) {
        if self.open_files.iter().any(|open| open == file) {
            self.state.report(line, pattern.error(format!("{} includes itself", file.display())));
            return;
        }
        let name = file.to_string_lossy().into_owned();
        match self.state.read_value_file(&name) {
            Ok(text) => self.read(Source { name, text }, depth + 1),
            Err(why) => {
                self.state.report(line, pattern.error(why));
            }
        }
    }

    fn directive(&mut self, logical: &LogicalLine) {
        let Some(mut line) = Line::new(logical, &mut self.state) else { return };
        let name = line.name.clone();
        let is_built_in = line.state.built_in;
        let Some(directive) = table::find(&name.text) else {
            line.state.diagnostics.tally().add_unknown();
            let problem = explain_odd_blanks(unknown(&name), logical);
            self.state.report(logical, problem);
            return;
        };
        let errors_before = line.state.diagnostics.errors_added();
        match directive.status {
            Status::Works => {
                if name.text != directive.name {
                    let message = format!("`{}` is an old name of `{}`", name.text, directive.name);
                    line.note(&name, message, None);
                }
                let replace = self.seen.insert(directive.name);
                let result = table::apply(&mut self.config, directive.name, replace, &mut line)
                    .and_then(|()| check_trailing(directive, &mut line));
                if let Err(problem) = result {
                    line.report(explain_odd_blanks(problem, logical));
                }
                self.state.quoted_values = self.config.configuration_includes_quoted_values;
            }
            Status::Ignored(why) => {
                line.note(&name, format!("`{}` has no effect: {why}", name.text), None);
            }
            Status::Unsupported(why) => {
                line.state.has_other_ports |= directive.name == "ftp_port";
                if !self.filters.take(directive, why, &mut line) {
                    line.warn(&name, format!("`{}` is not supported yet: {why}", name.text), None);
                }
            }
            Status::Obsolete(advice) => {
                line.warn(
                    &name,
                    format!("`{}` no longer exists and has no effect", name.text),
                    Some(advice),
                );
            }
        }
        if !is_built_in {
            let is_refused = self.state.diagnostics.errors_added() > errors_before;
            self.state.diagnostics.tally().add(directive, is_refused);
        }
    }
}

/// The meaning of a relative path depends on the directory in which the program was started, which
/// a daemon leaves.
fn check_log_paths(config: &Config, state: &mut State) {
    if config.coredump_dir.is_some() {
        return;
    }
    let places = config.access_log.iter().map(|log| log.place.as_deref());
    for path in
        places.chain([config.cache_log.as_deref(), config.cache_store_log.as_deref()]).flatten()
    {
        let path = path.strip_prefix("daemon:").unwrap_or(path);
        let is_elsewhere =
            path == "syslog" || ["syslog:", "udp:", "tcp:"].iter().any(|one| path.starts_with(one));
        let is_of_program = config.logfile_daemon.is_some();
        if !path.starts_with('/') && !is_elsewhere && !is_of_program {
            let message = format!("the path of the log `{path}` is relative: it is not written");
            let help = "write an absolute path, or `coredump_dir`, below which it is then";
            state.report_general(Severity::Warning, &message, help);
        }
    }
}

/// Values of ACLs that change nothing. Predefined values count only for ACLs that are defined once
/// more.
fn check_covered_values(config: &Config, state: &mut State) {
    for acl in &config.acl {
        let covered = crate::covered::find(acl);
        let Some(first) = covered.first() else { continue };
        let mut message = match first.value.eq_ignore_ascii_case(first.by) {
            true => format!("`acl {}`: `{}` is there twice", acl.name, first.value),
            false => format!("`acl {}`: `{}` is covered by `{}`", acl.name, first.value, first.by),
        };
        if covered.len() > 1 {
            message.push_str(&format!(", and {} more", covered.len() - 1));
        }
        let (severity, place) = match acl.location.line {
            0 => (Severity::Note, "it is predefined".to_owned()),
            _ => (Severity::Warning, format!("it begins at {}", acl.location)),
        };
        state.report_general(severity, &message, &format!("remove what changes nothing; {place}"));
    }
}

/// Clients that rules do not keep out.
fn check_report_only(config: &Config, state: &mut State) {
    let Some(rule) = config.report_only.iter().find(|rule| rule.allow) else {
        if !config.report_only.is_empty() {
            let message = "no line of `report_only` allows: all refusals are made";
            let help = "name the clients in a line with `allow`, or remove the lines";
            state.report_general(Severity::Warning, message, help);
        }
        return;
    };
    let place = rule.source.as_ref().map(|source| source.place()).unwrap_or_default();
    let message =
        format!("{place}: refusals of the requests that this rule allows are only reported");
    let help = "remove the line when the rules are as they should be: until then they keep nobody \
                out";
    state.report_general(Severity::Warning, &message, help);
}

/// A tunnel by Upgrade for all clients, while a rule denies some tunnels by CONNECT.
fn check_upgrades(config: &Config, state: &mut State) {
    let is_connect = |name: &str| {
        config.acl.iter().any(|acl| {
            acl.name.eq_ignore_ascii_case(name)
                && acl.kind == AclKind::Method
                && acl.values.iter().any(|method| method.eq_ignore_ascii_case("CONNECT"))
        })
    };
    let denies_connect = config.http_access.iter().any(|rule| {
        !rule.allow && rule.terms.iter().any(|term| !term.negated && is_connect(&term.name))
    });
    let for_all = config.http_upgrade_request_protocols.iter().find(|upgrade| {
        let terms = &upgrade.rule.terms;
        upgrade.rule.allow
            && terms.iter().all(|term| !term.negated && term.name.eq_ignore_ascii_case("all"))
    });
    if denies_connect && let Some(upgrade) = for_all {
        let message = format!(
            "`http_access` denies some tunnels by CONNECT, and `http_upgrade_request_protocols {}` allows any by Upgrade",
            upgrade.protocol
        );
        let help = "add the ACLs of the rule about CONNECT to that line";
        state.report_general(Severity::Warning, &message, help);
    }
}

/// A proxy that leaves names to its parents often cannot look them up, and refuses requests whose
/// rules depend on an unknown address.
fn check_addresses(config: &Config, state: &mut State) {
    if config.cache_peer.is_empty() || !config.never_direct.iter().any(|rule| rule.allow) {
        return;
    }
    let looks_up = |name: &str| {
        let named = |acl: &&AclDef| acl.name.eq_ignore_ascii_case(name);
        config
            .acl
            .iter()
            .find(named)
            .is_some_and(|acl| acl.kind == AclKind::Dst && !acl.flags.no_lookup)
    };
    for (list, rules) in
        [("http_access", &config.http_access), ("miss_access", &config.miss_access)]
    {
        let mut terms = rules.iter().flat_map(|rule| &rule.terms);
        if let Some(term) = terms.find(|term| looks_up(&term.name)) {
            let message = format!(
                "`{list}` looks up the name of every host for `{}`, though `never_direct` leaves names to parents: a \
                 request for one that cannot be looked up here is refused",
                term.name
            );
            let help =
                "use an ACL of type `dst -n`, or see to it that this machine can look up all names";
            state.report_general(Severity::Warning, &message, help);
        }
    }
}

/// Blanks that only look like blanks come with text copied from web pages.
fn explain_odd_blanks(problem: Problem, logical: &LogicalLine) -> Problem {
    match logical.text.chars().find(|c| c.is_whitespace() && !c.is_ascii()) {
        Some(odd) => problem.with_help(format!(
            "this line contains the character U+{:04X}, which looks like a blank and is none: type it again",
            u32::from(odd)
        )),
        None => problem,
    }
}

fn unknown(name: &Token) -> Problem {
    let names =
        table::directives().flat_map(|d| std::iter::once(d.name).chain(d.aliases.iter().copied()));
    let problem = name.error(format!("there is no directive `{}`", name.text));
    match suggest(&name.text, names.chain(["include", "if", "else", "endif"])) {
        Some(found) => problem.with_help(format!("did you mean `{found}`?")),
        None => problem,
    }
}

/// Words after a complete value. Squid ignores them silently; often they are a line whose break was
/// lost.
fn check_trailing(directive: &Directive, line: &mut Line<'_>) -> Result<(), Problem> {
    let Some(first) = line.next()? else { return Ok(()) };
    let mut end = first.at.end;
    let mut lost = table::find(&first.text).map(|_| first.text.clone());
    while let Some(token) = line.next()? {
        end = end.max(token.at.end);
        if lost.is_none() && table::find(&token.text).is_some() {
            lost = Some(token.text);
        }
    }
    let at = first.at.start..end;
    if let Some(name) = lost {
        return Err(Problem::error(
            at,
            format!("`{}` takes no more words than those before these", directive.name),
        )
        .with_help(format!(
            "`{name}` is a directive: were line breaks lost? Put each directive on a line of its own"
        )));
    }
    let mut problem = Problem::error(at, "these words are ignored");
    problem.severity = Severity::Warning;
    line.report(problem.with_help(format!("write `{}`", directive.syntax)));
    Ok(())
}

/// The file names after `include`: quotes are allowed, `#` starts a comment.
fn read_patterns(line: &LogicalLine, state: &mut State) -> Result<Vec<Token>, Problem> {
    let Some(mut words) = Line::new(line, state) else { return Ok(Vec::new()) };
    let mut patterns = Vec::new();
    while let Some(token) = words.next_quoted()? {
        patterns.push(token);
    }
    if patterns.is_empty() {
        return Err(Problem::error(whole(line), "a file name is missing")
            .with_help("write `include PATH ...`"));
    }
    Ok(patterns)
}

/// Decimal, 0x hexadecimal or 0 octal, as C's strtol reads them.
fn parse_integer(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let value = if let Some(hex) = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        i64::from_str_radix(hex, 16).ok()?
    } else if digits.len() > 1 && digits.starts_with('0') {
        i64::from_str_radix(digits, 8).ok()?
    } else {
        digits.parse().ok()?
    };
    Some(if negative { -value } else { value })
}
