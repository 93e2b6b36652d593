//! Tunnels that carry much: bytes that the kernel moves from socket to socket.

use humboldt_tests::wait::until;
use humboldt_tests::{Client, Proxy, World};
use rustix::net::{AddressFamily, SendFlags, SocketType, send};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::Duration;

/// More than all buffers on the way hold.
const MANY_BYTES: usize = 30 << 20;

fn pattern(seed: usize) -> Vec<u8> {
    (0..MANY_BYTES).map(|at| (at / 251 + at % 13 + seed) as u8).collect()
}

/// A server that sends one pattern while it reads another, and sends its end when it has read one.
/// Both have to be whole.
fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    std::thread::spawn(move || {
        for stream in listener.incoming().filter_map(Result::ok) {
            std::thread::spawn(move || exchange(stream, pattern(1), &pattern(2)));
        }
    });
    address
}

/// What both kinds of sockets can do.
trait Socket: Read + Write + Send + Sized + 'static {
    fn another(&self) -> Self;
    fn end(&self);
}

impl Socket for TcpStream {
    fn another(&self) -> Self {
        self.try_clone().expect("a second handle")
    }

    fn end(&self) {
        self.shutdown(Shutdown::Write).expect("ended");
    }
}

impl Socket for UnixStream {
    fn another(&self) -> Self {
        self.try_clone().expect("a second handle")
    }

    fn end(&self) {
        self.shutdown(Shutdown::Write).expect("ended");
    }
}

fn exchange<S: Socket>(mut stream: S, sends: Vec<u8>, expects: &[u8]) {
    let mut writer = stream.another();
    let writing = std::thread::spawn(move || {
        writer.write_all(&sends).expect("sent");
        writer.end();
    });
    let mut received = Vec::new();
    stream.read_to_end(&mut received).expect("received");
    assert!(received == expects, "{} bytes of {}", received.len(), expects.len());
    writing.join().expect("sent");
}

/// Asks for a tunnel, and sends the first bytes behind the head.
fn open(stream: &mut (impl Read + Write), server: SocketAddr) {
    let head = format!("CONNECT {server} HTTP/1.1\r\nHost: {server}\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("sent");
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("an answer");
        answer.push(byte[0]);
    }
    assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&answer));
}

/// Pipes of the proxy that have something to do with tunnels. (Other pipes are of its runtime.)
fn pipes(proxy: &Proxy) -> usize {
    let links = fs::read_dir(format!("/proc/{}/fd", proxy.id())).expect("a running proxy");
    let links = links.filter_map(|link| fs::read_link(link.ok()?.path()).ok());
    links.filter(|link| link.to_string_lossy().starts_with("pipe:")).count()
}

#[test]
fn bytes_both_ways_are_spliced_and_none_is_lost() {
    let world = World::forward("http_port unix:{dir}/proxy.sock mode=666\n");
    let server = server();
    let mut over_tcp = TcpStream::connect(world.proxy.address()).expect("connected");
    open(&mut over_tcp, server);
    exchange(over_tcp, pattern(2), &pattern(1));
    let path = world.proxy.path("proxy.sock");
    let mut over_unix = UnixStream::connect(path).expect("connected");
    open(&mut over_unix, server);
    exchange(over_unix, pattern(2), &pattern(1));
    let lines = world.proxy.logged_times("TCP_TUNNEL/200", 2);
    let bytes = |line: &String| line.split_whitespace().nth(4)?.parse::<usize>().ok();
    assert!(lines.iter().filter_map(bytes).all(|bytes| bytes > MANY_BYTES), "{lines:?}");
    let all = 4 * MANY_BYTES as u64;
    assert_eq!(world.metric("humboldt_tunnel_bytes_total"), all);
    let spliced = world.metric("humboldt_tunnel_spliced_bytes_total");
    // Reads that copied told that more would follow.
    assert!((all / 2..=all).contains(&spliced), "{spliced} of {all}");
}

/// With so few descriptors none are for pipes.
#[test]
fn without_pipes_bytes_are_copied() {
    let world = World::forward("max_filedescriptors 120\nworkers 1\n");
    let server = server();
    let mut stream = TcpStream::connect(world.proxy.address()).expect("connected");
    open(&mut stream, server);
    exchange(stream, pattern(2), &pattern(1));
    until("all bytes to be counted", || {
        (world.metric("humboldt_tunnel_bytes_total") == 2 * MANY_BYTES as u64).then_some(())
    });
    assert_eq!(world.metric("humboldt_tunnel_spliced_bytes_total"), 0);
}

#[test]
fn short_messages_are_copied() {
    let world = World::forward("");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = listener.local_addr().expect("its address");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accepted");
        let mut byte = [0];
        while stream.read_exact(&mut byte).is_ok() {
            stream.write_all(&byte).expect("sent");
        }
    });
    let mut stream = TcpStream::connect(world.proxy.address()).expect("connected");
    open(&mut stream, server);
    stream.set_nodelay(true).expect("no delay");
    for number in 0..500_u32 {
        let mut byte = [number as u8];
        stream.write_all(&byte).expect("sent");
        stream.read_exact(&mut byte).expect("echoed");
        assert_eq!(byte, [number as u8]);
    }
    drop(stream);
    until("all bytes to be counted", || {
        (world.metric("humboldt_tunnel_bytes_total") == 1000).then_some(())
    });
    assert_eq!(world.metric("humboldt_tunnel_spliced_bytes_total"), 0);
}

