//! The code that answers requests, and the loop that calls it.

use std::future::{Future, poll_fn, ready};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{self, Context, Poll};

use humboldt_base::token_bucket::TokenBucket;
use humboldt_http::RequestHead;
use humboldt_net::Stream;

use crate::client::socks::{self, Begun};
use crate::client::{
    Carrier, ClientExchange, ClientLost, Event, H1Client, RawClient, Refused, SocksSettings,
};
use crate::io::CoreIo;

/// Answers the requests of one connection, whatever protocol they come by. Several may be answered
/// at the same time, each in a task of its own that has a share of the service.
pub trait Service: 'static {
    /// A request that is being read, in a buffer that is used again.
    type Request;
    /// A request whose answer has to wait for something.
    type Pending;

    /// An empty request.
    fn take(&self) -> Self::Request;

    /// The place of its head.
    fn head<'r>(&self, request: &'r mut Self::Request) -> Option<&'r mut RequestHead>;

    /// Takes back a request that did not come.
    fn put_back(&self, request: Self::Request);

    /// Answers a request at once, without waiting for anything, if it can; otherwise gives it back.
    fn begin(&self, client: &mut ClientExchange, request: Self::Request) -> Option<Self::Pending>;

    /// Answers a request that has to wait. Boxed, so that an idle connection has no memory for it.
    fn proceed<'a>(
        &'a self,
        client: &'a mut ClientExchange,
        pending: Self::Pending,
    ) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

    /// The buckets that limit the pace of all that is sent on the connection.
    fn limits(&self) -> Vec<Arc<TokenBucket>> {
        Vec::new()
    }

    /// The connection has come to its end in order.
    fn end(&self);

    /// Goes on with a connection whose bytes are [no longer](ClientExchange::hand_over) those of
    /// its exchanges, up to its end.
    fn go_on(&self, carrier: Carrier) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        drop(carrier);
        self.end();
        Box::pin(ready(()))
    }

    /// Answers input that is no request.
    fn refuse(&self, client: &mut ClientExchange, refused: Refused) -> impl Future<Output = ()>;
}

/// The end of a turn of a connection.
enum Turn<P> {
    Pending(P),
    Refused(Refused),
    End,
}

/// Serves a connection until it ends, whatever protocol the client speaks.
pub fn serve<S: Service>(
    io: &Rc<CoreIo>,
    stream: Stream,
    service: &Rc<S>,
) -> impl Future<Output = ()> {
    serve_limited(io, H1Client::new(io, stream), service)
}

/// The same with a connection that [was](Service::go_on) another one before.
pub fn serve_on<S: Service>(
    io: &Rc<CoreIo>,
    carrier: Carrier,
    service: &Rc<S>,
) -> impl Future<Output = ()> {
    serve_limited(io, H1Client::on(io, carrier), service)
}

fn serve_limited<S: Service>(
    io: &CoreIo,
    mut client: H1Client,
    service: &Rc<S>,
) -> impl Future<Output = ()> {
    client.limit_connection(service.limits());
    serve_in_turn(io, client, service.as_ref())
}

/// Serves a connection that is a tunnel to `place`, `HOST:PORT`, from its first byte on, as if its
/// client had asked for one.
pub async fn serve_tunnel<S: Service>(
    io: &Rc<CoreIo>,
    stream: Stream,
    service: &Rc<S>,
    place: &str,
) {
    let service = service.as_ref();
    let Some((client, head)) = RawClient::new(io, stream, place) else { return service.end() };
    let mut client = ClientExchange::Raw(client);
    answer(service, &mut client, head).await;
    end(client, service).await;
}

/// Ends a connection, or goes on with it.
async fn end<S: Service>(client: ClientExchange, service: &S) {
    if !client.is_handed_over() {
        service.end();
        return client.close().await;
    }
    match client.into_carrier() {
        Some(carrier) => service.go_on(carrier).await,
        None => service.end(),
    }
}

/// The same on a port whose clients may speak SOCKS5.
pub async fn serve_with_socks<S: Service>(
    io: &Rc<CoreIo>,
    stream: Stream,
    service: &Rc<S>,
    settings: SocksSettings,
) {
    let service = service.as_ref();
    let mut client = H1Client::new(io, stream);
    client.limit_connection(service.limits());
    let begun = Box::pin(socks::begin(client, settings)).await;
    let client = match begun {
        Begun::Http(client) => {
            return serve_in_turn(io, client, service).await;
        }
        Begun::Ended(client) => ClientExchange::H1(client),
        Begun::Asks(client, head) => {
            let mut client = ClientExchange::Socks(client);
            answer(service, &mut client, *head).await;
            client
        }
        Begun::Refused(client, refused) => {
            let mut client = ClientExchange::Socks(client);
            service.refuse(&mut client, refused).await;
            client
        }
    };
    Box::pin(end(client, service)).await;
}

