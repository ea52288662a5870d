"""The bad-input table: what a user can get wrong, and what the error must say, where and when."""
