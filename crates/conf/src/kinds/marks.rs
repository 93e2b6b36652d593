//! Marks of packets: `tcp_outgoing_tos`, `tcp_outgoing_mark` and their like, `qos_flows`.

use super::Kind;
use super::access::read_terms;
use crate::diagnostics::Problem;
use crate::line::{Line, Token};
use crate::types::{MarkRule, NetfilterMark, QosFlows, QosMarks, TosRule, parse_u32};

/// `TOS ACL…`
pub(crate) struct TosRules;
/// `MARK ACL…`
pub(crate) struct MarkRules;
/// `MARK[/MASK] ACL…`
pub(crate) struct ConnectionMarkRules;
/// `tos|mark OPTION…`
pub(crate) struct Flows;

/// The bits of the type of service that belong to congestion control (RFC 3168).
const ECN_BITS: u32 = 3;

impl Kind for TosRules {
    type Out = Vec<TosRule>;
    const NAME: &'static str = "type of service and ACLs";

    fn apply(out: &mut Vec<TosRule>, line: &mut Line<'_>) -> Result<(), Problem> {
        let token = line.expect("a type of service")?;
        let tos = match token.text.as_str() {
            "default" => 0,
            text => read_tos(text, &token, line)?,
        };
        out.push(TosRule { tos, terms: read_terms(line)? });
        Ok(())
    }
}

/// A number of eight bits, of which the last two are not ours.
fn read_tos(text: &str, token: &Token, line: &mut Line<'_>) -> Result<u8, Problem> {
    let wrong = || {
        let why = format!("`{text}` is not a type of service");
        token.error(why).with_help("write a number from 0 to 255 that can be divided by 4: `0x20`")
    };
    let number = parse_u32(text).filter(|number| *number <= 255).ok_or_else(wrong)?;
    if number & ECN_BITS != 0 {
        let kept = number & !ECN_BITS;
        line.warn(token, format!("`{text}` is read as {kept:#x}: two bits belong to ECN"), None);
    }
    u8::try_from(number & !ECN_BITS).map_err(|_| wrong())
}

impl Kind for MarkRules {
    type Out = Vec<MarkRule>;
    const NAME: &'static str = "mark and ACLs";

    fn apply(out: &mut Vec<MarkRule>, line: &mut Line<'_>) -> Result<(), Problem> {
        let token = line.expect("a mark")?;
        if token.text.contains('/') {
            return Err(token.error("the mark of a packet is set as a whole: remove the mask"));
        }
        out.push(MarkRule { mark: read_mark(&token)?, terms: read_terms(line)? });
        Ok(())
    }
}

impl Kind for ConnectionMarkRules {
    type Out = Vec<MarkRule>;
    const NAME: &'static str = "mark with mask, and ACLs";

    fn apply(out: &mut Vec<MarkRule>, line: &mut Line<'_>) -> Result<(), Problem> {
        let token = line.expect("a mark")?;
        out.push(MarkRule { mark: read_mark(&token)?, terms: read_terms(line)? });
        Ok(())
    }
}

/// A netfilter mark.
pub(super) fn read_mark(token: &Token) -> Result<NetfilterMark, Problem> {
    NetfilterMark::parse(&token.text).ok_or_else(|| {
        let why = format!("`{}` is not a netfilter mark", token.text);
        token.error(why).with_help("write a number of 32 bits, perhaps with a mask: `0x20/0xff`")
    })
}

impl Kind for Flows {
    type Out = QosFlows;
    const NAME: &'static str = "`tos` or `mark`, and options";

    fn apply(out: &mut QosFlows, line: &mut Line<'_>) -> Result<(), Problem> {
        let first = line.expect("`tos` or `mark`")?;
        let is_mark = first.text == "mark";
        let mut next = match first.text.as_str() {
            "tos" | "mark" => line.next()?,
            // Old files mean `tos`.
            _ => Some(first.clone()),
        };
        let mut marks = QosMarks::default();
        let mut preserves = true;
        while let Some(token) = next {
            preserves &= token.text != "disable-preserve-miss";
            read_option(&mut marks, &token, is_mark, line)?;
            next = line.next()?;
        }
        if preserves {
            let message = "what the server's packets carried is not copied to the client's";
            line.warn(&first, message, Some("add `disable-preserve-miss`, and `miss=` if wanted"));
        }
        *(if is_mark { &mut out.mark } else { &mut out.tos }) = Some(marks);
        Ok(())
    }
}

