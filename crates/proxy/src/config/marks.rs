//! Rules about marks of packets and connections.

use humboldt_acl::{AclError, AclSet, RuleList};
use humboldt_conf::{Config, MarkRule, NetfilterMark, QosFlows, TosRule};

use super::conditions::with_conditions;

/// Values with their conditions, in the order of the file.
type Rules<T> = Vec<(T, RuleList)>;

/// The compiled rules.
#[derive(Default)]
pub(crate) struct Marks {
    /// `tcp_outgoing_tos`
    pub(crate) server_tos: Rules<u8>,
    /// `tcp_outgoing_mark`
    pub(crate) server_mark: Rules<u32>,
    /// `clientside_tos`
    pub(crate) client_tos: Rules<u8>,
    /// `mark_client_packet`
    pub(crate) client_mark: Rules<u32>,
    /// `mark_client_connection`
    pub(crate) connection: Rules<NetfilterMark>,
    /// `qos_flows`
    pub(crate) flows: QosFlows,
    /// Whether there is any rule about clients.
    pub(crate) concern_clients: bool,
}

impl Marks {
    pub(crate) fn compile(acls: &AclSet, config: &Config) -> Result<Self, Vec<AclError>> {
        let tos =
            |rules: &[TosRule]| with_conditions(acls, rules, |rule| (rule.tos, &rule.terms[..]));
        let marks = |rules: &[MarkRule]| {
            with_conditions(acls, rules, |rule| (rule.mark.value, &rule.terms[..]))
        };
        let connection = with_conditions(acls, &config.mark_client_connection, |rule| {
            (rule.mark, &rule.terms[..])
        })?;
        let mut marks = Self {
            server_tos: tos(&config.tcp_outgoing_tos)?,
            server_mark: marks(&config.tcp_outgoing_mark)?,
            client_tos: tos(&config.clientside_tos)?,
            client_mark: marks(&config.mark_client_packet)?,
            connection,
            flows: config.qos_flows,
            concern_clients: false,
        };
        marks.concern_clients =
            marks.lists_about_clients().next().is_some() || marks.flows != QosFlows::default();
        Ok(marks)
    }

    /// The conditions about answers to clients.
    pub(crate) fn lists_about_clients(&self) -> impl Iterator<Item = &RuleList> {
        let tos = self.client_tos.iter().map(|(_, list)| list);
        let marks = self.client_mark.iter().map(|(_, list)| list);
        tos.chain(marks).chain(self.connection.iter().map(|(_, list)| list))
    }

    /// The conditions about connections to servers.
    pub(crate) fn lists_about_servers(&self) -> impl Iterator<Item = &RuleList> {
        let tos = self.server_tos.iter().map(|(_, list)| list);
        tos.chain(self.server_mark.iter().map(|(_, list)| list))
    }
}
