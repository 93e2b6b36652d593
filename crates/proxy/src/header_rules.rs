//! Rules about header fields: `request_header_access`, `request_header_replace`,
//! `request_header_add`, and the same for answers.

use std::net::SocketAddr;

use humboldt_acl::{AclError, AclSet, RuleList};
use humboldt_conf::{Config, HeaderAdd, HeaderReplace, HeaderRule};
use humboldt_http::h1::write_field;
use humboldt_http::{FieldName, Fields, ResponseHead, Version};
use humboldt_logs::access::{AccessFormat, AccessRecord, LogFormat};
use humboldt_store::StoredHead;

use crate::access;
use crate::request::Request;

/// The compiled rules. Each list says whether the terms of its line match, not whether they allow.
pub struct HeaderRules {
    request: Vec<(HeaderRule, RuleList)>,
    request_replace: Vec<HeaderReplace>,
    request_add: Vec<Addition>,
    reply: Vec<(HeaderRule, RuleList)>,
    reply_replace: Vec<HeaderReplace>,
    reply_add: Vec<Addition>,
    /// Some ACL looks at the answer, so it is taken apart for the rules.
    asks_answer: bool,
}

/// A field that is added.
struct Addition {
    name: Vec<u8>,
    value: Value,
    condition: RuleList,
}

enum Value {
    Text(Vec<u8>),
    /// Written in quotes: with the codes of `logformat`.
    Format(AccessFormat),
}

/// What becomes of a field.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate<'a> {
    /// It goes on as it is.
    Kept,
    /// It goes on with this value.
    Replaced(&'a [u8]),
    /// It is left out.
    Removed,
}

impl HeaderRules {
    pub(crate) fn compile(acls: &AclSet, config: &Config) -> Result<Self, Vec<AclError>> {
        let access = |rules: &[HeaderRule]| {
            rules
                .iter()
                .map(|rule| Ok((rule.clone(), access::compile_condition(acls, &rule.rule.terms)?)))
                .collect::<Result<Vec<_>, Vec<AclError>>>()
        };
        let add = |rules: &[HeaderAdd]| {
            let compiled = rules.iter().map(|rule| Addition::compile(acls, rule));
            compiled.filter_map(Result::transpose).collect::<Result<Vec<_>, Vec<AclError>>>()
        };
        Ok(Self {
            request: access(&config.request_header_access)?,
            request_replace: config.request_header_replace.clone(),
            request_add: add(&config.request_header_add)?,
            reply: access(&config.reply_header_access)?,
            reply_replace: config.reply_header_replace.clone(),
            reply_add: add(&config.reply_header_add)?,
            asks_answer: config.acl.iter().any(|acl| acl.kind.is_about_answers()),
        })
    }

    /// The lists about requests.
    pub(crate) fn lists_of_requests(&self) -> impl Iterator<Item = &RuleList> {
        self.request
            .iter()
            .map(|(_, list)| list)
            .chain(self.request_add.iter().map(|add| &add.condition))
    }

    /// The lists about answers.
    pub(crate) fn lists_of_replies(&self) -> impl Iterator<Item = &RuleList> {
        self.reply
            .iter()
            .map(|(_, list)| list)
            .chain(self.reply_add.iter().map(|add| &add.condition))
    }

    /// What becomes of a field of the request on its way to the server.
    pub(crate) fn request_field(&self, request: &Request, name: &[u8]) -> Fate<'_> {
        fate(&self.request, &self.request_replace, Asked { request, answer: None }, name)
    }

    /// Appends the fields that rules add to the request.
    pub(crate) fn add_to_request(&self, out: &mut Vec<u8>, request: &Request) {
        add(&self.request_add, out, Asked { request, answer: None });
    }

    /// Applies the rules about answers to a head for the client that sent `request`: status line
    /// and field lines from `start` to the end of `out`, without the empty line. Every answer to a
    /// request that could be read comes by here, after what the proxy says of itself, so that what
    /// is stored can be what the server said. Without rules nothing is done.
    #[inline]
    pub(crate) fn apply_to_reply(&self, out: &mut Vec<u8>, start: usize, request: &Request) {
        if !self.reply.is_empty() || !self.reply_add.is_empty() {
            self.rewrite(out, start, request);
        }
    }

    fn rewrite(&self, out: &mut Vec<u8>, start: usize, request: &Request) {
        let head = out.split_off(start);
        let answer = self.asks_answer.then(|| taken_apart(&head));
        let asked = Asked { request, answer: answer.as_ref() };
        let mut replaced: Vec<&[u8]> = Vec::new();
        for (at, line) in head.split_inclusive(|&byte| byte == b'\n').enumerate() {
            let (name, _) = name_and_value(line);
            if at == 0 || is_framing(name) {
                out.extend_from_slice(line);
                continue;
            }
            match fate(&self.reply, &self.reply_replace, asked, name) {
                Fate::Kept => out.extend_from_slice(line),
                Fate::Removed => {}
                Fate::Replaced(_)
                    if replaced.iter().any(|earlier| earlier.eq_ignore_ascii_case(name)) => {}
                Fate::Replaced(value) => {
                    write_field(out, name, value);
                    replaced.push(name);
                }
            }
        }
        add(&self.reply_add, out, asked);
    }

    /// Leaves out the trailer fields that the client may not get as fields; `head` is the answer's.
    /// None is replaced.
    pub(crate) fn apply_to_trailers(
        &self,
        trailers: &mut Fields,
        head: &StoredHead,
        request: &Request,
    ) {
        if self.reply.is_empty() {
            return;
        }
        let answer = self.asks_answer.then(|| taken_apart(head.bytes()));
        let asked = Asked { request, answer: answer.as_ref() };
        let names: Vec<Vec<u8>> = trailers.iter().map(|(_, name, _)| name.to_vec()).collect();
        for name in names {
            if fate(&self.reply, &self.reply_replace, asked, &name) != Fate::Kept {
                trailers.remove_by_name(&name);
            }
        }
    }
}

