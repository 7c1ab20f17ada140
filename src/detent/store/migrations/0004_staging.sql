-- Fires may be staged: decided a little ahead of their instant, and taken back by a change of the job before it comes.
-- What decided_through was before the last fire is where the timer then goes back to.
alter table detent.timers add column decided_before timestamptz;
