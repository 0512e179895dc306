-- What clients of the 4.x API are given of an agent: the 64 characters of its key.
ALTER TABLE agent ADD COLUMN client_key TEXT;
-- What the agent told of its last scan.
ALTER TABLE agent ADD COLUMN scan_started_at_s INTEGER;
ALTER TABLE agent ADD COLUMN scan_ended_at_s INTEGER;
-- A group's configuration, its MD5 in hex as 4.x clients compare it, and since when it stands.
ALTER TABLE agent_group ADD COLUMN config BLOB;
ALTER TABLE agent_group ADD COLUMN config_sum TEXT NOT NULL DEFAULT '';
ALTER TABLE agent_group ADD COLUMN config_at_s INTEGER NOT NULL DEFAULT 0;

CREATE INDEX agent_by_version_key ON agent (version_key);

-- Counters of the kind 'system': the value is a JSON list of name, platform and version.
INSERT INTO counter
    SELECT 'system', json_array(coalesce(os_name, ''), os_platform, coalesce(os_version, '')),
           count(*)
    FROM agent WHERE id <> 0 AND os_platform IS NOT NULL GROUP BY 2;
CREATE TRIGGER agent_system_added AFTER INSERT ON agent
    WHEN NEW.id <> 0 AND NEW.os_platform IS NOT NULL BEGIN
    INSERT INTO counter VALUES ('system', json_array(coalesce(NEW.os_name, ''), NEW.os_platform,
                                coalesce(NEW.os_version, '')), 1)
        ON CONFLICT DO UPDATE SET n = n + 1;
END;
CREATE TRIGGER agent_system_gone AFTER DELETE ON agent
    WHEN OLD.id <> 0 AND OLD.os_platform IS NOT NULL BEGIN
    UPDATE counter SET n = n - 1 WHERE kind = 'system' AND value = json_array(
        coalesce(OLD.os_name, ''), OLD.os_platform, coalesce(OLD.os_version, ''));
    DELETE FROM counter WHERE kind = 'system' AND n = 0 AND value = json_array(
        coalesce(OLD.os_name, ''), OLD.os_platform, coalesce(OLD.os_version, ''));
END;
CREATE TRIGGER agent_system AFTER UPDATE OF os_name, os_platform, os_version ON agent
    WHEN NEW.id <> 0 AND (OLD.os_platform IS NOT NEW.os_platform
        OR OLD.os_name IS NOT NEW.os_name OR OLD.os_version IS NOT NEW.os_version) BEGIN
    UPDATE counter SET n = n - 1 WHERE kind = 'system' AND value = json_array(
        coalesce(OLD.os_name, ''), OLD.os_platform, coalesce(OLD.os_version, ''));
    DELETE FROM counter WHERE kind = 'system' AND n = 0 AND value = json_array(
        coalesce(OLD.os_name, ''), OLD.os_platform, coalesce(OLD.os_version, ''));
    INSERT INTO counter SELECT 'system', json_array(coalesce(NEW.os_name, ''), NEW.os_platform,
                               coalesce(NEW.os_version, '')), 1
        WHERE NEW.os_platform IS NOT NULL
        ON CONFLICT DO UPDATE SET n = n + 1;
END;
