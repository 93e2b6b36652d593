//! Effects of rules beyond allowing and denying: the identity of the client, the page for denied
//! ones, the answers that pass.

use humboldt_tests::origin::http_date;
use humboldt_tests::wait::{Gate, free_address, until};
use humboldt_tests::{Origin, Proxy, Reply, Response, World};
use std::sync::Arc;

static LARGE: [u8; 100_000] = [b'a'; 100_000];

/// A chunked answer of 100,000 bytes that may be stored.
fn chunked() -> Reply {
    let mut bytes =
        b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n"
            .to_vec();
    bytes.extend_from_slice(format!("{:x}\r\n", LARGE.len()).as_bytes());
    bytes.extend_from_slice(&LARGE);
    bytes.extend_from_slice(b"\r\n0\r\n\r\n");
    Reply::raw(bytes)
}

/// Waits until the new cache directory has been read, and takes objects.
fn wait_for_store(proxy: &Proxy) {
    until("the store", || proxy.text("cache.log").contains("objects found").then_some(()));
}

/// GET with one field.
fn get_with(world: &World, path: &str, name: &str, value: &str) -> Response {
    world.ask("GET", path, &[(name, value)])
}

#[test]
fn the_client_behind_a_trusted_proxy_is_the_one_that_rules_see() {
    let rules = "acl guests src 192.0.2.0/24\nacl front src 127.0.0.0/8 198.51.100.1\n\
                 follow_x_forwarded_for allow front\nhttp_access deny guests\n";
    let world = World::forward(rules);
    world.origin.on("/a", Reply::ok("x"));
    for (forwarded, status) in [
        ("192.0.2.7", 403),
        ("203.0.113.9", 200),
        // Only the last address is trusted when its owner is not.
        ("192.0.2.7, 203.0.113.9", 200),
        ("203.0.113.9, 192.0.2.7", 403),
        // A trusted one in between is followed.
        ("192.0.2.7, 198.51.100.1", 403),
        ("nonsense, 198.51.100.1", 200),
        ("192.0.2.7, nonsense", 200),
    ] {
        let answer = get_with(&world, "/a", "X-Forwarded-For", forwarded);
        assert_eq!(answer.status(), status, "{forwarded}");
    }
    let _ = world.get("/a").expect(200);
    assert!(world.proxy.logged(" 192.0.2.7 TCP_DENIED").contains("/403"));
}

#[test]
fn an_untrusted_client_cannot_pretend_to_be_another() {
    let world =
        World::forward("acl lan src 192.0.2.0/24\nhttp_access allow lan\nhttp_access deny all\n");
    let _ = get_with(&world, "/a", "X-Forwarded-For", "192.0.2.7").expect(403);
    let rules = "acl lan src 192.0.2.0/24\nacl front src 198.51.100.1\nfollow_x_forwarded_for allow front\n\
                 http_access allow lan\nhttp_access deny all\n";
    let world = World::forward(rules);
    let _ = get_with(&world, "/a", "X-Forwarded-For", "192.0.2.7").expect(403);
}

#[test]
fn rules_and_logs_can_keep_to_the_direct_client() {
    let rules = "acl guests src 192.0.2.0/24\nfollow_x_forwarded_for allow localhost\n\
                 acl_uses_indirect_client off\nlog_uses_indirect_client off\nhttp_access deny guests\n";
    let world = World::forward(rules);
    world.origin.on("/a", Reply::ok("x"));
    let _ = get_with(&world, "/a", "X-Forwarded-For", "192.0.2.7").expect(200);
    assert!(world.proxy.logged("/a").contains(" 127.0.0.1 TCP_MISS"));
}

#[test]
fn the_second_access_list_denies_what_the_first_allows() {
    let rules = "acl x urlpath_regex ^/x\nadapted_http_access deny x\n";
    let world = World::forward(rules);
    world.origin.on("/a", Reply::ok("x"));
    let _ = world.get("/x").expect(403);
    let _ = world.get("/a").expect(200);
}

