//! TLS of a run: who speaks it with whom, checked before anything is started, and the authorities.

use crate::Failure;
use crate::cli::{TlsArgs, TlsKind};
use crate::experiment::SITE;
use crate::fleet::protocol::{TlsOrder, WayOrder};
use humboldt_lab_robots::UserTls;
use humboldt_lab_subjects::{Mode, SubjectFile, SubjectTls, SubjectTlsWay};
use humboldt_lab_tls::{Authority, Trust};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A file of authorities that is longer is something else: those of a whole system are 250 KB.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The names of the laboratory's authorities in messages of others.
const ORIGIN_AUTHORITY: &str = "Humboldt laboratory, servers";
const INTERCEPT_AUTHORITY: &str = "Humboldt laboratory, interception";

/// The place where users connect to.
#[derive(Clone, Copy)]
pub(crate) enum Place<'a> {
    /// A cache that is started for the run.
    Started(&'a SubjectFile),
    /// A cache that runs already.
    Running(Mode),
    /// The laboratory's own servers.
    Origins,
}

/// The servers of the requests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Servers {
    /// The laboratory's own.
    Own,
    /// Those of a list of URLs.
    Foreign,
}

/// The TLS of a run.
#[derive(Clone, Debug)]
pub(crate) struct RunTls {
    kind: TlsKind,
    /// Of the laboratory's servers, and of an accelerator that it starts.
    authority: Authority,
    /// For a proxy that it starts and that intercepts.
    intercept: Authority,
    trusted_pem: String,
    resume: bool,
    /// The laboratory's authority is new and is to be kept there.
    keep_in: Option<PathBuf>,
}

impl RunTls {
    /// From the command line; `None` without `--tls`. It writes nothing.
    pub(crate) fn new(
        arguments: &TlsArgs,
        place: Place<'_>,
        servers: Servers,
    ) -> Result<Option<Self>, Failure> {
        let Some(kind) = arguments.tls else { return Ok(None) };
        check(kind, place)?;
        let given = arguments.authority.as_deref().map(read).transpose()?;
        let kept = arguments.origin_authority.as_deref().map(kept_authority).transpose()?.flatten();
        let keep_in = arguments.origin_authority.clone().filter(|_| kept.is_none());
        let authority = match kept {
            Some(authority) => authority,
            None => Authority::new(ORIGIN_AUTHORITY).map_err(Failure::run)?,
        };
        let intercept = Authority::new(INTERCEPT_AUTHORITY).map_err(Failure::run)?;
        let trusted_pem = match (kind, place, given) {
            (TlsKind::Tunnel, _, None) | (TlsKind::Accelerator, Place::Origins, None)
                if servers == Servers::Foreign =>
            {
                return Err(Failure::usage(
                    "the laboratory does not know who signed the certificates of these servers: name the authorities with --authority FILE",
                ));
            }
            (TlsKind::Tunnel, _, None) => authority.certificate_pem().to_owned(),
            (TlsKind::Tunnel, _, Some(_)) if servers == Servers::Own => {
                return Err(Failure::usage(
                    "--authority: at the end of a tunnel is the laboratory's own server, whose authority is known",
                ));
            }
            (_, _, Some(pem)) => pem,
            (_, Place::Running(_), None) => {
                return Err(Failure::usage(
                    "the certificate of a cache that runs already must be known: give its authority with --authority FILE",
                ));
            }
            (TlsKind::Accelerator, _, None) => authority.certificate_pem().to_owned(),
            (TlsKind::Intercept, _, None) => intercept.certificate_pem().to_owned(),
        };
        let resume = !arguments.no_resumption;
        let tls = Self { kind, authority, intercept, trusted_pem, resume, keep_in };
        // A file that is no authority is noticed here, before anything is started.
        Trust::from_pem(&tls.trusted_pem, resume).map_err(|error| {
            let path = arguments.authority.as_deref().unwrap_or(Path::new("--authority"));
            Failure::usage(format!("{}: {error}", path.display()))
        })?;
        Ok(Some(tls))
    }

    /// Writes the files that the command line asks for, if they are not there yet: when the run
    /// begins.
    pub(crate) fn keep(&self) -> Result<(), Failure> {
        self.keep_in.as_deref().map_or(Ok(()), |path| write_authority(path, &self.authority))
    }

