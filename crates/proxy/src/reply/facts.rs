//! The facts that `http_reply_access` needs about an answer.

use std::time::Duration;

use humboldt_store::{FlowReader, StoredHead};
use tokio::time::timeout;

use crate::rules::notes::Before;
use crate::rules::{access, reply};
use crate::transaction::Transaction;

/// Longest wait for the facts, beside the limits of the look-up.
const FACTS_WAIT_MAX: Duration = Duration::from_secs(15);

/// Gets the facts that `http_reply_access` needs to decide about an answer with this head; they
/// stay with the request. `None`: the client has gone.
///
/// The list is asked behind this ([`reply::check`]), and refuses if it needs facts that did not
/// come in time. Without a slow ACL in it nothing is done.
pub(crate) async fn gather(transaction: &Transaction<'_>, head: &StoredHead) -> Option<()> {
    gather_beside(transaction, head, None).await.map(|_| ())
}

/// As [`gather`], for a client that reads a fetch: others who share it do not wait for this client
/// meanwhile. `Some(false)`: the fetch has left it behind, so it has to look again.
pub(crate) async fn gather_beside(
    transaction: &Transaction<'_>,
    head: &StoredHead,
    reader: Option<&FlowReader>,
) -> Option<bool> {
    let (core, request) = (transaction.core, transaction.request);
    let Some((list, response)) = reply::undecided(request, head) else { return Some(true) };
    reader.inspect(|reader| reader.step_aside());
    // The notes that the list sets on the way are for the decision behind this.
    let before = Before::of(request);
    let deciding = Box::pin(async move {
        let decision = access::decide(core, list, request, Some(&response));
        _ = timeout(FACTS_WAIT_MAX, decision).await;
        before.restore(request);
    });
    Box::pin(transaction.while_it_stays(deciding)).await?;
    Some(reader.is_none_or(FlowReader::step_back))
}
