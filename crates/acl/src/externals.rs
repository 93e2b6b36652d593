//! ACLs whose answers come from helper programs.

/// An ACL `external`: the question that its helper is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct External {
    /// Its name.
    pub acl: Box<str>,
    /// The name of its `external_acl_type`.
    pub helper: Box<str>,
    /// Its arguments.
    pub arguments: Box<[String]>,
}
