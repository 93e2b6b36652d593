//! Servers that log connections in, with NTLM or Negotiate: the connection to the server belongs to
//! that of the client.

use humboldt_tests::wait::free_listener;
use humboldt_tests::{Client, Proxy, Response};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A server that logs connections in: after `NTLM NAME.N`, where N is the number of the connection,
/// all requests on it are those of NAME. Without a login it answers 401.
struct Server {
    address: SocketAddr,
    /// The heads of the requests.
    seen: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn new(offer: &'static str, more: &'static str) -> Self {
        let listener = free_listener();
        let address = listener.local_addr().expect("an address");
        let seen = Arc::<Mutex<Vec<String>>>::default();
        let notes = Arc::clone(&seen);
        std::thread::spawn(move || accept(&listener, offer, more, &notes));
        Self { address, seen }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().expect("no panic").clone()
    }
}

fn accept(
    listener: &TcpListener,
    offer: &'static str,
    more: &'static str,
    seen: &Arc<Mutex<Vec<String>>>,
) {
    static NUMBERS: AtomicUsize = AtomicUsize::new(0);
    for stream in listener.incoming().filter_map(Result::ok) {
        let (number, seen) = (NUMBERS.fetch_add(1, Ordering::Relaxed), Arc::clone(seen));
        std::thread::spawn(move || serve(stream, number, offer, more, &seen));
    }
}

/// Answers requests with the name of the user, until the connection ends.
fn serve(mut stream: TcpStream, number: usize, offer: &str, more: &str, seen: &Mutex<Vec<String>>) {
    let mut input = BufReader::new(stream.try_clone().expect("a stream"));
    let mut user: Option<String> = None;
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if input.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let field = |name: &str| {
            let lines = head.lines().filter_map(|line| line.split_once(": "));
            let mut lines = lines.filter(|(key, _)| key.eq_ignore_ascii_case(name));
            lines.next().map(|(_, value)| value.to_owned())
        };
        let length = field("Content-Length").and_then(|length| length.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        input.read_exact(&mut body).expect("a body");
        let token = field("Authorization")
            .and_then(|value| value.split_once(' ').map(|(_, t)| t.to_owned()));
        let mut challenge = offer.to_owned();
        match token.as_deref().map(|token| token.split_once('.').unwrap_or((token, ""))) {
            Some(("first", _)) => challenge = format!("{offer} c.{number}"),
            Some((name, process)) if process == number.to_string() => user = Some(name.to_owned()),
            Some(_) => user = None,
            None => {}
        }
        seen.lock().expect("no panic").push(head.clone());
        let is_closing = head.starts_with("GET /close");
        let (status, body, extra) = match &user {
            Some(user) => ("200 OK", user.clone(), "Cache-Control: max-age=100\r\n".to_owned()),
            None if head.starts_with("GET /public") => {
                ("200 OK", "public".to_owned(), "Cache-Control: max-age=100\r\n".to_owned())
            }
            None => (
                "401 Unauthorized",
                "no".to_owned(),
                format!(
                    "WWW-Authenticate: {challenge}\r\nWWW-Authenticate: Basic realm=\"x\"\r\n{more}"
                ),
            ),
        };
        let connection = if is_closing { "Connection: close\r\n" } else { "" };
        let answer = format!(
            "HTTP/1.1 {status}\r\n{extra}{connection}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        if stream.write_all(answer.as_bytes()).is_err() || is_closing {
            return;
        }
    }
}

fn get(client: &mut Client, url: &str, login: &str) -> Response {
    let fields = [("Authorization", login)];
    let fields = if login.is_empty() { &fields[..0] } else { &fields };
    client.request("GET", url, fields, b"").response()
}

fn offers(answer: &Response) -> Vec<&str> {
    answer.head.all("WWW-Authenticate").collect()
}

fn log_in(client: &mut Client, url: &str, name: &str) -> Response {
    let first = get(client, url, "NTLM first").expect(401);
    let token = offers(&first)[0].strip_prefix("NTLM c.").expect("a token").to_owned();
    get(client, url, &format!("NTLM {name}.{token}"))
}

