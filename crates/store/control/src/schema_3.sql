-- Whom a command is for, as a set (portable Roaring format), and the state of those of them that
-- have no row in command_outcome, with its time. Commands of older versions have no set, but a row
-- for everybody.
ALTER TABLE command ADD COLUMN agents BLOB;
ALTER TABLE command ADD COLUMN rest INTEGER NOT NULL DEFAULT 0;
ALTER TABLE command ADD COLUMN rest_at_s INTEGER NOT NULL DEFAULT 0;

CREATE INDEX agent_by_register_ip ON agent (register_ip COLLATE NOCASE);
CREATE INDEX agent_by_ip ON agent (coalesce(ip, register_ip) COLLATE NOCASE);
CREATE INDEX agent_by_os_name ON agent (os_name COLLATE NOCASE);
CREATE INDEX agent_by_os_version ON agent (os_version COLLATE NOCASE);
CREATE INDEX agent_by_os_version_key ON agent (os_version_key);
