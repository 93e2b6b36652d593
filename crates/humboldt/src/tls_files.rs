//! Files of TLS that a reconfiguration reads again.

use std::io;
use std::os::unix::fs::PermissionsExt;

use humboldt_conf::Config;
use humboldt_sys::access;

/// Warns of files that too few or too many can read.
pub(crate) fn warn(config: &Config) {
    warn_of_unreadable(config);
    warn_of_open_keys(config);
}

/// Warns of files and directories that could be read at the start, perhaps as root, and that the
/// user which the program has become since then cannot read.
fn warn_of_unreadable(config: &Config) {
    for (file, error) in unreadable(config) {
        tracing::warn!(
            "{file} cannot be read by the user that this program runs as ({error}): the next \
             reconfiguration will fail; let that user read it"
        );
    }
}

/// Warns of keys of authorities whose mode lets everybody on this machine read them: who has one
/// can be any server to those who trust the authority.
fn warn_of_open_keys(config: &Config) {
    for file in open_keys(config) {
        tracing::warn!(
            "{file} has the key of an authority, and its mode lets everybody on this machine read \
             it: `chmod o-r {file}`"
        );
    }
}

fn open_keys(config: &Config) -> Vec<&str> {
    let is_open = |file: &&str| {
        let mode = std::fs::metadata(file).map(|about| about.permissions().mode());
        mode.is_ok_and(|mode| mode & READABLE_BY_OTHERS != 0)
    };
    let bumps = config.ports().filter_map(|port| port.bump.as_ref()?.certificate.as_ref());
    let keys = bumps.map(|pair| pair.key.as_deref().unwrap_or(&pair.certificate));
    let mut open: Vec<&str> = keys.filter(is_open).collect();
    open.sort_unstable();
    open.dedup();
    open
}

/// The permission of everybody to read.
const READABLE_BY_OTHERS: u32 = 0o004;

fn unreadable(config: &Config) -> Vec<(&str, io::Error)> {
    let ports = || config.https_port.iter().filter_map(|port| port.tls.as_ref());
    let peers = config.cache_peer.iter().filter_map(|peer| peer.tls.as_deref());
    let own = Some(&config.tls_outgoing_options).filter(|options| !options.is_disabled);
    let outgoing: Vec<_> = peers.chain(own).collect();
    let mut files: Vec<&str> = ports().flat_map(|port| port.files()).collect();
    files.extend(outgoing.iter().flat_map(|options| options.files()));
    let bumps = config.ports().filter_map(|port| port.bump.as_ref()?.certificate.as_ref());
    for pair in bumps {
        files.push(&pair.certificate);
        files.extend(pair.key.as_deref());
    }
    files.extend(config.sslproxy_foreign_intermediate_certs.as_deref());
    let mut directories: Vec<&str> = ports().flat_map(|port| port.directories()).collect();
    directories.extend(outgoing.iter().flat_map(|options| options.directories()));
    let mut found = refused(files, |file| access::may_read(file));
    found.extend(refused(directories, |directory| access::may_list(directory)));
    found
}

/// Those of the paths that may not be used, each once.
fn refused(
    mut paths: Vec<&str>,
    may_use: impl Fn(&str) -> io::Result<()>,
) -> Vec<(&str, io::Error)> {
    paths.sort_unstable();
    paths.dedup();
    paths.into_iter().filter_map(|path| Some((path, may_use(path).err()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_authorities_are_for_few() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str, mode: u32| {
            let path = folder.path().join(name);
            std::fs::write(&path, "").expect("a file");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("a mode");
            path.display().to_string()
        };
        let (open, both) = (file("open", 0o644), file("both", 0o604));
        let (ours, certificate) = (file("ours", 0o640), file("certificate", 0o644));
        let text = format!(
            "http_port 1 ssl-bump tls-cert={certificate} tls-key={open}\n\
             http_port 2 ssl-bump tls-cert={certificate} tls-key={ours}\n\
             http_port 3 ssl-bump tls-cert={both}\nhttp_port 4 ssl-bump tls-cert={both}\n\
             https_port 5 tls-cert={certificate} tls-key={open}\nssl_bump bump all\n"
        );
        let (config, found) = humboldt_conf::parse_str("test", &text);
        assert!(!found.has_errors(), "{}", found.render(false));
        assert_eq!(open_keys(&config), [both.as_str(), open.as_str()]);
    }

    #[test]
    fn each_file_of_tls_is_tried_once() {
        let text = "http_port 1\n\
                    https_port 2 tls-cert=/no/cert tls-key=/no/key clientca=/no/ca crlfile=/no/crl\n\
                    https_port 3 tls-cert=/no/cert tls-key=/no/key tls-cert=/dev/null\n\
                    tls_outgoing_options cafile=/no/out cert=/no/own crlfile=/no/out-crl\n\
                    cache_peer a parent 4 0 tls tls-cafile=/no/peer tls-capath=/no/path\n\
                    cache_peer b parent 4 0 tls tls-capath=/ tls-cafile=/dev/null name=b\n\
                    http_port 5 ssl-bump tls-cert=/no/bump tls-key=/no/bump-key\n\
                    sslproxy_foreign_intermediate_certs /no/between\n\
                    ssl_bump splice all\n";
        let (config, found) = humboldt_conf::parse_str("test", text);
        assert!(!found.has_errors(), "{}", found.render(false));
        let files: Vec<&str> = unreadable(&config).into_iter().map(|(file, _)| file).collect();
        let wanted = [
            "between", "bump", "bump-key", "ca", "cert", "crl", "key", "out", "out-crl", "own",
            "peer", "path",
        ];
        assert_eq!(files, wanted.map(|name| format!("/no/{name}")));
    }
}
