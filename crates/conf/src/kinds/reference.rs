//! What the reference says about options.

use super::{dir_options, external, network, options, peers, storage};
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
        "http_port" => Some(options::docs_table(network::OPTIONS)),
        "refresh_pattern" => Some(options::docs_table(storage::REFRESH_OPTIONS)),
        "logformat" => Some(log_codes::docs_table()),
        _ => None,
    }
}
