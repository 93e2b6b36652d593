//! Logins with Negotiate: a realm of Kerberos of the test's own, Squid's helper, and curl.

use humboldt_tests::proxy::open_folder;
use humboldt_tests::servers::{curl, program, run, succeed};
use humboldt_tests::wait::{end, free_address, start, until};
use humboldt_tests::{Reply, World};
use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

const HELPER: &str = "/usr/lib/squid/negotiate_kerberos_auth";

/// The service that curl asks a ticket for, at a proxy on this address.
const SERVICE: &str = "HTTP/127.0.0.1";

/// A realm with the users anna and bo, whose password is `secret`; dropping it ends its server.
struct Realm {
    folder: TempDir,
    server: Option<Child>,
}

impl Drop for Realm {
    fn drop(&mut self) {
        self.server.iter_mut().for_each(end);
    }
}

impl Realm {
    fn new() -> Self {
        let (mut realm, address) = (Self { folder: open_folder(), server: None }, free_address());
        realm.configure(address);
        let util = |words: &[&str]| {
            succeed(realm.command("kdb5_util").args(["-r", "TEST", "-P", "master"]).args(words));
        };
        util(&["create", "-s"]);
        let keytab = realm.path("keytab");
        for query in [
            "addprinc -pw secret anna".to_owned(),
            "addprinc -pw secret bo".to_owned(),
            format!("addprinc -randkey {SERVICE}"),
            format!("ktadd -k {} {SERVICE}", keytab.display()),
        ] {
            succeed(realm.command("kadmin.local").args(["-r", "TEST", "-q", &query]));
        }
        // The helper runs as the user of the proxy.
        fs::set_permissions(&keytab, fs::Permissions::from_mode(0o644)).expect("permissions");
        let server = start(realm.command("krb5kdc").args(["-n", "-r", "TEST"]));
        realm.server = Some(server.expect("krb5kdc"));
        until("the server to listen", || TcpStream::connect(address).ok());
        realm
    }

    fn configure(&self, address: SocketAddr) {
        let dir = self.folder.path().display();
        let client = format!(
            "[libdefaults]\ndefault_realm = TEST\ndns_lookup_realm = false\ndns_lookup_kdc = false\n\
             dns_canonicalize_hostname = false\nrdns = false\nudp_preference_limit = 1\n\
             [realms]\nTEST = {{\nkdc = {address}\n}}\n"
        );
        let server = format!(
            "[kdcdefaults]\nkdc_listen = {address}\nkdc_tcp_listen = {address}\n\
             [realms]\nTEST = {{\ndatabase_name = {dir}/principal\nkey_stash_file = {dir}/stash\n\
             acl_file = {dir}/acl\nmax_life = 1h\n}}\n[logging]\nkdc = FILE:{dir}/kdc.log\n\
             admin_server = FILE:{dir}/admin.log\ndefault = FILE:{dir}/other.log\n"
        );
        fs::write(self.path("krb5.conf"), client).expect("a configuration");
        fs::write(self.path("kdc.conf"), server).expect("a configuration");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A program that knows this realm and no other.
    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(program(name));
        self.configure_for(&mut command, "nobody");
        command
    }

    fn configure_for(&self, command: &mut Command, user: &str) {
        command.env("KRB5_CONFIG", self.path("krb5.conf"));
        command.env("KRB5_KDC_PROFILE", self.path("kdc.conf"));
        command.env("KRB5CCNAME", format!("FILE:{}", self.path(user).display()));
    }

    /// Gets a ticket for a user.
    fn log_in(&self, user: &str) {
        let mut command = self.command("kinit");
        self.configure_for(&mut command, user);
        command.arg(user).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = start(&mut command).expect("kinit");
        let mut input = child.stdin.take().expect("a pipe");
        input.write_all(b"secret\n").expect("written");
        drop(input);
        assert!(child.wait().expect("its end").success());
    }

    /// The lines of a proxy whose clients log in here.
    fn lines(&self) -> String {
        format!(
            "auth_param negotiate program /usr/bin/env KRB5_CONFIG={} KRB5RCACHENAME=none: {HELPER} \
             -k {} -s {SERVICE}@TEST\nauth_param negotiate children 3\n\
             acl users proxy_auth REQUIRED\n",
            self.path("krb5.conf").display(),
            self.path("keytab").display()
        )
    }

    /// Status and body that curl gets with the tickets of this user.
    fn curl(&self, world: &World, user: &str, arguments: &[&str]) -> String {
        let mut command = curl(&world.proxy);
        self.configure_for(&mut command, user);
        command.args(["--proxy-negotiate", "--proxy-user", ":", "--write-out", " %{http_code} "]);
        let output = run(command.args(arguments));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

fn has_helper() -> bool {
    let has = std::path::Path::new(HELPER).exists();
    if !has {
        humboldt_tests::skip("Squid's helpers are not installed");
    }
    has
}

#[test]
fn a_ticket_is_a_login() {
    if !has_helper() {
        return;
    }
    let realm = Realm::new();
    ["anna", "bo"].iter().for_each(|user| realm.log_in(user));
    let world = World::forward(&format!(
        "{}http_access allow users\nhttp_access deny all\n",
        realm.lines()
    ));
    world.origin.on("/a", Reply::ok("hello").with("Cache-Control", "no-store"));
    world.origin.on("/up", Reply::ok("taken"));
    let (url, up) = (world.target("/a"), world.target("/up"));
    assert_eq!(realm.curl(&world, "anna", &[&url, &url]), "hello 200 hello 200 ");
    assert_eq!(realm.curl(&world, "bo", &["--proxytunnel", &url]), "hello 200 ");
    assert_eq!(realm.curl(&world, "anna", &["--data", "body", &up]), "taken 200 ");
    assert_eq!(world.origin.last("/up").body.bytes, b"body");
    let refused = realm.curl(&world, "nobody", &["--output", "/dev/null", &url]);
    assert!(refused.ends_with("407 "), "{refused}");
    assert_eq!(world.proxy.logged_times("/a anna@TEST ", 2).len(), 2);
    assert!(world.proxy.logged("TCP_TUNNEL/200").contains(" bo@TEST "));
    let sent = String::from_utf8_lossy(&world.origin.received()).to_ascii_lowercase();
    assert!(!sent.contains("negotiate"), "{sent}");
}

#[test]
fn a_token_that_is_no_ticket_is_no_login() {
    if !has_helper() {
        return;
    }
    let realm = Realm::new();
    let world = World::forward(&format!("{}http_access deny !users\n", realm.lines()));
    world.origin.on("/a", Reply::ok("hello"));
    for token in ["YIIabcd=", "TlRMTVNTUAABAAAABoIIAAAAAAAAAAAAAAAAAAAAAAA="] {
        let login = format!("Negotiate {token}");
        let mut client = world.client();
        client.request("GET", &world.target("/a"), &[("Proxy-Authorization", &login)], b"");
        let answer = client.response().expect(407);
        assert_eq!(answer.field("Connection"), Some("close"), "{token}");
        assert!(answer.field("Proxy-Authenticate").is_some_and(|one| one.starts_with("Negotiate")));
    }
}
