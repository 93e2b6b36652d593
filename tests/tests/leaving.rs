//! Clients that leave before they have an answer: whatever is being waited for, it ends, and its
//! descriptors are free.

use humboldt_tests::wait::{Gate, LIMIT, until, until_within};
use humboldt_tests::{Client, Proxy, Reply, World};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Clients of each kind.
const CLIENTS: usize = 100;

/// How long the descriptors of departed clients may stay; most are free within a second. A tunnel
/// whose client has only sent its FIN has 10 s.
const FREE_WITHIN: Duration = Duration::from_secs(20);

const ONE_CORE: &str = "workers 1\n";

/// A server that accepts connections, and neither reads nor writes.
struct Silent {
    address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    stops: Arc<AtomicBool>,
}

impl Silent {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (accepted, stops) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (counter, is_over) = (Arc::clone(&accepted), Arc::clone(&stops));
        std::thread::spawn(move || {
            let mut streams = Vec::new();
            while let Ok((stream, _)) = listener.accept() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                streams.push(stream);
                counter.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { address, accepted, stops }
    }

    fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }

    fn wait_for(&self, count: usize) {
        until_within(2 * LIMIT, &format!("connection {count} to the server"), || {
            (self.accepted() >= count).then_some(())
        });
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address); // wakes the accepting thread
    }
}

/// The requests of clients of one kind: `SERVER` is the server, `N` the client's number.
struct Kind {
    name: &'static str,
    request: &'static str,
}

const KINDS: &[Kind] = &[
    Kind { name: "GET", request: "GET http://SERVER/N HTTP/1.1\r\nHost: SERVER\r\n\r\n" },
    Kind {
        name: "the same URL",
        request: "GET http://SERVER/ HTTP/1.1\r\nHost: SERVER\r\nCache-Control: no-store\r\n\r\n",
    },
    Kind {
        name: "GET and more",
        request: "GET http://SERVER/N HTTP/1.1\r\nHost: SERVER\r\n\r\nMORE",
    },
    Kind {
        name: "PUT",
        request: "PUT http://SERVER/N HTTP/1.1\r\nHost: SERVER\r\nContent-Length: 4\r\n\r\nbody",
    },
    Kind {
        name: "half a POST",
        request: "POST http://SERVER/N HTTP/1.1\r\nHost: SERVER\r\nContent-Length: 9\r\n\r\nbody",
    },
    Kind {
        name: "chunks",
        request: "POST http://SERVER/N HTTP/1.1\r\nHost: SERVER\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n",
    },
    Kind {
        name: "an upgrade",
        request: "GET http://SERVER/N HTTP/1.1\r\nHost: SERVER\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                  Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    },
    Kind { name: "CONNECT", request: "CONNECT SERVER HTTP/1.1\r\nHost: SERVER\r\n\r\n" },
];

impl Kind {
    fn ask(&self, client: &mut Client, server: &str, number: usize) {
        let text = self.request.replace("SERVER", server).replace("/N", &format!("/{number}"));
        // The rest of it is not there yet, and nothing of it is read meanwhile.
        client.send(text.replace("MORE", &"GET http://SERVER/ HTTP/1.1\r\nX: y\r\n".repeat(40)));
    }
}

/// Open descriptors of the proxy when every core has served a client and none is left.
fn descriptors_at_rest(proxy: &Proxy) -> usize {
    for _ in 0..20 {
        let _ = proxy.client().request("GET", &proxy.page("metrics"), &[], b"").response();
    }
    let mut asking = proxy.client();
    until("all others to have left", || {
        let page = asking.request("GET", &proxy.page("metrics"), &[], b"").response().text();
        page.lines().any(|line| line == "humboldt_client_connections_open 1").then_some(())
    });
    // What was closed a moment ago may still be there in the first.
    (0..10).map(|_| proxy.descriptors()).min().unwrap_or_default() - 1
}

fn has_free(proxy: &Proxy, base: usize, what: &str) {
    until_within(
        FREE_WITHIN,
        &format!("the descriptors of {what}: {} and not {base}", proxy.descriptors()),
        || (proxy.descriptors() <= base).then_some(()),
    );
}

/// Clients of every kind ask, and leave when the server has all their connections.
fn leave(lines: &str, go: fn(Client)) {
    let (proxy, server) = (Proxy::forward(lines), Silent::new());
    let base = descriptors_at_rest(&proxy);
    for kind in KINDS {
        let before = server.accepted();
        let clients: Vec<Client> = (0..CLIENTS)
            .map(|number| {
                let mut client = proxy.client();
                kind.ask(&mut client, &server.address.to_string(), number);
                client
            })
            .collect();
        server.wait_for(before + CLIENTS);
        assert!(
            proxy.descriptors() >= base + 2 * CLIENTS,
            "{}: a descriptor for each side",
            kind.name
        );
        clients.into_iter().for_each(go);
        has_free(&proxy, base, kind.name);
    }
}

#[test]
fn a_client_that_closes_frees_what_its_request_holds() {
    leave("", Client::abort);
}

#[test]
fn a_client_that_resets_frees_what_its_request_holds_also_where_half_closed_ones_are_served() {
    leave("half_closed_clients on\n", Client::reset);
}

#[test]
fn a_client_that_half_closes_and_then_resets_is_noticed() {
    let (proxy, server) = (Proxy::forward("half_closed_clients on\n"), Silent::new());
    let base = descriptors_at_rest(&proxy);
    for kind in KINDS.iter().filter(|kind| !matches!(kind.name, "half a POST" | "chunks")) {
        let before = server.accepted();
        let mut clients: Vec<Client> = (0..CLIENTS).map(|_| proxy.client()).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            kind.ask(client, &server.address.to_string(), number);
            client.half_close();
        }
        server.wait_for(before + CLIENTS);
        assert!(
            proxy.descriptors() >= base + 2 * CLIENTS,
            "{}: a descriptor for each side",
            kind.name
        );
        clients.into_iter().for_each(Client::reset);
        has_free(&proxy, base, kind.name);
    }
}

