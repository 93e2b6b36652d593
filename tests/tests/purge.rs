//! Purging by tag and by prefix: at once, on every core, whatever is on its way, and also after a crash.

use humboldt_tests::wait::until;
use humboldt_tests::{Reply, World};

/// The schemes that all of this holds for.
const SCHEMES: &[&str] = &["ufs", "aufs", "diskd", "coss", "rock", "ring"];

/// Who may purge: the rules that a scenario begins with.
const ALLOW: &str = "acl purge method PURGE\nhttp_access allow purge\n";

/// Lines without which objects would be answered from memory.
const NO_MEMORY: &str = "cache_mem 1 MB\nmaximum_object_size_in_memory 1 KB\n";

const TAG: (&str, &str) = ("Surrogate-Key", "news");
const PREFIX: (&str, &str) = ("X-Purge-Method", "prefix");

/// Purges, and returns what the proxy says about it.
fn purge(world: &World, path: &str, field: (&str, &str)) -> String {
    world.ask("PURGE", path, &[field]).expect(200).text()
}

fn cache(world: &World, path: &str) -> String {
    world.get(path).expect(200).cache().to_owned()
}

/// Asks twice: a miss, then a hit.
fn is_fetched_anew(world: &World, path: &str) {
    assert_eq!((cache(world, path), cache(world, path)), ("MISS".into(), "HIT".into()), "{path}");
}

#[test]
fn a_tag_is_purged_in_memory_and_everything_else_stays() {
    let world = World::forward(ALLOW);
    let tagged = |name, value| Reply::ok("x").cachable(600).with(name, value);
    world.origin.on("/key", tagged("Surrogate-Key", "top news sport"));
    world.origin.on("/tag", tagged("cache-tag", "top, news,sport"));
    world.origin.on("/two", tagged("Surrogate-Key", "top").with("SURROGATE-KEY", "news"));
    world.origin.on("/like", tagged("Surrogate-Key", "news-2 News newsx"));
    world.origin.on("/name", tagged("X-Surrogate-Key", "news"));
    let paths = ["/key", "/tag", "/two", "/like", "/name"];
    paths.iter().for_each(|path| is_fetched_anew(&world, path));
    let answer = purge(&world, "/whatever", TAG);
    assert_eq!(answer, "Purged tag: news\n");
    paths[..3].iter().for_each(|path| is_fetched_anew(&world, path));
    assert!(paths.iter().all(|path| cache(&world, path) == "HIT"));
    purge(&world, "/", ("Cache-Tag", "none, top,\tNews"));
    paths[..4].iter().for_each(|path| is_fetched_anew(&world, path));
    assert_eq!(cache(&world, "/name"), "HIT");
    assert!(world.proxy.logged("PURGE").contains("NONE/200"), "{}", world.proxy.text("access.log"));
}

#[test]
fn a_prefix_is_purged_in_memory_and_everything_else_stays() {
    let world = World::forward(ALLOW);
    let paths = ["/a/b", "/a/b?q=1", "/a/bc", "/a/b/c", "/a", "/a/", "/b/a/b"];
    for path in paths {
        world.origin.on(path, Reply::ok("x").cachable(600));
        is_fetched_anew(&world, path);
    }
    let answer = purge(&world, "/a/b", PREFIX);
    assert_eq!(answer, format!("Purged prefix: {}\n", world.origin.url("/a/b")));
    paths[..4].iter().for_each(|path| is_fetched_anew(&world, path));
    assert!(paths.iter().all(|path| cache(&world, path) == "HIT"));
    purge(&world, "", PREFIX);
    paths.iter().for_each(|path| is_fetched_anew(&world, path));
}

#[test]
fn a_url_is_purged_with_all_its_variants() {
    for scheme in [""].into_iter().chain(humboldt_tests::schemes(SCHEMES)) {
        let disk = if scheme.is_empty() {
            String::new()
        } else {
            format!("cache_dir {scheme} {{dir}}/cache 24 4 4\n{NO_MEMORY}")
        };
        let world = World::forward(&format!("{ALLOW}{disk}"));
        let body = "v".repeat(3_000);
        world.origin.on("/v", Reply::ok(&body).cachable(600).with("Vary", "Accept-Language"));
        let ask = |language| {
            let answer = world.ask("GET", "/v", &[("Accept-Language", language)]).expect(200);
            answer.cache().to_owned()
        };
        for language in ["de", "en"] {
            assert_eq!(ask(language), "MISS", "{scheme}");
            until("the variant", || (ask(language) == "HIT").then_some(()));
        }
        _ = world.ask("PURGE", "/v", &[]).expect(200);
        assert_eq!((ask("de"), ask("en")), ("MISS".into(), "MISS".into()), "{scheme}");
        // A tag and a prefix reach them too.
        for field in [PREFIX, ("X-Purge-Method", "exact")] {
            until("the variants", || (ask("de") == "HIT" && ask("en") == "HIT").then_some(()));
            purge(&world, "/v", field);
            assert_eq!((ask("de"), ask("en")), ("MISS".into(), "MISS".into()), "{scheme}");
        }
    }
}

#[test]
fn what_is_not_clear_is_refused_and_purges_nothing() {
    let world = World::forward(ALLOW);
    world.origin.on("/a", Reply::ok("x").cachable(600).with("Surrogate-Key", "a"));
    is_fetched_anew(&world, "/a");
    let long = "a ".repeat(300);
    let refused: &[&[(&str, &str)]] = &[
        &[("Surrogate-Key", "")],
        &[("Cache-Tag", " , ,")],
        &[("Surrogate-Key", "a"), PREFIX],
        &[("Surrogate-Key", "a"), ("X-Purge-Method", "exact")],
        &[("X-Purge-Method", "regex")],
        &[("X-Purge-Method", "")],
        &[PREFIX, PREFIX],
        &[("Surrogate-Key", &long)],
        &[("Surrogate-Key", &long[..2]), ("Cache-Tag", &"x".repeat(5_000))],
    ];
    for fields in refused {
        let answer = world.ask("PURGE", "/a", fields).expect(400);
        let text = answer.text();
        assert!(text.starts_with("Not purged: ") && text.lines().count() == 1, "{text}");
    }
    assert_eq!(cache(&world, "/a"), "HIT");
    // Without a rule for it nobody may.
    let closed = World::forward("acl purge method PURGE\nhttp_access deny purge\n");
    _ = closed.ask("PURGE", "/a", &[TAG]).expect(403);
}
