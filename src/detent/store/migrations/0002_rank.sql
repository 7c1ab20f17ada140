-- Order within a pool is one static rank: the instant from which an execution may run, less a head start in
-- seconds by its class (src/detent/dispatch/rank.py has the same figures, and a test that they agree). The low
-- bits are a running number, so that equals keep their order and no two are the same.
create function detent.rank(at timestamptz, class smallint) returns bigint language sql volatile as $$
    select (((date_part('epoch', at) * 1000)::bigint - (array[900000, 300000, 60000, 0])[class + 1]) << 20)
           | (nextval('detent.ranks') & 1048575)
$$;

-- What waited already keeps its order, ahead of what comes.
