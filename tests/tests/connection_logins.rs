//! Logins of connections, with NTLM and Negotiate: a helper program leads a handshake with the
//! client, and the user belongs to the client's connection. For Kerberos see `kerberos.rs`.

use humboldt_tests::scripts::Scripts;
use humboldt_tests::servers::{curl, succeed};
use humboldt_tests::wait::{free_address, until};
use humboldt_tests::{Client, Origin, Proxy, Reply, Response, World};
use rustix::process::Signal;
use std::fs;

/// Answers for a helper. The client has to send back the number of the process, as it gets it with
/// the challenge: otherwise its handshake has met two processes.
const CASES: &str = "case \"$line\" in\n\
    YR\\ hang*) while [ ! -e DIR/go ]; do sleep 0.05; done; echo \"TT c.$$\" ;;\n\
    YR\\ *) echo \"TT c.$$\" ;;\n\
    KK\\ *.$$|KK\\ *.$$\\ *) name=${line#KK }; name=${name%%.*}\n\
      case $name in\n\
        wrong) echo 'NA wrong password' ;;\n\
        broken) echo 'BH no idea' ;;\n\
        nobody) echo 'OK group=x' ;;\n\
        dies) exit 1 ;;\n\
        *) echo \"OK user=$name group=g1 token=final\" ;;\n\
      esac ;;\n\
    *) echo 'NA other process' ;;\n\
    esac";

const USERS: &str = "acl users proxy_auth REQUIRED\nacl staff proxy_auth anna bo\n";

struct Ntlm {
    world: World,
    scripts: Scripts,
}

/// A proxy whose clients log in with NTLM; `options` are those of `children`.
fn ntlm_with(options: &str, lines: &str) -> Ntlm {
    let scripts = Scripts::new();
    let helper = scripts.helper("ntlm", CASES);
    let lines = lines.replace("HELPER", &helper);
    let world = World::forward(&format!(
        "auth_param ntlm program {helper}\nauth_param ntlm children {options}\n{USERS}{lines}"
    ));
    world.origin.on("/a", Reply::ok("hello").with("Cache-Control", "no-store"));
    world.origin.on("/up", Reply::ok("taken").with("Cache-Control", "no-store"));
    Ntlm { world, scripts }
}

fn ntlm(lines: &str) -> Ntlm {
    ntlm_with("5", lines)
}

const ALLOW: &str = "http_access allow users\nhttp_access deny all\n";

fn ask_with(client: &mut Client, world: &World, login: &str) -> Response {
    client.request("GET", &world.target("/a"), &[("Proxy-Authorization", login)], b"").response()
}

fn ask(client: &mut Client, world: &World) -> Response {
    client.request("GET", &world.target("/a"), &[], b"").response()
}

/// The values of Proxy-Authenticate.
fn offers(answer: &Response) -> Vec<&str> {
    answer.head.all("Proxy-Authenticate").collect()
}

/// The token of a challenge, which must be the only one.
fn challenge(answer: &Response) -> String {
    let offers = offers(answer);
    assert_eq!((answer.status(), offers.len()), (407, 1), "{:?}", answer.head);
    let token = offers[0].strip_prefix("NTLM c.").expect("a token").to_owned();
    assert!(answer.field("Connection") != Some("close"), "{:?}", answer.head);
    token
}

/// The answer to the last step of a handshake.
fn log_in(client: &mut Client, world: &World, name: &str) -> Response {
    let process = challenge(&ask_with(client, world, "NTLM first"));
    ask_with(client, world, &format!("NTLM {name}.{process}"))
}

