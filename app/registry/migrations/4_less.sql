ALTER TABLE operation DROP COLUMN result;
ALTER TABLE operation DROP COLUMN error;
