//! Certificates for tests, made with OpenSSL's program.

use crate::proxy::open_folder;
use crate::servers::{program, succeed};
use crate::wait::start;
use std::fs::{self, Permissions};
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use tempfile::TempDir;

const SETTINGS: &str = "\
[ca]
default_ca = own
[own]
database = {dir}/index
serial = {dir}/serial
new_certs_dir = {dir}
certificate = {dir}/ca.pem
private_key = {dir}/ca.key
default_md = sha256
default_days = 2
default_crl_days = 2
policy = any
copy_extensions = copy
x509_extensions = leaf
unique_subject = no
crlnumber = {dir}/crlnumber
[leaf]
basicConstraints = CA:FALSE
[any]
commonName = optional
organizationName = optional
emailAddress = optional
[req]
distinguished_name = name
[name]
";

/// How to make a key, for OpenSSL.
const P256: &[&str] = &["ec", "-pkeyopt", "ec_paramgen_curve:P-256"];

/// The key of a certificate.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Key {
    /// On the curve P-256.
    Ecdsa,
    /// With 2048 bits.
    Rsa,
    /// RSA with 1024 bits, which nobody should trust.
    Short,
}

/// An authority that signs certificates. Its own is `ca.pem` in its folder.
pub struct Authority {
    folder: TempDir,
}

/// The files of a certificate.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The certificate.
    pub file: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl Certificate {
    /// `NAME-cert=FILE NAME-key=FILE` for squid.conf.
    #[must_use]
    pub fn options(&self, prefix: &str) -> String {
        format!("{prefix}cert={} {prefix}key={}", self.file.display(), self.key.display())
    }
}

