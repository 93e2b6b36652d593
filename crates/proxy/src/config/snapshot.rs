//! The compiled configuration. It is never changed, only replaced as a whole.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use humboldt_acl::{AclError, AclSet, ActionList, RuleList};
use humboldt_base::bump::SignAs;
use humboldt_conf::{
    AccessRule, AclDef, AclKind, BumpVerb, CertAdapt, Config, List, LogCode, LogPart, Need,
    RelaxedParser, UriWhitespace, json_fields, log_parts,
};
use humboldt_exchange::ClientSettings;
use humboldt_freshness::{RefreshRule, Settings};
use humboldt_http::{HeadLimits, TargetWhitespace};
use humboldt_net::dns::DnsOptions;
use humboldt_net::pool::PoolLimits;

use super::budgets::{self, BudgetLine};
use super::bumping;
use super::conditions::{AsksAddresses, compile_condition, compile_optional, with_conditions};
use super::delays::{Delays, PoolFigures};
use super::denials::Denials;
use super::error::CompileError;
use super::externals::Externals;
use super::header_rules::HeaderRules;
use super::helpers::HelperPrograms;
use super::logins::ConfiguredLogins;
use super::marks::Marks;
use super::names::Names;
use super::note_rules::NoteRules;
use super::pages::Pages;
use super::peers::Peers;
use super::reply_rules::ReplyRules;
use super::rewriting::Rewriting;
use super::rule_counts::{RuleCount, RuleCounts};
use super::tls::Tls;
use super::url_pattern::UrlPattern;

/// Most idle connections of a core to one server.
const POOL_PER_SERVER: usize = 64;

/// Port of name servers.
const DNS_PORT: u16 = 53;

/// Most idle connections of a core in all.
const POOL_TOTAL: usize = 4096;

/// The compiled configuration.
pub struct Snapshot {
    /// As parsed, without the values of ACLs: they are compiled, and there may be millions. The
    /// last owner of the old configuration, often a core, should not have to free each of them.
    pub config: Config,
    /// Bounds of request heads.
    pub head_limits: HeadLimits,
    /// Bounds of response heads.
    pub reply_limits: HeadLimits,
    /// `http_access`.
    pub http_access: RuleList,
    /// `adapted_http_access`, when there is any.
    pub adapted_access: Option<RuleList>,
    /// `http_access_report_only`, when there is any.
    pub(crate) on_trial: Option<RuleList>,
    /// `report_only`, when there is any.
    pub report_only: Option<RuleList>,
    /// How often each rule has decided.
    pub(crate) rule_counts: RuleCounts,
    /// Its number among the configurations that were in force; 0 before it is.
    generation: AtomicU64,
    /// `follow_x_forwarded_for`, when there is any.
    pub follow_forwarded_for: Option<RuleList>,
    /// Rules about answers, when there are any.
    pub reply_rules: Option<ReplyRules>,
    /// `range_offset_limit`: limits in bytes (`None`: no limit), each with its condition.
    pub range_offset_limits: Vec<(Option<u64>, RuleList)>,
    /// Answers of `deny_info`.
    pub denials: Denials,
    /// Templates of error pages.
    pub(crate) pages: Pages,
    /// Whether an ACL or a limit counts the connections of a client.
    pub counts_clients: bool,
    /// Whether an ACL names the method PURGE; without one, nobody may purge.
    pub purge_is_enabled: bool,
    /// Whether an ACL asks for the hardware address of clients.
    pub(crate) asks_hardware: bool,
    /// Whether a log names our ends of connections to servers.
    pub(crate) logs_server_local: bool,
    /// Whether an ACL is random.
    pub uses_random: bool,
    /// Whether an ACL needs the answer.
    pub rules_ask_answers: bool,
    /// `proxy_protocol_access`
    pub(crate) proxy_protocol_access: RuleList,
    /// `icp_access`, when there is any.
    pub(crate) icp_access: Option<RuleList>,
    /// `spoof_client_ip`
    pub(crate) spoof_client_ip: RuleList,
    /// `cache`, when there is any.
    pub cache: Option<RuleList>,
    /// `send_hit`, when there is any.
    pub(crate) send_hit: Option<RuleList>,
    /// `store_miss`, when there is any.
    pub(crate) store_miss: Option<RuleList>,
    /// `miss_access`, when there is any.
    pub miss_access: Option<RuleList>,
    /// `private_destinations`, when there is any.
    pub(crate) private_destinations: Option<RuleList>,
    /// `client_budget`
    pub budgets: Vec<BudgetLine>,
    /// `always_direct`, when there is any.
    pub always_direct: Option<RuleList>,
    /// `never_direct`, when there is any.
    pub never_direct: Option<RuleList>,
    /// Names of this proxy, and the fields made from them.
    pub names: Names,
    /// Settings of freshness.
    pub freshness: Settings,
    /// `refresh_pattern`s in order.
    refresh: Vec<(UrlPattern, RefreshRule)>,
    /// The rule for URLs that no pattern matches.
    pub refresh_default: RefreshRule,
    /// `cache_peer`s with their rules.
    pub peers: Peers,
    /// Rules about header fields.
    pub header_rules: HeaderRules,
    /// Rules that annotate.
    pub(crate) note_rules: NoteRules,
    pub(crate) outgoing: Vec<(IpAddr, RuleList)>,
    /// Rules about marks of packets.
    pub(crate) marks: Marks,
    /// Delay pools.
    pub(crate) delays: Delays,
    /// Each: the protocol and whether the rule allows it, and its condition.
    pub(crate) upgrades: Vec<((String, bool), RuleList)>,
    /// The lists that may need the addresses of a request's host.
    pub asks_addresses: AsksAddresses,
    /// Whether the rules that permit a request may need the name of the client.
    pub(crate) permission_asks_name: bool,
    /// `external_acl_type`.
    pub(crate) externals: Externals,
    /// Rewriting URLs and naming objects.
    pub(crate) rewriting: Rewriting,
    /// Helper programs.
    pub helpers: HelperPrograms,
    /// Whether they may need its login.
    pub(crate) permission_asks_user: bool,
    /// The logins of clients, if they can log in.
    pub(crate) logins: Option<ConfiguredLogins>,
    /// `ssl_bump`
    pub ssl_bump: ActionList<BumpVerb>,
    /// `sslproxy_cert_error`, when there is any: whether a fault is forgiven.
    pub(crate) cert_error: Option<RuleList>,
    /// `sslproxy_cert_sign`
    pub(crate) cert_sign: ActionList<SignAs>,
    /// `sslproxy_cert_adapt`
    pub(crate) cert_adapt: ActionList<CertAdapt>,
    /// `on_unsupported_protocol`: whether bytes that are no TLS pass unread.
    pub(crate) unsupported_protocol: ActionList<bool>,
    /// TLS.
    pub(crate) tls: Tls,
    /// The compiled ACLs, for lists that other parts of the program compile.
    pub acls: AclSet,
}