/// Clients that take nothing hold pipes, up to the bound; the others are served without.
#[test]
fn clients_that_take_nothing_do_not_use_up_pipes_and_do_not_stop_others() {
    let world = World::forward("workers 1\n");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().filter_map(Result::ok) {
            std::thread::spawn(move || while stream.write_all(&[b'x'; 65536]).is_ok() {});
        }
    });
    let before = pipes(&world.proxy);
    let mut held = Vec::new();
    for _ in 0..100 {
        let mut client = Client::with_receive_buffer(world.proxy.address(), 4096);
        client.send(format!("CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\n"));
        assert_eq!(client.response_to("CONNECT").status(), 200);
        held.push(client);
    }
    // Two descriptors each.
    until("all pipes to be in use", || (pipes(&world.proxy) == before + 2 * 16).then_some(()));
    let mut other = TcpStream::connect(world.proxy.address()).expect("connected");
    open(&mut other, server());
    exchange(other, pattern(2), &pattern(1));
    drop(held);
    // Those that are kept for the next tunnel.
    until("the pipes to be closed", || (pipes(&world.proxy) <= before + 2 * 4).then_some(()));
}

/// A server that sends some bytes, one urgent byte, more bytes and its end, and tells when all is
/// in its socket.
fn server_with_urgent_byte(half: Vec<u8>) -> (SocketAddr, mpsc::Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let (is_sent, sent) = mpsc::channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().filter_map(Result::ok) {
            stream.set_nodelay(true).expect("no delay");
            stream.write_all(&half).expect("sent");
            assert_eq!(send(&stream, b"!", SendFlags::OOB), Ok(1));
            stream.write_all(&half).expect("sent");
            stream.end();
            is_sent.send(()).expect("the test waits");
            // A close with unread bytes would be a reset.
            _ = stream.read_to_end(&mut Vec::new());
        }
    });
    (address, sent)
}

/// splice(2) stops before an urgent byte, and looks as at the end, or as if nothing was there. A
/// read that stops there is short, with more behind it.
#[test]
fn bytes_behind_an_urgent_byte_arrive() {
    let world = World::forward("workers 1\n");
    for (half, tunnels) in [(700_000, 4), (10, 50)] {
        let half = pattern(3)[..half].to_vec();
        let (address, sent) = server_with_urgent_byte(half.clone());
        for number in 0..tunnels {
            let mut client = Client::with_receive_buffer(world.proxy.address(), 4096);
            client.send(format!("CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\n"));
            assert_eq!(client.response_to("CONNECT").status(), 200);
            // So its end is there while the proxy still has bytes to read.
            sent.recv().expect("the server sends");
            assert!(client.bytes(2 * half.len()) == half.repeat(2), "tunnel {number}");
            assert!(client.closes());
        }
    }
}

/// A connection whose system takes few bytes that nobody reads.
fn with_small_buffer(address: SocketAddr) -> TcpStream {
    let stream = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None);
    let stream = stream.expect("a socket");
    rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 4096).expect("set");
    rustix::net::connect(&stream, &address).expect("connected");
    stream.into()
}

/// Bytes that the socket has written and the other side's system has not, as Linux tells.
fn unacknowledged(socket: &TcpStream) -> usize {
    let ends = [socket.local_addr(), socket.peer_addr()].map(|end| end.expect("an address").port());
    let table = fs::read_to_string("/proc/net/tcp").expect("the sockets of this machine");
    let waiting = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let port = |at: usize| u16::from_str_radix(words.get(at)?.split(':').nth(1)?, 16).ok();
        let is_it = [port(1)?, port(2)?] == ends;
        let queue = is_it.then(|| words.get(4)?.split(':').next());
        usize::from_str_radix(queue??, 16).ok()
    };
    table.lines().find_map(waiting).expect("the socket is there")
}

/// Bytes wait in both directions when the server breaks. What had left it arrives, and then the
/// break does.
#[test]
fn what_a_server_had_sent_before_it_broke_arrives() {
    let world = World::forward("workers 1\n");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let mut client = with_small_buffer(world.proxy.address());
    let server = std::thread::spawn(move || listener.accept().expect("accepted").0);
    open(&mut client, address);
    let server = server.join().expect("accepted");
    for stream in [&client, &server] {
        stream.set_nonblocking(true).expect("set");
    }
    let (sends, mut sent) = (pattern(5), 0);
    let mut before = None;
    until("the tunnel to be full both ways", || {
        let mut is_full = true;
        while let Ok(more) = (&server).write(&sends[sent..]) {
            (sent, is_full) = (sent + more, false);
        }
        while (&client).write(&sends).is_ok() {
            is_full = false;
        }
        let now = world.metric("humboldt_tunnel_bytes_total");
        (before.replace(now) == Some(now) && is_full).then_some(())
    });
    let arrived = sent - unacknowledged(&server);
    rustix::net::sockopt::set_socket_linger(&server, Some(Duration::ZERO)).expect("set");
    drop(server);
    client.set_nonblocking(false).expect("set");
    client.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    let mut received = Vec::new();
    let error = client.read_to_end(&mut received).expect_err("no end");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert!(received.len() >= arrived, "{} bytes of {arrived}", received.len());
    assert!(sends.starts_with(&received));
}

/// A tunnel that is cut off does not look like one that has ended.
#[test]
fn a_reset_of_the_server_reaches_the_client() {
    let world = World::forward("");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let mut client = TcpStream::connect(world.proxy.address()).expect("connected");
    let server = std::thread::spawn(move || listener.accept().expect("accepted").0);
    open(&mut client, address);
    let mut server = server.join().expect("accepted");
    server.write_all(b"a part").expect("sent");
    let mut part = [0; 6];
    client.read_exact(&mut part).expect("received");
    rustix::net::sockopt::set_socket_linger(&server, Some(Duration::ZERO)).expect("set");
    drop(server);
    let error = client.read(&mut part).expect_err("no end");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}
