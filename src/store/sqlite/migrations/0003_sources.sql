-- What a tool result found, a JSON array of sources: their numbers mean the same for as long as the message is there.
ALTER TABLE messages ADD COLUMN sources TEXT;