#[test]
fn an_answer_announced_too_large_is_refused_and_not_stored() {
    let world = World::forward("acl big urlpath_regex ^/big\nreply_body_max_size 10 KB big\n");
    for path in ["/big", "/small"] {
        world.origin.on(path, Reply::ok(LARGE).cachable(60));
    }
    for _ in 0..2 {
        let answer = world.get("/big").expect(403);
        assert!(answer.text().contains("ERR_TOO_BIG"), "{}", answer.text());
    }
    assert_eq!(world.origin.count("/big"), 2, "it was stored");
    assert!(world.proxy.logged("/big").contains("TCP_DENIED_REPLY/403"));
    assert_eq!(world.get("/small").expect(200).body.len(), LARGE.len());
}

#[test]
fn an_answer_that_turns_out_too_large_is_cut_off_and_not_stored() {
    let world = World::forward("reply_body_max_size 10 KB\n");
    world.origin.on("/a", chunked());
    for _ in 0..2 {
        let answer = world.get("/a").expect(200);
        assert!(!answer.is_complete, "the client cannot notice");
        assert!(answer.body.len() <= 10 * 1024, "{}", answer.body.len());
    }
    assert_eq!(world.origin.count("/a"), 2, "it was stored");
}

#[test]
fn what_is_in_the_cache_is_measured_for_each_client_anew() {
    let rules = "acl small req_header X-Small yes\nreply_body_max_size 10 KB small\n";
    let world = World::forward(rules);
    world.origin.on("/a", Reply::ok(LARGE).cachable(60));
    let _ = world.get("/a").expect(200);
    assert_eq!(world.get("/a").cache(), "HIT");
    let _ = get_with(&world, "/a", "X-Small", "yes").expect(403);
    assert_eq!(world.get("/a").expect(200).cache(), "HIT");
}

#[test]
fn answers_are_denied_by_what_they_are() {
    let rules = "acl films rep_mime_type ^video/\nacl teapot http_status 418\nhttp_reply_access deny films\n\
                 http_reply_access deny teapot\nhttp_reply_access allow all\n";
    let world = World::forward(rules);
    world.origin.on("/film", Reply::ok("x").with("Content-Type", "video/mp4").cachable(60));
    world.origin.on("/tea", Reply::status("418 I'm a teapot", "x"));
    world.origin.on("/text", Reply::ok("x").with("Content-Type", "text/plain").cachable(60));
    let _ = world.get("/film").expect(403);
    let _ = world.get("/film").expect(403);
    let _ = world.get("/tea").expect(403);
    let _ = world.get("/text").expect(200);
    assert_eq!(world.get("/text").cache(), "HIT");
    assert_eq!(world.proxy.logged_times("/film", 2)[1].matches("TCP_DENIED_REPLY/403").count(), 1);
}

#[test]
fn those_denied_are_sent_where_deny_info_says() {
    let rules = "acl a urlpath_regex ^/a\nacl b urlpath_regex ^/b\nacl c urlpath_regex ^/c\nacl d urlpath_regex ^/d\n\
                 deny_info http://help.test/?url=%u&client=%i a\ndeny_info 307:http://other.test/ b\n\
                 deny_info 404:ERR_NOT_FOUND c\ndeny_info TCP_RESET d\nhttp_access deny a\nhttp_access deny b\n\
                 http_access deny c\nhttp_access deny d\n";
    let world = World::forward(rules);
    let answer = world.get("/a?x=1&y=2").expect(302);
    let place = answer.field("Location").unwrap_or_default();
    let url = world.target("/a%3Fx%3D1%26y%3D2").replace(':', "%3A").replace('/', "%2F");
    assert_eq!(place, format!("http://help.test/?url={url}&client=127.0.0.1"));
    let answer = world.get("/b").expect(307);
    assert_eq!(answer.field("Location"), Some("http://other.test/"));
    let answer = world.get("/c").expect(404);
    assert!(answer.text().contains("ERR_NOT_FOUND"), "{}", answer.text());
    let mut client = world.client();
    client.request("GET", &world.target("/d"), &[], b"");
    assert!(client.closes(), "something was answered");
    for (path, wanted) in [("/a", "TCP_DENIED/302"), ("/d", "TCP_DENIED/")] {
        assert!(world.proxy.logged(path).contains(wanted), "{path}");
    }
}

