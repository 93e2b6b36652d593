//! Asks the rules about the interception of TLS.

use std::rc::Rc;

use humboldt_acl::{ActionList, Choice, Late, Question, Subject, Weight};
use humboldt_base::bump::{BumpAction, BumpFacts, BumpStep, ServerIdentity, SignAs};
use humboldt_base::rng::Rng;
use humboldt_conf::{BumpVerb, CertAdapt};

use crate::core::Core;
use crate::request::Request;
use crate::rules::access::{self, QUESTIONS_MAX};
use crate::rules::notes::Before;

/// The action of `ssl_bump` at a step, after that of the step before. A list that has no answer
/// ends the connection.
pub(crate) async fn action(
    core: &Core,
    request: &Request,
    step: BumpStep,
    before: Option<BumpAction>,
) -> BumpAction {
    choose(core, request, step, before).await.action
}

/// What `ssl_bump` chooses.
pub(crate) struct Chosen {
    pub(crate) action: BumpAction,
    /// It is so because nothing shows whether a rule applies.
    pub(crate) is_guarded: bool,
}

/// As [`action`], with more about it.
pub(crate) async fn choose(
    core: &Core,
    request: &Request,
    step: BumpStep,
    before: Option<BumpAction>,
) -> Chosen {
    let certain = |action| Chosen { action, is_guarded: false };
    let in_doubt = |is_known_later| {
        let action = BumpAction::in_doubt(step, before, is_known_later);
        Chosen { action, is_guarded: true }
    };
    let list = &request.snapshot().ssl_bump;
    let weigh = |verb: &BumpVerb| Weight::of_bump(*verb, step, before);
    let mut questions = 0;
    loop {
        let notes = Before::of(request);
        let choice = check(list, request, &access::subject(request), weigh);
        let question = match choice {
            Choice::Rule(index) => {
                let verb = list.rule(index).map(|(verb, _)| verb);
                let action = verb.and_then(|verb| verb.at(step));
                return certain(action.unwrap_or(BumpAction::Terminate));
            }
            // Only rules that close guard.
            Choice::Guard(_) => {
                return Chosen { action: BumpAction::Terminate, is_guarded: true };
            }
            Choice::None => return certain(BumpAction::without_a_rule(before)),
            Choice::Later => return in_doubt(true),
            Choice::Untold => return in_doubt(false),
            Choice::Challenge(acl) => {
                tracing::debug!("ssl_bump: acl {acl} needs a login, and there is none");
                return certain(BumpAction::Terminate);
            }
            Choice::Needs(question) => question,
        };
        notes.restore_of_client(request);
        questions += 1;
        let subject = access::subject(request);
        let is_answered =
            questions <= QUESTIONS_MAX && access::answer(core, request, &subject, question).await;
        if !is_answered {
            tracing::debug!("ssl_bump: acl {}: there is no answer", question.acl());
            return certain(BumpAction::Terminate);
        }
        notes.restore_own(request);
    }
}

/// Checks a list, with the same random bits whenever it is asked about one request, and asks the
/// kernel where the list needs that.
fn check<'l, A>(
    list: &'l ActionList<A>,
    request: &Request,
    subject: &Subject<'_>,
    weigh: impl Fn(&A) -> Option<Weight>,
) -> Choice<'l> {
    let random = request.snapshot().uses_random.then(|| {
        let of_request = *request.random.get_or_init(access::random);
        Rng::new(of_request ^ std::ptr::from_ref(list).addr() as u64).next_u64()
    });
    let mut known = subject.known;
    // Each of the kernel's two facts is asked for once.
    for _ in 0..2 {
        let choice = list.check(&Subject { random, known, ..*subject }, &weigh);
        match choice {
            Choice::Needs(Question::Hardware { .. }) if known.hardware.is_none() => {
                known.hardware = access::hardware(subject);
            }
            Choice::Needs(Question::Mark { .. }) if known.mark.is_none() => {
                known.mark = request.facts().netfilter_mark();
            }
            other => return other,
        }
    }
    list.check(&Subject { random, known, ..*subject }, &weigh)
}