/// Serves a connection that has one exchange after the other.
fn serve_in_turn<S: Service>(
    io: &CoreIo,
    client: H1Client,
    service: &S,
) -> impl Future<Output = ()> {
    let mut client = ClientExchange::H1(client);
    // An idle connection has the memory of this future. A block has the client once, an async
    // function would have its argument twice.
    async move {
        answer_in_turn(io, &mut client, service).await;
        Box::pin(end(client, service)).await;
    }
}

/// Answers the requests of a connection until there are no more.
async fn answer_in_turn<S: Service>(io: &CoreIo, client: &mut ClientExchange, service: &S) {
    let mut proceeded = 0_u32;
    loop {
        let answering = match next_turn(io, client, service).await {
            Turn::Pending(pending) => service.proceed(client, pending),
            // The beginning of the next request would not be known.
            Turn::Refused(refused) => return Box::pin(service.refuse(client, refused)).await,
            Turn::End => return,
        };
        answering.await;
        proceeded = proceeded.wrapping_add(1);
        // It may not have waited for anything, as for a request that a rule denies.
        if proceeded.is_multiple_of(ANSWERS_AT_ONCE_MAX) {
            tokio::task::yield_now().await;
        }
        if !client.next() {
            return;
        }
    }
}

/// Answers requests at once, until one has to wait.
async fn next_turn<S: Service>(
    io: &CoreIo,
    client: &mut ClientExchange,
    service: &S,
) -> Turn<S::Pending> {
    // A connection that came so late may have a request on its way.
    let was_draining = io.is_draining();
    let turn = poll_fn(|cx| match poll_turn(cx, client, service) {
        Poll::Pending if io.is_draining() && !was_draining => {
            Poll::Ready(match client.ended_by(ClientLost::ShutDown) {
                Event::Refused(refused) => Turn::Refused(refused),
                Event::Head | Event::End => Turn::End,
            })
        }
        turn => turn,
    });
    let turn = turn.await;
    client.leave_line();
    turn
}

/// Answers one request that has come already.
pub async fn answer<S: Service>(service: &S, client: &mut ClientExchange, head: RequestHead) {
    let mut request = service.take();
    match service.head(&mut request) {
        Some(place) => *place = head,
        None => return service.put_back(request),
    }
    if let Some(pending) = service.begin(client, request) {
        service.proceed(client, pending).await;
    }
}

/// Most answers to pipelined requests of one client before the other tasks of the core have their
/// turn.
const ANSWERS_AT_ONCE_MAX: u32 = 32;

