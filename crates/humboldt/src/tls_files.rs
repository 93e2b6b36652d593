//! Files of TLS that a reconfiguration reads again.

use std::io;

use humboldt_conf::Config;
use humboldt_sys::access;

/// Warns of files and directories that could be read at the start, perhaps as root, and that the
/// user which the program has become since then cannot read.
pub(crate) fn warn_of_unreadable(config: &Config) {
    for (file, error) in unreadable(config) {
        tracing::warn!(
            "{file} cannot be read by the user that this program runs as ({error}): the next \
             reconfiguration will fail; let that user read it"
        );
    }
}

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
