//! Annotations: rules and `note` write them, rules and logs read them.

use humboldt_tests::dns::{NameServer, Says};
use humboldt_tests::wait::until;
use humboldt_tests::{Origin, Proxy, Reply, World};
use std::net::Ipv4Addr;

/// A proxy whose lines in access.log end with the annotations.
fn world(rules: &str) -> World {
    let log = "logformat noted %rm %ru %Ss/%>Hs team=%{team}note why=%{why:;}note\n\
               access_log stdio:{dir}/notes.log noted\n";
    let world = World::forward(&format!("{log}{rules}"));
    for path in ["/a", "/b", "/c"] {
        world.origin.on(path, Reply::ok("x").cachable(600));
    }
    world
}

/// The notes in the last of `count` lines about this path.
fn noted(world: &World, path: &str, count: usize) -> String {
    let lines = humboldt_tests::wait::until(&format!("{count} lines about {path}"), || {
        let text = world.proxy.text("notes.log");
        let lines: Vec<_> =
            text.lines().filter(|line| line.contains(path)).map(str::to_owned).collect();
        (lines.len() >= count).then_some(lines)
    });
    let (_, notes) = lines[count - 1].split_once(" team=").expect("the notes");
    format!("team={notes}")
}

#[test]
fn a_rule_annotates_a_transaction_and_a_later_rule_sees_it() {
    let world = world(
        "acl b urlpath_regex ^/b\nacl mark annotate_transaction team=red why+=path why+=\"%>a %rm\"\n\
         acl never annotate_transaction team=wrong\nacl red note team blue red\n\
         acl green note team green\nhttp_access deny green\nhttp_access deny !all never\n\
         http_access allow b mark\nadapted_http_access deny red\n",
    );
    let _ = world.get("/a").expect(200);
    let _ = world.get("/b").expect(403);
    assert_eq!(noted(&world, "/a", 1), "team=- why=-");
    assert_eq!(noted(&world, "/b", 1), "team=red why=path;127.0.0.1%20GET");
}

#[test]
fn an_acl_that_annotates_does_so_wherever_its_rule_gets_to_it() {
    let world = world(
        "acl one annotate_transaction team=red\nacl two annotate_transaction team+=blue\n\
         http_access allow one !all\nhttp_access allow !two\n",
    );
    for cache in ["MISS", "HIT"] {
        assert_eq!(world.get("/a").expect(200).cache(), cache);
    }
    assert_eq!(noted(&world, "/a", 2), "team=red,blue why=-");
}

#[test]
fn the_connection_of_a_client_keeps_its_annotations() {
    let world = world(
        "acl b urlpath_regex ^/b\nacl c urlpath_regex ^/c\nacl mark annotate_client team=red\n\
         acl list annotate_client -m=; why+=1;2\nacl red note team red\nacl two note why 2\n\
         http_access deny c !red\nhttp_access deny c !two\nhttp_access allow b mark list\n",
    );
    let mut client = world.client();
    for (path, status) in [("/c", 403), ("/a", 200), ("/b", 200), ("/c", 200), ("/a", 200)] {
        client.request("GET", &world.target(path), &[], b"");
        let _ = client.response().expect(status);
    }
    assert_eq!(noted(&world, "/a", 1), "team=- why=-");
    assert_eq!(noted(&world, "/a", 2), "team=red why=1;2");
    let _ = world.get("/c").expect(403);
    assert_eq!(noted(&world, "/c", 3), "team=- why=-");
}

#[test]
fn of_the_notes_with_one_name_the_first_that_matches_counts() {
    let world = world(
        "acl b urlpath_regex ^/b\nacl ok http_status 200\nnote team red b\nnote team %Ss !ok\n\
         note team \"%Ss %>Hs\" all\nnote team never\nnote why \"%{team}note\"\nacl red note team red\n\
         access_log stdio:{dir}/red.log noted red\n",
    );
    let _ = world.get("/a").expect(200);
    let _ = world.get("/b").expect(200);
    let _ = world.get("/none").expect(404);
    assert_eq!(noted(&world, "/a", 1), "team=TCP_MISS%20200 why=TCP_MISS%20200");
    assert_eq!(noted(&world, "/b", 1), "team=red why=red");
    assert_eq!(noted(&world, "/none", 1), "team=%Ss why=%Ss");
    // Another file may be written later.
    let red = until("a line in red.log", || {
        Some(world.proxy.text("red.log")).filter(|text| text.ends_with('\n'))
    });
    assert!(red.lines().count() == 1 && red.contains("/b "), "{red}");
}

