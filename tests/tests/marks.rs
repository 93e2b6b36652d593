//! Marks of packets and connections, as a packet filter counts them.
//!
//! Needs root, `unshare`, `ip` and `nft`; without them it says so and passes.

use humboldt_tests::spaces::{in_a_namespace, ip, set_filter};
use humboldt_tests::wait::until;
use humboldt_tests::{Reply, World};
use std::process::Command;

/// Counts packets of the proxy. `ORIGIN` and `PROXY` are ports.
const FILTER: &str = "\
table inet marks {
  counter syn_marked {}
  counter syn_plain {}
  counter server_tos {}
  counter client_marked {}
  counter client_tos {}
  counter client_hit {}
  counter connection {}
  chain outgoing {
    type filter hook output priority 0;
    tcp dport ORIGIN tcp flags & (syn | ack) == syn meta mark 0x10 counter name syn_marked
    tcp dport ORIGIN tcp flags & (syn | ack) == syn meta mark 0 counter name syn_plain
    tcp dport ORIGIN tcp flags & (syn | ack) == syn ip dscp 8 counter name server_tos
    tcp sport PROXY meta mark 0x30 counter name client_marked
    tcp sport PROXY ip dscp 10 counter name client_tos
    tcp sport PROXY ip dscp 20 counter name client_hit
    ct mark 0xfb counter name connection
  }
}
";

/// Packets that a counter has counted.
fn count(name: &str) -> u64 {
    let mut nft = Command::new("nft");
    let output = nft.args(["list", "counter", "inet", "marks", name]).output().expect("nft runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let words: Vec<&str> = text.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "packets").expect("a counter");
    words[at + 1].parse().expect("a number")
}

fn set(world: &World) {
    let origin = world.origin.address().port().to_string();
    let proxy = world.proxy.address().port().to_string();
    set_filter(&FILTER.replace("ORIGIN", &origin).replace("PROXY", &proxy));
}

#[test]
fn packets_and_connections_have_the_marks_that_rules_want() {
    in_a_namespace("marked_packets");
}

#[test]
fn without_the_capability_packets_go_without_mark_and_a_rule_about_marks_refuses() {
    in_a_namespace("no_capability");
}

#[test]
#[ignore = "a test above runs it in a namespace"]
fn marked_packets() {
    ip("link set lo up");
    let lines = "acl marked urlpath_regex ^/marked\nacl tos urlpath_regex ^/tos\n\
                 acl front urlpath_regex ^/front\nacl flow urlpath_regex ^/connection\n\
                 acl more urlpath_regex ^/connection/more\n\
                 acl known client_connection_mark 0xf0/0xf0 0x1\n\
                 acl secret urlpath_regex ^/secret\nhttp_access deny secret !known\n\
                 tcp_outgoing_mark 0x10 marked\ntcp_outgoing_tos 0x20 tos\n\
                 mark_client_packet 0x30 front\nclientside_tos 0x28 front\n\
                 mark_client_connection 0xAB/0xF more\nmark_client_connection 0x5f/0xff flow\n";
    let world = World::forward(lines);
    set(&world);
    for path in
        ["/marked", "/plain", "/tos", "/front", "/connection", "/connection/more", "/secret"]
    {
        world.origin.on(path, Reply::ok("x"));
    }
    // Servers: from the first packet on, and a connection is for requests with the same marks.
    let _ = world.get("/marked").expect(200);
    assert_eq!((count("syn_marked"), count("syn_plain")), (1, 0));
    let _ = world.get("/plain").expect(200);
    assert_eq!((count("syn_marked"), count("syn_plain")), (1, 1));
    let _ = world.get("/tos").expect(200);
    assert_eq!(count("server_tos"), 1);
    assert_eq!(world.origin.connections(), 3);
    // Clients: each answer of a connection has its own.
    let mut client = world.client();
    client.request("GET", &world.target("/plain"), &[], b"");
    let _ = client.response().expect(200);
    assert_eq!((count("client_marked"), count("client_tos")), (0, 0));
    client.request("GET", &world.target("/front"), &[], b"");
    let _ = client.response().expect(200);
    let marked = (count("client_marked"), count("client_tos"));
    assert!(marked.0 > 0 && marked.1 > 0, "{marked:?}");
    client.request("GET", &world.target("/plain"), &[], b"");
    let _ = client.response().expect(200);
    let more = (count("client_marked"), count("client_tos"));
    // An acknowledgement of the answer before may still come.
    assert!(more.0 <= marked.0 + 1 && more.1 <= marked.1 + 1, "{marked:?} {more:?}");
    // The connection itself, and the rules about it.
    assert_eq!(world.get("/secret").status(), 403);
    let mut client = world.client();
    client.request("GET", &world.target("/secret"), &[], b"");
    let _ = client.response().expect(403);
    client.request("GET", &world.target("/connection"), &[], b"");
    let _ = client.response().expect(200);
    assert_eq!(count("connection"), 0);
    client.request("GET", &world.target("/connection/more"), &[], b"");
    let _ = client.response().expect(200);
    assert!(count("connection") > 0, "0xAB/0xF makes 0xFB of 0x5F");
    client.request("GET", &world.target("/secret"), &[], b"");
    let _ = client.response().expect(200);
    // By source.
    world.proxy.reconfigure("qos_flows tos local-hit=0x50 disable-preserve-miss\n");
    world.origin.on("/kept", Reply::ok("x").cachable(60));
    let _ = world.get("/kept").expect(200);
    assert_eq!(count("client_hit"), 0);
    assert_eq!(world.get("/kept").expect(200).cache(), "HIT");
    assert!(count("client_hit") > 0);
}

#[test]
#[ignore = "a test above runs it in a namespace"]
fn no_capability() {
    ip("link set lo up");
    let world = World::forward("");
    world.origin.on("/a", Reply::ok("x"));
    let rules = "tcp_outgoing_mark 0x10\nmark_client_packet 1\nmark_client_connection 1\n\
                 acl known client_connection_mark 1\nacl b urlpath_regex ^/b\nhttp_access deny b known\n";
    world.proxy.reconfigure(rules);
    for _ in 0..3 {
        let _ = world.get("/a").expect(200);
    }
    let log = until("the warnings", || {
        let log = world.proxy.text("cache.log");
        log.contains("mark_client_connection: ").then_some(log)
    });
    assert_eq!(log.matches("packets cannot get a netfilter mark").count(), 1, "{log}");
    assert_eq!(log.matches("mark_client_connection: ").count(), 1, "{log}");
    let refused = world.get("/b").expect(503).text();
    assert!(refused.contains("ERR_ACCESS_UNDECIDED"), "{refused}");
}
