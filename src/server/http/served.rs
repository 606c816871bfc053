//! Which model a request asked for, for its record.

use agent::turn::TurnRecord;
use protocol::ids::shown;

/// What the record of a request says of the model that was asked. A handler adds it to its response.
#[derive(Debug, Clone)]
pub(super) struct Served {
    /// The model as the client named it.
    pub(super) model: String,
    /// The model server, and facts about the turn.
    pub(super) turn: TurnRecord,
}

impl Served {
    /// A request that names a model.
    pub(super) fn of(model: &str) -> Self {
        Self {
            model: shown(model),
            turn: TurnRecord::default(),
        }
    }

    /// The request of a turn.
    pub(super) fn by_turn(model: &str, turn: &TurnRecord) -> Self {
        Self {
            turn: turn.clone(),
            ..Self::of(model)
        }
    }
}
