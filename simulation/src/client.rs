//! The clients.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use humboldt_exchange::BodyLength;
use humboldt_exchange::memory::{self, Answer, Client, End};
use humboldt_http::h1::{self, Framing};
use humboldt_http::{HeadLimits, RequestHead};
use humboldt_proxy::answer_one;
use humboldt_runtime::turns;

use crate::bodies::{Body, mix};
use crate::chance::Chance;
use crate::clock;
use crate::oracle::{Asked, Kind, Reader};
use crate::origin::etag;
use crate::plan::Plan;
use crate::site::{Resource, VARIANTS};
use crate::trace;
use crate::world::World;

/// Longest time that a request may take: all time limits of the proxy together.
const ENDS_WITHIN: Duration = Duration::from_secs(3 * 3600);

/// Time between two requests of a calm client: what has come by then has been stored.
const CALM_PAUSE: Duration = Duration::from_secs(5);

/// Longest time that a request may go on without its client: a second, and late turns.
const GONE_WITHIN: Duration = Duration::from_secs(3);

/// The body of a request.
pub(crate) fn upload(id: u64) -> Body {
    let bytes = [0, 10, 5_000, 100_000][(id % 4) as usize];
    Body { identity: mix(id), bytes }
}

/// How a client reads.
#[derive(Copy, Clone, Debug)]
enum Manner {
    /// As fast as it can.
    Fast,
    /// This many bytes at a time, with pauses of up to this many ms.
    Slow(usize, u64),
    /// It leaves after this many ms.
    Leaves(u64),
    /// It reads this many bytes, and leaves.
    LeavesAt(usize),
    /// It reads this many bytes, takes none for this many ms, and then the rest.
    Stops(usize, u64),
}

impl Manner {
    fn new(plan: &Plan, chance: &mut Chance) -> Self {
        if chance.per_mille(plan.leaves_per_mille) {
            return match chance.below(2) {
                0 => Self::Leaves(chance.below(2 * plan.server_ms + 10)),
                _ => Self::LeavesAt(chance.below(200_000) as usize),
            };
        }
        if !chance.per_mille(plan.slow_per_mille) {
            return Self::Fast;
        }
        match chance.one(&[(500, 10), (5_000, 300), (60_000, 3_000), (0, 60_000)]) {
            (0, most_ms) => Self::Stops(chance.below(200_000) as usize, chance.below(most_ms)),
            (bytes, pause_ms) => Self::Slow(bytes, pause_ms),
        }
    }

    /// Bytes that the client takes before it has to read.
    fn window(self) -> usize {
        match self {
            Self::Fast | Self::Leaves(_) => usize::MAX,
            Self::Slow(bytes, _) | Self::LeavesAt(bytes) | Self::Stops(bytes, _) => bytes,
        }
    }

    /// Whether it may be cut off because others wait for it.
    fn may_be_held_up(self) -> bool {
        matches!(self, Self::Stops(_, ms) if ms >= HELD_UP_MS)
    }
}

/// Time for which a client may take no bytes while others wait for it, and a little less.
const HELD_UP_MS: u64 = 14_000;

/// One client: one request after the other.
pub(crate) async fn run(world: Rc<World>, number: u64) {
    let mut chance = Chance::new(world.plan.seed, 1000 + number + 100 * world.life);
    for _ in 0..world.plan.requests {
        tokio::time::sleep(chance.delay(world.plan.client_ms)).await;
        if world.plan.is_calm {
            tokio::time::sleep(CALM_PAUSE).await;
        }
        let resource =
            &world.site.resources[chance.below(world.site.resources.len() as u64) as usize];
        one(&world, resource, &mut chance, number).await;
    }
}

