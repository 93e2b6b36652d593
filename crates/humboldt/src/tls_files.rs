//! Files of TLS that a reconfiguration reads again.

use std::fs::File;

use humboldt_conf::Config;

/// Warns of files that could be read at the start, perhaps as root, and that the user which the
/// program has become since then cannot open.
pub(crate) fn warn_of_unreadable(config: &Config) {
    for (file, error) in unreadable(config) {
        tracing::warn!(
            "{file} cannot be opened by the user that this program runs as ({error}): the next \
             reconfiguration will fail; let that user read it"
        );
    }
}

fn unreadable(config: &Config) -> Vec<(&str, std::io::Error)> {
    let ports = config.https_port.iter().filter_map(|port| port.tls.as_ref());
    let peers = config.cache_peer.iter().filter_map(|peer| peer.tls.as_ref());
    let outgoing = Some(&config.tls_outgoing_options).filter(|options| !options.is_disabled);
    let mut files: Vec<&str> = ports.flat_map(|port| port.files()).collect();
    files.extend(peers.flat_map(|peer| peer.files()));
    files.extend(outgoing.into_iter().flat_map(|options| options.files()));
    files.sort_unstable();
    files.dedup();
    files.into_iter().filter_map(|file| Some((file, File::open(file).err()?))).collect()
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
                    cache_peer a parent 4 0 tls tls-cafile=/no/peer\n";
        let (config, found) = humboldt_conf::parse_str("test", text);
        assert!(!found.has_errors(), "{}", found.render(false));
        let files: Vec<&str> = unreadable(&config).into_iter().map(|(file, _)| file).collect();
        let wanted = ["ca", "cert", "crl", "key", "out", "out-crl", "own", "peer"];
        assert_eq!(files, wanted.map(|name| format!("/no/{name}")));
    }
}
