//! ACLs `external`: the questions to their helpers, and the effect of the answers.

use std::net::IpAddr;
use std::sync::Arc;

use humboldt_acl::{Subject, Told};
use humboldt_conf::{ExternalAclType, ExternalCode, ExternalPart, ExternalQuoting};
use humboldt_helpers::{NoAnswer, Outcome, Reply};
use humboldt_http::Fields;

use crate::config::externals::ExternalAcl;
use crate::config::quoting;
use crate::request::{Request, unmapped};
use crate::rules::login;

/// The key that annotates the connection of the client, as in Squid.
const OF_CONNECTION: &str = "clt_conn_tag";

/// Keys whose values are secrets: they are no annotations.
const SECRET: [&str; 2] = ["password", "token"];

impl Told for Request {
    fn external(&self, number: usize, subject: &Subject<'_>) -> Option<bool> {
        let snapshot = self.snapshot();
        let acl = snapshot.externals.acl(number)?;
        let question = question(self, subject, acl);
        let reply = match self.helped.answer(number, &question) {
            Some(own) => own,
            None => {
                let (kept, is_due) = acl.of.answers.find(&question)?;
                if is_due {
                    refresh(self, acl, question.clone());
                }
                // The same for the whole request, even if it expires meanwhile.
                self.helped.remember(number, question, Ok(Arc::clone(&kept)));
                kept
            }
        };
        learn(self, &reply);
        Some(reply.outcome == Outcome::Ok)
    }

    fn ext_user(&self, test: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        self.helped.facts().and_then(|facts| facts.user.as_deref().map(test)).unwrap_or(false)
    }

    fn tag(&self, test: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        self.helped.facts().and_then(|facts| facts.tag.as_deref().map(test)).unwrap_or(false)
    }
}

/// Asks the helper of an ACL; `false` if it has no answer.
pub(crate) async fn ask(request: &Request, number: usize, subject: &Subject<'_>) -> bool {
    let snapshot = Arc::clone(request.snapshot());
    let Some(acl) = snapshot.externals.acl(number) else { return false };
    let question = question(request, subject, acl);
    // It has been asked, and the list has not made anything of the answer.
    if request.helped.answer(number, &question).is_some() {
        return false;
    }
    let told = match snapshot.helpers.get(acl.of.helper) {
        Some(helper) => acl.of.answers.ask(helper, &question).await,
        None => Err(NoAnswer::NotRunning),
    };
    request.helped.remember(number, question, told)
}

/// Asks again, while the kept answer still serves. Nobody waits for it.
fn refresh(request: &Request, acl: &ExternalAcl, question: Vec<u8>) {
    let Some(helper) = request.snapshot().helpers.get(acl.of.helper).cloned() else { return };
    let of = Arc::clone(&acl.of);
    drop(tokio::task::spawn_local(async move {
        _ = of.answers.ask(&helper, &question).await; // it is kept, or forgotten
    }));
}

/// Takes over the facts of an answer.
fn learn(request: &Request, reply: &Reply) {
    request.helped.learn(reply);
    learn_notes(request, reply);
}

/// Takes over the pairs of an answer as annotations, except secrets. They take the place of those
/// with the same names.
pub(crate) fn learn_notes(request: &Request, reply: &Reply) {
    let mut notes = request.notes.borrow_mut();
    let pairs = || reply.pairs.iter().filter(|(key, _)| !SECRET.contains(&&**key));
    let is_there = |known: &humboldt_base::notes::Notes, key: &str, value: &[u8]| {
        known.values(key).any(|known| known == value)
    };
    if pairs().all(|(key, value)| is_there(&notes, key, value)) {
        return;
    }
    pairs().for_each(|(key, _)| notes.remove(key));
    pairs().for_each(|(key, value)| notes.add(key, value));
    if let Some(tag) = reply.get(OF_CONNECTION) {
        request.facts().notes.borrow_mut().add(OF_CONNECTION, tag);
    }
}

/// The line for the helper. As in Squid a blank is behind each word, except the arguments that the
/// format does not name.
fn question(request: &Request, subject: &Subject<'_>, acl: &ExternalAcl) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    let conf: &ExternalAclType = &acl.of.conf;
    for part in &conf.words {
        let start = out.len();
        write(&mut out, part, part.quoting.unwrap_or(conf.quoting), request, subject, acl);
        if out.len() == start {
            out.push(b'-');
        }
        out.push(b' ');
    }
    if conf.adds_data {
        out.extend_from_slice(if acl.data.is_empty() { b"-" } else { &acl.data });
    }
    out
}