async fn one(world: &Rc<World>, resource: &Resource, chance: &mut Chance, number: u64) {
    let plan = &world.plan;
    let kind = chance.weighted(&[
        (60, Kind::Get),
        (5, Kind::Head),
        (8, Kind::Range),
        (6, Kind::IfNoneMatch),
        (plan.insists, Kind::Reload),
        (3, Kind::MaxAge0),
        (2, Kind::OnlyIfCached),
        (2, Kind::NoStore),
        (plan.writes, Kind::Write),
        (plan.purges, Kind::Purge),
        (plan.purges / 3, Kind::PurgeTag),
        (plan.purges / 3, Kind::PurgePrefix),
    ]);
    let manner = Manner::new(plan, chance);
    let asked = Asked::new(world, resource, kind, chance);
    trace::line(|| format!("client {number}: {} {kind:?} {} {manner:?}", asked.id, asked.url()));
    let (answer, has_left) = play(world, &asked, manner, chance, number).await;
    trace::line(|| {
        let head = answer.head.as_ref();
        let version = head.and_then(|head| head.fields.get_by_name(b"X-Version"));
        let version = version.map(|text| String::from_utf8_lossy(text).into_owned());
        let status = head.and_then(|head| head.fields.get_by_name(b"Cache-Status"));
        let status = status.map(|text| String::from_utf8_lossy(text).into_owned());
        if head.is_some_and(|head| head.status >= 500) {
            trace::line(|| String::from_utf8_lossy(&answer.body).replace('\n', " "));
        }
        format!(
            "client {number}: {} has {:?} version {version:?}, {} bytes, {:?}, {status:?}",
            asked.id,
            head.map(|head| head.status),
            answer.body.len(),
            answer.end
        )
    });
    asked.check(world, &answer, Reader { has_left, may_be_held_up: manner.may_be_held_up() });
    asked.check_rules(world, &answer, number);
}

/// The address of a client. Those of even numbers are staff.
fn address_of(number: u64) -> IpAddr {
    let net = if is_staff(number) { 100 } else { 101 };
    IpAddr::V4(Ipv4Addr::new(198, 51, net, number as u8))
}

/// Whether a client sees what the rules keep from guests.
pub(crate) fn is_staff(number: u64) -> bool {
    number.is_multiple_of(2)
}

/// Plays a request to its end.
async fn play(
    world: &Rc<World>,
    asked: &Asked<'_>,
    manner: Manner,
    chance: &mut Chance,
    number: u64,
) -> (Answer, bool) {
    let head = parse(&asked.text());
    let is_head = head.method == humboldt_http::Method::Head;
    let length = match h1::request_framing(&head) {
        Ok(Framing::Length(bytes)) => BodyLength::Known(bytes),
        Ok(Framing::Chunked) => BodyLength::Unknown,
        _ => BodyLength::None,
    };
    let (mut exchange, client) = memory::client(is_head, length, manner.window());
    if chance.per_mille(world.plan.parts_per_mille) {
        client.take_parts(parts(Chance::new(chance.below(u64::MAX), 5)));
        world.site.totals.add("clients that take parts", 1);
    }
    let client = Rc::new(client);
    let core = Rc::clone(&world.cores[chance.below(world.cores.len() as u64) as usize]);
    let port = std::sync::Arc::clone(&world.port);
    let address = SocketAddr::new(address_of(number), 4000);
    let (site, id) = (Rc::clone(&world.site), asked.id);
    let answering = async move {
        site.begins(id);
        answer_one(&core, address, &port, &mut exchange, head).await;
    };
    let task = match world.plan.late_per_mille {
        0 => tokio::task::spawn_local(answering),
        _ => turns::spawn_local(answering),
    };
    if asked.kind == Kind::Write {
        send(&client, asked.id, chance).await;
    }
    let has_left = read(&client, manner, chance).await;
    let limit = if has_left { GONE_WITHIN } else { ENDS_WITHIN };
    let ends = tokio::time::timeout(limit, task).await;
    match ends {
        Err(_) if has_left => {
            let id = asked.id;
            world.site.wrong(format!("request {id} goes on although its client has left"));
        }
        Err(_) => world.site.wrong(format!("request {} has no end", asked.id)),
        Ok(Err(error)) => world.site.wrong(format!("request {} panicked: {error}", asked.id)),
        Ok(Ok(())) => {}
    }
    (client.answer(), has_left)
}

