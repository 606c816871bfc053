-- The URL at which the other processes reach this one, if it has one.
ALTER TABLE replicas ADD COLUMN address text;
