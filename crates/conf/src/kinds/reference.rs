//! What the reference says about options.

use super::{dir_options, external, helpers, network, options, peers, ports_tls, storage, tls};
use crate::{external_format, log_codes};

/// Tables of options for the reference, below the directive that has them.
pub(crate) fn options_table(directive: &str) -> Option<String> {
    match directive {
        "cache_dir" => Some(dir_options::docs_table()),
        "cache_peer" => Some(options::docs_table(peers::OPTIONS)),
        "external_acl_type" => {
            let options = options::docs_table(external::OPTIONS);
            Some(format!("{options}\n{}", external_format::docs_table()))
        }
        "url_rewrite_children" | "store_id_children" => {
            Some(options::docs_table(helpers::CHILDREN))
        }
        "http_port" => Some(options::docs_table(network::OPTIONS.iter().chain(ports_tls::BUMP))),
        "https_port" => Some(options::docs_table(ports_tls::SECURE)),
        "tls_outgoing_options" => Some(options::docs_table(tls::OPTIONS)),
        "refresh_pattern" => Some(options::docs_table(storage::REFRESH_OPTIONS)),
        "logformat" => Some(log_codes::docs_table()),
        "logformat_json" => Some(log_codes::json_table()),
        _ => None,
    }
}
