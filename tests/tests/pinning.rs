//! Servers that log connections in, with NTLM or Negotiate: the connection to the server belongs to
//! that of the client.

use humboldt_tests::scripts::Scripts;
use humboldt_tests::wait::{free_listener, until};
use humboldt_tests::{Client, Proxy, Reply, Response, World};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A server that logs connections in: after `NTLM NAME.N`, where N is the number of the connection,
/// all requests on it are those of NAME. Without a login it answers 401. It ends the connection of
/// a user instead of an answer for `/die`.
struct Server {
    address: SocketAddr,
    /// The heads of the requests, and `end` for the end of a connection.
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
                seen.lock().expect("no panic").push("end".to_owned());
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
            .and_then(|value| value.split_once([' ', '\t']).map(|(_, t)| t.trim().to_owned()));
        let mut challenge = offer.to_owned();
        match token.as_deref().map(|token| token.split_once('.').unwrap_or((token, ""))) {
            Some(("first", _)) => challenge = format!("{offer} c.{number}"),
            Some((name, process)) if process == number.to_string() => user = Some(name.to_owned()),
            Some(_) => user = None,
            None => {}
        }
        seen.lock().expect("no panic").push(head.clone());
        if user.is_some() && head.contains(" /die ") {
            return;
        }
        let is_closing = head.starts_with("GET /close");
        let (status, body, extra) = match &user {
            Some(user) => {
                let fields = "Cache-Control: max-age=100\r\nETag: \"1\"\r\n".to_owned();
                ("200 OK", user.clone(), format!("{fields}Set-Cookie: {user}\r\n"))
            }
            None if head.starts_with("GET /public") => {
                ("200 OK", "public".to_owned(), "Cache-Control: max-age=100\r\n".to_owned())
            }
            None if head.starts_with("GET /old") => {
                let fields = "Cache-Control: max-age=0\r\nETag: \"1\"\r\n".to_owned();
                ("200 OK", "anna".to_owned(), fields)
            }
            None if head.starts_with("GET /stale") && token.is_none() => {
                let fields = "Cache-Control: max-age=1, stale-while-revalidate=100\r\nAge: 5\r\n";
                ("200 OK", "anna".to_owned(), format!("{fields}ETag: \"1\"\r\n"))
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
            "HTTP/1.1 {status}\r\n{extra}{connection}Content-Length: {}\r\n\r\n{}",
            body.len(),
            if head.starts_with("HEAD") { "" } else { &body }
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
    assert_eq!(first.field("Connection"), Some("Proxy-Support"));
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
        (
            "",
            "",
            "Proxy-Support: Session-Based-Authentication\r\nConnection: Proxy-Support\r\n",
            true,
        ),
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
        let support = is_offered.then_some("Session-Based-Authentication");
        assert_eq!(answer.field("Proxy-Support"), support, "{port} {peer} {more}");
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

/// What a server may take for a login is one.
#[test]
fn credentials_in_an_odd_form_log_no_shared_connection_in() {
    for odd in ["NTLM\t", "NTLM\t ", "ntlm\t", "NTLMx ", "Negotiate\t", "kerberos5 "] {
        let (server, proxy) = (Server::new("NTLM", ""), Proxy::forward("http_access allow all\n"));
        let url = server.url("/own");
        let mut client = proxy.client();
        let first = get(&mut client, &url, &format!("{odd}first")).expect(401);
        let token = offers(&first)[0].strip_prefix("NTLM c.").expect("a token").to_owned();
        let answer = get(&mut client, &url, &format!("{odd}eve.{token}")).expect(200);
        assert_eq!(answer.text(), "eve", "{odd:?}");
        for _ in 0..4 {
            let _ = get(&mut proxy.client(), &url, "").expect(401);
        }
        assert_eq!(get(&mut client, &url, "").expect(200).text(), "eve", "{odd:?}");
    }
}

#[test]
fn a_users_head_does_not_get_into_what_others_get() {
    let (server, proxy) = (Server::new("NTLM", ""), Proxy::forward("http_access allow all\n"));
    let url = server.url("/old");
    assert_eq!(get(&mut proxy.client(), &url, "").expect(200).text(), "anna");
    let mut anna = proxy.client();
    let _ = log_in(&mut anna, &server.url("/own"), "anna").expect(200);
    anna.request("HEAD", &url, &[], b"");
    assert_eq!(anna.response_to("HEAD").expect(200).field("Set-Cookie"), Some("anna"));
    for _ in 0..3 {
        let answer = get(&mut proxy.client(), &url, "").expect(200);
        assert_eq!(answer.field("Set-Cookie"), None, "{:?}", answer.head);
    }
}

/// The same with credentials of a request, to HEAD and to a validation in the background.
#[test]
fn an_answer_to_authorization_does_not_change_what_others_get() {
    for method in ["HEAD", "GET"] {
        let world = World::forward("http_access allow all\n");
        let plain = Reply::ok("hello")
            .with("Cache-Control", "max-age=1, stale-while-revalidate=100")
            .with("ETag", "\"1\"");
        let stale = plain.clone().with("Age", "5");
        let own = Reply::ok("hello").cachable(100).with("ETag", "\"1\"").with("Set-Cookie", "anna");
        world.origin.on_each("/a", vec![stale.clone(), own, stale]);
        let _ = world.get("/a").expect(200);
        let mut anna = world.client();
        anna.request(method, &world.target("/a"), &[("Authorization", "Basic YTpi")], b"");
        let _ = anna.response_to(method).expect(200);
        world.origin.wait_for("/a", 2);
        // A head that others get would be fresh, so that the origin is not asked again.
        until("another question, or the user's head", || {
            let answer = world.get("/a").expect(200);
            assert_eq!(answer.field("Set-Cookie"), None, "{method}: {:?}", answer.head);
            (world.origin.count("/a") > 2).then_some(())
        });
    }
}

#[test]
fn a_connection_of_one_client_behind_a_proxy_serves_no_other() {
    for option in ["on", "off"] {
        let server = Server::new("NTLM", "");
        let proxy = Proxy::forward(&format!(
            "http_access allow all\nfollow_x_forwarded_for allow localhost\n\
             acl_uses_indirect_client {option}\n"
        ));
        let url = server.url("/own");
        let mut front = proxy.client();
        let mut get = |client: &str, login: &str| {
            let fields = [("X-Forwarded-For", client), ("Authorization", login)];
            let fields = if login.is_empty() { &fields[..1] } else { &fields };
            front.request("GET", &url, fields, b"").response()
        };
        let first = get("192.0.2.1", "NTLM first").expect(401);
        let token = offers(&first)[0].strip_prefix("NTLM c.").expect("a token").to_owned();
        let _ = get("192.0.2.1", &format!("NTLM anna.{token}")).expect(200);
        assert_eq!(get("192.0.2.1", "").expect(200).text(), "anna");
        let _ = get("192.0.2.2", "").expect(401);
        // It has ended with that.
        let _ = get("192.0.2.1", "").expect(401);
    }
}

#[test]
fn a_connection_of_one_user_serves_no_other() {
    let (server, scripts) = (Server::new("NTLM", ""), Scripts::new());
    let helper = scripts.helper("basic", "echo OK");
    let proxy = Proxy::forward(&format!(
        "auth_param basic program {helper}\nacl users proxy_auth REQUIRED\n\
         http_access allow users\nhttp_access deny all\n"
    ));
    let url = server.url("/own");
    let mut front = proxy.client();
    let mut get = |user: &str, login: &str| {
        let fields = [("Proxy-Authorization", user), ("Authorization", login)];
        let fields = if login.is_empty() { &fields[..1] } else { &fields };
        front.request("GET", &url, fields, b"").response()
    };
    let (anna, bo) = ("Basic YW5uYTp4", "Basic Ym86eA==");
    let first = get(anna, "NTLM first").expect(401);
    let token = offers(&first)[0].strip_prefix("NTLM c.").expect("a token").to_owned();
    let _ = get(anna, &format!("NTLM anna.{token}")).expect(200);
    assert_eq!(get(anna, "").expect(200).text(), "anna");
    let _ = get(bo, "").expect(401);
}

#[test]
fn a_request_that_may_not_be_repeated_is_sent_once_on_it() {
    let (server, proxy) = (Server::new("NTLM", ""), Proxy::forward("http_access allow all\n"));
    for (method, times) in [("POST", 1), ("PATCH", 1), ("GET", 2)] {
        let mut client = proxy.client();
        let _ = log_in(&mut client, &server.url("/own"), "anna").expect(200);
        client.request(method, &server.url("/die"), &[], b"");
        let _ = client.response().expect(if times == 1 { 502 } else { 401 });
        let begin = format!("{method} /die ");
        let sent = server.seen().iter().filter(|head| head.starts_with(&begin)).count();
        assert_eq!(sent, times, "{method}");
    }
}

#[test]
fn a_login_is_not_sent_where_nobody_waits_for_the_answer() {
    let (server, proxy) = (Server::new("NTLM", ""), Proxy::forward("http_access allow all\n"));
    let url = server.url("/stale");
    let _ = get(&mut proxy.client(), &url, "").expect(200);
    assert_eq!(log_in(&mut proxy.client(), &url, "bo").expect(200).text(), "bo");
}

#[test]
fn it_ends_when_a_tunnel_begins() {
    let server = Server::new("NTLM", "");
    let world = World::forward("http_access allow all\n");
    let mut client = world.client();
    let _ = log_in(&mut client, &server.url("/own"), "anna").expect(200);
    let host = world.host();
    client.request("CONNECT", &host, &[("Host", &host)], b"");
    let _ = client.response_to("CONNECT").expect(200);
    until("the end of the connection", || server.seen().contains(&"end".to_owned()).then_some(()));
    drop(client);
}
