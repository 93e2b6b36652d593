//! Helper programs that rewrite URLs (`url_rewrite_program`).

use humboldt_tests::scripts::Scripts;
use humboldt_tests::wait::until;
use humboldt_tests::{Reply, World, skip};
use std::path::Path;

/// A proxy with a helper whose answer is shell code that sees the URL as `$url` and `BASE` as the
/// URL of the origin; `/new` is the page that takes the place of others.
fn world(scripts: &Scripts, answer: &str, lines: &str) -> World {
    let answer =
        format!("url=${{line%% *}}\nbase=$(cat DIR/base)\n{}", answer.replace("BASE", "$base"));
    let command = scripts.helper("h", &answer);
    let world = World::forward(&format!("url_rewrite_program {command}\n{lines}"));
    scripts.write("base", world.origin.url("").trim_end_matches('/'));
    for path in ["/a", "/b", "/new"] {
        world.origin.on(path, Reply::ok(path).cachable(600));
    }
    world
}

const OTHERS: &str = "*) echo ERR;; esac";

#[test]
fn the_answers_of_a_helper_are_obeyed() {
    let scripts = Scripts::new();
    let answer = format!(
        "case $url in */rewrite) echo OK rewrite-url=BASE/new k=v;;
         */plain) echo BASE/new;; */echo) echo BASE/new ${{line#* }};;
         */found) echo OK url=http://x.test/?a%20b;; */see) echo 'OK status=303 url=\"http://x.test/\"';;
         */old) echo 301:http://x.test/old;; */ok) echo OK;; */empty) echo;; {OTHERS}"
    );
    let log = "logformat both %ru %rp %>ru %>rp %{k}note\naccess_log stdio:{dir}/both.log both\n";
    let world = world(&scripts, &answer, log);
    for path in ["/rewrite", "/plain", "/echo"] {
        assert_eq!(world.get(path).expect(200).text(), "/new", "{path}");
    }
    for (path, status, location) in [
        ("/found", 302, "http://x.test/?a b"),
        ("/see", 303, "http://x.test/"),
        ("/old", 301, "http://x.test/old"),
    ] {
        assert_eq!(world.get(path).expect(status).field("location"), Some(location), "{path}");
        let line = world.proxy.logged(path);
        assert!(line.contains(&format!("TCP_REDIRECT/{status}")), "{line}");
    }
    for path in ["/ok", "/empty", "/other"] {
        let _ = world.get(path).expect(404);
    }
    assert_eq!(world.get("/new").expect(200).cache(), "HIT", "it is one object for all of them");
    assert_eq!(world.origin.count("/new"), 1);
    let lines = until("four lines about the new page", || {
        let text = world.proxy.text("both.log");
        let lines: Vec<_> =
            text.lines().filter(|line| line.contains("/new")).map(str::to_owned).collect();
        (lines.len() == 4).then_some(lines)
    });
    let (new, sent) = (world.origin.url("/new"), world.origin.url("/rewrite"));
    assert!(lines.contains(&format!("{new} /new {sent} /rewrite v")), "{lines:?}");
}

#[test]
fn a_request_without_an_answer_never_passes() {
    let scripts = Scripts::new();
    let answer =
        "case $url in */a) echo BH;; */b) echo OK rewrite-url=nonsense;; */c) echo no/url;;
         */d) echo OK status=200 url=http://x.test/;; *) exit 1;; esac";
    let strict = world(&scripts, answer, "");
    for path in ["/a", "/b", "/c", "/d", "/e"] {
        let page = strict.get(path).expect(502).text();
        assert!(page.contains("ERR_GATEWAY_FAILURE"), "{page}");
        assert_eq!(strict.origin.count(path), 0);
    }
    let world = World::forward("url_rewrite_program /no/such/program\n");
    let _ = world.get("/a").expect(502);
    let lenient = self::world(&scripts, answer, "url_rewrite_bypass on\n");
    assert_eq!(lenient.get("/a").expect(200).text(), "/a");
    let _ = lenient.get("/e").expect(404);
}

