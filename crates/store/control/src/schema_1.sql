CREATE TABLE setting (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

-- The fleet. Row 0 is the server itself and in no counter.
CREATE TABLE agent (
    id                INTEGER PRIMARY KEY,
    incarnation       INTEGER NOT NULL,
    name              TEXT NOT NULL,
    register_ip       TEXT NOT NULL,
    ip                TEXT,
    version           TEXT,
    version_key       INTEGER,
    hostname          TEXT,
    os_name           TEXT,
    os_platform       TEXT,
    os_family         TEXT,
    os_version        TEXT,
    os_version_key    INTEGER,
    os_arch           TEXT,
    os_uname          TEXT,
    status            TEXT NOT NULL
        CHECK (status IN ('active', 'disconnected', 'never_connected', 'pending')),
    status_code       INTEGER NOT NULL DEFAULT 0,
    added_at_s        INTEGER NOT NULL,
    keepalive_at_s    INTEGER,
    disconnected_at_s INTEGER,
    config_sum        TEXT,
    merged_sum        TEXT,
    config_synced     INTEGER NOT NULL DEFAULT 0
);
-- The server may bear the name of the agent that runs beside it.
CREATE UNIQUE INDEX agent_name ON agent (name) WHERE id > 0;
CREATE INDEX agent_by_name ON agent (name COLLATE NOCASE);
CREATE INDEX agent_by_status ON agent (status);
CREATE INDEX agent_by_platform ON agent (os_platform COLLATE NOCASE);
CREATE INDEX agent_by_version ON agent (version COLLATE NOCASE);

CREATE TABLE agent_group (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    name         TEXT NOT NULL UNIQUE,
    created_at_s INTEGER NOT NULL,
    agents       INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX group_by_name ON agent_group (name COLLATE NOCASE);

CREATE TABLE membership (
    agent    INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    grp      INTEGER NOT NULL,
    PRIMARY KEY (agent, priority)
) WITHOUT ROWID;
CREATE UNIQUE INDEX membership_by_group ON membership (grp, agent);

-- Kept, never counted: kind is 'status', 'os' or 'version'.
CREATE TABLE counter (
    kind  TEXT NOT NULL,
    value TEXT NOT NULL,
    n     INTEGER NOT NULL,
    PRIMARY KEY (kind, value)
) WITHOUT ROWID;

CREATE TRIGGER agent_added AFTER INSERT ON agent WHEN NEW.id <> 0 BEGIN
    INSERT INTO counter VALUES ('status', NEW.status, 1)
        ON CONFLICT DO UPDATE SET n = n + 1;
    INSERT INTO counter SELECT 'os', NEW.os_platform, 1 WHERE NEW.os_platform <> ''
        ON CONFLICT DO UPDATE SET n = n + 1;
    INSERT INTO counter SELECT 'version', NEW.version, 1 WHERE NEW.version <> ''
        ON CONFLICT DO UPDATE SET n = n + 1;
END;
CREATE TRIGGER agent_gone AFTER DELETE ON agent WHEN OLD.id <> 0 BEGIN
    UPDATE counter SET n = n - 1 WHERE kind = 'status' AND value = OLD.status;
    UPDATE counter SET n = n - 1 WHERE kind = 'os' AND value = OLD.os_platform;
    UPDATE counter SET n = n - 1 WHERE kind = 'version' AND value = OLD.version;
    DELETE FROM counter WHERE kind = 'os' AND value = OLD.os_platform AND n = 0;
    DELETE FROM counter WHERE kind = 'version' AND value = OLD.version AND n = 0;
END;
CREATE TRIGGER agent_status AFTER UPDATE OF status ON agent
    WHEN NEW.id <> 0 AND OLD.status <> NEW.status BEGIN
    UPDATE counter SET n = n - 1 WHERE kind = 'status' AND value = OLD.status;
    INSERT INTO counter VALUES ('status', NEW.status, 1)
        ON CONFLICT DO UPDATE SET n = n + 1;
END;
CREATE TRIGGER agent_platform AFTER UPDATE OF os_platform ON agent
    WHEN NEW.id <> 0 AND OLD.os_platform IS NOT NEW.os_platform BEGIN
    UPDATE counter SET n = n - 1 WHERE kind = 'os' AND value = OLD.os_platform;
    DELETE FROM counter WHERE kind = 'os' AND value = OLD.os_platform AND n = 0;
    INSERT INTO counter SELECT 'os', NEW.os_platform, 1 WHERE NEW.os_platform <> ''
        ON CONFLICT DO UPDATE SET n = n + 1;
END;
CREATE TRIGGER agent_version AFTER UPDATE OF version ON agent
    WHEN NEW.id <> 0 AND OLD.version IS NOT NEW.version BEGIN
    UPDATE counter SET n = n - 1 WHERE kind = 'version' AND value = OLD.version;
    DELETE FROM counter WHERE kind = 'version' AND value = OLD.version AND n = 0;
    INSERT INTO counter SELECT 'version', NEW.version, 1 WHERE NEW.version <> ''
        ON CONFLICT DO UPDATE SET n = n + 1;
END;
CREATE TRIGGER membership_added AFTER INSERT ON membership BEGIN
    UPDATE agent_group SET agents = agents + 1 WHERE id = NEW.grp;
END;
CREATE TRIGGER membership_gone AFTER DELETE ON membership BEGIN
    UPDATE agent_group SET agents = agents - 1 WHERE id = OLD.grp;
END;

CREATE TABLE certificate (
    fingerprint     BLOB PRIMARY KEY,
    agent           INTEGER NOT NULL,
    incarnation     INTEGER NOT NULL,
    not_before_s    INTEGER NOT NULL,
    not_after_s     INTEGER NOT NULL,
    used_at_s       INTEGER,
    superseded_at_s INTEGER,
    revoked_at_s    INTEGER
) WITHOUT ROWID;
CREATE INDEX certificate_by_agent ON certificate (agent);
CREATE INDEX certificate_by_end ON certificate (not_after_s);

-- Only the SHA-256 of a token's secret is kept.
CREATE TABLE enrolment_token (
    digest       BLOB PRIMARY KEY,
    groups       TEXT NOT NULL,
    uses_left    INTEGER NOT NULL,
    expires_at_s INTEGER NOT NULL,
    created_at_s INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE user (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    name          TEXT NOT NULL UNIQUE,
    password_hash TEXT NOT NULL,
    allow_run_as  INTEGER NOT NULL
);
CREATE TABLE role (
    id   INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE
);
CREATE TABLE rule (
    id   INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    body TEXT NOT NULL UNIQUE
);
CREATE TABLE policy (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    name      TEXT NOT NULL UNIQUE,
    actions   TEXT NOT NULL,
    resources TEXT NOT NULL,
    allow     INTEGER NOT NULL
);
CREATE TABLE user_role (
    user  INTEGER NOT NULL,
    role  INTEGER NOT NULL,
    level INTEGER NOT NULL,
    PRIMARY KEY (user, role)
) WITHOUT ROWID;
CREATE TABLE role_policy (
    role   INTEGER NOT NULL,
    policy INTEGER NOT NULL,
    level  INTEGER NOT NULL,
    PRIMARY KEY (role, policy)
) WITHOUT ROWID;
CREATE TABLE role_rule (
    role  INTEGER NOT NULL,
    rule  INTEGER NOT NULL,
    level INTEGER NOT NULL,
    PRIMARY KEY (role, rule)
) WITHOUT ROWID;
CREATE INDEX user_by_role ON user_role (role);
CREATE INDEX role_by_policy ON role_policy (policy);
CREATE INDEX role_by_rule ON role_rule (rule);

-- Tokens issued up to an instant are refused: kind is 'user', 'role' or 'run_as'.
CREATE TABLE token_revocation (
    kind           TEXT NOT NULL,
    target         INTEGER NOT NULL,
    issued_until_s INTEGER NOT NULL,
    expires_at_s   INTEGER NOT NULL,
    PRIMARY KEY (kind, target)
) WITHOUT ROWID;

-- The six counts are kept with the command.
CREATE TABLE command (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    kind         TEXT NOT NULL,
    user         TEXT NOT NULL,
    created_at_s INTEGER NOT NULL,
    expires_at_s INTEGER NOT NULL,
    pending      INTEGER NOT NULL DEFAULT 0,
    sent         INTEGER NOT NULL DEFAULT 0,
    acknowledged INTEGER NOT NULL DEFAULT 0,
    failed       INTEGER NOT NULL DEFAULT 0,
    expired      INTEGER NOT NULL DEFAULT 0,
    cancelled    INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX command_unfinished ON command (id) WHERE pending + sent > 0;
-- state: 0 pending, 1 sent, 2 acknowledged, 3 failed, 4 expired, 5 cancelled.
CREATE TABLE command_outcome (
    command INTEGER NOT NULL,
    agent   INTEGER NOT NULL,
    state   INTEGER NOT NULL,
    at_s    INTEGER NOT NULL,
    detail  TEXT NOT NULL,
    PRIMARY KEY (command, agent)
) WITHOUT ROWID;

CREATE TABLE audit (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    at_us  INTEGER NOT NULL,
    user   TEXT NOT NULL,
    action TEXT NOT NULL,
    detail TEXT NOT NULL
);

INSERT INTO setting VALUES ('next_agent', '1');
INSERT INTO agent_group (id, name, created_at_s) VALUES (1, 'default', 0);