#[test]
fn the_notes_go_to_servers_in_fields() {
    let world = world(
        "acl mark annotate_transaction team=red team+=\"%{X-A}>h\"\nhttp_access allow mark\n\
         request_header_add X-Team \"<%{team}note>\" all\n",
    );
    let _ = world.ask("GET", "/a", &[("X-A", "b c")]).expect(200);
    assert_eq!(world.origin.requests("/a")[0].field("X-Team"), Some("<red,b%20c>"));
}

#[test]
fn a_note_that_may_have_been_lost_is_not_missing() {
    // Each request of the connection adds its URL.
    let world = world(
        "acl mark annotate_client why+=\"%ru\"\nacl bad note why bad\nhttp_access allow !mark\n\
         acl c urlpath_regex ^/c\nhttp_access deny c bad\n",
    );
    let mut client = world.client();
    for n in 0..70 {
        client.request("GET", &world.target(&format!("/a?{n}")), &[], b"");
        let _ = client.response();
        if n == 50 {
            client.request("GET", &world.target("/c"), &[], b"");
            let _ = client.response().expect(200);
        }
    }
    client.request("GET", &world.target("/c"), &[], b"");
    let answer = client.response().expect(503);
    assert!(answer.text().contains("ERR_ACCESS_UNDECIDED"), "{}", answer.text());
    let _ = world.get("/c").expect(200);
}

#[test]
fn a_rule_that_waits_or_judges_address_by_address_begins_with_the_notes_of_before() {
    let dns = NameServer::new();
    let (good, bad) = (Ipv4Addr::new(127, 0, 0, 1), Ipv4Addr::new(127, 0, 0, 2));
    dns.on("two.test", Says::Addresses(vec![good, bad]));
    // The first rule must not see the mark that the second sets.
    let world = world(&format!(
        "{}acl near dst 127.0.0.1\nacl mark annotate_transaction why+=marked\nacl marked note why\n\
         acl count annotate_transaction -m team+=a,b\n\
         http_access allow marked\nhttp_access allow count near mark\nhttp_access deny all\n",
        dns.lines()
    ));
    let port = world.origin.address().port();
    let forbidden = Origin::at_address(&format!("127.0.0.2:{port}"));
    let get = |path: &str| {
        let mut client = world.client();
        client.request("GET", &format!("http://two.test:{port}{path}"), &[], b"");
        client.response()
    };
    let _ = get("/a").expect(200);
    assert_eq!(noted(&world, "/a", 1), "team=a,b why=marked");
    dns.on("two.test", Says::Addresses(vec![bad, good]));
    let _ = get("/b").expect(200);
    dns.on("two.test", Says::Addresses(vec![bad]));
    let _ = get("/c").expect(403);
    assert_eq!(forbidden.connections(), 0, "the rules do not permit this address");
}

#[test]
fn a_list_about_answers_that_waits_does_not_see_its_own_annotations() {
    let origin = Origin::new();
    origin.on("/", Reply::ok("abc").with("Cache-Control", "max-age=1000"));
    let proxy = Proxy::forward(
        "acl seen note seen\nacl mark annotate_transaction seen=1\nacl slow dst 127.0.0.0/8\n\
         http_reply_access deny seen\nhttp_reply_access allow mark slow\n",
    );
    let mut client = proxy.client();
    for _ in 0..3 {
        let answer = client.request("GET", &origin.url("/"), &[], b"").response();
        assert_eq!(answer.status(), 200);
    }
}

#[test]
fn a_limit_of_bodies_is_found_once_for_each_client() {
    let origin = Origin::new();
    origin.on("/", Reply::ok("abc").with("Cache-Control", "max-age=1000"));
    let proxy = Proxy::forward(
        "acl ok note ok\nacl mark annotate_transaction ok=1\n\
         reply_body_max_size none ok\nreply_body_max_size 1 bytes mark\n",
    );
    for _ in 0..2 {
        let answer = proxy.client().request("GET", &origin.url("/"), &[], b"").response();
        assert_eq!(answer.status(), 403);
    }
}
