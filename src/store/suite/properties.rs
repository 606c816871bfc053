//! Any sequence of changes has the same effect on a session as on a list.

use futures_util::future::BoxFuture;
use proptest::collection::vec;
use proptest::test_runner::{Config, TestRunner};

use super::*;

/// Number of new instructions, number of kept messages, and which of the new messages are a user's.
type Step = (Option<usize>, usize, Vec<bool>);

pub(crate) fn changes_have_the_effect_of_list_operations(
    open: impl Fn() -> BoxFuture<'static, TestStore>,
) {
    let step = (
        proptest::option::of(0..3_usize),
        0..12_usize,
        vec(proptest::bool::weighted(0.2), 0..10),
    );
    let mut runner = TestRunner::new(Config {
        failure_persistence: None,
        ..Config::with_cases(48)
    });
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let run = runner.run(&vec(step, 1..12), |steps| {
        runtime.block_on(async { check(open().await, steps).await });
        Ok(())
    });
    run.unwrap();
}

async fn check(subject: TestStore, steps: Vec<Step>) {
    let other = append(0, &[user("other")]);
    subject.write(&id("other"), other.clone()).await;
    let mut expected = StoredSession::default();
    for (number, (instructions, keep, append)) in steps.into_iter().enumerate() {
        let message = |(place, by_user): (usize, bool)| {
            let text = format!("{number}.{place}");
            if by_user { user(&text) } else { answer(&text) }
        };
        let change = Change {
            // Some are longer than a row.
            instructions: instructions.map(|count| {
                let text = number
                    .to_string()
                    .repeat(if keep % 2 == 0 { 1 } else { 20_000 });
                vec![system(&text); count]
            }),
            keep,
            title: append
                .iter()
                .position(|by_user| *by_user)
                .map(|index| Title {
                    index,
                    text: Some(format!("{number}.{index}")),
                }),
            append: append.into_iter().enumerate().map(message).collect(),
            ..Change::default()
        };
        subject.write(&id("s"), change.clone()).await;
        expected.messages.truncate(keep);
        expected.messages.extend(change.append);
        expected.instructions = change.instructions.unwrap_or(expected.instructions);
        let stored = subject.loaded(&id("s")).await;
        assert_eq!(stored.messages, expected.messages);
        assert_eq!(stored.instructions, expected.instructions);
        let summary = subject.summary(&id("s")).await;
        let is_user = |stored: &&StoredMessage| *stored.message.role() == Role::User;
        let first = expected.messages.iter().find(is_user);
        assert_eq!(
            summary.title,
            first.map(|stored| stored.message.content_text())
        );
        let count = expected.messages.len() + expected.instructions.len();
        assert_eq!(summary.message_count, u64::try_from(count).unwrap());
        assert_eq!(subject.loaded(&id("other")).await.messages, other.append);
    }
}
