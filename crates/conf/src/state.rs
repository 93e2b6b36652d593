//! State of the reading of a configuration: its files, the findings, and the names that later lines
//! refer to.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::Read;
use std::net::IpAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use crate::diagnostics::{Diagnostics, Problem, Severity, Source};
use crate::lexer::LogicalLine;
use crate::lists::{List, Moment, Need};
use crate::types::{AclDef, AclKind, DelayClass, Location};

/// Largest configuration or value file, in bytes; a larger one is an error.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Most bytes that all files of one configuration may have together; beyond it, an error.
const ALL_FILES_BYTES_MAX: u64 = 256 << 20;

/// Most files that one configuration may read; beyond it, an error.
const FILES_MAX: usize = 4096;

/// Deepest nesting of groups of ACLs that is searched; the rules refuse deeper ones.
pub(crate) const GROUP_DEPTH_MAX: usize = 16;

/// Address, host name, number and path of a port.
type PortPlace = (Option<IpAddr>, Option<String>, u16, Option<PathBuf>);

/// The facts about an ACL that later lines need.
#[derive(Clone, Debug)]
pub(crate) struct KnownAcl {
    /// Name as first written.
    pub(crate) name: String,
    pub(crate) kind: AclKind,
    /// Index in `Config::acl`.
    pub(crate) index: usize,
    /// Why no rule that uses it can be evaluated.
    pub(crate) unusable: Option<String>,
    /// Its part that asks about an answer, in words and by kind: no rule that is asked before the
    /// answer can be evaluated with it.
    pub(crate) answers: Option<(String, AclKind)>,
    /// Its part that says nothing about answers, in words.
    pub(crate) requests: Option<String>,
    /// Its parts that only some lists can decide about, in words.
    pub(crate) only: Vec<(String, &'static [List])>,
    /// A line of it has `-i`, which holds to the end of that line.
    pub(crate) ignores_case: bool,
    /// Its needs, each with the ACL in words that has it.
    pub(crate) needs: Vec<(String, Need)>,
    /// Line of the definition, or 0 for the predefined ones.
    pub(crate) location: Location,
}

impl KnownAcl {
    /// Why a rule of this list that uses it cannot be evaluated.
    pub(crate) fn unusable_in(&self, list: List) -> Option<String> {
        let answers = self.answers.as_ref().and_then(|(what, kind)| match list.moment() {
            Moment::Request => Some(format!("{what}, and this is asked before there is an answer")),
            Moment::End if *kind == AclKind::RepHeader => Some(format!(
                "{what}, and of an answer that was sent only status and media type are known"
            )),
            Moment::Answer | Moment::End => None,
        });
        let requests = self.requests.as_ref().filter(|_| list.moment() != Moment::Request);
        let requests =
            || requests.map(|what| format!("{what}, which does not say that of answers"));
        let other = self.only.iter().find(|(_, only)| !only.contains(&list));
        let elsewhere = || {
            let names = |only: &[List]| only.iter().map(|list| list.name()).collect::<Vec<_>>();
            other.map(|(what, only)| {
                format!("{what}, which only {} can decide about", names(only).join(" and "))
            })
        };
        let mut needs = self.needs.iter();
        let slow = || needs.find_map(|(what, need)| list.objection(what, *need));
        self.unusable.clone().or(answers).or_else(requests).or_else(elsewhere).or_else(slow)
    }
}

/// An ACL that was used before it was defined: the diagnostic gets its help text at the end.
#[derive(Debug)]
struct Undefined {
    name: String,
    diagnostic: usize,
}

/// The delay pools that have been named so far.
#[derive(Debug, Default)]
pub(crate) struct KnownPools {
    /// `delay_pools`
    pub(crate) count: u16,
    /// `client_delay_pools`
    pub(crate) client_count: u16,
    /// `delay_class`
    pub(crate) classes: Vec<DelayClass>,
    /// `response_delay_pool`
    pub(crate) named: Vec<String>,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) diagnostics: Diagnostics,
    /// The file being read.
    source: Option<Arc<Source>>,
    /// `configuration_includes_quoted_values`
    pub(crate) quoted_values: bool,
    /// The lines being read are built in: their ACLs have no place in a file.
    pub(crate) built_in: bool,
    /// By lower-case name.
    pub(crate) acls: HashMap<String, KnownAcl>,
    pub(crate) log_formats: HashSet<String>,
    pub(crate) peers: Vec<String>,
    /// The places of the ports of all kinds.
    pub(crate) ports: Vec<PortPlace>,
    /// There is a port of a kind that cannot be opened.
    pub(crate) has_other_ports: bool,
    /// The words of `ssl_bump` so far are `allow` and `deny`, which mean less than those of today.
    pub(crate) bump_style: Option<bool>,
    /// Names of `external_acl_type`, and whether its questions name a checked user.
    pub(crate) external_types: Vec<(String, bool)>,
    /// Delay pools.
    pub(crate) pools: KnownPools,
    undefined: Vec<Undefined>,
    /// ACLs that rules use, by lower-case name and list; true when the use was
    /// refused.
    pub(crate) used: HashMap<(String, List), bool>,
    files_read: usize,
    bytes_read: u64,
}

impl State {
    /// Starts reading another file; gives back the one read before.
    pub(crate) fn enter(&mut self, source: Arc<Source>) -> Option<Arc<Source>> {
        self.source.replace(source)
    }

