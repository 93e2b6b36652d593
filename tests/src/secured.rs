//! Proxies that their clients talk to through TLS.

use crate::World;
use crate::authority::{Authority, Certificate, Key, openssl};
use crate::servers::{program, run};
use crate::wait::{free_address, until};
use std::net::SocketAddr;
use std::process::Command;

/// A proxy with an `https_port`, and the authority that its clients trust.
pub struct Secured {
    /// The proxy and its origin.
    pub world: World,
    /// The authority.
    pub authority: Authority,
    /// The address of the port with TLS.
    pub address: SocketAddr,
}

impl Secured {
    /// A proxy whose port has these options, and lines; `{ca}` is the authority.
    #[must_use]
    pub fn forward(options: &str, lines: &str) -> Self {
        Self::with("", options, lines)
    }

    /// The same, for a port of this mode.
    #[must_use]
    pub fn with(mode: &str, options: &str, lines: &str) -> Self {
        let authority = Authority::new("tests");
        let own =
            authority.issue("own", Key::Ecdsa, "/CN=localhost", "DNS:localhost,DNS:site.test");
        let address = free_address();
        let port = port_line(address, mode, &own, &options.replace("{ca}", &ca(&authority)));
        let world = match mode {
            "" => World::forward(&format!("{port}\n{lines}")),
            _ => World::reverse(&format!("{port}\n{lines}")),
        };
        Self { world, authority, address }
    }

    /// curl with this proxy, through TLS.
    #[must_use]
    pub fn curl(&self) -> Command {
        let mut command = Command::new(program("curl"));
        command.args(["--silent", "--show-error", "--max-time", "20", "--noproxy", ""]);
        command.arg("--proxy").arg(format!("https://localhost:{}", self.address.port()));
        command.arg("--proxy-cacert").arg(self.authority.ca());
        command
    }

    /// The status that curl gets through this proxy, with a certificate of its own; 000 for none.
    #[must_use]
    pub fn status_with(&self, own: Option<&Certificate>, url: &str) -> String {
        let mut command = self.curl();
        if let Some(own) = own {
            command.arg("--proxy-cert").arg(&own.file).arg("--proxy-key").arg(&own.key);
        }
        let output = run(command.args(["-o", "/dev/null", "-w", "%{http_code}"]).arg(url));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// curl to the accelerator.
    #[must_use]
    pub fn curl_to_site(&self) -> Command {
        let mut command = Command::new(program("curl"));
        command.args(["--silent", "--show-error", "--max-time", "20"]);
        let port = self.address.port();
        command.arg("--resolve").arg(format!("site.test:{port}:127.0.0.1"));
        command.arg("--cacert").arg(self.authority.ca());
        command
    }

    /// A URL of the accelerator.
    #[must_use]
    pub fn site(&self, path: &str) -> String {
        format!("https://site.test:{}{path}", self.address.port())
    }

    /// Waits until a figure has this value: a client may see the end of its connection first.
    pub fn wait_for(&self, figure: &str, value: u64) {
        let name = format!("humboldt_client_tls_{figure}_total");
        until(&name, || (self.world.metric(&name) == value).then_some(()));
    }

    /// What `openssl s_client` says about a handshake.
    #[must_use]
    pub fn handshake(&self, options: &[&str]) -> String {
        let mut command = openssl("s_client");
        command.args(["-connect", &self.address.to_string()]).args(options);
        let output = run(&mut command);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text + &String::from_utf8_lossy(&output.stderr)
    }
}

/// The path of an authority's certificate.
#[must_use]
pub fn ca(authority: &Authority) -> String {
    authority.ca().display().to_string()
}

/// The line of a port with this certificate.
#[must_use]
pub fn port_line(address: SocketAddr, mode: &str, own: &Certificate, options: &str) -> String {
    format!("https_port {address} {mode} {} {options}", own.options("tls-"))
}
