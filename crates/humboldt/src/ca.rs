//! `humboldt ca new`: an authority for a port with `ssl-bump`, for those who have none.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::{Args, Parser, Subcommand};
use humboldt_sys::privileges::{self, Identity};

use crate::error::StartError;

/// The first word of the command line.
pub(crate) const COMMAND: &str = "ca";

/// The user that the key belongs to if root makes it: the default of `cache_effective_user`.
const USER: &str = "nobody";

#[derive(Parser, Debug)]
#[command(name = "humboldt ca", bin_name = "humboldt ca")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Make an authority that signs certificates for `http_port … ssl-bump`, and tell how to
    /// install it.
    New(New),
}

#[derive(Args, Debug)]
struct New {
    /// The directory for its certificate and its key. It is created if it is missing; files that
    /// are there are never overwritten.
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    /// The name that people see in lists of authorities; by default Humboldt and the name of this
    /// machine.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// How long it is valid.
    #[arg(long, value_name = "DAYS", default_value_t = 3650)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=7300))]
    days: u16,

    /// For root: the owner of the key, who is `cache_effective_user` of squid.conf.
    #[arg(long, value_name = "USER", default_value = USER)]
    user: String,
}

/// Carries out the command of the words behind the first one.
///
/// # Errors
/// Files that cannot be written, or a name that is none.
pub(crate) fn run(words: impl Iterator<Item = std::ffi::OsString>) -> Result<(), StartError> {
    let Command::New(new) = Cli::parse_from(std::iter::once(COMMAND.into()).chain(words)).command;
    let owner = match privileges::is_root() {
        true => Some(privileges::find(&new.user, None)?),
        false => None,
    };
    let name = new.name.clone().unwrap_or_else(default_name);
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let made = humboldt_tls::make_authority(&name, new.days, since.as_secs() as i64)
        .map_err(StartError::Authority)?;
    let files = Files::in_folder(&new.folder)?;
    files.write(&made.certificate, &made.key, owner)?;
    let (year, month, day) = made.last_day;
    show(&files.instructions(&name, &format!("{year}-{month:02}-{day:02}"), &made.fingerprint));
    Ok(())
}

fn default_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let clean = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    let host: String = host.chars().filter(|c| clean(*c)).take(40).collect();
    format!("Humboldt on {host}").trim_end_matches(" on ").to_owned()
}

/// The files of an authority.
struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

impl Files {
    fn in_folder(folder: &Path) -> Result<Self, StartError> {
        let what = || format!("create {}", folder.display());
        std::fs::create_dir_all(folder).map_err(StartError::system(what()))?;
        // squid.conf needs the whole path.
        let folder = folder.canonicalize().map_err(StartError::system(what()))?;
        Ok(Self { certificate: folder.join("authority.crt"), key: folder.join("authority.key") })
    }

    /// Writes both, or neither.
    fn write(
        &self,
        certificate: &str,
        key: &str,
        owner: Option<Identity>,
    ) -> Result<(), StartError> {
        if self.certificate.exists() {
            let is_there = io::Error::from(io::ErrorKind::AlreadyExists);
            let what = format!("write {}", self.certificate.display());
            return Err(StartError::system(what)(is_there));
        }
        create(&self.key, 0o600, owner, key)?;
        create(&self.certificate, 0o644, None, certificate).inspect_err(|_| {
            _ = std::fs::remove_file(&self.key);
        })
    }

    fn instructions(&self, name: &str, last_day: &str, fingerprint: &str) -> String {
        let (crt, key) = (self.certificate.display(), self.key.display());
        format!(
            "\
The authority \"{name}\" is made. It is valid until {last_day}.

  {crt}
      Its certificate. Give it to clients.
      SHA-256 {fingerprint}
  {key}
      Its key. With it, what clients of this authority send can be read: keep it here.

In squid.conf:

  http_port 3128 ssl-bump tls-cert={crt} tls-key={key}
  acl step1 at_step SslBump1
  ssl_bump peek step1
  ssl_bump bump all

On clients, with the certificate as authority.crt:

  Debian, Ubuntu  cp authority.crt /usr/local/share/ca-certificates/ && update-ca-certificates
  Fedora, RHEL    cp authority.crt /etc/pki/ca-trust/source/anchors/ && update-ca-trust
  macOS           security add-trusted-cert -d -r trustRoot
                    -k /Library/Keychains/System.keychain authority.crt
  Windows         certutil -addstore -f ROOT authority.crt
  Firefox         Settings, Privacy & Security, View Certificates, Authorities, Import
  Chrome          that of the system; on Linux:
                    certutil -d sql:$HOME/.pki/nssdb -A -t C,, -n humboldt -i authority.crt
  curl            that of the system; or CURL_CA_BUNDLE=authority.crt
  Python          requests: REQUESTS_CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt
                  pip: PIP_CERT=…; others: SSL_CERT_FILE=…
  Node, npm       NODE_EXTRA_CA_CERTS=/path/authority.crt
  Java            keytool -importcert -cacerts -storepass changeit -alias humboldt
                    -file authority.crt
  git             that of the system; or git config --global http.sslCAInfo authority.crt
  Docker          that of the host, then restart dockerd; in images as for their system

docs/tls.md says more about each of them.
"
        )
    }
}

/// Creates a file that is not there yet, with its owner before its contents.
fn create(path: &Path, mode: u32, owner: Option<Identity>, text: &str) -> Result<(), StartError> {
    let write = || {
        let mut file: File =
            OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
        let filled = fill(&mut file, owner, text);
        if filled.is_err() {
            _ = std::fs::remove_file(path);
        }
        filled
    };
    write().map_err(StartError::system(format!("write {}", path.display())))
}

fn fill(file: &mut File, owner: Option<Identity>, text: &str) -> io::Result<()> {
    if let Some(owner) = owner {
        fchown(&*file, Some(owner.uid), Some(owner.gid))?;
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[allow(clippy::print_stdout)]
fn show(text: &str) {
    print!("{text}");
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
        let words = ["ca", "new", "/x", "--name", "Office", "--days", "30"];
        let Command::New(new) = Cli::parse_from(words).command;
        assert_eq!((new.name.as_deref(), new.days), (Some("Office"), 30));
        assert!(Cli::try_parse_from(["ca", "new", "/x", "--days", "0"]).is_err());
    }

    #[test]
    fn a_name_is_there_without_being_asked_for() {
        assert!(default_name().starts_with("Humboldt") && default_name().len() <= 64);
    }
}
