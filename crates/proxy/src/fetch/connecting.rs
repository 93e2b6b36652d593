//! Makes a connection to a server, or through a parent.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::rc::Rc;
use std::time::Duration;

use humboldt_base::bump::ServerIdentity;
use humboldt_conf::{CachePeer, HttpPort};
use humboldt_exchange::ServerExchange;
use humboldt_http::{ResponseHead, Url};
use humboldt_net::connect::{ConnectError, ConnectOptions, Connected};
use humboldt_net::dns::Asker;
use humboldt_tls::Fault;
use tokio::time::Instant;

use crate::core::Core;
use crate::errors::ErrorPage;
use crate::fetch::ask::AskTunnel;
use crate::fetch::certificates;
use crate::fetch::destination::Destination;
use crate::fetch::job::Failure;
use crate::request::{Request, unmapped};
use crate::rules::{access, destinations};
use crate::secure::{Secure, Seen, read_authorities};

/// A connection, and the server's certificate if rules have judged it.
pub(super) type Connection = (ServerExchange, Option<Rc<ServerIdentity>>);

/// What an attempt to connect says about the parent.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Shown {
    /// It cannot be reached.
    Failed,
    /// There is a connection to it, whatever becomes of a tunnel behind it.
    Reached,
    /// Nothing: it was not tried.
    Nothing,
}

/// Connects to a server, and notes whether a parent could be reached.
pub(super) async fn connect(
    core: &Core,
    request: &Request,
    to: &Destination,
) -> Result<Connection, Failure> {
    let (config, peer) = (&request.snapshot().config, to.peer.as_deref());
    let parent: Option<&CachePeer> = peer.map(|peer| &peer.conf);
    let found = match parent {
        Some(parent) => core.look_up(&parent.host, Asker::Proxy).await,
        None => access::reachable(core, request).await,
    };
    let found = found.map_err(|error| Failure::new(ErrorPage::DnsFailure, error.to_string()));
    let addresses = found.and_then(|found| match parent {
        Some(_) => Ok(found),
        None => destinations::permitted(core, request, found).map_err(Failure::from),
    });
    let timeout = match parent {
        Some(parent) => parent.connect_timeout.unwrap_or(config.peer_connect_timeout),
        None => config.connect_timeout,
    };
    let shown = Cell::new(Shown::Failed);
    let result = match addresses {
        Ok(addresses) => connect_to(core, request, &addresses, to, timeout, &shown).await,
        Err(failure) => Err(failure),
    };
    // What goes wrong behind a parent, or here, is no fault of it: servers that a client chooses
    // must not take it away from all others.
    match (peer, shown.get()) {
        (Some(peer), Shown::Reached) => peer.note_success(),
        (Some(peer), Shown::Failed) => peer.note_failure(request.received.secs()),
        (Some(_), Shown::Nothing) | (None, _) => {}
    }
    result
}

/// Connects to one of the addresses.
async fn connect_to(
    core: &Core,
    request: &Request,
    addresses: &[IpAddr],
    to: &Destination,
    timeout: Duration,
    shown: &Cell<Shown>,
) -> Result<Connection, Failure> {
    let port = to.server(request).port;
    let others: Vec<IpAddr> =
        addresses.iter().copied().filter(|&ip| !leads_to_ourselves(request, ip, port)).collect();
    if others.is_empty() && !addresses.is_empty() {
        return Err(Failure::new(ErrorPage::ForwardLoop, "the address is this proxy's own"));
    }
    let config = &request.snapshot().config;
    let options = ConnectOptions {
        timeout,
        stagger: Duration::from_millis(config.happy_eyeballs_connect_timeout.into()),
        local_v4: to.local.v4,
        local_v6: to.local.v6,
        local_is_foreign: to.local.is_foreign,
        marks: to.local.marks,
    };
    let read_timeout = config.read_timeout;
    let host = to.certified_host(request);
    let judges = to.peer.is_none() || to.is_tunnel();
    // A parent in place of the server is looked at, but nothing is forgiven it.
    let is_peer = !judges && request.looks_at_server;
    let is_lenient = is_peer || judges && certificates::judges(request);
    let with_server = to.tls(request).map(|side| Secure { side, host, is_lenient });
    let (first, second) = match to.is_tunnel() {
        false => (with_server, None),
        true => {
            let parent = to.peer.as_ref().map_or("", |peer| &peer.conf.host).as_bytes();
            let around = to.tls_of_parent();
            let around = around.map(|side| Secure { side, host: parent, is_lenient: false });
            (around, with_server)
        }
    };
    let named = first.map_or(host, |secure| secure.host);
    for secure in [first, second].into_iter().flatten() {
        if let Err(error) = read_authorities(core, secure.side, timeout).await {
            shown.set(Shown::Nothing);
            return Err(Failure::new(ErrorPage::ConnectFailure, error.to_string()));
        }
    }
    let began = Instant::now();
    let connecting = core.connect(&others, port, &options, first, read_timeout);
    let (server, mut seen) = connecting.await.map_err(|error| match &error {
        ConnectError::Tls(fault) => Failure::of_tls(named, fault),
        error => Failure::from(error),
    })?;
    shown.set(Shown::Reached);
    let server = match second {
        None => server,
        Some(secure) => {
            let left = timeout.saturating_sub(began.elapsed());
            let tunnel = Box::pin(through_parent(core, request, to, server, secure));
            let through = tokio::time::timeout(left, tunnel).await;
            let late = |_| Err(Failure::new(ErrorPage::ConnectTimeout, "no tunnel in time"));
            let (server, told) = through.unwrap_or_else(late)?;
            seen = told;
            server
        }
    };
    match seen {
        None => Ok((server, None)),
        Some(seen) => {
            if let (true, Some(fault)) = (is_peer, seen.faults.first()) {
                return Err(Failure::of_tls(host, &Fault::Certificate(fault.clone())));
            }
            certificates::judge(request, host, &seen)?;
            Ok((server, Some(seen.server)))
        }
    }
}

