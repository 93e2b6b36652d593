//! Clients of tunnels.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use humboldt_net::memory::MemoryStream;
use humboldt_proxy::serve_connection;
use humboldt_runtime::turns;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme};

use crate::bump::check::Seen;
use crate::bump::hello::{Leaves, Manner, Shape, garbage};
use crate::bump::line::{Line, Session};
use crate::bump::rules::Facts;
use crate::bump::speech;
use crate::bump::{LENGTHS, PORT, Tunnels};
use crate::chance::Chance;
use crate::clock;
use crate::trace;
use crate::world::World;

/// Longest time that a step of a client may take: all time limits of the proxy together.
const ENDS_WITHIN: Duration = Duration::from_secs(3 * 3600);

/// Longest time that a connection may be served without its client: that of a tunnel whose client
/// has closed, and late turns.
const GONE_WITHIN: Duration = Duration::from_secs(30);

/// Bytes of an answer after which a client leaves that leaves in it.
const SOME_BYTES: u64 = 1_000;

/// One client: one tunnel after the other.
pub(crate) async fn run(world: Rc<World>, tunnels: Rc<Tunnels>, number: u64) {
    let mut chance = Chance::new(world.plan.seed, 40_000 + number + 100 * world.life);
    for _ in 0..tunnels.plan.tunnels {
        tokio::time::sleep(chance.delay(world.plan.client_ms)).await;
        tunnel(&world, &tunnels, &mut chance, number).await;
    }
}

async fn tunnel(world: &Rc<World>, tunnels: &Rc<Tunnels>, chance: &mut Chance, number: u64) {
    let manner = Manner::new(&tunnels.plan, chance);
    let connect = chance.below(tunnels.hosts.len() as u64) as usize;
    let strays = chance.per_mille(tunnels.plan.strays_per_mille) && !manner.is_nameless;
    let other = chance.below(tunnels.hosts.len() as u64) as usize;
    let facts = Facts {
        connect,
        named: if strays { other } else { connect },
        is_garbage: matches!(manner.shape, Shape::Garbage | Shape::Broken | Shape::Silent),
        looks_like_tls: manner.shape == Shape::Broken,
    };
    let id = world.site.next_id();
    trace::line(|| format!("tunnel {id} of client {number}: {facts:?} {manner:?}"));
    world.site.totals.add("tunnels", 1);
    let ours = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 51, 102, number as u8)), 4000);
    let port = SocketAddr::new(Ipv4Addr::new(192, 0, 2, 254).into(), 3128);
    let (near, far) = MemoryStream::pair(ours, port).expect("a descriptor");
    let core = Rc::clone(&world.cores[chance.below(world.cores.len() as u64) as usize]);
    let serving = serve_connection(core, far.into(), ours, Arc::clone(&world.port));
    let task = match world.plan.late_per_mille {
        0 => tokio::task::spawn_local(serving),
        _ => turns::spawn_local(serving),
    };
    let mut seen = Seen::new(id, facts, manner, tunnels.rules_now(), clock::elapsed_ms());
    let line = Line::new(near.into());
    seen.record = line.record();
    let playing = play(world, tunnels, line, &mut seen, chance);
    if tokio::time::timeout(ENDS_WITHIN, playing).await.is_err() {
        world.site.wrong(format!("tunnel {id}: its client waits for ever"));
    }
    seen.last_rules = tunnels.rules_now();
    trace::line(|| format!("tunnel {id}: {}", seen.summary()));
    match tokio::time::timeout(GONE_WITHIN, task).await {
        Err(_) => world.site.wrong(format!("tunnel {id} goes on although its client has left")),
        Ok(Err(error)) => world.site.wrong(format!("tunnel {id} panicked: {error}")),
        Ok(Ok(())) => {}
    }
    seen.check(world, tunnels);
}

/// Sends CONNECT, and waits for the answer; whether there is a tunnel.
async fn open(world: &World, line: &Line, seen: &mut Seen, host: &str) -> bool {
    let id = seen.id;
    let text =
        format!("CONNECT {host}:{PORT} HTTP/1.1\r\nHost: {host}:{PORT}\r\nX-Id: {id}\r\n\r\n");
    if line.send(text.as_bytes()).await.is_err() {
        return false;
    }
    if seen.manner.leaves == Leaves::AfterConnect {
        seen.has_left = true;
        return false;
    }
    let mut head = Vec::new();
    let end = loop {
        if let Some(at) = head.windows(4).position(|part| part == b"\r\n\r\n") {
            break at + 4;
        }
        match line.receive().await {
            Ok(more) if !more.is_empty() => head.extend(more),
            _ => return false,
        }
    };
    world.site.begins(id);
    let status = head.get(9..12).and_then(|part| std::str::from_utf8(part).ok()?.parse().ok());
    seen.status = status;
    if seen.status != Some(200) {
        return false;
    }
    // The tunnel begins here, for both.
    let record = line.record();
    let mut record = record.borrow_mut();
    record.sent.clear();
    record.received = head.split_off(end);
    true
}

