//! Helper programs.

use std::time::Duration;

use regex::bytes::Regex;

use crate::external_format::{ExternalPart, ExternalQuoting};

/// The processes of a helper program (`url_rewrite_children`, `auth_param … children`, options of
/// `external_acl_type`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelperChildren {
    /// Most of them.
    pub max: u32,
    /// Those that run from the start on.
    pub startup: u32,
    /// Those that are started whenever all others are busy.
    pub idle: u32,
    /// Questions that one of them may have at a time; 0: one, and lines without channel numbers.
    pub concurrency: u32,
    /// Questions that may wait for a process.
    pub queue_size: u32,
    /// Longest reservation of a process for one client while others wait.
    pub reservation_timeout: Duration,
}

impl HelperChildren {
    /// Most processes of one helper.
    pub const PROCESSES_MAX: u32 = 1024;

    /// Most questions that one process may have at a time.
    pub const CHANNELS_MAX: u32 = 4096;

    /// At most `max` processes, and Squid's defaults for everything else.
    pub fn new(max: u32) -> Self {
        Self {
            max,
            startup: 0,
            idle: 1,
            concurrency: 0,
            queue_size: max.saturating_mul(2),
            reservation_timeout: Duration::from_secs(64),
        }
    }
}

impl Default for HelperChildren {
    fn default() -> Self {
        Self::new(20)
    }
}

/// One `external_acl_type`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalAclType {
    /// Its name in `acl` lines.
    pub name: String,
    /// How long an answer `OK` holds.
    pub ttl: Duration,
    /// How long an answer `ERR` holds.
    pub negative_ttl: Duration,
    /// Share of these times, in percent, at whose beginning the helper is asked again while the old
    /// answer still serves.
    pub grace_percent: u32,
    /// Most answers that are kept; 0 for none.
    pub cache_entries: u32,
    /// Its processes.
    pub children: HelperChildren,
    /// The treatment of values.
    pub quoting: ExternalQuoting,
    /// The words of a question.
    pub words: Vec<ExternalPart>,
    /// The arguments of the ACL stand behind them: no word of the format is about them.
    pub adds_data: bool,
    /// The program and its arguments.
    pub command: Vec<String>,
}

/// `url_rewrite_timeout`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RewriteTimeout {
    /// Longest time to an answer, if there is a line.
    pub limit: Option<Duration>,
    /// What happens then.
    pub on_timeout: OnTimeout,
}

/// What happens when a helper that rewrites URLs has not answered in time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OnTimeout {
    /// The request is refused.
    #[default]
    Fail,
    /// It passes unchanged.
    Bypass,
    /// The helper is asked again.
    Retry,
    /// This is the answer.
    Answer(String),
}

/// One `store_id_rule`.
#[derive(Clone, Debug)]
pub struct StoreIdRule {
    /// The URLs.
    pub regex: Regex,
    /// The name of the object: text, and the numbers of parts of the expression.
    pub replacement: Vec<ReplacementPart>,
}

/// A piece of the replacement of a `store_id_rule`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplacementPart {
    /// Text.
    Text(String),
    /// The part of the URL in these parentheses, counted from 1.
    Group(usize),
}

impl PartialEq for StoreIdRule {
    fn eq(&self, other: &Self) -> bool {
        self.regex.as_str() == other.regex.as_str() && self.replacement == other.replacement
    }
}