fn write(
    out: &mut Vec<u8>,
    part: &ExternalPart,
    quoting: ExternalQuoting,
    request: &Request,
    subject: &Subject<'_>,
    acl: &ExternalAcl,
) {
    let facts = request.helped.facts();
    let facts = facts.as_deref();
    let user = |out: &mut Vec<u8>, name: Option<&[u8]>| quoting::word(out, name.unwrap_or(b""));
    let login = login::user(request).map(str::as_bytes);
    let ext_user = facts.and_then(|facts| facts.user.as_deref());
    let text = |out: &mut Vec<u8>, text: &[u8]| quoted(out, text, quoting);
    match part.code {
        ExternalCode::ClientIp => address(out, client_ip(request)),
        ExternalCode::ClientPort => number(out, request.facts().client.port()),
        ExternalCode::LocalIp => address(out, subject.local_ip),
        ExternalCode::LocalPort => number(out, subject.local_port),
        ExternalCode::Method => text(out, subject.method),
        ExternalCode::Url => text(out, subject.url),
        ExternalCode::Scheme => text(out, subject.scheme),
        ExternalCode::Host => text(out, subject.host),
        ExternalCode::Port => number(out, subject.port),
        ExternalCode::Path => text(out, subject.path),
        ExternalCode::Version => text(out, request.head.version.number().as_bytes()),
        ExternalCode::RequestField => {
            let fields = subject.request.map(|head| &head.fields);
            text(out, &field(fields, part));
        }
        ExternalCode::ResponseField => {
            let fields = subject.response.map(|head| &head.fields);
            text(out, &field(fields, part));
        }
        ExternalCode::Login => user(out, login),
        ExternalCode::User => user(out, login.or(ext_user)),
        ExternalCode::ExtUser => user(out, ext_user),
        ExternalCode::ExtTag => text(out, facts.and_then(|f| f.tag.as_deref()).unwrap_or(b"")),
        ExternalCode::ExtLog => text(out, facts.and_then(|f| f.log.as_deref()).unwrap_or(b"")),
        ExternalCode::Note => text(out, &note(request, &part.field)),
        ExternalCode::Sni
        | ExternalCode::BumpMode
        | ExternalCode::ServerSubject
        | ExternalCode::ServerIssuer
        | ExternalCode::ServerFaults => text(out, &of_bump(part.code, subject)),
        ExternalCode::Acl => text(out, acl.name.as_bytes()),
        // Each argument is quoted by itself.
        ExternalCode::Data => out.extend_from_slice(&acl.data),
        ExternalCode::Percent => out.push(b'%'),
    }
}

/// A fact about the interception of TLS; empty where it is not known.
fn of_bump(code: ExternalCode, subject: &Subject<'_>) -> Vec<u8> {
    let Some(facts) = subject.bump else { return Vec::new() };
    let certificate = facts.server.as_ref().and_then(|server| server.certificate.as_ref());
    let text = match code {
        ExternalCode::Sni => facts.sni(),
        ExternalCode::BumpMode => facts.action.map(|action| action.name()),
        ExternalCode::ServerSubject => certificate.map(|own| own.subject.line.as_str()),
        ExternalCode::ServerIssuer => certificate.map(|own| own.issuer.line.as_str()),
        _ => return facts.faults().join(":").into_bytes(),
    };
    text.unwrap_or_default().as_bytes().to_vec()
}

fn quoted(out: &mut Vec<u8>, text: &[u8], quoting: ExternalQuoting) {
    match quoting {
        _ if text.is_empty() => {}
        ExternalQuoting::Url => quoting::url(out, text),
        ExternalQuoting::UrlWhole => quoting::url_whole(out, text),
        ExternalQuoting::Shell => quoting::shell(out, text),
        ExternalQuoting::None => quoting::plain(out, text),
    }
}

/// The client as in logs.
fn client_ip(request: &Request) -> IpAddr {
    let is_wanted = request.snapshot().config.log_uses_indirect_client;
    request.indirect_client.filter(|_| is_wanted).unwrap_or_else(|| unmapped(request.client_ip()))
}

fn address(out: &mut Vec<u8>, ip: IpAddr) {
    out.extend_from_slice(ip.to_string().as_bytes());
}

fn number(out: &mut Vec<u8>, number: u16) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// All lines of a field with commas between them, or a member of that list.
fn field(fields: Option<&Fields>, part: &ExternalPart) -> Vec<u8> {
    let Some(fields) = fields else { return Vec::new() };
    let lines: Vec<&[u8]> = fields.get_all_by_name(part.field.as_bytes()).collect();
    let whole = lines.join(&b", "[..]);
    let Some((separator, name)) = &part.member else { return whole };
    let separator = u8::try_from(*separator).unwrap_or(b',');
    let members = whole.split(|byte| *byte == separator).map(<[u8]>::trim_ascii);
    let is_named = |member: &&[u8]| {
        member.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name.as_bytes()))
            && member.get(name.len()).is_none_or(|byte| matches!(byte, b'=' | b' ' | b'\t'))
    };
    let value = |member: &[u8]| match member.iter().position(|byte| *byte == b'=') {
        Some(at) => member.get(at + 1..).unwrap_or_default().trim_ascii().to_vec(),
        None => member.to_vec(),
    };
    members.into_iter().find(is_named).map(value).unwrap_or_default()
}

fn note(request: &Request, name: &str) -> Vec<u8> {
    let notes = request.notes.borrow();
    let values: Vec<&[u8]> = notes.values(name).collect();
    values.join(&b","[..])
}