#[test]
fn the_helper_gets_the_url_and_the_extras() {
    let scripts = Scripts::new();
    let rules = "acl a urlpath_regex ^/a\nurl_rewrite_access deny a\n";
    let world = world(&scripts, "echo ERR", rules);
    let _ = world.get("/a").expect(200);
    let _ = world.get("/b?x").expect(404);
    let port = world.proxy.address().port();
    let url = world.origin.url("/b?x");
    assert_eq!(
        scripts.asked("h"),
        [format!("{url} 127.0.0.1/127.0.0.1 - GET myip=127.0.0.1 myport={port}$")]
    );
    let plain = self::world(&scripts, "echo ERR", "url_rewrite_extras \"\"\n");
    let _ = plain.get("/b").expect(200);
    assert_eq!(scripts.asked("h").last(), Some(&format!("{}$", plain.origin.url("/b"))));
}

#[test]
fn rules_before_see_the_old_url_and_rules_after_the_new_one() {
    let scripts = Scripts::new();
    let answer = format!("case $url in */a|*/b) echo BASE/new;; {OTHERS}");
    let rules = "acl a urlpath_regex ^/a\nacl new urlpath_regex ^/new\nacl post method HEAD\n\
                 http_access deny a\nhttp_access deny new\nadapted_http_access deny new post\n";
    let world = world(&scripts, &answer, rules);
    let _ = world.get("/a").expect(403);
    assert!(scripts.asked("h").is_empty());
    assert_eq!(world.get("/b").expect(200).text(), "/new");
    let _ = world.ask("HEAD", "/b", &[]).expect(403);
    let _ = world.get("/new").expect(403);
}

#[test]
fn the_field_host_follows_the_new_url_if_it_may() {
    for (lines, follows) in [("", true), ("url_rewrite_host_header off\n", false)] {
        let scripts = Scripts::new();
        let world = world(&scripts, "echo BASE/new", lines);
        let mut client = world.client();
        client.request("GET", "http://other.test/x", &[], b"");
        let _ = client.response().expect(200);
        let host = world.origin.last("/new").field("host").map(str::to_owned);
        let wanted = if follows { world.host() } else { "other.test".to_owned() };
        assert_eq!(host, Some(wanted.clone()));
        // The host of a whole URL wins: nobody can have an answer for another one stored.
        let evil = [("Host", "evil.test"), ("Cache-Control", "no-cache")];
        let _ = client.request("GET", "http://other.test/x", &evil, b"").response().expect(200);
        let host = world.origin.last("/new").field("host").map(str::to_owned);
        assert_eq!(host, Some(wanted));
    }
}

#[test]
fn answers_for_other_hosts_of_one_new_url_are_other_objects() {
    let scripts = Scripts::new();
    let world = world(&scripts, "echo BASE/new", "url_rewrite_host_header off\n");
    let caches = ["http://one.test/x", "http://two.test/x", "http://one.test/x"].map(|url| {
        world.client().request("GET", url, &[], b"").response().expect(200).cache().to_owned()
    });
    assert_eq!(caches, ["MISS", "MISS", "HIT"]);
}

#[test]
fn a_helper_that_is_late_has_its_time() {
    let late = |action: &str, answer: &str| {
        let scripts = Scripts::new();
        let lines = format!("url_rewrite_timeout 3 seconds {action}\n");
        // One that has answered before is replaced at once.
        let answer = format!("case $url in */b) echo ERR; continue;; esac\n{answer}");
        let world = world(&scripts, &answer, &lines);
        let _ = world.get("/b").expect(200);
        let answer = world.get("/a");
        (answer.status(), answer.text(), scripts.asked("h").len() - 1)
    };
    let never = "sleep 100";
    assert_eq!(late("on_timeout=fail", never).0, 502);
    assert_eq!(late("on_timeout=bypass", never).1, "/a");
    let configured = "on_timeout=use_configured_response response=\"OK url=http://x.test/\"";
    assert_eq!(late(configured, never).0, 302);
    let once = "if mkdir DIR/once 2>/dev/null; then sleep 100; fi; echo BASE/new";
    assert_eq!(late("on_timeout=retry", once), (200, "/new".into(), 2));
}

