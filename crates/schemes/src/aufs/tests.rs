//! What only `aufs` promises.
