//! Whether server-side tools may run in a turn at all.
//!
//! The gate decides about single calls, and asks for approval.

use super::{CallDecision, CallFacts};
use crate::tools::gate::Permission;

/// The strictest of several permissions; the default for none.
pub fn strictest(permissions: &[Permission]) -> Permission {
    permissions.iter().copied().max().unwrap_or_default()
}

/// The decision about a call that follows from the permission alone. `None`: the other policies decide.
pub fn decide(permission: Permission, call: CallFacts) -> Option<CallDecision> {
    match call {
        CallFacts::Server { .. } | CallFacts::Unusable(_) => {
            permission.refuses_all().then_some(CallDecision::Deny)
        }
        CallFacts::Client | CallFacts::Unknown(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::repeat::CallSignature;
    use super::*;

    #[test]
    fn the_strictest_permission_counts() {
        let (auto, deny) = (Permission::Auto, Permission::Deny);
        for (permissions, expected) in [
            (&[][..], auto),
            (&[auto], auto),
            (&[auto, deny], deny),
            (&[deny, auto, auto], deny),
        ] {
            assert_eq!(strictest(permissions), expected);
        }
    }

    #[test]
    fn only_calls_of_server_side_tools_are_denied() {
        let signature = CallSignature::new("f", "{}");
        for (call, decision) in [
            (
                CallFacts::Server {
                    call: signature,
                    repeatable: true,
                },
                Some(CallDecision::Deny),
            ),
            (CallFacts::Unusable(signature), Some(CallDecision::Deny)),
            (CallFacts::Client, None),
            (CallFacts::Unknown(signature), None),
        ] {
            assert_eq!(decide(Permission::Deny, call), decision);
            assert_eq!(decide(Permission::Auto, call), None);
        }
    }
}