#[test]
fn miss_access_denies_fetches_and_leaves_hits_alone() {
    let rules = "cache_dir ufs {dir}/store 10 16 256\nmaximum_object_size_in_memory 1 KB\n\
                 acl other req_header X-Other yes\nmiss_access deny other\nmiss_access allow all\n";
    let world = World::forward(rules);
    wait_for_store(&world.proxy);
    for path in ["/disk", "/new"] {
        world.origin.on(path, Reply::ok(LARGE).cachable(60));
    }
    let _ = world.get("/disk").expect(200);
    until("the object to be on disk", || {
        let answer = get_with(&world, "/disk", "X-Other", "yes");
        (answer.status() == 200 && answer.cache() == "HIT").then_some(())
    });
    assert_eq!(world.origin.count("/disk"), 1);
    let answer = get_with(&world, "/new", "X-Other", "yes").expect(403);
    assert!(answer.text().contains("ERR_FORWARDING_DENIED"), "{}", answer.text());
    let _ = world.get("/new").expect(200);
}

#[test]
fn removed_fields_are_replaced_where_there_is_a_replacement() {
    let rules = "request_header_access User-Agent deny all\nrequest_header_access Via deny all\n\
                 request_header_access X-Gone deny all\nrequest_header_replace User-Agent Nobody (none)\n\
                 request_header_replace X-Kept never\nreply_header_access Server deny all\n\
                 reply_header_access X-Away deny all\nreply_header_replace Server a thing\n";
    let world = World::forward(rules);
    world
        .origin
        .on("/a", Reply::ok("x").with("Server", "real/1.0").with("X-Away", "1").cachable(60));
    let fields = [("User-Agent", "real"), ("X-Gone", "1"), ("X-Kept", "1")];
    for cache in ["MISS", "HIT"] {
        let answer = world.ask("GET", "/a", &fields).expect(200);
        assert_eq!(
            (answer.cache(), answer.field("Server"), answer.field("X-Away")),
            (cache, Some("a thing"), None)
        );
    }
    let request = world.origin.last("/a");
    assert_eq!(request.field("User-Agent"), Some("Nobody (none)"));
    assert_eq!(
        (request.field("X-Gone"), request.field("X-Kept"), request.field("Via")),
        (None, Some("1"), None)
    );
}

#[test]
fn rules_about_fields_that_a_reload_brings_hold_for_what_is_stored() {
    let world = World::forward("reply_header_access X-Own deny all\n");
    world.origin.on("/a", Reply::ok("x").with("X-Own", "1").cachable(600));
    assert_eq!(world.get("/a").expect(200).field("X-Own"), None);
    for (rules, field) in [("", Some("1")), ("reply_header_access X-Own deny all\n", None)] {
        world.proxy.reconfigure(rules);
        let answer = world.get("/a").expect(200);
        assert_eq!((answer.cache(), answer.field("X-Own")), ("HIT", field));
    }
}

#[test]
fn added_fields_in_quotes_carry_what_the_codes_stand_for() {
    let world = World::forward(
        "request_header_add X-Client \"from %>a\" all\nrequest_header_add X-Raw %>a all\n",
    );
    world.origin.on("/a", Reply::ok("x"));
    let _ = world.get("/a").expect(200);
    let request = world.origin.last("/a");
    assert_eq!(
        (request.field("X-Client"), request.field("X-Raw")),
        (Some("from 127.0.0.1"), Some("%>a"))
    );
}

#[test]
fn the_connections_of_a_client_are_counted() {
    let world = World::forward("acl many maxconn 2\nhttp_access deny many\n");
    world.origin.on("/a", Reply::ok("x"));
    let target = world.target("/a");
    let mut open = [world.client(), world.client()];
    for client in &mut open {
        let _ = client.request("GET", &target, &[], b"").response().expect(200);
    }
    let _ = world.get("/a").expect(403);
    drop(open);
    until("the connections to be forgotten", || (world.get("/a").status() == 200).then_some(()));
}

