//! `humboldt ca new`: an authority for interception, and what it tells.

use humboldt_tests::Proxy;
use humboldt_tests::authority::{Authority, Key, openssl};
use humboldt_tests::proxy::{is_squid, open_folder, run};
use humboldt_tests::servers::{Server, curl, succeed};
use humboldt_tests::wait::until;
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Runs the command; its status, what it prints, and its complaint.
fn ca_new(folder: &Path, more: &[&str]) -> (bool, String, String) {
    let folder = folder.display().to_string();
    let output = run(&[&["ca", "new", &folder], more].concat());
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

#[test]
fn an_authority_is_made_and_never_overwritten() {
    if is_squid() {
        return;
    }
    let folder = open_folder();
    let place = folder.path().join("new/ca");
    let (ok, told, complaint) = ca_new(&place, &["--name", "Office", "--days", "100"]);
    assert!(ok && complaint.is_empty(), "{complaint}");
    let (certificate, key) = (place.join("authority.crt"), place.join("authority.key"));
    let metadata = |path: &Path| fs::metadata(path).expect("a file");
    assert_eq!(metadata(&key).mode() & 0o777, 0o600);
    assert_eq!(metadata(&certificate).mode() & 0o022, 0);
    if rustix::process::geteuid().is_root() {
        assert_ne!(metadata(&key).uid(), 0, "it is read again when root's rights are given up");
    }
    // OpenSSL reads the same as the command says.
    let shown = |options: &[&str]| {
        let mut command = openssl("x509");
        succeed(command.arg("-noout").args(options).arg("-in").arg(&certificate))
    };
    let fingerprint = shown(&["-sha256", "-fingerprint"]);
    let (_, fingerprint) = fingerprint.trim().split_once('=').expect("a digest");
    assert!(told.contains(fingerprint), "{told}");
    let text = shown(&["-text"]);
    assert!(text.contains("CA:TRUE, pathlen:0") && text.contains("Certificate Sign, CRL Sign"));
    assert!(text.contains("Subject: CN = Office") || text.contains("Subject: CN=Office"), "{text}");
    assert!(told.contains("Office") && told.contains("update-ca-certificates"), "{told}");
    // Again: nothing changes, whichever of the files is there.
    let before = [&certificate, &key].map(|path| fs::read(path).expect("a file"));
    for is_alone in [false, true] {
        if is_alone {
            fs::remove_file(&certificate).expect("removed");
        }
        let (ok, told, complaint) = ca_new(&place, &[]);
        assert!(!ok && told.is_empty() && complaint.lines().count() == 1, "{complaint}");
        assert!(complaint.contains("authority.") && complaint.contains("exists"), "{complaint}");
        assert_eq!(fs::read(&key).expect("a file"), before[1]);
        assert_eq!(certificate.exists(), !is_alone);
    }
}

#[test]
fn the_lines_that_are_told_work_with_curl_and_after_a_reconfiguration() {
    if is_squid() {
        return;
    }
    let folder = open_folder();
    let (ok, told, _) = ca_new(folder.path(), &[]);
    assert!(ok);
    let line = told.lines().find(|line| line.contains("http_port")).expect("a port");
    let (_, options) = line.split_once("ssl-bump").expect("options");
    let rules: Vec<&str> = told
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with("acl ") || line.starts_with("ssl_bump "))
        .collect();
    let servers = Authority::new("servers");
    let own = servers.issue("own", Key::Ecdsa, "/CN=site.test", "DNS:site.test");
    let (file, key) = (own.file.display(), own.key.display());
    let server =
        Server::nginx("ssl", &format!("ssl_certificate {file}; ssl_certificate_key {key};"));
    server.put("a", "hello");
    fs::write(folder.path().join("hosts"), "127.0.0.1 site.test\n").expect("names");
    let lines = format!(
        "hosts_file {}/hosts\ntls_outgoing_options cafile={}\n{}\n",
        folder.path().display(),
        servers.ca().display(),
        rules.join("\n")
    );
    let port = format!("ssl-bump{options}");
    let proxy = Proxy::start(&port, &lines);
    let fetch = || {
        let mut command = curl(&proxy);
        command.arg("--cacert").arg(folder.path().join("authority.crt"));
        succeed(command.arg(format!("https://site.test:{}/a", server.address.port())))
    };
    assert_eq!(fetch(), "hello");
    proxy.write_configuration(&port, &format!("{lines}via off\n"));
    proxy.signal(Signal::HUP);
    until("the new configuration", || {
        proxy.text("cache.log").to_lowercase().contains("reconfigur").then_some(())
    });
    assert_eq!(fetch(), "hello");
}

#[test]
fn names_that_are_none_and_places_that_cannot_be_written_are_told_in_one_line() {
    if is_squid() {
        return;
    }
    let folder = open_folder();
    let long = "a".repeat(65);
    let place = folder.path().join("file/ca");
    fs::write(folder.path().join("file"), "").expect("a file");
    for (place, more) in
        [(folder.path(), &["--name", ""][..]), (folder.path(), &["--name", &long]), (&*place, &[])]
    {
        let (ok, told, complaint) = ca_new(place, more);
        assert!(!ok && told.is_empty() && complaint.lines().count() == 1, "{complaint}");
    }
    assert_eq!(fs::read_dir(folder.path()).expect("a directory").count(), 1, "nothing is left");
}
