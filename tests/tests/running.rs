//! Signals, `-k`, logs, and the manager's pages.

use humboldt_tests::servers::run;
use humboldt_tests::wait::{Gate, free_address, start, until};
use humboldt_tests::{Client, Origin, Proxy, Reply, World, proxy};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;

#[test]
fn the_access_log_has_squids_native_format() {
    let world = World::forward("");
    world.origin.on("/a", Reply::ok("hello").cachable(60).with("Content-Type", "text/plain"));
    let _ = world.get("/a").expect(200);
    let line = world.proxy.logged("/a");
    let fields: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(fields.len(), 10, "{line}");
    let (seconds, millis) = fields[0].split_once('.').expect("a time with milliseconds");
    assert!(seconds.parse::<u64>().is_ok() && millis.len() == 3, "{line}");
    assert!(fields[1].parse::<u64>().is_ok(), "{line}");
    assert_eq!(fields[2], "127.0.0.1");
    assert_eq!(fields[3], "TCP_MISS/200");
    assert!(fields[4].parse::<u64>().is_ok_and(|bytes| bytes > 100), "{line}");
    assert_eq!((fields[5], fields[6], fields[7]), ("GET", world.target("/a").as_str(), "-"));
    assert_eq!((fields[8], fields[9]), ("HIER_DIRECT/127.0.0.1", "text/plain"));
}

#[test]
fn result_codes_tell_what_happened() {
    let world = World::forward("acl bad urlpath_regex ^/bad\nhttp_access deny bad\n");
    world.origin.on("/a", Reply::ok("x").cachable(60).with("ETag", "\"v1\""));
    let mut asked = 0;
    for (fields, code) in [
        (&[][..], "TCP_MISS/200"),
        (&[], "TCP_MEM_HIT/200"),
        (&[("If-None-Match", "\"v1\"")], "TCP_INM_HIT/304"),
        (&[("Cache-Control", "no-cache")], "TCP_CLIENT_REFRESH_MISS/200"),
    ] {
        asked += 1;
        let _ = world.ask("GET", "/a", fields);
        let line = world.proxy.logged_times("/a ", asked).pop().unwrap_or_default();
        assert!(line.contains(code), "{code} wanted: {line}");
    }
    let _ = world.get("/bad").expect(403);
    assert!(world.proxy.logged("/bad").contains("TCP_DENIED/403"));
}

#[test]
fn a_logformat_with_a_code_that_has_no_value_is_written_with_a_dash() {
    let world = World::forward(
        "logformat mine %>Hs %<Hs %ui %ssl::>sni %un %rm %rd\ncoredump_dir {dir}\naccess_log mine.log mine\n",
    );
    world.origin.on("/a", Reply::ok("x").cachable(60).with("Age", "100").with("ETag", "\"v1\""));
    let _ = world.get("/a").expect(200);
    let first =
        until("a line", || Some(world.proxy.text("mine.log")).filter(|text| text.ends_with('\n')));
    assert_eq!(first, "200 200 - - - GET 127.0.0.1\n");
    world.origin.on("/a", Reply::status("304 Not Modified", "").with("ETag", "\"v1\""));
    let _ = world.get("/a").expect(200);
    let both = until("another line", || {
        Some(world.proxy.text("mine.log")).filter(|t| t.lines().count() == 2)
    });
    assert!(both.ends_with("200 304 - - - GET 127.0.0.1\n"), "{both}");
}

#[test]
fn a_log_with_a_relative_path_is_below_coredump_dir() {
    let world = World::forward("access_log stdio:below.log squid\n");
    world.origin.on("/a", Reply::ok("x"));
    let _ = world.get("/a").expect(200);
    let line = until("a line", || {
        let text = fs::read_to_string(world.proxy.path("below.log")).ok()?;
        text.ends_with('\n').then_some(text)
    });
    assert!(line.contains("/a "), "{line}");
}