#[test]
fn a_random_rule_is_neither_always_nor_never_true() {
    let world = World::forward("acl half random 1/2\nhttp_access deny half\n");
    world.origin.on("/a", Reply::ok("x"));
    let mut client = world.client();
    let denied = (0..200).filter(|_| {
        let answer = client.request("GET", &world.target("/a"), &[], b"").response();
        answer.status() == 403
    });
    let denied = denied.count();
    assert!((50..150).contains(&denied), "{denied} of 200");
}

#[test]
fn the_proxy_answers_to_its_other_names() {
    let proxy = Proxy::forward("hostname_aliases cache.test other.test\n");
    let port = proxy.address().port();
    for name in ["other.test", "proxy.test"] {
        let mut client = proxy.client();
        let target = format!("http://{name}:{port}/squid-internal-mgr/info");
        let answer = client.request("GET", &target, &[], b"").response();
        assert!(matches!(answer.status(), 200 | 404), "it was looked up: {:?}", answer.head);
    }
    let mut client = proxy.client();
    let answer =
        client.request("GET", &format!("http://third.test:{port}/metrics"), &[], b"").response();
    assert!(answer.status() >= 500, "{:?}", answer.head);
}

#[test]
fn a_condition_goes_to_the_origin_where_that_is_asked_for() {
    let world = World::forward("refresh_all_ims on\n");
    let page =
        Reply::ok("x").with("ETag", "\"1\"").with("Last-Modified", "Mon, 05 Jan 2026 00:00:00 GMT");
    world.origin.on("/a", page.cachable(60));
    let _ = world.get("/a").expect(200);
    let _ = world.get("/a").expect(200);
    assert_eq!(world.origin.count("/a"), 1);
    let answer = get_with(&world, "/a", "If-Modified-Since", "Mon, 05 Jan 2026 00:00:00 GMT");
    assert_eq!((answer.status(), world.origin.count("/a")), (304, 2));
}

#[test]
fn an_expiry_that_only_speaks_to_old_caches_is_ignored_where_that_is_asked_for() {
    for (line, asked) in [("", 2), ("vary_ignore_expire on\n", 1)] {
        let world = World::forward(&format!("{line}refresh_pattern . 10 20% 60\n"));
        let now = http_date(0);
        let page =
            Reply::ok("x").with("Date", &now).with("Expires", &now).with("Vary", "Accept-Encoding");
        world.origin.on("/a", page);
        let _ = world.get("/a").expect(200);
        let _ = world.get("/a").expect(200);
        assert_eq!(world.origin.count("/a"), asked, "{line}");
    }
}

#[test]
fn small_objects_stay_away_from_the_disk() {
    let rules = "cache_dir ufs {dir}/store 10 16 256\nminimum_object_size 10 KB\n\
                 maximum_object_size_in_memory 0 KB\n";
    let world = World::forward(rules);
    wait_for_store(&world.proxy);
    world.origin.on("/small", Reply::ok("x").cachable(60));
    world.origin.on("/large", Reply::ok(LARGE).cachable(60));
    let _ = world.get("/small").expect(200);
    until("a hit from disk", || (world.get("/large").cache() == "HIT").then_some(()));
    assert_eq!((world.get("/small").cache(), world.origin.count("/small")), ("MISS", 2));
}

#[test]
fn a_connection_ends_with_its_lifetime_in_the_middle_of_an_answer() {
    let (origin, done) = (Origin::new(), Arc::new(Gate::default()));
    let done_at_origin = Arc::clone(&done);
    origin.handle("/slow", move |_, wire| {
        wire.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nstart");
        done_at_origin.pass();
    });
    let proxy = Proxy::forward("client_lifetime 3 seconds\n");
    let mut client = proxy.client();
    let answer = client.request("GET", &origin.url("/slow"), &[], b"").response();
    assert!(!answer.is_complete && answer.text() == "start", "{:?}", answer.head);
    assert!(
        proxy.logged("/slow").contains("TCP_MISS_TIMEDOUT/200"),
        "{}",
        proxy.text("access.log")
    );
    done.open();
}

