//! The duties of database roles.

/// What a database role may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duty {
    /// Enqueues with the functions, within its [`Bounds`](super::Bounds). It reads and changes no row.
    Producer,
    /// Enqueues by plain INSERT, as any namespace and tenant. It reads no content and changes no row.
    Writer,
    /// Uses the inbox as some consumers. To enqueue, it is a producer or a writer too.
    Consumer,
    /// Runs some kinds of saga. To enqueue their commands, it is a producer or a writer too.
    Orchestrator,
    /// Delivers: `pillarbox run`.
    Dispatcher,
    /// Operates on the rows of one tenant at a time: the one that its program sets for the transaction.
    Api,
    /// Operates on the rows of all tenants, and on what they share.
    ApiAnyTenant,
}

impl Duty {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Producer,
        Self::Writer,
        Self::Consumer,
        Self::Orchestrator,
        Self::Dispatcher,
        Self::Api,
        Self::ApiAnyTenant,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Producer => "producer",
            Self::Writer => "writer",
            Self::Consumer => "consumer",
            Self::Orchestrator => "orchestrator",
            Self::Dispatcher => "dispatcher",
            Self::Api => "api",
            Self::ApiAnyTenant => "api_any_tenant",
        }
    }

    /// Does it need row-level security? Without it, a role of an API would see the rows of all tenants.
    pub(super) fn is_secured(self) -> bool {
        match self {
            Self::Api | Self::ApiAnyTenant => true,
            Self::Producer | Self::Writer | Self::Consumer | Self::Orchestrator | Self::Dispatcher => false,
        }
    }

    /// Does a role on this duty see the rows of all tenants? A producer, a consumer and an orchestrator see none.
    pub(super) fn sees_every_tenant(self) -> bool {
        match self {
            Self::Writer | Self::Dispatcher | Self::ApiAnyTenant => true,
            Self::Producer | Self::Consumer | Self::Orchestrator | Self::Api => false,
        }
    }

    pub(super) fn statements(self) -> &'static str {
        match self {
            Self::Producer => include_str!("producer.sql"),
            Self::Writer => include_str!("writer.sql"),
            Self::Consumer => include_str!("consumer.sql"),
            Self::Orchestrator => include_str!("orchestrator.sql"),
            Self::Dispatcher => include_str!("dispatcher.sql"),
            Self::Api => include_str!("api.sql"),
            Self::ApiAnyTenant => include_str!("api_any_tenant.sql"),
        }
    }
}
