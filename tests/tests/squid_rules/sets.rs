//! Sets of rules as squid.conf has them.

use std::fmt::Write;

/// One `acl`, all its lines.
#[derive(Clone, Debug)]
pub(crate) struct Acl {
    pub(crate) kind: &'static str,
    pub(crate) lines: Vec<AclLine>,
}

/// One line of an `acl`.
#[derive(Clone, Debug, Default)]
pub(crate) struct AclLine {
    /// The words before the values: flags, the name of a field.
    pub(crate) lead: Vec<String>,
    pub(crate) values: Vec<String>,
    /// Of a group: its members.
    pub(crate) members: Vec<Term>,
}

/// The use of an `acl`, by its index.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Term {
    pub(crate) acl: usize,
    pub(crate) negated: bool,
}

/// One line of a list.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) list: &'static str,
    pub(crate) allow: bool,
    pub(crate) terms: Vec<Term>,
}

/// All rules behind one port.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuleSet {
    pub(crate) acls: Vec<Acl>,
    pub(crate) rules: Vec<Rule>,
    /// Pages, each with the ACL that it belongs to.
    pub(crate) deny_infos: Vec<(String, usize)>,
}

impl RuleSet {
    /// The lines of squid.conf. Each rule holds for requests to the own port only.
    pub(crate) fn text(&self, index: usize, port: u16) -> String {
        let mut out =
            format!("http_port {port} name=p{index}\nacl on{index} myportname p{index}\n");
        let term =
            |term: &Term| format!(" {}s{index}_{}", if term.negated { "!" } else { "" }, term.acl);
        for (number, acl) in self.acls.iter().enumerate().filter(|(at, _)| self.is_used(*at)) {
            for line in &acl.lines {
                write!(out, "acl s{index}_{number} {}", acl.kind).expect("memory");
                for word in line.lead.iter().chain(&line.values) {
                    let word = word.replace("{own}", &format!("p{index}"));
                    let word = word.replace("{next}", &format!("p{}", index + 1));
                    write!(out, " {word}").expect("memory");
                }
                let members: String = line.members.iter().map(term).collect();
                writeln!(out, "{members}").expect("memory");
            }
        }
        for (page, acl) in self.deny_infos.iter().filter(|(_, acl)| self.is_used(*acl)) {
            writeln!(out, "deny_info {page} s{index}_{acl}").expect("memory");
        }
        for rule in &self.rules {
            let action = if rule.allow { "allow" } else { "deny" };
            let terms: String = rule.terms.iter().map(term).collect();
            writeln!(out, "{} {action} on{index}{terms}", rule.list).expect("memory");
        }
        out
    }

    /// Whether a rule, or a group that is used, has this ACL. Groups have members before them only.
    fn is_used(&self, acl: usize) -> bool {
        let in_rules = self.rules.iter().flat_map(|rule| &rule.terms).any(|term| term.acl == acl);
        in_rules
            || self.acls.iter().enumerate().skip(acl + 1).any(|(at, group)| {
                let mut members = group.lines.iter().flat_map(|line| &line.members);
                members.any(|member| member.acl == acl) && self.is_used(at)
            })
    }

    /// This set with a part less, in many ways.
    pub(crate) fn smaller(&self) -> Vec<Self> {
        let mut all = Vec::new();
        let mut push = |change: &dyn Fn(&mut Self)| {
            let mut one = self.clone();
            change(&mut one);
            all.push(one);
        };
        push(&|one| one.deny_infos.clear());
        for at in 0..self.rules.len() {
            let list = self.rules[at].list;
            push(&|one| one.rules = vec![one.rules[at].clone()]);
            push(&|one| one.rules.retain(|rule| rule.list != list));
            push(&|one| _ = one.rules.remove(at));
            for term in 0..self.rules[at].terms.len() {
                push(&|one| _ = one.rules[at].terms.remove(term));
            }
        }
        for at in 0..self.deny_infos.len() {
            push(&|one| _ = one.deny_infos.remove(at));
        }
        for (at, acl) in self.acls.iter().enumerate().filter(|(at, _)| self.is_used(*at)) {
            for (number, line) in acl.lines.iter().enumerate() {
                if acl.lines.len() > 1 {
                    push(&|one| _ = one.acls[at].lines.remove(number));
                }
                if line.lead.first().is_some_and(|flag| flag == "-i") {
                    push(&|one| _ = one.acls[at].lines[number].lead.remove(0));
                }
                for value in (0..line.values.len()).filter(|_| line.values.len() > 1) {
                    push(&|one| _ = one.acls[at].lines[number].values.remove(value));
                }
                for member in (0..line.members.len()).filter(|_| line.members.len() > 1) {
                    push(&|one| _ = one.acls[at].lines[number].members.remove(member));
                }
                // A group gives way to one of its members.
                for member in &line.members {
                    push(&|one| one.replace(at, *member));
                }
            }
        }
        all
    }

    fn replace(&mut self, acl: usize, by: Term) {
        let terms = self.rules.iter_mut().flat_map(|rule| &mut rule.terms);
        for term in terms.filter(|term| term.acl == acl) {
            *term = Term { acl: by.acl, negated: term.negated != by.negated };
        }
    }
}
