-- The code name of an agent's operating system.
ALTER TABLE agent ADD COLUMN os_codename TEXT;
