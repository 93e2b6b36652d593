//! The steps before a tunnel: greeting, login, request. All of them together have the time of a
//! request's head.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use data_encoding::BASE64;
use humboldt_http::h1;
use humboldt_http::{HeadLimits, RequestHead};

use super::wire::{self, Asked, Code, Login, WireError};
use super::{SocksClient, SocksSettings, Stage};
use crate::client::faults::ClientLost;
use crate::client::h1::H1Client;
use crate::client::requests::{Event, Refused};
use crate::client::unreadable::Unreadable;

/// The begin of a connection.
pub(crate) enum Begun {
    /// It speaks HTTP.
    Http(H1Client),
    /// It has ended before it has said anything.
    Ended(H1Client),
    /// It asks for a tunnel.
    Asks(SocksClient, Box<RequestHead>),
    /// It does not get one.
    Refused(SocksClient, Refused),
}

/// Why a handshake ends early.
enum Failed {
    /// Nothing more comes.
    Lost(ClientLost),
    TimedOut,
    /// What came is no message of SOCKS5.
    Wire(WireError),
    /// What came is not to be answered with a tunnel.
    Wrong(Unreadable),
}

/// Reads until it is known what the client wants. The first byte tells SOCKS5 from HTTP, none of
/// whose methods begins with it.
pub(crate) async fn begin(mut h1: H1Client, settings: SocksSettings) -> Begun {
    if more(&mut h1).await.is_err() {
        return Begun::Ended(h1);
    }
    // The rest has to come within the time of a head.
    h1.socket.deadline.arm_in_line(h1.io.settings().request);
    let speaks_socks = h1.input.bytes().first() == Some(&wire::VERSION);
    if !speaks_socks && !settings.only {
        return Begun::Http(h1);
    }
    let stage = if speaks_socks { Stage::Greeting } else { Stage::Stranger };
    let mut client = SocksClient { h1, stage };
    let asked = match speaks_socks {
        true => shake_hands(&mut client, settings).await,
        false => Err(Failed::Wrong(wrong(400, "not SOCKS5", b"", None))),
    };
    client.h1.socket.deadline.leave_line();
    match asked {
        Ok(head) => Begun::Asks(client, head),
        Err(failed) => {
            client.h1.begin_answer();
            let refused = match failed {
                Failed::Lost(lost) => Refused::Unfinished(lost),
                Failed::TimedOut => Refused::TimedOut,
                Failed::Wire(error) => {
                    Refused::Head(Box::new(wrong(400, &error.to_string(), b"", None)))
                }
                Failed::Wrong(unreadable) => Refused::Head(Box::new(unreadable)),
            };
            Begun::Refused(client, refused)
        }
    }
}

async fn shake_hands(
    client: &mut SocksClient,
    settings: SocksSettings,
) -> Result<Box<RequestHead>, Failed> {
    let choose = |methods: &[u8]| choose(methods, settings.has_logins);
    let method = step(&mut client.h1, |input| {
        Ok(wire::greeting(input)?.map(|(methods, used)| (choose(methods), used)))
    })
    .await?;
    let Some(method) = method else { return Err(WireError::NoMethods.into()) };
    answer(&mut client.h1, &[wire::VERSION, method]).await?;
    let mut credentials = None;
    if method == wire::PASSWORD {
        client.stage = Stage::Login;
        let told = step(&mut client.h1, |input| {
            Ok(wire::login(input)?.map(|(login, used)| (encoded(login), used)))
        })
        .await?;
        // Whether the login is right is a matter of the rules, as with HTTP: they may not ask.
        answer(&mut client.h1, &wire::login_reply(true)).await?;
        credentials = settings.has_logins.then_some(told);
    }
    client.stage = Stage::Request(None);
    let asked = match step(&mut client.h1, wire::request).await {
        Err(Failed::Wire(WireError::AddressKind)) => {
            client.stage = Stage::Request(Some(Code::NoSuchAddress));
            return Err(WireError::AddressKind.into());
        }
        asked => asked?,
    };
    if asked.command != wire::CONNECT {
        client.stage = Stage::Request(Some(Code::NoSuchCommand));
        let name = wire::command_name(asked.command);
        let reason = "of the commands of SOCKS5 only CONNECT is served";
        return Err(Failed::Wrong(wrong(501, reason, name.as_bytes(), Some(&asked))));
    }
    as_connect(&mut client.h1, &asked, credentials.as_deref())
}

