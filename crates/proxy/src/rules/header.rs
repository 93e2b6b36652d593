//! Applies the rules about header fields to a request or an answer: `request_header_access`,
//! `reply_header_access` and related directives.

use std::borrow::Cow;

use humboldt_acl::RuleList;
use humboldt_conf::HeaderRule;
use humboldt_exchange::{BodyLength, ReplyHead, ReplySink, collect};
use humboldt_http::{FieldName, FieldSink, Fields, ResponseHead};
use humboldt_store::StoredHead;

use crate::config::header_rules::{Addition, MessageRules, Value};
use crate::request::Request;
use crate::rules::{access, format};

/// The decision of the rules about a field of a message.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ruling<'a> {
    /// It goes on as it is.
    Kept,
    /// It goes on with this value.
    Replaced(&'a [u8]),
    /// It is left out.
    Removed,
}

/// The decision about a field of the request on its way to the server.
pub(crate) fn of_request<'r>(request: &'r Request, name: &[u8]) -> Ruling<'r> {
    let rules = &request.snapshot().header_rules;
    ruling(&rules.request, Asked { request, answer: None }, name)
}

/// The fields of the request with the rules applied, as its server gets them: they select the
/// variant of an answer that varies.
pub(crate) fn as_asked(request: &Request) -> Cow<'_, Fields> {
    let fields = &request.head.fields;
    if request.snapshot().header_rules.request.is_empty() {
        return Cow::Borrowed(fields);
    }
    let mut asked = Fields::default();
    fields.iter().for_each(|(_, name, value)| pass_to_server(&mut asked, request, name, value));
    add_to_request(&mut asked, request);
    Cow::Owned(asked)
}

/// Appends a field of the request, if and as the rules let its server have it.
pub(crate) fn pass_to_server(
    out: &mut impl FieldSink,
    request: &Request,
    name: &[u8],
    value: &[u8],
) {
    match of_request(request, name) {
        Ruling::Kept => out.field(name, value),
        Ruling::Replaced(text) => out.field(name, text),
        Ruling::Removed => {}
    }
}

/// Appends the fields that rules add to the request.
pub(crate) fn add_to_request(out: &mut impl FieldSink, request: &Request) {
    add(&request.snapshot().header_rules.request.add, out, Asked { request, answer: None });
}

/// The head of an answer with the rules applied for the client of `request`.
///
/// Every answer to a request that could be read goes out in this form. The rules apply when the
/// proxy sends, also to its own fields, so the stored head can be the one that the server sent.
pub(crate) struct Ruled<'a, H> {
    /// The head without rules.
    pub head: &'a H,
    /// The request of the client that gets it.
    pub request: &'a Request,
    /// The length of the body, since rules may ask for it.
    pub length: BodyLength,
}

/// Whether there are rules about answers at all.
pub(crate) fn concern_answers(request: &Request) -> bool {
    !request.snapshot().header_rules.reply.is_empty()
}

impl<H: ReplyHead> ReplyHead for Ruled<'_, H> {
    fn status(&self) -> u16 {
        self.head.status()
    }

    fn write<S: ReplySink>(&self, sink: &mut S) {
        let rules = &self.request.snapshot().header_rules;
        let answer = rules.asks_answer.then(|| self.collect());
        let asked = Asked { request: self.request, answer: answer.as_ref() };
        self.head.write(&mut Filter {
            rules: &rules.reply,
            asked,
            out: sink,
            replaced: Vec::new(),
        });
        add(&rules.reply.add, sink, asked);
    }

    fn write_unruled<S: ReplySink>(&self, sink: &mut S) {
        self.head.write_unruled(sink);
    }
}

impl<H: ReplyHead> Ruled<'_, H> {
    /// The whole head, for ACLs that need it.
    fn collect(&self) -> ResponseHead {
        let mut head = collect(self.head);
        match self.length {
            BodyLength::Known(bytes) => {
                head.fields
                    .push(FieldName::ContentLength, itoa::Buffer::new().format(bytes).as_bytes());
            }
            BodyLength::Unknown => head.fields.push(FieldName::TransferEncoding, b"chunked"),
            BodyLength::None => {}
        }
        head
    }
}

/// Passes on the fields that the rules permit.
struct Filter<'a, S> {
    rules: &'a MessageRules,
    asked: Asked<'a>,
    out: &'a mut S,
    /// Names of replaced fields: each is written once.
    replaced: Vec<Vec<u8>>,
}

