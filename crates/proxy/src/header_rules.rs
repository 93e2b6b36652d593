//! Rules about header fields: `request_header_access`, `request_header_replace`, `request_header_add`, and the same for
//! answers.

use std::net::SocketAddr;

use humboldt_acl::{AclError, AclSet, RuleList};
use humboldt_conf::{Config, HeaderAdd, HeaderReplace, HeaderRule};
use humboldt_http::h1::write_field;
use humboldt_http::{FieldName, Fields};
use humboldt_logs::access::{AccessFormat, AccessRecord, LogFormat};

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
        })
    }

    /// What becomes of a field of the request on its way to the server.
    pub(crate) fn request_field(&self, request: &Request, name: &[u8]) -> Fate<'_> {
        fate(&self.request, &self.request_replace, request, name)
    }

    /// Whether a field of the answer is left out on its way to the client. One with a replacement is not: see
    /// [`HeaderRules::replace_in_reply`].
    pub(crate) fn drops_reply_field(&self, request: &Request, name: &[u8]) -> bool {
        fate(&self.reply, &self.reply_replace, request, name) == Fate::Removed
    }

    /// Gives fields of the answer the values that replace them.
    pub(crate) fn replace_in_reply(&self, request: &Request, fields: &mut Fields) {
        for rule in &self.reply_replace {
            let name = rule.header.as_bytes();
            if fields.get_by_name(name).is_some()
                && let Fate::Replaced(value) = fate(&self.reply, &self.reply_replace, request, name)
            {
                fields.remove_by_name(name);
                fields.push_named(name, value);
            }
        }
    }

    /// Appends the fields that rules add to the request.
    pub(crate) fn add_to_request(&self, out: &mut Vec<u8>, request: &Request) {
        add(&self.request_add, out, request);
    }

    /// Appends the fields that rules add to the answer.
    pub(crate) fn add_to_reply(&self, out: &mut Vec<u8>, request: &Request) {
        add(&self.reply_add, out, request);
    }
}

fn fate<'a>(
    rules: &[(HeaderRule, RuleList)],
    replacements: &'a [HeaderReplace],
    request: &Request,
    name: &[u8],
) -> Fate<'a> {
    if rules.is_empty() || keeps(rules, request, name) {
        return Fate::Kept;
    }
    // As in Squid the last line about a field counts.
    let mut matching =
        replacements.iter().rev().filter(|rule| name.eq_ignore_ascii_case(rule.header.as_bytes()));
    matching.next().map_or(Fate::Removed, |rule| Fate::Replaced(rule.value.as_bytes()))
}

/// First match wins among the rules for the field's own name; then among those for `Other` (fields without a name of their
/// own in the program) and `All`.
fn keeps(rules: &[(HeaderRule, RuleList)], request: &Request, name: &[u8]) -> bool {
    let is_other = FieldName::from_bytes(name) == FieldName::Other;
    let matching = |wanted: &str| {
        rules
            .iter()
            .filter(|(rule, _)| rule.header.eq_ignore_ascii_case(wanted))
            .find(|(_, list)| access::matches(list, request))
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

fn add(rules: &[Addition], out: &mut Vec<u8>, request: &Request) {
    for rule in rules.iter().filter(|rule| access::matches(&rule.condition, request)) {
        match &rule.value {
            Value::Text(text) => write_field(out, &rule.name, text),
            Value::Format(format) => write_field(out, &rule.name, &formatted(format, request)),
        }
    }
}

/// The value that a format gives for the request. What a client sent cannot end the field: control characters are left
/// out.
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
