//! Answers other caches that ask with ICP whether an object is here.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use humboldt_acl::Late;
use humboldt_conf::HttpPort;
use humboldt_exchange::BodyLength;
use humboldt_http::text::request_head;
use humboldt_logs::access::{AccessRecord, Tag};
use humboldt_net::icp::{self, ICP_BYTES_MAX, IcpSocket, Opcode, Query};

use crate::config::snapshot::Snapshot;
use crate::core::Core;
use crate::lookup::disk;
use crate::lookup::memory;
use crate::request::{ConnFacts, Request, unmapped};
use crate::rules::access;
use crate::transaction::{self, logged_address};

/// Most queries of a core that are looked up on disk at one time. Further ones are lost, as ICP
/// allows.
const QUERIES_MAX: usize = 256;

/// Most replies in a second that say no more than that a query is refused or makes no sense, with
/// their lines in the log: anybody may send such queries, with any address as their sender. Further
/// ones are lost.
const REFUSALS_PER_SECOND_MAX: u32 = 200;

/// Pause after an error of the socket.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// Answers queries for as long as it is polled.
pub async fn answer_queries(core: Rc<Core>, socket: IcpSocket) {
    let Ok(local) = socket.address() else { return };
    let (socket, open) = (Rc::new(socket), Rc::new(Cell::new(0)));
    let refusals = Rc::new(Refusals::default());
    let port = HttpPort {
        port: local.port(),
        name: "icp".to_owned(),
        protocol: "http",
        ..HttpPort::default()
    };
    let port = Arc::new(port);
    let mut buffer = vec![0; ICP_BYTES_MAX];
    loop {
        // An error is about an earlier reply.
        let Ok((bytes, client)) = socket.receive(&mut buffer).await else {
            tokio::time::sleep(RETRY_AFTER).await;
            continue;
        };
        let message = buffer.get(..bytes).unwrap_or_default();
        if icp::parse(message).is_none() || open.get() >= QUERIES_MAX {
            continue;
        }
        open.set(open.get() + 1);
        let (core, place, refusals) =
            (Rc::clone(&core), Place(Rc::clone(&open)), Rc::clone(&refusals));
        let facts = ConnFacts::of_datagram(core.id, (client, local), Arc::clone(&port));
        // The socket is closed when this function is no longer polled, whatever is still open.
        let (socket, message) = (Rc::downgrade(&socket), message.to_vec());
        tokio::task::spawn_local(async move {
            let _place = place;
            if let Some(query) = icp::parse(&message) {
                answer(&core, &socket, Rc::new(facts), &query, &refusals).await;
            }
        });
    }
}

/// The place of a query among the open ones.
struct Place(Rc<Cell<usize>>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// The refusals of the present second.
#[derive(Default)]
struct Refusals {
    second: Cell<i64>,
    count: Cell<u32>,
}

impl Refusals {
    /// Whether there is room for one more.
    fn take(&self, now_s: i64) -> bool {
        if self.second.replace(now_s) != now_s {
            self.count.set(0);
        }
        self.count.set(self.count.get().saturating_add(1));
        self.count.get() <= REFUSALS_PER_SECOND_MAX
    }
}

async fn answer(
    core: &Rc<Core>,
    socket: &Weak<IcpSocket>,
    facts: Rc<ConnFacts>,
    query: &Query<'_>,
    refusals: &Refusals,
) {
    let snapshot = core.snapshot();
    // Without rules nobody may ask, and nothing is read.
    let request = match snapshot.icp_access {
        None => None,
        Some(_) => request(core, &facts, &snapshot, query),
    };
    let is_usable = request.is_some();
    let request = request.unwrap_or_else(|| {
        let mut request = Request::new(&facts, &snapshot);
        request.received = core.now();
        Rc::new(request)
    });
    let (opcode, tag) = match is_usable {
        _ if !may_ask(&request) => (Opcode::Denied, Tag::UdpDenied),
        false => (Opcode::Error, Tag::UdpInvalid),
        true => match is_here(core, &request).await {
            true => (Opcode::Hit, Tag::UdpHit),
            false => (Opcode::Miss, Tag::UdpMiss),
        },
    };
    let is_refusal = matches!(opcode, Opcode::Denied | Opcode::Error);
    if is_refusal && !refusals.take(core.now().secs()) {
        return;
    }
    let reply = icp::reply(opcode, query);
    let Some(socket) = socket.upgrade() else { return };
    socket.send(&reply, facts.client);
    if snapshot.config.log_icp_queries {
        log(core, &request, tag, query, reply.len());
    }
}

/// The request for which the other cache asks; `None` if the URL cannot be used.
fn request(
    core: &Core,
    facts: &Rc<ConnFacts>,
    snapshot: &Arc<Snapshot>,
    query: &Query<'_>,
) -> Option<Rc<Request>> {
    // Nothing of the URL may become another part of the head.
    if query.url.iter().any(|byte| *byte <= b' ' || *byte == 0x7f) {
        return None;
    }
    let host = query.url.split(|byte| *byte == b'/').nth(2)?;
    let text = [b"GET ", query.url, b" HTTP/1.1\r\nHost: ", host, b"\r\n\r\n"].concat();
    let head = request_head(&text, &snapshot.head_limits).ok().flatten()?;
    let mut request = Request::new(facts, snapshot);
    request.head = head;
    request.complete(BodyLength::None, core.now()).ok()?;
    Some(Rc::new(request))
}

/// `icp_access`; nobody without a rule.
fn may_ask(request: &Request) -> bool {
    request.snapshot().icp_access.as_ref().is_some_and(|list| access::matches(list, request))
}

/// Whether a request would be a hit.
async fn is_here(core: &Rc<Core>, request: &Rc<Request>) -> bool {
    let also_stale = request.snapshot().config.icp_hit_stale;
    let found = match memory::look_up(core, request) {
        Ok(_) => return true,
        Err(found) => found,
    };
    if found.stale.is_some() {
        return also_stale;
    }
    if found.knows_enough() || !core.shared.cache.has_dirs() {
        return false;
    }
    match found.key {
        Some(key) => disk::would_be_hit(core, request, key, also_stale).await,
        None => false,
    }
}

fn log(core: &Core, request: &Request, tag: Tag, query: &Query<'_>, reply_bytes: usize) {
    let (facts, now) = (request.facts(), core.now());
    let client = logged_address(request.snapshot(), unmapped(facts.client.ip()));
    let client = SocketAddr::new(client, facts.client.port());
    let record = AccessRecord {
        elapsed_ms: now.since_ms(request.received),
        local: Some(facts.local),
        tag: tag.into(),
        bytes_out: reply_bytes as u64,
        method: b"ICP_QUERY",
        url: query.url,
        notes: Some(&request.notes),
        generation: request.snapshot().generation(),
        number: core.next_number(),
        ..AccessRecord::new(now, client)
    };
    let says = |list: &_| access::says_at_end(list, request, None, &Late::NONE);
    transaction::append(core, &record, |list| says(list).unwrap_or(true));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_of_a_second_are_bounded() {
        let refusals = Refusals::default();
        let taken = |second| (0..1000).filter(|_| refusals.take(second)).count();
        assert_eq!((taken(7), taken(7), taken(8)), (200, 0, 200));
    }
}
