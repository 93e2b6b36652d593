//! SOCKS5: real clients, replies, logins, and clients that keep to no rule.

use humboldt_tests::dns::{NameServer, Says, loopback};
use humboldt_tests::servers::{program, run, succeed};
use humboldt_tests::wait::{free_address, until};
use humboldt_tests::{Origin, Reply, World};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::mpsc;
use std::time::Duration;

/// The password is `secret`.
const ANNA: &str = "anna:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n";

/// The first message of a client without a login, and the answer to it.
const GREETING: &[u8] = b"\x05\x01\0";
const CHOICE: &[u8] = b"\x05\0";

/// A proxy with a port for both protocols, whose address is returned.
fn world(rules: &str) -> (World, SocketAddr) {
    world_on("socks", rules)
}

fn world_on(options: &str, rules: &str) -> (World, SocketAddr) {
    let port = free_address();
    let world = World::forward(&format!("http_port {port} {options} name=socks\n{rules}"));
    world.origin.on("/a", Reply::ok("hello"));
    // The proxy opens its ports one after the other, and the world waits for the first.
    until("the port for SOCKS", || TcpStream::connect(port).ok());
    (world, port)
}

fn curl(option: &str, port: SocketAddr, url: &str) -> Command {
    let mut command = Command::new(program("curl"));
    command.args(["--silent", "--show-error", "--max-time", "20", "--noproxy", "", option]);
    command.arg(port.to_string()).arg(url);
    command
}

fn connect(port: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(port).expect("connected");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a limit");
    stream
}

/// A request for a place.
fn request(command: u8, to: SocketAddr) -> Vec<u8> {
    let mut message = vec![5, command, 0];
    match to.ip() {
        IpAddr::V4(ip) => message.extend([&[1][..], &ip.octets()].concat()),
        IpAddr::V6(ip) => message.extend([&[4][..], &ip.octets()].concat()),
    }
    message.extend(to.port().to_be_bytes());
    message
}

fn named(name: &str, port: u16) -> Vec<u8> {
    let length = u8::try_from(name.len()).expect("a short name");
    [&[5, 1, 0, 3, length], name.as_bytes(), &port.to_be_bytes()].concat()
}

/// The code of the reply to a request, and whether the connection ends behind it.
fn code(port: SocketAddr, message: &[u8]) -> (u8, bool) {
    let mut stream = connect(port);
    stream.write_all(&[GREETING, message].concat()).expect("sent");
    let mut choice = [0; 2];
    stream.read_exact(&mut choice).expect("a choice");
    assert_eq!(choice, CHOICE);
    let mut reply = [0; 10];
    stream.read_exact(&mut reply).expect("a reply");
    assert_eq!((reply[0], &reply[2..4]), (5, &[0, 1][..]));
    let ends = reply[1] != 0 && all(&mut stream).is_empty();
    (reply[1], ends)
}

/// All that still comes.
fn all(stream: &mut TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => rest,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => rest,
        Err(error) => panic!("{error}"),
    }
}

fn says(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn curl_comes_by_name_and_by_address() {
    let (world, port) = world("");
    let name = format!("http://localhost:{}/a", world.origin.address().port());
    assert_eq!(succeed(&mut curl("--socks5-hostname", port, &name)), "hello");
    let line = world.proxy.logged("CONNECT localhost:");
    assert!(line.contains("TCP_TUNNEL/200") && line.contains("HIER_DIRECT"), "{line}");
    assert_eq!(succeed(&mut curl("--socks5", port, &world.target("/a"))), "hello");
    let place = world.origin.address().to_string();
    assert!(world.proxy.logged(&format!("CONNECT {place}")).contains("127.0.0.1"));
    // The same port speaks HTTP.
    assert_eq!(succeed(&mut curl("--proxy", port, &world.target("/a"))), "hello");
}

#[test]
fn curl_comes_to_an_ipv6_server() {
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        return humboldt_tests::skip("no IPv6");
    }
    let (world, port) = world("");
    let origin = Origin::at_address("[::1]:0");
    origin.on("/a", Reply::ok("six"));
    for option in ["--socks5", "--socks5-hostname"] {
        assert_eq!(succeed(&mut curl(option, port, &origin.url("/a"))), "six");
    }
    assert!(world.proxy.logged("CONNECT [::1]:").contains("TCP_TUNNEL/200"));
}

#[test]
fn curl_comes_over_a_unix_socket() {
    let world = World::forward("http_port unix:{dir}/socks.sock socks=only\n");
    world.origin.on("/a", Reply::ok("hello"));
    let path = world.proxy.path("socks.sock");
    until("the socket to be there", || path.exists().then_some(()));
    let proxy = format!("socks5h://localhost{}", path.display());
    let mut command = Command::new(program("curl"));
    command.args(["--silent", "--show-error", "--max-time", "20", "--noproxy", "", "--proxy"]);
    let output = run(command.arg(proxy).arg(world.target("/a")));
    // Since curl 7.84.
    if says(&output).contains("Unsupported") {
        return humboldt_tests::skip("this curl has no SOCKS over Unix sockets");
    }
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hello", "{}", says(&output));
}

