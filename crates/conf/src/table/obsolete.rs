//! Directives that no longer exist, with their replacements.

use super::directive::{Directive, Status};

macro_rules! obsolete {
    ($($name:literal $advice:literal;)*) => {
        &[$(Directive {
            name: $name,
            aliases: &[],
            section: "Obsolete",
            status: Status::Obsolete($advice),
            value: "",
            default: "",
            syntax: "",
            doc: $advice,
        },)*]
    };
}

pub(super) const KNOWN: &[Directive] = obsolete! {
    // Gone between Squid 2.7 and 8.
    "broken_vary_encoding" "Remove it.";
    "cache_vary" "Remove it: variants are always cached.";
    "error_map" "Use `deny_info`, or an origin that makes the pages.";
    "external_refresh_check" "Remove it.";
    "location_rewrite_program" "Remove it.";
    "location_rewrite_access" "Remove it.";
    "location_rewrite_children" "Remove it.";
    "location_rewrite_concurrency" "Remove it.";
    "refresh_stale_hit" "Let the origin send Cache-Control: stale-while-revalidate.";
    "esi_parser" "Remove it.";
    "announce_file" "Remove it.";
    "announce_host" "Remove it.";
    "announce_period" "Remove it.";
    "announce_port" "Remove it.";
    "request_entities" "Remove it: bodies are allowed in all requests.";
    "dns_v4_first" "Remove it: both address families are tried, the faster one wins.";
    "ie_refresh" "Remove it.";
    "sslproxy_cafile" "Use `tls_outgoing_options cafile=`.";
    "sslproxy_capath" "Use `tls_outgoing_options capath=`.";
    "sslproxy_cipher" "Use `tls_outgoing_options cipher=`.";
    "sslproxy_client_certificate" "Use `tls_outgoing_options cert=`.";
    "sslproxy_client_key" "Use `tls_outgoing_options key=`.";
    "sslproxy_flags" "Use `tls_outgoing_options flags=`.";
    "sslproxy_options" "Use `tls_outgoing_options options=`.";
    "sslproxy_version" "Use `tls_outgoing_options min-version=`.";
    "hierarchy_stoplist" "Use `always_direct` or `never_direct` with an ACL.";
    "log_access" "Put ACLs on `access_log` lines.";
    "log_icap" "Put ACLs on `icap_log` lines.";
    "ignore_ims_on_miss" "Use `cache_miss_revalidate`, whose meaning is the opposite.";
    "balance_on_multiple_ip" "Remove it: load is spread over the addresses of a name.";
    "chunked_request_body_max_size" "Remove it: chunked requests are passed on as they come.";
    "dns_v4_fallback" "Remove it: both address families are tried.";
    "emulate_httpd_log" "Use `access_log PLACE common`.";
    "forward_log" "Use `access_log` with a format of your own.";
    "ftp_list_width" "Remove it.";
    "ignore_expect_100" "Remove it: Expect is passed on and obeyed.";
    "log_fqdn" "Use the code %>A in a `logformat`.";
    "log_ip_on_direct" "Use the code %<a or %<A in a `logformat`.";
    "maximum_single_addr_tries" "Use `connect_retries`.";
    "referer_log" "Use `access_log PLACE referrer`.";
    "referrer_log" "Use `access_log PLACE referrer`.";
    "update_headers" "Remove it: stored heads are always updated.";
    "useragent_log" "Use `access_log PLACE useragent`.";
    "dns_testnames" "Remove it: nothing is looked up at start.";
    "extension_methods" "Remove it: every method is accepted.";
    "zero_buffers" "Remove it.";
    "incoming_rate" "Remove it.";
    "server_http11" "Remove it: HTTP/1.1 is always used.";
    "upgrade_http0.9" "Remove it: HTTP/0.9 is not accepted.";
    "zph_local" "Use `qos_flows local-hit=`.";
    "zph_mode" "Use `qos_flows`.";
    "zph_option" "Use `qos_flows`.";
    "zph_parent" "Use `qos_flows parent-hit=`.";
    "zph_sibling" "Use `qos_flows sibling-hit=`.";
    "header_access" "Use `request_header_access` and `reply_header_access`.";
    "httpd_accel_no_pmtu_disc" "Use `http_port … disable-pmtu-discovery=`.";
    "wais_relay_host" "Remove it.";
    "wais_relay_port" "Remove it.";
    // From Squid 1.x to 3.x; files on the net still have them.
    "httpd_accel_host" "Use `http_port 80 accel defaultsite=HOST` and `cache_peer HOST parent PORT 0 no-query originserver`.";
    "httpd_accel_port" "Give the port on `cache_peer … originserver`.";
    "httpd_accel_single_host" "Use one `cache_peer … originserver`.";
    "httpd_accel_with_proxy" "Use one `http_port … accel` and one plain `http_port`.";
    "httpd_accel_uses_host_header" "Use `http_port … accel`, with `no-vhost` to ignore Host.";
    "anonymize_headers" "Use `request_header_access`.";
    "fake_user_agent" "Use `request_header_access User-Agent deny all` and `request_header_replace`.";
    "http_anonymizer" "Use `request_header_access`.";
    "authenticate_program" "Use `auth_param basic program`.";
    "authenticate_children" "Use `auth_param basic children`.";
    "proxy_auth_realm" "Use `auth_param basic realm`.";
    "cache_announce" "Remove it.";
    "cache_dns_program" "Remove it: names are looked up by the program itself.";
    "dns_children" "Remove it: names are looked up by the program itself.";
    "cache_stoplist" "Use `cache deny` with a `urlpath_regex` ACL.";
    "cache_stoplist_pattern" "Use `cache deny` with a `url_regex` ACL.";
    "firewall_ip" "Use `never_direct` with a `dst` ACL.";
    "forward_snmpd_port" "Remove it.";
    "ftpget_options" "Remove it.";
    "ftpget_program" "Remove it.";
    "ident_lookup" "Remove it: the ident protocol is not implemented.";
    "ident_lookup_access" "Remove it: the ident protocol is not implemented.";
    "ident_timeout" "Remove it: the ident protocol is not implemented.";
    "inside_firewall" "Use `never_direct` with ACLs.";
    "local_domain" "Use `always_direct` with a `dstdomain` ACL.";
    "local_ip" "Use `always_direct` with a `dst` ACL.";
    "cache_swap" "Use the capacity on the `cache_dir` line.";
    "minimum_retry_timeout" "Remove it.";
    "proxy_auth" "Use `auth_param` and a `proxy_auth` ACL.";
    "quick_abort" "Use `quick_abort_min`, `quick_abort_max` and `quick_abort_pct`.";
    "reference_age" "Remove it: the replacement policy decides.";
    "siteselect_timeout" "Use `forward_timeout`.";
    "single_parent_bypass" "Use `prefer_direct`.";
    "snmp_agent_conf" "Remove it.";
    "snmp_mib_path" "Remove it.";
    "snmp_config_file" "Remove it.";
    "source_ping" "Remove it.";
    "ssl_proxy" "Use `cache_peer` and `cache_peer_access`.";
    "tcp_incoming_address" "Give the address on the `http_port` line.";
    "ttl_pattern" "Use `refresh_pattern`.";
    "request_size" "Use `request_body_max_size`.";
    "announce_to" "Remove it.";
    "authenticate_ip_ttl_is_strict" "Remove it.";
    "bind_address" "Give the address on the `http_port` line.";
    "outbound_address" "Use `tcp_outgoing_address`.";
    "cache_host_acl" "Use `cache_peer_access`.";
    "cache_peer_acl" "Use `cache_peer_access`.";
    "cache_mem_high" "Remove it: `cache_mem` is a firm bound.";
    "cache_mem_low" "Remove it: `cache_mem` is a firm bound.";
    "clean_rate" "Remove it.";
    "defer_timeout" "Remove it.";
    "delay_class1_access" "Use `delay_class` and `delay_access`.";
    "delay_class1_aggregate_max" "Use `delay_parameters`.";
    "delay_class1_aggregate_restore" "Use `delay_parameters`.";
    "delay_class2_access" "Use `delay_class` and `delay_access`.";
    "delay_class2_aggregate_max" "Use `delay_parameters`.";
    "delay_class2_aggregate_restore" "Use `delay_parameters`.";
    "delay_class2_individual_max" "Use `delay_parameters`.";
    "delay_class2_individual_restore" "Use `delay_parameters`.";
    "delay_class3_access" "Use `delay_class` and `delay_access`.";
    "delay_class3_aggregate_max" "Use `delay_parameters`.";
    "delay_class3_aggregate_restore" "Use `delay_parameters`.";
    "delay_class3_individual_max" "Use `delay_parameters`.";
    "delay_class3_individual_restore" "Use `delay_parameters`.";
    "delay_class3_network_max" "Use `delay_parameters`.";
    "delay_class3_network_restore" "Use `delay_parameters`.";
    "httpd_accel" "Use `http_port 80 accel defaultsite=HOST` and `cache_peer … originserver`.";
    "icon_content_type" "Remove it.";
    "manager_access_allow" "Use `http_access` with the ACL `manager`.";
    "mcast_miss_addr" "Remove it.";
    "mcast_miss_encode_key" "Remove it.";
    "mcast_miss_port" "Remove it.";
    "mcast_miss_ttl" "Remove it.";
    "neighbor_timeout" "Use `icp_query_timeout`.";
    "neighbour_timeout" "Use `icp_query_timeout`.";
    "passthrough_proxy" "Use `cache_peer` and `never_direct`.";
    "replacement_policy" "Use `cache_replacement_policy`.";
    "snmp_acl" "Use `snmp_access`.";
    "snmp_do_queueing" "Remove it.";
    "snmp_enable_authen_traps" "Remove it.";
    "snmp_trap_community" "Remove it.";
    "trap_sink" "Remove it.";
    "udp_hit_obj" "Remove it.";
    "udp_hit_obj_size" "Remove it.";
    "viz_hack_addr" "Remove it.";
    "wais_relay" "Remove it.";
    "wccp_incoming_address" "Use `wccp_address`.";
    "wccp_outgoing_address" "Use `wccp_address`.";
    "zph_preserve_miss_tos" "Use `qos_flows`.";
    "zph_preserve_miss_tos_mask" "Use `qos_flows`.";
    "zph_tos_local" "Use `qos_flows local-hit=`.";
    "zph_tos_parent" "Use `qos_flows parent-hit=`.";
    "zph_tos_peer" "Use `qos_flows sibling-hit=`.";
    "proxy_allow" "Use `http_access allow`.";
    "proxy_deny" "Use `http_access deny`.";
    "accel_allow" "Use `http_access allow`.";
    "accel_deny" "Use `http_access deny`.";
};