async fn play(
    world: &Rc<World>,
    tunnels: &Tunnels,
    line: Line,
    seen: &mut Seen,
    chance: &mut Chance,
) {
    let (connect, named) = (&tunnels.hosts[seen.facts.connect], &tunnels.hosts[seen.facts.named]);
    if !open(world, &line, seen, &connect.name).await {
        return leave(line, seen);
    }
    tokio::time::sleep(chance.delay(world.plan.client_ms.min(5_000))).await;
    if seen.manner.leaves == Leaves::AtOnce {
        seen.has_left = true;
        return leave(line, seen);
    }
    if seen.facts.is_garbage {
        if seen.manner.shape != Shape::Silent {
            let bytes = garbage(seen.manner.shape, chance);
            if line.send(&bytes).await.is_err() {
                return;
            }
        }
        line.drain().await;
        return;
    }
    let judge = Arc::new(Judge::new(tunnels, seen.manner.is_careless));
    let Some(tls) = tls(&judge, &named.name, seen.manner) else {
        return world.site.wrong("the simulation has no TLS".into());
    };
    let mut session = Session::new(line, tls);
    if !say_hello(&mut session, seen, chance).await {
        return leave(session.line, seen);
    }
    let shaken = session.shake_hands().await;
    seen.judged = judge.judged();
    if shaken.is_err() {
        return leave(session.line, seen);
    }
    seen.has_agreed = true;
    for nth in 0..seen.manner.requests {
        let path = chance.below(LENGTHS.len() as u64) as usize;
        let id = world.site.next_id();
        if speech::ask(&mut session, &named.name, path, id).await.is_err() {
            break;
        }
        let is_last = nth + 1 == seen.manner.requests;
        if seen.manner.leaves == Leaves::AfterRequest && is_last {
            seen.has_left = true;
            return leave(session.line, seen);
        }
        let most = match seen.manner.leaves {
            Leaves::InAnswer if is_last => SOME_BYTES,
            _ => u64::MAX,
        };
        let Some(reply) = speech::hear(&mut session, most).await else { break };
        seen.ids.push(id);
        let goes_on = reply.is_whole && !reply.closes;
        seen.replies.push((path, reply));
        if most == SOME_BYTES {
            seen.has_left = true;
            return leave(session.line, seen);
        }
        if !goes_on {
            break;
        }
    }
    session.end().await;
    // What comes behind the last answer is the end of the other side.
    seen.ends_in_order = session.read().await.is_ok_and(|rest| rest.is_empty());
}

/// Goes away.
fn leave(line: Line, seen: &Seen) {
    if seen.manner.resets {
        line.break_off();
    }
}

/// Sends the first message; whether the client stays.
async fn say_hello(session: &mut Session, seen: &mut Seen, chance: &mut Chance) -> bool {
    let hello = session.take_out();
    let at = |thousandths: u64| hello.len() * thousandths as usize / 1000;
    if let Leaves::InHello(thousandths) = seen.manner.leaves {
        _ = session.line.send(&hello[..at(thousandths)]).await;
        seen.has_left = true;
        return false;
    }
    let sent = match seen.manner.shape {
        Shape::Split(thousandths) => {
            let (first, second) = hello.split_at(at(thousandths));
            let sent = session.line.send(first).await;
            tokio::time::sleep(chance.delay(5_000)).await;
            if sent.is_ok() { session.line.send(second).await } else { sent }
        }
        Shape::Bytes => {
            let mut sent = Ok(());
            for byte in hello.chunks(1) {
                sent = session.line.send(byte).await;
                tokio::task::yield_now().await;
            }
            sent
        }
        _ => session.line.send(&hello).await,
    };
    if seen.manner.leaves == Leaves::AfterHello {
        seen.has_left = true;
        return false;
    }
    // What has come before the end of the connection says why.
    _ = sent;
    true
}

fn tls(judge: &Arc<Judge>, name: &str, manner: Manner) -> Option<ClientConnection> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_details(provider, Arc::new(Clock));
    let versions = match manner.is_old {
        true => &[&rustls::version::TLS12][..],
        false => rustls::ALL_VERSIONS,
    };
    let builder = builder.with_protocol_versions(versions).ok()?.dangerous();
    let verifier = Arc::clone(judge) as Arc<dyn ServerCertVerifier>;
    let mut config = builder.with_custom_certificate_verifier(verifier).with_no_client_auth();
    config.resumption = Resumption::disabled();
    config.enable_sni = !manner.is_nameless;
    let name = ServerName::try_from(name.to_owned()).ok()?;
    ClientConnection::new(Arc::new(config), name).ok()
}

/// The clock of the simulation.
#[derive(Debug)]
struct Clock;

impl rustls::time_provider::TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        let now_s = u64::try_from(clock::truth().secs()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(now_s)))
    }
}

/// The certificate that a client has got.
#[derive(Clone, Debug)]
pub(super) struct Judged {
    pub(super) der: CertificateDer<'static>,
    pub(super) is_valid: bool,
}

/// Judges certificates, and goes on all the same if its client is careless.
struct Judge {
    inner: Arc<WebPkiServerVerifier>,
    provider: Arc<CryptoProvider>,
    is_careless: bool,
    judged: Mutex<Option<Judged>>,
}

impl Judge {
    fn new(tunnels: &Tunnels, is_careless: bool) -> Self {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let roots = Arc::new(tunnels.keys.roots());
        let inner = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider));
        let inner = inner.build().expect("authorities");
        Self { inner, provider, is_careless, judged: Mutex::default() }
    }

    fn judged(&self) -> Option<Judged> {
        self.judged.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ServerCertVerifier for Judge {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = self.inner.verify_server_cert(own, others, name, ocsp, now);
        let judged = Judged { der: own.clone().into_owned(), is_valid: verified.is_ok() };
        self.judged.lock().unwrap_or_else(PoisonError::into_inner).replace(judged);
        match self.is_careless {
            true => Ok(ServerCertVerified::assertion()),
            false => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, own, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, own, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

impl fmt::Debug for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Judge").finish_non_exhaustive()
    }
}
