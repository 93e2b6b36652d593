//! Logins and helper programs of all kinds through reconfigurations (`-k reconfigure`, SIGHUP).

use humboldt_tests::scripts::Scripts;
use humboldt_tests::wait::until;
use humboldt_tests::{Client, Reply, World, proxy};
use rustix::process::Signal;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

/// The password is `secret`.
const ANNA: &str = "anna:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n";

/// `anna:secret`
const LOGIN: (&str, &str) = ("Proxy-Authorization", "Basic YW5uYTpzZWNyZXQ=");

/// A login by a password file, a helper that decides, one that rewrites, and one that names
/// objects.
fn lines(scripts: &Scripts, decides: &str, rewrites: &str) -> String {
    let names = scripts.helper("names", "echo ERR");
    format!(
        "auth_param basic program /usr/lib/squid/basic_ncsa_auth {}\n\
         external_acl_type decider ttl=0 negative_ttl=0 children-max=2 %PATH {decides}\n\
         acl users proxy_auth REQUIRED\nacl good external decider\n\
         url_rewrite_program {rewrites}\nurl_rewrite_children 2 startup=1 idle=1 concurrency=0\n\
         store_id_program {names}\nstore_id_children 2 startup=1 idle=1 concurrency=0\n\
         http_access allow manager\nhttp_access deny !users\nhttp_access deny !good\n",
        scripts.path("passwd").display()
    )
}

/// Takes the configuration over, by a signal or by the command.
fn reload(world: &World, lines: &str, by_command: bool) {
    let before = world.proxy.reconfigurations();
    world.proxy.write_configuration("", lines);
    match by_command {
        true => {
            let ended = proxy::run(&["-k", "reconfigure", "-f", &world.proxy.configuration()]);
            assert!(ended.status.success(), "{ended:?}");
        }
        false => world.proxy.signal(Signal::HUP),
    }
    world.proxy.wait_for_reconfigurations(before + 1);
}

/// The processes of a script that run.
fn processes(script: &str) -> usize {
    let of = |entry: fs::DirEntry| fs::read(entry.path().join("cmdline")).ok();
    let all = fs::read_dir("/proc").expect("/proc").flatten().filter_map(of);
    all.filter(|line| String::from_utf8_lossy(line).contains(script)).count()
}

#[test]
fn no_request_is_lost_or_decided_by_old_helpers_after_a_reconfiguration() {
    let scripts = Scripts::new();
    scripts.write("passwd", ANNA);
    let first = scripts.helper("first", "echo OK");
    let second = scripts.helper("second", "case $line in */closed*) echo ERR;; *) echo OK;; esac");
    let plain = scripts.helper("plain", "echo ERR");
    let moves = scripts.helper(
        "moves",
        "set -- $line; case $1 in */old) echo OK rewrite-url=\\\"${1%/old}/new\\\";; *) echo ERR;; esac",
    );
    let world = World::forward(&lines(&scripts, &first, &plain));
    for path in ["/old", "/new", "/closed", "/busy"] {
        world.origin.on(path, Reply::ok(path));
    }
    let ask = |path: &str| world.ask("GET", path, &[LOGIN]);
    assert_eq!(ask("/old").expect(200).text(), "/old");
    let _ = ask("/closed").expect(200);
    let _ = world.get("/old").expect(407);

    // Clients go on meanwhile: none is refused, and none has to log in again.
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = Client::to(world.proxy.address());
                while !is_over.load(Ordering::Relaxed) {
                    client.request("GET", &world.target("/busy"), &[LOGIN], b"");
                    let _ = client.response().expect(200);
                }
            });
        }
        for round in 0..4 {
            let (decides, rewrites) =
                if round % 2 == 0 { (&second, &moves) } else { (&first, &plain) };
            reload(&world, &lines(&scripts, decides, rewrites), round % 2 == 0);
            let (status, body) = if round % 2 == 0 { (403, "/new") } else { (200, "/old") };
            assert_eq!(ask("/closed").status(), status, "round {round}");
            assert_eq!(ask("/old").expect(200).text(), body, "round {round}");
        }
        is_over.store(true, Ordering::Relaxed);
    });

    // The processes of helpers that are configured no more have ended.
    until("the old helpers to end", || {
        let path = |name: &str| scripts.path(name).display().to_string();
        (processes(&path("second")) + processes(&path("moves")) == 0).then_some(())
    });
    // A configuration with an error changes nothing.
    world.proxy.write_configuration("", "auth_param basic program\nno_such_directive\n");
    world.proxy.signal(Signal::HUP);
    until("a report", || {
        world.proxy.text("cache.log").contains("the old configuration stays").then_some(())
    });
    let _ = ask("/closed").expect(200);
    let _ = world.get("/closed").expect(407);
    // Logins that were right by one password file are not by another one.
    let file = scripts.path("passwd").display().to_string();
    let other = scripts.write("others", &ANNA.replace("anna", "otto")).display().to_string();
    reload(&world, &lines(&scripts, &first, &plain).replace(&file, &other), true);
    let _ = ask("/closed").expect(407);
    let log = world.proxy.text("cache.log");
    assert!(!log.contains("panicked"), "{log}");
}