#[test]
fn more_is_said_in_the_log_when_debugging_is_asked_for() {
    let proxy = Proxy::forward("debug_options ALL,2\n");
    let mut client = proxy.client();
    let _ = client.request("GET", "http://does-not-exist.invalid/", &[], b"").response();
    until("a message about the name", || {
        proxy.text("cache.log").contains("no address for").then_some(())
    });
}

/// Waits for the lines of a log: so many.
fn lines(world: &World, log: &str, count: usize) -> Vec<String> {
    until(&format!("{count} lines in {log}"), || {
        let text = world.proxy.text(log);
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        (lines.len() >= count && text.ends_with('\n')).then_some(lines)
    })
}

#[test]
fn a_log_has_the_requests_that_could_be_read_or_those_that_were_answered() {
    let rules = "acl read has request\nacl answered has response\n\
                 access_log stdio:{dir}/read.log squid read\n\
                 access_log stdio:{dir}/unread.log squid !read\n\
                 access_log stdio:{dir}/unanswered.log squid !answered\n";
    let world = World::forward(rules);
    world.origin.on("/a", Reply::ok("x"));
    let _ = world.get("/a").expect(200);
    let _ = world.client().send("GET / HTTP/1.1 x\r\n\r\n").response().expect(400);
    let mut client = world.client();
    client.send("GET /ha");
    drop(client);
    let unread = lines(&world, "unread.log", 2);
    // Two cores may have written them, in any order.
    let with = |status: &str| unread.iter().find(|line| line.contains(status));
    assert!(unread.len() == 2 && with("/400").is_some(), "{unread:?}");
    let _ = world.get("/a").expect(200);
    let read = lines(&world, "read.log", 2);
    assert!(read.iter().all(|line| line.contains("/a ")) && read.len() == 2, "{read:?}");
    let unanswered = lines(&world, "unanswered.log", 1);
    assert!(unanswered.len() == 1 && unanswered.first() == with("/000"), "{unanswered:?}");
}

#[test]
fn a_log_finds_a_request_whose_url_is_no_good_by_its_fields() {
    let rules =
        "acl marked req_header X-Marked ^yes$\naccess_log stdio:{dir}/marked.log squid marked\n";
    let world = World::forward(rules);
    for value in ["no", "yes"] {
        let head = format!("GET /x HTTP/1.0\r\nX-Marked: {value}\r\n\r\n");
        let _ = world.client().send(head).response().expect(400);
    }
    assert!(lines(&world, "marked.log", 1)[0].contains("/400"));
    assert_eq!(lines(&world, "marked.log", 1).len(), 1);
}

#[test]
fn a_log_has_the_requests_of_one_way_or_with_one_error() {
    let rules = "acl direct hier_code HIER_DIRECT\nacl failed squid_error ERR_CONNECT_FAIL\n\
                 acl fine squid_error ERR_NONE\n\
                 access_log stdio:{dir}/direct.log squid direct\n\
                 access_log stdio:{dir}/failed.log squid failed\n\
                 access_log stdio:{dir}/hits.log squid !direct fine\n";
    let world = World::forward(rules);
    world.origin.on("/a", Reply::ok("x").cachable(600));
    let _ = world.get("/a").expect(200);
    assert_eq!(world.get("/a").expect(200).cache(), "HIT");
    let mut client = world.client();
    let closed = format!("http://{}/closed", free_address());
    let _ = client.request("GET", &closed, &[], b"").response().expect(503);
    let _ = world.get("/a").expect(200);
    let hits = lines(&world, "hits.log", 2);
    let direct = lines(&world, "direct.log", 2);
    let failed = lines(&world, "failed.log", 1);
    let is_miss = |line: &String| line.contains("TCP_MISS/200");
    assert!(direct.len() == 2 && direct.iter().any(is_miss), "{direct:?}");
    assert!(failed.len() == 1 && failed[0].contains("/closed"), "{failed:?}");
    assert!(hits.len() == 2 && hits.iter().all(|line| line.contains("HIT/200")), "{hits:?}");
}

