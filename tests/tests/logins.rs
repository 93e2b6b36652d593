//! Logins of clients: challenges, checks against password files and by helper programs, and what
//! others see of them.

use humboldt_tests::proxy::open_folder;
use humboldt_tests::servers::{curl, program, run, succeed};
use humboldt_tests::wait::{free_address, start, until};
use humboldt_tests::{Client, Proxy, Reply, Response, World};
use rustix::process::{Resource, Rlimit, Signal, setrlimit};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

/// The password of all is `secret`.
const PASSWORDS: &str = "anna:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n\
                         bo:$apr1$x1y2z3a4$SrvxdNLJgAc7F8EfRTOUB0\n\
                         eve:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n";

/// Lines for a password file of the test's own.
const FILE: &str = "auth_param basic program /usr/lib/squid/basic_ncsa_auth {dir}/passwd\n\
                    auth_param basic realm Private\n\
                    acl users proxy_auth REQUIRED\nacl staff proxy_auth anna bo\n";

/// A proxy that checks passwords against [`PASSWORDS`], with these rules.
fn world(rules: &str) -> World {
    let world = World::forward(&format!("{FILE}{rules}"));
    fs::write(world.proxy.path("passwd"), PASSWORDS).expect("a password file");
    world.origin.on("/a", Reply::ok("hello").cachable(60));
    world
}

/// A value of Proxy-Authorization or Authorization.
fn basic(login: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = "Basic ".to_owned();
    for group in login.as_bytes().chunks(3) {
        let bits = (0..3).fold(0, |bits, n| bits << 8 | u32::from(*group.get(n).unwrap_or(&0)));
        for n in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * n)) as usize & 63];
            text.push(if n > group.len() { '=' } else { char::from(digit) });
        }
    }
    text
}

fn get_as(world: &World, login: &str, path: &str) -> Response {
    world.ask("GET", path, &[("Proxy-Authorization", &basic(login))])
}

#[test]
fn curl_logs_in() {
    let world = world("http_access allow users\nhttp_access deny all\n");
    let status = |login: &[&str]| {
        let mut command = curl(&world.proxy);
        command.args(login).args(["--write-out", "%{http_code}", "--output", "/dev/null"]);
        succeed(command.arg(world.target("/a")))
    };
    assert_eq!(status(&[]), "407");
    assert_eq!(status(&["--proxy-user", "anna:wrong"]), "407");
    assert_eq!(status(&["--proxy-user", "nobody:secret"]), "407");
    assert_eq!(status(&["--proxy-user", "anna:"]), "407");
    assert_eq!(status(&["--proxy-user", "anna:secret"]), "200");
    assert_eq!(status(&["--proxy-anyauth", "--proxy-user", "bo:secret"]), "200");
}

#[test]
fn a_challenge_has_a_page_and_the_connection_stays() {
    let world = world("http_access allow users\nhttp_access deny all\n");
    let mut client = world.client();
    for _ in 0..2 {
        client.request("GET", &world.target("/a"), &[], b"");
        let answer = client.response().expect(407);
        assert_eq!(answer.field("Proxy-Authenticate"), Some("Basic realm=\"Private\""));
        assert_eq!(answer.field("WWW-Authenticate"), None);
        assert!(answer.text().contains("ERR_CACHE_ACCESS_DENIED"), "{}", answer.text());
    }
    let login = basic("anna:secret");
    client.request("GET", &world.target("/a"), &[("Proxy-Authorization", &login)], b"");
    let answer = client.response().expect(200);
    assert_eq!((answer.text().as_str(), answer.field("Proxy-Authenticate")), ("hello", None));
    client.request("HEAD", &world.target("/a"), &[], b"");
    let _ = client.response_to("HEAD").expect(407);
    client.request("GET", &world.target("/a"), &[("Proxy-Authorization", &login)], b"");
    assert_eq!(client.response().expect(200).cache(), "HIT");
    assert_eq!(world.origin.count("/a"), 1);
}