/// The codes that the reference shows as working ones. They are written in two requests: only a
/// failed one has an error, and only an answered one a status of the server.
#[test]
fn each_code_of_logformat_that_works_has_a_value() {
    let reference = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/squid.conf.md");
    let reference = fs::read_to_string(reference).expect("the reference");
    let mut tables = reference.split("code | value\n--- | ---\n").skip(1);
    let table = tables.find(|table| table.contains("`%err_code`")).expect("a table");
    let rows = table.lines().map_while(|row| row.strip_prefix("`%")?.split_once("` | "));
    // Logins, helpers, annotations, refusals, hardware addresses and TLS have tests of their own.
    let other = ["%", "un", "ul", "ue", "et", "ea", "note", "rule", "reported_rule", ">eui", "us"];
    let is_other = |code: &&str| other.contains(code) || code.starts_with("ssl::");
    let codes: Vec<&str> = rows.map(|(code, _)| code).filter(|code| !is_other(code)).collect();
    assert!(codes.contains(&"err_code") && codes.contains(&">h"), "{codes:?}");
    let format: Vec<String> = codes.iter().map(|code| format!("%{code}")).collect();
    let format = format.join("|").replace("%>h", "%{Host}>h");
    let world = World::forward(&format!(
        "logformat each {format}\naccess_log stdio:{{dir}}/each.log each\n"
    ));
    world.origin.on("/a", Reply::ok("x").with("Content-Type", "text/css"));
    let _ = world.get("/a").expect(200);
    let closed = format!("http://{}/", free_address());
    let _ = world.client().request("GET", &closed, &[], b"").response().expect(503);
    let text = until("two lines", || {
        Some(world.proxy.text("each.log")).filter(|text| text.lines().count() == 2)
    });
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split('|').collect()).collect();
    assert!(lines.iter().all(|values| values.len() == codes.len()), "{text}");
    let is_empty = |at: usize| lines.iter().all(|values| ["", "-"].contains(&values[at]));
    let empty: Vec<&str> =
        codes.iter().enumerate().filter(|(at, _)| is_empty(*at)).map(|(_, code)| *code).collect();
    assert_eq!(empty, Vec::<&str>::new(), "{text}");
}

#[test]
fn access_logs_may_ask_for_the_status_and_none_keeps_a_request_out_of_those_that_follow() {
    let lines = "acl bad http_status 400-599\nacl html rep_mime_type ^text/html\nacl quiet urlpath_regex ^/quiet\n\
                 access_log stdio:{dir}/bad.log squid bad\naccess_log stdio:{dir}/html.log squid html\n\
                 access_log none quiet\naccess_log stdio:{dir}/rest.log squid\n";
    let mut world = World::forward(lines);
    world.origin.on("/quiet", Reply::ok("x").with("Content-Type", "text/html"));
    world
        .origin
        .on("/lost", Reply::status("404 Not Found", "x").with("Content-Type", "text/plain"));
    world.origin.on("/last", Reply::ok("x"));
    for (path, status) in [("/quiet", 200), ("/lost", 404), ("/last", 200)] {
        let _ = world.get(path).expect(status);
    }
    // All lines are written when it has ended.
    let _ = world.proxy.stop();
    let paths = |name: &str| {
        let text = world.proxy.text(name);
        let path =
            |line: &str| line.split(' ').filter(|word| !word.is_empty()).nth(6).map(str::to_owned);
        let urls = text
            .lines()
            .filter_map(path)
            .map(|url| url.rsplit('/').next().unwrap_or("").to_owned());
        let mut urls: Vec<_> = urls.collect();
        urls.sort();
        urls
    };
    assert_eq!(paths("rest.log"), ["last", "lost"]);
    assert_eq!(
        (paths("bad.log"), paths("html.log")),
        (vec!["lost".to_owned()], vec!["quiet".to_owned()])
    );
}