#[test]
fn a_connection_logs_in_and_others_do_not() {
    let Ntlm { world, scripts } = ntlm(&format!(
        "logformat seen %>Hs %un %ul %note\naccess_log stdio:{{dir}}/seen.log seen\n{ALLOW}"
    ));
    let (mut first, mut second) = (world.client(), world.client());
    let answer = ask(&mut first, &world).expect(407);
    assert_eq!(offers(&answer), ["NTLM"]);
    assert!(answer.text().contains("ERR_CACHE_ACCESS_DENIED"), "{}", answer.text());
    assert_eq!(log_in(&mut first, &world, "anna").expect(200).text(), "hello");
    let _ = ask(&mut first, &world).expect(200);
    first.request("POST", &world.target("/up"), &[], b"body");
    assert_eq!(first.response().expect(200).text(), "taken");
    let _ = ask(&mut second, &world).expect(407);
    let _ = log_in(&mut second, &world, "bo").expect(200);
    let _ = ask(&mut first, &world).expect(200);
    let _ = ask(&mut second, &world).expect(200);
    let seen = until("ten lines", || {
        let text = world.proxy.text("seen.log");
        (text.lines().count() >= 10).then_some(text)
    });
    let note = |name: &str| format!("200 {name} {name} user:%20{name}%0D%0Agroup:%20g1%0D%0A");
    assert_eq!(seen.matches(&note("anna")).count(), 4, "{seen}");
    assert_eq!(seen.matches(&note("bo")).count(), 2, "{seen}");
    assert_eq!(seen.matches("407 - - ").count(), 4, "{seen}");
    let questions = scripts.asked("ntlm");
    assert_eq!(questions.len(), 4, "{questions:?}");
    let sent = String::from_utf8_lossy(&world.origin.received()).to_ascii_lowercase();
    assert!(!sent.contains("proxy-auth") && !sent.contains("ntlm"), "{sent}");
}

#[test]
fn pipelined_requests_have_the_login_of_their_turn() {
    let Ntlm { world, scripts: _scripts } = ntlm(ALLOW);
    let mut client = world.client();
    let (url, host) = (world.target("/a"), world.host());
    let get = |login: &str| format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n{login}\r\n");
    let process = challenge(&ask_with(&mut client, &world, "NTLM first"));
    let login = format!("Proxy-Authorization: NTLM anna.{process}\r\n");
    client.send([get(&login), get(""), get("")].concat());
    assert_eq!([0; 3].map(|_| client.response().status()), [200; 3]);
    // Without the token the handshake is over: what follows begins another one.
    let mut other = world.client();
    let first = get("Proxy-Authorization: NTLM first\r\n");
    other.send([first, get("")].concat());
    let process = challenge(&other.response());
    assert_eq!(offers(&other.response().expect(407)), ["NTLM"]);
    let answer = ask_with(&mut other, &world, &format!("NTLM anna.{process}"));
    let _ = challenge(&answer);
}

/// More clients than processes, all at the same time.
#[test]
fn a_crowd_of_users_is_never_mixed() {
    let lines = format!("request_header_add X-User \"%un\" all\n{ALLOW}");
    let Ntlm { world, scripts: _scripts } = ntlm_with("3 queue-size=50", &lines);
    let names: Vec<String> = (0..16).map(|number| format!("user{number}")).collect();
    let path = |name: &str| format!("/{name}");
    for name in &names {
        world.origin.on(&path(name), Reply::ok("x").with("Cache-Control", "no-store"));
    }
    std::thread::scope(|scope| {
        for name in &names {
            scope.spawn(|| {
                for _ in 0..3 {
                    let mut client = world.client();
                    let _ = log_in(&mut client, &world, name).expect(200);
                    for _ in 0..5 {
                        client.request("GET", &world.target(&path(name)), &[], b"");
                        let _ = client.response().expect(200);
                    }
                }
            });
        }
    });
    for name in &names {
        let requests = world.origin.requests(&path(name));
        let is_own = |one: &humboldt_tests::origin::Request| one.field("X-User") == Some(name);
        assert!(requests.len() == 15 && requests.iter().all(is_own), "{name}");
    }
}

