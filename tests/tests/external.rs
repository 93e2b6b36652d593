//! ACLs whose answers come from helper programs (`external_acl_type`).

use humboldt_tests::scripts::Scripts;
use humboldt_tests::wait::until;
use humboldt_tests::{Origin, Reply, World, proxy, skip};
use rustix::process::Signal;
use std::path::Path;

/// A proxy with an origin that has some pages.
fn world(lines: &str) -> World {
    let world = World::forward(lines);
    for path in ["/a", "/b", "/c", "/ok", "/no", "/bad"] {
        world.origin.on(path, Reply::ok("x").cachable(600));
    }
    world
}

/// One helper `h` with the answer in shell code, and an ACL `x` that asks it.
fn with_helper(scripts: &Scripts, options: &str, answer: &str, rules: &str) -> World {
    let command = scripts.helper("h", answer);
    world(&format!("external_acl_type h {options} {command}\nacl x external h\n{rules}"))
}

/// Everybody may read pages of the proxy, and the helper decides about the rest.
const RULES: &str = "http_access allow manager\nhttp_access deny !x\n";

/// Answers by the path.
const BY_PATH: &str = "case $line in */ok*) echo OK;; */no*) echo ERR;; *) echo BH;; esac";

#[test]
fn a_helper_decides_and_its_answers_are_kept() {
    let scripts = Scripts::new();
    let rules = "http_access allow x\nhttp_access deny all\n";
    let world = with_helper(&scripts, "%URI", BY_PATH, rules);
    for _ in 0..3 {
        let _ = world.get("/ok").expect(200);
        let _ = world.get("/no").expect(403);
    }
    assert_eq!(
        scripts.asked("h"),
        [format!("{} -$", world.origin.url("/ok")), format!("{} -$", world.origin.url("/no"))]
    );
}

/// The lines are those that Squid 5.7 sends for the same request, except names of users: Squid
/// sends them unescaped.
#[test]
fn the_helper_gets_the_words_that_squid_sends() {
    let scripts = Scripts::new();
    let one = scripts.helper("one", "echo OK user=a%20b tag=t1 log=\\\"l g\\\" x_note=v1");
    let two = scripts.helper("two", "echo OK tag=t2");
    let three = scripts.helper("three", "echo ERR");
    let world = world(&format!(
        "external_acl_type one %SRC %DST %PROTO %PORT %METHOD %URI %PATH %MYADDR %EXT_USER %EXT_LOG \
         %EXT_TAG %ACL %DATA %% {one}\n\
         external_acl_type two %>a %>{{X-Foo}} %>{{X-Foo:a}} %<{{Server}} %{{User-Agent}}>h %>rs %un \
         %{{x_note}}note %et %ea {two}\n\
         external_acl_type three protocol=2.5 %>{{X-Foo}} %'>h{{X-Foo}} %#PATH {three}\n\
         acl one external one a two three%20x\nacl two external two\n\
         acl three external three a\"b c\\d\n\
         http_access deny one two three\n"
    ));
    let fields = [("X-Foo", "a=1, b=\"c d\", e%20\\f"), ("User-Agent", "curl/7")];
    let _ = world.ask("GET", "/p%20a/b?q=1&x=2", &fields).expect(404);
    let (origin, port) = (world.origin.url("/p%20a/b?q=1&x=2"), world.origin.address().port());
    assert_eq!(
        scripts.asked("one"),
        [format!(
            "127.0.0.1 127.0.0.1 http {port} GET {origin} /p%20a/b?q=1&x=2 127.0.0.1 - - - one a two \
         three%2520x % $"
        )]
    );
    assert_eq!(
        scripts.asked("two"),
        ["127.0.0.1 a=1,%20b=%22c%20d%22,%20e%20%5Cf 1 - curl/7 http a%20b v1 t1 l%20g -$"]
    );
    assert_eq!(
        scripts.asked("three"),
        [
            "\"a=1, b=\\\"c d\\\", e%20\\\\f\" a=1, b=\"c d\", e%20\\f /p%2520a/b?q=1&x=2 a\\\"b c\\\\d$"
        ]
    );
}