#[test]
fn answers_of_our_own_are_logged_with_their_media_type() {
    let world = World::forward("acl bad urlpath_regex ^/bad\nhttp_access deny bad\n");
    let _ = world.ask("GET", "/bad", &[("Accept", "text/html")]).expect(403);
    assert!(
        world.proxy.logged("/bad").ends_with(" text/html"),
        "{}",
        world.proxy.text("access.log")
    );
}

#[test]
fn pages_with_a_password_are_shown_to_nobody_as_none_is_asked_for() {
    let lines = "cachemgr_passwd none info\ncachemgr_passwd disable metrics\ncachemgr_passwd secret counters mem\n";
    let world = World::forward(lines);
    let status = |path: &str| {
        let mut client = world.proxy.client();
        let host = world.proxy.address().to_string();
        client.request("GET", path, &[("Host", &host)], b"").response().status()
    };
    for (page, wanted) in
        [("info", 200), ("menu", 200), ("counters", 403), ("mem", 403), ("events", 200)]
    {
        assert_eq!(status(&format!("/squid-internal-mgr/{page}")), wanted, "{page}");
    }
    assert_eq!(status("/metrics"), 403);
    let all = World::forward("cachemgr_passwd none menu\ncachemgr_passwd secret all\n");
    let mut client = all.proxy.client();
    let host = all.proxy.address().to_string();
    let menu = client
        .request("GET", "/squid-internal-mgr/menu", &[("Host", &host)], b"")
        .response()
        .expect(200);
    assert!(
        menu.text().contains("disabled") && menu.text().matches("public").count() == 1,
        "{}",
        menu.text()
    );
}

#[test]
fn an_access_log_on_standard_output_is_written_there() {
    let origin = Origin::new();
    origin.on("/a", Reply::ok("x"));
    let proxy = Proxy::forward("access_log stdio:/dev/stdout squid\n");
    let mut client = proxy.client();
    let _ = client.request("GET", &origin.url("/a"), &[], b"").response().expect(200);
    until("the line on standard output", || proxy.output().contains("TCP_MISS/200").then_some(()));
}

#[test]
fn usr1_rotates_the_logs() {
    let world = World::forward("logfile_rotate 2\n");
    world.origin.on("/a", Reply::ok("x"));
    let _ = world.get("/a").expect(200);
    let _ = world.proxy.logged("/a");
    world.proxy.signal(Signal::USR1);
    until("access.log.0", || world.proxy.text("access.log.0").contains("/a").then_some(()));
    world.origin.on("/b", Reply::ok("x"));
    let _ = world.get("/b").expect(200);
    let _ = world.proxy.logged("/b");
    assert!(!world.proxy.text("access.log").contains("/a"));
}

#[test]
fn hup_reads_the_configuration_again_and_drops_no_connection() {
    let world = World::forward("");
    let gate = Arc::new(Gate::default());
    let at_origin = Arc::clone(&gate);
    world.origin.handle("/slow", move |_, wire| {
        wire.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
        at_origin.pass();
        wire.send("world");
    });
    world.origin.on("/secret", Reply::ok("x"));
    let mut slow = world.client();
    slow.request("GET", &world.target("/slow"), &[], b"");
    let _ = slow.head();
    let mut kept = world.client();
    let _ = kept.request("GET", &world.target("/secret"), &[], b"").response().expect(200);

    world
        .proxy
        .write_configuration("", "acl secret urlpath_regex ^/secret\nhttp_access deny secret\n");
    world.proxy.signal(Signal::HUP);
    until("the new rules", || {
        let answer = world
            .client()
            .request("GET", &world.target("/secret"), &[], b"")
            .try_response_to("GET")?;
        (answer.status() == 403).then_some(())
    });
    world.proxy.wait_for_reconfigurations(1);
    gate.open();
    assert_eq!(slow.bytes(10), b"helloworld");
    assert_eq!(kept.request("GET", &world.target("/secret"), &[], b"").response().status(), 403);
}

