-- The state in which each agent watches its roots, as its heartbeats report it. `realtime`, `scan`
-- and `gap` are the numbers of roots in each state; `report` is JSON.
CREATE TABLE agent_watch (
  agent       INTEGER PRIMARY KEY,
  reported_s  INTEGER NOT NULL,
  realtime    INTEGER NOT NULL,
  scan        INTEGER NOT NULL,
  gap         INTEGER NOT NULL,
  report      TEXT NOT NULL
);
