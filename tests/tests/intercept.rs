//! Intercepted connections: a client, a machine that redirects its connections to the proxy with
//! nftables, and servers.
//!
//! Needs root, `unshare`, `nsenter`, `ip`, `nft` and `curl`; without them it says so and passes.

use humboldt_tests::spaces::{Space, in_a_namespace, ip, set_filter};
use humboldt_tests::{Origin, Proxy, Reply};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

/// The packet filter of the router. Two addresses of servers are its own, to keep this small.
const FILTER: &str = "\
table inet intercept {
  chain incoming {
    type nat hook prerouting priority dstnat;
    iifname gate ip daddr 192.0.2.0/24 tcp dport { 80, 8080 } redirect to :3129
    iifname gate ip6 daddr 2001:db8::/32 tcp dport 80 redirect to :3129
  }
}
";

const HOSTS: &str = "\
192.0.2.1 site.test
2001:db8::1 six.test
192.0.2.2 other.test
";

const LINES: &str = "\
http_port 10.99.0.1:3129 intercept
http_port [fd99::1]:3129 intercept
hosts_file {dir}/hosts
acl servers dst 192.0.2.0/24 2001:db8::/32
private_destinations allow servers
acl closed dst 192.0.2.3
http_access deny closed
acl upload localport 8080
acl secret urlpath_regex ^/secret
http_access deny upload secret
auth_param basic program /usr/lib/squid/basic_ncsa_auth {dir}/passwd
acl members urlpath_regex ^/members
acl users proxy_auth REQUIRED
http_access allow members users
acl purge method PURGE
http_access allow purge
";

/// The packet filter of the router for TPROXY. The first rule takes the answers of servers, which
/// go to the clients' own addresses.
const FILTER_TPROXY: &str = "\
table ip transparent {
  chain incoming {
    type filter hook prerouting priority mangle;
    meta l4proto tcp socket transparent 1 meta mark set 1 accept
    iifname gate tcp dport 80 tproxy to :3129 meta mark set 1 accept
  }
}
";

#[test]
fn an_intercepted_request_goes_where_its_client_sent_it() {
    in_a_namespace("redirected_connections");
}

#[test]
fn the_server_sees_the_client_of_a_tproxy_port() {
    in_a_namespace("connections_that_keep_their_addresses");
}

/// Connects the namespace of the client.
fn connect(client: &Space) {
    ip("link set lo up");
    ip(&format!("link add gate type veth peer name eth0 netns {}", client.0.id()));
    ip("address add 10.99.0.1/24 dev gate");
    ip("address add fd99::1/64 dev gate nodad");
    ip("link set gate up");
    client.run("link set eth0 up");
    client.run("address add 10.99.0.2/24 dev eth0");
    client.run("address add fd99::2/64 dev eth0 nodad");
    client.run("route add default via 10.99.0.1");
    client.run("-6 route add default via fd99::1");
}

/// Gives this namespace the addresses of the servers.
fn be_the_servers() {
    for address in ["192.0.2.1/32", "192.0.2.2/32", "192.0.2.3/32", "2001:db8::1/128"] {
        ip(&format!("address add {address} dev lo"));
    }
}

fn server(address: &str, says: &str) -> Origin {
    let origin = Origin::on_listener(TcpListener::bind(address).expect("an address of this test"));
    let pages = (0..8).map(|number| format!("/page{number}"));
    let others = ["/", "/secret", "/six", "/metrics"].map(str::to_owned);
    for path in pages.chain(others) {
        origin.on(&path, Reply::ok(says).with("Cache-Control", "max-age=1000"));
    }
    origin
}