/// How many of these bytes a socket takes: none for now, a few, a part, or all.
fn parts(mut chance: Chance) -> impl FnMut(usize) -> usize {
    move |bytes| {
        let most = match chance.below(8) {
            0 | 1 => return 0,
            2 => 1,
            3 => 16,
            4 => 5_000,
            5 | 6 => bytes,
            _ => return bytes,
        };
        bytes.min(1 + chance.below(most as u64) as usize)
    }
}

fn parse(text: &str) -> RequestHead {
    let mut head = RequestHead::default();
    let parsed = h1::parse_request(text.as_bytes(), &HeadLimits::default(), &mut head);
    assert_eq!(parsed, Ok(Some(text.len())), "{text}");
    h1::remove_named(&mut head.fields);
    head
}

async fn send(client: &Client, id: u64, chance: &mut Chance) {
    let body = upload(id);
    let mut at = 0;
    while at < body.bytes {
        let end = (at + 1 + chance.below(30_000)).min(body.bytes);
        client.send_body(&body.part(at, end));
        at = end;
        if chance.per_mille(200) {
            tokio::time::sleep(chance.delay(100)).await;
        }
    }
    client.end_body();
}

/// Reads the answer; whether the client has left before its end.
async fn read(client: &Rc<Client>, manner: Manner, chance: &mut Chance) -> bool {
    match manner {
        Manner::Fast => {}
        Manner::Slow(bytes, pause_ms) => {
            while client.answer_end().is_none() {
                let seen = client.answer_bytes();
                tokio::time::sleep(Duration::from_millis(chance.below(pause_ms) + 1)).await;
                if client.answer_bytes() == seen && seen == 0 {
                    // Nothing has come yet.
                    _ = tokio::time::timeout(ENDS_WITHIN, client.body(1)).await;
                }
                client.read(bytes);
            }
        }
        Manner::Leaves(after_ms) => {
            let after = Duration::from_millis(after_ms);
            if tokio::time::timeout(after, client.end()).await.is_err() {
                client.leave();
                return true;
            }
        }
        Manner::Stops(bytes, pause_ms) => {
            _ = tokio::time::timeout(ENDS_WITHIN, client.body(bytes)).await;
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
            client.read(usize::MAX);
        }
        Manner::LeavesAt(bytes) => {
            _ = tokio::time::timeout(ENDS_WITHIN, client.body(bytes)).await;
            if client.answer_end() != Some(End::Whole) {
                client.leave();
                return true;
            }
        }
    }
    false
}

/// A request's fields, each with its line end.
pub(crate) fn fields(kind: Kind, resource: &Resource, chance: &mut Chance) -> (String, Seen) {
    let variant = chance.below(VARIANTS as u64) as usize;
    let mut seen = Seen { variant, ..Seen::default() };
    let mut lines = format!("X-Variant: {variant}\r\n");
    match kind {
        Kind::Range => {
            let bytes = resource.lengths[0].max(1);
            let from = chance.below(bytes);
            let last = from + chance.below(bytes - from);
            seen.range = Some((from, last));
            lines += &format!("Range: bytes={from}-{last}\r\n");
        }
        Kind::IfNoneMatch => {
            let version = resource.version().saturating_sub(chance.below(2) as u32).max(1);
            seen.tag = Some(version);
            lines += &format!("If-None-Match: {}\r\n", etag(version, variant));
        }
        Kind::Reload => lines += "Cache-Control: no-cache\r\n",
        Kind::MaxAge0 => lines += "Cache-Control: max-age=0\r\n",
        Kind::OnlyIfCached => lines += "Cache-Control: only-if-cached\r\n",
        Kind::NoStore => lines += "Cache-Control: no-store\r\n",
        Kind::PurgeTag => lines += &format!("Surrogate-Key: {}\r\n", resource.tag),
        Kind::PurgePrefix => lines += "X-Purge-Method: prefix\r\n",
        Kind::Get | Kind::Head | Kind::Write | Kind::Purge => {}
    }
    (lines, seen)
}

/// What a request says beside its URL.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) variant: usize,
    /// The first and the last byte of the range.
    pub(crate) range: Option<(u64, u64)>,
    /// The version in If-None-Match.
    pub(crate) tag: Option<u32>,
}

/// Now, by the true clock.
pub(crate) fn now_ms() -> i64 {
    clock::truth().0
}
