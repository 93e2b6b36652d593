//! URLs that are one object in the cache (`store_id_program`, `store_id_rule`).

use humboldt_tests::scripts::Scripts;
use humboldt_tests::wait::until;
use humboldt_tests::{Reply, World, skip};
use std::path::Path;

const PATHS: [&str; 3] = ["/m1/f", "/m2/f", "/own"];

/// A proxy whose mirrors `/m1` and `/m2` have the same files.
fn world(lines: &str) -> World {
    let world = World::forward(lines);
    for path in PATHS {
        world.origin.on(path, Reply::ok(path).cachable(600));
    }
    world
}

fn helper(scripts: &Scripts) -> String {
    let answer = "case $line in *//*/m[12]/*) path=${line#*//*/m?/}
         echo OK store-id=http://mirrors.internal/${path%% *};; *) echo ERR;; esac";
    format!("store_id_program {}\n", scripts.helper("h", answer))
}

const RULE: &str = "store_id_rule ^http://[^/]+/m[12]/(.*)$ http://mirrors.internal/$1\n";

/// The tests hold for both ways.
fn both(test: impl Fn(&str)) {
    test(RULE);
    let scripts = Scripts::new();
    test(&helper(&scripts));
    assert!(!scripts.asked("h").is_empty());
}

#[test]
fn urls_with_one_name_are_one_object() {
    both(|lines| {
        let world = world(lines);
        assert_eq!(world.get("/m1/f").expect(200).cache(), "MISS");
        let second = world.get("/m2/f").expect(200);
        assert_eq!((second.cache(), second.text().as_str()), ("HIT", "/m1/f"));
        assert_eq!(world.get("/own").expect(200).cache(), "MISS");
        assert_eq!(world.get("/own").expect(200).cache(), "HIT");
        assert_eq!(world.origin.count("/m2/f"), 0);
        let line = world.proxy.logged("/m2/f");
        assert!(line.contains("TCP_MEM_HIT/200"), "{line}");
    });
}

#[test]
fn purges_and_other_methods_reach_the_object() {
    both(|lines| {
        let world = world(&format!("acl purge method PURGE\nhttp_access allow purge\n{lines}"));
        world.origin.on("/m1/f", Reply::ok("x").cachable(600));
        let hit = |path: &str| world.get(path).expect(200).cache() == "HIT";
        assert!(!hit("/m1/f") && hit("/m2/f"));
        let _ = world.ask("PURGE", "/m2/f", &[]).expect(200);
        assert!(!hit("/m1/f") && hit("/m2/f"));
        let mut client = world.client();
        client.request("POST", &world.target("/m2/f"), &[], b"x");
        let _ = client.response().expect(200);
        assert!(!hit("/m2/f") && hit("/m1/f"));
    });
}

#[test]
fn variants_of_an_object_stay_apart() {
    both(|lines| {
        let world = world(lines);
        for path in ["/m1/f", "/m2/f"] {
            world.origin.handle(path, |head, wire| {
                let language = head.field("accept-language").unwrap_or("-").to_owned();
                let body = format!("{language}!");
                wire.send(format!(
                    "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nVary: Accept-Language\r\n\
                     Content-Length: {}\r\n\r\n{body}",
                    body.len()
                ));
            });
        }
        let get = |path: &str, language: &str| {
            let answer = world.ask("GET", path, &[("Accept-Language", language)]).expect(200);
            (answer.cache().to_owned(), answer.text())
        };
        assert_eq!(get("/m1/f", "de"), ("MISS".into(), "de!".into()));
        assert_eq!(get("/m2/f", "fr"), ("MISS".into(), "fr!".into()));
        assert_eq!(get("/m2/f", "de"), ("HIT".into(), "de!".into()));
        assert_eq!(get("/m1/f", "fr"), ("HIT".into(), "fr!".into()));
    });
}

#[test]
fn an_object_on_disk_keeps_its_name() {
    for scheme in ["ring", "ufs"] {
        let options = if scheme == "ufs" { "16 16 16" } else { "64" };
        let lines = format!("cache_dir {scheme} {{dir}}/store {options}\ncache_mem 0\n{RULE}");
        let mut world = world(&lines);
        world.proxy.wait_for_directory();
        assert_eq!(world.get("/m1/f").expect(200).cache(), "MISS");
        until("it on disk", || (world.metric("humboldt_store_objects") > 0).then_some(()));
        world.proxy.restart();
        world.proxy.wait_for_directory();
        assert_eq!(world.get("/m2/f").expect(200).cache(), "HIT", "{scheme}");
        assert_eq!(world.origin.count("/m2/f"), 0);
    }
}

#[test]
fn without_an_answer_a_url_is_its_own_object_or_none() {
    let scripts = Scripts::new();
    let broken = format!("store_id_program {}\n", scripts.helper("h", "echo BH"));
    for (lines, cache) in [("", "HIT"), ("store_id_bypass off\n", "MISS")] {
        let world = world(&format!("{broken}{lines}"));
        for path in ["/m1/f", "/m2/f"] {
            assert_eq!(world.get(path).expect(200).cache(), "MISS");
            assert_eq!(world.get(path).expect(200).cache(), cache, "{lines}");
        }
    }
}

#[test]
fn rules_choose_the_requests_that_are_named() {
    let scripts = Scripts::new();
    let rules = "acl m2 urlpath_regex ^/m2\nstore_id_access deny m2\n";
    let world = world(&format!("{}{rules}", helper(&scripts)));
    assert_eq!(world.get("/m1/f").expect(200).cache(), "MISS");
    assert_eq!(world.get("/m2/f").expect(200).cache(), "MISS");
    assert_eq!(scripts.asked("h").len(), 1);
}

#[test]
fn the_program_of_debian_names_objects() {
    let program = "/usr/lib/squid/storeid_file_rewrite";
    if !Path::new(program).exists() {
        return skip("squid's helpers are not installed");
    }
    let scripts = Scripts::new();
    let rules =
        scripts.write("rules", "^http:\\/\\/[^\\/]+\\/m[12]\\/(.*)\thttp://m.internal/$1\n");
    let world = world(&format!(
        "store_id_program {program} {}\nstore_id_children 5 startup=1 concurrency=0\n",
        rules.display()
    ));
    assert_eq!(world.get("/m1/f").expect(200).cache(), "MISS");
    assert_eq!(world.get("/m2/f").expect(200).cache(), "HIT");
}
