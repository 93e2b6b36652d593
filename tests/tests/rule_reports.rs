//! What rules do, and what they would do: counters of their decisions, rules that only report, and
//! reconfigurations.

use humboldt_tests::proxy;
use humboldt_tests::scripts::Scripts;
use humboldt_tests::wait::{until, until_within};
use humboldt_tests::{Client, Proxy, Reply, WEB_SOCKET, World};
use rustix::process::Signal;
use std::time::Duration;

/// The password is `secret`.
const ANNA: &str = "anna:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n";

/// `anna:secret`
const LOGIN: (&str, &str) = ("Proxy-Authorization", "Basic YW5uYTpzZWNyZXQ=");

const LOG: &str = "logformat own %rm %ru %>Hs %rule %reported_rule %generation\n\
                   access_log stdio:{dir}/own.log own\n";

/// A proxy with these rules, and an origin with one object.
fn world(lines: &str) -> World {
    let world = World::forward(&format!("{LOG}{lines}"));
    world.origin.on("/", Reply::ok("x"));
    world
}

/// The place of a line of the configuration: `squid.conf:LINE`, as clients see it.
fn place(proxy: &Proxy, line: &str) -> String {
    let text = std::fs::read_to_string(proxy.configuration()).expect("the configuration");
    let at = text.lines().position(|one| one.contains(line)).expect("the line");
    format!("squid.conf:{}", at + 1)
}

fn page(proxy: &Proxy, name: &str) -> String {
    let mut client = proxy.client();
    client.request("GET", &proxy.page(name), &[], b"");
    client.response().expect(200).text()
}

