//! Places an order: its row, its saga and its event commit together.
//!
//! **If we die here** before the commit, there is no order. After the commit, the next steps are in the outbox.

use clap::Args;
use pillarbox::Outbox;
use pillarbox::saga::Saga;
use sqlx::{PgPool, PgTransaction};

use crate::Result;
use crate::environment::Environment;
use crate::messages::{Customer, OrderPlaced, OrderPlacedLastYear};
use crate::saga::{self, Order};

/// The price of every item.
const CENTS: i64 = 2500;

/// The arguments of `shop order`.
#[derive(Debug, Args)]
pub(crate) struct OrderArgs {
    /// Number of orders
    #[arg(long, default_value_t = 1)]
    count: u32,
    /// Item; `unicorn` is out of stock
    #[arg(long, default_value = "teapot")]
    item: String,
    /// Quantity in each order
    #[arg(long, default_value_t = 1)]
    quantity: i32,
    /// Card; payment refuses `expired`
    #[arg(long, default_value = "4242")]
    card: String,
    /// Address; shipping refuses `nowhere`
    #[arg(long, default_value = "1 Harbour Street")]
    address: String,
    /// Name of the customer
    #[arg(long, default_value = "Jane")]
    name: String,
    /// E-mail address of the customer
    #[arg(long, default_value = "jane@example.com")]
    email: String,
    /// Enqueue OrderPlaced in version 1, as last year's shop did
    #[arg(long)]
    last_year: bool,
}

/// Places the orders, each in its own transaction.
pub(crate) async fn place_all(environment: &Environment, arguments: &OrderArgs) -> Result<()> {
    let saga = saga::define(environment.step_timeout())?;
    let pool = environment.pool()?;
    for _ in 0..arguments.count {
        let id = place(&pool, &saga, arguments).await?;
        println!("order {id}: placed");
    }
    pool.close().await;
    Ok(())
}

async fn place(pool: &PgPool, saga: &Saga<Order>, arguments: &OrderArgs) -> Result<i64> {
    let mut transaction = pool.begin().await?;
    let cents = CENTS * i64::from(arguments.quantity);
    let insert =
        "insert into shop.orders (customer, item, quantity, cents) values ($1, $2, $3, $4) returning id";
    let id: i64 = sqlx::query_scalar(insert)
        .bind(&arguments.name)
        .bind(&arguments.item)
        .bind(arguments.quantity)
        .bind(cents)
        .fetch_one(&mut *transaction)
        .await?;
    let order = Order {
        id,
        item: arguments.item.clone(),
        quantity: arguments.quantity,
        cents,
        card: arguments.card.clone(),
        address: arguments.address.clone(),
        charge: None,
    };
    saga.start(&mut transaction, id, &order).await?;
    enqueue_placed(&mut transaction, id, arguments).await?;
    transaction.commit().await?;
    Ok(id)
}

async fn enqueue_placed(
    transaction: &mut PgTransaction<'static>,
    order: i64,
    arguments: &OrderArgs,
) -> Result<()> {
    let (outbox, name, email) = (Outbox::default().by_function(), &arguments.name, &arguments.email);
    if arguments.last_year {
        let customer = format!("{name} <{email}>");
        let placed = OrderPlacedLastYear { order, customer };
        outbox.enqueue(transaction, &placed).await?;
    } else {
        let customer = Customer {
            name: name.clone(),
            email: email.clone(),
        };
        outbox
            .enqueue(transaction, &OrderPlaced { order, customer })
            .await?;
    }
    Ok(())
}