    /// The users' part.
    pub(crate) fn users(&self) -> TlsOrder {
        let way = match self.kind {
            TlsKind::Accelerator => WayOrder::Hop,
            TlsKind::Tunnel => WayOrder::Tunnel,
            TlsKind::Intercept => WayOrder::Intercept,
        };
        TlsOrder { way, trusted_pem: self.trusted_pem.clone(), resume: self.resume }
    }

    /// The users' part, if they ask the laboratory's own servers: for a calibration.
    pub(crate) fn direct_users(&self) -> TlsOrder {
        TlsOrder {
            way: WayOrder::Hop,
            trusted_pem: self.authority.certificate_pem().to_owned(),
            resume: self.resume,
        }
    }

    /// The users' part in this process.
    pub(crate) fn user_tls(&self) -> Result<UserTls, Failure> {
        crate::fleet::user_tls(&self.users()).map_err(Failure::usage)
    }

    /// The authority of the laboratory's servers.
    pub(crate) fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The same, if the servers behind the cache speak TLS: those behind an accelerator do not.
    pub(crate) fn behind_cache(&self) -> Option<&Authority> {
        (self.kind != TlsKind::Accelerator).then_some(&self.authority)
    }

    /// The part of a cache that is started.
    pub(crate) fn subject(&self) -> Result<Option<SubjectTls>, Failure> {
        let way = match self.kind {
            TlsKind::Accelerator => SubjectTlsWay::Accelerator,
            TlsKind::Intercept => SubjectTlsWay::Intercept,
            TlsKind::Tunnel => return Ok(None),
        };
        let names = [SITE, "localhost", "127.0.0.1"].map(ToOwned::to_owned);
        let identity = self.authority.issue(&names).map_err(Failure::run)?;
        Ok(Some(SubjectTls {
            way,
            authority_pem: self.authority.certificate_pem().to_owned(),
            certificate_pem: identity.certificate_pem,
            key_pem: identity.key_pem,
            intercept_pem: format!(
                "{}{}",
                self.intercept.certificate_pem(),
                self.intercept.key_pem()
            ),
        }))
    }

    /// A fact for the report.
    pub(crate) fn fact(&self) -> (String, String) {
        let with = match self.kind {
            TlsKind::Accelerator => "users and the server that they connect to",
            TlsKind::Tunnel => "users and the laboratory's servers, through tunnels",
            TlsKind::Intercept => "users and the proxy, and the proxy and the servers",
        };
        let resumption = if self.resume { "sessions resumed" } else { "every handshake full" };
        ("TLS".to_owned(), format!("between {with}; HTTP/1.1; {resumption}"))
    }
}

/// Whether there is somebody who can speak TLS in this way.
fn check(kind: TlsKind, place: Place<'_>) -> Result<(), Failure> {
    let (mode, what) = match place {
        Place::Started(file) => (file.mode(), file.name()),
        Place::Running(mode) => (mode, "this cache"),
        Place::Origins if kind == TlsKind::Accelerator => return Ok(()),
        Place::Origins => {
            return Err(Failure::usage(
                "there is no proxy that could make tunnels: name one, or choose --tls accelerator",
            ));
        }
    };
    let wanted = if kind == TlsKind::Accelerator { Mode::Accelerator } else { Mode::Forward };
    if mode != wanted {
        let other = if wanted == Mode::Forward { "accelerator" } else { "tunnel or intercept" };
        return Err(Failure::usage(format!(
            "{what} is used as {mode}, and TLS is asked for with a cache used as {wanted}: choose --tls {other}"
        )));
    }
    let (way, part) = match kind {
        TlsKind::Accelerator => (SubjectTlsWay::Accelerator, "[when.tls]"),
        TlsKind::Intercept => (SubjectTlsWay::Intercept, "[when.intercept]"),
        TlsKind::Tunnel => return Ok(()),
    };
    match place {
        Place::Started(file) if !file.has_tls(way) => Err(Failure::usage(format!(
            "{what} cannot end TLS in this way: its subject file has no {part}"
        ))),
        _ => Ok(()),
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    let wrong = |error: std::io::Error| Failure::usage(format!("{}: {error}", path.display()));
    let mut text = String::new();
    fs::File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text))
        .map_err(wrong)?;
    Ok(text)
}

