//! The rest of an answer, fetched from the server. A client needs it if it left a fetch it shared,
//! or if its copy on disk turned out to be unreadable. Two answers are never mixed.

use std::pin::pin;
use std::rc::Rc;

use humboldt_http::FieldName;
use humboldt_http::range::ContentRange;
use humboldt_store::{FlowHead, FlowReader, ReaderKind};

use crate::core::Core;
use crate::fetch::converse::converse;
use crate::fetch::job::{Job, Report};
use crate::fetch::validator::strong_validator;
use crate::reply::stream::{Ended, Relay};
use crate::request::Request;
use crate::rules::permission;
use crate::storing::deliver;
use crate::transaction::Transaction;

/// How often one answer may continue from the server.
const RESUMES_MAX: usize = 3;

/// Continues an answer whose copy on disk cannot be read further. The server is asked for the rest
/// by a range request, or for the whole answer, which must begin with the bytes that the client
/// has. Ends when the client has gone.
pub(crate) async fn resume(
    transaction: &mut Transaction<'_>,
    head: &FlowHead,
    relay: &mut Relay<'_>,
    why: Ended,
) -> Ended {
    let (core, request) = (transaction.core, transaction.request);
    let mut ended = why;
    for _ in 0..RESUMES_MAX {
        let position = relay.body_bytes_taken();
        let search = async {
            let found = from_server(core, request, head, position).await;
            if found.is_some() { found } else { relay.once_more().await }
        };
        let found = transaction.while_it_stays(pin!(search)).await;
        let Some(found) = found else { return Ended::ClientLost(transaction.client.lost()) };
        let Some(mut reader) = found else { return ended };
        ended = relay.run(transaction.core, transaction.client, &mut reader).await;
        if !ended.is_lost() {
            break;
        }
    }
    ended
}

/// Fetches the rest of an answer from `position` on. This needs a strong validator, so that two
/// answers are never mixed (RFC 9110 14.3 and 13.1.5).
pub(crate) async fn from_server(
    core: &Rc<Core>,
    request: &Rc<Request>,
    head: &FlowHead,
    position: u64,
) -> Option<FlowReader> {
    let stored = head.head.to_response_head();
    let name = strong_validator(&stored)?;
    let validator = stored.fields.get(name)?;
    let total = head.info.body_bytes?;
    // A client that is served from disk has not passed `miss_access` yet.
    permission::may_miss(core, request).await.ok()?;
    let mut again = request.for_range(position, None, Some(validator));
    again.received = core.now();
    let job = Job::new(&Rc::new(again), None, false, &Report::new());
    let mut writer = core.shared.cache.private(request.key, request.key);
    let answer = converse(core, &job, &mut writer).await.ok()?;
    let is_rest = match answer.head.status {
        206 => answer
            .head
            .fields
            .get(FieldName::ContentRange)
            .and_then(ContentRange::parse)
            .is_some_and(|range| {
                range.complete_bytes == Some(total)
                    && range
                        .range
                        .is_some_and(|part| part.first == position && part.last + 1 == total)
            }),
        // A whole answer will do if nothing was sent: not every server supports ranges.
        200 => position == 0 && answer.body_bytes() == Some(total),
        _ => false,
    };
    if !is_rest || answer.head.fields.get(name) != Some(validator) {
        return None;
    }
    let reader = writer.subscribe(ReaderKind::Client);
    deliver::go_on(core, job, answer, writer);
    reader
}