/// What the conditions of rules are about.
#[derive(Copy, Clone)]
struct Asked<'a> {
    request: &'a Request,
    /// The answer, where some ACL looks at it.
    answer: Option<&'a ResponseHead>,
}

impl Asked<'_> {
    /// `None` where that cannot be answered.
    fn matches(self, list: &RuleList) -> Option<bool> {
        access::says(list, self.request, self.answer)
    }
}

/// Fields without which a client would take bytes for what they are not: no rule touches them.
fn is_framing(name: &[u8]) -> bool {
    use FieldName as F;
    matches!(
        F::from_bytes(name),
        F::ContentLength | F::TransferEncoding | F::ContentRange | F::Connection | F::Upgrade
    )
}

fn name_and_value(line: &[u8]) -> (&[u8], &[u8]) {
    let colon = memchr::memchr(b':', line).unwrap_or(line.len());
    let (name, value) = line.split_at_checked(colon).unwrap_or_default();
    (name, value.get(1..).unwrap_or_default().trim_ascii())
}

/// The answer whose head these lines are, for ACLs.
fn taken_apart(head: &[u8]) -> ResponseHead {
    let mut answer = ResponseHead::default();
    let mut lines = head.split_inclusive(|&byte| byte == b'\n');
    let status =
        lines.next().and_then(|line| std::str::from_utf8(line.get(9..12)?).ok()?.parse().ok());
    answer.set_line(Version::Http11, status.unwrap_or_default(), b"");
    for line in lines {
        let (name, value) = name_and_value(line);
        answer.fields.push_named(name, value);
    }
    answer
}

fn fate<'a>(
    rules: &[(HeaderRule, RuleList)],
    replacements: &'a [HeaderReplace],
    asked: Asked<'_>,
    name: &[u8],
) -> Fate<'a> {
    if rules.is_empty() || keeps(rules, asked, name) {
        return Fate::Kept;
    }
    // As in Squid the last line about a field counts.
    let mut matching =
        replacements.iter().rev().filter(|rule| name.eq_ignore_ascii_case(rule.header.as_bytes()));
    matching.next().map_or(Fate::Removed, |rule| Fate::Replaced(rule.value.as_bytes()))
}

/// First match wins among the rules for the field's own name; then among those for `Other` (fields
/// without a name of their own in the program) and `All`.
fn keeps(rules: &[(HeaderRule, RuleList)], asked: Asked<'_>, name: &[u8]) -> bool {
    let is_other = FieldName::from_bytes(name) == FieldName::Other;
    let matching = |wanted: &str| {
        rules
            .iter()
            .filter(|(rule, _)| rule.header.eq_ignore_ascii_case(wanted))
            // What cannot be answered does not allow, and does deny.
            .find(|(rule, list)| asked.matches(list).unwrap_or(!rule.rule.allow))
            .map(|(rule, _)| rule.rule.allow)
    };
    let own = std::str::from_utf8(name).ok().and_then(matching);
    own.or_else(|| if is_other { matching("Other") } else { None })
        .or_else(|| matching("All"))
        .unwrap_or(true)
}

impl Addition {
    /// `None` for one whose value has codes that are not known, which is reported.
    fn compile(acls: &AclSet, rule: &HeaderAdd) -> Result<Option<Self>, Vec<AclError>> {
        let value = match rule.formatted.then(|| LogFormat::compile(&rule.value)) {
            None => Value::Text(rule.value.clone().into_bytes()),
            Some(Ok(format)) => Value::Format(AccessFormat::Template(format)),
            Some(Err(error)) => {
                tracing::warn!("the field {} is not added: {error}", rule.header);
                return Ok(None);
            }
        };
        let condition = access::compile_condition(acls, &rule.terms)?;
        Ok(Some(Self { name: rule.header.clone().into_bytes(), value, condition }))
    }
}

fn add(rules: &[Addition], out: &mut Vec<u8>, asked: Asked<'_>) {
    for rule in rules.iter().filter(|rule| asked.matches(&rule.condition) == Some(true)) {
        match &rule.value {
            Value::Text(text) => write_field(out, &rule.name, text),
            Value::Format(format) => {
                write_field(out, &rule.name, &formatted(format, asked.request))
            }
        }
    }
}

/// The value that a format gives for the request. What a client sent cannot end the field: control
/// characters are left out.
fn formatted(format: &AccessFormat, request: &Request) -> Vec<u8> {
    let facts = request.facts();
    let client = SocketAddr::new(access::unmapped(request.client_ip()), facts.client.port());
    let record = AccessRecord {
        local: Some(facts.local),
        method: request.head.method_bytes(),
        url: request.url.as_bytes(),
        version: Some(request.head.version),
        request: Some(&request.head.fields),
        ..AccessRecord::new(request.received, client)
    };
    let mut value = Vec::with_capacity(64);
    format.write(&mut value, &record, false);
    value.retain(|byte| !byte.is_ascii_control());
    value
}