impl Snapshot {
    /// Compiles a configuration.
    ///
    /// # Errors
    /// All errors of the access rules, or of the files of TLS.
    pub fn compile(config: Config) -> Result<Arc<Self>, Vec<CompileError>> {
        Self::compile_after(config, None)
    }

    /// Compiles a configuration that is to follow another one. What took work to make, and stays
    /// the same, is taken over.
    ///
    /// # Errors
    /// As [`Snapshot::compile`].
    pub fn compile_after(
        config: Config,
        earlier: Option<&Self>,
    ) -> Result<Arc<Self>, Vec<CompileError>> {
        fn all<E: Into<CompileError>>(errors: Vec<E>) -> Vec<CompileError> {
            errors.into_iter().map(E::into).collect()
        }
        let acls = AclSet::compile(&config.acl).map_err(all)?;
        let tls = Tls::compile(&config, earlier.map(|earlier| &earlier.tls)).map_err(all)?;
        Self::with_acls(config, acls, tls).map_err(all)
    }

    fn with_acls(mut config: Config, acls: AclSet, tls: Tls) -> Result<Arc<Self>, Vec<AclError>> {
        let optional = |rules: &[AccessRule]| compile_optional(&acls, rules, true);
        let pages = Pages::take(&mut config);
        let mut helpers = HelperPrograms::default();
        let externals = Externals::compile(&acls, &config, &mut helpers);
        let rewriting = Rewriting::compile(&acls, &config, &mut helpers)?;
        let mut snapshot = Self {
            head_limits: head_limits(&config),
            reply_limits: reply_limits(&config),
            http_access: RuleList::compile(&acls, &config.http_access, false)?,
            adapted_access: optional(&config.adapted_http_access)?,
            on_trial: optional(&config.http_access_report_only)?,
            report_only: compile_optional(&acls, &config.report_only, false)?,
            rule_counts: RuleCounts::default(),
            generation: AtomicU64::new(0),
            follow_forwarded_for: compile_optional(&acls, &config.follow_x_forwarded_for, false)?,
            proxy_protocol_access: RuleList::compile(&acls, &config.proxy_protocol_access, false)?,
            icp_access: compile_optional(&acls, &config.icp_access, false)?,
            spoof_client_ip: RuleList::compile(&acls, &config.spoof_client_ip, true)?,
            reply_rules: ReplyRules::compile(&acls, &config)?,
            range_offset_limits: with_conditions(&acls, &config.range_offset_limit, |rule| {
                (rule.limit_bytes, &rule.terms)
            })?,
            denials: Denials::compile(&config),
            pages,
            counts_clients: config.client_ip_max_connections.is_some()
                || config.acl.iter().any(|acl| acl.kind == AclKind::MaxConn),
            purge_is_enabled: config.acl.iter().any(names_purge),
            asks_hardware: config.acl.iter().any(|acl| acl.kind == AclKind::Arp)
                || logs_any(&config, &[LogCode::ClientHardware]),
            logs_server_local: logs_any(
                &config,
                &[LogCode::ServerLocalIp, LogCode::ServerLocalPort],
            ),
            uses_random: config.acl.iter().any(|acl| acl.kind == AclKind::Random),
            rules_ask_answers: config.acl.iter().any(AclDef::asks_answer),
            cache: optional(&config.cache)?,
            send_hit: optional(&config.send_hit)?,
            store_miss: optional(&config.store_miss)?,
            miss_access: optional(&config.miss_access)?,
            budgets: budgets::compile(&acls, &config.client_budget)?,
            private_destinations: compile_optional(&acls, &config.private_destinations, false)?,
            always_direct: optional(&config.always_direct)?,
            never_direct: optional(&config.never_direct)?,
            names: Names::new(&config),
            freshness: freshness_settings(&config),
            refresh: config.refresh_pattern.iter().map(refresh_rule).collect(),
            refresh_default: RefreshRule::default(),
            peers: Peers::compile(&acls, &config, &tls)?,
            header_rules: HeaderRules::compile(&acls, &config)?,
            note_rules: NoteRules::compile(&acls, &config)?,
            outgoing: with_conditions(&acls, &config.tcp_outgoing_address, |rule| {
                (rule.addr, &rule.terms)
            })?,
            marks: Marks::compile(&acls, &config)?,
            delays: Delays::compile(&acls, &config)?,
            upgrades: with_conditions(&acls, &config.http_upgrade_request_protocols, |line| {
                ((line.protocol.clone(), line.rule.allow), &line.rule.terms)
            })?,
            asks_addresses: AsksAddresses::default(),
            permission_asks_name: false,
            externals,
            rewriting,
            helpers,
            permission_asks_user: false,
            logins: ConfiguredLogins::new(&acls, &config)?,
            ssl_bump: bumping::ssl_bump(&acls, &config)?,
            cert_error: bumping::cert_error(&acls, &config)?,
            cert_sign: bumping::cert_sign(&acls, &config)?,
            cert_adapt: bumping::cert_adapt(&acls, &config)?,
            unsupported_protocol: bumping::unsupported_protocol(&acls, &config)?,
            tls,
            acls,
            config,
        };
        let logins = snapshot.logins.as_mut();
        logins.into_iter().for_each(|logins| logins.add_helpers(&mut snapshot.helpers));
        snapshot.asks_addresses = snapshot.lists_that_ask_addresses();
        snapshot.permission_asks_name = snapshot.permission_asks(Need::ClientName);
        snapshot.permission_asks_user = snapshot.permission_asks(Need::User);
        snapshot.rule_counts = RuleCounts::new(snapshot.lists_that_refuse());
        snapshot.config.acl.iter_mut().for_each(|acl| acl.values = Vec::new());
        Ok(Arc::new(snapshot))
    }

