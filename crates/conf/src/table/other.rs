//! Helpers, adaptation, error pages and everything else that is only known.

use super::directive::{Directive, known};

pub(super) const KNOWN: &[Directive] = known! { "Everything else":
    Unsupported("content adaptation (ICAP, eCAP) is not implemented, so messages pass unchanged and unfiltered") {
        "icap_enable", "icap_enable on|off", "Whether ICAP is used.";
        "icap_connect_timeout", "icap_connect_timeout TIME", "Longest time to connect to an ICAP server.";
        "icap_io_timeout", "icap_io_timeout TIME", "Longest silence of an ICAP server.";
        "icap_service_failure_limit", "icap_service_failure_limit NUMBER [in TIME]", "Failures after which a service is suspended.";
        "icap_service_revival_delay", "icap_service_revival_delay SECONDS", "How long it stays suspended.";
        "icap_preview_enable", "icap_preview_enable on|off", "Whether services get a preview first.";
        "icap_preview_size", "icap_preview_size BYTES", "Size of the preview.";
        "icap_206_enable", "icap_206_enable on|off", "Whether services may answer with parts.";
        "icap_default_options_ttl", "icap_default_options_ttl SECONDS", "Lifetime of a service's options.";
        "icap_persistent_connections", "icap_persistent_connections on|off", "Whether connections to ICAP servers are kept.";
        "icap_client_username_header", "icap_client_username_header FIELD", "Field for the user's name.";
        "icap_client_username_encode", "icap_client_username_encode on|off", "Whether that name is base64-encoded.";
        "icap_service", "icap_service ID POINT [OPTION ...] URI", "An ICAP service.";
        "icap_class", "icap_class NAME SERVICE ...", "The old form of `adaptation_service_set`.";
        "icap_access", "icap_access NAME allow|deny [!]ACL ...", "The old form of `adaptation_access`.";
        "icap_retry", "icap_retry allow|deny [!]ACL ...", "Which ICAP requests are repeated.";
        "icap_retry_limit", "icap_retry_limit NUMBER", "How often they are repeated.";
        "icap_log", "icap_log MODULE:PLACE [FORMAT]", "Log of ICAP transactions.";
        "ecap_enable", "ecap_enable on|off", "Whether eCAP is used.";
        "ecap_service", "ecap_service ID POINT [OPTION ...] URI", "An eCAP service.";
        "loadable_modules", "loadable_modules PATH ...", "Libraries to load at start.";
        "adaptation_send_client_ip" | "icap_send_client_ip", "adaptation_send_client_ip on|off", "Whether services get the client's address.";
        "adaptation_send_username" | "icap_send_client_username", "adaptation_send_username on|off", "Whether services get the user's name.";
        "adaptation_uses_indirect_client" | "icap_uses_indirect_client", "adaptation_uses_indirect_client on|off", "Whether that address comes from X-Forwarded-For.";
        "adaptation_service_set", "adaptation_service_set NAME SERVICE ...", "Services of which one is used.";
        "adaptation_service_chain", "adaptation_service_chain NAME SERVICE ...", "Services that are used in sequence.";
        "adaptation_access", "adaptation_access NAME allow|deny [!]ACL ...", "Which messages a service gets.";
        "adaptation_service_iteration_limit", "adaptation_service_iteration_limit NUMBER", "Most services for one message.";
        "adaptation_masterx_shared_names", "adaptation_masterx_shared_names NAME", "Names shared between services.";
        "adaptation_meta", "adaptation_meta NAME VALUE [!]ACL ...", "Fields sent to services.";
    }
    Ignored("a client could fill the log with languages") {
        "error_log_languages", "error_log_languages on|off", "Whether languages without pages are logged.";
    }
    Ignored("no page has icons, and no other objects are served") {
        "icon_directory", "icon_directory PATH", "Directory of icons.";
        "short_icon_urls", "short_icon_urls on|off", "Whether URLs of icons are short.";
        "global_internal_static", "global_internal_static on|off", "Whether internal objects are served under every host name.";
    }
    Unsupported("SNMP is not implemented; `/metrics` has the same figures") {
        "snmp_port", "snmp_port PORT", "Where to listen for SNMP.";
        "snmp_access", "snmp_access allow|deny [!]ACL ...", "Who may ask with SNMP.";
        "snmp_incoming_address", "snmp_incoming_address ADDRESS", "Address to receive SNMP on.";
        "snmp_outgoing_address", "snmp_outgoing_address ADDRESS", "Address to send SNMP from.";
    }
    Unsupported("WCCP is not implemented") {
        "wccp_router", "wccp_router ADDRESS", "Router to register with (version 1).";
        "wccp2_router", "wccp2_router ADDRESS ...", "Routers to register with (version 2).";
        "wccp_version", "wccp_version NUMBER", "Version announced to routers.";
        "wccp2_rebuild_wait", "wccp2_rebuild_wait on|off", "Whether registration waits for the stores.";
        "wccp2_forwarding_method", "wccp2_forwarding_method METHOD", "How the router sends packets.";
        "wccp2_return_method", "wccp2_return_method METHOD", "How packets go back to the router.";
        "wccp2_assignment_method", "wccp2_assignment_method METHOD", "How the router spreads load.";
        "wccp2_service", "wccp2_service TYPE ID [OPTION ...]", "A service group to join.";
        "wccp2_service_info", "wccp2_service_info ID OPTION ...", "Details of a dynamic service.";
        "wccp2_weight", "wccp2_weight NUMBER", "Share of the load.";
        "wccp_address", "wccp_address ADDRESS", "Address to register from (version 1).";
        "wccp2_address", "wccp2_address ADDRESS", "Address to register from (version 2).";
    }
    Unsupported("FTP is not implemented") {
        "ftp_user", "ftp_user NAME", "Password of anonymous FTP.";
        "ftp_passive", "ftp_passive on|off", "Whether FTP data connections are passive.";
        "ftp_epsv_all", "ftp_epsv_all on|off", "Whether EPSV ALL is sent.";
        "ftp_epsv", "ftp_epsv allow|deny [!]ACL ...", "Whether EPSV is used.";
        "ftp_eprt", "ftp_eprt on|off", "Whether EPRT is used.";
        "ftp_sanitycheck", "ftp_sanitycheck on|off", "Whether addresses of data connections are checked.";
        "ftp_telnet_protocol", "ftp_telnet_protocol on|off", "Whether bytes 255 are doubled.";
        "ftp_client_idle_timeout", "ftp_client_idle_timeout TIME", "Longest idle time of an FTP client.";
    }
    Ignored("mail is not sent") {
        "mail_from", "mail_from ADDRESS", "Sender of mail about a crash.";
        "mail_program", "mail_program COMMAND", "Program that sends it.";
    }
    Ignored("files are created with the permissions they need") {
        "umask", "umask OCTAL", "Permissions that new files do not get.";
    }
    Ignored("the system places threads") {
        "cpu_affinity_map", "cpu_affinity_map process_numbers=LIST cores=LIST", "Which process runs on which processor.";
    }
    Ignored("there is one process and no helper to wait for") {
        "hopeless_kid_revival_delay", "hopeless_kid_revival_delay TIME", "Pause before a failing process is started again.";
        "sleep_after_fork", "sleep_after_fork MICROSECONDS", "Pause after starting a helper.";
    }
    Unsupported("the root directory is not changed; use the service manager for that") {
        "chroot", "chroot PATH", "Directory to use as root.";
    }
    Ignored("statistics by client are not kept") {
        "client_db", "client_db on|off", "Whether statistics are kept for each client.";
    }
    Ignored("look at `/metrics` for response times, page faults and memory") {
        "high_response_time_warning", "high_response_time_warning MILLISECONDS", "Median response time that causes a warning.";
        "high_page_fault_warning", "high_page_fault_warning NUMBER", "Page faults a second that cause a warning.";
        "high_memory_warning", "high_memory_warning SIZE", "Memory that causes a warning.";
    }
    Ignored("autonomous system numbers are not looked up") {
        "as_whois_server", "as_whois_server HOST", "Server to ask for autonomous system numbers.";
    }
    Ignored("it is for Windows") {
        "windows_ipaddrchangemonitor", "windows_ipaddrchangemonitor on|off", "Whether changes of addresses are watched.";
    }
};