/// The value of a metric about a rule.
fn metric(page: &str, name: &str, list: &str, rule: &str) -> Option<u64> {
    let start = format!("humboldt_{name}{{list=\"{list}\",rule=\"{rule}\",");
    let line = page.lines().find(|line| line.starts_with(&start))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// The words of a line behind the name of its list.
fn words(line: &str) -> &str {
    line.split_once(' ').expect("some words").1
}

fn wait_for_line(world: &World, wanted: &str) {
    until(&format!("`{wanted}` in the log:"), || {
        world.proxy.text("own.log").lines().any(|line| line == wanted).then_some(())
    });
}

#[test]
fn each_line_counts_its_decisions() {
    let rules = "acl bad urlpath_regex ^/bad\nacl other urlpath_regex ^/other\n\
                 http_access deny bad\nhttp_access allow other\n\
                 acl html rep_mime_type text/html\nhttp_reply_access deny html\n\
                 http_reply_access allow all\nmiss_access deny other\nmiss_access allow all\n";
    let world = world(rules);
    world.origin.on("/html", Reply::ok("x").with("Content-Type", "text/html"));
    for path in ["/bad/1", "/bad/2", "/other", "/html"] {
        let _ = world.get(path).expect(403);
    }
    for _ in 0..3 {
        let _ = world.get("/").expect(200);
    }
    let metrics = page(&world.proxy, "metrics");
    let count =
        |list: &str, line: &str| metric(&metrics, "rule_decisions_total", list, words(line));
    assert_eq!(count("http_access", "http_access deny bad"), Some(2), "{metrics}");
    assert_eq!(count("http_access", "http_access allow other"), Some(1));
    assert_eq!(count("miss_access", "miss_access deny other"), Some(1));
    assert_eq!(count("http_reply_access", "http_reply_access deny html"), Some(1));
    // Interim answers and pages of the proxy's own are not asked about.
    assert_eq!(count("http_reply_access", "http_reply_access allow all"), Some(3));
    assert_eq!(metric(&metrics, "rule_decisions_total", "http_reply_access", "none"), Some(0));
    let rules = page(&world.proxy, "squid-internal-mgr/rules");
    let wanted = format!("{}: http_access deny bad", place(&world.proxy, "http_access deny bad"));
    let line =
        rules.lines().find(|line| line.ends_with(&wanted.replace("squid.conf", "/squid.conf")));
    let line = line.or_else(|| rules.lines().find(|line| line.contains("http_access deny bad")));
    assert!(line.is_some_and(|line| line.trim_start().starts_with("2 ")), "{rules}");
    assert!(rules.starts_with("Configuration: generation 1, in force since "), "{rules}");

    // A line that stays goes on counting, wherever it stands now; a new one begins.
    world.proxy.reconfigure(&format!(
        "{LOG}# one line more\nacl bad urlpath_regex ^/bad\n\
                             http_access allow manager\nhttp_access deny bad\n"
    ));
    let _ = world.get("/bad/3").expect(403);
    let metrics = page(&world.proxy, "metrics");
    let count = |line: &str| metric(&metrics, "rule_decisions_total", "http_access", words(line));
    assert_eq!(count("http_access deny bad"), Some(3), "{metrics}");
    assert_eq!(count("http_access allow manager"), Some(1));
    assert!(metrics.contains("\nhumboldt_configuration_generation 2\n"), "{metrics}");
}

#[test]
fn a_request_counts_once_also_if_a_list_is_asked_at_several_steps() {
    let world = world(
        "http_access allow all\nacl ok http_status 200-299\nhttp_reply_access allow ok\nhttp_reply_access deny all\n",
    );
    world.origin.on("/kept", Reply::ok("0123456789").cachable(600));
    let _ = world.get("/kept").expect(200);
    for _ in 0..2 {
        let _ = world.get("/kept").expect(200);
    }
    let several = world.ask("GET", "/kept", &[("Range", "bytes=0-1,4-5")]);
    assert!(matches!(several.status(), 200 | 206));
    let metrics = page(&world.proxy, "metrics");
    let count = metric(&metrics, "rule_decisions_total", "http_reply_access", "allow ok");
    assert_eq!(count, Some(4), "{metrics}");
}

#[test]
fn a_demand_for_a_login_names_its_rule() {
    let world = World::forward("");
    let passwords = world.proxy.path("passwd");
    std::fs::write(&passwords, ANNA).expect("a password file");
    let lines = format!(
        "{LOG}auth_param basic program /usr/lib/squid/basic_ncsa_auth {}\n\
         acl users proxy_auth REQUIRED\nhttp_access allow users\n",
        passwords.display()
    );
    world.origin.on("/", Reply::ok("x"));
    world.proxy.reconfigure(&lines);
    let place = place(&world.proxy, "allow users");
    let answer = world.get("/").expect(407);
    let status = answer.field("Proxy-Status").expect("the field");
    let said = format!("login demanded by http_access allow users ({place})");
    assert!(status.contains(&said), "{status}");
    assert!(answer.text().contains(&said), "{}", answer.text());
    let _ = world.ask("GET", "/", &[LOGIN]).expect(200);
    let file = world.proxy.configuration();
    let line = place.rsplit(':').next().expect("a number");
    wait_for_line(&world, &format!("GET {} 407 {file}:{line} - 2", world.target("/")));
    let metrics = world.ask("GET", "/", &[LOGIN]).expect(200);
    drop(metrics);
    let explained = proxy::run(&["-f", &file, "-k", "explain", "GET", "http://a.test/"]);
    let text = String::from_utf8_lossy(&explained.stdout).into_owned();
    assert_eq!(explained.status.code(), Some(3), "{text}");
    assert!(text.contains("allow users: `users` needs a login"), "{text}");
}

#[test]
fn rules_on_trial_refuse_nothing_and_say_what_they_would_do() {
    let world = world(
        "acl bad urlpath_regex ^/bad\nacl worse urlpath_regex ^/worse\n\
         acl mark annotate_transaction tried=yes\nacl marked note tried yes\n\
         acl users proxy_auth REQUIRED\nacl login urlpath_regex ^/login\n\
         auth_param basic program /usr/lib/squid/basic_ncsa_auth /dev/null\n\
         http_access deny worse\n\
         http_access_report_only deny worse\nhttp_access_report_only deny bad mark\n\
         http_access_report_only deny login !users\nhttp_access_report_only allow all\n\
         http_reply_access deny marked\nhttp_reply_access allow all\n",
    );
    for path in ["/bad", "/login"] {
        world.origin.on(path, Reply::ok("x"));
        let _ = world.get(path).expect(200);
    }
    let _ = world.get("/worse").expect(403);
    let _ = world.get("/").expect(200);
    let file = world.proxy.configuration();
    let at = |line: &str| place(&world.proxy, line).replace("squid.conf", &file);
    let line = |path: &str, status: u16, rule: &str, reported: &str| {
        wait_for_line(&world, &format!("GET {} {status} {rule} {reported} 1", world.target(path)));
    };
    line("/bad", 200, "-", &at("report_only deny bad"));
    line("/login", 200, "-", &at("report_only deny login"));
    line("/worse", 403, &at("http_access deny worse"), "-");
    line("/", 200, "-", "-");
    let metrics = page(&world.proxy, "metrics");
    let list = "http_access_report_only";
    for (name, of, wanted) in [
        ("rule_refusals_reported_total", "report_only deny bad mark", 1),
        ("rule_decisions_total", "report_only deny bad mark", 1),
        ("rule_refusals_reported_total", "report_only deny login !users", 1),
        ("rule_decisions_total", "report_only deny worse", 0),
        ("rule_refusals_reported_total", "report_only allow all", 0),
    ] {
        let found = metric(&metrics, name, list, words(of));
        assert_eq!(found, Some(wanted), "{name} {of}: {metrics}");
    }
    assert!(metrics.contains("\nhumboldt_client_http_refusals_reported_total 2\n"), "{metrics}");
    let explained = proxy::run(&[
        "-f",
        &file,
        "-k",
        "explain",
        "GET",
        "http://a.test/worse",
        "--dst",
        "192.0.2.1",
    ]);
    assert_eq!(explained.status.code(), Some(3));
    let explained = proxy::run(&["-f", &file, "-k", "explain", "GET", "http://a.test/login"]);
    let text = String::from_utf8_lossy(&explained.stdout).into_owned();
    assert_eq!(explained.status.code(), Some(0), "{text}");
    assert!(text.contains("the rules on trial") && text.contains("login"), "{text}");
}

#[test]
fn a_whole_file_is_tried_without_refusing_and_only_where_that_is_asked_for() {
    let rules = "acl bad urlpath_regex ^/bad\nacl html rep_mime_type text/html\n\
                 acl users proxy_auth REQUIRED\nacl login urlpath_regex ^/login\n\
                 acl purge method PURGE\nacl pages url_regex /squid-internal-mgr/\n\
                 acl far dst 192.0.2.0/24\nacl away dstdomain no-such-name.invalid\n\
                 auth_param basic program /usr/lib/squid/basic_ncsa_auth /dev/null\n\
                 http_access deny bad\nhttp_access deny purge\nhttp_access deny pages\n\
                 http_access deny login !users\nhttp_access deny away far\nhttp_access deny !login\n\
                 http_reply_access deny html\nhttp_reply_access allow all\nmiss_access deny login\n";
    let world =
        world(&format!("{rules}acl pilot req_header X-Pilot yes\nreport_only allow pilot\n"));
    let html = Reply::ok("x").with("Content-Type", "text/html");
    for path in ["/bad", "/login"] {
        world.origin.on(path, Reply::ok("x"));
    }
    world.origin.on("/html", html);
    let pilot = ("X-Pilot", "yes");
    let file = world.proxy.configuration();
    let at = |line: &str| place(&world.proxy, line).replace("squid.conf", &file);
    for (path, refused, rule) in [
        ("/bad", 403, "deny bad"),
        ("/login", 407, "deny login !users"),
        ("/html", 403, "deny !login"),
    ] {
        let _ = world.ask("GET", path, &[]).expect(refused);
        let _ = world.ask("GET", path, &[pilot]).expect(200);
        wait_for_line(&world, &format!("GET {} {refused} {} - 1", world.target(path), at(rule)));
        wait_for_line(&world, &format!("GET {} 200 - {} 1", world.target(path), at(rule)));
    }
    // The proxy's own pages, PURGE, and rules without an answer stay refused.
    let mut client = world.client();
    client.request("GET", &world.proxy.page("squid-internal-mgr/info"), &[pilot], b"");
    let _ = client.response().expect(403);
    let _ = world.ask("PURGE", "/", &[pilot]).expect(403);
    let mut client = world.client();
    client.request("GET", "http://no-such-name.invalid/", &[pilot], b"");
    let answer = client.response();
    assert!(answer.status() >= 500, "{}", answer.status());
    // A tunnel is let through too.
    let mut client = world.client();
    client.request("CONNECT", &world.host(), &[pilot], b"");
    let _ = client.response_to("CONNECT").expect(200);
    let explained = proxy::run(&[
        "-f",
        &file,
        "-k",
        "explain",
        "GET",
        "http://a.test/bad",
        "--header",
        "X-Pilot: yes",
    ]);
    let text = String::from_utf8_lossy(&explained.stdout).into_owned();
    assert!(explained.status.success() && text.contains("only reported"), "{text}");
    let explained = proxy::run(&["-f", &file, "-k", "explain", "GET", "http://a.test/bad"]);
    assert_eq!(explained.status.code(), Some(3));
    let parsed = proxy::run(&["-f", &file, "-k", "parse"]);
    let said = String::from_utf8_lossy(&parsed.stderr).into_owned();
    let said = said + &String::from_utf8_lossy(&parsed.stdout);
    assert!(said.contains("are only reported"), "{said}");
}

#[test]
fn a_replay_knows_purge_and_the_pages_of_the_proxy() {
    let world = world(
        "acl pages url_regex /squid-internal-mgr/\nhttp_access deny pages\n\
         http_access allow all\nreport_only allow all\n",
    );
    let file = world.proxy.configuration();
    let log = world.proxy.path("old.log").display().to_string();
    let line = |method: &str, url: &str| {
        format!("1066036250.129 5 127.0.0.1 TCP_DENIED/403 3 {method} {url} - HIER_NONE/- -\n")
    };
    let page = world.proxy.page("squid-internal-mgr/info");
    let lines = line("PURGE", "http://a.test/") + &line("GET", &page);
    std::fs::write(&log, lines).expect("a log");
    let replayed = proxy::run(&["-f", &file, "-k", "explain", "--against-log", &log]);
    let text = String::from_utf8_lossy(&replayed.stdout).into_owned();
    assert!(text.starts_with("2 lines: 2 as before, 0 would change"), "{text}");
}

#[test]
fn a_login_in_a_refused_url_is_not_logged() {
    let world = world("http_access allow all\n");
    let mut client = world.client();
    client.send("GET http://anna:secret@a.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n");
    let _ = client.response().expect(400);
    wait_for_line(&world, "GET http://a.test/x 400 - - 1");
    assert!(!world.proxy.text("cache.log").contains("secret"));
}

#[test]
fn report_only_lets_nobody_pass_whom_no_line_allows() {
    let acls = "acl servers src 192.0.2.0/24\nacl guests src 198.51.100.0/24\n\
                acl pilot req_header X-Pilot yes\nacl bad urlpath_regex ^/bad\n\
                http_access deny bad\nhttp_access allow all\n";
    for (lines, pilot_gets) in [
        ("report_only deny servers\n", 403),
        ("report_only allow pilot\nreport_only deny guests\n", 200),
    ] {
        let world = world(&format!("{acls}{lines}"));
        world.origin.on("/bad", Reply::ok("x"));
        let _ = world.get("/bad").expect(403);
        let _ = world.ask("GET", "/bad", &[("X-Pilot", "yes")]).expect(pilot_gets);
        let file = world.proxy.configuration();
        let explained = proxy::run(&["-f", &file, "-k", "explain", "GET", "http://a.test/bad"]);
        assert_eq!(explained.status.code(), Some(3), "{lines}");
        let log = world.proxy.path("old.log").display().to_string();
        let line = "1066036250.129 5 10.0.0.7 TCP_DENIED/403 3 GET http://a.test/bad - NONE/- -\n";
        std::fs::write(&log, line).expect("a log");
        let replayed = proxy::run(&["-f", &file, "-k", "explain", "--against-log", &log]);
        let text = String::from_utf8_lossy(&replayed.stdout).into_owned();
        assert!(!text.contains("would be let in"), "{lines}{text}");
    }
}

#[test]
fn rules_on_trial_whose_helper_hangs_hold_nobody_up() {
    let scripts = Scripts::new();
    let hangs = scripts.helper("hangs", "while [ ! -e DIR/go ]; do sleep 0.1; done; echo OK");
    let world = world(&format!(
        "external_acl_type h ttl=0 children-max=1 %URI {hangs}\nacl x external h\n\
         http_access allow all\nhttp_access_report_only deny x\n"
    ));
    // The helper has not answered when this returns.
    let _ = world.get("/").expect(200);
    wait_for_line(&world, &format!("GET {} 200 - unanswered 1", world.target("/")));
    let metrics = page(&world.proxy, "metrics");
    assert!(metrics.contains("\nhumboldt_client_http_refusals_reported_total 0\n"), "{metrics}");
    scripts.write("go", "");
}

/// A tunnel to the origin's address, through which bytes go.
fn tunnel(world: &World, host: &str) -> Client {
    let mut client = world.client();
    client.request("CONNECT", host, &[], b"");
    let _ = client.response_to("CONNECT").expect(200);
    client.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    let _ = client.response().expect(200);
    client
}

/// Whether bytes still go through a tunnel.
fn goes_on(client: &mut Client, host: &str) -> bool {
    client.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    client.try_response_to("GET").is_some_and(|answer| answer.status() == 200)
}

#[test]
fn a_reconfiguration_closes_the_tunnels_that_it_refuses_if_it_says_so() {
    let world = world("");
    let host = world.host();
    let (mut first, mut second) = (
        tunnel(&world, &host),
        tunnel(&world, &format!("localhost:{}", world.origin.address().port())),
    );
    // By default tunnels go on.
    let by_name = "acl named dstdomain localhost\n";
    world.proxy.reconfigure(&format!("{LOG}{by_name}http_access deny named\n"));
    assert!(goes_on(&mut first, &host) && goes_on(&mut second, &host));
    world
        .proxy
        .reconfigure(&format!("{LOG}{by_name}close_refused_tunnels on\nhttp_access deny named\n"));
    assert!(second.closes(), "the refused one");
    assert!(goes_on(&mut first, &host), "the other one");
    let (file, port) = (world.proxy.configuration(), world.origin.address().port());
    let line = place(&world.proxy, "deny named").replace("squid.conf", &file);
    wait_for_line(&world, &format!("CONNECT localhost:{port} 200 {line} - 1"));
    let metrics = page(&world.proxy, "metrics");
    assert!(
        metrics.contains("\nhumboldt_client_connections_cut_total{reason=\"rules_changed\"} 1\n"),
        "{metrics}"
    );
    // By the address that it leads to, also if the rules name it only now.
    world.proxy.reconfigure(&format!(
        "{LOG}close_refused_tunnels on\nacl here dst 127.0.0.0/8\nhttp_access deny CONNECT here\n"
    ));
    assert!(first.closes());
    assert!(
        metric_of_core(&page(&world.proxy, "squid-internal-mgr/rules"), "deny CONNECT here") >= 1
    );
}

/// An upgraded connection of a client.
fn websocket(world: &World) -> Client {
    let mut client = world.client();
    client.request("GET", &world.target("/socket"), &WEB_SOCKET, b"");
    let _ = client.response().expect(101);
    client
}

#[test]
fn tunnels_by_upgrade_are_judged_by_what_has_opened_them() {
    let world = world("");
    world.origin.handle("/socket", |_, wire| {
        wire.send(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
        );
        while let Ok(bytes) = wire.reader.exactly(5) {
            if bytes.is_empty() {
                break;
            }
            wire.send(bytes.to_ascii_uppercase());
        }
    });
    let on = "close_refused_tunnels on\n";
    let mut client = websocket(&world);
    world.proxy.reconfigure(&format!("{LOG}{on}http_access allow all\n"));
    assert_eq!(client.send("hello").bytes(5), b"HELLO");
    // The GET may still be made; a tunnel may not.
    world.proxy.reconfigure(&format!("{LOG}{on}http_access deny CONNECT\nhttp_access allow all\n"));
    assert!(client.closes());
    let file = world.proxy.configuration();
    let line = place(&world.proxy, "http_access deny CONNECT").replace("squid.conf", &file);
    wait_for_line(&world, &format!("GET {} 101 {line} - 1", world.target("/socket")));
    // By the protocol's own rules.
    let named = "http_upgrade_request_protocols websocket";
    world.proxy.reconfigure(&format!("{LOG}{on}{named} allow all\nhttp_access allow all\n"));
    let mut client = websocket(&world);
    world.proxy.reconfigure(&format!("{LOG}{on}{named} deny all\nhttp_access allow all\n"));
    assert!(client.closes());
}

#[test]
fn the_url_that_a_client_has_sent_is_judged_again_not_the_rewritten_one() {
    let world = world("");
    let scripts = Scripts::new();
    let host = world.host();
    let rewriter = scripts.helper("rewriter", &format!("echo OK rewrite-url={host}"));
    let lines = format!(
        "{LOG}url_rewrite_program {rewriter}\nurl_rewrite_children 1\n\
         close_refused_tunnels on\nacl sent dstdomain sent.invalid\n"
    );
    world.proxy.reconfigure(&format!("{lines}http_access allow all\n"));
    let mut client = tunnel(&world, "sent.invalid:443");
    // The rewritten URL would not be let in.
    world.proxy.reconfigure(&format!("{lines}http_access allow sent\nhttp_access deny all\n"));
    let _ = world.get("/").expect(403);
    assert!(goes_on(&mut client, &host), "permitted as it was sent");
    world.proxy.reconfigure(&format!("{lines}http_access deny sent\nhttp_access allow all\n"));
    assert!(client.closes());
    let _ = page(&world.proxy, "metrics");
}

#[test]
fn a_helper_without_an_answer_at_a_reload_does_not_close_what_it_permits() {
    let world = world("");
    let scripts = Scripts::new();
    // Without an answer to the first two tries, each of which asks three times.
    let answer = "n=$(($(cat DIR/n 2>/dev/null || echo 0) + 1)); echo $n > DIR/n; \
                  if [ $n -gt 6 ]; then echo OK; else echo BH; fi";
    let helper = scripts.helper("h", answer);
    let host = world.host();
    let mut client = tunnel(&world, &host);
    let lines = format!(
        "{LOG}close_refused_tunnels on\nexternal_acl_type h ttl=0 children-max=1 %DST {helper}\n\
         acl x external h\n"
    );
    world
        .proxy
        .reconfigure(&format!("{lines}http_access allow CONNECT x\nhttp_access allow !CONNECT\n"));
    until("an answer", || (scripts.asked("h").len() > 6).then_some(()));
    assert!(goes_on(&mut client, &host));
    assert!(goes_on(&mut client, &host));
    world.proxy.reconfigure(&format!("{LOG}close_refused_tunnels on\nhttp_access deny CONNECT\n"));
    assert!(client.closes());
}

#[test]
fn what_is_drawn_for_a_tunnel_stays_so() {
    let lines = |n: usize| {
        format!(
            "{LOG}{}close_refused_tunnels on\nacl half random 1/2\nacl all_hosts dst all\n\
             http_access deny CONNECT half\nhttp_access allow all\n",
            "# moved\n".repeat(n)
        )
    };
    let world = world("");
    world.proxy.reconfigure(&lines(0));
    let host = world.host();
    // Until four are let in: each is by one half.
    let mut tunnels = Vec::new();
    until("four tunnels", || {
        let mut client = world.client();
        client.request("CONNECT", &host, &[], b"");
        if client.response_to("CONNECT").status() == 200 {
            tunnels.push(client);
        }
        (tunnels.len() == 4).then_some(())
    });
    for n in 1..5 {
        world.proxy.reconfigure(&lines(n));
        assert!(tunnels.iter_mut().all(|tunnel| goes_on(tunnel, &host)), "reload {n}");
    }
}

#[test]
fn a_tunnel_through_a_parent_is_judged_again_by_its_own_host() {
    let parent = World::forward("");
    let address = parent.proxy.address();
    let peer = format!(
        "cache_peer {} parent {} 0 no-query\nnever_direct allow all\n",
        address.ip(),
        address.port()
    );
    let lines = |rules: &str| format!("{LOG}{peer}close_refused_tunnels on\n{rules}");
    let world = world(&peer);
    let at = format!("localhost:{}", world.origin.address().port());
    let mut client = tunnel(&world, &at);
    // The address of the parent is not that of the server.
    let far = "acl far dst 192.0.2.0/24\nhttp_access deny far\n";
    world.proxy.reconfigure(&lines(&format!("{far}http_access allow all\n")));
    assert!(goes_on(&mut client, &at) && goes_on(&mut client, &at));
    let named = "acl named dstdomain localhost\nhttp_access deny CONNECT named\n";
    world.proxy.reconfigure(&lines(named));
    assert!(client.closes());
    let file = world.proxy.configuration();
    let line = place(&world.proxy, "deny CONNECT named").replace("squid.conf", &file);
    wait_for_line(&world, &format!("CONNECT {at} 200 {line} - 1"));
}

#[test]
fn a_tunnel_whose_rules_never_answer_is_closed() {
    let world = world("");
    let scripts = Scripts::new();
    let helper = scripts.helper("h", "echo BH");
    let host = world.host();
    let mut client = tunnel(&world, &host);
    let lines = format!(
        "{LOG}close_refused_tunnels on\nexternal_acl_type h ttl=0 children-max=1 %DST {helper}\n\
         acl x external h\nhttp_access allow CONNECT x\nhttp_access allow !CONNECT\n"
    );
    world.proxy.reconfigure(&lines);
    // It goes on while they are asked again, for half a minute.
    assert!(goes_on(&mut client, &host));
    until_within(Duration::from_secs(90), "the rules to be given up", || {
        let metrics = page(&world.proxy, "metrics");
        let cut = "\nhumboldt_client_connections_cut_total{reason=\"rules_unanswered\"} 1\n";
        metrics.contains(cut).then_some(())
    });
    assert!(client.closes());
}

/// The decisions of a rule on the page.
fn metric_of_core(page: &str, rule: &str) -> u64 {
    let line = page.lines().find(|line| line.ends_with(rule)).expect("the rule");
    line.split_ascii_whitespace().next().expect("a column").parse().expect("a number")
}

#[test]
fn a_broken_file_changes_nothing_and_says_so_everywhere() {
    let world = world("acl bad urlpath_regex ^/bad\nhttp_access deny bad\n");
    let _ = world.get("/bad").expect(403);
    let file = world.proxy.configuration();
    world.proxy.write_configuration("", &format!("{LOG}http_access deny nobody-knows\n"));
    for command in ["parse", "reconfigure"] {
        let ended = proxy::run(&["-f", &file, "-k", command]);
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(1), "{command}: {said}");
        assert!(said.contains("nobody-knows"), "{said}");
    }
    assert!(!world.proxy.text("cache.log").contains("not reconfigured"), "nobody was told");
    world.proxy.signal(Signal::HUP);
    until("the message", || {
        let said = world.proxy.text("cache.log");
        let is_said = said.contains("not reconfigured, the old configuration stays");
        (is_said && said.contains("nobody-knows")).then_some(())
    });
    let _ = world.get("/bad").expect(403);
    let _ = world.get("/").expect(200);
    let metrics = page(&world.proxy, "metrics");
    assert!(metrics.contains("\nhumboldt_configuration_generation 1\n"), "{metrics}");
    assert!(metrics.contains("\nhumboldt_failed_reconfigurations_total 1\n"), "{metrics}");
    world.proxy.reconfigure(LOG);
    let _ = world.get("/bad").expect(404);
    let rules = page(&world.proxy, "squid-internal-mgr/rules");
    assert!(
        rules.contains("generation 2,") && rules.contains("Failed reconfigurations: 1"),
        "{rules}"
    );
    wait_for_line(&world, &format!("GET {} 404 - - 2", world.target("/bad")));
}