    /// Comes into force, with this number, in place of an earlier one.
    pub(crate) fn begin(&self, generation: u64, cores: usize, earlier: Option<&Self>) {
        self.generation.store(generation, Relaxed);
        self.rule_counts.begin(cores, earlier.map(|earlier| &earlier.rule_counts));
    }

    /// Its number among the configurations that were in force, from 1.
    pub fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }

    /// How often each line of the lists that refuse has decided.
    pub fn rule_counts(&self) -> Vec<RuleCount> {
        self.rule_counts.read()
    }

    /// The lists whose lines are counted.
    fn lists_that_refuse(&self) -> impl Iterator<Item = (List, &RuleList)> {
        let reply = self.reply_rules.as_ref().and_then(|rules| rules.access.as_ref());
        let lists = [
            (List::HttpAccess, Some(&self.http_access)),
            (List::HttpAccessReportOnly, self.on_trial.as_ref()),
            (List::AdaptedHttpAccess, self.adapted_access.as_ref()),
            (List::MissAccess, self.miss_access.as_ref()),
            (List::HttpReplyAccess, reply),
        ];
        lists.into_iter().filter_map(|(list, rules)| Some((list, rules?)))
    }

    fn permission_asks(&self, need: Need) -> bool {
        let mut lists = [Some(&self.http_access), self.adapted_access.as_ref()].into_iter();
        lists.any(|list| list.is_some_and(|list| list.may_need(need)))
    }

    fn lists_that_ask_addresses(&self) -> AsksAddresses {
        let asks = |list: &RuleList| list.may_need(Need::DstIps);
        let any = |lists: &[&Option<RuleList>]| lists.iter().copied().flatten().any(asks);
        let logs = self.config.access_log.iter();
        let mut logs = logs.filter_map(|line| compile_condition(&self.acls, &line.terms).ok());
        AsksAddresses {
            permission: asks(&self.http_access) || any(&[&self.adapted_access, &self.miss_access]),
            answers: self.reply_rules.iter().flat_map(ReplyRules::fast_lists).any(asks)
                || self.header_rules.reply.lists().any(asks)
                // They select variants.
                || self.header_rules.request.lists().any(asks)
                || self.range_offset_limits.iter().any(|(_, list)| asks(list))
                || self.note_rules.lists().any(asks)
                || self.marks.lists_about_clients().any(asks)
                || self.delays.lists_about_answers().any(asks)
                || any(&[&self.send_hit, &self.store_miss])
                || logs.any(|list| asks(&list)),
            forwarding: self.peers.lists().any(asks)
                || asks(&self.spoof_client_ip)
                || self.outgoing.iter().any(|(_, list)| asks(list))
                || self.marks.lists_about_servers().any(asks)
                || self.header_rules.request.lists().any(asks)
                || self.upgrades.iter().any(|(_, list)| asks(list))
                || any(&[&self.cert_error])
                || self.cert_sign.may_need(Need::DstIps)
                || self.cert_adapt.may_need(Need::DstIps),
        }
    }

    /// The state of the delay pools.
    pub fn delay_pools(&self) -> Vec<PoolFigures> {
        self.delays.figures(&self.config)
    }

    /// The `refresh_pattern` of a URL.
    pub fn refresh_rule(&self, url: &[u8]) -> &RefreshRule {
        self.refresh
            .iter()
            .find(|(pattern, _)| pattern.is_match(url))
            .map_or(&self.refresh_default, |(_, rule)| rule)
    }

    /// Limits of connections to clients.
    pub fn client_settings(&self) -> ClientSettings {
        let config = &self.config;
        ClientSettings {
            limits: self.head_limits,
            persistent: config.client_persistent_connections,
            request_start: config.request_start_timeout,
            request: config.request_timeout,
            idle: config.client_idle_pconn_timeout,
            write: config.write_timeout,
            read: config.read_timeout,
            lifetime: config.client_lifetime,
            half_closed: config.half_closed_clients,
        }
    }

    /// Bounds of each core's connection pool.
    pub fn pool_limits(&self) -> PoolLimits {
        let per_key = if self.config.server_persistent_connections { POOL_PER_SERVER } else { 0 };
        PoolLimits { per_key, total: POOL_TOTAL, idle: self.config.server_idle_pconn_timeout }
    }

    /// `request_body_max_size` in bytes, if there is a limit.
    pub fn body_limit_bytes(&self) -> Option<u64> {
        Some(self.config.request_body_max_size).filter(|&bytes| bytes > 0)
    }

    /// Settings of the resolver.
    pub fn dns_options(&self) -> DnsOptions {
        DnsOptions {
            nameservers: self
                .config
                .dns_nameservers
                .iter()
                .filter_map(|text| name_server(text))
                .collect(),
            timeout: self.config.dns_timeout,
            append_domain: self.config.append_domain.clone(),
            search: self.config.dns_defnames,
            positive_ttl: self.config.positive_dns_ttl,
            negative_ttl: self.config.negative_dns_ttl,
            ..DnsOptions::default()
        }
    }
}