#[test]
fn others_credentials_are_no_login() {
    let world = world("http_access allow users\nhttp_access deny all\n");
    for value in
        ["Basic", "Basic ?", "Basic YW5uYTpzZWNyZXQ", "Digest x", "Bearer YW5uYTpzZWNyZXQ="]
    {
        let _ = world.ask("GET", "/a", &[("Proxy-Authorization", value)]).expect(407);
    }
    let right = basic("anna:secret");
    // Credentials for a server are none for the proxy.
    let _ = world.ask("GET", "/a", &[("Authorization", &right)]).expect(407);
    let _ = world.ask("GET", "/a", &[("Proxy-Authorization", &right)]).expect(200);
}

/// As in Squid: the ACL that is checked last decides whether another login can help.
#[test]
fn a_user_who_may_not_is_asked_for_another_login_where_the_rule_ends_with_the_users() {
    for (rules, status) in [
        ("http_access deny !staff\n", 407),
        ("http_access deny !staff all\n", 403),
        ("http_access allow staff\nhttp_access deny all\n", 403),
        ("acl own src 127.0.0.1\nhttp_access deny own !staff\n", 407),
    ] {
        let world = world(rules);
        let _ = get_as(&world, "eve:secret", "/a").expect(status);
        let _ = get_as(&world, "anna:secret", "/a").expect(200);
        let _ = world.get("/a").expect(407);
    }
}

#[test]
fn a_tunnel_needs_a_login_too() {
    let world = world("http_access allow users\nhttp_access deny all\n");
    let host = world.origin.address().to_string();
    let mut client = world.client();
    client.request("CONNECT", &host, &[("Host", &host)], b"");
    let _ = client.response_to("CONNECT").expect(407);
    let tunnel = || {
        let mut command = curl(&world.proxy);
        command.args(["--proxytunnel", "--write-out", "%{http_connect}"]);
        command
    };
    let through = |login| succeed(tunnel().args(["--proxy-user", login]).arg(world.target("/a")));
    assert_eq!(through("anna:secret"), "hello200");
    let refused = run(tunnel().args(["--proxy-user", "anna:no"]).arg(world.target("/a")));
    assert!(String::from_utf8_lossy(&refused.stdout).ends_with("407"));
    let line = world.proxy.logged("TCP_TUNNEL/200");
    assert!(line.contains(" anna "), "{line}");
}

#[test]
fn a_body_is_sent_once_the_client_has_logged_in() {
    let world = world("http_access allow users\nhttp_access deny all\n");
    world.origin.on("/up", Reply::ok("taken"));
    let body = "b".repeat(300_000);
    let mut client = world.client();
    client.request("POST", &world.target("/up"), &[], body.as_bytes());
    let _ = client.response().expect(407);
    assert_eq!(world.origin.count("/up"), 0);
    let file = world.proxy.path("body");
    fs::write(&file, &body).expect("a file");
    let data = format!("@{}", file.display());
    // The first request of curl has no login.
    let args = ["--proxy-anyauth", "--proxy-user", "anna:secret", "--data-binary", &data];
    assert_eq!(succeed(curl(&world.proxy).args(args).arg(world.target("/up"))), "taken");
    assert_eq!(world.origin.last("/up").body.bytes, body.as_bytes());
}

#[test]
fn a_changed_file_counts_for_new_checks() {
    let world = world(
        "auth_param basic credentialsttl 1 hour\nhttp_access allow users\nhttp_access deny all\n",
    );
    let _ = get_as(&world, "zoe:secret", "/a").expect(407);
    let _ = get_as(&world, "anna:secret", "/a").expect(200);
    let file = world.proxy.path("passwd");
    fs::write(&file, PASSWORDS.replace("anna", "zoe")).expect("a password file");
    let _ = get_as(&world, "zoe:secret", "/a").expect(200);
    let _ = get_as(&world, "anna:secret", "/a").expect(200);
    let _ = get_as(&world, "Anna:secret", "/a").expect(407);
    // Nobody can be checked without the file: that is a refusal, and no login helps.
    fs::remove_file(&file).expect("removed");
    let answer = get_as(&world, "bo:secret", "/a");
    assert_eq!((answer.status(), answer.field("Proxy-Authenticate")), (503, None));
    until("a line in cache.log", || {
        let text = world.proxy.text("cache.log");
        text.contains("logins cannot be checked: cannot read").then_some(())
    });
    fs::write(&file, PASSWORDS).expect("a password file");
    let _ = get_as(&world, "bo:secret", "/a").expect(200);
}

