//! Vocabularies small enough to read, and files that contradict themselves.