#[test]
fn without_an_answer_nothing_is_allowed() {
    let scripts = Scripts::new();
    let dies = scripts.helper("dies", "exit 1");
    let odd = scripts.helper("odd", "echo YES");
    let world = world(&format!(
        "external_acl_type broken %URI {}\nexternal_acl_type dies %URI {dies}\n\
         external_acl_type odd %URI {odd}\nexternal_acl_type none %URI /no/such/program\n\
         acl broken external broken\nacl dies external dies\nacl odd external odd\n\
         acl none external none\nacl a urlpath_regex ^/a\nacl b urlpath_regex ^/b$\n\
         acl c urlpath_regex ^/c\nacl bad urlpath_regex ^/bad\n\
         http_access allow a !dies\nhttp_access deny a\nhttp_access deny b odd\n\
         http_access allow b\nhttp_access deny c none\nhttp_access deny bad !broken\n",
        scripts.helper("broken", BY_PATH)
    ));
    for path in ["/a", "/b", "/c", "/bad"] {
        let page = world.get(path).expect(503);
        assert!(page.text().contains("ERR_ACCESS_UNDECIDED"), "{path}: {}", page.text());
        assert_eq!(world.origin.count(path), 0, "{path}");
    }
    assert_eq!(scripts.asked("broken").len(), 3, "BH is asked again twice");
    let line = world.proxy.logged("/bad");
    assert!(line.contains("NONE/503"), "{line}");
}

#[test]
fn an_answer_names_a_user_and_tags_the_request() {
    let scripts = Scripts::new();
    let answer = "case $line in */a*) echo OK user=anna tag=red log=x%20y message=\"not/you\" k=v;; \
                  *) echo ERR tag=blue;; esac";
    let world = with_helper(
        &scripts,
        "%URI",
        answer,
        "logformat l %ru un=%un ue=%ue et=%et ea=%ea k=%{k}note\n\
         access_log stdio:{dir}/l.log l\n\
         acl anna ext_user anna\nacl an ext_user_regex ^an\nacl red tag red\nacl blue tag blue\n\
         acl b urlpath_regex ^/b\n\
         deny_info 303:http://x.test/?%o anna\ndeny_info 303:http://blue.test/ blue\n\
         http_access deny red !b\nhttp_access deny x !all\nhttp_access deny b blue\n\
         http_access deny red an anna\n",
    );
    let denied = world.get("/a").expect(303);
    assert_eq!(denied.field("location"), Some("http://x.test/?not%2Fyou"));
    let denied = world.get("/b").expect(303);
    assert_eq!(denied.field("location"), Some("http://blue.test/"));
    let line = |path: &str| {
        until(path, || {
            let text = world.proxy.text("l.log");
            text.lines().find(|line| line.contains(path)).map(str::to_owned)
        })
    };
    assert!(line("/a").ends_with("/a un=anna ue=anna et=red ea=x%20y k=v"), "{}", line("/a"));
    assert!(line("/b").ends_with("/b un=- ue=- et=blue ea=- k=-"), "{}", line("/b"));
    assert!(world.proxy.logged("/a").contains(" anna HIER_NONE/"));
}

#[test]
fn a_question_about_the_user_asks_for_a_login_first() {
    let scripts = Scripts::new();
    // The password is `secret`.
    let passwords = scripts.write("passwords", "anna:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n");
    let command = scripts.helper("h", "case $line in *staff) echo OK;; *) echo ERR;; esac");
    let world = self::world(&format!(
        "auth_param basic program /usr/lib/squid/basic_ncsa_auth {}\n\
         external_acl_type h %LOGIN {command}\nacl x external h staff\nacl y external h anna\n\
         acl b urlpath_regex ^/b\nhttp_access deny b !y\nhttp_access deny !x\n",
        passwords.display()
    ));
    let challenged = world.get("/a").expect(407);
    assert!(challenged.field("proxy-authenticate").is_some_and(|field| field.contains("Basic")));
    let login = [("Proxy-Authorization", "Basic YW5uYTpzZWNyZXQ=")];
    let _ = world.ask("GET", "/a", &login).expect(200);
    let wrong = [("Proxy-Authorization", "Basic YW5uYTp3cm9uZw==")];
    let _ = world.ask("GET", "/a", &wrong).expect(407);
    // A denial that ends with such an ACL asks for another login, as in Squid.
    let _ = world.ask("GET", "/b", &login).expect(407);
    assert_eq!(scripts.asked("h"), ["anna staff$", "anna anna$"]);
}

#[test]
fn equal_questions_are_asked_once_and_clients_that_leave_wait_no_more() {
    let scripts = Scripts::new();
    let slow = "while ! test -e DIR/gate; do sleep 0.02; done; echo OK";
    // One core: a client that comes when the gate is open would be a new question.
    let rules = format!("workers 1\n{RULES}");
    let world = with_helper(&scripts, "ttl=0 children-max=1 %PATH", slow, &rules);
    let mut clients: Vec<_> = (0..5).map(|_| world.client()).collect();
    for client in &mut clients {
        client.request("GET", &world.target("/a"), &[], b"");
    }
    scripts.wait_asked("h", 1);
    let mut other = world.client();
    other.request("GET", &world.target("/b"), &[], b"");
    until("it waits", || (world.metric("humboldt_helper_queue") == 1).then_some(()));
    other.abort();
    until("it waits no more", || (world.metric("humboldt_helper_queue") == 0).then_some(()));
    scripts.write("gate", "");
    for client in &mut clients {
        let _ = client.response().expect(200);
    }
    assert_eq!(scripts.asked("h"), ["/a -$"]);
}