fn read_option(
    marks: &mut QosMarks,
    token: &Token,
    is_mark: bool,
    line: &mut Line<'_>,
) -> Result<(), Problem> {
    let (name, value) = token.text.split_once('=').unwrap_or((&token.text, ""));
    let (value, mask) = value.split_once('/').unwrap_or((value, ""));
    let mut number = |text: &str| match is_mark {
        true => {
            parse_u32(text).ok_or_else(|| token.error(format!("`{text}` is not a netfilter mark")))
        }
        false => read_tos(text, token, line).map(u32::from),
    };
    match name {
        "local-hit" if mask.is_empty() => marks.local_hit = number(value)?,
        // Without the server's own mark, the bits outside of the mask are 0.
        "miss" if mask.is_empty() => marks.miss = number(value)?,
        "miss" => marks.miss = number(value)? & number(mask)?,
        "sibling-hit" | "parent-hit" => {
            number(value)?;
            let message = format!("`{name}` has no effect: no cache is asked whether it has a hit");
            line.warn(token, message, Some("its answers count as misses"));
        }
        "disable-preserve-miss" if value.is_empty() => {}
        "miss-mask" => {
            number(value)?;
            line.warn(token, "`miss-mask` has no effect: there is nothing to mask", None);
        }
        _ => {
            let why = format!("`{}` is not an option of `qos_flows`", token.text);
            return Err(token.error(why));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::{Config, NetfilterMark, QosMarks, Severity, parse_str};

    fn parse(lines: &str) -> (Config, usize, bool) {
        let text = format!("http_port 1\nhttp_access allow all\nacl a src 10.0.0.1\n{lines}\n");
        let (config, found) = parse_str("t", &text);
        (config, found.count(Severity::Warning), found.has_errors())
    }

    #[test]
    fn marks_and_types_of_service_with_their_conditions() {
        let (config, warnings, _) = parse(
            "tcp_outgoing_tos 0x20 a\ntcp_outgoing_tos default\nclientside_tos 7 !a\n\
             tcp_outgoing_mark 0x10\nclientside_mark 3 a\nmark_client_connection 0xAB/0xF a",
        );
        let tos: Vec<_> = config.tcp_outgoing_tos.iter().map(|rule| rule.tos).collect();
        assert_eq!((tos, warnings), (vec![0x20, 0], 1));
        assert_eq!(config.clientside_tos[0].tos, 4, "without the bits of ECN");
        assert_eq!(config.tcp_outgoing_mark[0].mark.value, 0x10);
        assert_eq!(config.mark_client_packet[0].terms.len(), 1);
        let mark = config.mark_client_connection[0].mark;
        assert_eq!(mark, NetfilterMark { value: 0xab, mask: 0xf });
        for bad in ["tcp_outgoing_tos 256", "tcp_outgoing_mark 1/2", "mark_client_packet x"] {
            assert!(parse(bad).2, "{bad}");
        }
    }

    #[test]
    fn flows_as_far_as_their_sources_are_known() {
        let (config, warnings, wrong) =
            parse("qos_flows local-hit=0x30 disable-preserve-miss\nqos_flows mark miss=0xff/0xf");
        let marks = |local_hit, miss| Some(QosMarks { local_hit, miss });
        assert_eq!((config.qos_flows.tos, config.qos_flows.mark), (marks(0x30, 0), marks(0, 0xf)));
        assert_eq!((warnings, wrong), (1, false));
        assert_eq!(parse("qos_flows tos sibling-hit=4 miss-mask=0xFC").1, 3);
        assert!(parse("qos_flows tos local-hit=x").2 && parse("qos_flows mark other=1").2);
    }
}
