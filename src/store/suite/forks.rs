//! Forks and replacements.

use super::*;

pub(crate) async fn a_fork_copies_up_to_the_index(subject: TestStore) {
    let instructions = vec![system("i0"), system("i1")];
    let messages = [user("m2"), hidden_result("m3"), answer("m4"), user("m5")];
    let source = Change {
        instructions: Some(instructions.clone()),
        client_calls: vec!["call_x".to_owned()],
        title: Some(Title {
            index: 0,
            text: Some("m2".to_owned()),
        }),
        ..append(0, &messages)
    };
    subject.write(&id("source"), source).await;
    let before = subject.loaded(&id("source")).await;
    for index in [None, Some(6), Some(5), Some(3), Some(2), Some(1), Some(0)] {
        let fork = id(&format!("fork{}", index.unwrap_or(7)));
        subject.fork(&id("source"), index, &fork).await.unwrap();
        let copied = subject.loaded(&fork).await;
        let total = index.unwrap_or(6);
        assert_eq!(copied.instructions, instructions[..total.min(2)]);
        assert_eq!(copied.messages, messages[..total.saturating_sub(2)]);
        assert!((now() - copied.created_at).abs() < 5);
        let entry = subject.summary(&fork).await;
        assert_eq!(entry.message_count, u64::try_from(total).unwrap());
        let title = (total > 2).then(|| "m2".to_owned());
        assert_eq!(entry.title, title);
        // The fork can be written independently.
        let keep = copied.messages.len();
        subject.write(&fork, append(keep, &[user("on")])).await;
        assert_eq!(subject.loaded(&fork).await.messages.len(), keep + 1);
    }
    assert_eq!(subject.loaded(&id("source")).await, before);
    assert_eq!(subject.session_of_call("call_x").await, Some(id("source")));
}

pub(crate) async fn forks_of_large_sessions_are_independent(subject: TestStore) {
    let [source, fork, second, part] = ["source", "fork", "second", "part"].map(id);
    let messages = many(1_000);
    let change = Change {
        instructions: Some(vec![system("i")]),
        client_calls: vec!["c".to_owned()],
        title: Some(Title {
            index: 0,
            text: Some("0".to_owned()),
        }),
        ..append(0, &messages)
    };
    subject.write(&source, change).await;
    let before = subject.loaded(&source).await;
    subject.fork(&source, None, &fork).await.unwrap();
    assert_eq!(subject.loaded(&source).await, before);
    assert_eq!(subject.session_of_call("c").await, Some(source.clone()));
    // A fork of a fork that went on, and a fork of the first messages of that.
    let more = vec![answer("more"); 200];
    subject.write(&fork, append(1_000, &more)).await;
    subject.fork(&fork, None, &second).await.unwrap();
    subject.fork(&second, Some(1_101), &part).await.unwrap();
    let all = [&messages[..], &more].concat();
    // Each is edited at another place, or deleted.
    subject.write(&source, append(600, &[user("edited")])).await;
    subject.write(&second, append(1_050, &[])).await;
    subject
        .write(&part, append(3, &[answer("new"), user("newer")]))
        .await;
    let instructions = Change {
        instructions: Some(vec![system("other")]),
        ..append(1_200, &[user("end")])
    };
    subject.write(&fork, instructions).await;
    let loaded = async |session: &SessionId| subject.loaded(session).await.messages;
    let edited = [&messages[..600], &[user("edited")]].concat();
    let short = [&messages[..3], &[answer("new"), user("newer")]].concat();
    let longest = [&all[..], &[user("end")]].concat();
    assert_eq!(loaded(&source).await, edited);
    assert_eq!(loaded(&second).await, all[..1_050]);
    assert_eq!(loaded(&part).await, short);
    assert_eq!(loaded(&fork).await, longest);
    assert_eq!(
        subject.loaded(&second).await.instructions,
        before.instructions
    );
    for (gone, left) in [
        (&source, vec![(&second, &all[..1_050]), (&fork, &longest)]),
        (&fork, vec![(&second, &all[..1_050]), (&part, &short)]),
        (&second, vec![(&part, &short)]),
    ] {
        assert!(subject.delete(gone).await);
        assert!(subject.is_gone(gone).await);
        for (session, messages) in left {
            assert_eq!(loaded(session).await, messages);
        }
    }
    assert_eq!(subject.session_of_call("c").await, None);
    assert_eq!(
        subject.summary(&part).await.title.as_deref(),
        Some("0"),
        "the title's message is among those that are kept"
    );
}