#[test]
#[ignore = "a test above runs it in a namespace"]
fn redirected_connections() {
    let client = Space::new();
    connect(&client);
    be_the_servers();
    set_filter(FILTER);
    let _one = server("192.0.2.1:80", "one");
    let _two = server("192.0.2.2:80", "two");
    let _three = server("192.0.2.3:80", "three");
    let _upload = server("192.0.2.1:8080", "upload");
    let _six = server("[2001:db8::1]:80", "six");
    let folder = tempfile::tempdir().expect("a folder");
    let hosts = folder.path().join("hosts");
    fs::write(&hosts, HOSTS).expect("names");
    // The password is `secret`.
    fs::write(folder.path().join("passwd"), "anna:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n")
        .expect("a password file");
    let lines = LINES.replace("{dir}", &folder.path().display().to_string());
    let proxy = Proxy::forward(&lines);

    // The address that the client connected to is one of the host's.
    assert_eq!(client.curl("--resolve site.test:80:192.0.2.1 http://site.test/"), "one 200 MISS");
    assert!(proxy.logged("http://site.test/ ").contains("ORIGINAL_DST/192.0.2.1"));
    assert_eq!(client.curl("--resolve site.test:80:192.0.2.1 http://site.test/"), "one 200 HIT");
    let six = "-g --resolve six.test:80:[2001:db8::1] http://six.test/six";
    assert_eq!(client.curl(six), "six 200 MISS");
    assert!(proxy.logged("http://six.test/six").contains("ORIGINAL_DST/2001:db8::1"));

    // It is another one: the answer comes from there, not from the cache, and stays out of it.
    let forged = "-H Host:site.test http://192.0.2.2/";
    assert_eq!(client.curl(forged), "two 200 MISS");
    assert_eq!(client.curl(forged), "two 200 MISS");
    assert_eq!(client.curl("--resolve site.test:80:192.0.2.1 http://site.test/"), "one 200 HIT");
    // Nor is its connection used for anybody else, nor does it remove what is stored, nor is it the
    // proxy that it names.
    for number in 0..8 {
        let path = format!("/page{number}");
        assert_eq!(
            client.curl(&format!("-H Host:site.test http://192.0.2.2{path}")),
            "two 200 MISS"
        );
        let mut other = proxy.client();
        let answer = other.request("GET", &format!("http://site.test{path}"), &[], b"").response();
        assert_eq!(answer.text(), "one", "{path}");
    }
    assert_eq!(client.curl("-d x -H Host:site.test http://192.0.2.2/"), "two 200 MISS");
    assert_eq!(client.curl("--resolve site.test:80:192.0.2.1 http://site.test/"), "one 200 HIT");
    assert_eq!(client.curl("-H Host:proxy.test:3129 http://192.0.2.2/metrics"), "two 200 MISS");
    assert!(client.curl("-X PURGE -H Host:site.test http://192.0.2.2/").contains(" 409 "));
    // The same for another port, which rules see too.
    assert_eq!(client.curl("-H Host:site.test http://192.0.2.1:8080/"), "upload 200 MISS");
    assert!(client.curl("-H Host:site.test http://192.0.2.1:8080/secret").contains(" 403 "));
    // Rules about addresses judge the one that is connected to.
    assert!(client.curl("-H Host:site.test http://192.0.2.3/").contains(" 403 "));
    // Without a Host the address is the host.
    assert_eq!(client.curl("-0 -H Host: http://192.0.2.2/six"), "two 200 MISS");
    assert!(proxy.logged("http://192.0.2.2/six").contains("ORIGINAL_DST/192.0.2.2"));

    // Clients that know nothing of the proxy cannot log in: no challenge, and no way in.
    let members = "--resolve site.test:80:192.0.2.1 http://site.test/members";
    for login in ["", "-u anna:secret ", "-H Proxy-Authorization:Basic\tYW5uYTpzZWNyZXQ= "] {
        let answer = client.curl(&format!("{login}{members}"));
        assert!(answer.contains("ERR_ACCESS_DENIED") && answer.contains(" 403 "), "{answer}");
    }

    // A connection that was not redirected has no other destination than this proxy.
    let mut direct = TcpStream::connect("10.99.0.1:3129").expect("the port is open");
    let _ = direct.write_all(b"GET / HTTP/1.1\r\nHost: site.test\r\n\r\n");
    let mut answer = Vec::new();
    let _ = direct.read_to_end(&mut answer);
    assert_eq!(String::from_utf8_lossy(&answer), "");

    // Without that line, a client that a name has led to this machine does not reach it.
    let default = lines.replace("private_destinations allow servers\n", "");
    proxy.reconfigure(&default);
    assert!(client.curl(forged).contains(" 403 "));
    let refused = client.curl("--resolve evil.test:80:192.0.2.2 http://evil.test/");
    assert!(refused.contains(" 403 ") && refused.contains("ERR_PRIVATE_DESTINATION"), "{refused}");

    let strict = format!("{lines}host_verify_strict on\nclient_dst_passthru off\n");
    proxy.reconfigure(&strict);
    assert!(client.curl(forged).contains(" 409 "));
    assert_eq!(client.curl("--resolve other.test:80:192.0.2.2 http://other.test/"), "two 200 MISS");
    assert!(proxy.logged("http://other.test/ ").contains("HIER_DIRECT/192.0.2.2"));
    // On other ports, Host is compared with the URL.
    let mut other = proxy.client();
    let request = "GET http://other.test/six HTTP/1.1\r\nHost: site.test\r\n\r\n";
    other.send(request.as_bytes());
    assert_eq!(other.response().status(), 409);
}

/// Connects the namespace of a server, and starts it.
fn start_server(server: &Space, folder: &std::path::Path) -> Space {
    ip(&format!("link add out type veth peer name eth0 netns {}", server.0.id()));
    ip("address add 10.98.0.1/24 dev out");
    ip("link set out up");
    server.run("link set lo up");
    server.run("link set eth0 up");
    server.run("address add 10.98.0.2/24 dev eth0");
    server.run("address add 192.0.2.1/32 dev lo");
    server.run("route add default via 10.98.0.1");
    ip("route add 192.0.2.0/24 via 10.98.0.2");
    // It says who asks.
    server.nginx(folder, "192.0.2.1:80", "$remote_addr")
}

#[test]
#[ignore = "a test above runs it in a namespace"]
fn connections_that_keep_their_addresses() {
    let (client, server) = (Space::new(), Space::new());
    let folder = humboldt_tests::proxy::open_folder();
    connect(&client);
    let _nginx = start_server(&server, folder.path());
    fs::write("/proc/sys/net/ipv4/ip_forward", "1").expect("a router");
    ip("rule add fwmark 1 lookup 100");
    ip("route add local default dev lo table 100");
    set_filter(FILTER_TPROXY);
    let proxy = Proxy::forward(
        "http_port 3129 tproxy\nacl hidden urlpath_regex ^/hidden\n\
         spoof_client_ip deny hidden\nspoof_client_ip allow all\n",
    );
    for _ in 0..2 {
        assert_eq!(client.curl("http://192.0.2.1/"), "10.99.0.2 200 MISS");
    }
    assert!(proxy.logged("http://192.0.2.1/ ").contains(" 10.99.0.2 "));
    assert_eq!(client.curl("http://192.0.2.1/hidden"), "10.98.0.1 200 MISS");
    // A client's own connection to the server is not used for another client.
    client.run("address add 10.99.0.3/24 dev eth0");
    assert_eq!(client.curl("--interface 10.99.0.3 http://192.0.2.1/"), "10.99.0.3 200 MISS");
    // The rest of root's rights is gone.
    let status = fs::read_to_string(format!("/proc/{}/status", proxy.id())).expect("its status");
    assert!(status.contains("CapEff:\t0000000000001000"), "{status}");
}
