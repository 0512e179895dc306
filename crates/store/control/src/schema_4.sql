-- Whether the agent runs what its groups configure. merged_sum, there since version 1, is what it
-- said it runs: NULL while it was never heard from, empty when it runs none.
UPDATE agent SET merged_sum = '', config_synced = 1
    WHERE status <> 'never_connected' AND merged_sum IS NULL;
CREATE INDEX agent_by_config ON agent (config_synced);

-- Counters of the kind 'config': 'synced' and 'not synced'.
INSERT INTO counter
    SELECT 'config', CASE config_synced WHEN 1 THEN 'synced' ELSE 'not synced' END, count(*)
    FROM agent WHERE id <> 0 GROUP BY 2;
CREATE TRIGGER agent_config_added AFTER INSERT ON agent WHEN NEW.id <> 0 BEGIN
    INSERT INTO counter
        VALUES ('config', CASE NEW.config_synced WHEN 1 THEN 'synced' ELSE 'not synced' END, 1)
        ON CONFLICT DO UPDATE SET n = n + 1;
END;
CREATE TRIGGER agent_config_gone AFTER DELETE ON agent WHEN OLD.id <> 0 BEGIN
    UPDATE counter SET n = n - 1 WHERE kind = 'config'
        AND value = CASE OLD.config_synced WHEN 1 THEN 'synced' ELSE 'not synced' END;
END;
CREATE TRIGGER agent_config AFTER UPDATE OF config_synced ON agent
    WHEN NEW.id <> 0 AND OLD.config_synced <> NEW.config_synced BEGIN
    UPDATE counter SET n = n - 1 WHERE kind = 'config'
        AND value = CASE OLD.config_synced WHEN 1 THEN 'synced' ELSE 'not synced' END;
    INSERT INTO counter
        VALUES ('config', CASE NEW.config_synced WHEN 1 THEN 'synced' ELSE 'not synced' END, 1)
        ON CONFLICT DO UPDATE SET n = n + 1;
END;
