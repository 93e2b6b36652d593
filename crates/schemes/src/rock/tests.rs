//! What only `rock` promises.