#[test]
fn a_server_that_logs_connections_in_knows_each_client_by_its_own() {
    let (server, proxy) = (Server::new("NTLM", ""), Proxy::forward("http_access allow all\n"));
    let url = server.url("/own");
    let (mut anna, mut bo, mut none) = (proxy.client(), proxy.client(), proxy.client());
    let first = get(&mut anna, &url, "").expect(401);
    assert_eq!(offers(&first), ["NTLM", "Basic realm=\"x\""]);
    assert_eq!(first.field("Proxy-Support"), Some("Session-Based-Authentication"));
    assert_eq!(log_in(&mut anna, &url, "anna").expect(200).text(), "anna");
    assert_eq!(log_in(&mut bo, &url, "bo").expect(200).text(), "bo");
    // Without a field; and nothing of it is stored or joined, although it has max-age.
    for _ in 0..3 {
        assert_eq!(get(&mut anna, &url, "").expect(200).text(), "anna");
        assert_eq!(get(&mut bo, &url, "").expect(200).text(), "bo");
        let _ = get(&mut none, &url, "").expect(401);
    }
    anna.request("POST", &url, &[], b"body");
    assert_eq!(anna.response().expect(200).text(), "anna");
    drop((anna, bo));
    // Their connections are not those of others.
    for _ in 0..8 {
        let _ = get(&mut proxy.client(), &url, "").expect(401);
    }
}

#[test]
fn other_servers_and_shared_answers_are_as_ever() {
    let (server, other) = (Server::new("NTLM", ""), Server::new("NTLM", ""));
    let proxy = Proxy::forward("http_access allow all\n");
    let mut anna = proxy.client();
    assert_eq!(log_in(&mut anna, &server.url("/own"), "anna").expect(200).text(), "anna");
    assert_eq!(get(&mut anna, &other.url("/public"), "").expect(200).text(), "public");
    assert_eq!(get(&mut anna, &server.url("/own"), "").expect(200).text(), "anna");
    let _ = get(&mut proxy.client(), &server.url("/public"), "").expect(200);
    assert_eq!(get(&mut anna, &server.url("/public"), "").expect(200).text(), "public");
}

#[test]
fn a_server_that_closes_asks_for_another_login() {
    let (server, proxy) = (Server::new("Negotiate", ""), Proxy::forward("http_access allow all\n"));
    let url = server.url("/own");
    let mut client = proxy.client();
    let first = get(&mut client, &url, "Negotiate first").expect(401);
    let token = offers(&first)[0].strip_prefix("Negotiate c.").expect("a token").to_owned();
    let _ = get(&mut client, &url, &format!("Negotiate anna.{token}")).expect(200);
    let _ = get(&mut client, &server.url("/close"), "").expect(200);
    let _ = get(&mut client, &url, "").expect(401);
}

#[test]
fn such_logins_are_hidden_where_the_file_says_so() {
    for (port, peer, more, is_offered) in [
        ("connection-auth=off", "originserver", "", false),
        ("no-connection-auth", "", "", false),
        ("", "originserver", "", true),
        ("connection-auth", "originserver connection-auth=auto", "", true),
        ("", "originserver connection-auth=off", "", false),
        // The server plays a proxy here.
        ("", "", "", false),
        ("", "connection-auth=on", "", true),
        ("", "", "Proxy-Support: Session-Based-Authentication\r\n", true),
    ] {
        let server = Server::new("NTLM", more);
        let (ip, at) = (server.address.ip(), server.address.port());
        let proxy = Proxy::start(
            port,
            &format!(
                "cache_peer {ip} parent {at} 0 no-query {peer}\nnever_direct allow all\n\
                 http_access allow all\n"
            ),
        );
        let mut client = proxy.client();
        let answer = get(&mut client, "http://site.test/own", "").expect(401);
        let wanted: &[&str] =
            if is_offered { &["NTLM", "Basic realm=\"x\""] } else { &["Basic realm=\"x\""] };
        assert_eq!(offers(&answer), wanted, "{port} {peer} {more}");
        let _ = get(&mut client, "http://site.test/own", "NTLM first").expect(401);
        let went_on = server.seen().iter().any(|head| head.contains("NTLM first"));
        // Where the peer says for itself, it is not known before.
        let is_off = port.contains("no-") || port.contains("off") || peer.contains("=off");
        assert_eq!(went_on, !is_off, "{port} {peer}");
        if is_offered {
            let logged_in = log_in(&mut client, "http://site.test/own", "anna").expect(200);
            assert_eq!(logged_in.text(), "anna");
            assert_eq!(get(&mut client, "http://site.test/own", "").expect(200).text(), "anna");
            let _ = get(&mut proxy.client(), "http://site.test/own", "").expect(401);
        }
    }
}
