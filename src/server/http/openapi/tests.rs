use super::*;

#[test]
fn a_name_of_a_schema_means_one_schema() {
    let mut schemas = Schemas::new();
    for group in &crate::http::groups() {
        operations_of(group, &mut schemas);
    }
    let read = schemas.requests.take_definitions(true);
    let written = schemas.answers.take_definitions(true);
    for (name, schema) in &read {
        let other = written.get(name);
        assert!(other.is_none_or(|other| other == schema), "{name}");
        let numbered = name.ends_with(|last: char| last.is_ascii_digit());
        assert!(!numbered, "{name}: two types have one name");
    }
}

#[test]
fn every_operation_has_an_id_of_its_own() {
    let document = document();
    let mut ids = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap();
            assert!(
                !id.is_empty() && ids.insert(id.to_owned()),
                "{method} {path}: {id}"
            );
            assert_ne!(operation["summary"], "", "{method} {path}");
            for (status, answer) in operation["responses"].as_object().unwrap() {
                assert_ne!(answer["description"], "", "{method} {path} {status}");
            }
        }
    }
    assert!(ids.len() > 25, "{ids:?}");
}
