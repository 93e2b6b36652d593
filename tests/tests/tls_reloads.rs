//! `https_port`: files that cannot be used, and what a reconfiguration changes.

use humboldt_tests::Reply;
use humboldt_tests::World;
use humboldt_tests::authority::{Authority, Certificate, Key, openssl};
use humboldt_tests::secured::{Secured, ca, port_line};
use humboldt_tests::servers::succeed;
use humboldt_tests::wait::{free_address, start, until};
use rustix::process::Signal;
use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

#[test]
fn a_reload_takes_over_new_certificates_and_drops_no_connection() {
    let secured = Secured::forward("", "");
    let origin = &secured.world.origin;
    origin.on("/a", Reply::ok("hello"));
    // A connection that stays open.
    let mut command = openssl("s_client");
    command.args(["-connect", &secured.address.to_string(), "-quiet", "-ign_eof"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut client = start(&mut command).expect("openssl");
    let mut to = client.stdin.take().expect("a pipe");
    let mut from = client.stdout.take().expect("a pipe");
    let mut ask = |connection: &str| {
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: a\r\nConnection: {connection}\r\n\r\n",
            origin.url("/a")
        );
        to.write_all(request.as_bytes()).expect("sent");
        let mut text = Vec::new();
        while !text.ends_with(b"hello") {
            let mut byte = [0];
            assert_eq!(from.read(&mut byte).expect("read"), 1);
            text.push(byte[0]);
        }
    };
    ask("keep-alive");
    let serial = |secured: &Secured| {
        let text = secured.handshake(&[]);
        let (_, rest) = text.split_once("subject=").expect("a subject");
        rest.lines().next().unwrap_or_default().to_owned()
    };
    let before = serial(&secured);
    let own = secured.authority.issue("own", Key::Ecdsa, "/CN=renewed", "DNS:localhost");
    assert!(own.file.ends_with("own.pem"));
    secured.world.proxy.signal(Signal::HUP);
    until("the new certificate", || (serial(&secured) == "CN = renewed").then_some(()));
    assert_ne!(before, "CN = renewed");
    ask("close");
    assert!(client.wait().expect("an end").success());
    // A file that cannot be used leaves all as it is.
    std::fs::write(&own.file, "nothing").expect("written");
    secured.world.proxy.signal(Signal::HUP);
    until("a message", || {
        let log = secured.world.proxy.text("cache.log") + &secured.world.proxy.output();
        log.contains("own.pem has no certificate in PEM form").then_some(())
    });
    assert_eq!(serial(&secured), "CN = renewed");
}

/// A client with a kept connection through TLS: `openssl s_client`.
struct Kept {
    child: std::process::Child,
    to: std::process::ChildStdin,
    from: std::process::ChildStdout,
}

impl Kept {
    fn new(address: SocketAddr, options: &[&str]) -> Self {
        let mut command = openssl("s_client");
        command.args(["-connect", &address.to_string(), "-quiet", "-ign_eof"]).args(options);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = start(&mut command).expect("openssl");
        let to = child.stdin.take().expect("a pipe");
        let from = child.stdout.take().expect("a pipe");
        Self { child, to, from }
    }

    /// The head of an answer whose body is `hello`.
    fn ask(&mut self, url: &str) -> String {
        let request = format!("GET {url} HTTP/1.1\r\nHost: a\r\n\r\n");
        self.to.write_all(request.as_bytes()).expect("sent");
        let mut text = Vec::new();
        while !text.ends_with(b"\r\n\r\nhello") {
            let mut byte = [0];
            assert_eq!(self.from.read(&mut byte).expect("read"), 1);
            text.push(byte[0]);
        }
        String::from_utf8_lossy(&text).into_owned()
    }
}

fn reconfigure(secured: &Secured, generation: u32) {
    secured.world.proxy.signal(Signal::HUP);
    until("the reconfiguration", || {
        let log = secured.world.proxy.text("cache.log");
        log.contains(&format!("Reconfigured, generation {generation}")).then_some(())
    });
}

#[test]
fn a_connection_does_not_outlive_new_demands_of_its_port() {
    let authority = Authority::new("tests");
    let own = authority.issue("own", Key::Ecdsa, "/CN=localhost", "DNS:localhost");
    let client = authority.issue("client", Key::Ecdsa, "/CN=client", "");
    let list = authority.revoke(None);
    let address = free_address();
    let options = format!("clientca={} crlfile={}", ca(&authority), list.display());
    let lines = port_line(address, "", &own, &options);
    let world = World::forward(&format!("{lines}\nworkers 1\n"));
    let secured = Secured { world, authority, address };
    let origin = &secured.world.origin;
    origin.on("/a", Reply::ok("hello"));
    let (file, key) = (client.file.display().to_string(), client.key.display().to_string());
    let mut kept = Kept::new(address, &["-cert", &file, "-key", &key]);
    let mut plain = secured.world.client();
    let mut ask_plain = || {
        plain.request("GET", &origin.url("/a"), &[], b"");
        plain.response().expect(200).field("Connection").map(str::to_owned)
    };
    ask_plain();
    assert!(!kept.ask(&origin.url("/a")).contains("Connection: close"));
    // The same again changes nothing.
    reconfigure(&secured, 2);
    assert!(!kept.ask(&origin.url("/a")).contains("Connection: close"));
    assert_eq!(secured.authority.revoke(Some(&client)), list);
    reconfigure(&secured, 3);
    assert!(kept.ask(&origin.url("/a")).contains("Connection: close"));
    assert!(kept.child.wait().expect("an end").success());
    assert_eq!(secured.status_with(Some(&client), &origin.url("/a")), "000");
    assert_ne!(ask_plain().as_deref(), Some("close"), "that port asks for nothing");
}

#[test]
fn an_answer_of_ocsp_goes_with_the_certificate() {
    let authority = Authority::new("tests");
    let own = authority.issue("own", Key::Ecdsa, "/CN=localhost", "DNS:localhost");
    let other = authority.issue("other", Key::Ecdsa, "/CN=other", "DNS:other.test");
    let answer = authority.ocsp(&own);
    let address = free_address();
    let ocsp = |file: &std::path::Path| format!("tls-ocsp={}", file.display());
    let lines = port_line(address, "", &own, &ocsp(&answer));
    let secured = Secured { world: World::forward(&lines), authority, address };
    for version in ["-tls1_3", "-tls1_2"] {
        let text = secured.handshake(&["-status", version]);
        for wanted in ["OCSP Response Status: successful", "Cert Status: good"] {
            assert!(text.contains(wanted), "{version}: {text}");
        }
    }
    let authority = &secured.authority;
    let old = authority.path("old.der");
    std::fs::copy(&answer, &old).expect("copied");
    let parse = |certificate: &Certificate, file: &std::path::Path| {
        let conf = authority.path("squid.conf");
        let port = port_line(free_address(), "", certificate, &ocsp(file));
        std::fs::write(&conf, format!("http_access deny all\n{port}\n")).expect("a file");
        let output =
            humboldt_tests::proxy::run(&["-k", "parse", "-f", &conf.display().to_string()]);
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(parse(&own, &answer), (true, String::new()));
    let revoked = authority.issue("revoked", Key::Ecdsa, "/CN=revoked", "DNS:revoked.test");
    _ = authority.revoke(Some(&revoked));
    let of_revoked = authority.ocsp(&revoked);
    for (certificate, file, wanted) in [
        (&other, &old, "it is for another certificate"),
        (&own, &own.file, "it is no answer of OCSP in DER"),
        (&revoked, &of_revoked, "it does not say that the certificate is good"),
    ] {
        let (is_good, said) = parse(certificate, file);
        assert!(!is_good && said.contains(wanted) && said.contains("squid.conf:2:1"), "{said}");
    }
}

#[test]
fn half_of_a_new_certificate_leaves_the_old_one() {
    let secured = Secured::forward("", "");
    let (file, key) = (secured.authority.path("own.pem"), secured.authority.path("own.key"));
    let (old, old_key) = (std::fs::read(&file).expect("read"), std::fs::read(&key).expect("read"));
    let own = secured.authority.issue("own", Key::Ecdsa, "/CN=renewed", "DNS:localhost");
    let (new, new_key) =
        (std::fs::read(&own.file).expect("read"), std::fs::read(&own.key).expect("read"));
    for (certificate, key_bytes, wanted) in [
        (&new[..new.len() / 2], &new_key[..], "own.pem"),
        (b"", &new_key[..], "own.pem has no certificate in PEM form"),
        (&new, &old_key[..], "does not belong to the certificate"),
        (&new, &new_key[..new_key.len() / 2], "own.key"),
    ] {
        std::fs::write(&file, certificate).expect("written");
        std::fs::write(&key, key_bytes).expect("written");
        let before = secured.world.proxy.text("cache.log").matches("own.").count();
        secured.world.proxy.signal(Signal::HUP);
        until(wanted, || {
            let log = secured.world.proxy.text("cache.log");
            (log.contains(wanted) && log.matches("own.").count() > before).then_some(())
        });
        let text = secured.handshake(&[]);
        assert!(text.contains("subject=CN = localhost"), "{wanted}: {text}");
    }
    std::fs::write(&file, old).expect("written");
    std::fs::write(&key, old_key).expect("written");
    reconfigure(&secured, 2);
}

#[test]
fn a_running_process_is_found_although_its_files_of_tls_cannot_be_read() {
    let mut secured = Secured::forward("", "");
    std::fs::write(secured.authority.path("own.pem"), "nothing").expect("written");
    let conf = secured.world.proxy.path("squid.conf").display().to_string();
    for (command, works) in
        [("check", true), ("rotate", true), ("parse", false), ("shutdown", true)]
    {
        let output = humboldt_tests::proxy::run(&["-k", command, "-f", &conf]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.success(), works, "{command}: {said}");
    }
    secured.world.proxy.wait_end();
}

/// Where the tests run as root, the program gives up root's rights, and cannot read what only root
/// can.
#[test]
fn a_key_that_only_root_can_read_is_named_at_the_start() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let authority = Authority::new("tests");
    let own = authority.issue("own", Key::Ecdsa, "/CN=localhost", "DNS:localhost");
    std::fs::set_permissions(&own.key, Permissions::from_mode(0o600)).expect("for root only");
    let address = free_address();
    let line = port_line(address, "", &own, "");
    let world = World::forward(&format!("{line}\ncache_effective_user nobody\n"));
    let secured = Secured { world, authority, address };
    until("a warning", || {
        let log = secured.world.proxy.text("cache.log") + &secured.world.proxy.output();
        let line = log
            .lines()
            .find(|line| line.contains("own.key cannot be read by the user"))?
            .to_owned();
        (line.contains("Permission denied") && !log.contains("own.pem cannot be read by"))
            .then_some(())
    });
    assert!(secured.handshake(&[]).contains("subject=CN = localhost"));
}

#[test]
fn files_that_cannot_be_used_are_named_with_their_line() {
    let authority = Authority::new("tests");
    let (own, other) = (
        authority.issue("own", Key::Ecdsa, "/CN=a", "DNS:a"),
        authority.issue("other", Key::Ecdsa, "/CN=b", "DNS:b"),
    );
    let encrypted = authority.path("encrypted.key");
    let mut command = openssl("pkey");
    command.arg("-in").arg(&own.key).args(["-aes256", "-passout", "pass:x", "-out"]);
    succeed(command.arg(&encrypted));
    let certificate = own.file.display();
    for (options, wanted) in [
        ("tls-cert=/no/such/file".to_owned(), "/no/such/file cannot be read: No such file"),
        (format!("tls-cert={certificate}"), "own.pem has no private key in PEM form"),
        (
            format!("tls-cert={certificate} tls-key={}", other.key.display()),
            "other.key does not belong to the certificate in",
        ),
        (
            format!("tls-cert={certificate} tls-key={}", encrypted.display()),
            "is encrypted, and nobody can be asked for its passphrase",
        ),
        (
            format!("tls-cert={certificate} tls-key={} clientca=/etc/hostname", own.key.display()),
            "/etc/hostname has no certificate in PEM form",
        ),
    ] {
        let file = authority.path("squid.conf");
        std::fs::write(&file, format!("http_access deny all\nhttps_port 4430 {options}\n"))
            .expect("a file");
        let output =
            humboldt_tests::proxy::run(&["-k", "parse", "-f", &file.display().to_string()]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(wanted), "{options}: {said}");
        assert!(said.contains("squid.conf:2:1: "), "{options}: {said}");
    }
}