#[test]
fn rules_are_those_of_connect_and_each_reason_has_its_code() {
    let names = NameServer::new();
    names.on("here.test", loopback(1));
    names.on("nowhere.test", Says::NoSuchName);
    let rules = "acl bad dstdomain .bad.test\nacl nine dst 127.0.0.9\nacl CONNECT method CONNECT\n\
                 http_access deny CONNECT bad\nhttp_access deny CONNECT nine\n\
                 reply_header_access Proxy-Status deny all\n";
    let (world, port) = world(&format!("{}{rules}", names.lines()));
    let server = world.origin.address();
    assert_eq!(code(port, &request(1, server)), (0, false));
    assert_eq!(code(port, &named("here.test", server.port())), (0, false));
    for (message, expected) in [
        (named("www.bad.test", 443), 2),
        (request(1, "127.0.0.9:443".parse().expect("an address")), 2),
        (named("127.0.0.9", 443), 2),
        (named("nowhere.test", 443), 4),
        (request(1, free_address()), 5),
        // BIND, UDP ASSOCIATE, and one that is none.
        (request(2, server), 7),
        (request(3, server), 7),
        (request(9, server), 7),
        (b"\x05\x01\0\x02\x7f\0\0\x01\0\x50".to_vec(), 8),
        (b"\x04\x01\0\x01\x7f\0\0\x01\0\x50".to_vec(), 1),
        (named("a b", 80), 1),
        (named("a\r\nX-Y: z", 80), 1),
    ] {
        assert_eq!(code(port, &message), (expected, true), "{message:?}");
    }
    // The proxy is no way to itself.
    assert_eq!(code(port, &request(1, port)).0, 1);
    assert!(world.proxy.logged("www.bad.test:443").contains("TCP_DENIED/403"));
    assert!(world.proxy.logged(" BIND ").contains("NONE/501"));
    assert!(world.proxy.logged("UDP_ASSOCIATE").contains("NONE/501"));
    let refused = run(&mut curl("--socks5-hostname", port, "http://www.bad.test/"));
    assert_eq!(refused.status.code(), Some(97), "{}", says(&refused));
}

/// A parent's refusal is a code to the client: nobody waits for its page.
#[test]
fn of_a_parents_refusal_the_head_is_enough() {
    let parent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = parent.local_addr().expect("its address");
    let (leave, left) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut stream, _) = parent.accept().expect("accepted");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("a request");
            head.push(byte[0]);
        }
        let refusal = "HTTP/1.1 403 No\r\nContent-Length: 1000000\r\n\r\na part";
        stream.write_all(refusal.as_bytes()).expect("sent");
        assert!(all(&mut stream).is_empty());
        leave.send(()).expect("the test waits");
    });
    let (ip, number) = (address.ip(), address.port());
    let peer = format!("cache_peer {ip} parent {number} 0 no-query\nnever_direct allow all\n");
    let (world, port) = world(&peer);
    assert_eq!(code(port, &request(1, world.origin.address())), (2, true));
    left.recv_timeout(Duration::from_secs(20)).expect("the parent is left");
    assert!(world.proxy.logged("CONNECT").contains("TCP_TUNNEL/403"));
}

#[test]
fn curl_logs_in_with_the_users_of_basic() {
    let lines = "auth_param basic program /usr/lib/squid/basic_ncsa_auth {dir}/passwd\n\
                 acl users proxy_auth REQUIRED\nhttp_access deny !users\n";
    let (world, port) = world(lines);
    fs::write(world.proxy.path("passwd"), ANNA).expect("a password file");
    let curl = |login: Option<&str>| {
        let mut command = curl("--socks5-hostname", port, &world.target("/a"));
        login.into_iter().for_each(|login| _ = command.args(["--proxy-user", login]));
        run(&mut command)
    };
    let right = curl(Some("anna:secret"));
    assert_eq!(String::from_utf8_lossy(&right.stdout), "hello", "{}", says(&right));
    assert!(world.proxy.logged("TCP_TUNNEL/200").contains(" anna "));
    for login in [None, Some("anna:wrong"), Some("bo:secret")] {
        let refused = curl(login);
        assert_eq!(refused.status.code(), Some(97), "{login:?}: {}", says(&refused));
    }
    assert_eq!(world.proxy.logged_times("TCP_DENIED/407", 3).len(), 3);
}

/// Without a way to log in, credentials mean nothing, as with HTTP.
#[test]
fn a_client_that_offers_only_a_login_may_come_where_none_is_asked() {
    let (world, port) = world("");
    let mut stream = connect(port);
    stream.write_all(b"\x05\x01\x02\x01\x04anna\x06secret").expect("sent");
    let mut answers = [0; 4];
    stream.read_exact(&mut answers).expect("answers");
    assert_eq!(answers, *b"\x05\x02\x01\0");
    stream.write_all(&request(1, world.origin.address())).expect("sent");
    let mut reply = [0; 10];
    stream.read_exact(&mut reply).expect("a reply");
    assert_eq!(reply[1], 0);
}