#[test]
fn a_broken_configuration_does_not_replace_a_running_one() {
    let world = World::forward("");
    world.origin.on("/a", Reply::ok("x"));
    world.proxy.write_configuration("", "http_acess allow all\n");
    world.proxy.signal(Signal::HUP);
    until("a message", || {
        let text = format!("{}{}", world.proxy.text("cache.log"), world.proxy.output());
        text.contains("http_acess").then_some(())
    });
    let _ = world.get("/a").expect(200);
}

#[test]
fn term_lets_running_requests_finish() {
    let mut world = World::forward("shutdown_lifetime 8 seconds\n");
    let gate = Arc::new(Gate::default());
    let at_origin = Arc::clone(&gate);
    world.origin.handle("/slow", move |_, wire| {
        wire.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
        at_origin.pass();
        wire.send("world");
    });
    let mut slow = world.client();
    slow.request("GET", &world.target("/slow"), &[], b"");
    let _ = slow.head();
    world.proxy.signal(Signal::TERM);
    until("a closed port", || TcpStream::connect(world.proxy.address()).err());
    gate.open();
    assert_eq!(slow.bytes(10), b"helloworld");
    assert!(world.proxy.wait_end().success());
}

#[test]
fn int_ends_the_program_soon() {
    let mut world = World::forward("shutdown_lifetime 30 seconds\n");
    world.proxy.signal(Signal::INT);
    let status = world.proxy.wait_end(); // within the limit of a test, not the shutdown's
    assert!(status.success(), "{status}");
}

#[test]
fn k_commands_reach_the_running_process() {
    let mut world = World::forward("logfile_rotate 2\n");
    let configuration = world.proxy.configuration();
    let k = |command| proxy::run(&["-k", command, "-f", &configuration]);
    assert!(k("check").status.success());
    world.origin.on("/a", Reply::ok("x"));
    let _ = world.get("/a").expect(200);
    let _ = world.proxy.logged("/a");
    assert!(k("rotate").status.success());
    until("access.log.0", || world.proxy.path("access.log.0").exists().then_some(()));
    assert!(k("reconfigure").status.success());
    assert!(k("shutdown").status.success());
    let _ = world.proxy.wait_end();
    assert!(!k("check").status.success(), "nobody runs any more");
    assert!(!world.proxy.path("pid").exists(), "the pid file is left behind");
}

fn page(proxy: &Proxy, path: &str) -> humboldt_tests::Response {
    let mut client = proxy.client();
    client
        .send(format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            proxy.address()
        ))
        .response()
}

#[test]
fn the_managers_pages_have_squids_layout() {
    let world = World::forward("");
    world.origin.on("/a", Reply::ok("x").cachable(60));
    let _ = world.get("/a").expect(200);
    let _ = world.get("/a").expect(200);
    let info = page(&world.proxy, "/squid-internal-mgr/info").expect(200).text();
    for part in [
        "Number of HTTP requests received:",
        "Hits as % of all requests:",
        "Maximum number of file descriptors:",
        "StoreEntries",
        "UP Time:",
    ] {
        assert!(info.contains(part), "no `{part}` in\n{info}");
    }
    // A request is counted when its answer is out.
    until("the counters of both requests", || {
        let counters = page(&world.proxy, "/squid-internal-mgr/counters").expect(200).text();
        let value = |name: &str| {
            let line = counters.lines().find_map(|line| line.strip_prefix(&format!("{name} = ")));
            line.and_then(|value| value.trim().parse::<f64>().ok())
                .unwrap_or_else(|| panic!("no {name} in\n{counters}"))
        };
        let wanted = [
            ("client_http.requests", 2.0),
            ("client_http.hits", 1.0),
            ("server.http.requests", 1.0),
        ];
        wanted.iter().all(|&(name, least)| value(name) >= least).then_some(())
    });
}