#[test]
fn a_reconfiguration_starts_new_processes_and_forgets_answers() {
    let scripts = Scripts::new();
    let list = scripts.write("list", "OK");
    let answer = "if test -z \"$first\"; then first=$(cat DIR/list); fi; echo $first";
    let world = with_helper(&scripts, "%PATH", answer, RULES);
    let _ = world.get("/a").expect(200);
    std::fs::write(list, "ERR").expect("written");
    let _ = world.get("/b").expect(200);
    world.proxy.signal(Signal::HUP);
    until("the new list", || (world.get("/a").status() == 403).then_some(()));
    until("one process", || (world.metric("humboldt_helper_processes") == 1).then_some(()));
    let page = world.proxy.page("squid-internal-mgr/external_acl");
    let page = world.client().request("GET", &page, &[], b"").response().expect(200).text();
    assert!(page.contains("Helper: h\n") && page.contains("number active: 1 of 5"), "{page}");
}

#[test]
fn processes_run_only_while_the_program_serves() {
    let scripts = Scripts::new();
    let answer = "echo $$ > DIR/pid; echo OK";
    let rules = "http_access deny !x\n";
    let mut world = with_helper(&scripts, "children-startup=1 %PATH", answer, rules);
    let _ = world.get("/a").expect(200);
    let pid = std::fs::read_to_string(scripts.path("pid")).expect("a number");
    let process = format!("/proc/{}", pid.trim());
    assert!(Path::new(&process).exists());
    assert!(world.proxy.stop().success());
    until("its end", || (!Path::new(&process).exists()).then_some(()));
    let started = scripts.path("started");
    let command = format!("/bin/sh -c \"touch {}; exec cat\"", started.display());
    let text = format!("http_port 1\nexternal_acl_type s children-startup=1 %PATH {command}\n");
    let conf = scripts.write("parse.conf", &text);
    let parsed = proxy::run(&["-k", "parse", "-f", &conf.display().to_string()]);
    assert!(parsed.status.success() && !started.exists());
}

#[test]
fn a_helper_names_the_credentials_for_a_parent() {
    let scripts = Scripts::new();
    let parent = Origin::new();
    parent.on("/a", Reply::ok("x"));
    let port = parent.address().port();
    let world = with_helper(
        &scripts,
        "%PATH",
        "echo OK user=anna password=secret",
        &format!(
            "logformat n %ru %note %ue\naccess_log stdio:{{dir}}/n.log n\nhttp_access deny !x\n\
             cache_peer 127.0.0.1 parent {port} 0 no-query login=PASS\nnever_direct allow all\n"
        ),
    );
    let mut client = world.client();
    client.request("GET", "http://site.test/a", &[], b"");
    let _ = client.response().expect(200);
    let sent = parent.last("/a");
    assert_eq!(sent.field("proxy-authorization"), Some("Basic YW5uYTpzZWNyZXQ="));
    let line = until("a line", || world.proxy.text("n.log").lines().next().map(str::to_owned));
    assert!(line.contains("anna") && !line.contains("secret"), "{line}");
}

#[test]
fn helpers_of_debian_decide() {
    // `ext_session_acl` of Debian 12 cannot open its database, whoever runs it.
    let (user_ip, group) =
        ("/usr/lib/squid/ext_file_userip_acl", "/usr/lib/squid/ext_unix_group_acl");
    if !Path::new(user_ip).exists() || !Path::new(group).exists() {
        return skip("squid's helpers are not installed");
    }
    let scripts = Scripts::new();
    let list = scripts.write("users", "127.0.0.1 anna\n");
    let world = world(&format!(
        "external_acl_type userip %SRC %>{{X-User}} {user_ip} -f {}\n\
         external_acl_type group %>{{X-User}} {group} -p\n\
         acl userip external userip\nacl mail external group mail staff\nacl a urlpath_regex ^/a\n\
         http_access deny a !userip\nhttp_access deny !a !mail\n",
        list.display()
    ));
    for (path, user, status) in
        [("/a", "anna", 200), ("/a", "otto", 403), ("/b", "mail", 200), ("/b", "daemon", 403)]
    {
        let _ = world.ask("GET", path, &[("X-User", user)]).expect(status);
    }
}