impl Authority {
    /// An authority with this name.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self::with(name, P256, &[])
    }

    /// An authority that takes milliseconds to sign.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn slow(name: &str) -> Self {
        Self::with(name, &["rsa:3072"], &[])
    }

    /// An authority whose certificates are for names in this domain only.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn for_domain(name: &str, domain: &str) -> Self {
        let constraints = format!("nameConstraints=critical,permitted;DNS:{domain}");
        Self::with(name, P256, &["-addext", &constraints])
    }

    /// An authority whose own certificate is signed by this one.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn below(&self, name: &str) -> Self {
        let authority = Self::empty();
        let (request, extensions) = (authority.path("ca.csr"), authority.path("extensions"));
        let text = "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\n";
        fs::write(&extensions, text).expect("a file of the authority");
        let mut command = openssl("req");
        command.args(["-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]);
        command.args(["-subj", &format!("/CN={name}")]);
        command.arg("-keyout").arg(authority.path("ca.key")).arg("-out").arg(&request);
        succeed(&mut command);
        let mut command = openssl("x509");
        command.args(["-req", "-days", "30", "-CAcreateserial", "-in"]).arg(&request);
        command.arg("-CA").arg(self.ca()).arg("-CAkey").arg(self.path("ca.key"));
        command.arg("-extfile").arg(&extensions).arg("-out").arg(authority.ca());
        succeed(&mut command);
        authority
    }

    /// A folder with all but a key and a certificate.
    fn empty() -> Self {
        let authority = Self { folder: open_folder() };
        let dir = authority.folder.path().display().to_string();
        let write = |file: &str, text: &str| {
            fs::write(authority.path(file), text).expect("a file of the authority");
        };
        write("settings", &SETTINGS.replace("{dir}", &dir));
        write("index", "");
        write("serial", "1000");
        write("crlnumber", "1000");
        authority
    }

    fn with(name: &str, key: &[&str], options: &[&str]) -> Self {
        let authority = Self::empty();
        let mut command = openssl("req");
        command.args(["-x509", "-nodes", "-newkey"]).args(key);
        command.args(["-days", "30", "-subj", &format!("/CN={name}")]);
        command.args(["-addext", "keyUsage=critical,keyCertSign,cRLSign"]).args(options);
        succeed(
            command.arg("-keyout").arg(authority.path("ca.key")).arg("-out").arg(authority.ca()),
        );
        authority
    }

    /// A file in its folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Its own certificate.
    #[must_use]
    pub fn ca(&self) -> PathBuf {
        self.path("ca.pem")
    }

    /// A new certificate for a subject such as `/CN=a` and names such as `DNS:a.test`, valid now.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn issue(&self, file: &str, key: Key, subject: &str, names: &str) -> Certificate {
        self.sign(file, key, subject, names, &[])
    }

    /// The same, for a time that is over.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn issue_expired(&self, file: &str, subject: &str, names: &str) -> Certificate {
        let time = ["-startdate", "20200101000000Z", "-enddate", "20210101000000Z"];
        self.sign(file, Key::Ecdsa, subject, names, &time)
    }

    /// The same, for a time that has not begun.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn issue_early(&self, file: &str, subject: &str, names: &str) -> Certificate {
        let time = ["-startdate", "20400101000000Z", "-enddate", "20410101000000Z"];
        self.sign(file, Key::Ecdsa, subject, names, &time)
    }

    /// The same, signed over SHA-1.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn issue_weakly(&self, file: &str, subject: &str, names: &str) -> Certificate {
        self.sign(file, Key::Ecdsa, subject, names, &["-md", "sha1"])
    }

    fn sign(&self, file: &str, key: Key, subject: &str, names: &str, time: &[&str]) -> Certificate {
        let (certificate, key_file) =
            (self.path(&format!("{file}.pem")), self.path(&format!("{file}.key")));
        let request = self.path(&format!("{file}.csr"));
        let mut command = openssl("req");
        command.args(["-new", "-nodes", "-subj", subject]);
        match key {
            Key::Ecdsa => command.args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]),
            Key::Rsa => command.args(["-newkey", "rsa:2048"]),
            Key::Short => command.args(["-newkey", "rsa:1024"]),
        };
        if !names.is_empty() {
            command.arg("-addext").arg(format!("subjectAltName={names}"));
        }
        succeed(command.arg("-keyout").arg(&key_file).arg("-out").arg(&request));
        let mut command = self.ca_command();
        command.args(["-batch", "-notext"]).args(time).arg("-in").arg(&request);
        succeed(command.arg("-out").arg(&certificate));
        // The proxy reads it again when it has given up root's rights.
        fs::set_permissions(&key_file, Permissions::from_mode(0o644)).expect("readable for all");
        Certificate { file: certificate, key: key_file }
    }

    /// Revokes a certificate, and returns the file with the new list.
    ///
    /// # Panics
    /// If that fails.
    #[must_use]
    pub fn revoke(&self, certificate: Option<&Certificate>) -> PathBuf {
        if let Some(certificate) = certificate {
            succeed(self.ca_command().arg("-revoke").arg(&certificate.file));
        }
        let list = self.path("crl.pem");
        succeed(self.ca_command().arg("-gencrl").arg("-out").arg(&list));
        list
    }

    /// The same without a new revocation, but the list is valid until this time only.
    ///
    /// # Panics
    /// If that fails.
    #[must_use]
    pub fn revoke_until(&self, end: &str) -> PathBuf {
        let list = self.path("crl.pem");
        let mut command = self.ca_command();
        command.args(["-gencrl", "-crl_lastupdate", "20190101000000Z", "-crl_nextupdate", end]);
        succeed(command.arg("-out").arg(&list));
        list
    }

    /// The file with an answer of OCSP for a certificate, which is valid for two days.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn ocsp(&self, certificate: &Certificate) -> PathBuf {
        let (asked, answer) = (self.path("asked.der"), self.path("answer.der"));
        let mut command = openssl("ocsp");
        command.arg("-issuer").arg(self.ca()).arg("-cert").arg(&certificate.file);
        succeed(command.arg("-no_nonce").arg("-reqout").arg(&asked));
        let mut command = openssl("ocsp");
        command.arg("-index").arg(self.path("index")).arg("-CA").arg(self.ca());
        command.arg("-rsigner").arg(self.ca()).arg("-rkey").arg(self.path("ca.key"));
        command.arg("-reqin").arg(&asked).args(["-ndays", "2"]).arg("-respout").arg(&answer);
        succeed(&mut command);
        answer
    }

    fn ca_command(&self) -> Command {
        let mut command = openssl("ca");
        command.arg("-config").arg(self.path("settings"));
        command
    }
}

/// A certificate that signs itself.
///
/// # Panics
/// If it cannot be made.
#[must_use]
pub fn self_signed(folder: &TempDir, subject: &str, names: &str) -> Certificate {
    let (file, key) = (folder.path().join("self.pem"), folder.path().join("self.key"));
    let mut command = openssl("req");
    command.args(["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]);
    command.args(["-days", "2", "-subj", subject, "-addext", &format!("subjectAltName={names}")]);
    succeed(command.arg("-keyout").arg(&key).arg("-out").arg(&file));
    Certificate { file, key }
}

/// OpenSSL's program with this command.
#[must_use]
pub fn openssl(command: &str) -> Command {
    let mut openssl = Command::new(program("openssl"));
    openssl.arg(command);
    openssl
}

/// A ClientHello as OpenSSL writes it.
///
/// # Panics
/// If it cannot be made.
#[must_use]
pub fn client_hello(name: &str) -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut command = openssl("s_client");
    let address = listener.local_addr().expect("an address").to_string();
    command.args(["-connect", &address, "-servername", name]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = start(&mut command).expect("openssl starts");
    let (mut stream, _) = listener.accept().expect("a connection");
    let mut head = [0; 5];
    stream.read_exact(&mut head).expect("the head of a record");
    let mut rest = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
    stream.read_exact(&mut rest).expect("a record");
    drop(stream);
    child.wait().expect("openssl ends");
    [&head[..], &rest].concat()
}