/// A small generator of numbers, the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end as u64).unwrap()
    }
}

/// What a session should have: instructions and messages.
type Model = (Vec<Message>, Vec<StoredMessage>);

/// New instructions in some steps; some of them are long.
fn new_instructions(numbers: &mut Numbers, step: usize) -> Option<Vec<Message>> {
    let mut instruction = |number: usize| {
        let bytes = match numbers.below(16) {
            0 => 3 << 20,
            1..4 => 300_000,
            4..8 => 20_000,
            _ => 10,
        };
        system(&format!("{step}.{number}{}", "x".repeat(bytes)))
    };
    step.is_multiple_of(3)
        .then(|| (0..step % 4).map(&mut instruction).collect())
}

pub(crate) async fn any_forks_have_the_effect_of_copies(subject: TestStore) {
    let mut numbers = Numbers(0x9E37_79B9_7F4A_7C15);
    let mut model: Vec<Option<Model>> = vec![None; 5];
    let session = |slot: usize| id(&format!("s{slot}"));
    for step in 0..150 {
        let slot = numbers.below(model.len());
        let instructions = new_instructions(&mut numbers, step);
        let change = |keep: usize, new: &[StoredMessage]| Change {
            instructions: instructions.clone(),
            ..append(keep, new)
        };
        let Some((old, messages)) = model[slot].clone() else {
            let new = vec![user(&step.to_string()); numbers.below(400)];
            subject.write(&session(slot), change(0, &new)).await;
            model[slot] = Some((instructions.unwrap_or_default(), new));
            continue;
        };
        let place = numbers.below(messages.len() + 1);
        match numbers.below(8) {
            0 => {
                assert!(subject.delete(&session(slot)).await);
                model[slot] = None;
            }
            1 => {
                let new = vec![answer(&step.to_string()); numbers.below(200)];
                subject.replace(&session(slot), 0, change(0, &new)).await;
                model[slot] = Some((instructions.unwrap_or_default(), new));
            }
            2 | 3 => {
                let keep = if step % 2 == 0 { place } else { messages.len() };
                let new = vec![hidden_result(&step.to_string()); numbers.below(150)];
                subject.write(&session(slot), change(keep, &new)).await;
                let messages = [&messages[..keep], &new].concat();
                model[slot] = Some((instructions.unwrap_or(old), messages));
            }
            chosen => {
                let target = numbers.below(model.len());
                let before = match chosen {
                    4 => Some(numbers.below(old.len() + 1)),
                    5 => Some(old.len() + place),
                    _ => None,
                };
                let forked = subject.fork(&session(slot), before, &session(target)).await;
                if model[target].is_some() {
                    assert!(matches!(forked, Err(StoreError::Exists)), "{forked:?}");
                } else {
                    forked.unwrap();
                    let kept = before.unwrap_or(old.len() + messages.len());
                    let instructions = old[..kept.min(old.len())].to_vec();
                    let messages = messages[..kept.saturating_sub(old.len())].to_vec();
                    model[target] = Some((instructions, messages));
                }
            }
        }
        for (slot, expected) in model.iter().enumerate() {
            let stored = subject.store.load(&owner(), &session(slot)).await.unwrap();
            let stored = stored.map(|stored| (stored.instructions, stored.messages));
            assert!(stored == *expected, "step {step}, session {slot}");
        }
    }
    for (slot, _) in model.iter().enumerate().filter(|(_, slot)| slot.is_some()) {
        assert!(subject.delete(&session(slot)).await);
    }
    assert_eq!(subject.store.stored_rows().await, [0, 0, 0]);
}

