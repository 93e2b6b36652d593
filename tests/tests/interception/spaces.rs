//! Connections that the packet filter sends to an `https_port` with `ssl-bump`.
//!
//! Needs root, `unshare`, `nsenter`, `ip`, `nft` and `curl`; without them it says so and passes.

use humboldt_tests::authority::{Authority, Key};
use humboldt_tests::proxy::open_folder;
use humboldt_tests::servers::Server;
use humboldt_tests::spaces::{Space, in_a_namespace, ip, set_filter};
use humboldt_tests::wait::until;
use humboldt_tests::{Origin, Proxy};
use rustix::process::Signal;
use std::fs::{self, Permissions};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use super::LOG;

const FILTER: &str = "\
table inet intercept {
  chain incoming {
    type nat hook prerouting priority dstnat;
    iifname gate ip daddr 192.0.2.0/24 tcp dport 443 redirect to :3130
    iifname gate ip daddr 192.0.2.0/24 tcp dport 80 redirect to :3129
  }
}
";

const FILTER_TPROXY: &str = "\
table ip transparent {
  chain incoming {
    type filter hook prerouting priority mangle;
    meta l4proto tcp socket transparent 1 meta mark set 1 accept
    iifname gate tcp dport 443 tproxy to :3130 meta mark set 1 accept
  }
}
";

const HOSTS: &str = "192.0.2.1 site.test\n192.0.2.2 other.test\n192.0.2.1 denied.test\n";

#[test]
fn an_intercepted_connection_is_decrypted_where_its_name_and_address_agree() {
    in_a_namespace("spaces::redirected_connections");
}

#[test]
fn the_server_sees_the_client_of_a_tproxy_port_with_tls() {
    in_a_namespace("spaces::connections_that_keep_their_addresses");
}

fn connect(client: &Space) {
    ip("link set lo up");
    ip(&format!("link add gate type veth peer name eth0 netns {}", client.0.id()));
    ip("address add 10.99.0.1/24 dev gate");
    ip("link set gate up");
    client.run("link set eth0 up");
    client.run("address add 10.99.0.2/24 dev eth0");
    client.run("route add default via 10.99.0.1");
}

/// Connects a client, whose connections to port 443 of servers here are redirected.
fn be_the_servers(client: &Space) {
    connect(client);
    for address in ["192.0.2.1/32", "192.0.2.2/32"] {
        ip(&format!("address add {address} dev lo"));
    }
    set_filter(FILTER);
}

fn options(bump: &Authority) -> String {
    let key = bump.path("ca.key");
    fs::set_permissions(&key, Permissions::from_mode(0o644)).expect("readable for all");
    format!("ssl-bump tls-cert={} tls-key={}", bump.ca().display(), key.display())
}

/// A proxy to which a packet filter redirects connections.
fn redirecting(bump: &Authority, servers: &Authority, hosts: &Path) -> String {
    format!(
        "{LOG}https_port 10.99.0.1:3130 intercept {}\nhttp_port 10.99.0.1:3129 intercept {}\n\
         hosts_file {}\n\
         tls_outgoing_options cafile={}\nacl servers dst 192.0.2.0/24\n\
         private_destinations allow servers\nacl denied dstdomain denied.test\n\
         http_access deny denied\nworkers 1\n",
        options(bump),
        options(bump),
        hosts.display(),
        servers.ca().display()
    )
}