/// Opens a tunnel to the server, and speaks TLS in it.
async fn through_parent(
    core: &Core,
    request: &Request,
    to: &Destination,
    mut parent: ServerExchange,
    secure: Secure<'_>,
) -> Result<(ServerExchange, Option<Seen>), Failure> {
    let (mut place, url) = (Url::default(), &request.url);
    let authority = match url.host().contains(&b':') {
        true => [b"[", url.host(), b"]"].concat(),
        false => url.host().to_vec(),
    };
    let authority = [&authority, &b":"[..], url.port().to_string().as_bytes()].concat();
    place.set_authority(&authority).map_err(|_| Failure::new(ErrorPage::InvalidUrl, ""))?;
    let login = to.login_of_parent();
    let asked = parent.ask(&AskTunnel { request, place: &place, login }).await;
    asked.map_err(|error| Failure::from(&error))?;
    let mut head = ResponseHead::default();
    loop {
        let limits = &request.snapshot().reply_limits;
        let headed = parent.head(limits, || core.head_read_bytes(), &mut head).await;
        headed.map_err(|error| Failure::from(&error))?;
        match head.status {
            100..=199 => {}
            200..=299 => break,
            status => {
                let detail = format!("the parent opens no tunnel to the server: it says {status}");
                let failure = Failure::new(ErrorPage::ConnectFailure, detail);
                // The credentials come with CONNECT, and may have been good for one time only.
                return Err(Failure { is_of_connection: status == 407, ..failure });
            }
        }
    }
    let early = || Failure::new(ErrorPage::NoTls, "the server speaks first, as none with TLS does");
    let connected = parent.into_connection().ok_or_else(early)?;
    let (peer, host) = (connected.peer, secure.host);
    let secured = secure.over(connected.stream).await;
    let (stream, seen) = secured.map_err(|fault| Failure::of_tls(host, &fault))?;
    let read_timeout = request.snapshot().config.read_timeout;
    let connected = Connected { stream, peer };
    Ok((ServerExchange::new(&core.io, connected, false, read_timeout), seen))
}

/// Whether a connection to `ip` would lead to a port of this proxy. The proxy would then be its own
/// client, with rights that the real client may not have, and most requests would loop for ever.
fn leads_to_ourselves(request: &Request, ip: IpAddr, port: u16) -> bool {
    let facts = request.facts();
    let target = destination(ip);
    let listens_at = |own: &HttpPort| match own.addr.map(unmapped) {
        Some(own) if !own.is_unspecified() => own == target,
        // A port that was given by name was resolved when it was opened, so it may have any address
        // of the machine.
        _ => humboldt_net::is_own_address(target),
    };
    let is_this_one = (unmapped(facts.local.ip()), facts.local.port()) == (target, port);
    let mut ports = request.snapshot().config.ports();
    is_this_one || ports.any(|own| own.port == port && listens_at(own))
}

/// The real destination of a connection to `ip`: the unspecified address means this machine.
fn destination(ip: IpAddr) -> IpAddr {
    match unmapped(ip) {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}
