//! Where PostgreSQL and RabbitMQ are: those that all tests share, or some that a test may kill.

pub(super) use pillarbox_testkit::Private;

/// A variable that `scripts/test` sets.
pub(super) fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set; run the tests by scripts/test, or eval \"$(scripts/services env)\"")
    })
}

/// The addresses of what a world needs.
#[derive(Debug, Clone)]
pub(super) struct Services {
    pub(super) postgres: String,
    pub(super) amqp: String,
}

impl Services {
    pub(super) fn shared() -> Self {
        Self {
            postgres: variable("PILLARBOX_TEST_POSTGRES_URL"),
            amqp: variable("PILLARBOX_TEST_AMQP_URL"),
        }
    }
}
