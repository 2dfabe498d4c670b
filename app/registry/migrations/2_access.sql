-- Callers' keys and operators. Usage is written in batches, and is not in the chain of events.
CREATE TABLE api_key (
    name         TEXT PRIMARY KEY,
    digest       TEXT NOT NULL UNIQUE,
    rpm          INTEGER CHECK (rpm > 0),
    tpm          INTEGER CHECK (tpm > 0),
    concurrency  INTEGER CHECK (concurrency > 0),
    daily_budget INTEGER CHECK (daily_budget > 0),
    budget       INTEGER CHECK (budget > 0),
    created      TEXT NOT NULL,
    revoked      TEXT
) STRICT;

CREATE TABLE key_usage (
    name     TEXT PRIMARY KEY REFERENCES api_key (name),
    requests REAL NOT NULL,
    tokens   REAL NOT NULL,
    at       REAL NOT NULL,
    day      INTEGER NOT NULL,
    today    INTEGER NOT NULL,
    total    INTEGER NOT NULL
) STRICT;

CREATE TABLE operator (
    name    TEXT PRIMARY KEY,
    digest  TEXT NOT NULL UNIQUE,
    role    TEXT NOT NULL CHECK (role IN ('watch', 'promote', 'administer')),
    created TEXT NOT NULL,
    revoked TEXT
) STRICT;