/// The method to log in: with a password where rules may ask for logins and the client has one.
fn choose(methods: &[u8], has_logins: bool) -> Option<u8> {
    let wanted = match has_logins {
        true => [wire::PASSWORD, wire::NO_LOGIN],
        false => [wire::NO_LOGIN, wire::PASSWORD],
    };
    wanted.into_iter().find(|method| methods.contains(method))
}

/// The login as a client of HTTP sends it.
fn encoded(login: Login<'_>) -> String {
    BASE64.encode(&[login.name, b":", login.password].concat())
}

/// The request as one of HTTP, read by the code that reads those.
fn as_connect(
    h1: &mut H1Client,
    asked: &Asked,
    credentials: Option<&str>,
) -> Result<Box<RequestHead>, Failed> {
    let place = &asked.place;
    let login = credentials.map(|told| format!("Proxy-Authorization: Basic {told}\r\n"));
    let text =
        format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n{}\r\n", login.unwrap_or_default());
    let refuse =
        |status, reason: &str| Err(Failed::Wrong(wrong(status, reason, b"CONNECT", Some(asked))));
    let mut head = Box::<RequestHead>::default();
    match h1::parse_request(text.as_bytes(), &HeadLimits::default(), &mut head) {
        Ok(Some(_)) => {}
        Ok(None) => return refuse(400, "not a place to connect to"),
        Err(error) => return refuse(error.status(), &error.to_string()),
    }
    let settings = h1.io.settings();
    match h1.begin(&mut head, &settings) {
        Event::Head => Ok(head),
        Event::Refused(_) | Event::End => refuse(400, "not a place to connect to"),
    }
}

fn wrong(status: u16, reason: &str, method: &[u8], asked: Option<&Asked>) -> Unreadable {
    let target = asked.map(|asked| asked.place.clone().into_bytes());
    Unreadable { status, reason: reason.to_owned(), method: method.to_vec(), target }
}

impl From<WireError> for Failed {
    fn from(error: WireError) -> Self {
        Self::Wire(error)
    }
}

/// Reads one message.
async fn step<T>(
    h1: &mut H1Client,
    read: impl Fn(&[u8]) -> Result<Option<(T, usize)>, WireError>,
) -> Result<T, Failed> {
    loop {
        if let Some((message, used)) = read(h1.input.bytes())? {
            h1.input.consume(&h1.io.read_buffers, used);
            return Ok(message);
        }
        more(h1).await?;
    }
}

/// Waits for more bytes.
async fn more(h1: &mut H1Client) -> Result<(), Failed> {
    let io = Rc::clone(&h1.io);
    let mut drained = pin!(io.drain.notified());
    poll_fn(|cx| {
        match h1.poll_read_more(cx) {
            Poll::Ready(Ok(true)) => return Poll::Ready(Ok(())),
            Poll::Ready(Ok(false) | Err(_)) => {
                return Poll::Ready(Err(Failed::Lost(ClientLost::Gone)));
            }
            Poll::Pending => {}
        }
        if drained.as_mut().poll(cx).is_ready() || io.is_draining() {
            return Poll::Ready(Err(Failed::Lost(ClientLost::ShutDown)));
        }
        h1.poll_out_of_time(cx).map(|()| Err(Failed::TimedOut))
    })
    .await
}

/// Sends a few bytes. A client that takes not even those has the rest of its time for it.
async fn answer(h1: &mut H1Client, bytes: &[u8]) -> Result<(), Failed> {
    let mut rest = bytes;
    poll_fn(|cx| match h1.socket.stream.poll_write_all(cx, &mut rest) {
        Poll::Ready(sent) => Poll::Ready(sent.map_err(|_| Failed::Lost(ClientLost::Gone))),
        Poll::Pending => h1.poll_out_of_time(cx).map(|()| Err(Failed::TimedOut)),
    })
    .await
}