#[test]
fn passwords_of_htpasswd_are_known() {
    let world = world("http_access allow users\nhttp_access deny all\n");
    for (form, user) in [("-B", "b"), ("-m", "m"), ("-s", "s"), ("-2", "two"), ("-5", "five")] {
        let mut command = Command::new(program("htpasswd"));
        let text = run(command.args(["-nb", form, user, "pass word"])).stdout;
        if text.is_empty() {
            humboldt_tests::skip(&format!("htpasswd does not know {form}"));
            continue;
        }
        let file = world.proxy.path("passwd");
        fs::write(file, text).expect("a password file");
        let _ = get_as(&world, &format!("{user}:pass word"), "/a").expect(200);
        let _ = get_as(&world, &format!("{user}:pass"), "/a").expect(407);
    }
}

#[test]
fn the_log_has_the_user_and_nobody_gets_the_credentials() {
    let world = world(
        "logformat all %>a %un %ul %>Hs %ru %>h %{Proxy-Authorization}>h %note\n\
         access_log stdio:{dir}/all.log all\nlog_mime_hdrs on\ndebug_options ALL,9\n\
         http_access allow users\nhttp_access deny all\n",
    );
    world.origin.on("/miss", Reply::ok("x").with("Cache-Control", "no-store"));
    let secrets = ["anna:secret", "eve:wrongword"].map(basic);
    let _ = get_as(&world, "anna:secret", "/a").expect(200);
    let _ = get_as(&world, "Anna:secret", "/a").expect(200);
    let _ = get_as(&world, "anna:secret", "/miss").expect(200);
    let _ = get_as(&world, "eve:wrongword", "/a").expect(407);
    let lines = world.proxy.logged_times("/a", 3);
    for (result, user) in [
        ("TCP_MISS/200", " anna HIER_DIRECT"),
        ("TCP_MEM_HIT/200", " anna HIER_NONE"),
        ("TCP_DENIED/407", " eve HIER_NONE"),
    ] {
        let is_wanted = |line: &String| line.contains(result) && line.contains(user);
        assert!(lines.iter().any(is_wanted), "{result}: {lines:?}");
    }
    let all = until("the other log", || {
        let text = world.proxy.text("all.log");
        (text.lines().count() >= 4).then_some(text)
    });
    let seen = String::from_utf8_lossy(&world.origin.received()).into_owned();
    assert!(!seen.to_ascii_lowercase().contains("proxy-auth"), "{seen}");
    let cache_log = world.proxy.text("cache.log");
    for text in [all, seen, cache_log, world.proxy.text("access.log")] {
        let words = secrets.iter().map(|value| value.trim_start_matches("Basic "));
        for secret in words.chain(["wrongword", "secret"]) {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
    }
    // TRACE sends a request back.
    let traced =
        world.ask("TRACE", "/a", &[("Proxy-Authorization", &secrets[0]), ("Max-Forwards", "0")]);
    assert!(!traced.text().contains(secrets[0].trim_start_matches("Basic ")), "{}", traced.text());
}

/// An accelerator that checks logins, in front of a peer with these options.
fn accelerator(origin: &humboldt_tests::Origin, options: &str) -> Proxy {
    let (ip, port) = (origin.address().ip(), origin.address().port());
    let lines = format!(
        "cache_peer {ip} parent {port} 0 no-query originserver {options}\n{FILE}acl open urlpath_regex ^/open\n\
         http_access allow open\nhttp_access allow users\nhttp_access deny all\n"
    );
    let proxy = Proxy::start("accel defaultsite=site.test", &lines);
    fs::write(proxy.path("passwd"), PASSWORDS).expect("a password file");
    for path in ["/a", "/open"] {
        origin.on(path, Reply::ok("hello").with("Cache-Control", "no-store"));
    }
    proxy
}

#[test]
fn an_accelerator_asks_as_a_server_does_and_keeps_the_login() {
    for (options, passes) in [("", false), ("login=PASS", true), ("login=PASSTHRU", true)] {
        let origin = humboldt_tests::Origin::new();
        let proxy = accelerator(&origin, options);
        let get = |path: &str, field: &str, login: &str| {
            let mut client = proxy.client();
            client.request("GET", path, &[(field, &basic(login))], b"").response()
        };
        let answer = get("/a", "Proxy-Authorization", "anna:secret").expect(401);
        assert_eq!(answer.field("WWW-Authenticate"), Some("Basic realm=\"Private\""));
        assert_eq!(answer.field("Proxy-Authenticate"), None);
        let _ = get("/a", "Authorization", "anna:wrong").expect(401);
        let _ = get("/a", "Authorization", "anna:secret").expect(200);
        let login = basic("anna:secret");
        let seen = origin.last("/a").head.field("Authorization").map(str::to_owned);
        assert_eq!(seen, passes.then_some(login.clone()), "{options}");
        // Browsers send it also for what no rule asks about.
        let _ = get("/open", "Authorization", "anna:secret").expect(200);
        let seen = origin.last("/open").head.field("Authorization").map(str::to_owned);
        assert_eq!(seen, passes.then_some(login), "{options}");
        let lines = proxy.logged_times("TCP_MISS/200", 2);
        assert!(lines.iter().any(|line| line.contains("/a anna ")), "{lines:?}");
    }
}

#[test]
fn a_parent_gets_the_name_of_the_user_with_a_password_of_our_own() {
    let parent = humboldt_tests::Origin::new();
    let (ip, port) = (parent.address().ip(), parent.address().port());
    let peer = |options: &str| {
        let lines = format!(
            "cache_peer {ip} parent {port} 0 no-query {options}\nnever_direct allow all\n{FILE}\
             acl open urlpath_regex ^/open\nhttp_access allow open\nhttp_access allow users\n"
        );
        let proxy = Proxy::forward(&lines);
        fs::write(proxy.path("passwd"), PASSWORDS).expect("a password file");
        proxy
    };
    for path in ["/a", "/open"] {
        parent.on(path, Reply::ok("x").with("Cache-Control", "no-store"));
    }
    let sent = |proxy: &Proxy, path: &str| {
        let url = format!("http://site.test{path}");
        let login = basic("anna:secret");
        let mut client = proxy.client();
        client.request("GET", &url, &[("Proxy-Authorization", &login)], b"");
        let _ = client.response().expect(200);
        let head = parent.last(path).head;
        ["Proxy-Authorization", "Authorization"].map(|name| head.field(name).map(str::to_owned))
    };
    let named = peer("login=*:word");
    assert_eq!(sent(&named, "/a"), [Some(basic("anna:word")), None]);
    // Nobody has checked this login.
    assert_eq!(sent(&named, "/open"), [Some(basic("-:word")), None]);
    assert_eq!(sent(&peer("login=PROXYPASS"), "/a"), [Some(basic("anna:secret")), None]);
    assert_eq!(sent(&peer("login=PASS"), "/a"), [Some(basic("anna:secret")), None]);
    assert_eq!(sent(&peer(""), "/a"), [None, None]);
    let server = peer("originserver login=PROXYPASS");
    assert_eq!(sent(&server, "/a"), [None, Some(basic("anna:secret"))]);
    assert_eq!(sent(&peer("originserver login=*:word"), "/a"), [None, Some(basic("anna:word"))]);
    assert_eq!(sent(&peer("originserver login=PASS"), "/a"), [None, None]);
}

#[test]
fn an_answer_for_one_user_is_not_given_to_another() {
    for option in ["login=PROXYPASS", "login=*:word"] {
        let server = humboldt_tests::Origin::new();
        let (ip, port) = (server.address().ip(), server.address().port());
        let lines = format!(
            "cache_peer {ip} parent {port} 0 no-query originserver {option}\n\
             never_direct allow all\n{FILE}http_access allow users\n"
        );
        let proxy = Proxy::forward(&lines);
        fs::write(proxy.path("passwd"), PASSWORDS).expect("a password file");
        let private = |text: &str| Reply::ok(text).with("Cache-Control", "max-age=100");
        server.on_each("/own", vec![private("one"), private("two"), private("three")]);
        let public = Reply::ok("all").with("Cache-Control", "public, max-age=100");
        server.on("/all", public);
        let get = |user: &str, path: &str| {
            let mut client = proxy.client();
            let login = basic(user);
            let url = format!("http://site.test{path}");
            client.request("GET", &url, &[("Proxy-Authorization", &login)], b"");
            client.response().expect(200)
        };
        let texts =
            ["anna:secret", "bo:secret", "anna:secret"].map(|user| get(user, "/own").text());
        assert_eq!(texts, ["one", "two", "three"], "{option}");
        assert_eq!(get("anna:secret", "/all").text() + &get("bo:secret", "/all").text(), "allall");
    }
}

#[test]
fn who_guesses_passwords_waits_and_is_refused_and_others_are_not() {
    let world = world("http_access allow users\nhttp_access deny all\n");
    let _ = get_as(&world, "anna:secret", "/a").expect(200);
    for number in 0..8 {
        let _ = get_as(&world, &format!("eve:{number}"), "/a").expect(407);
    }
    let guess = |number: usize| {
        let mut client = world.client();
        let login = basic(&format!("eve:guess{number}"));
        client.request("GET", &world.target("/a"), &[("Proxy-Authorization", &login)], b"");
        client
    };
    // More than have a turn within ten seconds.
    let mut guesses: Vec<Client> = (0..30).map(guess).collect();
    let text = until("a refusal", || {
        let mut answered = guesses.iter_mut().filter_map(|guess| {
            let answer = guess.has_input().then(|| guess.response())?;
            (answer.status() == 503).then(|| answer.text())
        });
        answered.next()
    });
    assert!(text.contains("too many wrong logins"), "{text}");
    // A login that is remembered needs no check; and another address has its own turns.
    assert_eq!(get_as(&world, "anna:secret", "/a").expect(200).cache(), "HIT");
    let mut other = Client::from_to([127, 0, 0, 2].into(), world.proxy.address());
    let login = basic("bo:secret");
    other.request("GET", &world.target("/a"), &[("Proxy-Authorization", &login)], b"");
    let _ = other.response().expect(200);
}

#[test]
fn a_program_that_checks_logins_leaves_no_core_dump() {
    let mut world = world("cache_effective_user root\nhttp_access deny !users\n");
    // A process that has changed its user leaves none anyway.
    let none = Rlimit { current: None, maximum: None };
    setrlimit(Resource::Core, none).expect("no limit of core dumps");
    world.proxy.restart();
    let _ = get_as(&world, "anna:secret", "/a").expect(200);
    world.proxy.signal(Signal::ABORT);
    let status = world.proxy.wait_end();
    assert_eq!((status.signal(), status.core_dumped()), (Some(6), false));
}

/// A helper program of the test's own: lines of a shell's `case "$user $password"`.
fn script(proxy: &Proxy, cases: &str) {
    let path = proxy.path("helper");
    let text = format!(
        "#!/bin/sh\nwhile read -r line; do\n  echo \"$line\" >> \"$0.asked\"\n  case \"$line\" in\n\
         {cases}\n  *) echo ERR ;;\n  esac\ndone\n"
    );
    fs::write(&path, text).expect("a script");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
}

/// A proxy whose logins are checked by a script with these cases.
fn scripted(cases: &str, lines: &str) -> World {
    let mut world = World::forward(&format!(
        "auth_param basic program {{dir}}/helper\nauth_param basic children 2 startup=0 idle=1\n\
         acl users proxy_auth REQUIRED\n{lines}"
    ));
    script(&world.proxy, cases);
    world.proxy.restart();
    world.origin.on("/a", Reply::ok("hello").cachable(60));
    world
}

#[test]
fn a_program_checks_logins_and_its_words_are_annotations() {
    let world = scripted(
        "  \"anna s%20t\"*) echo 'OK user=other group=g1 group=g2 message=\"hello you\" password=x' ;;\n  \
         bo*) echo 'ERR message=\"locked out\"' ;;\n  eve*) echo 'BH message=broken' ;;",
        "auth_param basic key_extras \"%>a %>rm\"\nacl g2 note group g2\n\
         logformat noted %>Hs %un [%note]\naccess_log stdio:{dir}/noted.log noted\n\
         http_access deny users !g2\nhttp_access allow users\nhttp_access deny all\n",
    );
    for _ in 0..3 {
        let _ = get_as(&world, "Anna:s t", "/a").expect(200);
    }
    let _ = get_as(&world, "bo:x", "/a").expect(407);
    let _ = get_as(&world, "eve:x", "/a").expect(407);
    let log = until("five lines", || {
        let text = world.proxy.text("noted.log");
        (text.lines().count() >= 5).then_some(text)
    });
    let notes = "user:%20other%0D%0Agroup:%20g1%0D%0Agroup:%20g2%0D%0Amessage:%20hello%20you%0D%0A";
    let of_anna = format!("200 anna [{notes}]\n");
    // Lines of two cores are in any order.
    let of_others =
        ["407 bo [message:%20locked%20out%0D%0A]\n", "407 eve [message:%20broken%0D%0A]\n"];
    assert_eq!(log.matches(&of_anna).count(), 3, "{log}");
    assert!(of_others.iter().all(|line| log.contains(line)), "{log}");
    let asked = world.proxy.text("helper.asked");
    let mut lines: Vec<_> = asked.lines().collect();
    lines.dedup();
    assert_eq!(lines, ["anna s%20t 127.0.0.1 GET", "bo x 127.0.0.1 GET", "eve x 127.0.0.1 GET"]);
    assert_eq!(asked.matches("anna").count(), 1, "right answers are remembered: {asked}");
}

#[test]
fn without_a_program_that_runs_nobody_passes() {
    let world = World::forward(
        "auth_param basic program /no/such/program\nacl users proxy_auth REQUIRED\n\
         http_access deny !users\n",
    );
    world.origin.on("/a", Reply::ok("hello"));
    let _ = world.get("/a").expect(407);
    let _ = get_as(&world, "anna:secret", "/a").expect(503);
}

/// A proxy with Digest, these secrets, and these lines.
fn digest_world(program: &str, secrets: &str, lines: &str) -> World {
    let world = World::forward(&format!(
        "auth_param digest program {program}\nauth_param digest realm Private\n\
         acl users proxy_auth REQUIRED\n{lines}\
         http_access allow users\nhttp_access deny all\n"
    ));
    fs::write(world.proxy.path("secrets"), secrets).expect("a file");
    world.origin.on("/a", Reply::ok("hello").cachable(60));
    world.origin.on("/up", Reply::ok("taken"));
    world
}

/// Status and body that curl gets with this login, for these arguments and URLs.
fn digest_curl(world: &World, login: &str, arguments: &[&str], paths: &[&str]) -> String {
    let mut command = curl(&world.proxy);
    command.args(["--proxy-digest", "--proxy-user", login, "--write-out", "%{http_code} "]);
    command.args(arguments).args(paths.iter().map(|path| world.target(path)));
    String::from_utf8_lossy(&run(&mut command).stdout).into_owned()
}

/// MD5 of `anna:Private:secret`.
const ANNA: &str = "c954bed284a73a83c9281966ff680dda";

#[test]
fn curl_logs_in_with_digest() {
    let hashed = format!("bo:Private:x\nanna:Private:{ANNA}\n");
    let helper = "/usr/lib/squid/digest_file_auth";
    for (program, secrets) in [
        (format!("{helper} {{dir}}/secrets"), "anna:secret\n".to_owned()),
        (format!("{helper} -c {{dir}}/secrets"), hashed.clone()),
        // Squid's program itself.
        (format!("/bin/sh -c \"sleep 0; exec {helper} -c {{dir}}/secrets\""), hashed),
    ] {
        if program.contains("exec") && !std::path::Path::new(helper).exists() {
            humboldt_tests::skip("Squid's helpers are not installed");
            continue;
        }
        let world = digest_world(&program, &secrets, "");
        let get = |login: &str| digest_curl(&world, login, &["--output", "/dev/null"], &["/a"]);
        assert_eq!(get("anna:secret"), "200 ", "{program}");
        assert_eq!(get("anna:wrong"), "407 ");
        assert_eq!(get("bo:secret"), "407 ");
        assert_eq!(get("nobody:secret"), "407 ");
        let post = digest_curl(&world, "anna:secret", &["--data", "body"], &["/up", "/up"]);
        assert_eq!(post, "taken200 taken200 ");
        let tunnel = digest_curl(&world, "anna:secret", &["--proxytunnel"], &["/a"]);
        assert_eq!(tunnel, "hello200 ");
        assert!(world.proxy.logged("TCP_TUNNEL/200").contains(" anna "));
    }
}

#[test]
fn a_digest_counts_once() {
    let secrets = format!("anna:Private:{ANNA}\n");
    let program = "/x/digest_file_auth -c {dir}/secrets";
    let world = digest_world(program, &secrets, "auth_param digest nonce_max_count 3\n");
    // The client gets new nonces without asking anybody.
    let all = digest_curl(&world, "anna:secret", &[], &["/a"; 8]);
    assert_eq!(all.matches("hello200").count(), 8, "{all}");
    let mut command = curl(&world.proxy);
    command.args(["--proxy-digest", "--proxy-user", "anna:secret", "--verbose"]);
    let trace = run(command.arg(world.target("/a")));
    let trace = String::from_utf8_lossy(&trace.stderr).into_owned();
    let sent = trace.lines().rev().find_map(|line| line.strip_prefix("> Proxy-Authorization: "));
    let sent = sent.expect("what curl has sent").trim_end().to_owned();
    assert!(trace.contains("Digest realm=\"Private\"") && trace.contains("stale=false"), "{trace}");
    let again = world.ask("GET", "/a", &[("Proxy-Authorization", &sent)]).expect(407);
    let challenge = again.field("Proxy-Authenticate").expect("a challenge");
    assert!(challenge.contains("stale=true"), "{challenge}");
    // Another method, or another user, is another digest.
    let _ = world.ask("DELETE", "/a", &[("Proxy-Authorization", &sent)]).expect(407);
    let log = world.proxy.text("access.log");
    assert!(!log.contains("Digest") && !log.contains(ANNA), "{log}");
}

#[test]
fn both_schemes_are_offered_and_taken() {
    let world = digest_world(
        "/x/digest_file_auth {dir}/secrets",
        "anna:secret\n",
        "auth_param basic program /x/basic_ncsa_auth {dir}/passwd\nauth_param basic realm Private\n",
    );
    fs::write(world.proxy.path("passwd"), PASSWORDS).expect("a password file");
    let answer = world.get("/a").expect(407);
    let challenges: Vec<_> =
        answer.head.fields.iter().filter(|(name, _)| name == "Proxy-Authenticate").collect();
    assert!(challenges[0].1.starts_with("Digest ") && challenges[1].1.starts_with("Basic "));
    assert_eq!(challenges.len(), 2);
    let _ = get_as(&world, "bo:secret", "/a").expect(200);
    assert_eq!(digest_curl(&world, "anna:secret", &[], &["/a"]), "hello200 ");
    assert_eq!(digest_curl(&world, "bo:secret", &["-o", "/dev/null"], &["/a"]), "407 ");
}

/// A directory with the user anna, whose password is `secret`; `None` without the program.
fn directory(folder: &std::path::Path) -> Option<(std::process::Child, std::net::SocketAddr)> {
    let slapd = std::path::Path::new("/usr/sbin/slapd");
    let helper = std::path::Path::new("/usr/lib/squid/basic_ldap_auth");
    if !slapd.exists() || !helper.exists() {
        return None;
    }
    let path = folder.display();
    fs::create_dir(folder.join("data")).expect("a folder");
    let settings = format!(
        "include /etc/ldap/schema/core.schema\nmodulepath /usr/lib/ldap\nmoduleload back_mdb\n\
         pidfile {path}/slapd.pid\ndatabase mdb\nsuffix dc=test\ndirectory {path}/data\n"
    );
    fs::write(folder.join("slapd.conf"), settings).expect("a configuration");
    let entries = "dn: dc=test\nobjectClass: dcObject\nobjectClass: organization\no: test\ndc: test\n\n\
                   dn: cn=anna,dc=test\nobjectClass: person\ncn: anna\nsn: anna\nuserPassword: secret\n";
    fs::write(folder.join("entries"), entries).expect("entries");
    let conf = folder.join("slapd.conf");
    succeed(
        Command::new(program("slapadd")).arg("-f").arg(&conf).arg("-l").arg(folder.join("entries")),
    );
    let address = free_address();
    let mut command = Command::new(slapd);
    command.args(["-d", "0", "-h", &format!("ldap://{address}"), "-f"]).arg(&conf);
    let server = start(&mut command).expect("slapd");
    until("slapd to listen", || std::net::TcpStream::connect(address).ok());
    Some((server, address))
}

#[test]
fn a_directory_checks_logins() {
    let folder = open_folder();
    let Some((mut server, address)) = directory(folder.path()) else {
        humboldt_tests::skip("slapd or basic_ldap_auth is not installed");
        return;
    };
    let world = World::forward(&format!(
        "auth_param basic program /usr/lib/squid/basic_ldap_auth -b \"dc=test\" -u cn -H ldap://{address}\n\
         acl users proxy_auth REQUIRED\nhttp_access deny !users\n"
    ));
    world.origin.on("/a", Reply::ok("hello"));
    let answers = ["anna:secret", "anna:wrong", "bo:secret", "anna:secret"]
        .map(|login| get_as(&world, login, "/a").status());
    server.kill().expect("slapd runs");
    server.wait().expect("slapd ends");
    assert_eq!(answers, [200, 407, 407, 200]);
}

/// Squid's own programs.
#[test]
fn the_programs_of_squid_check_logins() {
    let helpers = "/usr/lib/squid";
    if !std::path::Path::new(helpers).join("basic_fake_auth").exists() {
        humboldt_tests::skip("Squid's helpers are not installed");
        return;
    }
    for (program, login, others) in [
        ("/usr/lib/squid/basic_fake_auth", "anna:secret", None),
        (
            "/bin/sh -c \"exec /usr/lib/squid/basic_ncsa_auth {dir}/passwd\"",
            "bo:secret",
            Some("bo:x"),
        ),
        ("/usr/lib/squid/basic_getpwnam_auth", "", Some("root:x")),
    ] {
        let rules = "acl users proxy_auth REQUIRED\nhttp_access deny !users\n";
        let world = World::forward(&format!("auth_param basic program {program}\n{rules}"));
        fs::write(world.proxy.path("passwd"), PASSWORDS).expect("a password file");
        world.origin.on("/a", Reply::ok("hello"));
        if !login.is_empty() {
            let _ = get_as(&world, login, "/a").expect(200);
        }
        if let Some(wrong) = others {
            let _ = get_as(&world, wrong, "/a").expect(407);
        }
    }
}
