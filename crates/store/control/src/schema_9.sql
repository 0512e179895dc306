-- The order of registration: the newest agent is found without reading the fleet.
CREATE INDEX agent_by_added ON agent (added_at_s, id);
