-- Waits until the sequence of events has moved from the value that was seen.
-- /*seen*/ the value   /*until_ended*/ also until all transactions that run now have ended   /*patience*/ in seconds
-- Locks: none. By the simple protocol and alone in its message, because the procedure commits.
call pillarbox.wait(/*seen*/0, /*until_ended*/false, /*patience*/2)