#[test]
fn other_credentials_on_the_connection_are_another_login() {
    let scripts = Scripts::new();
    let basic = scripts.helper("basic", "echo OK");
    let Ntlm { world, scripts } = ntlm(&format!(
        "auth_param basic program {basic}\n{ALLOW}logformat u %>Hs %un\n\
                       access_log stdio:{{dir}}/u.log u\n"
    ));
    let mut client = world.client();
    let process = challenge(&ask_with(&mut client, &world, "NTLM first"));
    let last = format!("NTLM anna.{process}");
    let _ = ask_with(&mut client, &world, &last).expect(200);
    // The same once more is no other login.
    let _ = ask_with(&mut client, &world, &last).expect(200);
    assert_eq!(scripts.asked("ntlm").len(), 2);
    let _ = log_in(&mut client, &world, "bo").expect(200);
    let _ = ask(&mut client, &world).expect(200);
    let _ = ask_with(&mut client, &world, "Basic ZXZlOng=").expect(200);
    // Basic is for one request only, and has ended what was before.
    let _ = ask(&mut client, &world).expect(407);
    let _ = log_in(&mut client, &world, "anna").expect(200);
    let _ = ask_with(&mut client, &world, "Bearer x").expect(407);
    let _ = ask(&mut client, &world).expect(407);
    let names = until("the log", || {
        let text = world.proxy.text("u.log");
        (text.lines().count() >= 12).then_some(text)
    });
    let wanted = "407 -\n200 anna\n200 anna\n407 -\n200 bo\n200 bo\n200 eve\n407 -\n407 -\n200 anna\n\
                  407 -\n407 -\n";
    assert_eq!(names, wanted);
}

#[test]
fn a_user_who_may_not_is_asked_again_or_refused() {
    for (rules, status) in [
        ("http_access deny !staff\n", 407),
        ("http_access deny !staff all\n", 403),
        ("http_access allow staff\nhttp_access deny all\n", 403),
    ] {
        let Ntlm { world, scripts: _scripts } = ntlm(rules);
        let mut client = world.client();
        let answer = log_in(&mut client, &world, "eve").expect(status);
        let wanted: &[&str] = if status == 407 { &["NTLM"] } else { &[] };
        assert_eq!(offers(&answer), wanted, "{rules}");
        // Another user may log in on the same connection.
        let _ = log_in(&mut client, &world, "anna").expect(200);
        let _ = ask(&mut client, &world).expect(200);
    }
}

#[test]
fn a_login_that_fails_ends_the_connection() {
    let Ntlm { world, scripts: _scripts } = ntlm(ALLOW);
    for name in ["wrong", "broken", "nobody"] {
        let mut client = world.client();
        let answer = log_in(&mut client, &world, name).expect(407);
        assert_eq!((offers(&answer), answer.field("Connection")), (vec!["NTLM"], Some("close")));
        assert!(client.closes());
    }
    for odd in ["NTLM", "NTLM a b", "NTLM a\"", "Negotiate abc"] {
        let mut client = world.client();
        assert_eq!(offers(&ask_with(&mut client, &world, odd).expect(407)), ["NTLM"], "{odd}");
    }
    until("a line in cache.log", || {
        world.proxy.text("cache.log").contains("says OK, and not who").then_some(())
    });
}

#[test]
fn a_process_that_dies_is_a_refusal_and_another_one_goes_on() {
    let Ntlm { world, scripts: _scripts } = ntlm_with("1", ALLOW);
    let mut client = world.client();
    let answer = log_in(&mut client, &world, "dies").expect(503);
    assert!(offers(&answer).is_empty() && answer.text().contains("cannot be checked"));
    let _ = ask(&mut client, &world).expect(407);
    until("another process", || {
        let first = ask_with(&mut client, &world, "NTLM first");
        let process = (first.status() == 407).then(|| challenge(&first))?;
        let last = ask_with(&mut client, &world, &format!("NTLM anna.{process}"));
        (last.status() == 200).then_some(())
    });
}

