//! Where PostgreSQL and RabbitMQ are: those that all tests share, or some that a test may kill.

pub(crate) use pillarbox_testkit::Private;

/// A variable that `scripts/test` sets.
pub(crate) fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set; run the tests by scripts/test, or eval \"$(scripts/services env)\"")
    })
}

/// The addresses of what a world needs.
#[derive(Debug, Clone)]
pub(crate) struct Services {
    pub(crate) postgres: String,
    pub(crate) amqp: String,
}

impl Services {
    pub(crate) fn shared() -> Self {
        Self {
            postgres: variable("PILLARBOX_TEST_POSTGRES_URL"),
            amqp: variable("PILLARBOX_TEST_AMQP_URL"),
        }
    }
}
