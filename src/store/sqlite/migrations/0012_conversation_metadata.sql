-- The metadata of a conversation, as the JSON text of an object; NULL if it has none. The program limits its size.
ALTER TABLE sessions ADD COLUMN metadata TEXT;
