"""What there is to say of a subject, and how it looks, once for all media: builders of Documents and Pictures."""
