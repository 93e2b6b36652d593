//! Rules about the name of the client, which the proxy looks up in the DNS.

use humboldt_tests::dns::{NameServer, Says};
use humboldt_tests::wait::until;
use humboldt_tests::{Reply, Response, World};

/// The client that a trusted proxy names: loopback addresses are `localhost` without a question.
const BEHIND: (&str, &str) = ("X-Forwarded-For", "192.0.2.7");

/// Its reverse name.
const CLIENT: &str = "7.2.0.192.in-addr.arpa";

/// A proxy that asks the name server for everything.
fn world(dns: &NameServer, rules: &str) -> World {
    let hosts = if rules.contains("hosts_file") { "" } else { "hosts_file none\n" };
    let lines = "dns_timeout 5 minutes\ndns_retransmit_interval 3 seconds\n\
                 follow_x_forwarded_for allow localhost\nacl inside srcdomain .inside.test\nacl nameless srcdomain none\n\
                 acl numbered srcdom_regex ^PC[0-9]\n";
    let world = World::forward(&format!("{}{hosts}{lines}{rules}", dns.lines()));
    for path in ["/a", "/b"] {
        world.origin.on(path, Reply::ok("x").cachable(600));
    }
    world
}

fn get(world: &World, path: &str) -> Response {
    world.ask("GET", path, &[BEHIND])
}

#[test]
fn the_name_of_the_client_decides() {
    let dns = NameServer::new();
    let rules = [
        ("http_access deny !inside\n", [200, 403, 403]),
        ("http_access deny inside\n", [403, 200, 200]),
        ("http_access deny nameless\n", [200, 200, 403]),
        ("http_access deny numbered\n", [403, 200, 200]),
    ];
    for (rules, wanted) in rules {
        let world = world(&dns, rules);
        let says = [Says::Name("PC7.inside.test"), Says::Name("pc7.other.test"), Says::NoSuchName];
        for (says, status) in says.into_iter().zip(wanted) {
            dns.on(CLIENT, says.clone());
            assert_eq!(get(&world, "/a").status(), status, "{rules}{says:?}");
            assert_eq!(dns.asked_for_name(CLIENT), 1, "{rules}{says:?}");
        }
    }
}

#[test]
fn a_rule_without_an_answer_about_the_name_refuses() {
    let dns = NameServer::new();
    dns.on(CLIENT, Says::Failure);
    for rules in ["http_access deny inside\n", "http_access deny !inside\n"] {
        let world = world(&dns, rules);
        let answer = get(&world, "/a").expect(503);
        assert!(answer.text().contains("ERR_ACCESS_UNDECIDED"), "{}", answer.text());
        assert_eq!(world.origin.count("/a"), 0, "{rules}");
    }
    let world = world(&dns, "http_reply_access deny inside\n");
    let _ = get(&world, "/a").expect(503);
    dns.on(CLIENT, Says::Name("pc7.other.test"));
    let _ = get(&world, "/a").expect(200);
    dns.on(CLIENT, Says::Name("pc7.inside.test"));
    let _ = get(&world, "/a").expect(403);
}

#[test]
fn the_name_is_looked_up_once_for_a_request_and_only_if_a_rule_comes_to_it() {
    let dns = NameServer::new();
    dns.on(CLIENT, Says::Name("pc7.other.test"));
    let rules = "acl b urlpath_regex ^/b\nhttp_access deny b inside\nadapted_http_access deny b inside\n\
                 cache deny b inside\nalways_direct allow b inside\nhttp_reply_access deny b inside\n";
    let world = world(&dns, rules);
    for cache in ["MISS", "HIT"] {
        assert_eq!(get(&world, "/a").expect(200).cache(), cache);
    }
    assert_eq!(dns.asked_for_name(CLIENT), 0);
    for (cache, asked) in [("MISS", 1), ("HIT", 2)] {
        assert_eq!(get(&world, "/b").expect(200).cache(), cache);
        assert_eq!(dns.asked_for_name(CLIENT), asked);
    }
}

#[test]
fn the_wait_for_a_name_ends_with_the_client() {
    let dns = NameServer::new();
    dns.on(CLIENT, Says::Nothing);
    let world = world(&dns, "http_access deny inside\n");
    let mut client = world.client();
    client.request("GET", &world.target("/a"), &[BEHIND], b"");
    until("the question", || (dns.asked_for_name(CLIENT) > 0).then_some(()));
    drop(client);
    assert!(world.proxy.logged("/a").contains("NONE_ABORTED"), "{}", world.proxy.logged("/a"));
    assert_eq!(world.origin.count("/a"), 0);
}

#[test]
fn the_hosts_file_has_names_of_clients() {
    let dns = NameServer::new();
    let mut world = world(&dns, "hosts_file {dir}/hosts\nhttp_access deny !inside\n");
    let _ = get(&world, "/a").expect(403);
    let line = "192.0.2.7 pc9.inside.test pc9\n";
    std::fs::write(world.proxy.path("hosts"), line).expect("written");
    world.proxy.restart();
    let _ = get(&world, "/a").expect(200);
}

#[test]
fn a_client_on_this_machine_is_called_localhost() {
    let dns = NameServer::new();
    let world = world(&dns, "acl here srcdomain localhost\nhttp_access deny here\n");
    let _ = world.ask("GET", "/a", &[]).expect(403);
    let _ = get(&world, "/a").expect(200);
}

#[test]
fn a_websocket_may_pass_only_if_a_tunnel_may_by_the_name_of_the_client() {
    let dns = NameServer::new();
    let world = world(&dns, "acl tunnel method CONNECT\nhttp_access deny tunnel !inside\n");
    world.origin.on("/a", Reply::ok("x"));
    let fields = [
        BEHIND,
        ("Connection", "upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    for (name, offered) in [("pc7.inside.test", Some("websocket")), ("pc7.other.test", None)] {
        dns.on(CLIENT, Says::Name(name));
        let _ = world.ask("GET", "/a", &fields).expect(200);
        assert_eq!(world.origin.last("/a").field("Upgrade"), offered, "{name}");
    }
}