/// The authority of a file, with its key beside it; `None` if it is still to be made.
fn kept_authority(path: &Path) -> Result<Option<Authority>, Failure> {
    let key_path = key_path(path);
    let refuse = |path: &Path, why: &str| Failure::usage(format!("{}: {why}", path.display()));
    if path.exists() {
        let (certificate, key) = (read(path)?, read(&key_path)?);
        return Authority::of(ORIGIN_AUTHORITY, &certificate, &key)
            .map(Some)
            .map_err(|error| refuse(path, &error.to_string()));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if folder.is_some_and(|folder| !folder.is_dir()) {
        return Err(refuse(path, "no such folder"));
    }
    if key_path.exists() {
        return Err(refuse(&key_path, "a key without its certificate: it is not overwritten"));
    }
    Ok(None)
}

/// The authority of servers that run by themselves: that of the file, or a new one, which the file
/// keeps from then on.
pub(crate) fn server_authority(path: &Path) -> Result<Authority, Failure> {
    if let Some(authority) = kept_authority(path)? {
        return Ok(authority);
    }
    let authority = Authority::new(ORIGIN_AUTHORITY).map_err(Failure::run)?;
    write_authority(path, &authority).map(|()| authority)
}

/// Writes an authority, with its key beside it. Nothing is written over.
fn write_authority(path: &Path, authority: &Authority) -> Result<(), Failure> {
    write_new(&key_path(path), authority.key_pem(), 0o600)?;
    write_new(path, authority.certificate_pem(), 0o644)
}

fn key_path(path: &Path) -> PathBuf {
    let mut key_path = path.as_os_str().to_owned();
    key_path.push(".key");
    PathBuf::from(key_path)
}

/// Writes a file that must not be there yet.
fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| Failure::usage(format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn new(arguments: &TlsArgs, servers: Servers) -> Result<RunTls, Failure> {
        let place = match arguments.tls {
            Some(TlsKind::Tunnel) => Place::Running(Mode::Forward),
            _ => Place::Origins,
        };
        RunTls::new(arguments, place, servers).map(Option::unwrap)
    }

    #[test]
    fn an_authority_is_written_when_the_run_begins_and_never_over_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("own.pem");
        let arguments = TlsArgs {
            tls: Some(TlsKind::Accelerator),
            origin_authority: Some(path.clone()),
            ..TlsArgs::default()
        };
        let (first, second) =
            (new(&arguments, Servers::Own).unwrap(), new(&arguments, Servers::Own).unwrap());
        assert!(!path.exists() && !key_path(&path).exists(), "only checked");
        first.keep().unwrap();
        let mode = fs::metadata(key_path(&path)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(second.keep().is_err(), "another run was faster");
        let again = new(&arguments, Servers::Own).unwrap();
        again.keep().unwrap();
        assert_eq!(again.authority.key_pem(), first.authority.key_pem());
        fs::remove_file(&path).unwrap();
        let failure = new(&arguments, Servers::Own).unwrap_err().to_string();
        assert!(failure.contains("not overwritten"), "{failure}");
        let nowhere = Some(folder.path().join("no/such.pem"));
        let arguments = TlsArgs { origin_authority: nowhere, ..arguments };
        let failure = new(&arguments, Servers::Own).unwrap_err().to_string();
        assert!(failure.contains("no such folder"), "{failure}");
    }

    #[test]
    fn servers_that_the_laboratory_does_not_know_need_an_authority() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("theirs.pem");
        let theirs = Authority::new("theirs").unwrap();
        fs::write(&path, theirs.certificate_pem()).unwrap();
        for kind in [TlsKind::Tunnel, TlsKind::Accelerator] {
            let none = TlsArgs { tls: Some(kind), ..TlsArgs::default() };
            let failure = new(&none, Servers::Foreign).unwrap_err();
            assert!(failure.code() == 2 && failure.to_string().contains("--authority FILE"));
            assert!(new(&none, Servers::Own).is_ok());
            let given = TlsArgs { authority: Some(path.clone()), ..none };
            let tls = new(&given, Servers::Foreign).unwrap();
            assert_eq!(tls.users().trusted_pem, theirs.certificate_pem());
        }
    }
}
