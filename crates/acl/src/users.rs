//! Sets of names of users.

use hashbrown::HashSet;
use humboldt_conf::AclFlags;

use crate::decode::with_lower_case;

/// Names of users.
#[derive(Debug)]
pub(crate) struct UserSet {
    /// Every user is in it.
    all: bool,
    /// In lower case, if case does not matter.
    names: HashSet<Box<[u8]>>,
    ignore_case: bool,
}

impl UserSet {
    pub(crate) fn compile(values: &[String], flags: &AclFlags) -> Self {
        let spelled = |name: &String| match flags.ignore_case {
            true => name.to_ascii_lowercase(),
            false => name.clone(),
        };
        let names = values.iter().map(|name| spelled(name).into_bytes().into()).collect();
        Self { all: flags.every_user, names, ignore_case: flags.ignore_case }
    }

    pub(crate) fn contains(&self, user: &str) -> bool {
        let is_among = |name: &[u8]| self.names.contains(name);
        self.all
            || match self.ignore_case {
                true => with_lower_case(user.as_bytes(), is_among),
                false => is_among(user.as_bytes()),
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_case_unless_the_flag_says_otherwise() {
        let set = |ignore_case, every_user| {
            let flags = AclFlags { ignore_case, every_user, ..AclFlags::default() };
            UserSet::compile(&["Anna".to_owned(), "bo".to_owned()], &flags)
        };
        for (user, exact, folded) in [
            ("Anna", true, true),
            ("anna", false, true),
            ("BO", false, true),
            ("ann", false, false),
        ] {
            assert_eq!(set(false, false).contains(user), exact, "{user}");
            assert_eq!(set(true, false).contains(user), folded, "{user}");
            assert!(set(false, true).contains(user));
        }
    }
}
