//! The facts that `http_reply_access` needs about an answer.

use std::time::Duration;

use humboldt_store::StoredHead;
use tokio::time::timeout;

use crate::rules::reply;
use crate::transaction::Transaction;

/// Longest wait. Clients that share a fetch may have to wait for the one whose answer is not
/// decided.
const FACTS_WAIT_MAX: Duration = Duration::from_secs(15);

/// Gets the facts that `http_reply_access` needs to decide about an answer with this head; they
/// stay with the request. `None`: the client has gone.
///
/// The list is asked behind this ([`reply::check`]), and refuses if it needs facts that did not
/// come in time. Without a slow ACL in it nothing is done.
pub(crate) async fn gather(transaction: &Transaction<'_>, head: &StoredHead) -> Option<()> {
    let (core, request) = (transaction.core, transaction.request);
    if !reply::needs_facts(request, head) {
        return Some(());
    }
    let deciding = Box::pin(timeout(FACTS_WAIT_MAX, reply::get_facts(core, request, head)));
    Box::pin(transaction.while_it_stays(deciding)).await.map(|_| ())
}
