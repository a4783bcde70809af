use blitz::router::Pattern;

#[track_caller]
fn refused(pattern: &str, because: &str) {
    let error = Pattern::parse(pattern).expect_err(pattern).to_string();
    assert!(
        error.contains(pattern) && error.contains(because),
        "{error}"
    );
}

#[test]
fn a_route_starts_with_a_slash() {
    refused("", "starts with `/`");
    refused("users", "starts with `/`");
    refused("{id}", "starts with `/`");
}

#[test]
fn braces_must_match() {
    refused("/users/{id", "never closed");
    refused("/users/id}", "no `{` before");
    refused("/users/{}", "is not a name");
    refused("/users/{a-b}", "is not a name");
}

#[test]
fn unknown_kinds_are_refused() {
    refused(
        "/users/{id:float}",
        "the kinds are uuid, u32, u64, i32, i64, str",
    );
}

#[test]
fn a_parameter_ends_its_segment() {
    refused("/{name}.json", "end of its segment");
    refused("/{a}{b}", "need a `/` between");
}

#[test]
fn a_catch_all_ends_the_route_and_starts_a_segment() {
    refused("/{rest...}/more", "nothing can follow");
    refused("/files{rest...}", "must follow a `/`");
    assert!(Pattern::parse("/files/{*rest}").is_ok());
}

#[test]
fn names_are_unique_and_few() {
    refused("/{id}/{id}", "appears twice");
    refused("/{a}/{b}/{c}/{d}/{e}/{f}/{g}/{h}/{i}", "at most 8");
}

#[test]
fn literals_that_no_normalised_path_contains_are_refused() {
    refused("/a/../b", "never match");
    refused("/a/.", "never match");
    refused("/a%zz", "two hexadecimal digits");
    refused("/a%00", "refused in every path");
}
