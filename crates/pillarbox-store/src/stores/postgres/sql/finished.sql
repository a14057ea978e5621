-- Deletes the leases of claims whose rows are all settled. A part of the statements that settle.
-- $4 claims
-- Locks: the leases. One that another session is ending is skipped.
), finished as materialized (
  select claim_id, first_row from pillarbox.leases where claim_id = any($4) for update skip locked
), ended as (
  delete from pillarbox.leases l using finished f where l.claim_id = f.claim_id and l.first_row = f.first_row
