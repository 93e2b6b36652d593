//! Ports behind a load balancer that tells the client's address with the PROXY protocol.

#![allow(clippy::print_stderr, reason = "says why a test is skipped")]

use humboldt_tests::wait::{free_address, start, until};
use humboldt_tests::{Client, Origin, Proxy, Reply};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

/// A proxy with a port for load balancers that these rules allow, and the address of that port.
fn behind(rules: &str) -> (Proxy, SocketAddr) {
    let port = free_address();
    let lines = format!(
        "http_port {port} require-proxy-header name=behind\n{rules}\n\
         acl banned src 192.0.2.9\nacl inner localip 198.51.100.9\n\
         http_access deny banned\nhttp_access deny inner\n"
    );
    (Proxy::forward(&lines), port)
}

fn behind_a_balancer() -> (Proxy, SocketAddr) {
    behind(
        "acl balancer src 127.0.0.1\nacl there myportname behind\n\
         proxy_protocol_access allow balancer there",
    )
}

fn origin() -> Origin {
    let origin = Origin::new();
    origin.on("/", Reply::ok("hello").with("Cache-Control", "max-age=1000"));
    origin
}

/// All that the proxy says to these bytes until it closes the connection.
fn says(mut connection: TcpStream, bytes: &[u8]) -> String {
    // It may close while this writes.
    let _ = connection.write_all(bytes);
    let mut answer = Vec::new();
    let _ = connection.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn rules_and_logs_see_the_client_that_the_balancer_tells() {
    let (origin, (proxy, port)) = (origin(), behind_a_balancer());
    let request = format!("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", origin.url("/"));
    let mut client = Client::to(port);
    let header = "PROXY TCP4 192.0.2.1 198.51.100.2 50000 80\r\n";
    client.send(format!("{header}{request}{request}"));
    assert_eq!((client.response().status(), client.response().status()), (200, 200));
    let lines = proxy.logged_times(" 192.0.2.1 ", 2);
    assert!(lines[1].contains("TCP_MEM_HIT"), "{lines:?}");
    for (banned, local) in [("192.0.2.9", "198.51.100.2"), ("192.0.2.1", "198.51.100.9")] {
        let mut client = Client::to(port);
        client.send(format!("PROXY TCP4 {banned} {local} 50000 80\r\n{request}"));
        assert_eq!(client.response().status(), 403, "{banned} {local}");
    }
    // The balancer's own connection: its address is the client's.
    let mut client = Client::to(port);
    client.send(format!("PROXY UNKNOWN\r\n{request}"));
    assert_eq!(client.response().status(), 200);
    let _ = proxy.logged(" 127.0.0.1 TCP_MEM_HIT");
}

#[test]
fn a_connection_without_a_header_or_from_elsewhere_is_closed() {
    let origin = origin();
    let request = format!("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", origin.url("/"));
    let announced = format!("PROXY TCP4 192.0.2.1 198.51.100.2 1 2\r\n{request}");
    let connect = |port| TcpStream::connect(port).expect("the port is open");
    for rules in ["", "acl balancer src 127.0.0.9\nproxy_protocol_access allow balancer"] {
        let (_proxy, port) = behind(rules);
        assert_eq!(says(connect(port), announced.as_bytes()), "", "{rules}");
    }
    let (_proxy, port) = behind_a_balancer();
    assert_eq!(says(connect(port), request.as_bytes()), "");
    assert_eq!(says(connect(port), b"PROXY TCP4 192.0.2.1\r\n\r\n\r\n\r\n\r\n"), "");
    assert_eq!(origin.count("/"), 0);
    let mut client = Client::to(port);
    client.send(announced);
    assert_eq!(client.response().status(), 200);
}

struct Haproxy(Child);

impl Drop for Haproxy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn haproxy_tells_the_client_in_both_versions() {
    let (origin, (proxy, port)) = (origin(), behind_a_balancer());
    for (word, client) in [("send-proxy", "127.0.0.3"), ("send-proxy-v2", "127.0.0.4")] {
        through_haproxy(&proxy, &origin, &format!("{port} source 127.0.0.1 {word}"), client);
    }
}

#[test]
fn haproxy_tells_the_client_to_a_unix_socket_too() {
    let origin = origin();
    let proxy = Proxy::forward(
        "http_port unix:{dir}/behind.sock mode=666 require-proxy-header\n\
         proxy_protocol_access allow all\n",
    );
    let path = proxy.path("behind.sock");
    until("the socket to be there", || path.exists().then_some(()));
    for (word, client) in [("send-proxy", "127.0.0.3"), ("send-proxy-v2", "127.0.0.4")] {
        let server = format!("unix@{} {word}", path.display());
        through_haproxy(&proxy, &origin, &server, client);
    }
}

/// Fetches a page through HAProxy, to which the proxy is this server, as this client.
fn through_haproxy(proxy: &Proxy, origin: &Origin, server: &str, client: &str) {
    let front = free_address();
    let settings = proxy.path("haproxy.cfg");
    let text = format!(
        "defaults\n mode tcp\n timeout connect 5s\n timeout client 5s\n timeout server 5s\n\
         listen front\n bind {front}\n server proxy {server}\n"
    );
    fs::write(&settings, text).expect("the settings");
    let mut command = Command::new("haproxy");
    command.arg("-f").arg(&settings).stdout(Stdio::null()).stderr(Stdio::null());
    let haproxy = match start(&mut command) {
        Ok(child) => Haproxy(child),
        Err(error) => return eprintln!("skipped: haproxy: {error}"),
    };
    until("haproxy to listen", || TcpStream::connect(front).ok());
    let mut curl = Command::new("curl");
    curl.args(["-s", "-m", "20", "--interface", client, "--proxy", &format!("http://{front}")]);
    let output = curl.arg(origin.url("/")).output().expect("curl runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hello", "{server}");
    let _ = proxy.logged(&format!(" {client} "));
    drop(haproxy);
}