/// Whether what is no TLS passes unread (`on_unsupported_protocol`). `error`: the reason, as the
/// ACL `squid_error` names it.
pub(crate) fn tunnels_others(request: &Request, error: &str) -> bool {
    let late = Late { error: Some(error), ..Late::NONE };
    let subject = Subject { late: &late, ..access::subject(request) };
    let list = &request.snapshot().unsupported_protocol;
    let weigh = |tunnels: &bool| Some(if *tunnels { Weight::Opens } else { Weight::Closes });
    match check(list, request, &subject, weigh) {
        Choice::Rule(index) => list.rule(index).is_some_and(|(tunnels, _)| *tunnels),
        Choice::None | Choice::Guard(_) | Choice::Later | Choice::Untold => false,
        Choice::Needs(_) | Choice::Challenge(_) => false,
    }
}

/// Whether a fault of a server's certificate is forgiven (`sslproxy_cert_error`). A list without an
/// answer forgives nothing.
pub(crate) fn forgives(request: &Request, server: &Rc<ServerIdentity>, fault: &str) -> bool {
    let Some(list) = &request.snapshot().cert_error else { return false };
    let facts = with_server(request, server);
    let late = Late { tls_fault: Some(fault), ..Late::NONE };
    let subject = Subject { bump: Some(&facts), late: &late, ..access::subject(request) };
    access::allows_at_once(list, request, &subject)
}

fn with_server(request: &Request, server: &Rc<ServerIdentity>) -> BumpFacts {
    let facts = request.bump().cloned();
    let facts =
        facts.unwrap_or_else(|| BumpFacts::new(&String::from_utf8_lossy(request.url.host())));
    BumpFacts { server: Some(Rc::clone(server)), ..facts }
}

/// The faults that a certificate has that was made after the server's.
const MIMICKED: [&str; 3] = [
    "X509_V_ERR_CERT_HAS_EXPIRED",
    "X509_V_ERR_CERT_NOT_YET_VALID",
    "SQUID_X509_V_ERR_DOMAIN_MISMATCH",
];

/// The faults of `ssl::certUntrusted` and `ssl::certSelfSigned`.
const OF_ISSUER: [&str; 2] =
    ["X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY", "X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT"];

/// Who signs the certificate that is made after this server's (`sslproxy_cert_sign`). Without a
/// rule it fails as the server's does.
pub(crate) fn sign(request: &Request, server: &Rc<ServerIdentity>) -> SignAs {
    let list = &request.snapshot().cert_sign;
    let facts = with_server(request, server);
    let subject = Subject { bump: Some(&facts), ..access::subject(request) };
    let weigh = |sign: &SignAs| {
        Some(if *sign == SignAs::Trusted { Weight::Opens } else { Weight::Neutral })
    };
    if let Choice::Rule(index) = check(list, request, &subject, weigh)
        && let Some((sign, _)) = list.rule(index)
    {
        // Squid's own lists sign all with the authority that is in no list of faults. A fault that
        // none of those lists knows, and that the certificate does not show, must not end there.
        let is_known = |fault: &&str| MIMICKED.contains(fault) || OF_ISSUER.contains(fault);
        return match sign {
            SignAs::Trusted if !server.faults.iter().all(is_known) => SignAs::Untrusted,
            sign => *sign,
        };
    }
    let faults = &server.faults;
    if faults.iter().any(|fault| fault.contains("SELF_SIGNED_CERT")) {
        return SignAs::SelfSigned;
    }
    // A fault that no certificate shows by itself makes its authority one that nobody knows.
    match faults.iter().all(|fault| MIMICKED.contains(fault)) {
        true => SignAs::Trusted,
        false => SignAs::Untrusted,
    }
}

/// The changes to that certificate (`sslproxy_cert_adapt`): the first of each kind.
pub(crate) fn changes<'r>(request: &'r Request, server: &Rc<ServerIdentity>) -> Vec<&'r CertAdapt> {
    let list = &request.snapshot().cert_adapt;
    let facts = with_server(request, server);
    let subject = Subject { bump: Some(&facts), ..access::subject(request) };
    let mut found: Vec<&CertAdapt> = Vec::new();
    loop {
        let weigh = |adapt: &CertAdapt| {
            let is_new = |other: &&CertAdapt| {
                std::mem::discriminant(*other) == std::mem::discriminant(adapt)
            };
            (!found.iter().any(is_new)).then_some(Weight::Opens)
        };
        let Choice::Rule(index) = check(list, request, &subject, weigh) else { return found };
        match list.rule(index) {
            Some((adapt, _)) => found.push(adapt),
            None => return found,
        }
    }
}