/// Reads requests and answers them at once, until one of them has to wait or the connection ends.
fn poll_turn<S: Service>(
    cx: &mut Context<'_>,
    client: &mut ClientExchange,
    service: &S,
) -> Poll<Turn<S::Pending>> {
    for _ in 0..ANSWERS_AT_ONCE_MAX {
        task::ready!(client.poll_request_near(cx));
        let mut request = service.take();
        let event = match service.head(&mut request) {
            Some(head) => client.poll_request(cx, head),
            None => Poll::Ready(Event::End),
        };
        let Poll::Ready(event) = event else {
            service.put_back(request);
            return Poll::Pending;
        };
        match event {
            Event::Head => match service.begin(client, request) {
                Some(pending) => return Poll::Ready(Turn::Pending(pending)),
                None if client.next() => {}
                None => return Poll::Ready(Turn::End),
            },
            Event::Refused(refused) => {
                service.put_back(request);
                return Poll::Ready(Turn::Refused(refused));
            }
            Event::End => {
                service.put_back(request);
                return Poll::Ready(Turn::End);
            }
        }
    }
    cx.waker().wake_by_ref();
    Poll::Pending
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream, UnixStream};

    use super::*;
    use crate::head::{BodyLength, ReplyHead, ReplySink};
    use crate::io::ClientSettings;

    const REQUESTS: usize = 1000;

    /// Answers everything at once, and counts: in line, or in `proceed`.
    struct Counting {
        answered: Cell<usize>,
        is_in_line: bool,
    }

    struct NoContent;

    impl ReplyHead for NoContent {
        fn status(&self) -> u16 {
            204
        }

        fn write<S: ReplySink>(&self, sink: &mut S) {
            sink.status(204, b"No Content");
        }
    }

    impl Counting {
        fn answer(&self, client: &mut ClientExchange) {
            self.answered.set(self.answered.get() + 1);
            client.send_head(&NoContent, BodyLength::None);
        }
    }

    impl Service for Counting {
        type Request = RequestHead;
        type Pending = ();

        fn take(&self) -> RequestHead {
            RequestHead::default()
        }

        fn head<'r>(&self, request: &'r mut RequestHead) -> Option<&'r mut RequestHead> {
            Some(request)
        }

        fn put_back(&self, _: RequestHead) {}

        fn begin(&self, client: &mut ClientExchange, _: RequestHead) -> Option<()> {
            if !self.is_in_line {
                return Some(());
            }
            self.answer(client);
            None
        }

        fn proceed<'a>(
            &'a self,
            client: &'a mut ClientExchange,
            (): (),
        ) -> Pin<Box<dyn Future<Output = ()> + 'a>> {
            self.answer(client);
            Box::pin(async { client.flush().await.expect("sent") })
        }

        fn end(&self) {}

        async fn refuse(&self, _: &mut ClientExchange, _: Refused) {}
    }

    /// The most answers between two turns of a task that always has something to do.
    fn most_at_once(is_in_line: bool) -> usize {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            client.write_all(&b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(REQUESTS)).await.unwrap();
            let io = CoreIo::new(Arc::default(), ClientSettings::default());
            let service = Rc::new(Counting { answered: Cell::new(0), is_in_line });
            let serving = Rc::clone(&service);
            tokio::task::spawn_local(async move { serve(&io, stream.into(), &serving).await });
            let other = tokio::task::spawn_local(async move {
                let (mut seen, mut most) = (0, 0);
                poll_fn(|cx| {
                    let answered = service.answered.get();
                    (seen, most) = (answered, most.max(answered - seen));
                    cx.waker().wake_by_ref();
                    if seen < REQUESTS { Poll::Pending } else { Poll::Ready(()) }
                })
                .await;
                most
            });
            other.await.unwrap()
        })
    }

    #[test]
    fn pipelined_requests_leave_others_their_turn() {
        for is_in_line in [true, false] {
            let most = most_at_once(is_in_line);
            assert!(most <= ANSWERS_AT_ONCE_MAX as usize, "{is_in_line}: {most}");
        }
    }

    #[test]
    fn a_connection_that_waits_ends_when_the_core_drains() {
        for sent in [&b""[..], b"GET / HT"] {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            tokio::task::LocalSet::new().block_on(&runtime, async {
                let (mut client, stream) = UnixStream::pair().unwrap();
                client.write_all(sent).await.unwrap();
                let io = CoreIo::new(Arc::default(), ClientSettings::default());
                let serving = Rc::clone(&io);
                let serving = tokio::task::spawn_local(async move {
                    let service = Rc::new(Counting { answered: Cell::new(0), is_in_line: true });
                    serve(&serving, stream.into(), &service).await;
                    service.answered.get()
                });
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
                assert!(!serving.is_finished());
                io.start_draining();
                assert_eq!(client.read(&mut [0]).await.unwrap_or_default(), 0, "{sent:?}");
                drop(client);
                assert_eq!(serving.await.unwrap(), 0);
            });
        }
    }

    #[test]
    fn a_connection_that_comes_while_the_core_drains_is_answered_once() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let (mut client, stream) = UnixStream::pair().unwrap();
            client.write_all(&b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(2)).await.unwrap();
            let io = CoreIo::new(Arc::default(), ClientSettings::default());
            io.start_draining();
            let service = Rc::new(Counting { answered: Cell::new(0), is_in_line: false });
            let serving = Rc::clone(&service);
            let task = tokio::task::spawn_local(async move {
                serve(&io, stream.into(), &serving).await;
            });
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            drop(client);
            task.await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 204 No Content\r\n"), "{answer}");
            assert_eq!(service.answered.get(), 1);
        });
    }

    #[test]
    fn a_client_on_a_unix_socket_is_answered() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let (mut client, stream) = UnixStream::pair().unwrap();
            client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
            client.shutdown().await.unwrap();
            let io = CoreIo::new(Arc::default(), ClientSettings::default());
            let service = Rc::new(Counting { answered: Cell::new(0), is_in_line: false });
            serve(&io, stream.into(), &service).await;
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 204 No Content\r\n"), "{answer}");
            assert_eq!(service.answered.get(), 1);
        });
    }
}
