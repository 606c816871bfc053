-- Files that go into and come out of tools; their bytes are on disk, in a file named by `blob`. Times as for sessions.
CREATE TABLE files (
    num INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    -- Made for a session: goes when the last session that uses it goes. Other files stay until they are no longer used.
    bound INTEGER NOT NULL,
    name TEXT NOT NULL,
    mime_type TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    purpose TEXT NOT NULL,
    tool TEXT,
    round INTEGER,
    created_at INTEGER NOT NULL,
    last_used_at INTEGER NOT NULL,
    blob TEXT NOT NULL UNIQUE
) STRICT;

CREATE INDEX files_list ON files (owner, created_at DESC, num DESC);
CREATE INDEX files_use ON files (last_used_at);

-- Which session uses which file.
CREATE TABLE session_files (
    session INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    file INTEGER NOT NULL REFERENCES files (num) ON DELETE CASCADE,
    PRIMARY KEY (session, file)
) WITHOUT ROWID, STRICT;

CREATE INDEX session_files_file ON session_files (file);

-- Bytes that nothing refers to any more and that are still on disk.
CREATE TABLE dead_blobs (blob TEXT NOT NULL PRIMARY KEY) WITHOUT ROWID, STRICT;

-- What each owner has, so that a sum does not read every file there is.
CREATE TABLE file_usage (
    owner TEXT NOT NULL PRIMARY KEY,
    files INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) WITHOUT ROWID, STRICT;

-- Names this database in the directory of files, where another one may keep its files too.
CREATE TABLE file_store (name TEXT NOT NULL) STRICT;
INSERT INTO file_store (name) VALUES (lower(hex(randomblob(8))));

CREATE TRIGGER file_added AFTER INSERT ON files BEGIN
    INSERT INTO file_usage (owner, files, bytes) VALUES (NEW.owner, 1, NEW.bytes)
    ON CONFLICT (owner) DO UPDATE SET files = files + 1, bytes = bytes + excluded.bytes;
END;

-- Whatever deletes a file, a cascade included, leaves its bytes to be deleted.
CREATE TRIGGER file_deleted AFTER DELETE ON files BEGIN
    INSERT INTO dead_blobs (blob) VALUES (OLD.blob);
    UPDATE file_usage SET files = files - 1, bytes = bytes - OLD.bytes WHERE owner = OLD.owner;
    DELETE FROM file_usage WHERE owner = OLD.owner AND files <= 0;
END;

CREATE TRIGGER session_left_file AFTER DELETE ON session_files BEGIN
    DELETE FROM files WHERE num = OLD.file AND bound
        AND NOT EXISTS (SELECT 1 FROM session_files WHERE file = OLD.file);
END;
