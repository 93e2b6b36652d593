//! Storing, freshness, validation, and the requests that a client may make of a cache (RFC 9111).

use humboldt_tests::origin::http_date;
use humboldt_tests::wait::until;
use humboldt_tests::{Reply, World};

#[test]
fn a_second_request_is_answered_from_memory() {
    let world = World::forward("");
    world.origin.on("/a", Reply::ok("hello").cachable(60).with("X-Own", "kept"));
    let first = world.get("/a").expect(200);
    let second = world.get("/a").expect(200);
    assert_eq!((first.cache(), second.cache()), ("MISS", "HIT"));
    assert_eq!((second.text().as_str(), second.field("X-Own")), ("hello", Some("kept")));
    assert!(second.age().is_some(), "{:?}", second.head);
    assert_eq!(world.origin.count("/a"), 1);
    assert!(
        world.proxy.logged_times("/a", 2).iter().any(|line| line.contains("TCP_MEM_HIT/200")),
        "{}",
        world.proxy.text("access.log")
    );
}

#[test]
fn cache_status_tells_hits_from_misses() {
    let world = World::forward("");
    world.origin.on("/a", Reply::ok("hello").cachable(60));
    let miss = world.get("/a");
    let hit = world.get("/a");
    let miss = miss.field("Cache-Status").unwrap_or_default();
    let hit = hit.field("Cache-Status").unwrap_or_default();
    assert!(miss.contains("fwd=") && miss.contains("stored"), "{miss}");
    assert!(hit.contains("; hit") && hit.contains("ttl="), "{hit}");
}

/// One answer of the origin, and whether a second request for it may be answered without the
/// origin.
struct Storing {
    name: &'static str,
    request: &'static [(&'static str, &'static str)],
    answer: fn() -> Reply,
    is_stored: bool,
}

fn fresh() -> Reply {
    Reply::ok("x").cachable(60)
}

fn with_cache_control(value: &str) -> Reply {
    Reply::ok("x").with("Cache-Control", value)
}

const STORING: &[Storing] = &[
    Storing { name: "max-age", request: &[], answer: fresh, is_stored: true },
    Storing {
        name: "s-maxage",
        request: &[],
        answer: || with_cache_control("max-age=0, s-maxage=60"),
        is_stored: true,
    },
    Storing {
        name: "Expires",
        request: &[],
        answer: || Reply::ok("x").with("Expires", &http_date(60)),
        is_stored: true,
    },
    Storing {
        name: "Expires in the past",
        request: &[],
        answer: || Reply::ok("x").with("Expires", &http_date(-60)),
        is_stored: false,
    },
    Storing {
        name: "Expires that is no date",
        request: &[],
        answer: || Reply::ok("x").with("Expires", "0"),
        is_stored: false,
    },
    Storing {
        name: "an old Last-Modified",
        request: &[],
        answer: || Reply::ok("x").with("Last-Modified", &http_date(-864_000)),
        is_stored: true,
    },
    Storing {
        name: "neither lifetime nor validator",
        request: &[],
        answer: || Reply::ok("x"),
        is_stored: false,
    },
    Storing {
        name: "no-store",
        request: &[],
        answer: || with_cache_control("max-age=60, no-store"),
        is_stored: false,
    },
    Storing {
        name: "private",
        request: &[],
        answer: || with_cache_control("max-age=60, private"),
        is_stored: false,
    },
    Storing {
        name: "no-cache",
        request: &[],
        answer: || with_cache_control("max-age=60, no-cache"),
        is_stored: false,
    },
    Storing {
        name: "max-age=0",
        request: &[],
        answer: || with_cache_control("max-age=0"),
        is_stored: false,
    },
    Storing {
        name: "an answer that is already old",
        request: &[],
        answer: || fresh().with("Age", "100"),
        is_stored: false,
    },
    Storing {
        name: "Vary: *",
        request: &[],
        answer: || fresh().with("Vary", "*"),
        is_stored: false,
    },
    Storing {
        name: "a request with no-store",
        request: &[("Cache-Control", "no-store")],
        answer: fresh,
        is_stored: false,
    },
    Storing {
        name: "a request with credentials",
        request: &[("Authorization", "Basic YTpi")],
        answer: fresh,
        is_stored: false,
    },
    Storing {
        name: "credentials and public",
        request: &[("Authorization", "Basic YTpi")],
        answer: || with_cache_control("public, max-age=60"),
        is_stored: true,
    },
    Storing {
        name: "credentials and s-maxage",
        request: &[("Authorization", "Basic YTpi")],
        answer: || with_cache_control("s-maxage=60"),
        is_stored: true,
    },
    Storing {
        name: "404 with a lifetime",
        request: &[],
        answer: || Reply::status("404 Not Found", "x").cachable(60),
        is_stored: true,
    },
    Storing {
        name: "301 with a lifetime",
        request: &[],
        answer: || Reply::status("301 Moved Permanently", "x").cachable(60).with("Location", "/b"),
        is_stored: true,
    },
    Storing {
        name: "500",
        request: &[],
        answer: || Reply::status("500 Internal Server Error", "x"),
        is_stored: false,
    },
];

