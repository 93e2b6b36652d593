//! What only `coss` promises.