#[test]
fn a_stored_answer_that_may_not_be_sent_is_fetched_and_stays_stored() {
    let rules = "cache_dir ufs {dir}/store 10 16 256\nmaximum_object_size_in_memory 1 KB\n\
                 acl other req_header X-Other yes\nacl ok http_status 200\nsend_hit deny other ok\n";
    let world = World::forward(rules);
    wait_for_store(&world.proxy);
    world.origin.on("/memory", Reply::ok("x").cachable(60));
    world.origin.on("/disk", Reply::ok(LARGE).cachable(60));
    for (path, asked) in [("/memory", 3), ("/disk", 3)] {
        // Asked in a way that fetches nothing: the server's requests are counted.
        let stored_only = [("Cache-Control", "only-if-cached")];
        let is_stored = || (world.ask("GET", path, &stored_only).status() == 200).then_some(());
        let _ = world.get(path).expect(200);
        until("the object to be stored", is_stored);
        for _ in 0..2 {
            let answer = get_with(&world, path, "X-Other", "yes").expect(200);
            assert_eq!(answer.cache(), "MISS", "{path}");
        }
        until("the object to be stored", is_stored);
        assert_eq!(world.get(path).cache(), "HIT", "{path}");
        assert_eq!(world.origin.count(path), asked, "{path}");
        let only = [("X-Other", "yes"), ("Cache-Control", "only-if-cached")];
        let _ = world.ask("GET", path, &only).expect(504);
    }
}

#[test]
fn who_may_not_have_a_stored_answer_does_not_join_one_that_is_read_from_disk() {
    let rules = "maximum_object_size 20 MB\ncache_dir ufs {dir}/store 40 16 256\n\
                 maximum_object_size_in_memory 1 KB\nacl other req_header X-Other yes\nsend_hit deny other\n";
    let world = World::forward(rules);
    wait_for_store(&world.proxy);
    let body = "x".repeat(8 << 20);
    let [old, new] = ["old", "new"].map(|name| Reply::ok(&body).with("X-Is", name).cachable(60));
    world.origin.on_each("/disk", vec![old, new]);
    let _ = world.get("/disk").expect(200);
    until("the object to be stored", || (world.get("/disk").cache() == "HIT").then_some(()));
    // It reads nothing of its answer.
    let mut slow = world.client();
    slow.request("GET", &world.target("/disk"), &[], b"");
    until("its answer", || slow.has_input().then_some(()));
    let answer = get_with(&world, "/disk", "X-Other", "yes").expect(200);
    assert_eq!((answer.field("X-Is"), answer.cache()), (Some("new"), "MISS"));
}

#[test]
fn an_answer_that_may_not_be_stored_is_not() {
    let rules = "cache_dir ufs {dir}/store 10 16 256\nacl film rep_mime_type ^video/\nstore_miss deny film\n";
    let world = World::forward(rules);
    wait_for_store(&world.proxy);
    world.origin.on("/film", Reply::ok("x").with("Content-Type", "video/mp4").cachable(60));
    world.origin.on("/text", Reply::ok("x").with("Content-Type", "text/plain").cachable(60));
    for path in ["/film", "/text"] {
        let _ = world.get(path).expect(200);
    }
    assert_eq!(world.get("/film").cache(), "MISS");
    assert_eq!(world.get("/text").cache(), "HIT");
    assert_eq!((world.origin.count("/film"), world.origin.count("/text")), (2, 1));
}

#[test]
fn a_client_has_no_more_connections_than_it_may() {
    // As in Squid, one more than the number: a new one is not counted.
    let world = World::forward("client_ip_max_connections 1\n");
    world.origin.on("/a", Reply::ok("x"));
    let ask = || {
        let mut client = world.client();
        client.request("GET", &world.target("/a"), &[], b"");
        client.try_response_to("GET").map(|answer| (answer.status(), client))
    };
    let (first, second) = (ask().expect("an answer"), ask().expect("an answer"));
    assert_eq!((first.0, second.0), (200, 200));
    assert!(ask().is_none(), "a third connection is answered");
    drop(first);
    let third = until("the place of the first", ask);
    assert_eq!(third.0, 200);
    drop((second, third));
    until("a free place", ask);
    assert!(world.metric("humboldt_client_connections_turned_away_total") > 0);
}
