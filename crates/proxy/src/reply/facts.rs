//! The facts that `http_reply_access` needs about an answer.

use humboldt_store::StoredHead;

use crate::rules::reply;
use crate::transaction::Transaction;

/// Gets the facts that `http_reply_access` needs to decide about an answer with this head; they
/// stay with the request. `None`: the client has gone.
///
/// The list is asked behind this ([`reply::check`]). Without a slow ACL in it nothing is done.
pub(crate) async fn gather(transaction: &Transaction<'_>, head: &StoredHead) -> Option<()> {
    let (core, request) = (transaction.core, transaction.request);
    if !reply::needs_facts(request, head) {
        return Some(());
    }
    let deciding = Box::pin(reply::get_facts(core, request, head));
    Box::pin(transaction.while_it_stays(deciding)).await
}