#[test]
fn metrics_are_in_the_prometheus_format() {
    let world = World::forward("");
    world.origin.on("/a", Reply::ok("x").cachable(60));
    let _ = world.get("/a").expect(200);
    let text = page(&world.proxy, "/metrics").expect(200).text();
    assert!(text.contains("# TYPE ") && text.contains("# HELP "), "{text}");
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let value = line.rsplit(' ').next().unwrap_or_default();
        assert!(value.parse::<f64>().is_ok(), "not a sample: {line}");
    }
    for word in ["requests", "bytes", "hit", "memory", "descriptors", "cpu"] {
        assert!(text.contains(word), "nothing about {word}:\n{text}");
    }
}

/// Status and beginning of the answer to `GET target` with this Host.
fn internal(proxy: &Proxy, target: &str, host: &str) -> (u16, String) {
    let head = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let answer = proxy.client().send(head).response();
    (answer.status(), answer.text())
}

#[test]
fn the_acl_manager_covers_the_metrics_of_the_proxy_and_those_of_nobody_else() {
    let world = World::forward("http_access deny manager\n");
    world.origin.on("/metrics", Reply::ok("the site's"));
    let own = world.proxy.address().to_string();
    for path in ["/squid-internal-mgr/info", "/metrics", "/metrics?x=1"] {
        assert_eq!(internal(&world.proxy, path, &own).0, 403, "{path}");
        let whole = format!("http://{own}{path}");
        assert_eq!(internal(&world.proxy, &whole, &own).0, 403, "{whole}");
    }
    assert_eq!(world.get("/metrics").expect(200).text(), "the site's");
}

#[test]
fn an_accelerator_shows_its_own_pages_under_its_own_name_only() {
    let world = World::reverse("hostname_aliases stats.test site.test\n");
    for path in ["/squid-internal-mgr/info", "/metrics"] {
        world.origin.on(path, Reply::ok("the site's"));
        let port = world.proxy.address().port();
        for host in ["localhost", "127.0.0.1", "site.test", "other.test"] {
            let host = format!("{host}:{port}");
            let (status, text) = internal(&world.proxy, path, &host);
            assert_eq!((status, &*text), (200, "the site's"), "{path} of {host}");
        }
        for host in ["stats.test", "proxy.test"] {
            let (status, text) = internal(&world.proxy, path, &format!("{host}:{port}"));
            assert!(status == 200 && text != "the site's", "{path} of {host}: {status} {text}");
            // Another port is another server.
            assert_eq!(internal(&world.proxy, path, host).1, "the site's", "{path} of {host}");
        }
    }
}

#[test]
fn a_page_that_rebinds_its_name_does_not_read_the_pages_of_a_proxy() {
    let proxy = Proxy::forward("hostname_aliases stats.test\n");
    let port = proxy.address().port();
    for path in ["/squid-internal-mgr/info", "/metrics"] {
        for host in
            ["evil.example".to_owned(), format!("evil.example:{port}"), "1.evil.example".to_owned()]
        {
            assert_eq!(internal(&proxy, path, &host).0, 400, "{path} of {host}");
        }
        // An address cannot be rebound, whatever port it was reached by.
        for host in ["localhost", "127.0.0.1", "192.0.2.1", "[::1]", "proxy.test", "stats.test"] {
            assert_eq!(internal(&proxy, path, host).0, 200, "{path} of {host}");
            assert_eq!(
                internal(&proxy, path, &format!("{host}:{port}")).0,
                200,
                "{path} of {host}"
            );
        }
    }
}