#[test]
fn a_client_that_leaves_gives_the_process_back() {
    let Ntlm { world, scripts } = ntlm_with("1 queue-size=10", ALLOW);
    let hang = |client: &mut Client| {
        client.request("GET", &world.target("/a"), &[("Proxy-Authorization", "NTLM hang")], b"");
    };
    // It leaves between two steps, and while the process has its question.
    let mut between = world.client();
    let _ = challenge(&ask_with(&mut between, &world, "NTLM first"));
    let mut waiting = world.client();
    hang(&mut waiting);
    assert_eq!(scripts.asked("ntlm").len(), 1, "the only process belongs to the first client");
    drop(between);
    scripts.wait_asked("ntlm", 2);
    drop(waiting);
    fs::write(scripts.path("go"), "").expect("a file");
    let mut third = world.client();
    let _ = log_in(&mut third, &world, "anna").expect(200);
    // One that has logged in has none.
    let mut fourth = world.client();
    let _ = log_in(&mut fourth, &world, "bo").expect(200);
    let _ = ask(&mut third, &world).expect(200);
    // Nor has one whose handshake is of no use to it, because no rule asks for a login.
    let Ntlm { world, scripts: _scripts } =
        ntlm_with("1", "cache deny users\nhttp_access allow all\n");
    let mut first = world.client();
    assert_eq!(offers(&ask_with(&mut first, &world, "NTLM first").expect(200)), [""; 0]);
    let mut second = world.client();
    let _ = ask_with(&mut second, &world, "NTLM first").expect(200);
    let _ = ask(&mut first, &world).expect(200);
}

#[test]
fn a_client_that_takes_its_time_gives_way_to_others() {
    let Ntlm { world, scripts: _scripts } = ntlm_with("1 reservation-timeout=1", ALLOW);
    let mut slow = world.client();
    let process = challenge(&ask_with(&mut slow, &world, "NTLM first"));
    let mut other = world.client();
    let _ = log_in(&mut other, &world, "anna").expect(200);
    let answer = ask_with(&mut slow, &world, &format!("NTLM anna.{process}")).expect(407);
    assert_eq!((offers(&answer), answer.field("Connection")), (vec!["NTLM"], Some("close")));
    let _ = log_in(&mut world.client(), &world, "anna").expect(200);
}

#[test]
fn connections_close_where_the_file_says_so_and_never_between_steps() {
    let Ntlm { world, scripts: _scripts } =
        ntlm(&format!("auth_param ntlm keep_alive off\n{ALLOW}"));
    let mut client = world.client();
    let answer = ask(&mut client, &world).expect(407);
    assert_eq!((offers(&answer), answer.field("Connection")), (vec!["NTLM"], Some("close")));
    assert!(client.closes());
    let _ = log_in(&mut world.client(), &world, "anna").expect(200);
    let Ntlm { world, scripts: _scripts } =
        ntlm(&format!("client_persistent_connections off\n{ALLOW}"));
    let answer = ask(&mut world.client(), &world).expect(407);
    assert_eq!((offers(&answer), answer.field("Connection")), (vec!["NTLM"], Some("close")));
    let answer = log_in(&mut world.client(), &world, "anna").expect(200);
    assert_eq!(answer.field("Connection"), Some("close"));
    // A client that ends its connection cannot go on.
    let fields = [("Proxy-Authorization", "NTLM first"), ("Connection", "close")];
    let mut client = world.client();
    client.request("GET", &world.target("/a"), &fields, b"");
    assert!(offers(&client.response().expect(407)).is_empty());
}

#[test]
fn a_body_may_come_with_each_step() {
    let Ntlm { world, scripts: _scripts } = ntlm(ALLOW);
    let url = world.target("/up");
    let step = |client: &mut Client, login: &str, more: &[(&str, &str)], body: &[u8]| {
        let fields = [&[("Proxy-Authorization", login)], more].concat();
        client.request("POST", &url, &fields, body).response()
    };
    let body = vec![b'b'; 300_000];
    for more in [&[][..], &[("Expect", "100-continue")]] {
        let mut client = world.client();
        let process = challenge(&step(&mut client, "NTLM first", more, &body));
        let answer = step(&mut client, &format!("NTLM anna.{process}"), &[], &body);
        assert_eq!(answer.expect(200).text(), "taken");
        assert_eq!(world.origin.last("/up").body.bytes.len(), body.len());
    }
    assert_eq!(world.origin.count("/up"), 2);
    // One that is too long ends the connection, and the handshake.
    let mut client = world.client();
    let long = "Content-Length: 9000000\r\nProxy-Authorization: NTLM first\r\n";
    client.send(format!("POST {url} HTTP/1.1\r\nHost: x\r\n{long}\r\n"));
    let answer = client.response().expect(407);
    assert_eq!((offers(&answer).len(), answer.field("Connection")), (0, Some("close")));
}

