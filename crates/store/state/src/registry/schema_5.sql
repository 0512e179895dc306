-- How far what a row tells of went: begun, done, partly, refused or failed. Rows from before were
-- written when it was done.
ALTER TABLE audit ADD COLUMN outcome TEXT NOT NULL DEFAULT 'done';