fn names_purge(acl: &AclDef) -> bool {
    acl.kind == AclKind::Method
        && acl.values.iter().any(|method| method.eq_ignore_ascii_case("PURGE"))
}

/// Whether a format has one of these codes.
fn logs_any(config: &Config, codes: &[LogCode]) -> bool {
    let is_wanted = |code: Option<LogCode>| code.is_some_and(|code| codes.contains(&code));
    let in_text =
        |part: &LogPart<'_>| matches!(part, LogPart::Value(value) if is_wanted(value.code));
    let logs = config.logformat.iter().map(|format| format.format.as_str());
    let adds = config.request_header_add.iter().chain(&config.reply_header_add);
    let added = adds.filter(|add| add.formatted).map(|add| add.value.as_str());
    let notes = config.note.iter().filter(|note| note.formatted).map(|note| note.value.as_str());
    let annotations = config.acl.iter().filter(|acl| acl.kind.annotates());
    let annotations = annotations.flat_map(|acl| &acl.values).map(String::as_str);
    let extras = [config.url_rewrite_extras.as_str(), config.store_id_extras.as_str()];
    let all = logs.chain(added).chain(notes).chain(annotations).chain(extras);
    let mut texts = all.map(|text| log_parts(text).0);
    let mut objects = config.logformat_json.iter().map(|format| json_fields(&format.format).0);
    texts.any(|parts| parts.iter().any(in_text))
        || objects.any(|fields| fields.iter().any(|field| is_wanted(field.code)))
}

