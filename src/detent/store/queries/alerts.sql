-- What a person should know. Each thing that is wrong has one open row.

-- name: raise_alert
-- Say that something is wrong; a repeat counts up.
insert into detent.alerts (tenant, kind, subject, message)
values ($1::integer, $2::text, $3::text, $4::text)
on conflict (tenant, kind, subject) where resolved_at is null
do update set times = detent.alerts.times + 1, last_at = clock_timestamp(), message = excluded.message;

-- name: resolve_alert
-- Say that it is right again.
update detent.alerts set resolved_at = clock_timestamp()
where tenant = $1::integer and kind = $2::text and subject = $3::text and resolved_at is null;

-- name: open_alerts
-- What is wrong now, newest first.
select alert_id, kind, subject, message, times, raised_at, last_at
from detent.alerts
where tenant = $1::integer and resolved_at is null
order by alert_id desc
limit $2::integer;
