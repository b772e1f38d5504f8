--- @include lib/record
-- Exists: 1 if the job is present, else 0.
return record.find(ns, id) and 1 or 0
