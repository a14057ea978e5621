grant usage on schema pillarbox to producer;
grant execute on function pillarbox.enqueue, pillarbox.enqueue_many, pillarbox.ids_taken to producer;