#[test]
#[ignore = "a test above runs it in a namespace"]
fn redirected_connections() {
    let client = Space::new();
    be_the_servers(&client);
    let (bump, servers) = (Authority::new("bump"), Authority::new("servers"));
    let names = "DNS:site.test,DNS:other.test,DNS:denied.test,IP:192.0.2.1";
    let own = servers.issue("own", Key::Ecdsa, "/CN=site.test", names);
    let server = |address: &str, says: &str| {
        let (file, key) = (own.file.display(), own.key.display());
        let lines = format!(
            "listen {address}:443 ssl; ssl_certificate {file}; ssl_certificate_key {key}; \
             add_header Cache-Control max-age=60; location / {{ return 200 {says}; }}"
        );
        Server::nginx("", &lines)
    };
    let (_one, _two) = (server("192.0.2.1", "one"), server("192.0.2.2", "two"));
    let plain = Origin::on_listener(std::net::TcpListener::bind("192.0.2.1:80").expect("a port"));
    let folder = open_folder();
    fs::write(folder.path().join("hosts"), HOSTS).expect("names");
    let lines = redirecting(&bump, &servers, &folder.path().join("hosts"));
    let bumping = format!("{lines}ssl_bump bump all\n");
    let proxy = Proxy::forward(&bumping);
    let logged = |part: &str| {
        until(part, || {
            let text = proxy.text("own.log");
            text.lines().rfind(|line| line.contains(part)).map(str::to_owned)
        })
    };
    let trusts = format!("--cacert {}", bump.ca().display());
    let get = |name: &str, address: &str| {
        client.curl(&format!("{trusts} --resolve {name}:443:{address} https://{name}/a"))
    };

    // Name and address agree.
    assert_eq!(get("site.test", "192.0.2.1"), "one 200 MISS");
    assert_eq!(get("site.test", "192.0.2.1"), "one 200 HIT");
    let line = logged("CONNECT ");
    assert!(line.starts_with("NONE_NONE/200 CONNECT site.test:443 bump site.test "), "{line}");
    assert!(logged("TCP_MISS/200 GET https://site.test/a").ends_with(" ORIGINAL_DST"));
    // They do not: the answer comes from the address, and is for this client alone.
    for _ in 0..2 {
        assert_eq!(get("site.test", "192.0.2.2"), "two 200 MISS");
    }
    assert_eq!(get("site.test", "192.0.2.1"), "one 200 HIT");
    // No name: the address is the name.
    assert_eq!(client.curl(&format!("{trusts} https://192.0.2.1/a")), "one 200 MISS");
    // Rules about names.
    let page = get("denied.test", "192.0.2.1");
    assert!(page.contains("ERR_ACCESS_DENIED") && page.contains(" 403 "), "{page}");

    in_small_packets(&client, || assert_eq!(get("site.test", "192.0.2.1"), "one 200 HIT"));

    // What is no TLS ends.
    let plainly = "--http1.1 http://192.0.2.1:443/a";
    assert!(client.curl(plainly).contains("000"), "{}", client.curl(plainly));
    assert!(logged("tunnel_without_tls").starts_with("NONE_NONE/200 CONNECT 192.0.2.1:443 "));
    assert_eq!(plain.connections(), 0);
    // The plain port has its requests, not tunnels.
    plain.handle("/plain", |_, wire| wire.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"));
    let plainly = client.curl("--resolve site.test:80:192.0.2.1 http://site.test/plain");
    assert!(plainly.starts_with("ok 200"), "{plainly}");
    assert!(logged("GET http://site.test/plain").starts_with("TCP_MISS/200 "));
    let page = client.curl("--resolve denied.test:80:192.0.2.1 http://denied.test/plain");
    assert!(page.contains("ERR_ACCESS_DENIED"), "{page}");

    let reconfigure = |rules: &str| {
        proxy.write_configuration("", &format!("{lines}{rules}\n"));
        proxy.signal(Signal::HUP);
    };
    // Names are seen without decrypting.
    let splicing = "acl step1 at_step SslBump1\nacl bad ssl::server_name other.test\n\
                    ssl_bump peek step1\nssl_bump terminate bad\nssl_bump splice all";
    reconfigure(splicing);
    let knows = format!("--cacert {}", servers.ca().display());
    let pass = |name: &str, address: &str| {
        client.curl(&format!("{knows} --resolve {name}:443:{address} https://{name}/a"))
    };
    until("the rules to change", || (pass("site.test", "192.0.2.1") == "one 200 ").then_some(()));
    let line = logged("TCP_TUNNEL/200 ");
    assert!(line.contains("CONNECT site.test:443 splice site.test "), "{line}");
    assert!(line.ends_with(" ORIGINAL_DST"), "{line}");
    assert!(pass("other.test", "192.0.2.2").contains("000"));
    assert!(logged(" terminate ").contains("CONNECT other.test:443 terminate other.test "));
    assert!(pass("denied.test", "192.0.2.1").contains("000"));
    assert!(
        logged("TCP_DENIED/403 CONNECT").contains("CONNECT denied.test:443 splice denied.test ")
    );
    // A name that is not the address's leads to the address.
    assert_eq!(pass("site.test", "192.0.2.2"), "two 200 ");
    let line = logged(" splice site.test - ERR_CONFLICT_HOST host_conflict ");
    assert!(line.starts_with("TCP_TUNNEL/200 CONNECT site.test:443 "), "{line}");
    reconfigure(&format!("{splicing}\nhost_verify_strict on"));
    until("the rules to change", || pass("site.test", "192.0.2.2").contains("000").then_some(()));
    let line = logged("/409");
    assert!(line.contains("CONNECT site.test:443 splice site.test - ERR_"), "{line}");
    assert_eq!(pass("site.test", "192.0.2.1"), "one 200 ");
    reconfigure("ssl_bump bump all\nhost_verify_strict on");
    until("the rules to change", || get("site.test", "192.0.2.2").contains(" 409 ").then_some(()));
    // The port itself is no destination.
    assert!(client.curl("-k https://10.99.0.1:3130/").contains("000"));
}

/// The first message of TLS comes in many pieces.
fn in_small_packets(client: &Space, ask: impl Fn()) {
    client.run("link set eth0 mtu 100");
    ask();
    client.run("link set eth0 mtu 1500");
}

/// nginx with TLS that says who asks.
fn nginx(space: &Space, folder: &Path, own: &humboldt_tests::authority::Certificate) -> Space {
    let (dir, file, key) = (folder.display(), own.file.display(), own.key.display());
    let text = format!(
        "daemon off;\nmaster_process off;\npid {dir}/nginx.pid;\nerror_log {dir}/error.log;\n\
         events {{}}\nhttp {{\n  access_log off;\n  server {{ listen 192.0.2.1:443 ssl; \
         ssl_certificate {file}; ssl_certificate_key {key}; \
         location / {{ return 200 $remote_addr; }} }}\n}}\n"
    );
    fs::write(folder.join("nginx.conf"), text).expect("settings");
    let mut nginx = space.command("nginx");
    nginx.arg("-c").arg(folder.join("nginx.conf"));
    nginx.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let nginx = Space(nginx.spawn().unwrap_or_else(|error| panic!("not there: nginx: {error}")));
    until("nginx", || TcpStream::connect("192.0.2.1:443").ok());
    nginx
}

#[test]
#[ignore = "a test above runs it in a namespace"]
fn connections_that_keep_their_addresses() {
    let (client, server) = (Space::new(), Space::new());
    let folder = open_folder();
    connect(&client);
    ip(&format!("link add out type veth peer name eth0 netns {}", server.0.id()));
    ip("address add 10.98.0.1/24 dev out");
    ip("link set out up");
    server.run("link set lo up");
    server.run("link set eth0 up");
    server.run("address add 10.98.0.2/24 dev eth0");
    server.run("address add 192.0.2.1/32 dev lo");
    server.run("route add default via 10.98.0.1");
    ip("route add 192.0.2.0/24 via 10.98.0.2");
    let (bump, servers) = (Authority::new("bump"), Authority::new("servers"));
    let own = servers.issue("own", Key::Ecdsa, "/CN=site.test", "DNS:site.test");
    let _nginx = nginx(&server, folder.path(), &own);
    fs::write("/proc/sys/net/ipv4/ip_forward", "1").expect("a router");
    ip("rule add fwmark 1 lookup 100");
    ip("route add local default dev lo table 100");
    set_filter(FILTER_TPROXY);
    fs::write(folder.path().join("hosts"), HOSTS).expect("names");
    let lines = format!(
        "https_port 3130 tproxy {}\nhosts_file {}\ntls_outgoing_options cafile={}\n\
         ssl_bump stare all\nssl_bump bump all\n",
        options(&bump),
        folder.path().join("hosts").display(),
        servers.ca().display()
    );
    let proxy = Proxy::forward(&lines);
    let get = format!(
        "--cacert {} --resolve site.test:443:192.0.2.1 https://site.test/",
        bump.ca().display()
    );
    assert_eq!(client.curl(&get), "10.99.0.2 200 MISS");
    assert!(proxy.logged("GET https://site.test/ ").contains(" 10.99.0.2 "));
}
