//! Cache manager pages and Prometheus metrics.
