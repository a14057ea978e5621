//! Where the services are, and names that no other test uses.

use uuid::Uuid;

/// The value of a variable that `scripts/services env` or `scripts/cloudevents` prints.
///
/// # Panics
/// If it is not set.
pub fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!(
            "{name} is not set (run scripts/test, or eval \"$(scripts/services start)\" and \
             eval \"$(scripts/cloudevents)\" first)"
        )
    })
}

/// A name that no other test uses: `prefix-…`.
pub fn unique_name(prefix: &str) -> String {
    format!("{prefix}-{}", Uuid::new_v4().simple())
}

/// A name for a database or a schema that no other test uses: `prefix_…`.
pub fn unique_identifier(prefix: &str) -> String {
    format!("{prefix}_{}", Uuid::new_v4().simple())
}

/// `host:port` of a URL.
///
/// # Panics
/// If the URL has no host.
pub fn authority(url: &str) -> &str {
    let (_, rest) = url.split_once("://").expect("the URL has a scheme");
    let host = rest.split(['/', '?']).next().expect("the URL has a host");
    host.rsplit('@').next().expect("the URL has a host")
}

#[cfg(test)]
mod tests {
    use super::authority;

    #[test]
    fn the_authority_of_a_url_has_no_user_and_no_path() {
        assert_eq!(
            authority("amqp://guest:guest@127.0.0.1:5672/%2f"),
            "127.0.0.1:5672"
        );
        assert_eq!(authority("redis://localhost:6379"), "localhost:6379");
        assert_eq!(authority("postgres://a@b:5432/c?options=d@e"), "b:5432");
    }
}