/// A page that a client may not request itself is not requested by the proxy in its name: the
/// request would come from this machine.
#[test]
fn pages_of_the_proxy_are_not_fetched_through_it() {
    let other = free_address().port();
    let proxy = Proxy::forward(&format!(
        "http_port 127.0.0.2:{other}\nacl away localport {other}\nhttp_access deny manager !away\n"
    ));
    let own = proxy.address().port();
    let mut direct = Client::to(([127, 0, 0, 2], other).into());
    assert_eq!(
        direct.request("GET", "/metrics", &[("Host", "127.0.0.2")], b"").response().status(),
        200
    );
    for target in [
        format!("http://127.0.0.2:{own}/metrics"),
        format!("http://127.0.0.2:{other}/metrics"),
        format!("http://[::1]:{own}/metrics"),
    ] {
        let (status, text) = internal(&proxy, &target, "a");
        assert!(status >= 400 && !text.contains("humboldt_"), "{target}: {status} {text}");
    }
}

/// Without Via a request has no trace of its way, and an address has many spellings.
#[test]
fn no_spelling_of_an_address_leads_back_to_the_proxy() {
    for without_via in ["via off", "request_header_access Via deny all"] {
        let own = free_address().port();
        let proxy = Proxy::forward(&format!(
            "http_port {own}\nacl away myport {own}\nhttp_access deny manager !away\n{without_via}\n"
        ));
        let address = SocketAddr::from(([127, 0, 0, 1], own));
        until("the second port", || TcpStream::connect(address).ok());
        let mut direct = Client::to(address);
        assert_eq!(
            direct.request("GET", "/metrics", &[("Host", "127.0.0.1")], b"").response().status(),
            200
        );
        for host in [
            "0.0.0.0",
            "127.0.0.1",
            "127.7.7.7",
            "[::]",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:0.0.0.0]",
        ] {
            let (status, text) = internal(&proxy, &format!("http://{host}:{own}/metrics"), "a");
            assert!(status >= 400 && !text.contains("humboldt_"), "{host}: {status} {text}");
            let mut tunnel = Client::to(proxy.address());
            let status =
                tunnel.request("CONNECT", &format!("{host}:{own}"), &[], b"").response().status();
            assert_eq!(status, 508, "{host}");
        }
    }
}

#[test]
fn without_options_it_runs_with_a_built_in_configuration_and_ends_on_ctrl_c() {
    let origin = Origin::new();
    origin.on("/a", Reply::ok("hello").cachable(60));
    let (home, address) = (proxy::open_folder(), free_address());
    let output = fs::File::create(home.path().join("output")).expect("a file for output");
    let mut command = Command::new(proxy::program());
    command
        .args(["-a", &address.port().to_string()])
        .env("HOME", home.path())
        .env_remove("XDG_CACHE_HOME")
        .stdin(Stdio::null())
        .stdout(output.try_clone().expect("a second handle"))
        .stderr(output);
    let mut child = start(&mut command).expect("the program starts");
    let outcome = std::panic::catch_unwind(|| {
        until("the proxy to accept connections", || TcpStream::connect(address).ok());
        for cache in ["MISS", "HIT"] {
            let mut client = Client::to(address);
            let answer = client.request("GET", &origin.url("/a"), &[], b"").response().expect(200);
            assert_eq!((answer.text().as_str(), answer.cache()), ("hello", cache));
        }
        assert_eq!(origin.count("/a"), 1);
        let mut command = Command::new(proxy::program());
        command
            .args(["-a", &address.port().to_string()])
            .env("HOME", home.path())
            .env_remove("XDG_CACHE_HOME");
        let other = run(&mut command);
        let said = String::from_utf8_lossy(&other.stderr).into_owned();
        assert_eq!(other.status.code(), Some(1), "{said}");
        assert!(said.contains("in use by humboldt") && said.contains("-a 3129"), "{said}");
    });
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a process id");
    kill_process(pid, Signal::INT).expect("a running process");
    let status = until("the end", || child.try_wait().expect("its status"));
    let said = fs::read_to_string(home.path().join("output")).unwrap_or_default();
    assert!(outcome.is_ok(), "{said}");
    assert!(status.success(), "{status}\n{said}");
    for part in [&address.to_string(), "Ctrl-C", "Humboldt ends: interrupted\n"] {
        assert!(said.contains(part), "it does not say `{part}`:\n{said}");
    }
}