#[test]
fn a_tunnel_is_opened_by_the_last_step_on_the_same_connection() {
    let Ntlm { world, scripts: _scripts } = ntlm(ALLOW);
    let host = world.host();
    let mut client = world.client();
    let connect = |client: &mut Client, login: &str| {
        client.request("CONNECT", &host, &[("Host", &host), ("Proxy-Authorization", login)], b"");
        client.response_to("CONNECT")
    };
    let first = connect(&mut client, "Bearer x").expect(407);
    assert_eq!((offers(&first), first.field("Connection")), (vec!["NTLM"], None));
    let process = challenge(&connect(&mut client, "NTLM first"));
    let _ = connect(&mut client, &format!("NTLM anna.{process}")).expect(200);
    client.send(format!("GET /a HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    assert_eq!(client.response().expect(200).text(), "hello");
    drop(client);
    assert!(world.proxy.logged("TCP_TUNNEL/200").contains(" anna "));
    // Bytes that come too early may be meant for a tunnel: they are no request.
    let mut early = world.client();
    early.send(format!(
        "CONNECT {host} HTTP/1.1\r\nHost: {host}\r\nProxy-Authorization: NTLM first\r\n\r\nGET /"
    ));
    let answer = early.response_to("CONNECT").expect(407);
    assert_eq!((offers(&answer).len(), answer.field("Connection")), (0, Some("close")));
}

/// Squid's own program, and curl's own NTLM.
#[test]
fn curl_logs_in_with_ntlm() {
    let helper = std::path::Path::new("/usr/lib/squid/ntlm_fake_auth");
    if !helper.exists() {
        humboldt_tests::skip("Squid's helpers are not installed");
        return;
    }
    let world = World::forward(&format!(
        "auth_param ntlm program {}\nauth_param ntlm children 3\n{USERS}{ALLOW}",
        helper.display()
    ));
    world.origin.on("/a", Reply::ok("hello").with("Cache-Control", "no-store"));
    world.origin.on("/up", Reply::ok("taken"));
    let get = |arguments: &[&str], path: &str| {
        let mut command = curl(&world.proxy);
        command.args([
            "--proxy-ntlm",
            "--proxy-user",
            "anna:secret",
            "--write-out",
            " %{http_code} ",
        ]);
        succeed(command.args(arguments).args([world.target(path), world.target(path)]))
    };
    assert_eq!(get(&[], "/a"), "hello 200 hello 200 ");
    assert_eq!(get(&["--proxytunnel"], "/a"), "hello 200 hello 200 ");
    assert_eq!(get(&["--data", "body"], "/up"), "taken 200 taken 200 ");
    assert_eq!(world.origin.last("/up").body.bytes, b"body");
    let lines = world.proxy.logged_times("TCP_MISS/200", 2);
    // This helper writes other letters around the name.
    assert!(lines.iter().all(|line| line.contains("anna")), "{lines:?}");
}

/// The schemes of a proxy with all of them, in the order in which they are offered.
fn offered(world: &World, fields: &[(&str, &str)]) -> Vec<String> {
    let answer = world.ask("GET", "/a", fields).expect(407);
    let words = answer.head.all("Proxy-Authenticate").map(|value| value.split(' ').next());
    words.map(|word| word.unwrap_or_default().to_owned()).collect()
}

#[test]
fn schemes_are_offered_in_their_order_or_as_auth_schemes_says() {
    let Ntlm { world, scripts: _scripts } = ntlm(&format!(
        "auth_param digest program /x/digest_file_auth {{dir}}/none\n\
         auth_param negotiate program HELPER\nauth_param basic program HELPER\n\
         acl old browser ^Old\nacl one browser ^One\n\
         auth_schemes basic,ntlm old\nauth_schemes \"negotiate, ALL\" one !old\n{ALLOW}"
    ));
    let all = ["NTLM", "Digest", "Negotiate", "Basic"];
    assert_eq!(offered(&world, &[]), all);
    assert_eq!(offered(&world, &[("User-Agent", "Old 1")]), ["Basic", "NTLM"]);
    let first = ["Negotiate", "NTLM", "Digest", "Basic"];
    assert_eq!(offered(&world, &[("User-Agent", "One 1")]), first);
    // What is not offered is taken all the same.
    let basic = [("User-Agent", "One"), ("Proxy-Authorization", "Negotiate first")];
    let answer = world.ask("GET", "/a", &basic).expect(407);
    assert!(answer.field("Proxy-Authenticate").is_some_and(|one| one.starts_with("Negotiate c.")));
    // Steps of one scheme are none of the other, and both have programs of their own.
    let mut client = world.client();
    let process = challenge(&ask_with(&mut client, &world, "NTLM first"));
    let other = ask_with(&mut client, &world, &format!("Negotiate anna.{process}")).expect(407);
    assert!(other.field("Proxy-Authenticate").is_some_and(|one| one.starts_with("Negotiate c.")));
}

#[test]
fn an_accelerator_asks_as_a_server_does() {
    for option in ["", "login=PASS", "login=PASSTHRU"] {
        let (origin, scripts) = (Origin::new(), Scripts::new());
        let helper = scripts.helper("ntlm", CASES);
        let (ip, port) = (origin.address().ip(), origin.address().port());
        let proxy = Proxy::start(
            "accel defaultsite=site.test",
            &format!(
                "cache_peer {ip} parent {port} 0 no-query originserver {option}\n\
                 auth_param ntlm program {helper}\n{USERS}{ALLOW}"
            ),
        );
        origin.on("/a", Reply::ok("hello").with("Cache-Control", "no-store"));
        let mut client = proxy.client();
        let mut get =
            |login: &str| client.request("GET", "/a", &[("Authorization", login)], b"").response();
        let first = get("NTLM first").expect(401);
        assert_eq!(first.field("Proxy-Authenticate"), None);
        let token = first.field("WWW-Authenticate").and_then(|one| one.strip_prefix("NTLM c."));
        let last = format!("NTLM anna.{}", token.expect("a token"));
        assert_eq!(get(&last).expect(200).text(), "hello");
        assert_eq!(origin.last("/a").head.field("Authorization"), None, "{option}");
        client.request("GET", "/a", &[], b"");
        let _ = client.response().expect(200);
        assert_eq!(proxy.logged_times("/a anna ", 2).len(), 2);
    }
}

#[test]
fn rules_helpers_and_parents_see_the_user() {
    let (parent, scripts) = (Origin::new(), Scripts::new());
    let (ip, port) = (parent.address().ip(), parent.address().port());
    let asks = scripts.helper("asks", "case $line in anna*) echo OK ;; *) echo ERR ;; esac");
    let Ntlm { world, scripts: _scripts } = ntlm(&format!(
        "cache_peer {ip} parent {port} 0 no-query name=named login=*:word\n\
         cache_peer {ip} parent {port} 0 no-query name=passed login=PASS\n\
         acl to_passed urlpath_regex passed\ncache_peer_access named deny to_passed\n\
         cache_peer_access passed allow to_passed\nnever_direct allow all\n\
         external_acl_type asks %LOGIN {asks}\nacl asked external asks\n\
         acl far max_user_ip -s 1\nauthenticate_ip_ttl 1 hour\n\
         http_access deny users far all\nhttp_access deny !asked all\nhttp_access allow all\n"
    ));
    for path in ["/a", "/passed"] {
        parent.on(path, Reply::ok("x").with("Cache-Control", "no-store"));
    }
    let mut client = world.client();
    let _ = log_in(&mut client, &world, "anna").expect(200);
    assert_eq!(parent.last("/a").head.field("Proxy-Authorization"), Some("Basic YW5uYTp3b3Jk"));
    // There is no password, and the token is of no use to anybody else.
    client.request("GET", &world.target("/passed"), &[], b"");
    let _ = client.response().expect(200);
    assert_eq!(parent.last("/passed").head.field("Proxy-Authorization"), None);
    let mut eve = world.client();
    let _ = log_in(&mut eve, &world, "eve").expect(403);
    assert_eq!(scripts.asked("asks"), ["anna -$", "eve -$"]);
    // From a second address.
    let mut far = Client::from_to([127, 0, 0, 2].into(), world.proxy.address());
    let _ = log_in(&mut far, &world, "anna").expect(403);
    let _ = ask(&mut client, &world).expect(200);
    let sent = String::from_utf8_lossy(&parent.received()).into_owned();
    assert!(!sent.contains("NTLM"), "{sent}");
}

#[test]
fn behind_a_balancer_each_connection_has_its_own_login() {
    let port = free_address();
    let Ntlm { world, scripts: _scripts } = ntlm(&format!(
        "http_port {port} require-proxy-header\nproxy_protocol_access allow all\n{ALLOW}"
    ));
    let announced = |client: &str| {
        let mut connection = Client::to(port);
        connection.send(format!("PROXY TCP4 {client} 198.51.100.2 50000 80\r\n"));
        connection
    };
    let (mut anna, mut other) = (announced("192.0.2.1"), announced("192.0.2.1"));
    let _ = log_in(&mut anna, &world, "anna").expect(200);
    let _ = ask(&mut other, &world).expect(407);
    let _ = log_in(&mut other, &world, "bo").expect(200);
    let _ = (ask(&mut anna, &world).expect(200), ask(&mut other, &world).expect(200));
    for name in ["anna", "bo"] {
        assert_eq!(world.proxy.logged_times(&format!("/a {name} "), 2).len(), 2);
    }
}

/// A proxy before this one may send the requests of several clients on one connection.
#[test]
fn another_client_on_the_same_connection_is_not_the_user() {
    for rules_see in ["on", "off"] {
        let Ntlm { world, scripts: _scripts } = ntlm(&format!(
            "follow_x_forwarded_for allow localhost\nacl_uses_indirect_client {rules_see}\n{ALLOW}"
        ));
        let mut proxy = world.client();
        let mut get = |client: &str, login: &str| {
            let fields = [("X-Forwarded-For", client), ("Proxy-Authorization", login)];
            let fields = if login.is_empty() { &fields[..1] } else { &fields };
            proxy.request("GET", &world.target("/a"), fields, b"").response()
        };
        let process = challenge(&get("192.0.2.1", "NTLM first"));
        let _ = get("192.0.2.1", &format!("NTLM anna.{process}")).expect(200);
        let _ = get("192.0.2.1", "").expect(200);
        let _ = get("192.0.2.2", "").expect(407);
    }
}

/// Nobody is asked for a login by the size of an answer, and a limit for users is none for others.
#[test]
fn a_size_limit_for_users_is_for_those_who_have_logged_in() {
    let lines = "acl up urlpath_regex ^/up\nhttp_access deny up !users\nhttp_access allow all\n\
                 reply_body_max_size 3 bytes staff\n";
    let Ntlm { world, scripts: _scripts } = ntlm(lines);
    let mut client = world.client();
    assert_eq!(ask(&mut client, &world).expect(200).text(), "hello");
    let mut up = |login: &str| {
        client.request("GET", &world.target("/up"), &[("Proxy-Authorization", login)], b"");
        client.response()
    };
    let process = challenge(&up("NTLM first"));
    let _ = up(&format!("NTLM eve.{process}")).expect(200);
    let process = challenge(&up("NTLM first"));
    let _ = up(&format!("NTLM anna.{process}")).expect(403);
    let _ = ask(&mut client, &world).expect(403);
}

#[test]
fn a_login_that_fails_ends_the_connection_also_behind_a_redirect() {
    let scripts = Scripts::new();
    let helper = scripts.helper("ntlm", "echo 'NA no'");
    let world = World::forward(&format!(
        "auth_param ntlm program {helper}\n{USERS}http_access allow all\n\
         http_reply_access allow users\ndeny_info 302:http://help.test/ users\n"
    ));
    world.origin.on("/a", Reply::ok("hello"));
    let mut client = world.client();
    let answer = ask_with(&mut client, &world, "NTLM first").expect(302);
    assert_eq!(answer.field("Connection"), Some("close"));
    assert!(client.closes());
}

#[test]
fn a_tunnel_gives_the_process_of_a_handshake_back() {
    let lines = format!("acl CONNECT method CONNECT\nhttp_access allow CONNECT\n{ALLOW}");
    let Ntlm { world, scripts: _scripts } = ntlm_with("1 queue-size=10", &lines);
    let mut client = world.client();
    let _ = challenge(&ask_with(&mut client, &world, "NTLM first"));
    let host = world.host();
    client.request("CONNECT", &host, &[("Host", &host)], b"");
    let _ = client.response_to("CONNECT").expect(200);
    let _ = log_in(&mut world.client(), &world, "anna").expect(200);
    drop(client);
}

#[test]
fn a_reconfiguration_keeps_logins_unless_they_are_checked_in_another_way() {
    let Ntlm { mut world, scripts: _scripts } =
        ntlm(&format!("auth_param ntlm children 3\n{ALLOW}"));
    let mut client = world.client();
    let _ = log_in(&mut client, &world, "anna").expect(200);
    let change = |world: &mut World, from: &str, to: &str| {
        let file = world.proxy.path("squid.conf");
        let text = fs::read_to_string(&file).expect("the configuration");
        assert!(text.contains(from), "{text}");
        fs::write(&file, text.replace(from, to)).expect("written");
        let before = world.proxy.text("cache.log").matches("econfigur").count();
        world.proxy.signal(Signal::HUP);
        until("the reconfiguration", || {
            let now = world.proxy.text("cache.log").matches("econfigur").count();
            (now > before).then_some(())
        });
    };
    change(&mut world, "auth_param ntlm children 3", "auth_param ntlm children 4");
    let _ = ask(&mut client, &world).expect(200);
    change(&mut world, "auth_param ntlm program /bin/sh", "auth_param ntlm program /bin/sh -u");
    until("the login to end", || (ask(&mut client, &world).status() == 407).then_some(()));
    let _ = log_in(&mut client, &world, "anna").expect(200);
}

#[test]
fn lists_that_do_not_wait_know_a_user_who_has_logged_in() {
    let Ntlm { world, scripts: _scripts } = ntlm(
        "acl asked urlpath_regex ^/a\ntcp_outgoing_address 127.0.0.5 staff\n\
         request_header_add X-Staff yes staff\nlogformat staff %ru %un\n\
         access_log stdio:{dir}/staff.log staff staff\n\
         http_access deny asked !users\nhttp_access allow all\n",
    );
    world.origin.on("/free", Reply::ok("x").with("Cache-Control", "no-store"));
    let staff = |path: &str| {
        let head = world.origin.last(path).head;
        head.field("X-Staff").is_some()
    };
    // Nobody has asked about this request, and nobody knows.
    let _ = world.get("/free").expect(200);
    assert!(!staff("/free"));
    let mut client = world.client();
    let _ = log_in(&mut client, &world, "anna").expect(200);
    assert!(staff("/a"));
    // Here the connection tells.
    client.request("GET", &world.target("/free"), &[], b"");
    let _ = client.response().expect(200);
    assert!(staff("/free"));
    let mut eve = world.client();
    let _ = log_in(&mut eve, &world, "eve").expect(200);
    assert!(!staff("/a"));
    let _ = world.proxy.logged_times("200", 4);
    let log = until("lines about staff", || {
        let text = world.proxy.text("staff.log");
        (text.lines().count() >= 2).then_some(text)
    });
    assert!(!log.contains("eve") && log.matches(" anna").count() == 2, "{log}");
}