/// Neither the server nor the proxy takes the client's bytes: its FIN is behind them.
#[test]
fn a_client_that_leaves_with_the_rest_of_its_body_unread_is_noticed() {
    const BODY_BYTES: usize = 64 << 20;
    let (proxy, server) = (Proxy::forward(""), Silent::new());
    let base = descriptors_at_rest(&proxy);
    for method in ["POST", "CONNECT"] {
        let mut clients: Vec<Client> = (0..4).map(|_| proxy.client()).collect();
        let before = server.accepted();
        for client in &mut clients {
            match method {
                "POST" => client.send(format!(
                    "POST http://{0}/ HTTP/1.1\r\nHost: {0}\r\nContent-Length: {BODY_BYTES}\r\n\r\n",
                    server.address
                )),
                _ => client.send(format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", server.address)),
            };
        }
        server.wait_for(before + clients.len());
        for client in &mut clients {
            assert!(client.stuff(BODY_BYTES) < BODY_BYTES, "all of it was taken");
        }
        clients.into_iter().for_each(Client::reset);
        has_free(&proxy, base, method);
    }
}

#[test]
fn a_client_that_leaves_while_a_name_is_looked_up_is_noticed() {
    const ASKING: usize = 50;
    // Nobody answers here.
    let name_server = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = name_server.local_addr().expect("an address");
    let dns = format!("dns_nameservers {address}\ndns_timeout 5 minutes\n");
    let by_address = "acl there dst 192.0.2.1\nacl silent dstdomain .silent.test\nhttp_access deny silent there\n";
    for lines in [dns.clone(), dns + by_address] {
        let world = World::forward(&lines);
        for (number, kind) in KINDS.iter().enumerate() {
            let name = format!("n{number}.silent.test:8000");
            let base = descriptors_at_rest(&world.proxy);
            let before = world.metric("humboldt_dns_cache_misses_total");
            let clients: Vec<Client> = (0..ASKING)
                .map(|number| {
                    let mut client = world.client();
                    kind.ask(&mut client, &name, number);
                    client
                })
                .collect();
            until("this many look-ups", || {
                let asked = world.metric("humboldt_dns_cache_misses_total") - before;
                (asked >= ASKING as u64).then_some(())
            });
            clients.into_iter().for_each(Client::abort);
            // The question itself has sockets, with any number of waiting clients.
            has_free(&world.proxy, base + ASKING / 2, kind.name);
        }
    }
}

/// A process whose parent is this one.
fn child_of(parent: u32) -> Pid {
    let stat = |entry: fs::DirEntry| fs::read_to_string(entry.path().join("stat")).ok();
    until("the helper", || {
        fs::read_dir("/proc").expect("processes").flatten().filter_map(stat).find_map(|stat| {
            let id = stat.split(' ').next()?.parse().ok()?;
            let parent_id: u32 = stat.rsplit(')').next()?.split(' ').nth(2)?.parse().ok()?;
            (parent_id == parent).then(|| Pid::from_raw(id))?
        })
    })
}

/// A stopped helper plays a disk that hangs.
struct Hung(Pid);

impl Hung {
    fn helper_of(proxy: &Proxy) -> Self {
        let helper = child_of(proxy.id());
        kill_process(helper, Signal::STOP).expect("a helper");
        Self(helper)
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

const ON_DISK_ONLY: &str = "cache_mem 0\ncache_dir diskd {dir}/store 64\nacl purge method PURGE\nhttp_access allow purge\n";

/// A world in which an object is in a directory, and only there.
fn with_an_object_on_disk() -> World {
    let world = World::forward(ON_DISK_ONLY);
    world.origin.on("/a", Reply::ok("hello").cachable(600));
    until("a hit from disk", || (world.get("/a").cache() == "HIT").then_some(()));
    world
}

#[test]
fn a_client_that_leaves_while_a_disk_hangs_is_noticed_and_its_purge_is_made_all_the_same() {
    let world = with_an_object_on_disk();
    let asked = world.origin.count("/a");
    let base = descriptors_at_rest(&world.proxy);
    for method in ["GET", "PURGE"] {
        let hung = Hung::helper_of(&world.proxy);
        let before = world.metric("humboldt_client_http_requests_total");
        let clients: Vec<Client> = (0..20)
            .map(|_| {
                let mut client = world.client();
                client.request(method, &world.target("/a"), &[], b"");
                client
            })
            .collect();
        until("requests that are read", || {
            (world.metric("humboldt_client_http_requests_total") > before + 20).then_some(())
        });
        assert!(
            clients.iter().all(|client| !client.has_input()),
            "{method}: the disk does not hang"
        );
        clients.into_iter().for_each(Client::abort);
        has_free(&world.proxy, base, method);
        drop(hung);
        if method == "GET" {
            until("the disk", || (world.get("/a").cache() == "HIT").then_some(()));
        }
    }
    until("a purge that is made", || (world.get("/a").cache() == "MISS").then_some(()));
    assert!(world.origin.count("/a") > asked);
}

/// One client, one connection at a time.
#[test]
fn requests_that_are_given_up_one_after_the_other_leave_the_proxy_to_others() {
    let (world, server) = (World::forward("max_filedescriptors 256\n"), Silent::new());
    world.origin.on("/a", Reply::ok("hello"));
    for kind in KINDS {
        for number in 0..300 {
            let before = server.accepted();
            let mut client = world.client();
            kind.ask(&mut client, &server.address.to_string(), number);
            server.wait_for(before + 1);
        }
        assert_eq!(world.get("/a").expect(200).text(), "hello", "after {}", kind.name);
    }
}

#[test]
fn a_client_that_half_closes_gets_a_slow_answer_where_that_is_asked_for() {
    let world = World::forward(&format!("{ONE_CORE}half_closed_clients on\n"));
    let gate = Arc::new(Gate::default());
    for path in ["/get", "/post", "/upgrade"] {
        let at_origin = Arc::clone(&gate);
        world.origin.handle(path, move |_, wire| {
            at_origin.pass();
            wire.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nslow");
        });
    }
    let upgrade = [("Connection", "Upgrade"), ("Upgrade", "websocket")];
    let mut clients = ["/get", "/post", "/upgrade"].map(|path| {
        let mut client = world.client();
        let target = world.target(path);
        match path {
            "/get" => client.request("GET", &target, &[], b""),
            "/post" => client.request("POST", &target, &[], b"body"),
            _ => client.request("GET", &target, &upgrade, b""),
        };
        world.origin.wait_for(path, 1);
        client.half_close();
        client
    });
    // On one core its end has been seen when a later request is answered.
    world.origin.on("/later", Reply::ok("later"));
    let _ = world.get("/later").expect(200);
    gate.open();
    for client in &mut clients {
        assert_eq!(client.response().expect(200).text(), "slow");
    }
}

#[test]
fn a_tunnel_whose_client_has_sent_all_still_brings_what_the_server_says() {
    let proxy = Proxy::forward("");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut said = String::new();
        std::io::Read::read_to_string(&mut stream, &mut said).expect("all that the client says");
        std::io::Write::write_all(&mut stream, format!("you said {said}").as_bytes())
            .expect("an answer");
    });
    let mut client = proxy.client();
    client.send(format!("CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\n"));
    assert_eq!(client.response_to("CONNECT").status(), 200);
    client.send("ping").half_close();
    assert_eq!(client.bytes(13), b"you said ping");
    assert!(client.closes());
    server.join().expect("a server that ends");
}

#[test]
fn an_answer_to_an_upload_that_is_no_answer_is_an_error_for_the_client() {
    let world = World::forward("");
    world.origin.on("/a", Reply::status("304 Not Modified", ""));
    let mut client = world.client();
    let answer = client.request("POST", &world.target("/a"), &[], b"body").response();
    assert_eq!(answer.status(), 502, "{:?}", answer.head);
    assert!(answer.text().contains("304"), "{}", answer.text());
    let line = world.proxy.logged("POST");
    assert!(line.contains("/502"), "{line}");
}
