-- Is there a row whose lease ran out and that this worker may take? /*expired*/ is expired.sql.
/*expired*/
select exists (select from wanted)
