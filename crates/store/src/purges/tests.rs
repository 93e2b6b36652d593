//! Purges by tag and prefix.
