-- Rows in the columns of a claim. /*delivery*/ is delivery.sql. The caller says which rows.
-- Index: the primary key.
select /*delivery*/ e.id
from pillarbox.outbox_events e