#[test]
fn bytes_that_come_early_or_one_by_one_arrive() {
    let (world, port) = world("");
    let asks = b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let message = [GREETING, &request(1, world.origin.address()), asks].concat();
    for size in [message.len(), 1] {
        let mut stream = connect(port);
        stream.set_nodelay(true).expect("no delay");
        for part in message.chunks(size) {
            stream.write_all(part).expect("sent");
        }
        let received = all(&mut stream);
        let text = String::from_utf8_lossy(&received[12..]);
        assert_eq!((&received[..2], received[3]), (CHOICE, 0));
        assert!(text.starts_with("HTTP/1.1 200 ") && text.ends_with("hello"), "{text}");
    }
}

#[test]
fn clients_that_keep_to_no_rule_are_told_off_and_leave_nothing() {
    let (world, port) = world("request_timeout 1 second\nworkers 1\n");
    let gets = |bytes: &[u8]| {
        let mut stream = connect(port);
        stream.write_all(bytes).expect("sent");
        all(&mut stream)
    };
    // No method that the proxy has: GSSAPI alone, and none at all.
    assert_eq!(gets(b"\x05\x01\x01"), b"\x05\xff");
    // Now the core has all that it needs.
    let before = world.proxy.descriptors();
    assert_eq!(gets(b"\x05\0"), b"\x05\xff");
    // A login of another version.
    assert_eq!(gets(b"\x05\x01\x02\x05a"), b"\x05\x02\x01\x01");
    // What does not come in time.
    assert_eq!(gets(b"\x05"), b"\x05\xff");
    assert_eq!(gets(GREETING), b"\x05\0\x05\x01\0\x01\0\0\0\0\0\0");
    assert!(world.proxy.logged("NONE/408").contains("error:transaction-end-before-headers"));
    // Clients that leave in the middle.
    for end in 1..GREETING.len() {
        drop(connect(port).write_all(&GREETING[..end]));
    }
    until("their descriptors to be free", || (world.proxy.descriptors() <= before).then_some(()));
}

#[test]
fn a_port_for_socks_alone_speaks_no_http() {
    let (world, port) = world_on("socks=only", "");
    let mut stream = connect(port);
    let asks = format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", world.target("/a"));
    stream.write_all(asks.as_bytes()).expect("sent");
    assert!(all(&mut stream).is_empty());
    assert!(world.proxy.logged("error:invalid-request").contains("/400"));
    assert_eq!(code(port, &request(1, world.origin.address())), (0, false));
    // And the other port, which is for HTTP, no SOCKS.
    let mut stream = connect(world.proxy.address());
    stream.write_all(GREETING).expect("sent");
    stream.write_all(&request(1, world.origin.address())).expect("sent");
    assert!(all(&mut stream).starts_with(b"HTTP/1.1 400 "));
}

#[test]
fn a_client_pool_holds_back_both_protocols_of_a_port_with_socks() {
    const LEVEL: usize = 20_000;
    let (world, port) = world(&format!(
        "acl slow myportname socks\nclient_delay_pools 1\nclient_delay_parameters 1 1 {LEVEL}\n\
         client_delay_initial_bucket_level 50\nclient_delay_access 1 allow slow\n"
    ));
    world.origin.on("/big", Reply::ok(vec![b'x'; 3 * LEVEL]));
    let ask = format!("GET /big HTTP/1.1\r\nHost: {}\r\n\r\n", world.origin.address());
    let get = format!("GET {} HTTP/1.1\r\nHost: a.test\r\n\r\n", world.target("/big"));
    let by_socks = [GREETING, &request(1, world.origin.address()), ask.as_bytes()].concat();
    // The two share a bucket, which is half full.
    let mut streams = [by_socks, get.into_bytes()].map(|message| {
        let mut stream = connect(port);
        stream.write_all(&message).expect("sent");
        stream
    });
    let mut other = world.client();
    other.request("GET", &world.target("/big"), &[], b"");
    assert_eq!(other.response().expect(200).body.len(), 3 * LEVEL);
    let got: usize = streams.iter_mut().map(what_comes).sum();
    assert!((LEVEL / 4..LEVEL).contains(&got), "{got}");
}

/// Bytes that come without a pause: the empty bucket gives each of the two a byte in two seconds.
fn what_comes(stream: &mut TcpStream) -> usize {
    stream.set_read_timeout(Some(Duration::from_millis(1_500))).expect("a limit");
    let (mut buffer, mut bytes) = ([0; 4096], 0);
    while let Ok(read @ 1..) = stream.read(&mut buffer) {
        bytes += read;
    }
    bytes
}
