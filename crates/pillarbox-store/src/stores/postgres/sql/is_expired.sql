-- Is there a row whose lease expired and that this worker may claim? /*expired*/ is expired.sql.
/*expired*/
select exists (select from wanted)