#[test]
fn answers_are_stored_exactly_when_the_standard_allows_it() {
    let world = World::forward("");
    let mut wrong = Vec::new();
    for (index, case) in STORING.iter().enumerate() {
        let path = format!("/{index}");
        world.origin.on(&path, (case.answer)());
        let _ = world.ask("GET", &path, case.request);
        let _ = world.ask("GET", &path, case.request);
        let is_stored = world.origin.count(&path) == 1;
        if is_stored != case.is_stored {
            wrong.push(format!("{}: stored {is_stored}, wanted {}", case.name, case.is_stored));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A client's request to a cache that holds a fresh answer with an ETag, and whether the origin
/// gets a request.
type Wish = (&'static str, &'static [(&'static str, &'static str)], u16, bool);

const CLIENT_WISHES: &[Wish] = &[
    ("nothing special", &[], 200, false),
    ("no-cache", &[("Cache-Control", "no-cache")], 200, true),
    ("Pragma", &[("Pragma", "no-cache")], 200, true),
    ("max-age=0", &[("Cache-Control", "max-age=0")], 200, true),
    ("max-age large enough", &[("Cache-Control", "max-age=1000")], 200, false),
    ("min-fresh too much", &[("Cache-Control", "min-fresh=1000")], 200, true),
    ("only-if-cached", &[("Cache-Control", "only-if-cached")], 200, false),
    ("its own ETag", &[("If-None-Match", "\"v1\"")], 304, false),
    ("its own ETag as a weak one in a list", &[("If-None-Match", "\"v0\", W/\"v1\"")], 304, false),
    ("another ETag", &[("If-None-Match", "\"v0\"")], 200, false),
    ("any ETag", &[("If-None-Match", "*")], 304, false),
];

#[test]
fn clients_get_what_they_ask_of_the_cache() {
    let world = World::forward("");
    let mut wrong = Vec::new();
    for (index, (name, fields, wanted, asks_origin)) in CLIENT_WISHES.iter().enumerate() {
        let path = format!("/{index}");
        world.origin.on(&path, Reply::ok("x").cachable(60).with("ETag", "\"v1\""));
        let _ = world.get(&path).expect(200);
        let status = world.ask("GET", &path, fields).status();
        let is_asked = world.origin.count(&path) > 1;
        if (status, is_asked) != (*wanted, *asks_origin) {
            wrong.push(format!("{name}: {status}, origin asked: {is_asked}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn if_modified_since_is_answered_exactly() {
    let world = World::forward("");
    let at = |second| format!("Sun, 06 Nov 1994 08:49:{second} GMT");
    world.origin.on("/a", Reply::ok("x").cachable(60).with("Last-Modified", &at(37)));
    let _ = world.get("/a").expect(200);
    for (second, status) in [(37, 304), (38, 304), (36, 200)] {
        let _ = world.ask("GET", "/a", &[("If-Modified-Since", &at(second))]).expect(status);
    }
    assert_eq!(world.origin.count("/a"), 1);
}

#[test]
fn only_if_cached_without_an_answer_gets_504() {
    let world = World::forward("");
    world.origin.on("/a", fresh());
    let _ = world.ask("GET", "/a", &[("Cache-Control", "only-if-cached")]).expect(504);
    assert_eq!(world.origin.count("/a"), 0);
}

#[test]
fn a_stale_answer_is_validated_and_its_fields_are_updated() {
    let world = World::forward("");
    let reply = Reply::ok("body").with("Cache-Control", "max-age=0").with("ETag", "\"v1\"");
    world
        .origin
        .on_each("/a", vec![reply.clone().with("X-N", "1"), reply.clone().with("X-N", "2")]);
    assert_eq!(world.get("/a").expect(200).field("X-N"), Some("1"));
    let second = world.get("/a").expect(200);
    assert_eq!((second.text().as_str(), second.field("X-N")), ("body", Some("2")));
    assert_eq!(world.origin.last("/a").field("If-None-Match"), Some("\"v1\""));
    assert!(
        world
            .proxy
            .logged_times("/a", 2)
            .iter()
            .any(|line| line.contains("TCP_REFRESH_UNMODIFIED/200"))
    );
}

#[test]
fn a_changed_answer_replaces_the_stale_one() {
    let world = World::forward("");
    let old = Reply::ok("old").with("Cache-Control", "max-age=0").with("ETag", "\"v1\"");
    world.origin.on_each("/a", vec![old, Reply::ok("new").cachable(60).with("ETag", "\"v2\"")]);
    assert_eq!(world.get("/a").expect(200).text(), "old");
    assert_eq!(world.get("/a").expect(200).text(), "new");
    assert_eq!(world.get("/a").expect(200).text(), "new");
    assert_eq!(world.origin.count("/a"), 2);
}

#[test]
fn variants_are_kept_apart_and_side_by_side() {
    let world = World::forward("");
    for language in ["de", "en", "fr"] {
        world.origin.on("/a", fresh_in(language));
        assert_eq!(
            world.ask("GET", "/a", &[("Accept-Language", language)]).expect(200).text(),
            language
        );
    }
    world.origin.on("/a", fresh_in("none"));
    for language in ["de", "en", "fr", "de"] {
        assert_eq!(
            world.ask("GET", "/a", &[("Accept-Language", language)]).expect(200).text(),
            language
        );
    }
    assert_eq!(world.origin.count("/a"), 3);
}

fn fresh_in(language: &str) -> Reply {
    Reply::ok(language)
        .cachable(60)
        .with("Vary", "Accept-Language")
        .with("Content-Language", language)
}

#[test]
fn head_is_answered_from_a_stored_get() {
    let world = World::forward("");
    world.origin.on("/a", Reply::ok("hello").cachable(60));
    let _ = world.get("/a").expect(200);
    let head = world.ask("HEAD", "/a", &[]).expect(200);
    assert_eq!((head.field("Content-Length"), head.cache()), (Some("5"), "HIT"));
    assert_eq!(world.origin.count("/a"), 1);
}

#[test]
fn unsafe_methods_invalidate_what_they_change() {
    for method in ["POST", "PUT", "DELETE", "PATCH", "BREW"] {
        let world = World::forward("");
        world.origin.on("/a", fresh());
        let _ = world.get("/a").expect(200);
        let _ = world.ask(method, "/a", &[("Content-Length", "0")]).expect(200);
        let _ = world.get("/a").expect(200);
        assert_eq!(world.origin.count("/a"), 3, "{method} left the old answer in the cache");
    }
}

#[test]
fn a_failed_unsafe_request_invalidates_nothing() {
    let world = World::forward("");
    world.origin.on_each("/a", vec![fresh(), Reply::status("403 Forbidden", "no"), fresh()]);
    let _ = world.get("/a").expect(200);
    let _ = world.ask("POST", "/a", &[("Content-Length", "0")]).expect(403);
    assert_eq!(world.get("/a").expect(200).cache(), "HIT");
}

#[test]
fn ranges_are_cut_from_a_complete_object() {
    let world = World::forward("");
    world.origin.on("/a", Reply::ok("0123456789").cachable(60).with("ETag", "\"v1\""));
    let _ = world.get("/a").expect(200);
    for (range, status, body, content_range) in [
        ("bytes=2-4", 206, "234", Some("bytes 2-4/10")),
        ("bytes=7-", 206, "789", Some("bytes 7-9/10")),
        ("bytes=-3", 206, "789", Some("bytes 7-9/10")),
        ("bytes=5-100", 206, "56789", Some("bytes 5-9/10")),
        ("bytes=0-0", 206, "0", Some("bytes 0-0/10")),
        ("lines=1-2", 200, "0123456789", None),
        ("bytes=4-2", 200, "0123456789", None),
    ] {
        let answer = world.ask("GET", "/a", &[("Range", range)]).expect(status);
        assert_eq!(
            (answer.text().as_str(), answer.field("Content-Range")),
            (body, content_range),
            "{range}"
        );
    }
    let beyond = world.ask("GET", "/a", &[("Range", "bytes=10-")]).expect(416);
    assert_eq!(beyond.field("Content-Range"), Some("bytes */10"));
    assert_eq!(world.origin.count("/a"), 1);
}

#[test]
fn if_range_gives_the_part_only_of_the_same_version() {
    let world = World::forward("");
    world.origin.on("/a", Reply::ok("0123456789").cachable(60).with("ETag", "\"v1\""));
    let _ = world.get("/a").expect(200);
    let _ = world.ask("GET", "/a", &[("Range", "bytes=0-1"), ("If-Range", "\"v1\"")]).expect(206);
    let _ = world.ask("GET", "/a", &[("Range", "bytes=0-1"), ("If-Range", "\"v0\"")]).expect(200);
}

#[test]
fn several_ranges_come_as_one_multipart_answer_or_whole() {
    let world = World::forward("");
    world.origin.on("/a", Reply::ok("0123456789").cachable(60));
    let _ = world.get("/a").expect(200);
    let answer = world.ask("GET", "/a", &[("Range", "bytes=0-1,8-9")]);
    match answer.status() {
        206 => {
            assert!(
                answer
                    .field("Content-Type")
                    .is_some_and(|kind| kind.starts_with("multipart/byteranges"))
            );
            assert!(
                answer.text().contains("\r\n\r\n01\r\n")
                    && answer.text().contains("\r\n\r\n89\r\n")
            );
        }
        200 => assert_eq!(answer.text(), "0123456789"),
        other => panic!("{other}"),
    }
}

#[test]
fn a_stale_answer_may_be_served_while_it_is_validated() {
    let world = World::forward("");
    let stale = Reply::ok("one")
        .with("Cache-Control", "max-age=1, stale-while-revalidate=60")
        .with("Age", "2");
    world.origin.on_each("/a", vec![stale, Reply::ok("two").cachable(60)]);
    assert_eq!(world.get("/a").expect(200).text(), "one");
    assert_eq!(world.get("/a").expect(200).text(), "one", "the stale answer comes at once");
    world.origin.wait_for("/a", 2);
    until("the new answer", || (world.get("/a").text() == "two").then_some(()));
}

#[test]
fn a_stale_answer_may_be_served_when_the_origin_fails() {
    let world = World::forward("");
    let good = Reply::ok("good")
        .with("Cache-Control", "max-age=0, stale-if-error=60")
        .with("ETag", "\"v1\"");
    world.origin.on_each("/a", vec![good, Reply::status("503 Service Unavailable", "down")]);
    assert_eq!(world.get("/a").expect(200).text(), "good");
    assert_eq!(world.get("/a").expect(200).text(), "good");
    assert_eq!(world.origin.count("/a"), 2);
}

#[test]
fn must_revalidate_forbids_stale_answers() {
    let world = World::forward("");
    let good = Reply::ok("good")
        .with("Cache-Control", "max-age=0, must-revalidate")
        .with("ETag", "\"v1\"");
    world.origin.on_each("/a", vec![good, Reply::raw("")]);
    let _ = world.get("/a").expect(200);
    let status = world.get("/a").status();
    assert!((500..600).contains(&status), "{status}");
}

#[test]
fn refresh_pattern_gives_answers_a_life_that_have_none() {
    let world = World::forward("refresh_pattern /fixed 60 100% 60\nrefresh_pattern . 0 0% 0\n");
    world.origin.on("/fixed", Reply::ok("x"));
    world.origin.on("/other", Reply::ok("x").with("Last-Modified", &http_date(-864_000)));
    for path in ["/fixed", "/other"] {
        let _ = world.get(path).expect(200);
        let _ = world.get(path).expect(200);
    }
    assert_eq!((world.origin.count("/fixed"), world.origin.count("/other")), (1, 2));
}

#[test]
fn negative_ttl_keeps_errors_for_a_while() {
    let world = World::forward("negative_ttl 1 minute\n");
    world.origin.on("/gone", Reply::status("404 Not Found", "gone"));
    let _ = world.get("/gone").expect(404);
    let _ = world.get("/gone").expect(404);
    assert_eq!(world.origin.count("/gone"), 1);
    assert!(
        world
            .proxy
            .logged_times("/gone", 2)
            .iter()
            .any(|line| line.contains("TCP_NEGATIVE_HIT/404"))
    );
}

#[test]
fn the_cache_directive_decides_what_may_be_stored() {
    let world =
        World::forward("acl private_paths urlpath_regex ^/private\ncache deny private_paths\n");
    for path in ["/private/a", "/public/a"] {
        world.origin.on(path, fresh());
        let _ = world.get(path).expect(200);
        let _ = world.get(path).expect(200);
    }
    assert_eq!((world.origin.count("/private/a"), world.origin.count("/public/a")), (2, 1));
}

#[test]
fn large_objects_stay_out_of_memory_and_small_ones_stay_in() {
    let world = World::forward("maximum_object_size_in_memory 10 KB\n");
    world.origin.on("/small", Reply::ok([b'a'; 9_000]).cachable(60));
    world.origin.on("/large", Reply::ok([b'a'; 20_000]).cachable(60));
    for path in ["/small", "/large"] {
        let _ = world.get(path).expect(200);
        let _ = world.get(path).expect(200);
    }
    assert_eq!((world.origin.count("/small"), world.origin.count("/large")), (1, 2));
}

#[test]
fn keys_ignore_the_case_of_the_host_and_the_default_port_only() {
    let world = World::reverse("");
    world.origin.on("/a", fresh());
    for host in ["site.test", "SITE.test"] {
        let _ = world.ask("GET", "/a", &[("Host", host)]).expect(200);
    }
    assert_eq!(world.origin.count("/a"), 1);
    world.origin.on("/A", fresh());
    let _ = world.get("/A").expect(200);
    assert_eq!(world.origin.count("/A"), 1, "paths are case-sensitive");
}

#[test]
fn head_makes_what_is_stored_fresh_again_or_void() {
    let world = World::forward("");
    let page = |tag: &str, age_s: u32| Reply::ok("hello").cachable(age_s).with("ETag", tag);
    world.origin.on_each("/same", vec![page("\"1\"", 0), page("\"1\"", 60)]);
    let _ = world.get("/same").expect(200);
    let _ = world.ask("HEAD", "/same", &[]).expect(200);
    assert_eq!(world.origin.last("/same").method(), "HEAD");
    assert_eq!(world.get("/same").expect(200).cache(), "HIT");
    assert_eq!(world.origin.count("/same"), 2);
    world.origin.on_each("/other", vec![page("\"1\"", 0), page("\"2\"", 60), page("\"2\"", 60)]);
    let _ = world.get("/other").expect(200);
    let _ = world.ask("HEAD", "/other", &[]).expect(200);
    assert_eq!(world.get("/other").expect(200).cache(), "MISS");
    assert_eq!(world.origin.last("/other").field("If-None-Match"), None, "the old one is gone");
    let bare = Reply::ok("hello").cachable(0).with("X-Not-Stored-Without", "a validator");
    world.origin.on("/unknown", bare.with("Cache-Control", "stale-if-error=60"));
    let _ = world.get("/unknown").expect(200);
    let _ = world.ask("HEAD", "/unknown", &[]).expect(200);
    assert_eq!(
        world.get("/unknown").expect(200).cache(),
        "MISS",
        "nothing says that it is the same"
    );
}

#[test]
fn a_304_for_something_else_is_followed_by_a_fetch() {
    let world = World::forward("");
    let stored = Reply::ok("old").cachable(0).with("ETag", "\"1\"");
    let wrong = Reply::status("304 Not Modified", "").with("ETag", "\"9\"");
    world.origin.on_each("/a", vec![stored, wrong, Reply::ok("new").cachable(60)]);
    let _ = world.get("/a").expect(200);
    assert_eq!(world.get("/a").expect(200).text(), "new");
    assert_eq!(world.origin.last("/a").field("If-None-Match"), None);
}