impl<S: ReplySink> FieldSink for Filter<'_, S> {
    fn parts(&mut self, name: &[u8], value: &[&[u8]]) {
        if is_framing(name) {
            return self.out.parts(name, value);
        }
        match ruling(self.rules, self.asked, name) {
            Ruling::Kept => self.out.parts(name, value),
            Ruling::Removed => {}
            Ruling::Replaced(_)
                if self.replaced.iter().any(|earlier| earlier.eq_ignore_ascii_case(name)) => {}
            Ruling::Replaced(value) => {
                self.out.field(name, value);
                self.replaced.push(name.to_vec());
            }
        }
    }
}

impl<S: ReplySink> ReplySink for Filter<'_, S> {
    fn status(&mut self, status: u16, reason: &[u8]) {
        self.out.status(status, reason);
    }
}

/// Removes the trailer fields that the rules do not let the client have. Trailer fields are never
/// replaced. `head` is the head of the answer.
pub(crate) fn apply_to_trailers(trailers: &mut Fields, head: &StoredHead, request: &Request) {
    let rules = &request.snapshot().header_rules;
    if rules.reply.access.is_empty() {
        return;
    }
    let answer = rules.asks_answer.then(|| head.to_response_head());
    let asked = Asked { request, answer: answer.as_ref() };
    let names: Vec<Vec<u8>> = trailers.iter().map(|(_, name, _)| name.to_vec()).collect();
    for name in names {
        if ruling(&rules.reply, asked, &name) != Ruling::Kept {
            trailers.remove_by_name(&name);
        }
    }
}

/// The messages that the conditions of rules are asked about.
#[derive(Copy, Clone)]
struct Asked<'a> {
    request: &'a Request,
    /// The answer, if an ACL needs it.
    answer: Option<&'a ResponseHead>,
}

impl Asked<'_> {
    /// Whether the list matches; `None` if it has no answer.
    fn matches(self, list: &RuleList) -> Option<bool> {
        access::says(list, self.request, self.answer)
    }
}

/// Fields that frame the message. No rule touches them, since without them a client would misread
/// the bytes that follow.
fn is_framing(name: &[u8]) -> bool {
    use FieldName as F;
    matches!(
        F::from_bytes(name),
        F::ContentLength | F::TransferEncoding | F::ContentRange | F::Connection | F::Upgrade
    )
}

fn ruling<'a>(rules: &'a MessageRules, asked: Asked<'_>, name: &[u8]) -> Ruling<'a> {
    if rules.access.is_empty() || keeps(&rules.access, asked, name) {
        return Ruling::Kept;
    }
    // As in Squid, the last line about a field counts.
    let mut matching =
        rules.replace.iter().rev().filter(|rule| name.eq_ignore_ascii_case(rule.header.as_bytes()));
    matching.next().map_or(Ruling::Removed, |rule| Ruling::Replaced(rule.value.as_bytes()))
}

/// The first match wins: first among the rules for the field's own name, then among those for
/// `Other` (fields that the program has no name for) and `All`.
fn keeps(rules: &[(HeaderRule, RuleList)], asked: Asked<'_>, name: &[u8]) -> bool {
    let is_other = FieldName::from_bytes(name) == FieldName::Other;
    let matching = |wanted: &str| {
        rules
            .iter()
            .filter(|(rule, _)| rule.header.eq_ignore_ascii_case(wanted))
            // Without an answer, a rule that allows does not apply, and one that denies does.
            .find(|(rule, list)| asked.matches(list).unwrap_or(!rule.rule.allow))
            .map(|(rule, _)| rule.rule.allow)
    };
    let own = std::str::from_utf8(name).ok().and_then(matching);
    own.or_else(|| if is_other { matching("Other") } else { None })
        .or_else(|| matching("All"))
        .unwrap_or(true)
}

fn add(rules: &[Addition], out: &mut impl FieldSink, asked: Asked<'_>) {
    for rule in rules.iter().filter(|rule| asked.matches(&rule.condition) == Some(true)) {
        match &rule.value {
            Value::Text(text) => out.field(&rule.name, text),
            Value::Format(format) => out.field(&rule.name, &format::early(format, asked.request)),
        }
    }
}
