-- The secret that a rotation has replaced, and how long it still works.
ALTER TABLE api_key ADD COLUMN old_digest TEXT;
ALTER TABLE api_key ADD COLUMN old_until TEXT;