#[test]
fn tunnels_and_uploads_are_rewritten_too() {
    let scripts = Scripts::new();
    let answer = format!(
        "case $url in blocked.test:443) echo OK url=http://x.test/;;
         other.test:*) echo OK rewrite-url=${{base#http://}};; */a) echo BASE/new;; {OTHERS}"
    );
    let world = world(&scripts, &answer, "acl SSL_ports port 1-65535\n");
    let mut client = world.client();
    client.send("CONNECT blocked.test:443 HTTP/1.1\r\nHost: blocked.test:443\r\n\r\n");
    assert_eq!(client.response_to("CONNECT").expect(302).field("location"), Some("http://x.test/"));
    let mut client = world.client();
    client.send("CONNECT other.test:80 HTTP/1.1\r\nHost: other.test:80\r\n\r\n");
    let _ = client.response_to("CONNECT").expect(200);
    let mut client = world.client();
    client.request("POST", &world.target("/a"), &[], b"body");
    let _ = client.response().expect(200);
    assert_eq!(world.origin.last("/new").method(), "POST");
}

#[test]
fn a_client_that_leaves_waits_no_more() {
    let scripts = Scripts::new();
    let answer = "while ! test -e DIR/gate; do sleep 0.02; done; echo ERR";
    let lines =
        "url_rewrite_children 1\nacl own urlpath_regex ^/metrics\nurl_rewrite_access deny own\n";
    let world = world(&scripts, answer, lines);
    let mut first = world.client();
    first.request("GET", &world.target("/a"), &[], b"");
    scripts.wait_asked("h", 1);
    let mut second = world.client();
    second.request("GET", &world.target("/b"), &[], b"");
    until("it waits", || (world.metric("humboldt_helper_queue") == 1).then_some(()));
    second.abort();
    until("it waits no more", || (world.metric("humboldt_helper_queue") == 0).then_some(()));
    scripts.write("gate", "");
    let _ = first.response().expect(200);
    assert_eq!(world.origin.count("/b"), 0);
}

#[test]
fn programs_of_debian_rewrite() {
    let fake = "/usr/lib/squid/url_fake_rewrite";
    if Path::new(fake).exists() {
        let lines = format!("url_rewrite_program {fake}\nurl_rewrite_concurrency 10\n");
        let world = World::forward(&lines);
        world.origin.on("/a", Reply::ok("x"));
        let _ = world.get("/a").expect(200);
    }
    let guard = "/usr/bin/squidGuard";
    if !Path::new(guard).exists() {
        return skip("squidGuard is not installed");
    }
    let scripts = Scripts::new();
    let dir = scripts.path("").display().to_string();
    scripts.write("domains", "blocked.test\n127.0.0.1\n");
    scripts.write("urls", "127.0.0.1/bad\n");
    let conf = scripts.write(
        "squidGuard.conf",
        &format!(
            "dbhome {dir}\nlogdir {dir}\ndest bad {{\n  urllist urls\n  domainlist hosts\n}}\n\
             acl {{\n  default {{\n    pass !bad all\n    redirect 302:http://x.test/?%u\n  }}\n}}\n"
        ),
    );
    scripts.write("hosts", "blocked.test\n");
    let world = World::forward(&format!(
        "redirect_program {guard} -c {}\nredirect_children 2\n",
        conf.display()
    ));
    world.origin.on("/good", Reply::ok("x"));
    let _ = world.get("/good").expect(200);
    let mut client = world.client();
    client.request("GET", "http://blocked.test/page", &[], b"");
    let blocked = client.response().expect(302);
    assert_eq!(blocked.field("location"), Some("http://x.test/?http://blocked.test/page"));
}