/// `address` or `address:port`; port 53 by default.
fn name_server(text: &str) -> Option<SocketAddr> {
    text.parse().ok().or_else(|| Some(SocketAddr::new(text.parse().ok()?, DNS_PORT)))
}

fn whitespace(treatment: UriWhitespace) -> TargetWhitespace {
    match treatment {
        UriWhitespace::Deny => TargetWhitespace::Refused,
        UriWhitespace::Strip => TargetWhitespace::Removed,
        UriWhitespace::Encode => TargetWhitespace::Encoded,
        UriWhitespace::Chop => TargetWhitespace::CutOff,
    }
}

fn head_limits(config: &Config) -> HeadLimits {
    HeadLimits {
        whitespace: whitespace(config.uri_whitespace),
        ..limits(config.request_header_max_size, config.request_header_max_fields)
    }
}

fn reply_limits(config: &Config) -> HeadLimits {
    HeadLimits {
        relaxed: config.relaxed_header_parser != RelaxedParser::Off,
        ..limits(config.reply_header_max_size, config.reply_header_max_fields)
    }
}

fn limits(max_bytes: u64, max_fields: usize) -> HeadLimits {
    let defaults = HeadLimits::default();
    let max_head_bytes = usize::try_from(max_bytes).unwrap_or(usize::MAX).clamp(1024, 1024 * 1024);
    let max_target_bytes = defaults.max_target_bytes.min(max_head_bytes);
    HeadLimits { max_head_bytes, max_fields, max_target_bytes, ..defaults }
}

fn seconds(duration: std::time::Duration) -> u32 {
    u32::try_from(duration.as_secs()).unwrap_or(u32::MAX)
}

fn freshness_settings(config: &Config) -> Settings {
    Settings {
        shared: true,
        negative_ttl_s: seconds(config.negative_ttl),
        max_stale_s: seconds(config.max_stale),
        minimum_expiry_time_s: seconds(config.minimum_expiry_time),
        reload_into_ims: config.reload_into_ims,
        refresh_all_ims: config.refresh_all_ims,
        offline: config.offline_mode,
        target_list: vec![b"cdn-cache-control".to_vec().into_boxed_slice()],
    }
}

fn refresh_rule(pattern: &humboldt_conf::RefreshPattern) -> (UrlPattern, RefreshRule) {
    let options = &pattern.options;
    let rule = RefreshRule {
        override_expire: options.override_expire,
        override_lastmod: options.override_lastmod,
        reload_into_ims: options.reload_into_ims,
        ignore_reload: options.ignore_reload,
        ignore_no_store: options.ignore_no_store,
        ignore_private: options.ignore_private,
        refresh_ims: options.refresh_ims,
        store_stale: options.store_stale,
        max_stale_s: options.max_stale.map(seconds),
        ..RefreshRule::new(pattern.min_s, pattern.percent, pattern.max_s)
    };
    (UrlPattern::new(&pattern.regex, pattern.case_insensitive), rule)
}