pub(crate) async fn large_instructions_belong_to_each_fork(subject: TestStore) {
    let large = [system(&"x".repeat(300_000)), system("small")];
    let [source, fork, cut, second] = ["source", "fork", "cut", "second"].map(id);
    let with = |instructions: &[Message], messages: &[StoredMessage]| Change {
        instructions: Some(instructions.to_vec()),
        ..append(0, messages)
    };
    subject.write(&source, with(&large, &[user("a")])).await;
    subject.fork(&source, None, &fork).await.unwrap();
    subject.fork(&source, Some(1), &cut).await.unwrap();
    subject.fork(&fork, Some(2), &second).await.unwrap();
    subject
        .write(&source, with(&[system("new")], &[user("b")]))
        .await;
    subject.write(&fork, append(1, &[user("c")])).await;
    assert!(subject.delete(&cut).await);
    let loaded = async |session: &SessionId| {
        let stored = subject.loaded(session).await;
        (stored.instructions, stored.messages)
    };
    let of_source = (vec![system("new")], vec![user("b")]);
    assert_eq!(loaded(&source).await, of_source);
    assert!(loaded(&fork).await == (large.to_vec(), vec![user("a"), user("c")]));
    assert!(loaded(&second).await == (large.to_vec(), vec![]));
    // A large change keeps them.
    let long = many(700);
    subject.write(&second, append(0, &long)).await;
    assert!(loaded(&second).await == (large.to_vec(), long));
}

pub(crate) async fn a_refused_fork_has_a_specific_error(subject: TestStore) {
    let source = id("source");
    subject.write(&source, append(0, &[user("a")])).await;
    subject.fork(&source, None, &id("named")).await.unwrap();
    for taken in ["named", "source"] {
        let error = subject.fork(&source, None, &id(taken)).await;
        assert!(matches!(error, Err(StoreError::Exists)), "{error:?}");
    }
    assert_eq!(subject.loaded(&id("named")).await.messages, [user("a")]);
    let error = subject.fork(&id("none"), None, &id("x")).await;
    assert!(matches!(error, Err(StoreError::NotFound)), "{error:?}");
    for index in [2, usize::MAX] {
        let error = subject.fork(&source, Some(index), &id("x")).await;
        assert!(
            matches!(error, Err(StoreError::PastEnd { messages: 1 })),
            "{error:?}"
        );
    }
    let page = subject.store.list(&owner(), 10, None).await.unwrap();
    assert_eq!(page.data.len(), 2);
}

pub(crate) async fn a_replacement_replaces_everything(subject: TestStore) {
    let session = id("s");
    let new = Change {
        instructions: Some(vec![system("i")]),
        title: Some(Title {
            index: 0,
            text: Some("new".to_owned()),
        }),
        ..append(0, &[user("new"), answer("n")])
    };
    let first = subject.replace(&session, 1_234, new.clone()).await;
    assert_eq!(first, Replaced::Created);
    let more = Change {
        client_calls: vec!["c".to_owned()],
        ..append(2, &vec![user("more"); 5])
    };
    subject.write(&session, more).await;
    let second = subject.replace(&session, 1_234, new.clone()).await;
    assert_eq!(second, Replaced::Replaced);
    let stored = subject.loaded(&session).await;
    assert_eq!(stored.messages, new.append);
    assert_eq!(Some(stored.instructions), new.instructions);
    assert_eq!(stored.created_at, 1_234);
    assert!((now() - stored.updated_at).abs() < 5);
    let entry = subject.summary(&session).await;
    assert_eq!(
        (entry.message_count, entry.title.as_deref()),
        (3, Some("new"))
    );
    assert_eq!(subject.session_of_call("c").await, None);
    subject.replace(&session, 0, new).await;
    assert!((now() - subject.loaded(&session).await.created_at).abs() < 5);
    let page = subject.store.list(&owner(), 10, None).await.unwrap();
    assert_eq!(page.data.len(), 1);
}
