//! Cache manager pages in Squid's layout, and Prometheus metrics.
//!
//! [`AdminPages`] answers for `/squid-internal-mgr/<page>` and `/metrics`; the proxy decides who
//! may ask. A page is made from [`figures::Figures`], gathered once per page; averages over 5 and
//! 60 minutes come from [`history::History`]. Each list exists once: pages in [`pages`], lines of
//! `counters` in [`counters`], metrics in [`metrics`]; `docs/metrics.md` is made from the same
//! tables.

mod averages;
mod budgets;
mod counters;
mod delay;
mod descriptors;
mod figures;
mod helpers;
mod history;
mod info;
mod interval;
mod memory;
mod metrics;
mod pages;
mod rules;
mod service_times;
mod storedir;
mod totals;

pub use pages::AdminPages;

#[cfg(test)]
mod docs;
#[cfg(test)]
mod layout;
