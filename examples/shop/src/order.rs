//! An order is placed: its row, its saga and its event commit together.
//!
//! **If we die here** before the commit there is no order. After it, everything that follows from it is in the outbox.

use clap::Args;
use pillarbox::Outbox;
use pillarbox::saga::Saga;
use sqlx::{PgPool, PgTransaction};

use crate::Result;
use crate::messages::{Customer, OrderPlaced, OrderPlacedLastYear};
use crate::places::Places;
use crate::saga::{self, Order};

/// What everything costs here.
const CENTS: i64 = 2500;

/// What is ordered, by whom, and how often.
#[derive(Debug, Args)]
pub(crate) struct Wanted {
    /// How many orders
    #[arg(long, default_value_t = 1)]
    count: u32,
    /// What; of a `unicorn` there is none in stock
    #[arg(long, default_value = "teapot")]
    item: String,
    /// How many in each order
    #[arg(long, default_value_t = 1)]
    quantity: i32,
    /// Whose money; the card `expired` is refused
    #[arg(long, default_value = "4242")]
    card: String,
    /// Where to; nobody delivers to `nowhere`
    #[arg(long, default_value = "1 Harbour Street")]
    address: String,
    /// Who
    #[arg(long, default_value = "Jane")]
    name: String,
    /// The customer's address for mail
    #[arg(long, default_value = "jane@example.com")]
    email: String,
    /// Say it in version 1, as the shop of last year did
    #[arg(long)]
    last_year: bool,
}

/// Places as many orders as are wanted, each in a transaction of its own.
pub(crate) async fn place_all(places: &Places, wanted: &Wanted) -> Result<()> {
    let saga = saga::define(places.patience())?;
    let pool = places.pool()?;
    for _ in 0..wanted.count {
        let id = place(&pool, &saga, wanted).await?;
        println!("order {id}: placed");
    }
    pool.close().await;
    Ok(())
}

async fn place(pool: &PgPool, saga: &Saga<Order>, wanted: &Wanted) -> Result<i64> {
    let mut transaction = pool.begin().await?;
    let cents = CENTS * i64::from(wanted.quantity);
    let insert =
        "insert into shop.orders (customer, item, quantity, cents) values ($1, $2, $3, $4) returning id";
    let id: i64 = sqlx::query_scalar(insert)
        .bind(&wanted.name)
        .bind(&wanted.item)
        .bind(wanted.quantity)
        .bind(cents)
        .fetch_one(&mut *transaction)
        .await?;
    let order = Order {
        id,
        item: wanted.item.clone(),
        quantity: wanted.quantity,
        cents,
        card: wanted.card.clone(),
        address: wanted.address.clone(),
        charge: None,
    };
    saga.start(&mut transaction, id, &order).await?;
    tell(&mut transaction, id, wanted).await?;
    transaction.commit().await?;
    Ok(id)
}

async fn tell(transaction: &mut PgTransaction<'static>, order: i64, wanted: &Wanted) -> Result<()> {
    let (outbox, name, email) = (Outbox::default(), &wanted.name, &wanted.email);
    if wanted.last_year {
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
