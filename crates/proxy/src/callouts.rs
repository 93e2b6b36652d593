//! The steps of a request that ask helpers about its URL: `http_access` → rewrite →
//! `adapted_http_access` → name of the object. The other steps of [`crate::pipeline`] follow.

use std::pin::pin;
use std::rc::Rc;

use humboldt_base::seldom::Seldom;
use humboldt_exchange::ClientExchange;
use humboldt_http::Url;
use humboldt_logs::access::Tag;

use crate::core::Core;
use crate::errors::ErrorPage;
use crate::outcome::Outcome;
use crate::pipeline::{self, Admission};
use crate::reply::local;
use crate::request::Request;
use crate::rules::own::is_internal;
use crate::rules::rewriting::{self, Failed, Rewritten};
use crate::rules::{budget, denial::Refusal, original, permission};
use crate::transaction::Transaction;

/// The name of an object, if it is not its URL.
type Name = Option<Box<[u8]>>;

/// Takes the steps. The request goes on, or is answered: then it is given back.
pub(crate) async fn run(
    core: &Rc<Core>,
    client: &mut ClientExchange,
    mut request: Rc<Request>,
) -> Result<(Rc<Request>, Admission), Rc<Request>> {
    let mut transaction = Transaction::new(core, client, &request);
    let url = match permit_and_rewrite(&mut transaction).await {
        Ok(url) => url,
        Err(outcome) => {
            transaction.end(outcome);
            return Err(request);
        }
    };
    transaction.suspend();
    if let Some(url) = url {
        Rc::make_mut(&mut request).rewrite(url);
    }
    let mut transaction = Transaction::new(core, client, &request);
    let name = match permit_and_name(&mut transaction).await {
        Ok(name) => name,
        Err(outcome) => {
            transaction.end(outcome);
            return Err(request);
        }
    };
    transaction.suspend();
    match name {
        Ok(None) => {}
        Ok(Some(name)) => Rc::make_mut(&mut request).set_store_id(name),
        Err(why) => {
            static SELDOM: Seldom = Seldom::new();
            rewriting::warn(&SELDOM, "store_id_program", &request, &why);
            let namer = request.snapshot().rewriting.namer.as_ref();
            if namer.is_some_and(|namer| !namer.bypass) {
                request.may_use_cache.get_or_init(|| false);
            }
        }
    }
    let admission = pipeline::admit_permitted(core, &request);
    Ok((request, admission))
}

/// Asks `http_access`, and then the helper that rewrites. Of an intercepted connection the address
/// that the client chose is verified before.
async fn permit_and_rewrite(transaction: &mut Transaction<'_>) -> Result<Option<Url>, Outcome> {
    let (core, request) = (transaction.core, transaction.request);
    if original::is_unverified(request) {
        match transaction.while_it_stays(pin!(original::verify(core, request))).await {
            None => return Err(gone(transaction)),
            Some(Err(refusal)) => return Err(refused(transaction, refusal).await),
            Some(Ok(())) => {}
        }
    }
    let deciding = permission::decide_http_access(core, request);
    match transaction.while_it_stays(pin!(deciding)).await {
        None => return Err(gone(transaction)),
        Some(Err(refusal)) => return Err(refused(transaction, refusal).await),
        Some(Ok(())) => {}
    }
    if let Err(refusal) = budget::admit(core, request) {
        return Err(refused(transaction, refusal).await);
    }
    if is_internal(request) {
        return Ok(None);
    }
    match transaction.while_it_stays(pin!(rewriting::rewrite(core, request))).await {
        None => Err(gone(transaction)),
        Some(Ok(Rewritten::Unchanged)) => Ok(None),
        Some(Ok(Rewritten::Url(url))) => Ok(Some(url)),
        Some(Ok(Rewritten::Redirect(status, url))) => {
            let answer = local::redirect(core, status, &url);
            let outcome = Outcome::local(Tag::Redirect, status);
            Err(Box::pin(local::send(transaction, answer, outcome)).await)
        }
        Some(Err(Failed::Refused(refusal))) => Err(refused(transaction, refusal).await),
        Some(Err(Failed::NoAnswer(why))) => {
            let why = format!("url_rewrite_program: {why}");
            Err(local::error(transaction, ErrorPage::GatewayFailure, &why).await)
        }
    }
}

/// Asks `adapted_http_access`, and then the helper that names objects; the inner error says why it
/// has no answer.
async fn permit_and_name(
    transaction: &mut Transaction<'_>,
) -> Result<Result<Name, String>, Outcome> {
    let (core, request) = (transaction.core, transaction.request);
    let deciding = permission::decide_adapted_access(core, request);
    match transaction.while_it_stays(pin!(deciding)).await {
        None => return Err(gone(transaction)),
        Some(Err(refusal)) => return Err(refused(transaction, refusal).await),
        Some(Ok(())) => {}
    }
    if is_internal(request) {
        return Ok(Ok(None));
    }
    let naming = transaction.while_it_stays(pin!(rewriting::name(core, request))).await;
    naming.ok_or_else(|| gone(transaction))
}

fn gone(transaction: &Transaction<'_>) -> Outcome {
    transaction.client_gone(Outcome::local(Tag::None, 0))
}

async fn refused(transaction: &mut Transaction<'_>, refusal: Refusal) -> Outcome {
    local::refused(transaction, refusal, None).await
}
