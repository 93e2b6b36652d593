//! The page of budgets (`client_budget`).

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use humboldt_proxy::budgets::{ACCOUNTS_MAX, AccountReport};
use humboldt_proxy::shared::Shared;

use crate::figures::Figures;

/// Most clients on the page.
const CLIENTS_SHOWN_MAX: usize = 1000;

/// The budgets at one moment.
pub(crate) struct BudgetFigures {
    /// The lines, each with its number in accounts.
    pub lines: Vec<(u64, String)>,
    /// Finds the clients that are shown: only for this page, as there may be many.
    pub shown: Box<dyn Fn() -> Vec<AccountReport>>,
    /// Clients whose use is known.
    pub clients: u64,
    /// Clients that left for others.
    pub evicted: u64,
}

impl BudgetFigures {
    /// Reads them.
    pub(crate) fn gather(shared: &Shared) -> Self {
        let snapshot = shared.snapshot();
        let lines = snapshot.budgets.iter().map(|line| (line.id, line.source.to_string()));
        Self {
            lines: lines.collect(),
            shown: {
                let budgets = Arc::clone(&shared.budgets);
                Box::new(move || budgets.report(CLIENTS_SHOWN_MAX))
            },
            clients: shared.budgets.len() as u64,
            evicted: shared.budgets.evicted(),
        }
    }
}

#[cfg(test)]
impl Default for BudgetFigures {
    fn default() -> Self {
        Self { lines: Vec::new(), shown: Box::new(Vec::new), clients: 0, evicted: 0 }
    }
}

/// The page.
pub(crate) fn render(figures: &Figures) -> String {
    let BudgetFigures { lines, shown, clients, evicted } = &figures.budgets;
    let mut out = format!(
        "Budgets of clients (client_budget):\n\nclients known: {clients} of {ACCOUNTS_MAX}\n\
         clients that left for others: {evicted}\n"
    );
    let shown = shown();
    for (id, line) in lines {
        _ = writeln!(out, "\n{line}");
        _ = writeln!(
            out,
            "{:<40}\t{:>10}\t{:>8}\t{:>14}\t{:>14}",
            "Client", "Refused", "Tunnels", "Requests back", "Bytes back"
        );
        for account in shown.iter().filter(|account| account.line == *id) {
            let AccountReport { client, refused, tunnels, requests_owed, bytes_owed, .. } = account;
            _ = writeln!(
                out,
                "{client:<40}\t{refused:>10}\t{tunnels:>8}\t{:>14}\t{:>14}",
                seconds(*requests_owed),
                seconds(*bytes_owed)
            );
        }
    }
    out.push_str(
        "\nRequests back, bytes back: the time until all that was used has come back. At most \
         1000 clients are shown, those that were refused most often first.\n",
    );
    out
}

fn seconds(time: Duration) -> String {
    format!("{:.3} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_stand_under_their_lines() {
        let account = |line, client: &str| AccountReport {
            line,
            client: client.to_owned(),
            requests_owed: Duration::from_millis(1500),
            bytes_owed: Duration::ZERO,
            tunnels: 2,
            refused: 7,
            weight: (7, 2, 0),
        };
        let budgets = BudgetFigures {
            lines: vec![(1, "client_budget a".to_owned()), (2, "client_budget b".to_owned())],
            shown: Box::new(move || vec![account(2, "anna"), account(1, "10.0.0.1")]),
            clients: 2,
            evicted: 0,
        };
        let text = render(&Figures { budgets, ..Figures::idle() });
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
        assert!(at("client_budget a") < at("10.0.0.1") && at("10.0.0.1") < at("client_budget b"));
        assert!(at("client_budget b") < at("anna") && text.contains("1.500 s"), "{text}");
    }
}