    /// Goes back to the file read before.
    pub(crate) fn leave(&mut self, before: Option<Arc<Source>>) {
        self.source = before;
    }

    /// Adds a diagnostic about the current file; gives back its index.
    pub(crate) fn report(&mut self, line: &LogicalLine, problem: Problem) -> usize {
        let index = self.diagnostics.len();
        match &self.source {
            Some(source) => {
                let span = line.source_span(problem.at);
                self.diagnostics.add_at(
                    problem.severity,
                    source,
                    span,
                    problem.message,
                    problem.help,
                );
            }
            None => self.diagnostics.add_general(problem.severity, problem.message, problem.help),
        }
        index
    }

    /// File, line and column of an offset in a logical line.
    pub(crate) fn location(&self, line: &LogicalLine, offset: usize) -> Location {
        match &self.source {
            Some(source) if !self.built_in => {
                let (number, column) =
                    source.line_and_column(line.source_span(offset..offset + 1).start);
                Location { file: source.name.clone(), line: number, column }
            }
            _ => Location { file: "built-in".to_owned(), line: 0, column: 0 },
        }
    }

    pub(crate) fn acl(&self, name: &str) -> Option<&KnownAcl> {
        self.acls.get(&name.to_ascii_lowercase())
    }

    /// Remembers that the diagnostic at `index` is about an ACL that may be defined further down.
    pub(crate) fn used_undefined(&mut self, name: &str, diagnostic: usize) {
        self.undefined.push(Undefined { name: name.to_owned(), diagnostic });
    }

    /// Completes the diagnostics of ACLs that were defined after their use.
    pub(crate) fn explain_undefined(&mut self) {
        for undefined in std::mem::take(&mut self.undefined) {
            let Some(acl) = self.acl(&undefined.name) else { continue };
            let help = format!("it is defined at {}: move that line above this one", acl.location);
            self.diagnostics.set_help(undefined.diagnostic, help);
        }
    }

    /// Refuses rules whose groups of ACLs got a member that cannot be evaluated after the rule was
    /// read.
    pub(crate) fn check_used_groups(&mut self, acls: &[AclDef]) {
        let accepted = self.used.iter().filter(|(_, refused)| !**refused).map(|(used, _)| used);
        let mut visited: HashMap<List, HashSet<usize>> = HashMap::new();
        let reasons: BTreeSet<String> = accepted
            .filter_map(|(name, list)| {
                self.unusable_member(name, *list, acls, 0, visited.entry(*list).or_default())
            })
            .collect();
        for reason in reasons {
            let message = format!("a rule that uses a group of ACLs cannot be evaluated: {reason}");
            self.report_general(Severity::Error, &message, "remove the ACL from the group");
        }
    }

    /// Why an ACL, or a member of it that was not visited before, cannot be evaluated.
    fn unusable_member(
        &self,
        name: &str,
        list: List,
        acls: &[AclDef],
        depth: usize,
        visited: &mut HashSet<usize>,
    ) -> Option<String> {
        let known = self.acl(name)?;
        let reason = known.unusable_in(list);
        if reason.is_some() || depth > GROUP_DEPTH_MAX || !visited.insert(known.index) {
            return reason;
        }
        let def = acls
            .get(known.index)
            .filter(|def| matches!(def.kind, AclKind::AnyOf | AclKind::AllOf))?;
        let mut members = def.values.iter().flat_map(|value| value.split(' '));
        members.find_map(|member| {
            self.unusable_member(member.trim_start_matches('!'), list, acls, depth + 1, visited)
        })
    }

    /// Reads a file of values or configuration as text; bytes that are not UTF-8 are replaced.
    ///
    /// # Errors
    /// A sentence for people: not readable, or a bound reached.
    pub(crate) fn read_value_file(&mut self, path: &str) -> Result<String, String> {
        if self.files_read >= FILES_MAX {
            return Err(format!("{path}: more than {FILES_MAX} files are read"));
        }
        self.files_read += 1;
        let unreadable = |error: std::io::Error| format!("cannot read {path}: {error}");
        let file = std::fs::File::open(path).map_err(unreadable)?;
        let mut text = Vec::new();
        // Devices and pipes have no length to ask for beforehand.
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text).map_err(unreadable)?;
        let bytes = text.len() as u64;
        self.bytes_read = self.bytes_read.saturating_add(bytes);
        if bytes > FILE_BYTES_MAX || self.bytes_read > ALL_FILES_BYTES_MAX {
            return Err(format!(
                "{path}: more than {} MB in one file, or {} MB together",
                FILE_BYTES_MAX >> 20,
                ALL_FILES_BYTES_MAX >> 20
            ));
        }
        Ok(match String::from_utf8(text) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        })
    }

    #[cfg(test)]
    pub(crate) fn for_tests(text: &str) -> Self {
        let source = Source { name: "test.conf".to_owned(), text: text.to_owned() };
        Self { source: Some(Arc::new(source)), ..Self::default() }
    }

    /// Adds a warning or error that concerns the configuration as a whole.
    pub(crate) fn report_general(&mut self, severity: Severity, message: &str, help: &str) {
        self.diagnostics.add_general(severity, message.to_owned(), Some(help.to_owned()));
    }
}

/// The range of a whole logical line.
pub(crate) fn whole(line: &LogicalLine) -> Range<usize> {
    0..line.text.len()
}
