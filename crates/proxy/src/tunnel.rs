//! CONNECT, and connections that switch to another protocol: bytes both ways until one side has
//! enough.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use humboldt_base::counters::Counter;
use humboldt_http::h1::{self, HopByHop};
use humboldt_http::{FieldName, ResponseHead, Version};
use humboldt_logs::access::Tag;
use humboldt_runtime::deadline::DeadlineSlot;
use tokio::net::TcpStream;

use crate::answer;
use crate::client::{After, BROKEN, CLOSED, ClientConn};
use crate::core::Core;
use crate::cut::Cut;
use crate::errors::ErrorPage;
use crate::fetch::{self, Answer};
use crate::forward::{self, Manner};
use crate::job::{Failure, Job, Report};
use crate::log::{self, Outcome};
use crate::peers::{self, Way};
use crate::reach::{self, Reached};
use crate::request::Request;
use crate::server::{ServerConn, ServerError};
use crate::switch;

/// Bytes a tunnel holds for each direction while the other side does not take them.
const BUFFER_BYTES: usize = 32 * 1024;

/// A tunnel in which nothing moves for this long is closed, unless `read_timeout` is longer.
const IDLE_MIN: Duration = Duration::from_secs(60);

/// The same, when the client has sent its FIN: it may still read, or have closed both halves, which
/// looks the same. Squid ends a tunnel at once then; HAProxy's `client-fin` is this limit.
const CLIENT_FIN: Duration = Duration::from_secs(10);

/// Opens a tunnel to `host:port` (RFC 9110 9.3.6).
pub(crate) async fn connect(core: &Rc<Core>, conn: &mut ClientConn, request: Rc<Request>) -> After {
    let report = Report::new();
    let job = Job::new(&request, None, false, &report);
    let (stream, early) = match conn.while_it_stays(&request, open(core, &job)).await {
        None => return answer::gone(core, conn, &request, Tag::Tunnel, Some(&report)),
        Some(Ok(Opened::Tunnel(opened))) => opened,
        Some(Ok(Opened::Refused(answer))) => {
            report.set_status(answer.head.status);
            return fetch::relay_with_body(core, conn, job, answer, None).await;
        }
        Some(Err(failure)) => {
            let way = (Tag::Tunnel, Some(report.route()));
            return answer::failed(core, conn, &request, failure, way).await;
        }
    };
    let mut outcome = Outcome::miss(Tag::Tunnel, 200, Some(report.route()));
    let greeting = b"HTTP/1.1 200 Connection established\r\n\r\n";
    serve(core, conn, &request, greeting, (stream, early), &mut outcome).await
}

/// Sends `greeting`, then moves bytes until the tunnel ends, and logs it.
async fn serve(
    core: &Rc<Core>,
    conn: &mut ClientConn,
    request: &Request,
    greeting: &[u8],
    (stream, early): (Rc<TcpStream>, Vec<u8>),
    outcome: &mut Outcome,
) -> After {
    let cut = match answer::write_all(conn, core, greeting).await {
        Ok(()) => {
            outcome.bytes_out = greeting.len() as u64;
            relay(core, conn, request, &stream, early, outcome).await
        }
        Err(error) => Some(conn.cut_by(&error)),
    };
    outcome.end(cut);
    log::transaction(core, request, outcome, None);
    cut.map_or(After::Over, After::Abort)
}

/// What came of CONNECT.
enum Opened {
    Tunnel((Rc<TcpStream>, Vec<u8>)),
    /// What the parent says instead, for the client.
    Refused(Box<Answer>),
}

/// Connects for CONNECT: directly, or by asking a parent to. As in Squid, what a parent says that
/// refuses goes to the client, but where its own server failed (502, 504) another way may do.
async fn open(core: &Rc<Core>, job: &Job) -> Result<Opened, Failure> {
    let request = &*job.request;
    let mut refused = None;
    let mut last = Failure::new(ErrorPage::NoForward, "no server or parent may be used");
    for way in peers::ways(core, request).await {
        match reach::reach(core, request, &way, false).await {
            Ok((server, reached)) => {
                fetch::note_way(job, &way, Some(server.peer), request);
                if !matches!(way, Way::Peer(..)) {
                    return Ok(Opened::Tunnel(server.into_parts()));
                }
                match ask_parent(core, request, server, reached).await {
                    Ok(Opened::Refused(answer)) if matches!(answer.head.status, 502 | 504) => {
                        refused = Some(answer);
                    }
                    Ok(opened) => return Ok(opened),
                    Err(error) => last = Failure::from(&error),
                }
            }
            Err(failure) => {
                fetch::note_failed_way(job, &way, &failure, request);
                last = failure;
            }
        }
    }
    refused.map(Opened::Refused).ok_or(last)
}

async fn ask_parent(
    core: &Core,
    request: &Request,
    mut server: ServerConn,
    reached: Reached,
) -> Result<Opened, ServerError> {
    let mut bytes = Vec::with_capacity(256);
    let authority = request.url.as_bytes();
    h1::write_request_line(&mut bytes, b"CONNECT", authority, Version::Http11);
    h1::write_field(&mut bytes, b"Host", authority);
    if let Some(login) = &reached.login {
        h1::write_field(&mut bytes, b"Proxy-Authorization", login.as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    let sent_at = core.now().secs();
    server.send(core, &bytes).await?;
    server.start_waiting();
    let mut head = ResponseHead::default();
    loop {
        server.head(core, &request.snapshot().reply_limits, &mut head).await?;
        match head.status {
            100..=199 => {}
            200..=299 => return Ok(Opened::Tunnel(server.into_parts())),
            _ => {
                let answer = Answer::new(server, reached, head, request, sent_at)?;
                return Ok(Opened::Refused(answer));
            }
        }
    }
}

/// Forwards a request to switch to one of the protocols `offered`; becomes a tunnel if the server
/// agrees.
pub(crate) async fn upgrade(
    core: &Rc<Core>,
    conn: &mut ClientConn,
    request: Rc<Request>,
    offered: &[u8],
) -> After {
    let report = Report::new();
    let job = Job::new(&request, None, false, &report);
    let Some(asked) = conn.while_it_stays(&request, ask_to_switch(core, &job, offered)).await
    else {
        return answer::gone(core, conn, &request, Tag::Tunnel, Some(&report));
    };
    if let Ok((_, _, head, _)) = &asked {
        report.set_status(head.status);
    }
    match asked {
        Err(failure) => {
            answer::failed(core, conn, &request, failure, (Tag::Miss, Some(report.route()))).await
        }
        Ok((server, reached, head, sent_at)) if head.status != 101 => {
            match fetch::Answer::new(server, reached, head, &request, sent_at) {
                Ok(answer) => fetch::relay_with_body(core, conn, job, answer, None).await,
                Err(error) => {
                    let way = (Tag::Miss, Some(report.route()));
                    answer::failed(core, conn, &request, Failure::from(&error), way).await
                }
            }
        }
        Ok((server, _, head, _)) => {
            let mut outcome = Outcome::miss(Tag::Tunnel, 101, Some(report.route()));
            let bytes = switching_head(&head, &request);
            serve(core, conn, &request, &bytes, server.into_parts(), &mut outcome).await
        }
    }
}

async fn ask_to_switch(
    core: &Rc<Core>,
    job: &Job,
    offered: &[u8],
) -> Result<(ServerConn, Reached, ResponseHead, i64), Failure> {
    let request = &*job.request;
    let mut last = Failure::new(ErrorPage::NoForward, "no server or parent may be used");
    for way in peers::ways(core, request).await {
        let (mut server, reached) = match reach::reach(core, request, &way, false).await {
            Ok(reached) => reached,
            Err(failure) => {
                fetch::note_failed_way(job, &way, &failure, request);
                last = failure;
                continue;
            }
        };
        fetch::note_way(job, &way, Some(server.peer), request);
        let mut bytes = Vec::with_capacity(1024);
        let manner = Manner {
            to_proxy: reached.is_proxy,
            forced_host: reached.forced_host.as_deref(),
            login: reached.login.as_deref(),
            validate: None,
            whole: false,
            upgrade: Some(offered),
        };
        forward::write_head(&mut bytes, request, &manner);
        let sent_at = core.now().secs();
        let mut head = ResponseHead::default();
        let result = async {
            server.send(core, &bytes).await?;
            server.start_waiting();
            loop {
                server.head(core, &request.snapshot().reply_limits, &mut head).await?;
                if head.status == 101 || head.status >= 200 {
                    return Ok::<(), ServerError>(());
                }
            }
        };
        result.await.map_err(|error| Failure::from(&error))?;
        if head.status == 101
            && let Some(why) = switch::objection(request, offered, &head)
        {
            return Err(Failure::new(ErrorPage::InvalidResponse, why));
        }
        return Ok((server, reached, head, sent_at));
    }
    Err(last)
}

/// The 101 as the client gets it.
fn switching_head(head: &ResponseHead, request: &Request) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(256);
    h1::write_status_line(&mut bytes, Version::Http11, 101, b"Switching Protocols");
    let hops = HopByHop::of(&head.fields);
    for (id, name, value) in head.fields.iter() {
        if !hops.is_hop(id, name) && id != FieldName::ContentLength {
            h1::write_field(&mut bytes, name, value);
        }
    }
    bytes.extend_from_slice(b"Connection: Upgrade\r\n");
    for value in head.fields.get_all(FieldName::Upgrade) {
        h1::write_field(&mut bytes, b"Upgrade", value);
    }
    bytes.extend_from_slice(request.snapshot().names.via(head.version));
    request.snapshot().header_rules.apply_to_reply(&mut bytes, 0, request);
    bytes.extend_from_slice(b"\r\n");
    bytes
}

/// One direction of a tunnel.
struct Direction {
    buffer: Vec<u8>,
    sent: usize,
    /// The source has ended.
    ended: bool,
    /// The end has been passed on.
    closed: bool,
    moved_bytes: u64,
}

impl Direction {
    fn new(early: Vec<u8>) -> Self {
        Self { buffer: early, sent: 0, ended: false, closed: false, moved_bytes: 0 }
    }

    /// Moves what can be moved. `Ready` when this direction is finished.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        core: &Core,
        from: &TcpStream,
        to: &TcpStream,
    ) -> Poll<io::Result<()>> {
        loop {
            while self.sent < self.buffer.len() {
                match to.try_write(self.buffer.get(self.sent..).unwrap_or_default()) {
                    Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    Ok(n) => {
                        self.sent += n;
                        self.moved_bytes += n as u64;
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        ready!(to.poll_write_ready(cx))?
                    }
                    Err(error) => return Poll::Ready(Err(error)),
                }
            }
            self.buffer.clear();
            self.sent = 0;
            if self.ended {
                if !self.closed {
                    self.closed = true;
                    _ = humboldt_sys::tcp::shutdown_write(to);
                }
                return Poll::Ready(Ok(()));
            }
            // An idle tunnel holds no buffer.
            if self.buffer.capacity() > 0 {
                self.buffer = Vec::new();
            }
            ready!(self.poll_fill(cx, core, from))?;
        }
    }

    fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        core: &Core,
        from: &TcpStream,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(from.poll_read_ready(cx))?;
            let result = core.read_buffers.with(|buffer| {
                let most = BUFFER_BYTES.min(buffer.len());
                let n = from.try_read(buffer.get_mut(..most).unwrap_or_default())?;
                self.buffer.extend_from_slice(buffer.get(..n).unwrap_or_default());
                io::Result::Ok(n)
            });
            match result {
                Ok(n) => {
                    self.ended = n == 0;
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

/// Moves bytes both ways until both sides have closed, one has failed, or nothing has moved for
/// `read_timeout`: for [`CLIENT_FIN`] after the client has sent all that it will.
async fn relay(
    core: &Rc<Core>,
    conn: &ClientConn,
    request: &Request,
    server: &TcpStream,
    early: Vec<u8>,
    outcome: &mut Outcome,
) -> Option<Cut> {
    core.count(Counter::Tunnels, 1);
    let idle = request.snapshot().config.read_timeout.max(IDLE_MIN);
    let mut up = Direction::new(conn.carry.take());
    let mut down = Direction::new(early);
    let client = &conn.stream;
    let deadline: &DeadlineSlot = &conn.deadline;
    deadline.arm(idle);
    let mut moved = 0;
    // Also where the client is not read, as the server does not take what it has sent before.
    let (mut ends, mut breaks) = (pin!(client.ready(CLOSED)), pin!(client.ready(BROKEN)));
    let mut has_ended = false;
    let cut = loop {
        let step = poll_fn(|cx| {
            if breaks.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            let sent = up.poll(cx, core, client, server);
            let received = down.poll(cx, core, server, client);
            match (sent, received) {
                (Poll::Ready(Err(error)), _) | (_, Poll::Ready(Err(error))) => {
                    return Poll::Ready(Err(error));
                }
                (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => return Poll::Ready(Ok(true)),
                _ => {}
            }
            if deadline.poll_expired(cx).is_ready() || conn.lifetime.poll_expired(cx).is_ready() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            let ends_now = !has_ended && ends.as_mut().poll(cx).is_ready();
            has_ended |= ends_now;
            let now_moved = up.moved_bytes + down.moved_bytes;
            if ends_now || now_moved != moved {
                return Poll::Ready(Ok(false));
            }
            Poll::Pending
        })
        .await;
        let total = up.moved_bytes + down.moved_bytes;
        core.count(Counter::TunnelBytes, total - moved);
        moved = total;
        match step {
            Ok(false) if has_ended => deadline.arm_in_line(idle.min(CLIENT_FIN)),
            Ok(false) => deadline.arm(idle),
            Ok(true) => break None,
            Err(_) if conn.lifetime.is_expired() => break Some(Cut::Lifetime),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => break Some(Cut::TunnelIdle),
            Err(_) => break Some(Cut::TunnelBroken),
        }
    };
    core.count(Counter::ClientOutBytes, down.moved_bytes);
    outcome.bytes_out += down.moved_bytes;
    cut
}
